//! Counts what a driver was given and derives the changes that people may want to see: listeners that
//! open and close, members that come and go. It decides nothing; the agent passes the changes on.

use crate::observe::Change;
use bowline_core::announce::{Listening, Ports};
use bowline_core::key::{ConsumerRef, ObjectKey};
use bowline_core::lines;
use bowline_core::outcome::Problem;
use bowline_core::plan::Transport;
use bowline_core::update::{self, Extent, ListenerKey, MemberState, Refusal, Report, Update};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

/// What is in force, in numbers.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pools: HashMap<Arc<str>, Counted>,
    /// Each listener with its consumer, and whether it is open.
    listeners: BTreeMap<ListenerKey, (ConsumerRef, bool)>,
    refused: BTreeSet<Refusal>,
    members: usize,
    /// The addresses of all listeners, and what listens at each.
    addresses: Arc<BTreeMap<IpAddr, Listening>>,
}

#[derive(Debug)]
struct Counted {
    service: ObjectKey,
    members: usize,
    ready: usize,
}

impl Tally {
    /// How many members all pools have together.
    pub(super) fn members(&self) -> usize {
        self.members
    }

    /// The addresses of all listeners. An address is open if some consumer has all its listeners there open: what one
    /// consumer cannot open takes nothing from another.
    pub(super) fn addresses(&self) -> &Arc<BTreeMap<IpAddr, Listening>> {
        &self.addresses
    }

    /// The addresses that are open, and have no listener after this update.
    pub(super) fn leaving(&self, update: &Update) -> BTreeSet<IpAddr> {
        let changed: BTreeMap<_, _> = update
            .listeners
            .iter()
            .map(|change| (*key(change), matches!(change, update::Change::Put(..))))
            .collect();
        // A complete update names all that stays.
        let stays = |it: &&ListenerKey| changed.get(*it).copied().unwrap_or(!update.complete);
        let stay = self.listeners.keys().filter(stays);
        let added = changed.iter().filter(|(_, put)| **put).map(|(key, _)| key);
        let stay: BTreeSet<_> = stay.chain(added).map(|key| key.address).collect();
        let open = self.addresses.iter().filter(|(_, listening)| listening.open);
        open.map(|(address, _)| *address).filter(|it| !stay.contains(it)).collect()
    }

    fn addresses_now(&self) -> BTreeMap<IpAddr, Listening> {
        let mut served = BTreeMap::<(IpAddr, &ConsumerRef), bool>::new();
        let mut all = BTreeMap::<IpAddr, (bool, BTreeSet<(Transport, u16)>)>::new();
        for (key, (consumer, open)) in &self.listeners {
            *served.entry((key.address, consumer)).or_insert(true) &= open;
            all.entry(key.address).or_default().1.insert((key.transport, key.port));
        }
        for ((address, _), open) in served {
            all.entry(address).or_default().0 |= open;
        }
        let listening = |(address, (open, ports))| {
            (address, Listening { open, ports: Ports::Only(Arc::new(ports)) })
        };
        all.into_iter().map(listening).collect()
    }

    /// Counts an applied update and returns the changes that people may want to see; `report` has the
    /// refusals.
    pub(super) fn count(&mut self, update: &Update, report: &Report) -> Vec<Change> {
        let mut changes = Vec::new();
        if update.complete {
            self.forget_others(update, &mut changes);
        }
        for change in &update.pools {
            if let update::Change::Put(name, pool) = change {
                let service = ObjectKey::new(
                    Arc::clone(&pool.service.namespace),
                    Arc::clone(&pool.service.name),
                );
                let (members, ready) =
                    self.pools.get(name).map_or((0, 0), |old| (old.members, old.ready));
                self.pools.insert(Arc::clone(name), Counted { service, members, ready });
            }
        }
        let mut services = BTreeMap::new();
        for change in &update.members {
            let Some(pool) = self.pools.get_mut(&change.pool) else { continue };
            let ready =
                change.members.iter().filter(|member| member.state == MemberState::Ready).count();
            if ready != pool.ready {
                services.entry(pool.service.clone()).or_insert((pool.ready, ready));
            }
            self.members = self.members + change.members.len() - pool.members;
            (pool.members, pool.ready) = (change.members.len(), ready);
        }
        let members = services.into_iter();
        changes.extend(members.map(|(service, (before, after))| Change::Members {
            service,
            before,
            after,
        }));
        for change in &update.pools {
            if let update::Change::Remove(name) = change
                && let Some(pool) = self.pools.remove(name)
            {
                self.members -= pool.members;
            }
        }
        Self::sites(update, &mut changes);
        self.listeners(update, report, &mut changes);
        changes
    }

