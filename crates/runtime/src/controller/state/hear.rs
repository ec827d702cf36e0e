//! How what the watches tell enters the state: objects and their status, Plans, certificates, Leases.
//! It only records, and marks what is to be looked at again.

use super::*;
use bowline_api::plan::Unread;
use bowline_core::provision::Reach;
use bowline_core::update::Refusal;

impl State {
    /// Takes in what was heard. Nothing is planned before [`Self::settle`].
    pub(in crate::controller) fn hear(&mut self, heard: Heard, now: Instant) {
        match heard {
            Heard::Planner(event, status) => self.hear_object(event, status),
            Heard::Plan(seen) => self.hear_plan(seen),
            Heard::Certificates(seen) => self.hear_certificates(seen),
            Heard::Cookies(seen) => self.hear_cookies(seen),
            Heard::Lease(seen) => self.hear_lease(seen, now),
            Heard::Pool(seen) => self.hear_pool(seen),
            Heard::Address(seen) => self.hear_address(seen),
            Heard::ExternalIp(seen) => self.hear_external_ip(seen),
            Heard::Node(seen) => self.hear_node(seen),
            Heard::Class(seen) => self.hear_class(seen),
            Heard::Proxies(Seen::Apply(lb) | Seen::Delete(lb)) => self.touch_provision(&lb),
            Heard::Proxies(Seen::Begin | Seen::Done) => {}
        }
    }

    pub(super) fn hear_object(&mut self, event: Event, status: Option<Status>) {
        use bowline_core::planner::Kind;
        self.bindings.hear(&event, status.as_ref());
        self.seats.hear(&event, status.as_ref());
        match (&event, status) {
            (Event::Apply(object), Some(status)) => self.show(object, status),
            (Event::Begin(Kind::Service), _) => self.services.begin(),
            (Event::Done(Kind::Service), _) => self.services.done(),
            (Event::Delete(Kind::Service, key), _) => {
                self.services.remove(key);
                self.touch_door(key);
                self.pooled.touch(ConsumerKind::Service, key);
            }
            (Event::Begin(Kind::Ingress), _) => self.ingresses.begin(),
            (Event::Done(Kind::Ingress), _) => self.ingresses.done(),
            (Event::Delete(Kind::Ingress, key), _) => self.ingresses.remove(key),
            (Event::Begin(Kind::Claim), _) => self.bindings.claims.begin(),
            (Event::Done(Kind::Claim), _) => self.bindings.claims.done(),
            (Event::Delete(Kind::Claim, key), _) => self.bindings.claims.remove(key),
            (Event::Begin(Kind::LoadBalancer), _) => self.balancers.begin(),
            (Event::Done(Kind::LoadBalancer), _) => self.balancers.done(),
            (Event::Delete(Kind::LoadBalancer, key), _) => {
                self.forget(&key.name);
                self.pooled.touch(ConsumerKind::LoadBalancer, key);
            }
            _ => {}
        }
        self.pooled.hear_namespace(&event);
        let listed = match &event {
            Event::Done(Kind::Service) => Some(ConsumerKind::Service),
            Event::Done(Kind::LoadBalancer) => Some(ConsumerKind::LoadBalancer),
            _ => None,
        };
        self.planner.handle(event);
        if let Some(kind) = listed {
            self.sweep_holders(kind);
        }
    }

