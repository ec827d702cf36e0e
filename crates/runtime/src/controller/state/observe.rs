//! Observing: hands each event of a watch to the parts that it concerns, and enqueues the targets that may need a write.
//! It decides nothing; machines are asked in `decide`.

mod agents;
mod load_balancers;
mod plans;
mod speakers;

use super::State;
use crate::controller::boards::Boards;
use crate::controller::kinds::Parts;
use crate::controller::observed::{
    AddressSeen, ClaimSeen, CookiesSeen, IngressSeen, Observed, ServiceSeen,
};
use crate::controller::shown::{ClaimShown, Shown};
use crate::controller::target::Target;
use crate::observe::Change;
use crate::watch::Seen;
use bowline_api::LoadBalancerClassSpec;
use bowline_core::binder::Class;
use bowline_core::clock::Uptime;
use bowline_core::dns::{Name, Report};
use bowline_core::key::{ConsumerKind, ObjectKey};
use bowline_core::lines;
use bowline_core::objects::Namespace;
use bowline_core::planner::{Event, Kind, Object};
use std::net::IpAddr;
use std::sync::Arc;

impl State {
    /// Takes in an event of a watch.
    pub(in crate::controller) fn observe(&mut self, observed: Observed, now: Uptime) {
        match observed {
            Observed::Service(seen) => self.observe_service(seen),
            Observed::Ingress(seen) => self.observe_ingress(seen),
            Observed::IngressClass(seen) => self.observe_planned(Kind::IngressClass, seen, |it| {
                (ObjectKey::new("", Arc::clone(&it.name)), Object::IngressClass(it))
            }),
            Observed::TlsSecret(seen) => self.observe_planned(Kind::TlsSecret, seen, |it| {
                (it.key.clone(), Object::TlsSecret(it))
            }),
            Observed::Namespace(seen) => self.observe_namespace(seen),
            Observed::LoadBalancer(seen) => self.observe_load_balancer(seen),
            Observed::Claim(seen) => self.observe_claim(seen),
            Observed::Class(seen) => self.observe_class(seen),
            Observed::Plan(seen) => self.observe_plan(seen),
            Observed::Certificates(seen) => self.observe_certificates(seen),
            Observed::Cookies(seen) => self.observe_cookies(seen),
            Observed::Lease(seen) => {
                if matches!(seen, Seen::Done) {
                    self.listed.insert("Lease");
                }
                let seen = self.observe_speakers(seen, now);
                let news = self.agents.observe(seen, now);
                news.iter().for_each(|news| self.agents_changed(news));
            }
            Observed::Address(seen) => self.observe_address(seen),
            Observed::Object(seen) => {
                let parts = &mut Parts { addresses: &mut self.addresses, speakers: &self.speakers };
                self.kinds.observe(seen, parts, &mut self.outbox);
            }
            Observed::Node(seen) => self.observe_node(seen),
            Observed::Proxies(Seen::Apply(lb) | Seen::Delete(lb)) => {
                self.provisions.touch(&lb, &mut self.outbox);
            }
            Observed::Proxies(Seen::Begin | Seen::Done) => {}
        }
    }

    /// Lets renewals of agents expire.
    pub(in crate::controller) fn tick(&mut self, now: Uptime) {
        for news in self.agents.tick(now) {
            self.agents_changed(&news);
        }
        self.speakers.tick(now);
        self.speakers_changed();
        let dead = self
            .agents
            .load_balancers()
            .filter(|lb| !self.agents.dead(lb, self.provisions.is_reached(lb), now).is_empty());
        self.outbox.enqueue_all(dead.map(|lb| Target::Agents(Arc::clone(lb))));
    }

    /// Takes in the answer for a DNS name.
    pub(in crate::controller) fn found(&mut self, name: Name, report: Report) {
        let services = self.addresses.found(name, report);
        let services = services.into_iter().map(|key| Target::Consumer(ConsumerKind::Service, key));
        self.outbox.enqueue_all(services);
    }

    /// Hands an event of a watch to the planner.
    fn observe_planned<T>(
        &mut self,
        kind: Kind,
        seen: Seen<T>,
        of: impl FnOnce(T) -> (ObjectKey, Object),
    ) {
        self.planner.handle(match seen {
            Seen::Begin => Event::Begin(kind),
            Seen::Apply(it) => Event::Apply(Box::new(of(it).1)),
            Seen::Delete(it) => Event::Delete(kind, of(it).0),
            Seen::Done => Event::Done(kind),
        });
    }

    fn observe_service(&mut self, seen: Seen<Box<ServiceSeen>>) {
        if let Seen::Apply(it) | Seen::Delete(it) = &seen {
            self.provisions.touch_service(&it.planned.key, &mut self.outbox);
            self.addresses.touch(ConsumerKind::Service, &it.planned.key);
        }
        let planned = match seen {
            Seen::Begin => {
                self.boards.services.begin();
                Seen::Begin
            }
            Seen::Apply(it) => {
                let (ServiceSeen { planned, shown }, kind) = (*it, ConsumerKind::Service);
                self.boards.services.put(planned.key.clone(), shown);
                self.outbox.enqueue(Target::Consumer(kind, planned.key.clone()));
                self.tell_reached(kind, &planned.key);
                Seen::Apply(planned)
            }
            Seen::Delete(it) => {
                self.boards.services.remove(&it.planned.key);
                Seen::Delete(it.planned)
            }
            Seen::Done => {
                self.boards.services.done();
                self.addresses.relisted(ConsumerKind::Service);
                Seen::Done
            }
        };
        self.observe_planned(Kind::Service, planned, |it| (it.key.clone(), Object::Service(it)));
    }

