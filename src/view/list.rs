//! Lists all objects for the views, once. A kind that cannot be read is noted and left out: a view
//! with a named gap is better than none. The read-only commands call it.

use super::announcements::AnnouncementLists;
use bowline_api::external_ip::ExternalIP;
use bowline_api::{
    Address, AddressPool, Advertisement, BGPPeer, LoadBalancer, LoadBalancerClaim,
    LoadBalancerClass, Plan, convert, names,
};
use bowline_runtime::causes::causes;
use bowline_runtime::lease;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Event, Namespace, Node, Secret, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::{Ingress, IngressClass};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::jiff::Timestamp;
use kube::api::ListParams;
use kube::{Api, Client, Error, Resource};
use serde::de::DeserializeOwned;
use std::collections::BTreeSet;
use std::fmt::Debug;

/// The objects of a cluster, as they were a moment ago.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lists {
    pub(crate) services: Vec<Service>,
    pub(crate) ingresses: Vec<Ingress>,
    pub(crate) classes: Vec<IngressClass>,
    /// None: they cannot be read.
    pub(crate) secrets: Option<Vec<Secret>>,
    pub(crate) namespaces: Vec<Namespace>,
    pub(crate) load_balancers: Vec<LoadBalancer>,
    pub(crate) claims: Vec<LoadBalancerClaim>,
    pub(crate) balancer_classes: Vec<LoadBalancerClass>,
    pub(crate) slices: Vec<EndpointSlice>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) plans: Vec<Plan>,
    pub(crate) leases: Vec<Lease>,
    pub(crate) addresses: Vec<Address>,
    /// None: they cannot be read, or another kind that decides about addresses cannot.
    pub(crate) pools: Option<Vec<AddressPool>>,
    pub(crate) external_ips: Vec<ExternalIP>,
    pub(crate) advertisements: Vec<Advertisement>,
    pub(crate) peers: Vec<BGPPeer>,
    /// The kinds that may not be listed.
    pub(crate) hidden: BTreeSet<&'static str>,
    /// What could not be read, and what that means; for the user.
    pub(crate) notes: Vec<String>,
}

/// The AddressPools of a cluster, and the Address objects.
#[derive(Clone, Debug, Default)]
pub(crate) struct AddressLists {
    pub(crate) pools: Vec<AddressPool>,
    pub(crate) addresses: Vec<Address>,
    /// As in [`Lists`].
    pub(crate) notes: Vec<String>,
}

/// Why the cluster cannot be listed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ListError {
    /// It does not have Bowline's kinds.
    #[error(
        "this cluster has no {0}: Bowline is not installed there; `bowline crds | kubectl apply -f -` \
         brings its kinds"
    )]
    NotInstalled(String),
    /// Bowline's own namespace does not exist.
    #[error(
        "there is no namespace {0:?}, so no controller of Bowline has run with it; name its own \
         namespace with --system-namespace"
    )]
    NoNamespace(String),
    /// It does not answer.
    #[error(
        "the cluster does not answer ({0}); is it running, and is it the one you mean (--kubeconfig, \
         --context)?"
    )]
    Unreachable(String),
    /// It did not answer as a cluster does.
    #[error("cannot list {what}: {}", causes(source))]
    Failed {
        /// The kind, in the plural.
        what: String,
        /// What went wrong.
        source: Box<Error>,
    },
}

/// Large lists are read in pages.
const PAGE: u32 = 500;

