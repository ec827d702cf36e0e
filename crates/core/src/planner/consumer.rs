//! Consumers inside the planner: identified by kind and name, and ordered by age where they contend. It decides no
//! contention; `ports` and `hosts` do.

use crate::key::{ConsumerKind, ConsumerRef, ObjectKey};
use crate::objects::Timestamp;
use std::fmt;
use std::sync::Arc;

/// A consumer by kind and name, whatever its uid: an object that is created again takes the place of the old one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct ConsumerKey {
    pub(super) kind: ConsumerKind,
    pub(super) key: ObjectKey,
}

impl ConsumerKey {
    pub(super) fn of(consumer: &ConsumerRef) -> Self {
        let key = ObjectKey::new(consumer.namespace.clone(), consumer.name.clone());
        Self { kind: consumer.kind, key }
    }

    pub(super) fn service(key: &ObjectKey) -> Self {
        Self { kind: ConsumerKind::Service, key: key.clone() }
    }

    pub(super) fn ingress(key: &ObjectKey) -> Self {
        Self { kind: ConsumerKind::Ingress, key: key.clone() }
    }

    pub(super) fn load_balancer(name: &Arc<str>) -> Self {
        Self { kind: ConsumerKind::LoadBalancer, key: ObjectKey::new("", name.clone()) }
    }

    pub(super) fn with_uid(&self, uid: &Arc<str>) -> ConsumerRef {
        ConsumerRef {
            kind: self.kind,
            namespace: self.key.namespace.clone(),
            name: self.key.name.clone(),
            uid: uid.clone(),
        }
    }
}

impl fmt::Display for ConsumerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.key)
    }
}

/// The sort key of contenders: the smallest wins.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Age {
    pub(super) created: Timestamp,
    pub(super) key: ObjectKey,
}

/// A consumer that wants a port, and its age.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Contender {
    pub(super) age: Age,
    pub(super) who: ConsumerKey,
    /// The consumer's uid: what Plans record of another object of the same name is not its own.
    pub(super) uid: Arc<str>,
}

impl Contender {
    pub(super) fn consumer(&self) -> ConsumerRef {
        self.who.with_uid(&self.uid)
    }
}
