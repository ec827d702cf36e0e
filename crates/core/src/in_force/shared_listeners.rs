//! Which Ingresses are told by an Event that a listener that they share is not open, and of how many. An Ingress has no
//! conditions, so only an Event tells its owner. The controller asks when it looks at the status of an Ingress: after
//! a change of the agents' report it looks at all of them, and at a new one at once. How fast Events are recorded, and in
//! which order of namespaces, is decided by [`crate::event_correlator`].

use crate::key::{ConsumerKind, ConsumerRef, ObjectKey};
use crate::outcome::Problem;
use crate::replicas::Joint;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The most listeners of which one Ingress is told.
const MOST_TOLD: usize = 3;

/// What each Ingress was told and is still so.
#[derive(Debug, Default)]
pub struct SharedListeners {
    /// By Ingress: its uid and the problems.
    told: BTreeMap<ObjectKey, (Arc<str>, BTreeSet<Problem>)>,
}

impl SharedListeners {
    /// What the owner of an Ingress has to be told now, given the report of the agents of its load balancer. None:
    /// there is no report. Each problem is told once while it lasts.
    pub fn tell(&mut self, joint: Option<&Joint>, ingress: &ConsumerRef) -> Vec<Problem> {
        if ingress.kind != ConsumerKind::Ingress {
            return Vec::new();
        }
        let key = ObjectKey::new(Arc::clone(&ingress.namespace), Arc::clone(&ingress.name));
        let refused = joint.into_iter().flat_map(|it| &it.refused);
        let shared = refused
            .filter(|it| it.consumer.kind == ConsumerKind::LoadBalancer && it.closes().is_some());
        let now: BTreeSet<_> = shared.map(|it| it.problem.clone()).collect();
        if now.is_empty() {
            self.told.remove(&key);
            return Vec::new();
        }
        let (uid, told) = self.told.entry(key).or_default();
        if *uid != ingress.uid {
            (*uid, *told) = (Arc::clone(&ingress.uid), BTreeSet::new());
        }
        told.retain(|it| now.contains(it));
        let room = MOST_TOLD.saturating_sub(told.len());
        let news: Vec<_> = now.into_iter().filter(|it| !told.contains(it)).take(room).collect();
        told.extend(news.iter().cloned());
        news
    }

    /// An Ingress is gone, or is on no load balancer.
    pub fn forget(&mut self, ingress: &ObjectKey) {
        self.told.remove(ingress);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Reason;
    use crate::plan::Transport;
    use crate::update::{Extent, ListenerKey, Refusal};

    fn consumer(kind: ConsumerKind, name: &str, uid: &str) -> ConsumerRef {
        ConsumerRef { kind, namespace: "shop".into(), name: name.into(), uid: uid.into() }
    }

    fn ingress(uid: &str) -> ConsumerRef {
        consumer(ConsumerKind::Ingress, "web", uid)
    }

    fn shut(ports: &[u16]) -> Joint {
        let refusal = |port: &u16| {
            let key = ListenerKey {
                address: [192, 0, 2, 1].into(),
                port: *port,
                transport: Transport::Tcp,
            };
            Refusal {
                consumer: consumer(ConsumerKind::LoadBalancer, "edge", "1"),
                problem: Problem::new(Reason::BindFailed, format!("{port} is taken")),
                extent: Extent::Listener(key),
            }
        };
        Joint { refused: ports.iter().map(refusal).collect(), ..Joint::default() }
    }

    fn told(shared: &mut SharedListeners, joint: &Joint, ingress: &ConsumerRef) -> Vec<String> {
        let told = shared.tell(Some(joint), ingress);
        told.iter().map(|it| it.message.to_string()).collect()
    }

    #[test]
    fn every_ingress_is_told_of_a_shared_listener_that_is_not_open_once_while_it_lasts() {
        let mut shared = SharedListeners::default();
        assert_eq!(told(&mut shared, &shut(&[80]), &ingress("a")), ["80 is taken"]);
        assert_eq!(told(&mut shared, &shut(&[80]), &ingress("a")), [""; 0]);
        assert_eq!(told(&mut shared, &shut(&[80, 443]), &ingress("a")), ["443 is taken"]);
        // However many Ingresses there are, and however late they come.
        for n in 0..1000 {
            let late = consumer(ConsumerKind::Ingress, &format!("late-{n}"), "a");
            assert_eq!(told(&mut shared, &shut(&[80]), &late), ["80 is taken"]);
        }
        // It was created again.
        assert_eq!(told(&mut shared, &shut(&[80]), &ingress("b")), ["80 is taken"]);
        // It was open in between.
        assert_eq!(shared.tell(Some(&Joint::default()), &ingress("b")), []);
        assert_eq!(told(&mut shared, &shut(&[80]), &ingress("b")), ["80 is taken"]);
        shared.forget(&ObjectKey::new("shop", "web"));
        assert_eq!(told(&mut shared, &shut(&[80]), &ingress("b")), ["80 is taken"]);
    }

    #[test]
    fn an_ingress_is_told_of_few_listeners_and_a_service_of_none_that_it_does_not_share() {
        let (mut shared, many) = (SharedListeners::default(), shut(&[80, 81, 82, 83, 84]));
        assert_eq!(told(&mut shared, &many, &ingress("a")).len(), MOST_TOLD);
        assert_eq!(told(&mut shared, &many, &ingress("a")), [""; 0]);
        let service = consumer(ConsumerKind::Service, "web", "a");
        assert_eq!(told(&mut shared, &many, &service), [""; 0]);
        assert_eq!(shared.tell(None, &ingress("a")), []);
    }
}
