//! Takes MetalLB's pools over, once, before a controller starts: lists them, sees that MetalLB's own
//! controller does not run, and creates an AddressPool for each. Never changes or deletes an object that is
//! there, MetalLB's or ours. `bowline controller --import-metallb` calls it; what a pool becomes is decided
//! in [`bowline_api::metallb`].

use bowline_api::metallb::{self, IPAddressPool, Loss};
use bowline_api::{AddressPool, names};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams, PostParams};
use kube::{Client, Error, ResourceExt as _};
use std::fmt;

/// What was taken over.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Import {
    /// AddressPools that were made.
    pub created: Vec<String>,
    /// AddressPools of the same name that were there; each with whether it says what MetalLB's says.
    pub kept: Vec<(String, Kept)>,
    /// What could not be taken over.
    pub losses: Vec<Loss>,
}

/// Why an AddressPool was left as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// It says the same.
    Same,
    /// It says something else, and whoever made it is right.
    Differs,
}

/// Why nothing, or not everything, was taken over.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// Two would give out the same addresses.
    #[error(
        "MetalLB's controller still runs as Pod {0}: two controllers would give out the same addresses; \
         scale it to 0 first (its speakers may stay)"
    )]
    Running(String),
    /// The API refused something.
    #[error("cannot {doing}: {source}")]
    Api {
        /// What was being done.
        doing: String,
        /// What the API said.
        source: Box<Error>,
    },
}

impl fmt::Display for Import {
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

/// Makes an AddressPool for each pool of MetalLB in a namespace. None: the API has no such kind, MetalLB is
/// not installed. Everything that is there already stays as it is, so this may be done again, and by two at
/// once.
pub async fn import(client: &Client, namespace: &str) -> Result<Option<Import>, ImportError> {
    let theirs: Api<IPAddressPool> = Api::namespaced(client.clone(), namespace);
    let all = match theirs.list(&ListParams::default()).await {
        Ok(list) => list.items,
        Err(Error::Api(status)) if status.code == 404 => return Ok(None),
        Err(source) => {
            return Err(failed(format!("list the IPAddressPools of namespace {namespace}"))(
                source,
            ));
        }
    };
    stands_still(client, namespace).await?;
    let ours: Api<AddressPool> = Api::all(client.clone());
    let mut import = Import::default();
    for pool in &all {
        let (pool, losses) = metallb::pool(pool);
        import.losses.extend(losses);
        let Some(pool) = pool else { continue };
        match create(&ours, &pool).await? {
            None => import.created.push(pool.name_any()),
            Some(kept) => import.kept.push((pool.name_any(), kept)),
        }
    }
    Ok(Some(import))
}

/// Who may not look at the Pods cannot know, and does not go on.
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

/// Makes a pool, or says how the one that is there compares. The create itself decides who was first.
async fn create(api: &Api<AddressPool>, pool: &AddressPool) -> Result<Option<Kept>, ImportError> {
    let name = pool.name_any();
    let params = PostParams {
        field_manager: Some(names::MANAGER_IMPORT.to_owned()),
        ..PostParams::default()
    };
    match api.create(&params, pool).await {
        Ok(_) => Ok(None),
        Err(Error::Api(status)) if status.code == 409 => {
            let there = api.get(&name).await.map_err(failed(format!("read AddressPool {name}")))?;
            Ok(Some(if there.spec == pool.spec { Kept::Same } else { Kept::Differs }))
        }
        Err(source) => Err(failed(format!("create AddressPool {name}"))(source)),
    }
}

fn failed(doing: String) -> impl FnOnce(Error) -> ImportError {
    |source| ImportError::Api { doing, source: Box::new(source) }
}

/// Says in the log what became of it.
pub fn tell(namespace: &str, import: Option<&Import>) {
    let Some(import) = import else {
        tracing::warn!(
            "--import-metallb: the API serves no ipaddresspools.metallb.io/v1beta1, so there is nothing \
             to take over; leave the flag out once MetalLB is gone"
        );
        return;
    };
    tracing::info!(namespace, created = ?import.created, "--import-metallb: AddressPools: {import}");
    for loss in &import.losses {
        tracing::warn!("--import-metallb: {loss}");
    }
    for (name, _) in import.kept.iter().filter(|(_, kept)| *kept == Kept::Differs) {
        tracing::warn!(
            "--import-metallb: AddressPool {name} is there and differs from MetalLB's; it stays as it is"
        );
    }
}