    /// Removes what a complete update does not contain.
    fn forget_others(&mut self, update: &Update, changes: &mut Vec<Change>) {
        let pools: HashSet<_> = update.pools.iter().map(key).collect();
        self.pools.retain(|name, _| pools.contains(name));
        let filled: HashSet<_> = update.members.iter().map(|change| &change.pool).collect();
        for (_, pool) in self.pools.iter_mut().filter(|(name, _)| !filled.contains(name)) {
            (pool.members, pool.ready) = (0, 0);
        }
        self.members = self.pools.values().map(|pool| pool.members).sum();
        let listeners: HashSet<_> = update.listeners.iter().map(key).collect();
        self.listeners.retain(|key, (_, open)| {
            let stays = listeners.contains(key);
            if !stays && *open {
                changes.push(Change::Closed { listener: text(key) });
            }
            stays
        });
    }

    fn sites(update: &Update, changes: &mut Vec<Change>) {
        for change in &update.sites {
            let (key, rules) = match change {
                update::Change::Put(key, site) => (key, site.rules.len()),
                update::Change::Remove(key) => (key, 0),
            };
            changes.push(Change::Site { host: key.host.to_string(), rules });
        }
    }

    fn listeners(&mut self, update: &Update, report: &Report, changes: &mut Vec<Change>) {
        for change in &update.listeners {
            match change {
                update::Change::Put(key, listener) => {
                    let consumer = &listener.consumer;
                    self.listeners.entry(*key).or_insert((consumer.clone(), false)).0 =
                        consumer.clone();
                }
                update::Change::Remove(key) => {
                    if self.listeners.remove(key).is_some_and(|(_, open)| open) {
                        changes.push(Change::Closed { listener: text(key) });
                    }
                }
            }
        }
        let refused: BTreeSet<_> = report.refused.iter().cloned().collect();
        // Endpoints change often; listeners are looked at only if one of them may open or close.
        if update.listeners.is_empty() && refused == self.refused && !update.complete {
            return;
        }
        let (mut unserved, mut shut) = (HashSet::new(), HashSet::new());
        for refusal in &refused {
            match refusal.extent {
                Extent::All => drop(unserved.insert(&refusal.consumer)),
                Extent::Listener(key) => drop(shut.insert((&refusal.consumer, key))),
                Extent::Part | Extent::Host(_) => {}
            }
        }
        for (key, (consumer, open)) in &mut self.listeners {
            let opens = !shut.contains(&(&*consumer, *key)) && !unserved.contains(&*consumer);
            if opens && !*open {
                changes.push(Change::Opened { listener: text(key) });
            }
            *open = opens;
        }
        self.addresses = self.addresses_now().into();
        changes.extend(refused.difference(&self.refused).map(|refusal| Change::Refused {
            consumer: refusal.consumer.clone(),
            problem: refusal.problem.clone(),
        }));
        let (before, now) = (by_consumer(&self.refused), by_consumer(&refused));
        for (consumer, problems) in before {
            let now = now.get(consumer).map(Vec::as_slice).unwrap_or_default();
            let solved = lines::solved(problems, now.iter().copied());
            let solved = solved.into_iter();
            changes
                .extend(solved.map(|reason| Change::Solved { consumer: consumer.clone(), reason }));
        }
        self.refused = refused;
    }
}

/// The problems of each consumer.
fn by_consumer(refused: &BTreeSet<Refusal>) -> BTreeMap<&ConsumerRef, Vec<&Problem>> {
    let mut all = BTreeMap::<_, Vec<_>>::new();
    for refusal in refused {
        all.entry(&refusal.consumer).or_default().push(&refusal.problem);
    }
    all
}

