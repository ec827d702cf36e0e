//! Objects that are being deleted and wait for one of us to let them go: what Namespaces and
//! CustomResourceDefinitions have in common. Whether an object waits, each kind says for itself.

use super::shell::{Index, Plan};
use super::table::{Record, Table};
use jiff::Timestamp;
use kube::core::ObjectMeta;
use kube::runtime::watcher::Event;

/// What is known of an object.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct State {
    uid: String,
    /// It is being deleted and waits for us.
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

/// Remove what belongs to this object and let it go.
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