    pub(super) fn show(&mut self, object: &Object, status: Status) {
        match (object, status) {
            (Object::Service(service), Status::Service(shown)) => {
                self.services.put(service.key.clone(), shown);
                self.touch_door(&service.key);
                self.pooled.touch(ConsumerKind::Service, &service.key);
                self.dirty.insert(Target::Consumer(ConsumerKind::Service, service.key.clone()));
            }
            (Object::Claim(_), Status::Claim(shown)) => self.put_claim(*shown),
            (Object::Ingress(ingress), Status::Ingress(shown)) => {
                self.ingresses.put(ingress.key.clone(), shown);
                self.dirty.insert(Target::Consumer(ConsumerKind::Ingress, ingress.key.clone()));
            }
            (Object::LoadBalancer(it), Status::LoadBalancer(shown)) => {
                let name = &it.name;
                if self.balancers.get(name).is_none() {
                    let points = &shown.status.status.ingress;
                    let addresses: Vec<_> = points.iter().filter_map(|point| point.ip).collect();
                    if it.door.is_some() {
                        let names = points.iter().filter_map(|point| point.hostname.as_deref());
                        let hostnames = names.map(Into::into).collect();
                        self.reached(name, Reach { addresses: addresses.clone(), hostnames });
                    }
                    let known = it.addresses.is_empty() && it.door.is_none();
                    self.meet(name, if known { addresses } else { Vec::new() });
                } else if self.uid(name).as_ref() != Some(&it.uid) {
                    // Another one of the same name: what belonged to the former becomes its own.
                    self.touch(name);
                }
                self.touch_claim_of(&shown.status.known);
                self.balancers.put(Arc::clone(name), *shown);
                let key = ObjectKey::new("", Arc::clone(name));
                self.pooled.touch(ConsumerKind::LoadBalancer, &key);
                // Whom the load balancer is for, the Service in front of it is for.
                if let Some(door) = &it.door {
                    self.pooled.touch(ConsumerKind::Service, door);
                }
                self.dirty.insert(Target::LoadBalancer(Arc::clone(name)));
            }
            _ => {}
        }
    }

    /// A load balancer appears; its agent may have been heard before. Where not, the addresses that its
    /// status shows are those that it had.
    pub(super) fn meet(&mut self, name: &Arc<str>, shown: Vec<IpAddr>) {
        let lease = names::agent_lease(name);
        // What a class made is reached where its Service is, whatever an agent says.
        let reported = self.agents.get(&lease).filter(|_| !self.is_reached(name));
        let reported = reported.map(|agents| agents.joint().addresses.clone());
        let addresses = reported.filter(|addresses| !addresses.is_empty()).unwrap_or(shown);
        if !addresses.is_empty() {
            self.planner.handle(Event::Reported(Arc::clone(name), addresses));
        }
        self.by_lease.insert(lease.clone(), Arc::clone(name));
        self.hear_unserved(&lease, name);
        self.met.insert(Arc::clone(name));
        self.touch(name);
    }

    pub(super) fn forget(&mut self, name: &Arc<str>) {
        self.balancers.remove(name);
        let lease = names::agent_lease(name);
        self.by_lease.remove(&lease);
        self.planner.handle(Event::Unserved(Arc::clone(name), Vec::new()));
        self.history.forget(name);
        if let Some(agents) = self.agents.get_mut(&lease) {
            agents.count_anew();
        }
        self.unproven.remove(name);
        self.behind.remove(name);
        self.written.remove(name);
        self.forget_provision(name);
        self.touch(name);
    }

    pub(super) fn touch(&mut self, name: &Arc<str>) {
        self.dirty.insert(Target::Cookies(Arc::clone(name)));
        self.dirty.insert(Target::Certificates(Arc::clone(name)));
        self.dirty.insert(Target::Plans(Arc::clone(name)));
        self.dirty.insert(Target::Provision(Arc::clone(name)));
        self.dirty.insert(Target::LoadBalancer(Arc::clone(name)));
    }

    pub(super) fn hear_plan(&mut self, seen: Seen<crate::controller::inputs::PlanSeen>) {
        match seen {
            Seen::Apply(plan) | Seen::Delete(plan) if !plan.is_ours() => {}
            Seen::Begin => {
                let all = self.plans.iter().flat_map(|(lb, plans)| {
                    plans.names(lb).map(|name| (Arc::clone(lb), name)).collect::<Vec<_>>()
                });
                let all = all.collect();
                self.unseen.insert("Plan", all);
            }
            Seen::Apply(plan) => {
                let lb = Arc::clone(&plan.load_balancer);
                if let Some(unseen) = self.unseen.get_mut("Plan") {
                    unseen.remove(&(Arc::clone(&lb), plan.name.clone()));
                }
                let plans = self.plans.entry(Arc::clone(&lb)).or_default();
                // An echo of a write of ours may come after the next one was answered.
                if plans.is_news(&plan.name, &plan.version) {
                    let unread: Vec<_> = plan.unread.iter().filter_map(Unread::holds).collect();
                    self.record(&lb, &plan.name, plan.fragments.iter().chain(&unread));
                    if !plan.unread.is_empty() {
                        // What its agent says has another hash than what is planned here.
                        self.met.insert(Arc::clone(&lb));
                    }
                    let plans = self.plans.entry(Arc::clone(&lb)).or_default();
                    plans.seen(plan);
                    self.history.record_shown(&lb, plans.hash());
                }
                self.dirty.insert(Target::Plans(lb));
            }
            Seen::Delete(plan) => self.plan_gone(&plan.load_balancer, &plan.name),
            Seen::Done => {
                self.listed.insert("Plan");
                for (lb, name) in self.unseen.remove("Plan").unwrap_or_default() {
                    self.plan_gone(&lb, &name);
                }
            }
        }
    }

