//! The next write of each target, if it needs one: asks the part that owns the target. Asking may also acknowledge a
//! status to the address machine, answer a machine whose write is out of date, and replan fragments that no agent can
//! read. It does no I/O: the turn carries the write out.

use super::State;
use crate::controller::certificates::{CertificateStep, Certificates, Needed};
use crate::controller::consumers::{key, key_of};
use crate::controller::kinds::Parts;
use crate::controller::plans::Plans;
use crate::controller::target::{Next, Target, Tried};
use crate::controller::writer::{CookiesWrite, Write};
use bowline_api::names;
use bowline_api::provisioned_objects::{Made, Wish};
use bowline_core::binder::{self, Wipe};
use bowline_core::clock::Uptime;
use bowline_core::cookies::{self, Recorded, Step};
use bowline_core::key::{ConsumerKind, ConsumerRef, ObjectKey};
use bowline_core::plan::Transport;
use bowline_core::planner::Planner;
use bowline_core::status;
use bowline_core::update::{ListenerKey, Refusal};
use k8s_openapi::jiff::Timestamp;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// Requeue interval while a load balancer is being wiped.
const WIPING: Duration = Duration::from_secs(1);

impl State {
    /// The next write of a target.
    pub(in crate::controller) fn next(
        &mut self,
        target: &Target,
        now: Uptime,
        clock: Timestamp,
    ) -> Next {
        match target {
            Target::Holder(holder) => self.addresses.next_holder(holder),
            Target::Subject(subject) => self.bindings.next_subject(subject),
            Target::Leaver(consumer, lb) => self.next_leaver(consumer, lb),
            Target::Binding(lb) => self.next_binding(lb, now, clock),
            Target::Claim(key) => self.next_claim(key, now, clock),
            Target::Job(lb) => self.next_job(lb, now),
            Target::Provision(lb) => self.next_provision(lb, now),
            Target::Address(address) => self.addresses.next_address(*address),
            Target::Announced(address) => self.next_announced(*address),
            Target::Agents(lb) => self.next_agents(lb, now),
            Target::Object(kind, key) => {
                let parts = &mut Parts { addresses: &mut self.addresses, speakers: &self.speakers };
                self.kinds.next(*kind, key, parts, clock)
            }
            Target::Cookies(lb) => self.next_cookies(lb),
            Target::Certificates(lb) => self.next_certificates(lb, now),
            Target::Plans(lb) => self.next_plan(lb, now),
            Target::Consumer(kind, key) => {
                let next = self.next_consumer(*kind, key, now, clock);
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

    /// Tells the address machine which addresses a consumer's status shows: its other addresses may be released. Called
    /// when the status needs no write now.
    pub(super) fn acknowledge(&mut self, kind: ConsumerKind, key: &ObjectKey) {
        let shown = self.boards.addresses(kind, key);
        if let (Some(holder), Some(addresses)) = (self.holder(kind, key), shown) {
            self.addresses.acknowledge(holder, addresses);
        }
    }

    /// The write that removes dead agents' entries from a Lease. All agents share the Lease's room.
    fn next_agents(&self, lb: &Arc<str>, now: Uptime) -> Next {
        match self.agents.dead(lb, self.provisions.is_reached(lb), now) {
            dead if dead.is_empty() => Next::Nothing,
            dead => Next::Write(Write::Agents(Arc::clone(lb), dead), Tried::default()),
        }
    }

    fn next_leaver(&self, consumer: &ConsumerRef, lb: &Arc<str>) -> Next {
        let shown = self.boards.load_balancers.get(lb);
        let claim = shown.and_then(|it| it.status.known.tie.claim.as_ref());
        self.seats.next_leaver(consumer, lb, claim.map(|claim| claim.key.clone()))
    }

    /// The next write of the binder, then of admission. Both write the same object, so only one is under way at a time.
    fn next_binding(&mut self, lb: &Arc<str>, now: Uptime, clock: Timestamp) -> Next {
        let shown = self.boards.load_balancers.get(lb);
        let (bindings, outbox) = (&mut self.bindings, &mut self.outbox);
        match bindings.next_load_balancer(lb, shown, now, clock, outbox) {
            Some(next) => {
                if self.seats.has_write(lb) {
                    self.outbox.enqueue(Target::Binding(Arc::clone(lb)));
                }
                next
            }
            None => self.seats.next(lb, shown, now),
        }
    }

    fn next_claim(&mut self, key: &ObjectKey, now: Uptime, clock: Timestamp) -> Next {
        let boards = &self.boards;
        let load_balancer = |lb: &Arc<str>| boards.load_balancers.get(lb);
        let shown = boards.claims.get(key);
        self.bindings.next_claim(key, shown, load_balancer, now, clock, &mut self.outbox)
    }

    /// Recycles or deprovisions a load balancer whose claim is deleted, once nothing is planned for it and its agents
    /// have reported an empty plan.
    fn next_job(&mut self, lb: &Arc<str>, now: Uptime) -> Next {
        let Some(job) = self.bindings.job(lb) else { return Next::Nothing };
        let shown = self.boards.load_balancers.get(lb);
        let known = shown.map(|shown| &shown.status.known);
        let same = known.is_some_and(|it| it.uid == job.uid && it.tie.uid() == job.claim.as_ref());
        let empty = self.planner.consumers(lb).next().is_none() && self.plans.is_empty(lb);
        let (id, kind) = (job.id, job.kind);
        // Agents that are removed with their load balancer need not report.
        let made = shown.and_then(|it| it.status.made.clone());
        if let Some(made) = made.filter(|_| same && empty && kind == binder::JobKind::Deprovision) {
            return self.provisions.next_removal(lb, made, id, now);
        }
        let waiting = status::waiting(self.verdict(lb, now).as_ref());
        let result = match Wipe::of(lb, same, empty, waiting.as_ref()) {
            Wipe::NotYet => return Next::Later(now + WIPING),
            Wipe::Waits(why) => {
                self.bindings.job_waits(id, why);
                return Next::Later(now + WIPING);
            }
            Wipe::Done => Ok(()),
            Wipe::Failed(why) => Err(why),
        };
        self.bindings.finish_job(lb, id, result);
        Next::Later(now)
    }

    fn next_provision(&mut self, lb: &Arc<str>, now: Uptime) -> Next {
        let Some(shown) = self.boards.load_balancers.get(lb) else { return Next::Nothing };
        let Some(made) = shown.status.made.clone().filter(|made: &Made| !made.deleting) else {
            return Next::Nothing;
        };
        self.provisions.note_door(&made, lb);
        // If the class is deleted, the wanted objects are unknown, so the existing ones stay unchanged.
        let class = shown.status.known.class.as_ref();
        let Some(class) = class.and_then(|class| self.bindings.class(class)) else {
            return Next::Nothing;
        };
        let (listeners, namespace) = (self.open_ports(lb), self.bindings.own_namespace());
        let wish = |images, deny_members| Wish {
            deny_members,
            ..Wish::new(made, &namespace, &class, listeners, images)
        };
        self.provisions.next(lb, wish, now)
    }

    /// The ports that are open on a load balancer.
    fn open_ports(&self, lb: &Arc<str>) -> BTreeSet<(u16, Transport)> {
        self.listeners_on(lb).map(|it| (it.port, it.transport)).collect()
    }

    /// All listeners on a load balancer.
    pub(super) fn listeners_on(&self, lb: &Arc<str>) -> impl Iterator<Item = ListenerKey> {
        self.consumers_on(lb).flat_map(|(kind, key)| {
            let parts = self.planner.parts_on(lb, kind, &key);
            parts.iter().flat_map(|it| &it.listeners).map(ListenerKey::of).collect::<Vec<_>>()
        })
    }

    /// The write that `core::cookies` decides for the cookie Secret.
    fn next_cookies(&self, lb: &Arc<str>) -> Next {
        let driven = self.boards.driven(lb).unwrap_or_default();
        let (uid, shown) = (self.uid(lb), self.boards.cookies.get(lb));
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

    fn next_certificates(&mut self, lb: &Arc<str>, now: Uptime) -> Next {
        let (needed, uid) = (needed(&self.planner, lb), self.uid(lb));
        if needed.certificates.is_empty() && self.certificates.get(lb).is_none() {
            return Next::Nothing;
        }
        // Certificates are removed only when no Plan refers to them any more.
        let written = self.plans.is_settled(lb);
        let certificates = self.certificates.entry(lb);
        let next = certificates.next(lb, uid.as_deref(), needed, written, now);
        if certificates.take_withheld_changed() {
            self.withhold(lb);
        }
        match next {
            None => Next::Nothing,
            Some(CertificateStep::Later(at)) => Next::Later(at),
            Some(CertificateStep::Fetch(wanted)) => {
                Next::Write(Write::Fetch(wanted), Tried::default())
            }
            Some(CertificateStep::Write(write)) => {
                let tried = Tried { name: write.name.clone(), version: write.version.clone() };
                let uid = uid.unwrap_or_default();
                Next::Write(Write::Certificates(write, Arc::clone(lb), uid), tried)
            }
        }
    }

    /// Takes in changed withheld certificates: warns and enqueues the Ingresses that they concern.
    fn withhold(&mut self, lb: &Arc<str>) {
        let now = self.withheld_from(lb);
        let before = self.certificates.withhold(lb, now);
        let now = self.certificates.withheld(lb);
        // Both are sorted.
        for refusal in now.iter().filter(|it| before.binary_search(it).is_err()) {
            self.outbox.warn(&refusal.consumer, &refusal.problem);
        }
        let concerned = before.iter().chain(now).map(|it| key_of(&it.consumer));
        self.outbox.enqueue_all(concerned.map(|(kind, key)| Target::Consumer(kind, key)));
        // A fragment does not wait for a withheld certificate.
        self.outbox.enqueue(Target::Plans(Arc::clone(lb)));
        self.outbox.enqueue(Target::LoadBalancer(Arc::clone(lb)));
    }

    /// A refusal for each Ingress whose certificate is withheld, sorted.
    fn withheld_from(&self, lb: &Arc<str>) -> Vec<Refusal> {
        let withheld = self.certificates.get(lb).map(Certificates::withheld);
        let Some(withheld) = withheld.filter(|it| !it.is_empty()) else { return Vec::new() };
        let mut refusals = Vec::new();
        let ingresses = self.planner.consumers(lb).filter(|it| it.kind == ConsumerKind::Ingress);
        for consumer in ingresses {
            let parts = self.planner.parts_on(lb, consumer.kind, &key(consumer));
            for site in parts.iter().flat_map(|part| &part.sites) {
                let certificate = site.tls.as_ref().and_then(|it| it.certificate.as_ref());
                let why = certificate.and_then(|it| withheld.get(&it.hash));
                refusals.extend(why.map(|why| why.refusal(consumer, &site.host, lb)));
            }
        }
        refusals.sort();
        refusals.dedup();
        refusals
    }

    fn next_plan(&mut self, lb: &Arc<str>, now: Uptime) -> Next {
        self.plan_anew(lb, now);
        let (uid, certificates, change) = (self.uid(lb), &self.certificates, self.plans.change());
        let known = self.planner.load_balancer(lb);
        let (is_known, carrier) = (known.is_some(), known.and_then(|it| it.carrier));
        let Some(plans) = self.plans.get_mut(lb) else { return Next::Nothing };
        // Certificates are written first, so that the agent finds them when it reads the Plan.
        let released = plans.release(|hash| certificates.lacks(lb, hash), now);
        if released && plans.has_foreign() {
            // Only now is it known which unread fragments stay.
            let hash = plans.with_foreign(self.planner.hash(lb));
            self.agents.record_planned(lb, hash, change);
        }
        let write = plans.next(lb, uid.as_deref(), now);
        let driver = || plans.next_driver(lb, carrier).filter(|_| is_known);
        let Some(mut write) = write.or_else(driver) else {
            return plans.held_back_until().map_or(Next::Nothing, Next::Later);
        };
        write.carrier = carrier;
        let tried = Tried { name: write.name.clone(), version: write.version.clone() };
        if uid.is_none() && !write.is_deletion() {
            return Next::Nothing;
        }
        Next::Write(Write::Plan(write, uid.unwrap_or_default()), tried)
    }

    /// Replans unread fragments that an agent cannot read either; see [`Refusal::unread`].
    fn plan_anew(&mut self, lb: &Arc<str>, now: Uptime) {
        if !self.plans.get(lb).is_some_and(Plans::has_foreign) {
            return;
        }
        let refused = self.agents.refused(lb).iter();
        let unread = refused.filter_map(Refusal::unread).cloned().collect();
        let change = self.plans.change() + 1;
        let Some(plans) = self.plans.get_mut(lb) else { return };
        let anew = plans.plan_anew(&unread, change);
        if anew.is_empty() {
            return;
        }
        let hash = plans.with_foreign(self.planner.hash(lb));
        self.plans.begin_change();
        self.agents.record_planned(lb, hash, change);
        for consumer in anew {
            tracing::info!(load_balancer = &**lb, %consumer, "planned anew: no agent could read it");
            self.consumers.replan(key_of(&consumer), change, now);
        }
    }
}

/// The certificates that a load balancer needs.
fn needed<'a>(planner: &'a Planner, lb: &str) -> Needed<'a> {
    Needed {
        certificates: planner.certificates(lb),
        revision: planner.certificates_revision(lb),
        // A load balancer with a claim is used from the claim's namespace only.
        alone: planner.load_balancer(lb).is_some_and(|it| it.claim.is_some()),
    }
}