impl Lists {
    /// Reads everything; `namespace` is Bowline's own.
    pub(crate) async fn read(client: &Client, namespace: &str) -> Result<Self, ListError> {
        let mut notes = Vec::new();
        let all = ListParams::default();
        let tls = ListParams::default().fields(&format!("type={}", convert::TYPE_TLS));
        let (
            services,
            ingresses,
            classes,
            secrets,
            namespaces,
            load_balancers,
            claims,
            balancer_classes,
            slices,
            nodes,
            plans,
            leases,
            addresses,
            pools,
            external_ips,
            advertisements,
            peers,
        ) = tokio::try_join!(
            list::<Service>(Api::all(client.clone()), &all),
            list::<Ingress>(Api::all(client.clone()), &all),
            list::<IngressClass>(Api::all(client.clone()), &all),
            list::<Secret>(Api::all(client.clone()), &tls),
            list::<Namespace>(Api::all(client.clone()), &all),
            list::<LoadBalancer>(Api::all(client.clone()), &all),
            list::<LoadBalancerClaim>(Api::all(client.clone()), &all),
            list::<LoadBalancerClass>(Api::all(client.clone()), &all),
            list::<EndpointSlice>(Api::all(client.clone()), &all),
            list::<Node>(Api::all(client.clone()), &all),
            list::<Plan>(Api::namespaced(client.clone(), namespace), &all),
            list::<Lease>(Api::namespaced(client.clone(), namespace), &all),
            list::<Address>(Api::all(client.clone()), &all),
            list::<AddressPool>(Api::all(client.clone()), &all),
            list::<ExternalIP>(Api::all(client.clone()), &all),
            list::<Advertisement>(Api::all(client.clone()), &all),
            list::<BGPPeer>(Api::all(client.clone()), &all),
        )?;
        let ours = |one: &Namespace| one.metadata.name.as_deref() == Some(namespace);
        if namespaces.as_ref().is_some_and(|all| !all.iter().any(ours)) {
            return Err(ListError::NoNamespace(namespace.to_owned()));
        }
        let mut note = |what: &str, means: &str| {
            notes.push(format!("You may not list {what}, so {means}."));
        };
        if secrets.is_none() {
            note("secrets", "nothing is said about certificates");
        }
        // To decide about addresses, all that the leader knows about them is needed.
        let needed = [
            ("addresspools.bowline.dev", pools.is_some()),
            ("addresses.bowline.dev", addresses.is_some()),
            ("externalips.bowline.dev", external_ips.is_some()),
            ("services", services.is_some()),
            ("loadbalancers.bowline.dev", load_balancers.is_some()),
            ("namespaces", namespaces.is_some()),
            ("nodes", nodes.is_some()),
        ];
        let hidden: Vec<_> = needed.iter().filter(|(_, seen)| !seen).map(|(it, _)| *it).collect();
        let others = [
            ("leases", leases.is_some()),
            ("advertisements.bowline.dev", advertisements.is_some()),
            ("bgppeers.bowline.dev", peers.is_some()),
        ];
        let others = others.iter().filter(|(_, seen)| !seen).map(|(it, _)| *it);
        let all_hidden: BTreeSet<_> = hidden.iter().copied().chain(others).collect();
        if advertisements.is_none() || peers.is_none() {
            let means = "why an address is not announced is not known";
            note("advertisements.bowline.dev and bgppeers.bowline.dev", means);
        }
        let pools = pools.filter(|_| hidden.is_empty());
        if !hidden.is_empty() {
            let means = "only the leader says why an object has no address";
            note(&hidden.join(", "), means);
        }
        Ok(Self {
            services: services
                .unwrap_or_else(|| missing(&mut note, "services", "no Service is known")),
            ingresses: ingresses
                .unwrap_or_else(|| missing(&mut note, "ingresses", "no Ingress is known")),
            classes: classes.unwrap_or_else(|| {
                missing(&mut note, "ingressclasses", "it is unknown which Ingresses are Bowline's")
            }),
            namespaces: namespaces.unwrap_or_else(|| {
                missing(&mut note, "namespaces", "selectors of allowedNamespaces match nothing")
            }),
            load_balancers: load_balancers.unwrap_or_else(|| {
                missing(&mut note, "loadbalancers.bowline.dev", "no load balancer is known")
            }),
            claims: claims.unwrap_or_else(|| {
                missing(&mut note, "loadbalancerclaims.bowline.dev", "no claim is known")
            }),
            balancer_classes: balancer_classes.unwrap_or_else(|| {
                missing(&mut note, "loadbalancerclasses.bowline.dev", "no class is known")
            }),
            slices: slices.unwrap_or_else(|| {
                missing(&mut note, "endpointslices", "no members of pools are known")
            }),
            nodes: nodes.unwrap_or_else(|| {
                missing(&mut note, "nodes", "pools of nodes have no members here")
            }),
            plans: plans.unwrap_or_else(|| {
                missing(&mut note, "plans.bowline.dev", "it is unknown what is recorded")
            }),
            leases: leases.unwrap_or_else(|| {
                missing(&mut note, "leases", "it is unknown what agents have applied")
            }),
            addresses: addresses.unwrap_or_else(|| {
                missing(
                    &mut note,
                    "addresses.bowline.dev",
                    "it is unknown which object has which address",
                )
            }),
            external_ips: external_ips.unwrap_or_else(|| {
                missing(&mut note, "externalips.bowline.dev", "no ExternalIP is known")
            }),
            advertisements: advertisements.unwrap_or_default(),
            peers: peers.unwrap_or_default(),
            pools,
            secrets,
            hidden: all_hidden,
            notes,
        })
    }

    /// The definitions of Bowline's kinds that the cluster has. None: they may not be read.
    pub(crate) async fn kinds(
        client: &Client,
    ) -> Result<Option<Vec<CustomResourceDefinition>>, ListError> {
        let api: Api<CustomResourceDefinition> = Api::all(client.clone());
        let mut all = Vec::new();
        for name in bowline_api::crds::all().into_iter().filter_map(|it| it.metadata.name) {
            match api.get_opt(&name).await {
                Ok(found) => all.extend(found),
                Err(Error::Api(status)) if status.code == 403 => return Ok(None),
                Err(error) => return Err(failed("customresourcedefinitions", error)),
            }
        }
        Ok(Some(all))
    }

    /// The Lease of this name in Bowline's namespace.
    pub(super) fn lease(&self, name: &str) -> Option<&Lease> {
        self.leases.iter().find(|lease| lease.metadata.name.as_deref() == Some(name))
    }

    /// The Lease by which controllers choose their leader.
    pub(super) fn controller(&self) -> Option<&Lease> {
        self.lease(names::LEASE_CONTROLLER)
    }
}

