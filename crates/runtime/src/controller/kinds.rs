//! Kinds that the leader reconciles object by object: it watches them, keeps a little of each object, and writes
//! finalizers and status. Each kind has a module that implements [`StatusKind`]; the list at the end of this file names
//! them. Nothing else in the controller depends on which kinds these are: watches, targets, writes and answers carry a
//! [`KindId`]. Kinds with several writers, or with objects that are planned together (Services, load balancers, claims,
//! Plans), are not among them.
//!
//! ```text
//!  watch ─▶ KindSeen ─▶ Kinds::observe ─▶ board, and StatusKind::observe: the machine that decides about it
//!                       Kinds::next ◀─ Target::Object      │
//!                         │ StatusKind::next ◀─────────────┘
//!                         ▼
//!                       Write::Object ─▶ Kinds::amend ─▶ API ─▶ KindShown ─▶ Kinds::put
//! ```

pub(super) mod address_pool;
mod bgp_peer;
mod external_ip;

use super::addresses::AddressShell;
use super::observed::Observed;
use super::outbox::Outbox;
use super::shown::{Board, Shown};
use super::target::{Next, Target, Tried};
use super::watches::Watches;
use super::writer::{Failure, Write, patch_params};
use crate::api_timeout::answer;
use crate::observe::Change;
use crate::watch::Seen;
use bowline_api::address_pool::AddressPool;
use bowline_api::bgp_peer::BGPPeer;
use bowline_api::external_ip::ExternalIP;
use bowline_core::announce::Speakers;
use bowline_core::key::ObjectKey;
use bowline_core::lines::{self, State};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, Patch};
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::fmt::Debug;

/// A kind whose finalizers and status the leader writes object by object.
pub(super) trait StatusKind:
    Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static
{
    /// What the leader keeps of an object.
    type Shown: Debug + Send + Sync + 'static;
    /// Its name in logs and metrics.
    const NAME: &'static str;

    /// The API for an object's writes.
    fn api(client: Client, key: &ObjectKey) -> Api<Self>;

    /// Converts an object.
    fn shown(&self) -> Self::Shown;

    /// Hands an event to the machine that decides about the kind.
    fn observe(seen: Seen<&Self::Shown>, parts: &mut Parts<'_>);

    /// The state of an object that `bowline up` prints. None: nothing.
    fn state(_: &Self::Shown) -> Option<State> {
        None
    }

    /// Whether `bowline up` has printed a state of an object, and so prints its end.
    fn has_state(shown: &Self::Shown) -> bool {
        Self::state(shown).is_some()
    }

    /// The next write of an object. None: it is as it should be.
    fn next(
        key: &ObjectKey,
        shown: &Shown<Self::Shown>,
        parts: &mut Parts<'_>,
        clock: Timestamp,
    ) -> Option<Amend>;
}

/// The parts of the controller that decide about these kinds.
pub(super) struct Parts<'a> {
    pub(super) addresses: &'a mut AddressShell,
    pub(super) speakers: &'a Speakers,
}

/// A patch of an object.
#[derive(Debug)]
pub(super) enum Amend {
    /// Its finalizers.
    Finalizers(Vec<String>),
    /// Its status.
    Status(Value),
}

/// An object from a watch or from the answer to a write.
#[derive(Debug)]
pub(super) struct ObjectSeen<S> {
    pub(super) key: ObjectKey,
    pub(super) shown: Shown<S>,
}

impl<S> ObjectSeen<S> {
    pub(super) fn of<K: StatusKind<Shown = S>>(object: &K) -> Box<Self> {
        let (meta, shown) = (object.meta(), object.shown());
        Box::new(Self { key: key_of(meta), shown: Shown::new(meta, shown) })
    }
}

fn key_of(meta: &ObjectMeta) -> ObjectKey {
    let text = |it: &Option<String>| it.as_deref().unwrap_or_default().to_owned();
    ObjectKey::new(text(&meta.namespace), text(&meta.name))
}