    /// Tells the planner what a Plan holds; with nothing in it, that it is gone.
    pub(super) fn record<'a>(
        &mut self,
        lb: &Arc<str>,
        name: &str,
        fragments: impl IntoIterator<Item = &'a Fragment>,
    ) {
        if let Some(index) = names::plan_index(name) {
            let record = Record::new(Arc::clone(lb), index, fragments);
            self.planner.handle(Event::Recorded(record));
        }
    }

    pub(super) fn plan_gone(&mut self, lb: &Arc<str>, name: &str) {
        self.record(lb, name, &[]);
        if let Some(plans) = self.plans.get_mut(lb) {
            plans.gone(name);
            self.history.record_shown(lb, plans.hash());
            if plans.is_empty() {
                self.plans.remove(lb);
            }
        }
        self.dirty.insert(Target::Plans(Arc::clone(lb)));
        self.dirty.insert(Target::Certificates(Arc::clone(lb)));
    }

    pub(super) fn hear_certificates(
        &mut self,
        seen: Seen<crate::controller::inputs::CertificatesSeen>,
    ) {
        match seen {
            Seen::Apply(secret) | Seen::Delete(secret) if !secret.is_ours() => {}
            Seen::Begin => {
                let all = self.certificates.iter().flat_map(|(lb, it)| {
                    it.names(lb).map(|name| (Arc::clone(lb), name)).collect::<Vec<_>>()
                });
                let all = all.collect();
                self.unseen.insert("Secret", all);
            }
            Seen::Apply(secret) => {
                let lb = Arc::clone(&secret.load_balancer);
                if let Some(unseen) = self.unseen.get_mut("Secret") {
                    unseen.remove(&(Arc::clone(&lb), secret.name.clone()));
                }
                self.certificates.entry(Arc::clone(&lb)).or_default().seen(secret);
                self.dirty.insert(Target::Certificates(lb));
            }
            Seen::Delete(secret) => self.certificates_gone(&secret.load_balancer, &secret.name),
            Seen::Done => {
                self.listed.insert("Secret");
                for (lb, name) in self.unseen.remove("Secret").unwrap_or_default() {
                    self.certificates_gone(&lb, &name);
                }
            }
        }
    }

    pub(super) fn certificates_gone(&mut self, lb: &Arc<str>, name: &str) {
        if let Some(certificates) = self.certificates.get_mut(lb) {
            certificates.gone(name);
        }
        self.dirty.insert(Target::Certificates(Arc::clone(lb)));
    }

    pub(super) fn hear_cookies(&mut self, seen: Seen<crate::controller::inputs::CookiesSeen>) {
        match seen {
            Seen::Apply(secret) | Seen::Delete(secret) if secret.load_balancer.is_empty() => {}
            Seen::Begin => self.cookies.begin(),
            Seen::Apply(secret) => {
                self.dirty.insert(Target::Cookies(Arc::clone(&secret.load_balancer)));
                self.cookies.put(secret.load_balancer, secret.shown);
            }
            Seen::Delete(secret) => {
                self.cookies.remove(&secret.load_balancer);
                self.dirty.insert(Target::Cookies(secret.load_balancer));
            }
            Seen::Done => {
                self.listed.insert("cookies");
                self.cookies.done();
                let all = self.balancers.keys().map(|lb| Target::Cookies(Arc::clone(lb)));
                self.dirty.extend(all);
            }
        }
    }

    pub(super) fn hear_lease(&mut self, seen: Seen<LeaseSeen>, now: Instant) {
        match seen {
            Seen::Begin => self.unseen_leases = self.agents.keys().cloned().collect(),
            Seen::Done => {
                self.listed.insert("Lease");
                for name in std::mem::take(&mut self.unseen_leases) {
                    self.lease_gone(&name);
                }
            }
            Seen::Delete(lease) => self.lease_gone(&lease.name),
            Seen::Apply(lease) => {
                self.unseen_leases.remove(&lease.name);
                let watched = self.listed.contains("Lease");
                let agents = self.agents.entry(lease.name.clone()).or_default();
                let before = agents.joint().clone();
                let lb = self.by_lease.get(&lease.name);
                let writes = lb.map_or(0, |lb| self.history.writes(lb));
                if agents.show(lease.entries, watched, writes, now) {
                    self.agents_changed(&lease.name, &before);
                }
            }
        }
    }

    pub(super) fn lease_gone(&mut self, name: &str) {
        if let Some(agents) = self.agents.remove(name) {
            self.agents_changed(name, agents.joint());
        }
    }

    /// What the agents of a load balancer say together is different, or which of them live: those are looked
    /// at whom it may concern.
    pub(super) fn agents_changed(&mut self, lease: &str, before: &Joint) {
        let Some(lb) = self.by_lease.get(lease).cloned() else { return };
        let after = self.agents.get(lease).map(|agents| agents.joint().clone()).unwrap_or_default();
        // An agent that stops, or whose Lease is gone, takes no address back.
        let own = !self.is_reached(&lb);
        if own && before.addresses != after.addresses && !after.addresses.is_empty() {
            self.planner.handle(Event::Reported(Arc::clone(&lb), after.addresses.clone()));
        }
        self.hear_unserved(lease, &lb);
        for refusal in &after.refused {
            if !before.refused.contains(refusal) {
                self.say(&refusal.consumer, &refusal.problem);
            }
        }
        let gone = before.refused.iter().filter(|refusal| !after.refused.contains(refusal));
        let new = after.refused.iter().filter(|refusal| !before.refused.contains(refusal));
        let concerned: Vec<_> =
            gone.chain(new).flat_map(|refusal| self.concerned(&lb, &refusal.consumer)).collect();
        let waiting = self.unproven.get(&lb).into_iter().flatten().cloned();
        let all: Vec<_> = waiting.chain(concerned).collect();
        self.dirty.extend(all.into_iter().map(|(kind, key)| Target::Consumer(kind, key)));
        if self.plans.get(&lb).is_some_and(Plans::has_foreign) {
            // An agent may serve nothing of what this leader could plan anew.
            self.dirty.insert(Target::Plans(Arc::clone(&lb)));
        }
        self.dirty.insert(Target::LoadBalancer(lb));
    }

    /// Tells the planner what agents do not serve for a consumer because they serve it for another.
    fn hear_unserved(&mut self, lease: &str, lb: &Arc<str>) {
        let refused = self.agents.get(lease).map(|agents| agents.joint().refused.as_slice());
        let unserved = refused.unwrap_or_default().iter().filter_map(Refusal::unserved).collect();
        self.planner.handle(Event::Unserved(Arc::clone(lb), unserved));
    }

    /// Whom a refusal for this consumer concerns: what keeps a load balancer's own listeners from
    /// opening keeps all its Ingresses from being reached.
    pub(super) fn concerned(
        &self,
        lb: &str,
        consumer: &ConsumerRef,
    ) -> Vec<(ConsumerKind, ObjectKey)> {
        if consumer.kind != ConsumerKind::LoadBalancer {
            return vec![(consumer.kind, key(consumer))];
        }
        let ingresses = self.planner.consumers(lb).filter(|it| it.kind == ConsumerKind::Ingress);
        ingresses.map(|it| (it.kind, key(it))).collect()
    }
}