impl AddressLists {
    /// Reads pools and addresses, and nothing else.
    pub(crate) async fn read(client: &Client) -> Result<Self, ListError> {
        let all = ListParams::default();
        let (pools, addresses) = tokio::try_join!(
            list::<AddressPool>(Api::all(client.clone()), &all),
            list::<Address>(Api::all(client.clone()), &all),
        )?;
        let mut notes = Vec::new();
        let mut note = |what: &str, means: &str| {
            notes.push(format!("You may not list {what}, so {means}."));
        };
        Ok(Self {
            pools: pools.unwrap_or_else(|| {
                missing(&mut note, "addresspools.bowline.dev", "no pool is known")
            }),
            addresses: addresses.unwrap_or_else(|| {
                missing(
                    &mut note,
                    "addresses.bowline.dev",
                    "it is unknown which object has which address",
                )
            }),
            notes,
        })
    }
}

/// The Events that Bowline's controllers write. None, where they may not be read.
pub(crate) async fn bowline_events(client: &Client) -> Result<Vec<Event>, ListError> {
    let ours = ListParams::default().fields(&format!("source={}", names::MANAGER_CONTROLLER));
    Ok(list::<Event>(Api::all(client.clone()), &ours).await?.unwrap_or_default())
}

impl AnnouncementLists {
    /// Reads what decides about announcements, and the reports of speakers; `namespace` is Bowline's own.
    pub(crate) async fn read(client: &Client, namespace: &str) -> Result<Self, ListError> {
        let all = ListParams::default();
        let (addresses, advertisements, peers, pools, nodes, services, slices, leases) = tokio::try_join!(
            list::<Address>(Api::all(client.clone()), &all),
            list::<Advertisement>(Api::all(client.clone()), &all),
            list::<BGPPeer>(Api::all(client.clone()), &all),
            list::<AddressPool>(Api::all(client.clone()), &all),
            list::<Node>(Api::all(client.clone()), &all),
            list::<Service>(Api::all(client.clone()), &all),
            list::<EndpointSlice>(Api::all(client.clone()), &all),
            list::<Lease>(Api::namespaced(client.clone(), namespace), &all),
        )?;
        let mut notes = Vec::new();
        let mut note = |what: &str, means: &str| {
            notes.push(format!("You may not list {what}, so {means}."));
        };
        let (reasons, now) = ("reasons may be wrong", Timestamp::now());
        let leases: Vec<Lease> = leases.unwrap_or_else(|| {
            missing(&mut note, "leases", "it is unknown what speakers announce")
        });
        Ok(Self {
            addresses: addresses.unwrap_or_else(|| {
                missing(&mut note, "addresses.bowline.dev", "no address is known")
            }),
            advertisements: advertisements
                .unwrap_or_else(|| missing(&mut note, "advertisements.bowline.dev", reasons)),
            peers: peers.unwrap_or_else(|| missing(&mut note, "bgppeers.bowline.dev", reasons)),
            pools: pools.unwrap_or_else(|| missing(&mut note, "addresspools.bowline.dev", reasons)),
            nodes: nodes.unwrap_or_else(|| missing(&mut note, "nodes", reasons)),
            services: services.unwrap_or_else(|| missing(&mut note, "services", reasons)),
            slices: slices.unwrap_or_else(|| missing(&mut note, "endpointslices", reasons)),
            reports: leases.iter().filter_map(|it| lease::live_speaker(it, now)).collect(),
            notes,
        })
    }
}

fn missing<K>(note: &mut impl FnMut(&str, &str), what: &str, means: &str) -> Vec<K> {
    note(what, means);
    Vec::new()
}

/// The innermost cause of an error: the outer ones only say that something failed.
fn last_cause(error: &(dyn std::error::Error + 'static)) -> String {
    let mut last = error;
    while let Some(cause) = last.source() {
        last = cause;
    }
    last.to_string()
}

/// Why a kind cannot be read.
fn failed(what: &str, error: Error) -> ListError {
    match error {
        Error::Service(source) => ListError::Unreachable(last_cause(&*source)),
        source => ListError::Failed { what: what.to_owned(), source: Box::new(source) },
    }
}

/// All objects of a kind. None: they cannot be listed.
async fn list<K>(api: Api<K>, params: &ListParams) -> Result<Option<Vec<K>>, ListError>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let mut all = Vec::new();
    let mut params = params.clone().limit(PAGE);
    loop {
        match api.list(&params).await {
            Ok(page) => {
                all.extend(page.items);
                match page.metadata.continue_.filter(|token| !token.is_empty()) {
                    Some(token) => params = params.continue_token(&token),
                    None => return Ok(Some(all)),
                }
            }
            Err(Error::Api(status)) if status.code == 403 => return Ok(None),
            Err(Error::Api(status)) if status.code == 404 && K::group(&()) == names::GROUP => {
                return Err(ListError::NotInstalled(K::kind(&()).into_owned()));
            }
            // The list expired between two pages: begin again.
            Err(Error::Api(status)) if status.code == 410 && params.continue_token.is_some() => {
                all.clear();
                params.continue_token = None;
            }
            Err(error) => return Err(failed(&K::plural(&()), error)),
        }
    }
}