/// The objects of one kind.
#[derive(Debug)]
pub(super) struct Objects<K: StatusKind> {
    board: Board<ObjectKey, K::Shown>,
    /// Whether the kind was listed once.
    listed: bool,
}

impl<K: StatusKind> Default for Objects<K> {
    fn default() -> Self {
        Self { board: Board::default(), listed: false }
    }
}

impl<K: StatusKind> Objects<K> {
    pub(super) fn get(&self, key: &ObjectKey) -> Option<&Shown<K::Shown>> {
        self.board.get(key)
    }

    /// Takes in an event of the watch. Returns the object to enqueue.
    fn observe(
        &mut self,
        seen: Seen<Box<ObjectSeen<K::Shown>>>,
        parts: &mut Parts<'_>,
        outbox: &mut Outbox,
    ) -> Option<ObjectKey> {
        match seen {
            Seen::Begin => {
                self.board.begin();
                K::observe(Seen::Begin, parts);
                None
            }
            Seen::Apply(object) => Some(self.put(*object, parts, outbox)),
            Seen::Delete(object) => {
                if let Some(known) = self.board.remove(&object.key) {
                    Self::tell_deleted(&object.key, &known, outbox);
                }
                K::observe(Seen::Delete(&object.shown.status), parts);
                None
            }
            Seen::Done => {
                for (key, known) in self.board.done() {
                    Self::tell_deleted(&key, &known, outbox);
                }
                K::observe(Seen::Done, parts);
                self.listed = true;
                None
            }
        }
    }

    fn tell_deleted(key: &ObjectKey, known: &Shown<K::Shown>, outbox: &mut Outbox) {
        if K::has_state(&known.status) {
            let object = format!("{} {}", K::NAME, key.name);
            outbox.tell(Change::State { object, state: lines::deleted() });
        }
    }

    /// The watch, or the answer to a write, shows an object. If the watch shows an older version than an earlier answer,
    /// the newer one is handed on again: every object of a relist must be handed on, else it counts as deleted.
    fn put(
        &mut self,
        object: ObjectSeen<K::Shown>,
        parts: &mut Parts<'_>,
        outbox: &mut Outbox,
    ) -> ObjectKey {
        let ObjectSeen { key, shown } = object;
        let before = self.board.get(&key).and_then(|it| K::state(&it.status));
        self.board.put(key.clone(), shown);
        if let Some(known) = self.board.get(&key) {
            K::observe(Seen::Apply(&known.status), parts);
            if let Some(state) = K::state(&known.status).filter(|now| before.as_ref() != Some(now))
            {
                outbox.tell(Change::State { object: format!("{} {}", K::NAME, key.name), state });
            }
        }
        key
    }

    fn next(
        &self,
        key: &ObjectKey,
        parts: &mut Parts<'_>,
        clock: Timestamp,
    ) -> Option<(Amend, Tried)> {
        let shown = self.board.get(key)?;
        let amend = K::next(key, shown, parts, clock)?;
        Some((amend, Tried::at(&shown.version)))
    }
}

/// Sends a patch that names the version it replaces.
async fn amend<K: StatusKind>(
    client: Client,
    key: &ObjectKey,
    version: Option<&str>,
    amend: Amend,
) -> Result<Box<ObjectSeen<K::Shown>>, Failure> {
    let api = K::api(client, key);
    let after = match amend {
        Amend::Finalizers(finalizers) => {
            let finalizers = (!finalizers.is_empty()).then_some(finalizers);
            let patch = json!({"metadata": {"resourceVersion": version, "finalizers": finalizers}});
            answer(api.patch(&key.name, &patch_params(), &Patch::Merge(&patch))).await
        }
        Amend::Status(status) => {
            let patch = json!({"metadata": {"resourceVersion": version}, "status": status});
            answer(api.patch_status(&key.name, &patch_params(), &Patch::Merge(&patch))).await
        }
    };
    Ok(ObjectSeen::of(&after?))
}

