//! Opens listeners at addresses of this machine instead of those of the plan. An agent in a Pod needs this: the address
//! of the Service in front of it is not its own, and it cannot bind it. [`Elsewhere`] stands between the agent and any
//! driver, and reports refusals under the plan's addresses. With no addresses given it changes nothing.

use crate::{Driver, Error};
use bowline_core::outcome::{Problem, Reason};
use bowline_core::plan::Transport;
use bowline_core::update::{
    Change, Extent, ListenerKey, Refusal, Report, ResolvedListener, Update,
};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// A driver that listens at other addresses than the plan's.
#[derive(Debug)]
pub struct Elsewhere<D> {
    driver: D,
    /// The addresses to listen at, one of each IP family. Empty: the plan's addresses.
    here: Vec<IpAddr>,
    /// The address of the agent's own admin endpoint.
    own: Option<SocketAddr>,
    /// The listeners of the plan.
    planned: BTreeMap<ListenerKey, Arc<ResolvedListener>>,
    /// The listeners that the inner driver has.
    open: BTreeMap<ListenerKey, Arc<ResolvedListener>>,
}

impl<D> Elsewhere<D> {
    /// Listens at the addresses `here`.
    pub fn new(driver: D, here: Vec<IpAddr>) -> Self {
        Self { driver, here, own: None, planned: BTreeMap::new(), open: BTreeMap::new() }
    }

    /// Keeps this address free: the agent itself uses it.
    pub fn except(self, own: SocketAddr) -> Self {
        Self { own: Some(own), ..self }
    }

    /// Where a listener of the plan is opened: at the address of its IP family. The listener of a load balancer known
    /// only by hostname has an unspecified address, and is opened at all addresses, since it matches every IP family.
    fn at(&self, key: &ListenerKey) -> impl Iterator<Item = ListenerKey> {
        let (key, any) = (*key, key.address.is_unspecified());
        let fits = move |here: &&IpAddr| any || here.is_ipv4() == key.address.is_ipv4();
        let most = if any { usize::MAX } else { 1 };
        let here = self.here.iter().filter(fits).take(most);
        here.map(move |here| ListenerKey { address: *here, ..key })
    }

    /// Whether the agent's own endpoint uses this address and port.
    fn is_own(&self, at: &ListenerKey) -> bool {
        at.transport == Transport::Tcp
            && self.own.is_some_and(|own| {
                own.port() == at.port && (own.ip().is_unspecified() || own.ip() == at.address)
            })
    }

    /// The listeners to open, and refusals for the listeners of the plan that cannot be opened.
    fn wanted(&self) -> (BTreeMap<ListenerKey, Arc<ResolvedListener>>, Vec<Refusal>) {
        let (mut open, mut refused) = (BTreeMap::<_, Arc<ResolvedListener>>::new(), Vec::new());
        for (key, planned) in &self.planned {
            let mut refuse = |why: String| {
                let problem = Problem::new(Reason::BindFailed, why);
                let consumer = planned.consumer.clone();
                refused.push(Refusal { consumer, problem, extent: Extent::Listener(*key) });
            };
            if self.at(key).next().is_none() {
                refuse(format!(
                    "{}: this agent listens at no address of that IP family",
                    key.socket()
                ));
            }
            for at in self.at(key) {
                if self.is_own(&at) {
                    refuse(format!(
                        "{}: port {} is used by the agent itself here: use another port",
                        key.socket(),
                        key.port
                    ));
                    continue;
                }
                let mut here = (**planned).clone();
                here.listener.address = at.address;
                match open.get(&at) {
                    // The plan serves the same at several addresses of the load balancer.
                    Some(other) if **other == here => {}
                    Some(_) => refuse(format!(
                        "{}: another consumer has port {} at another address of this load balancer: use another port",
                        key.socket(),
                        key.port
                    )),
                    None => drop(open.insert(at, Arc::new(here))),
                }
            }
        }
        (open, refused)
    }

    /// Translates a report to the plan's addresses.
    fn translated(&self, mut report: Report) -> Report {
        if self.here.is_empty() {
            return report;
        }
        let refused = std::mem::take(&mut report.refused);
        let mut all = self.wanted().1;
        for refusal in refused {
            let Extent::Listener(at) = refusal.extent else {
                all.push(refusal);
                continue;
            };
            let planned = self.planned.keys().filter(|key| self.at(key).any(|it| it == at));
            all.extend(
                planned.map(|key| Refusal { extent: Extent::Listener(*key), ..refusal.clone() }),
            );
        }
        all.sort();
        all.dedup();
        Report { refused: all, ..report }
    }

    /// The same update with listeners at the addresses `here`.
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

    async fn changed(&mut self) -> Result<Report, Error> {
        let report = self.driver.changed().await?;
        Ok(self.translated(report))
    }

    fn most_listeners(&self) -> Option<usize> {
        self.driver.most_listeners()
    }

    async fn drain(&mut self, grace: Duration) {
        self.driver.drain(grace).await;
    }

    fn serves_on(&self) -> bool {
        self.driver.serves_on()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bowline_core::key::{ConsumerKind, ConsumerRef};
    use bowline_core::plan::{Listener, ListenerProtocol, Serves};

    /// Stores the listener changes that it gets, and refuses one port.
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
        let extents: Vec<_> = report.refused.iter().map(|it| it.extent.clone()).collect();
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
    async fn what_the_agent_has_itself_is_refused_and_said() {
        let admin = "[::]:9180".parse().unwrap();
        let mut driver = Elsewhere::new(Keeps::default(), here()).except(admin);
        let (one, two) = (listener("192.0.2.1", 9180, "web"), listener("192.0.2.1", 9181, "web"));
        let listeners = vec![put(&one), put(&two)];
        let update = Update { complete: true, listeners, ..Update::default() };
        let report = driver.apply(&update).await.unwrap();
        let open = put(&listener("10.0.0.7", 9181, "web"));
        assert_eq!(driver.driver.listeners, [open]);
        let message =
            "192.0.2.1:9180: port 9180 is used by the agent itself here: use another port";
        let problem = Problem::new(Reason::BindFailed, message);
        let refused: Vec<_> =
            report.refused.iter().map(|it| (&it.problem, it.extent.clone())).collect();
        assert_eq!(refused, [(&problem, Extent::Listener(one.0))]);
    }

    #[tokio::test]
    async fn what_has_a_name_and_no_address_is_opened_at_all_addresses_here() {
        let both: Vec<IpAddr> = vec!["10.0.0.7".parse().unwrap(), "fd00::7".parse().unwrap()];
        let mut driver = Elsewhere::new(Keeps::default(), both);
        let any = listener("0.0.0.0", 80, "web");
        let update = Update { complete: true, listeners: vec![put(&any)], ..Update::default() };
        let report = driver.apply(&update).await.unwrap();
        assert_eq!(report.refused, []);
        let open = [listener("10.0.0.7", 80, "web"), listener("fd00::7", 80, "web")];
        assert_eq!(driver.driver.listeners, open.iter().map(put).collect::<Vec<_>>());
        let away = Update { listeners: vec![Change::Remove(any.0)], ..Update::default() };
        driver.apply(&away).await.unwrap();
        assert_eq!(driver.driver.listeners, open.map(|it| Change::Remove(it.0)));
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
