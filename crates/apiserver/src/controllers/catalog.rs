//! The resource types of the server, from its discovery, and operations on objects of any type: list
//! their metadata, delete them all. It keeps no state; the namespace, garbage and custom resource
//! controllers call it.

use kube::api::{DeleteParams, DynamicObject, ListParams, PartialObjectMeta};
use kube::core::ObjectMeta;
use kube::discovery::{ApiCapabilities, ApiResource, Discovery, Scope, verbs};
use kube::{Api, Client};
use std::sync::Arc;

/// The metadata of an object whose type is known only at run time.
pub(super) type Meta = PartialObjectMeta<DynamicObject>;

/// A resource type that can be listed and deleted.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Served {
    /// `plural.group`, the same in all versions.
    pub(super) id: Arc<str>,
    pub(super) resource: ApiResource,
    pub(super) namespaced: bool,
    /// Whether deletecollection is served.
    pub(super) collection: bool,
    /// Whether watch is served.
    pub(super) watchable: bool,
}

impl Served {
    fn new(resource: ApiResource, can: &ApiCapabilities) -> Option<Self> {
        let does = |verb| can.supports_operation(verb);
        (does(verbs::LIST) && does(verbs::DELETE)).then(|| Self {
            id: format!("{}.{}", resource.plural, resource.group).into(),
            namespaced: can.scope == Scope::Namespaced,
            collection: does(verbs::DELETE_COLLECTION),
            watchable: does(verbs::WATCH),
            resource,
        })
    }

    /// The API for objects of this type in a namespace; empty: in the whole cluster.
    pub(super) fn api(&self, client: &Client, namespace: &str) -> Api<Meta> {
        if self.namespaced && !namespace.is_empty() {
            Api::namespaced_with(client.clone(), namespace, &self.resource)
        } else {
            Api::all_with(client.clone(), &self.resource)
        }
    }
}

/// All resource types, sorted, each in its most stable version. `events.k8s.io` is left out, because
/// it serves the core Events again.
pub(super) async fn discover(client: &Client) -> Result<Vec<Served>, kube::Error> {
    let discovery = Discovery::new(client.clone()).run_aggregated().await?;
    let mut served: Vec<Served> = discovery
        .groups()
        .flat_map(|group| group.resources_by_stability())
        .filter_map(|(resource, can)| Served::new(resource, &can))
        .filter(|served| &*served.id != "events.events.k8s.io")
        .collect();
    served.sort_by(|a, b| a.id.cmp(&b.id));
    Ok(served)
}

/// Passes the metadata of every object to `each`, page by page.
pub(super) async fn list(
    api: &Api<Meta>,
    mut each: impl FnMut(ObjectMeta),
) -> Result<(), kube::Error> {
    let mut params = ListParams::default().limit(500);
    loop {
        let page = api.list(&params).await?;
        page.items.into_iter().for_each(|object| each(object.metadata));
        match page.metadata.continue_ {
            Some(token) if !token.is_empty() => params = params.continue_token(&token),
            _ => return Ok(()),
        }
    }
}

/// Deletes every object of a type in a namespace. Objects with finalizers stay until these are
/// removed. A type that is no longer served counts as empty.
pub(super) async fn delete_all(
    client: &Client,
    served: &Served,
    namespace: &str,
) -> Result<(), kube::Error> {
    let api = served.api(client, namespace);
    let background = DeleteParams::background();
    if served.collection {
        return gone_is_fine(api.delete_collection(&background, &ListParams::default()).await);
    }
    let mut names = Vec::new();
    gone_is_fine(list(&api, |object| names.extend(object.name)).await)?;
    for name in names {
        gone_is_fine(api.delete(&name, &background).await)?;
    }
    Ok(())
}

/// Treats "not found", and a method that is no longer served, as success.
pub(super) fn gone_is_fine<T>(result: Result<T, kube::Error>) -> Result<(), kube::Error> {
    match result {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 405) => Ok(()),
        Err(error) => Err(error),
    }
}
