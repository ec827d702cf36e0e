//! Imports MetalLB's objects once, before a controller starts: lists them, checks that MetalLB's own controller does not
//! run, and creates an AddressPool for each pool, and Advertisements and BGPPeers for what announces their addresses. It
//! never changes or deletes an existing object, MetalLB's or Bowline's. `bowline controller --import-metallb` calls it;
//! [`bowline_api::metallb`] decides what an object becomes.

use crate::causes::causes;
use bowline_api::advertisement::Advertisement;
use bowline_api::bgp_peer::BGPPeer;
use bowline_api::metallb::{self, Announcing, IPAddressPool, Loss};
use bowline_api::{AddressPool, names};
use bowline_core::outcome::quote;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ApiResource, DynamicObject, ListParams, PostParams};
use kube::{Client, Error, Resource, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt;

/// The result of an import.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Import {
    /// AddressPools.
    pub pools: Taken,
    /// BGPPeers.
    pub peers: Taken,
    /// Advertisements.
    pub advertisements: Taken,
    /// What could not be imported, or is to be done.
    pub losses: Vec<Loss>,
}

/// The objects of one kind.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Taken {
    /// Those that were created.
    pub created: Vec<String>,
    /// Those that existed under the same name; each with whether it matches MetalLB's.
    pub kept: Vec<(String, Kept)>,
}

/// How an existing object compares with MetalLB's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// It is the same.
    Same,
    /// It differs, and stays as it is.
    Differs,
}

/// Why nothing, or not everything, was imported.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// MetalLB's controller still runs, and two controllers would allocate the same addresses.
    #[error(
        "MetalLB's controller still runs as Pod {0}: two controllers would give out the same addresses; \
         scale it to 0 first (its speakers may stay)"
    )]
    Running(String),
    /// The API refused something.
    #[error("cannot {doing}: {}", causes(source))]
    Api {
        /// What Bowline did.
        doing: String,
        /// What the API said.
        source: Box<Error>,
    },
}

impl fmt::Display for Taken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = |kept: Kept| self.kept.iter().filter(move |(_, it)| *it == kept).count();
        let (same, other) = (of(Kept::Same), of(Kept::Differs));
        write!(
            f,
            "{} made, {same} there already, {other} there with other content",
            self.created.len()
        )
    }
}

/// Creates Bowline's objects for those of MetalLB in a namespace. Secrets with passwords must be in `ours`. None: the API
/// has no such pools, so MetalLB is not installed. Existing objects stay as they are, so this can be repeated, also by two
/// processes at once.
pub async fn import(
    client: &Client,
    namespace: &str,
    ours: &str,
) -> Result<Option<Import>, ImportError> {
    let Some(pools) = list::<IPAddressPool>(client, namespace).await? else { return Ok(None) };
    let announcing = Announcing {
        l2: list(client, namespace).await?.unwrap_or_default(),
        bgp: list(client, namespace).await?.unwrap_or_default(),
        peers: peers(client, namespace).await?,
        communities: list(client, namespace).await?.unwrap_or_default(),
        profiles: list(client, namespace).await?.unwrap_or_default(),
    };
    stands_still(client, namespace).await?;
    let mut import = Import::default();
    let selecting = metallb::selecting_labels(&announcing);
    let api: Api<AddressPool> = Api::all(client.clone());
    for pool in &pools {
        let (pool, losses) = metallb::pool(pool, &selecting);
        import.losses.extend(losses);
        let Some(pool) = pool else { continue };
        let same = |there: &AddressPool| there.spec == pool.spec && has_labels_of(there, &pool);
        import.pools.add(&pool, create(&api, &pool, same).await?);
    }
    let made = metallb::announcing(&announcing, namespace, ours);
    import.losses.extend(made.losses);
    // Advertisements come last: what they say of peers and pools is there then.
    let api: Api<BGPPeer> = Api::all(client.clone());
    for peer in &made.peers {
        let created = create(&api, peer, |there| there.spec == peer.spec).await;
        import.peers.add_or_lose(peer, created, &mut import.losses)?;
    }
    let api: Api<Advertisement> = Api::all(client.clone());
    for it in &made.advertisements {
        let created = create(&api, it, |there| there.spec == it.spec).await;
        import.advertisements.add_or_lose(it, created, &mut import.losses)?;
    }
    Ok(Some(import))
}

impl Taken {
    fn add<K: Resource>(&mut self, object: &K, kept: Option<Kept>) {
        match kept {
            None => self.created.push(object.name_any()),
            Some(kept) => self.kept.push((object.name_any(), kept)),
        }
    }

    /// What announces an address does not stop a controller that gives out addresses: MetalLB's speakers still announce.
    fn add_or_lose<K: Resource<DynamicType = ()>>(
        &mut self,
        object: &K,
        created: Result<Option<Kept>, ImportError>,
        losses: &mut Vec<Loss>,
    ) -> Result<(), ImportError> {
        match created {
            Ok(kept) => self.add(object, kept),
            Err(ImportError::Api { source, .. }) if is_refusal(&source) => {
                let object = format!("{} {}", K::kind(&()), object.name_any());
                losses.push(Loss::Refused { object, why: quote(&source.to_string()) });
            }
            Err(other) => return Err(other),
        }
        Ok(())
    }
}

