//! Imports MetalLB's pools once, before a controller starts: lists them, checks that MetalLB's own
//! controller does not run, and creates an AddressPool for each. It never changes or deletes an existing
//! object, MetalLB's or Bowline's. `bowline controller --import-metallb` calls it; [`bowline_api::metallb`]
//! decides what a pool becomes.

use crate::causes::causes;
use bowline_api::metallb::{self, IPAddressPool, Loss};
use bowline_api::{AddressPool, names};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams, PostParams};
use kube::{Client, Error, ResourceExt as _};
use std::fmt;

/// The result of an import.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Import {
    /// AddressPools that were created.
    pub created: Vec<String>,
    /// AddressPools that existed under the same name; each with whether it matches MetalLB's.
    pub kept: Vec<(String, Kept)>,
    /// What could not be imported.
    pub losses: Vec<Loss>,
}

/// How an existing AddressPool compares with MetalLB's pool.
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

/// Creates an AddressPool for each pool of MetalLB in a namespace. None: the API has no such kind, so
/// MetalLB is not installed. Existing objects stay as they are, so this can be repeated, also by two
/// processes at once.
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

/// Creates a pool, or compares the existing one. The API's exclusive create decides which process was
/// first.
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

/// Logs the result of an import.
pub fn tell(namespace: &str, import: Option<&Import>) {
    let Some(import) = import else {
        tracing::warn!(
            "--import-metallb: the API serves no ipaddresspools.metallb.io/v1beta1, so there is nothing \
             to take over; leave the flag out once MetalLB is gone"
        );
        return;
    };
    tracing::info!(
        namespace,
        created = import.created.join(", "),
        "--import-metallb: AddressPools: {import}"
    );
    for loss in &import.losses {
        tracing::warn!("--import-metallb: {loss}");
    }
    for (name, _) in import.kept.iter().filter(|(_, kept)| *kept == Kept::Differs) {
        tracing::warn!(
            "--import-metallb: AddressPool {name} is there and differs from MetalLB's; it stays as it is"
        );
    }
}