fn key<K, V>(change: &update::Change<K, V>) -> &K {
    match change {
        update::Change::Put(key, _) | update::Change::Remove(key) => key,
    }
}

fn text(key: &ListenerKey) -> String {
    format!("{}/{}", key.socket(), format!("{:?}", key.transport).to_uppercase())
}

#[cfg(test)]
mod tests {
    use super::*;
    use bowline_core::key::ConsumerKind;
    use bowline_core::outcome::Reason;

    fn consumer(name: &str) -> ConsumerRef {
        ConsumerRef {
            kind: ConsumerKind::Service,
            namespace: "shop".into(),
            name: name.into(),
            uid: name.into(),
        }
    }

    #[test]
    fn an_address_is_open_while_any_of_its_holders_has_all_its_listeners() {
        let mut tally = Tally::default();
        let key = |port| ListenerKey {
            address: "192.0.2.1".parse().unwrap(),
            port,
            transport: bowline_core::plan::Transport::Tcp,
        };
        for (name, port) in [("web", 80), ("web", 443), ("mail", 25)] {
            tally.listeners.insert(key(port), (consumer(name), false));
        }
        let mut open = |refused: &[(&str, u16)]| {
            let refused = refused.iter().map(|(name, port)| Refusal {
                consumer: consumer(name),
                problem: Problem::new(Reason::BindFailed, port.to_string()),
                extent: Extent::Listener(key(*port)),
            });
            let report = Report { refused: refused.collect(), ..Report::default() };
            let update =
                Update { listeners: vec![update::Change::Remove(key(1))], ..Update::default() };
            tally.count(&update, &report);
            tally.addresses().values().map(|it| it.open).collect::<Vec<_>>()
        };
        assert_eq!(open(&[]), [true]);
        assert_eq!(open(&[("web", 80)]), [true], "mail is served");
        assert_eq!(open(&[("web", 80), ("mail", 25)]), [false]);
    }

    #[test]
    fn an_address_leaves_with_its_last_listener() {
        let key = |last: u8, port| ListenerKey {
            address: [192, 0, 2, last].into(),
            port,
            transport: Transport::Tcp,
        };
        let mut tally = Tally::default();
        for key in [key(1, 80), key(1, 443), key(2, 80), key(3, 80)] {
            tally.listeners.insert(key, (consumer("web"), true));
        }
        tally.addresses = tally.addresses_now().into();
        let leaving = |complete, all: &[ListenerKey]| {
            let listeners = all.iter().map(|it| update::Change::Remove(*it)).collect();
            let update = Update { complete, listeners, ..Update::default() };
            tally.leaving(&update).iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(leaving(false, &[key(1, 80)]), [""; 0], "443 stays");
        assert_eq!(leaving(false, &[key(1, 80), key(1, 443)]), ["192.0.2.1"]);
        assert_eq!(leaving(true, &[]), ["192.0.2.1", "192.0.2.2", "192.0.2.3"]);
    }

    #[test]
    fn the_end_of_a_refusal_is_a_change_and_another_message_is_none() {
        let consumer = ConsumerRef {
            kind: ConsumerKind::Service,
            namespace: "shop".into(),
            name: "web".into(),
            uid: "1".into(),
        };
        let refusal = |message: &str| Refusal {
            consumer: consumer.clone(),
            problem: Problem::new(Reason::BindFailed, message.to_owned()),
            extent: Extent::All,
        };
        let mut tally = Tally::default();
        let mut count = |refused: Vec<Refusal>| {
            let changes = tally.count(&Update::default(), &Report { refused, ..Report::default() });
            changes.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(count(vec![refusal("a")]), ["Service shop/web: BindFailed: a"]);
        assert_eq!(count(vec![refusal("a")]), [] as [&str; 0]);
        assert_eq!(count(vec![refusal("b")]), ["Service shop/web: BindFailed: b"]);
        assert_eq!(count(Vec::new()), ["Service shop/web: BindFailed is solved"]);
    }
}