/// Whether the API read the object and does not take it.
fn is_refusal(error: &Error) -> bool {
    matches!(error, Error::Api(status) if matches!(status.code, 400 | 422))
}

/// Whether a pool can be selected as MetalLB's.
fn has_labels_of(there: &AddressPool, pool: &AddressPool) -> bool {
    pool.labels().iter().all(|(key, value)| there.labels().get(key) == Some(value))
}

/// The objects of one kind. None: the API has no such kind.
async fn list<K>(client: &Client, namespace: &str) -> Result<Option<Vec<K>>, ImportError>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    K: Clone + fmt::Debug + DeserializeOwned,
{
    let api: Api<K> = Api::namespaced(client.clone(), namespace);
    listed(api.list(&ListParams::default()).await, &K::kind(&()), namespace)
}

fn listed<K: Clone>(
    answer: Result<kube::core::ObjectList<K>, Error>,
    kind: &str,
    namespace: &str,
) -> Result<Option<Vec<K>>, ImportError> {
    match answer {
        Ok(list) => Ok(Some(list.items)),
        Err(Error::Api(status)) if status.code == 404 => Ok(None),
        Err(source) => Err(failed(format!("list the {kind}s of namespace {namespace}"))(source)),
    }
}

/// MetalLB's peers. Very old releases serve v1beta1 alone.
async fn peers(client: &Client, namespace: &str) -> Result<Vec<metallb::BGPPeer>, ImportError> {
    if let Some(peers) = list(client, namespace).await? {
        return Ok(peers);
    }
    let mut resource = ApiResource::erase::<metallb::BGPPeer>(&());
    resource.version = "v1beta1".to_owned();
    resource.api_version = format!("{}/v1beta1", resource.group);
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
    let all = listed(api.list(&ListParams::default()).await, "BGPPeer", namespace)?;
    Ok(all.into_iter().flatten().filter_map(metallb::old_peer).collect())
}

/// Fails if MetalLB's controller runs, or if this process may not list the Pods to find out.
async fn stands_still(client: &Client, namespace: &str) -> Result<(), ImportError> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let doing =
        format!("see whether MetalLB's controller runs: list the Pods of namespace {namespace}");
    let pods = pods.list(&ListParams::default()).await.map_err(failed(doing))?;
    match pods.items.iter().find(|pod| metallb::is_running_controller(pod)) {
        Some(pod) => Err(ImportError::Running(format!("{namespace}/{}", pod.name_any()))),
        None => Ok(()),
    }
}

/// Creates an object, or compares the existing one. The API's exclusive create decides which process was
/// first.
async fn create<K>(
    api: &Api<K>,
    object: &K,
    same: impl FnOnce(&K) -> bool,
) -> Result<Option<Kept>, ImportError>
where
    K: Resource<DynamicType = ()> + Clone + fmt::Debug + Serialize + DeserializeOwned,
{
    let name = format!("{} {}", K::kind(&()), object.name_any());
    let params = PostParams {
        field_manager: Some(names::MANAGER_IMPORT.to_owned()),
        ..PostParams::default()
    };
    match api.create(&params, object).await {
        Ok(_) => Ok(None),
        Err(Error::Api(status)) if status.code == 409 => {
            let there =
                api.get(&object.name_any()).await.map_err(failed(format!("read {name}")))?;
            Ok(Some(if same(&there) { Kept::Same } else { Kept::Differs }))
        }
        Err(source) => Err(failed(format!("create {name}"))(source)),
    }
}

fn failed(doing: String) -> impl FnOnce(Error) -> ImportError {
    |source| ImportError::Api { doing, source: Box::new(source) }
}

/// Logs the result of an import.
pub fn tell(namespace: &str, import: Option<&Import>) {
    let Some(import) = import else {
        tracing::warn!(
            "--import-metallb: the API serves no ipaddresspools.metallb.io/v1beta1, so there is nothing \
             to take over; leave the flag out once MetalLB is gone"
        );
        return;
    };
    let kinds = [
        ("AddressPool", &import.pools),
        ("BGPPeer", &import.peers),
        ("Advertisement", &import.advertisements),
    ];
    for (kind, taken) in kinds {
        let created = taken.created.join(", ");
        tracing::info!(namespace, created, "--import-metallb: {kind}s: {taken}");
    }
    for loss in &import.losses {
        tracing::warn!("--import-metallb: {loss}");
    }
    for (kind, taken) in kinds {
        for (name, _) in taken.kept.iter().filter(|(_, kept)| *kept == Kept::Differs) {
            tracing::warn!(
                "--import-metallb: {kind} {name} is there and differs from MetalLB's; it stays as it is"
            );
        }
    }
}
