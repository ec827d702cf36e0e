//! Which write, if any, brings something closer to what it should be. It changes nothing that was
//! heard; the caller carries the write out.

use super::*;
use crate::controller::writes::CookiesWrite;
use bowline_api::load_balancer::LoadBalancerPhase;
use bowline_core::cookies::{self, Recorded, Step};
use bowline_core::objects::LoadBalancer;
use bowline_core::update::Extent;

/// The certificates that a load balancer needs.
fn needed<'a>(planner: &'a Planner, lb: &str) -> Needed<'a> {
    Needed {
        certificates: planner.certificates(lb),
        revision: planner.certificates_revision(lb),
        // One that has a claim is used from its namespace only.
        alone: planner.load_balancer(lb).is_some_and(|it| it.claim.is_some()),
    }
}

impl State {
    /// What, if anything, brings a target closer to what it should be.
    pub(in crate::controller) fn next(
        &mut self,
        target: &Target,
        now: Instant,
        clock: Timestamp,
    ) -> Next {
        match target {
            Target::Holder(holder) => self.next_holder(holder),
            Target::Subject(subject) => self.next_subject(subject),
            Target::Leaver(consumer, lb) => self.next_leaver(consumer, lb),
            Target::Binding(lb) => self.next_binding(lb, now, clock),
            Target::Claim(key) => self.next_claim(key, now, clock),
            Target::Job(lb) => self.next_job(lb, now),
            Target::Provision(lb) => self.next_provision(lb, now),
            Target::Address(address) => self.next_address(*address),
            Target::Pool(name) => self.next_pool(name, clock),
            Target::Agents(lb) => self.next_agents(lb, now),
            Target::ExternalIp(key) => self.next_external_ip(key, clock),
            Target::Cookies(lb) => self.next_cookies(lb),
            Target::Certificates(lb) => self.next_certificates(lb, now),
            Target::Plans(lb) => self.next_plan(lb, now),
            Target::Consumer(kind, key) => {
                let next = if self.is_alone(*kind, key) {
                    self.next_alone(key, clock)
                } else {
                    self.next_consumer(*kind, key, now, clock)
                };
                if !matches!(next, Next::Write(..)) {
                    self.acknowledge(*kind, key);
                }
                next
            }
            Target::LoadBalancer(lb) => {
                let next = self.next_load_balancer(lb, now, clock);
                if !matches!(next, Next::Write(..)) {
                    let key = ObjectKey::new("", Arc::clone(lb));
                    self.acknowledge(ConsumerKind::LoadBalancer, &key);
                }
                next
            }
        }
    }

    /// Entries of dead agents are taken out of the Lease, whose room all share.
    fn next_agents(&self, lb: &Arc<str>, now: Instant) -> Next {
        let agents = self.agents.get(&names::agent_lease(lb));
        match agents.map(|agents| agents.dead(self.is_reached(lb), now)).unwrap_or_default() {
            dead if dead.is_empty() => Next::Nothing,
            dead => Next::Write(Write::Agents(Arc::clone(lb), dead), Tried::default()),
        }
    }

    pub(super) fn uid(&self, lb: &str) -> Option<Arc<str>> {
        self.planner.load_balancer(lb).map(|it| Arc::clone(&it.uid))
    }

    /// What `core::cookies` says of the secret of a load balancer.
    pub(super) fn next_cookies(&self, lb: &Arc<str>) -> Next {
        let driven = self.balancers.get(lb).is_some_and(|shown| shown.status.driven);
        let (uid, shown) = (self.uid(lb), self.cookies.get(lb));
        let recorded = shown.map(|shown| Recorded {
            owner: shown.status.owner.as_deref(),
            readable: shown.status.readable,
        });
        let step = cookies::step(uid.as_deref(), driven, recorded);
        let Some(uid) = uid.filter(|_| step != Step::Keep) else { return Next::Nothing };
        let version = shown.map(|shown| shown.version.to_string());
        let tried = Tried { name: names::cookies_secret(lb), version: version.clone() };
        let anew = step.is_anew();
        let write = CookiesWrite { load_balancer: Arc::clone(lb), uid, version, anew };
        Next::Write(Write::Cookies(write), tried)
    }

