//! The watches of the controller: one for each kind. Each object is converted when it is read and sent to one
//! channel. It decides nothing; the controller starts it.

use super::kinds::Kinds;
use super::observed::{
    AddressSeen, CertificatesSeen, ClaimSeen, CookiesSeen, IngressSeen, LeaseSeen,
    LoadBalancerSeen, Observed, PlanSeen, ServiceSeen,
};
use crate::roles::{Context, ControllerOptions};
use crate::watch::{self, Seen, Selection};
use bowline_api::address::Address;
use bowline_api::{LoadBalancer, LoadBalancerClaim, LoadBalancerClass, Plan, convert, names};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, Node, Secret, Service};
use k8s_openapi::api::networking::v1::{Ingress, IngressClass};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::Api;
use kube::core::DeserializeGuard;
use kube::{Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// Starts all watches.
pub(super) fn follow(
    client: &Client,
    options: &ControllerOptions,
    context: &Context,
    listener: &mpsc::Sender<Observed>,
) -> JoinSet<()> {
    let mut watches =
        Watches { client, context, listener, tasks: JoinSet::new(), namespace: &options.namespace };
    watches.everywhere("Service", |seen: Seen<Service>| {
        Observed::Service(seen.map(|it| Box::new(ServiceSeen::of(&it))))
    });
    watches.everywhere("Ingress", |seen: Seen<Ingress>| {
        Observed::Ingress(seen.map(|it| Box::new(IngressSeen::of(&it))))
    });
    watches.everywhere("IngressClass", |seen: Seen<IngressClass>| {
        Observed::IngressClass(seen.map(|it| convert::ingress_class(&it)))
    });
    let tls = Selection::fields(format!("type={}", convert::TYPE_TLS));
    watches.start(Api::all(client.clone()), "Secret", tls, |seen: Seen<Secret>| {
        Observed::TlsSecret(seen.map(|it| convert::tls_secret(&it).0))
    });
    watches.everywhere("Namespace", |seen: Seen<Namespace>| {
        Observed::Namespace(seen.map(|it| convert::namespace(&it)))
    });
    watches.everywhere("LoadBalancer", |seen: Seen<LoadBalancer>| {
        Observed::LoadBalancer(seen.map(|it| Box::new(LoadBalancerSeen::of(&it))))
    });
    watches.everywhere("LoadBalancerClaim", |seen: Seen<LoadBalancerClaim>| {
        Observed::Claim(seen.map(|it| Box::new(ClaimSeen::of(&it))))
    });
    watches.everywhere("LoadBalancerClass", |seen: Seen<LoadBalancerClass>| {
        Observed::Class(seen.map(|it| (super::class(&it), Arc::new(it.spec))))
    });
    watches.ours("Plan", Selection::default(), |seen: Seen<DeserializeGuard<Plan>>| {
        Observed::Plan(seen.map(PlanSeen::of))
    });
    let ours = Selection::fields(format!("type={}", names::SECRET_TYPE_CERTIFICATES));
    watches.ours("certificates", ours, |seen: Seen<Secret>| {
        Observed::Certificates(seen.map(|it| CertificatesSeen::of(&it)))
    });
    let ours = Selection::fields(format!("type={}", names::SECRET_TYPE_COOKIES));
    watches.ours("cookies", ours, |seen: Seen<Secret>| {
        Observed::Cookies(seen.map(|it| CookiesSeen::of(&it)))
    });
    watches.ours("Lease", Selection::default(), |seen: Seen<Lease>| {
        Observed::Lease(seen.map(|it| LeaseSeen::of(&it)))
    });
    watches.everywhere("Address", |seen: Seen<Address>| {
        Observed::Address(seen.map(|it| AddressSeen::of(&it)))
    });
    Kinds::follow(&mut watches);
    if options.local_ports.is_none() {
        let ours = Selection::labels(names::LABEL_LOAD_BALANCER.to_owned());
        watches.start(Api::all(client.clone()), "Deployment", ours, |seen: Seen<Deployment>| {
            Observed::Proxies(seen.map(|it| served_by(&it.metadata)))
        });
    }
    watches.everywhere("Node", |seen: Seen<Node>| {
        Observed::Node(seen.map(|it| (it.name_any().into(), convert::node_addresses(&it))))
    });
    watches.tasks
}

/// The load balancer that owns this object. Empty: it has no such owner.
fn served_by(meta: &ObjectMeta) -> Arc<str> {
    let kind = LoadBalancer::kind(&());
    let owner = meta.owner_references.iter().flatten().find(|it| it.kind == kind);
    owner.map_or("", |it| it.name.as_str()).into()
}

/// Starts watches, and keeps their tasks.
pub(super) struct Watches<'a> {
    client: &'a Client,
    context: &'a Context,
    listener: &'a mpsc::Sender<Observed>,
    tasks: JoinSet<()>,
    namespace: &'a str,
}

impl Watches<'_> {
    /// Watches a kind in the whole cluster.
    pub(super) fn everywhere<K>(&mut self, what: &'static str, read: fn(Seen<K>) -> Observed)
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
    {
        self.start(Api::all(self.client.clone()), what, Selection::default(), read);
    }

    /// Watches a kind in Bowline's namespace.
    fn ours<K>(&mut self, what: &'static str, selection: Selection, read: fn(Seen<K>) -> Observed)
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + DeserializeOwned
            + Debug
            + Send
            + Sync
            + 'static,
    {
        let api = Api::namespaced(self.client.clone(), self.namespace);
        self.start(api, what, selection, read);
    }

    fn start<K>(
        &mut self,
        api: Api<K>,
        what: &'static str,
        selection: Selection,
        read: fn(Seen<K>) -> Observed,
    ) where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
    {
        let (metrics, listener) = (self.context.metrics.clone(), self.listener.clone());
        let read = move |seen| Some(read(seen));
        self.tasks.spawn(watch::follow(api, selection, what, metrics, listener, read));
    }
}