/// Declares the kinds, and passes each call to the right one.
macro_rules! kinds {
    ($($Kind:ident in $objects:ident,)*) => {
        /// The kind of an object.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub(super) enum KindId { $($Kind,)* }

        /// An event of a watch.
        #[derive(Debug)]
        pub(super) enum KindSeen {
            $($Kind(Seen<Box<ObjectSeen<<$Kind as StatusKind>::Shown>>>),)*
        }

        /// An object after a write.
        #[derive(Debug)]
        pub(super) enum KindShown { $($Kind(Box<ObjectSeen<<$Kind as StatusKind>::Shown>>),)* }

        /// The objects of all these kinds.
        #[derive(Debug, Default)]
        pub(super) struct Kinds { $(pub(super) $objects: Objects<$Kind>,)* }

        impl KindSeen {
            /// The target that the event is about.
            pub(super) fn target(&self) -> Option<Target> {
                match self {
                    $(Self::$Kind(Seen::Apply(it) | Seen::Delete(it)) => {
                        Some(Target::Object(KindId::$Kind, it.key.clone()))
                    })*
                    _ => None,
                }
            }

            /// The end of the list, for every kind.
            #[cfg(test)]
            pub(super) fn done() -> Vec<Self> {
                vec![$(Self::$Kind(Seen::Done),)*]
            }
        }

        impl Kinds {
            /// Starts the watches of all kinds.
            pub(super) fn follow(watches: &mut Watches<'_>) {
                $(watches.everywhere($Kind::NAME, |seen: Seen<$Kind>| {
                    Observed::Object(KindSeen::$Kind(seen.map(|it| ObjectSeen::of(&it))))
                });)*
            }

            /// Whether every kind was listed once.
            pub(super) fn are_listed(&self) -> bool {
                true $(&& self.$objects.listed)*
            }

            /// Takes in an event of a watch.
            pub(super) fn observe(
                &mut self,
                seen: KindSeen,
                parts: &mut Parts<'_>,
                outbox: &mut Outbox,
            ) {
                match seen {
                    $(KindSeen::$Kind(seen) => {
                        let key = self.$objects.observe(seen, parts, outbox);
                        outbox.enqueue_all(key.map(|key| Target::Object(KindId::$Kind, key)));
                    })*
                }
            }

            /// Takes in the answer to a write.
            pub(super) fn put(
                &mut self,
                shown: KindShown,
                parts: &mut Parts<'_>,
                outbox: &mut Outbox,
            ) {
                match shown {
                    $(KindShown::$Kind(object) => {
                        let key = self.$objects.put(*object, parts, outbox);
                        outbox.enqueue(Target::Object(KindId::$Kind, key));
                    })*
                }
            }

            /// The next write of an object.
            pub(super) fn next(
                &self,
                kind: KindId,
                key: &ObjectKey,
                parts: &mut Parts<'_>,
                clock: Timestamp,
            ) -> Next {
                let next = match kind {
                    $(KindId::$Kind => self.$objects.next(key, parts, clock),)*
                };
                let Some((amend, tried)) = next else { return Next::Nothing };
                Next::Write(Write::Object(kind, key.clone(), tried.version.clone(), amend), tried)
            }

            /// The version at which an object is known.
            pub(super) fn version(&self, kind: KindId, key: &ObjectKey) -> Option<&str> {
                match kind {
                    $(KindId::$Kind => self.$objects.get(key).map(|shown| &*shown.version),)*
                }
            }

            /// All objects, as targets.
            pub(super) fn targets(&self) -> impl Iterator<Item = Target> {
                std::iter::empty()
                    $(.chain(self.$objects.board.keys().cloned().map(|key| {
                        Target::Object(KindId::$Kind, key)
                    })))*
            }

            /// Writes an object.
            pub(super) async fn amend(
                client: Client,
                kind: KindId,
                key: &ObjectKey,
                version: Option<&str>,
                patch: Amend,
            ) -> Result<KindShown, Failure> {
                match kind {
                    $(KindId::$Kind => {
                        amend::<$Kind>(client, key, version, patch).await.map(KindShown::$Kind)
                    })*
                }
            }
        }
    };
}

kinds! {
    AddressPool in address_pools,
    ExternalIP in external_ips,
    BGPPeer in bgp_peers,
}
