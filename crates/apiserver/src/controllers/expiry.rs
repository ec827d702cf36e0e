//! Deletes objects when their time has come: the common part of the controllers for Events and for
//! Pods at the end of their grace period. Each kind's record says when.

use super::catalog::gone_is_fine;
use super::shell::{Act, Index, Outcome, Plan};
use super::table::{Record, Table};
use jiff::Timestamp;
use k8s_openapi::NamespaceResourceScope;
use kube::api::{DeleteParams, Preconditions};
use kube::runtime::watcher::Event;
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::marker::PhantomData;

/// Namespace and name.
pub(super) type Name = (String, String);

/// A record that knows when its object is due.
pub(super) trait Due: Record + Send {
    /// When the object must be deleted, if ever.
    fn due(&self, now: Timestamp) -> Option<Timestamp>;

    /// The object's uid, so that a new object with the same name is not deleted.
    fn uid(&self) -> &str;
}

/// The objects of a kind, with their times.
pub(super) struct Expiry<V> {
    objects: Table<Name, V>,
}

impl<V> Default for Expiry<V> {
    fn default() -> Self {
        Self { objects: Table::default() }
    }
}

/// The action: delete this object.
#[derive(Debug, PartialEq)]
pub(super) struct Expire {
    pub(super) name: Name,
    pub(super) uid: String,
}

impl<V: Due> Index for Expiry<V> {
    type Event = Event<(Name, V)>;
    type Key = Name;
    type Action = Expire;

    fn observe(&mut self, event: Self::Event) -> Vec<Name> {
        self.objects.observe(event).into_iter().map(|(key, _)| key).collect()
    }

    fn ready(&self) -> bool {
        true
    }

    fn plan(&self, key: &Name, now: Timestamp) -> Plan<Expire> {
        let Some(object) = self.objects.get(key) else { return Plan::Idle };
        match object.due(now) {
            Some(time) if time <= now => {
                Plan::Do(vec![Expire { name: key.clone(), uid: object.uid().to_owned() }])
            }
            Some(time) => Plan::At(time),
            None => Plan::Idle,
        }
    }
}

/// Deletes objects of a kind.
#[derive(Clone)]
pub(super) struct Deleter<K> {
    client: Client,
    params: DeleteParams,
    kind: PhantomData<fn() -> K>,
}

impl<K> Deleter<K> {
    pub(super) fn new(client: Client, params: DeleteParams) -> Self {
        Self { client, params, kind: PhantomData }
    }
}

impl<K, V> Act<Expiry<V>> for Deleter<K>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    K: Clone + Debug + DeserializeOwned,
    V: Due,
{
    async fn act(
        &self,
        Expire { name, uid }: Expire,
    ) -> Result<Outcome<Event<(Name, V)>>, kube::Error> {
        let api: Api<K> = Api::namespaced(self.client.clone(), &name.0);
        let this = Preconditions { uid: Some(uid), resource_version: None };
        let params = self.params.clone().preconditions(this);
        gone_is_fine(api.delete(&name.1, &params).await)?;
        Ok(Outcome::Done(Vec::new()))
    }
}