    pub(super) fn next_certificates(&mut self, lb: &Arc<str>, now: Instant) -> Next {
        let (needed, uid) = (needed(&self.planner, lb), self.uid(lb));
        if needed.certificates.is_empty() && !self.certificates.contains_key(lb) {
            return Next::Nothing;
        }
        let certificates = self.certificates.entry(Arc::clone(lb)).or_default();
        // A Plan that still refers to a certificate must find it.
        let written = self.plans.get(lb).is_none_or(Plans::is_settled);
        let next = certificates.next(lb, uid.as_deref(), needed, written, now);
        if certificates.take_withheld_changed() {
            self.tell_withheld(lb);
        }
        match next {
            None => Next::Nothing,
            Some(certificates::Next::Later(at)) => Next::Later(at),
            Some(certificates::Next::Fetch(wanted)) => {
                Next::Write(Write::Fetch(wanted), Tried::default())
            }
            Some(certificates::Next::Write(write)) => {
                let tried = Tried { name: write.name.clone(), version: write.version.clone() };
                let uid = uid.unwrap_or_default();
                Next::Write(Write::Certificates(write, Arc::clone(lb), uid), tried)
            }
        }
    }

    /// Other certificates have no room than before: Ingresses are told.
    fn tell_withheld(&mut self, lb: &Arc<str>) {
        let withheld = self.certificates.get(lb).map(Certificates::withheld);
        let now = withheld.filter(|it| !it.is_empty()).map_or_else(Vec::new, |withheld| {
            let ingresses =
                self.planner.consumers(lb).filter(|it| it.kind == ConsumerKind::Ingress);
            let mut told = Vec::new();
            for consumer in ingresses {
                let parts = self.planner.parts_on(lb, consumer.kind, &key(consumer));
                for site in parts.iter().flat_map(|part| &part.sites) {
                    let certificate = site.tls.as_ref().and_then(|it| it.certificate.as_ref());
                    let why = certificate.and_then(|it| withheld.get(&it.hash));
                    told.extend(why.map(|why| {
                        let message = format!(
                            "the certificate of {} is not handed to load balancer {lb}: {why}; \
                             handshakes for it fail, or go on with the one before",
                            site.host
                        );
                        let problem = Problem::new(Reason::TooManyCertificates, message);
                        Refusal { consumer: consumer.clone(), problem, extent: Extent::Part }
                    }));
                }
            }
            told.sort();
            told.dedup();
            told
        });
        let before = self.withheld.remove(lb).unwrap_or_default();
        // Both are sorted.
        for refusal in now.iter().filter(|it| before.binary_search(it).is_err()) {
            self.say(&refusal.consumer, &refusal.problem);
        }
        let concerned = before.iter().chain(&now).map(|it| &it.consumer);
        let concerned = concerned.map(|it| Target::Consumer(it.kind, key(it)));
        self.dirty.extend(concerned.collect::<Vec<_>>());
        // What waited for one that has no room waits no longer.
        self.dirty.insert(Target::Plans(Arc::clone(lb)));
        self.dirty.insert(Target::LoadBalancer(Arc::clone(lb)));
        if !now.is_empty() {
            self.withheld.insert(Arc::clone(lb), now);
        }
    }

    /// What another version wrote is planned anew where an agent serves nothing of it; see [`Refusal::unread`].
    fn plan_anew(&mut self, lb: &Arc<str>, now: Instant) {
        let Some(plans) = self.plans.get_mut(lb).filter(|plans| plans.has_foreign()) else {
            return;
        };
        let refused = self.agents.get(&names::agent_lease(lb)).map(|it| &it.joint().refused);
        let unread = refused.into_iter().flatten().filter_map(Refusal::unread).cloned().collect();
        let anew = plans.plan_anew(&unread, self.change + 1);
        if anew.is_empty() {
            return;
        }
        self.change += 1;
        let hash = plans.with_foreign(self.planner.hash(lb));
        self.history.record(lb, hash, self.change);
        for consumer in anew {
            tracing::info!(load_balancer = &**lb, %consumer, "planned anew: no agent could read it");
            let tracked = self.tracked.entry((consumer.kind, key(&consumer))).or_default();
            (tracked.changed, tracked.since) = (self.change, Some(now));
        }
    }

