//! Builders, and an API that carries out the changes of the machine.

use crate::admission::*;
use crate::key::{ConsumerKind, ConsumerRef};
use crate::objects::Version;
use crate::resources::Amounts;
use std::collections::BTreeMap;
use std::sync::Arc;

pub(super) const NOW: i64 = 1_000;

pub(super) fn consumer(name: &str) -> ConsumerRef {
    ConsumerRef {
        kind: ConsumerKind::Service,
        namespace: "shop".into(),
        name: name.into(),
        uid: format!("uid-{name}").into(),
    }
}

pub(super) fn bandwidth(amount: u64) -> Amounts {
    Amounts { bandwidth: Some(amount), iops: None }
}

pub(super) fn lb(name: &str, capacity: Amounts) -> LoadBalancer {
    LoadBalancer {
        name: name.into(),
        uid: format!("uid-{name}").into(),
        version: Version("1".into()),
        deleting: false,
        capacity,
        require_requests: false,
        seats: Vec::new(),
    }
}

pub(super) fn want(name: &str, created: i64, amount: u64) -> Want {
    Want {
        consumer: consumer(name),
        created,
        load_balancer: "edge".into(),
        requests: Ok(bandwidth(amount)),
        keeps: Vec::new(),
    }
}

pub(super) fn seat(name: &str, amount: u64) -> Seat {
    Seat { consumer: consumer(name), requests: bandwidth(amount) }
}

/// A machine, and what the API has.
pub(super) struct Api {
    pub(super) machine: Admission,
    pub(super) lbs: BTreeMap<Arc<str>, LoadBalancer>,
    version: u64,
    /// The consumers that belong on the load balancer, as reads say; every other one has left.
    pub(super) belongs: Vec<ConsumerRef>,
    pub(super) stays: BTreeMap<(ConsumerRef, Arc<str>), Amounts>,
}

impl Api {
    pub(super) fn new(lbs: impl IntoIterator<Item = LoadBalancer>) -> Self {
        let mut api = Self {
            machine: Admission::new(),
            lbs: BTreeMap::new(),
            version: 10,
            belongs: Vec::new(),
            stays: BTreeMap::new(),
        };
        lbs.into_iter().for_each(|lb| api.put(lb));
        api
    }

    pub(super) fn put(&mut self, mut lb: LoadBalancer) {
        self.version += 1;
        lb.version = Version(self.version.to_string().into());
        self.lbs.insert(lb.name.clone(), lb.clone());
        self.tell(Event::LoadBalancer(Box::new(lb)));
    }

    pub(super) fn edit(&mut self, name: &str, edit: impl FnOnce(&mut LoadBalancer)) {
        let mut lb = self.lbs[name].clone();
        edit(&mut lb);
        self.put(lb);
    }

    pub(super) fn tell(&mut self, event: Event) {
        self.machine.handle(event, NOW);
    }

    pub(super) fn wants(&mut self, wants: impl IntoIterator<Item = Want>) {
        wants.into_iter().for_each(|want| self.tell(Event::Wants(want)));
    }

    /// Carries out and answers everything until there is nothing to do.
    pub(super) fn run(&mut self) -> BTreeMap<ConsumerRef, Option<Decision>> {
        Kind::ALL.into_iter().for_each(|kind| self.tell(Event::Done(kind)));
        let mut told = BTreeMap::new();
        for _ in 0..100 {
            let changes = self.machine.take(NOW);
            if changes == Changes::default() {
                return told;
            }
            told.extend(changes.decisions);
            for (consumer, lb, amounts) in changes.stays {
                match amounts {
                    Some(amounts) => _ = self.stays.insert((consumer, lb), amounts),
                    None => _ = self.stays.remove(&(consumer, lb)),
                }
            }
            for (consumer, load_balancer) in changes.confirm {
                let wants = self.belongs.contains(&consumer);
                self.tell(Event::Confirmed { consumer, load_balancer, wants });
            }
            for write in changes.writes {
                let mut lb = self.lbs[&write.load_balancer].clone();
                assert_eq!(lb.version, write.version);
                lb.seats = write.seats;
                self.put(lb.clone());
                let version = self.lbs[&write.load_balancer].version.clone();
                self.tell(Event::Written { id: write.id, result: Written::Ok(version) });
            }
        }
        panic!("it does not come to rest");
    }

    pub(super) fn seats(&self) -> &[Seat] {
        &self.lbs["edge"].seats
    }
}
