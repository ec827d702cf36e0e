//! Listeners at addresses of this machine instead of those of the plan: what an agent in a Pod needs, which has
//! neither the address of the Service in front of it nor may bind it. It stands between the agent and any
//! driver, and gives refusals back under the plan's addresses. With no address given it changes nothing.

use crate::{Driver, Error};
use bowline_core::outcome::{Problem, Reason};
use bowline_core::update::{
    Change, Extent, ListenerKey, Refusal, Report, ResolvedListener, Update,
};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// A driver that listens elsewhere than the plan says.
#[derive(Debug)]
pub struct Elsewhere<D> {
    driver: D,
    /// Where to listen, one of each family. Empty: where the plan says.
    here: Vec<IpAddr>,
    /// What the plan opens.
    planned: BTreeMap<ListenerKey, Arc<ResolvedListener>>,
    /// What is open for it.
    open: BTreeMap<ListenerKey, Arc<ResolvedListener>>,
}

impl<D> Elsewhere<D> {
    /// A driver that listens here.
    pub fn new(driver: D, here: Vec<IpAddr>) -> Self {
        Self { driver, here, planned: BTreeMap::new(), open: BTreeMap::new() }
    }

    /// Where a listener of the plan is opened.
    fn at(&self, key: &ListenerKey) -> Option<ListenerKey> {
        let same = |here: &&IpAddr| here.is_ipv4() == key.address.is_ipv4();
        self.here.iter().find(same).map(|here| ListenerKey { address: *here, ..*key })
    }

    /// What is to be open, and what of the plan cannot be.
    fn wanted(&self) -> (BTreeMap<ListenerKey, Arc<ResolvedListener>>, Vec<Refusal>) {
        let (mut open, mut refused) = (BTreeMap::<_, Arc<ResolvedListener>>::new(), Vec::new());
        for (key, planned) in &self.planned {
            let mut refuse = |why: String| {
                let problem = Problem::new(Reason::BindFailed, why);
                let consumer = planned.consumer.clone();
                refused.push(Refusal { consumer, problem, extent: Extent::Listener(*key) });
            };
            let Some(at) = self.at(key) else {
                refuse(format!(
                    "{}: nothing here listens at an address of that family",
                    key.socket()
                ));
                continue;
            };
            let mut here = (**planned).clone();
            here.listener.address = at.address;
            match open.get(&at) {
                // At several addresses of the load balancer the same is served.
                Some(other) if **other == here => {}
                Some(_) => refuse(format!(
                    "{}: another address of this load balancer has port {} for somebody else",
                    key.socket(),
                    key.port
                )),
                None => drop(open.insert(at, Arc::new(here))),
            }
        }
        (open, refused)
    }

    /// A report in the plan's words.
    fn translated(&self, report: Report) -> Report {
        if self.here.is_empty() {
            return report;
        }
        let Report { refused, waiting, trouble } = report;
        let mut all = self.wanted().1;
        for refusal in refused {
            let Extent::Listener(at) = refusal.extent else {
                all.push(refusal);
                continue;
            };
            let planned = self.planned.keys().filter(|key| self.at(key) == Some(at));
            all.extend(
                planned.map(|key| Refusal { extent: Extent::Listener(*key), ..refusal.clone() }),
            );
        }
        all.sort();
        all.dedup();
        Report { refused: all, waiting, trouble }
    }

    /// The same update, with listeners here.
    fn moved(&mut self, update: &Update) -> Update {
        if update.complete {
            self.planned.clear();
            self.open.clear();
        }
        for change in &update.listeners {
            match change {
                Change::Put(key, listener) => {
                    self.planned.insert(*key, Arc::clone(listener));
                }
                Change::Remove(key) => drop(self.planned.remove(key)),
            }
        }
        let wanted = self.wanted().0;
        let gone = self.open.keys().filter(|key| !wanted.contains_key(key));
        let gone = gone.map(|key| Change::Remove(*key));
        let new = wanted.iter().filter(|(key, it)| self.open.get(key) != Some(it));
        let new = new.map(|(key, it)| Change::Put(*key, Arc::clone(it)));
        let listeners = new.chain(gone).collect();
        self.open = wanted;
        Update { listeners, ..update.clone() }
    }
}

impl<D: Driver> Driver for Elsewhere<D> {
    async fn apply(&mut self, update: &Update) -> Result<Report, Error> {
        let report = if self.here.is_empty() || update.listeners.is_empty() && !update.complete {
            self.driver.apply(update).await?
        } else {
            let moved = self.moved(update);
            self.driver.apply(&moved).await?
        };
        Ok(self.translated(report))
    }

    async fn changed(&mut self) -> Report {
        let report = self.driver.changed().await;
        self.translated(report)
    }

