//! All objects that the planner knows, by kind. It turns events into changes of objects and decides nothing; `index`
//! calls it.

use super::directory::Directory;
use super::store::{Replaced, Store};
use super::{Kind, Object};
use crate::key::ObjectKey;
use crate::objects::{
    Ingress, IngressClass, LoadBalancer, LoadBalancerClaim, Namespace, Service, TlsSecret,
};
use std::sync::Arc;

#[derive(Debug, Default)]
pub(super) struct Stores {
    pub(super) services: Store<ObjectKey, Service>,
    pub(super) ingresses: Store<ObjectKey, Ingress>,
    pub(super) classes: Store<Arc<str>, IngressClass>,
    pub(super) secrets: Store<ObjectKey, TlsSecret>,
    pub(super) namespaces: Store<Arc<str>, Namespace>,
    pub(super) directory: Directory,
    pub(super) claims: Store<ObjectKey, LoadBalancerClaim>,
}

/// A changed object.
#[derive(Debug)]
pub(super) enum Changed {
    Service(Replaced<Service>),
    Ingress(Replaced<Ingress>),
    IngressClass(Replaced<IngressClass>),
    TlsSecret(Replaced<TlsSecret>),
    Namespace(Replaced<Namespace>),
    LoadBalancer(Replaced<LoadBalancer>),
    Claim(Replaced<LoadBalancerClaim>),
}

impl Stores {
    pub(super) fn begin(&mut self, kind: Kind) {
        match kind {
            Kind::Service => self.services.begin(),
            Kind::Ingress => self.ingresses.begin(),
            Kind::IngressClass => self.classes.begin(),
            Kind::TlsSecret => self.secrets.begin(),
            Kind::Namespace => self.namespaces.begin(),
            Kind::LoadBalancer => self.directory.store.begin(),
            Kind::Claim => self.claims.begin(),
        }
    }

    pub(super) fn apply(&mut self, object: Object) -> Option<Changed> {
        match object {
            Object::Service(it) => self.services.apply(it.key.clone(), it).map(Changed::Service),
            Object::Ingress(it) => self.ingresses.apply(it.key.clone(), it).map(Changed::Ingress),
            Object::IngressClass(it) => {
                self.classes.apply(it.name.clone(), it).map(Changed::IngressClass)
            }
            Object::TlsSecret(it) => self.secrets.apply(it.key.clone(), it).map(Changed::TlsSecret),
            Object::Namespace(it) => {
                self.namespaces.apply(it.name.clone(), it).map(Changed::Namespace)
            }
            Object::LoadBalancer(it) => {
                self.directory.store.apply(it.name.clone(), it).map(Changed::LoadBalancer)
            }
            Object::Claim(it) => self.claims.apply(it.key.clone(), it).map(Changed::Claim),
        }
    }

    pub(super) fn delete(&mut self, kind: Kind, key: &ObjectKey) -> Option<Changed> {
        match kind {
            Kind::Service => self.services.delete(key).map(Changed::Service),
            Kind::Ingress => self.ingresses.delete(key).map(Changed::Ingress),
            Kind::IngressClass => self.classes.delete(&key.name).map(Changed::IngressClass),
            Kind::TlsSecret => self.secrets.delete(key).map(Changed::TlsSecret),
            Kind::Namespace => self.namespaces.delete(&key.name).map(Changed::Namespace),
            Kind::LoadBalancer => self.directory.store.delete(&key.name).map(Changed::LoadBalancer),
            Kind::Claim => self.claims.delete(key).map(Changed::Claim),
        }
    }

    pub(super) fn done(&mut self, kind: Kind) -> Vec<Changed> {
        fn all<T>(gone: Vec<Replaced<T>>, kind: fn(Replaced<T>) -> Changed) -> Vec<Changed> {
            gone.into_iter().map(kind).collect()
        }
        match kind {
            Kind::Service => all(self.services.done(), Changed::Service),
            Kind::Ingress => all(self.ingresses.done(), Changed::Ingress),
            Kind::IngressClass => all(self.classes.done(), Changed::IngressClass),
            Kind::TlsSecret => all(self.secrets.done(), Changed::TlsSecret),
            Kind::Namespace => all(self.namespaces.done(), Changed::Namespace),
            Kind::LoadBalancer => all(self.directory.store.done(), Changed::LoadBalancer),
            Kind::Claim => all(self.claims.done(), Changed::Claim),
        }
    }

    /// The class of an Ingress.
    pub(super) fn class_of(&self, ingress: &Ingress) -> Option<&IngressClass> {
        self.classes.get(ingress.class.as_ref()?).map(|class| &**class)
    }

    /// Whether the objects of every kind have been listed at least once.
    pub(super) fn are_listed(&self) -> bool {
        self.services.is_listed()
            && self.ingresses.is_listed()
            && self.classes.is_listed()
            && self.secrets.is_listed()
            && self.namespaces.is_listed()
            && self.directory.store.is_listed()
            && self.claims.is_listed()
    }

    /// The names of the claims of a namespace.
    pub(super) fn claims_of<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = &'a str> {
        let claims = self.claims.range(ObjectKey::new(namespace, "")..).map(|(key, _)| key);
        claims.take_while(move |key| *key.namespace == *namespace).map(|key| &*key.name)
    }

    /// Whether there is a claim with this uid.
    pub(super) fn lives(&self, claim: &ObjectKey, uid: &str) -> bool {
        self.claims.get(claim).is_some_and(|claim| *claim.uid == *uid)
    }

    /// The load balancer to which a claim is bound: the status of the claim names it, and it names the claim's uid.
    pub(super) fn of_claim(&self, claim: &ObjectKey) -> Option<&Arc<LoadBalancer>> {
        let claim = self.claims.get(claim)?;
        let lb = self.directory.by_name(claim.load_balancer.as_ref()?)?;
        let (key, uid) = lb.claim.as_ref()?;
        (*key == claim.key && uid.as_ref() == Some(&claim.uid)).then_some(lb)
    }
}