    fn observe_ingress(&mut self, seen: Seen<Box<IngressSeen>>) {
        let planned = match seen {
            Seen::Begin => {
                self.boards.ingresses.begin();
                Seen::Begin
            }
            Seen::Apply(it) => {
                let (IngressSeen { planned, shown }, kind) = (*it, ConsumerKind::Ingress);
                self.boards.ingresses.put(planned.key.clone(), shown);
                self.outbox.enqueue(Target::Consumer(kind, planned.key.clone()));
                self.tell_reached(kind, &planned.key);
                Seen::Apply(planned)
            }
            Seen::Delete(it) => {
                self.boards.ingresses.remove(&it.planned.key);
                Seen::Delete(it.planned)
            }
            Seen::Done => {
                self.boards.ingresses.done();
                Seen::Done
            }
        };
        self.observe_planned(Kind::Ingress, planned, |it| (it.key.clone(), Object::Ingress(it)));
    }

    fn observe_namespace(&mut self, seen: Seen<Namespace>) {
        self.bindings.observe_namespace(&seen);
        self.addresses.observe_namespace(&seen);
        self.observe_planned(Kind::Namespace, seen, |it| {
            (ObjectKey::new("", Arc::clone(&it.name)), Object::Namespace(it))
        });
    }

    fn observe_claim(&mut self, seen: Seen<Box<ClaimSeen>>) {
        self.bindings.observe_claim(seen.as_ref().map(|it| &it.shown.status.known));
        let planned = match seen {
            Seen::Begin => {
                self.boards.claims.begin();
                Seen::Begin
            }
            Seen::Apply(it) => {
                self.put_claim(it.shown);
                Seen::Apply(it.planned)
            }
            Seen::Delete(it) => {
                if let Some(known) = self.boards.claims.remove(&it.planned.key) {
                    self.tell_deleted(&it.planned.key, &known);
                }
                Seen::Delete(it.planned)
            }
            Seen::Done => {
                for (key, known) in self.boards.claims.done() {
                    self.tell_deleted(&key, &known);
                }
                Seen::Done
            }
        };
        self.observe_planned(Kind::Claim, planned, |it| (it.key.clone(), Object::Claim(it)));
    }

    fn tell_deleted(&mut self, claim: &ObjectKey, known: &Shown<ClaimShown>) {
        if known.status.state().is_some() {
            let object = format!("LoadBalancerClaim {claim}");
            self.outbox.tell(Change::State { object, state: lines::deleted() });
        }
    }

    /// Takes in a claim from a watch or a write answer. A claim that is already deleted is ignored.
    pub(super) fn put_claim(&mut self, shown: Shown<ClaimShown>) {
        if self.bindings.is_buried(&shown.status.known.uid) {
            return;
        }
        let key = shown.status.known.key.clone();
        let state = |boards: &Boards| boards.claims.get(&key).and_then(|it| it.status.state());
        let before = state(&self.boards);
        self.boards.claims.put(key.clone(), shown);
        if let Some(state) = state(&self.boards).filter(|now| before.as_ref() != Some(now)) {
            self.outbox.tell(Change::State { object: format!("LoadBalancerClaim {key}"), state });
        }
        self.outbox.enqueue(Target::Claim(key));
    }

    fn observe_class(&mut self, seen: Seen<(Class, Arc<LoadBalancerClassSpec>)>) {
        let (applied, done) = (matches!(seen, Seen::Apply(_)), matches!(seen, Seen::Done));
        self.bindings.observe_class(seen);
        if applied {
            self.provisions.touch_all(&mut self.outbox);
        }
        if done {
            self.listed.insert("LoadBalancerClass");
        }
    }

    fn observe_cookies(&mut self, seen: Seen<CookiesSeen>) {
        match seen {
            Seen::Apply(secret) | Seen::Delete(secret) if secret.load_balancer.is_empty() => {}
            Seen::Begin => self.boards.cookies.begin(),
            Seen::Apply(secret) => {
                self.outbox.enqueue(Target::Cookies(Arc::clone(&secret.load_balancer)));
                self.boards.cookies.put(secret.load_balancer, secret.shown);
            }
            Seen::Delete(secret) => {
                self.boards.cookies.remove(&secret.load_balancer);
                self.outbox.enqueue(Target::Cookies(secret.load_balancer));
            }
            Seen::Done => {
                self.listed.insert("cookies");
                self.boards.cookies.done();
                let all = self.boards.load_balancers.keys();
                self.outbox.enqueue_all(all.map(|lb| Target::Cookies(Arc::clone(lb))));
            }
        }
    }

    fn observe_address(&mut self, seen: Seen<Option<AddressSeen>>) {
        match &seen {
            Seen::Begin => self.announced.begin(),
            Seen::Apply(Some(it)) => self.announced.put(it),
            Seen::Delete(Some(it)) => self.announced.remove(it.record.address),
            Seen::Apply(None) | Seen::Delete(None) => {}
            Seen::Done => {
                self.announced.done();
                self.listed.insert("Address");
            }
        }
        let address = match &seen {
            Seen::Apply(Some(it)) => Some(it.record.address),
            _ => None,
        };
        self.addresses.observe_address(seen.map(|it| it.map(|it| it.record)));
        if let Some(address) = address {
            self.announcement_changed(address);
        }
    }

    fn observe_node(&mut self, seen: Seen<(Arc<str>, Vec<IpAddr>)>) {
        if matches!(seen, Seen::Done) {
            self.listed.insert("Node");
        }
        self.addresses.observe_node(seen);
    }
}