    async fn drain(&mut self, grace: Duration) {
        self.driver.drain(grace).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bowline_core::key::{ConsumerKind, ConsumerRef};
    use bowline_core::plan::{Listener, ListenerProtocol, Serves};

    /// Keeps what it is given, and refuses a port.
    #[derive(Default)]
    struct Keeps {
        listeners: Vec<Change<ListenerKey, Arc<ResolvedListener>>>,
        refuses: Option<u16>,
    }

    impl Driver for Keeps {
        async fn apply(&mut self, update: &Update) -> Result<Report, Error> {
            self.listeners.clone_from(&update.listeners);
            let refused = update.listeners.iter().filter_map(|change| match change {
                Change::Put(key, it) if Some(key.port) == self.refuses => Some(Refusal {
                    consumer: it.consumer.clone(),
                    problem: Problem::new(Reason::BindFailed, "taken"),
                    extent: Extent::Listener(*key),
                }),
                _ => None,
            });
            Ok(Report { refused: refused.collect(), ..Report::default() })
        }

        async fn drain(&mut self, _: Duration) {}
    }

    fn listener(address: &str, port: u16, pool: &str) -> (ListenerKey, Arc<ResolvedListener>) {
        let listener = Listener {
            address: address.parse().unwrap(),
            port,
            protocol: ListenerProtocol::Tcp,
            serves: Serves::Pool(pool.into()),
        };
        let consumer = ConsumerRef {
            kind: ConsumerKind::Service,
            namespace: "shop".into(),
            name: pool.into(),
            uid: "u".into(),
        };
        (ListenerKey::of(&listener), Arc::new(ResolvedListener { consumer, listener }))
    }

    fn put(
        (key, listener): &(ListenerKey, Arc<ResolvedListener>),
    ) -> Change<ListenerKey, Arc<ResolvedListener>> {
        Change::Put(*key, Arc::clone(listener))
    }

    fn here() -> Vec<IpAddr> {
        vec!["10.0.0.7".parse().unwrap()]
    }

    #[tokio::test]
    async fn listeners_are_opened_here_and_refused_in_the_words_of_the_plan() {
        let driver = Keeps { refuses: Some(81), ..Keeps::default() };
        let mut driver = Elsewhere::new(driver, here());
        let all = [
            listener("192.0.2.1", 80, "web"),
            listener("192.0.2.2", 80, "web"),
            listener("192.0.2.1", 81, "api"),
            listener("2001:db8::1", 80, "web"),
        ];
        let listeners = all.iter().map(put).collect();
        let update = Update { complete: true, listeners, ..Update::default() };
        let report = driver.apply(&update).await.unwrap();
        let expected = [listener("10.0.0.7", 80, "web"), listener("10.0.0.7", 81, "api")];
        assert_eq!(driver.driver.listeners, expected.iter().map(put).collect::<Vec<_>>());
        let extents: Vec<_> = report.refused.iter().map(|it| it.extent).collect();
        assert_eq!(extents.len(), 2);
        assert!(extents.contains(&Extent::Listener(all[2].0)), "{extents:?}");
        assert!(extents.contains(&Extent::Listener(all[3].0)), "{extents:?}");
    }

    #[tokio::test]
    async fn a_listener_stays_open_until_no_address_of_the_plan_needs_it() {
        let mut driver = Elsewhere::new(Keeps::default(), here());
        let (one, two) = (listener("192.0.2.1", 80, "web"), listener("192.0.2.2", 80, "web"));
        let listeners = vec![put(&one), put(&two)];
        let update = Update { complete: true, listeners, ..Update::default() };
        driver.apply(&update).await.unwrap();
        let away = |key| Update { listeners: vec![Change::Remove(key)], ..Update::default() };
        driver.apply(&away(one.0)).await.unwrap();
        assert_eq!(driver.driver.listeners, []);
        driver.apply(&away(two.0)).await.unwrap();
        let gone = listener("10.0.0.7", 80, "web").0;
        assert_eq!(driver.driver.listeners, [Change::Remove(gone)]);
    }

    #[tokio::test]
    async fn two_who_want_one_port_at_two_addresses_are_told() {
        let mut driver = Elsewhere::new(Keeps::default(), here());
        let (one, two) = (listener("192.0.2.1", 80, "web"), listener("192.0.2.2", 80, "api"));
        let listeners = vec![put(&one), put(&two)];
        let update = Update { complete: true, listeners, ..Update::default() };
        let report = driver.apply(&update).await.unwrap();
        assert_eq!(report.refused.len(), 1);
        assert_eq!(report.refused[0].extent, Extent::Listener(two.0));
    }
}