    pub(super) fn next_plan(&mut self, lb: &Arc<str>, now: Instant) -> Next {
        self.plan_anew(lb, now);
        let (uid, certificates) = (self.uid(lb), self.certificates.get(lb));
        let Some(plans) = self.plans.get_mut(lb) else { return Next::Nothing };
        // Certificates first: the agent finds them when it reads the Plan.
        let released = plans.release(|hash| certificates.is_none_or(|it| it.lacks(hash)), now);
        if released && plans.has_foreign() {
            // What of it stays as another version has it is known only now.
            let hash = plans.with_foreign(self.planner.hash(lb));
            self.history.record(lb, hash, self.change);
        }
        let Some(write) = plans.next(lb, uid.as_deref(), now) else {
            return plans.held_back_until().map_or(Next::Nothing, Next::Later);
        };
        let tried = Tried { name: write.name.clone(), version: write.version.clone() };
        if uid.is_none() && !write.is_deletion() {
            return Next::Nothing;
        }
        Next::Write(Write::Plan(write, uid.unwrap_or_default()), tried)
    }

    pub(super) fn next_consumer(
        &mut self,
        kind: ConsumerKind,
        key: &ObjectKey,
        now: Instant,
        clock: Timestamp,
    ) -> Next {
        let Some(outcome) = self.planner.outcome(kind, key) else {
            return self.next_stranger(kind, key);
        };
        let lb = place(outcome).cloned();
        if !self.planner.has_status_address(kind, key) {
            return self.next_stranger(kind, key);
        }
        if outcome.is_in_passing(self.is_decided(kind, key)) {
            return Next::Nothing;
        }
        let tracked = self.tracked.get(&(kind, key.clone())).cloned().unwrap_or_default();
        let changed = tracked.changed;
        let verdict = lb.as_ref().and_then(|lb| self.verdict(lb, now));
        let (undone, unlisted) =
            lb.as_ref().map(|lb| self.undone(lb, &outcome.consumer)).unwrap_or_default();
        let progress = status::progress(verdict.as_ref(), changed, undone, unlisted);
        let names = |lb: &str| self.hostnames(lb);
        let mut same_points = false;
        let patch = match kind {
            ConsumerKind::Service => {
                let Some(shown) = self.services.get(key) else { return Next::Nothing };
                let written = status::Written {
                    points: &render::points_of_service(&shown.status),
                    programmed: render::is_programmed(&shown.status),
                };
                let want = status::consumer(outcome, &progress, written, names);
                same_points = want.points == written.points;
                let dns = self.name_condition(key);
                render::service(&want, render::IP_MODE, dns.as_ref(), shown, clock)
                    .map(|patch| (patch, Tried::at(&shown.version)))
            }
            _ => {
                let Some(shown) = self.ingresses.get(key) else { return Next::Nothing };
                let points = render::points_of_ingress(&shown.status);
                let written = status::Written { programmed: !points.is_empty(), points: &points };
                let want = status::consumer(outcome, &progress, written, names);
                render::ingress(&want.points, shown).map(|patch| (patch, Tried::at(&shown.version)))
            }
        };
        if let Some(lb) = lb {
            let unproven = self.unproven.entry(lb).or_default();
            if matches!(progress, status::Progress::Waiting(_)) {
                unproven.insert((kind, key.clone()));
            } else {
                unproven.remove(&(kind, key.clone()));
            }
        }
        // A proof that is on its way saves the write that would say that it is missing.
        let behind = progress == status::Progress::Waiting(Waiting::Agent(Pending::AgentBehind));
        let until = tracked.since.map(|since| since + BEHIND).filter(|until| now < *until);
        if let Some(until) = until.filter(|_| behind && same_points && patch.is_some()) {
            return Next::Later(until);
        }
        match patch {
            None => Next::Nothing,
            Some((patch, tried)) => Next::Write(Write::Consumer(kind, key.clone(), patch), tried),
        }
    }

