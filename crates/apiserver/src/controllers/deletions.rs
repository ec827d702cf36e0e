//! Objects that are being deleted and wait for a controller to remove its finalizer: the common
//! part of the controllers for Namespaces and CustomResourceDefinitions. Each kind says whether an
//! object waits.

use super::shell::{Index, Plan};
use super::table::{Record, Table};
use jiff::Timestamp;
use kube::core::ObjectMeta;
use kube::runtime::watcher::Event;

/// What is kept of an object.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct State {
    uid: String,
    /// Whether it is being deleted and waits for this controller.
    waits: bool,
}

impl Record for State {}

/// The record of an object.
pub(super) fn record(meta: ObjectMeta, waits: bool) -> (String, State) {
    (meta.name.unwrap_or_default(), State { uid: meta.uid.unwrap_or_default(), waits })
}

/// The objects of a cluster-scoped kind.
#[derive(Default)]
pub(super) struct Deletions {
    objects: Table<String, State>,
}

/// The action: delete what belongs to this object, then remove the finalizer.
#[derive(Debug, PartialEq)]
pub(super) struct Finish {
    pub(super) name: String,
    pub(super) uid: String,
}

impl Index for Deletions {
    type Event = Event<(String, State)>;
    type Key = String;
    type Action = Finish;

    fn observe(&mut self, event: Self::Event) -> Vec<String> {
        self.objects.observe(event).into_iter().map(|(key, _)| key).collect()
    }

    fn ready(&self) -> bool {
        true
    }

    fn plan(&self, name: &String, _now: Timestamp) -> Plan<Finish> {
        match self.objects.get(name) {
            Some(State { uid, waits: true }) => {
                Plan::Do(vec![Finish { name: name.clone(), uid: uid.clone() }])
            }
            _ => Plan::Idle,
        }
    }
}