    /// What not all agents do for a consumer, and how many refusals they do not name that may be of it. An Ingress is
    /// reached at the load balancer's own listeners.
    pub(super) fn undone(&self, lb: &Arc<str>, consumer: &ConsumerRef) -> (Undone, usize) {
        let Some(agents) = self.agents.get(&names::agent_lease(lb)) else {
            return Default::default();
        };
        let report = agents.joint();
        let shared = consumer.kind == ConsumerKind::Ingress;
        let withheld = self.withheld.get(lb).into_iter().flatten();
        let refusals = report.refused.iter().chain(withheld).filter(|refusal| {
            shared && refusal.consumer.kind == ConsumerKind::LoadBalancer
                || refusal.consumer == *consumer
        });
        let parts = if shared {
            self.planner.parts(ConsumerKind::LoadBalancer, &ObjectKey::new("", Arc::clone(lb)))
        } else {
            self.planner.parts(consumer.kind, &key(consumer))
        };
        let listeners = parts.iter().flat_map(|part| &part.listeners).map(ListenerKey::of);
        (Undone::of(refusals, listeners), report.unlisted.may_concern(consumer))
    }

    /// A consumer that is not ours, or has no status of ours: what we once wrote is taken back.
    pub(super) fn next_stranger(&mut self, kind: ConsumerKind, key: &ObjectKey) -> Next {
        let patch = match kind {
            ConsumerKind::Service => self.services.get(key).and_then(|shown| {
                let recorded = self.recorded_for(key);
                Some((
                    render::service_cleared(shown, &recorded, |it| self.is_hostname(it))?,
                    Tried::at(&shown.version),
                ))
            }),
            ConsumerKind::Ingress => self
                .ingresses
                .get(key)
                .filter(|_| self.tracked.contains_key(&(kind, key.clone())))
                .and_then(|shown| Some((render::ingress(&[], shown)?, Tried::at(&shown.version)))),
            ConsumerKind::LoadBalancer => None,
        };
        match patch {
            Some((patch, tried)) => Next::Write(Write::Consumer(kind, key.clone(), patch), tried),
            None => {
                if self.planner.outcome(kind, key).is_none() {
                    self.tracked.remove(&(kind, key.clone()));
                }
                Next::Nothing
            }
        }
    }

    /// The addresses that a load balancer shows: one of its pool when its agent has applied the plan that
    /// has it, and until then what it showed before and still has.
    fn addresses_in_force(&self, lb: &LoadBalancer, verdict: Option<&Verdict>) -> Vec<IpAddr> {
        let (key, planned) = (ObjectKey::new("", Arc::clone(&lb.name)), self.planner.addresses(lb));
        let of_pool = lb.addresses.is_empty() && lb.address_pool.is_some();
        let tracked = self.tracked.get(&(ConsumerKind::LoadBalancer, key)).filter(|_| of_pool);
        let shown = self.balancers.get(&lb.name).map(|it| &it.status.status.ingress);
        let shown: Vec<IpAddr> = shown.into_iter().flatten().filter_map(|it| it.ip).collect();
        match (tracked, verdict) {
            (Some(tracked), Some(verdict)) => {
                let draining = self.planner.draining(lb);
                let (undone, unlisted) = match draining.is_empty() {
                    true => Default::default(),
                    false => self.closed(&lb.name),
                };
                let progress = status::progress(Some(verdict), tracked.changed, undone, unlisted);
                status::in_force(&progress, &planned, draining, &shown)
            }
            _ => planned,
        }
    }

    /// What an agent could not open of all that is on a load balancer, and how many refusals are not
    /// named.
    fn closed(&self, lb: &Arc<str>) -> (Undone, usize) {
        let Some(agents) = self.agents.get(&names::agent_lease(lb)) else {
            return Default::default();
        };
        let joint = agents.joint();
        // What is served for another consumer is open.
        let shut =
            |it: &&Refusal| matches!(it.extent, Extent::Listener(_)) && it.unserved().is_none();
        let refusals = joint.refused.iter().filter(shut);
        let own = (ConsumerKind::LoadBalancer, ObjectKey::new("", Arc::clone(lb)));
        let consumers = self.planner.consumers(lb).map(|it| (it.kind, key(it)));
        let listeners = consumers.chain([own]).flat_map(|(kind, key)| {
            let parts = self.planner.parts_on(lb, kind, &key);
            parts.iter().flat_map(|it| &it.listeners).map(ListenerKey::of).collect::<Vec<_>>()
        });
        (Undone::of(refusals, listeners), joint.unlisted.count)
    }

    pub(super) fn next_load_balancer(
        &mut self,
        lb: &Arc<str>,
        now: Instant,
        clock: Timestamp,
    ) -> Next {
        let Some(shown) = self.balancers.get(lb) else { return Next::Nothing };
        let Some(known) = self.planner.load_balancer(lb) else {
            return Next::Nothing;
        };
        let verdict = self.verdict(lb, now);
        let agents = self.agents.get(&names::agent_lease(lb));
        let before = &shown.status.status;
        let running = before.phase == Some(LoadBalancerPhase::Running);
        let mut waiting = status::waiting(verdict.as_ref());
        let mut again = None;
        if waiting == Some(Waiting::Agent(Pending::AgentBehind)) && running {
            let since = *self.behind.entry(Arc::clone(lb)).or_insert(now);
            if now.duration_since(since) < BEHIND {
                again = Some(since + BEHIND);
                waiting = None;
            }
        } else {
            self.behind.remove(lb);
        }
        // The Lease may be of agents that died before we came: their end, or their next renewal, shows.
        let unsure = agents.is_some_and(Replicas::are_unsure);
        if unsure && waiting.is_none() && !running {
            return Next::Nothing;
        }
        // Lists that change often are written now and then, and not gone through in between.
        let last = self.written.get(lb).map(|at| *at + GAP).filter(|at| now < *at);
        if let Some(at) = last.filter(|_| running == waiting.is_none()) {
            return Next::Later(at);
        }
        #[cfg(test)]
        {
            self.walks += 1;
        }
        let standing = self.standing(lb);
        let said = render::condition_of(&before.conditions, names::CONDITION_ASSIGNED);
        let assigned = self.assigned(lb, said);
        let reported = agents.map_or(&[][..], |agents| &agents.joint().refused);
        let withheld = self.withheld.get(lb).map_or(&[][..], Vec::as_slice);
        let undone: Vec<_> = reported.iter().chain(withheld).cloned().collect();
        let want = status::load_balancer(Known {
            name: lb,
            verdict: verdict.as_ref(),
            addresses: self.addresses_in_force(known, verdict.as_ref()),
            consumers: self.planner.consumers(lb),
            refused: self.planner.refused(lb),
            undone: &undone,
            catching_up: again.is_some(),
            unreclaimed: render::unreclaimed(before),
            made: standing.as_ref(),
            assigned: assigned.as_ref(),
        });
        let mut rendered = render::load_balancer(want, self.hostnames(lb), shown, clock);
        if let Some(standing) = standing {
            let (type_, before) = (names::CONDITION_PROVISIONED, &rendered.conditions);
            rendered.conditions =
                render::with_condition(before, type_, &standing, shown.generation, clock);
        }
        let type_ = names::CONDITION_ASSIGNED;
        match assigned {
            None => rendered.conditions.retain(|it| it.type_ != type_),
            Some(assigned) => {
                let before = &rendered.conditions;
                rendered.conditions =
                    render::with_condition(before, type_, &assigned, shown.generation, clock);
            }
        }
        if rendered == *before {
            return again.map_or(Next::Nothing, Next::Later);
        }
        let tried = Tried::at(&shown.version);
        let patch = render::load_balancer_patch(&rendered, &shown.version);
        self.written.insert(Arc::clone(lb), now);
        if again.is_some() {
            // Looked at again when the answer comes.
            self.dirty.insert(Target::LoadBalancer(Arc::clone(lb)));
        }
        Next::Write(Write::LoadBalancer(Arc::clone(lb), patch), tried)
    }
}
