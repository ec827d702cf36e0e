//! What addresses Services and load balancers request, which depends on where they are placed, and what they are
//! granted. [`crate::addresses`] decides which requester gets which address; the controller carries requests there and
//! grants here.

use super::asked_load_balancer::{self, ask_of_service, not_ours, place};
use super::build::{Built, Target};
use super::consumer::ConsumerKey;
use super::index::Planner;
use crate::addresses::{AddressRequest, Ask, Families, HolderKind, HolderRef};
use crate::key::{ConsumerKind, ObjectKey};
use crate::objects::{Exposure, LoadBalancer, Placement, Service};
use crate::outcome::{Problem, Reason, quote};
use std::net::IpAddr;

/// The message for a consumer whose address is about to be recorded.
pub const NOT_RECORDED: &str = "its address is not recorded yet";

/// The addresses that a Service or load balancer has from AddressPools.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grant {
    /// The addresses that it has.
    pub addresses: Vec<IpAddr>,
    /// The addresses that it has only for a while: they are served and not shown.
    pub draining: Vec<IpAddr>,
    /// Why it has none, or not what it requests.
    pub problem: Option<Problem>,
}

impl Grant {
    /// All served addresses, sorted.
    pub fn served(&self) -> Vec<IpAddr> {
        let mut all: Vec<IpAddr> = self.addresses.iter().chain(&self.draining).copied().collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

/// The addresses at which a Service is served on a load balancer.
pub(super) enum Has<'a> {
    /// The addresses of the load balancer.
    LoadBalancers,
    /// Addresses of the Service itself.
    Own(Own<'a>),
    /// The addresses of the load balancer, as before, until the Service can have what it requests.
    AsBefore(Box<Service>),
}

/// The Service's own addresses on a load balancer.
pub(super) struct Own<'a> {
    grant: &'a Grant,
    served: Vec<IpAddr>,
}

impl<'a> Own<'a> {
    pub(super) fn new(grant: &'a Grant) -> Self {
        Self { grant, served: grant.served() }
    }

    /// The load balancer with these addresses in place of its own.
    pub(super) fn on<'b>(&'b self, target: Target<'b>) -> Target<'b> {
        Target { addresses: &self.served, own: true, ..target }
    }

    /// Hides draining addresses: they are served, and shown only where they are shown already.
    pub(super) fn hide(&self, built: Built) -> Built {
        let mut built = built.hiding(&self.grant.draining);
        if let Some(problem) = &self.grant.problem {
            // The grant's problem repeats the unreadable value and adds what helps, so it is told alone.
            built.problems.retain(|it| !problem.message.starts_with(&*it.message));
            built.problems.push(problem.clone());
        }
        built
    }
}

impl Planner {
    /// Takes the addresses that a Service or load balancer has from AddressPools.
    pub(super) fn grant(&mut self, kind: ConsumerKind, key: ObjectKey, grant: Grant) {
        match kind {
            ConsumerKind::Service => {
                let old = match grant.is_nothing() {
                    true => self.grants.remove(&key),
                    false => self.grants.insert(key.clone(), grant),
                };
                if old.as_ref() != self.grants.get(&key) {
                    self.touch(ConsumerKey::service(&key));
                }
            }
            ConsumerKind::LoadBalancer => {
                let directory = &mut self.stores.directory;
                if directory.grant(&key.name, &grant)
                    && let Some(lb) = directory.by_name(&key.name).cloned()
                {
                    self.touch_load_balancer(&lb);
                }
            }
            ConsumerKind::Ingress => {}
        }
    }

    /// The address request of a Service. `status`: the addresses in its status. None: the Service does not exist.
    pub fn service_request(&self, key: &ObjectKey, status: Vec<IpAddr>) -> Option<AddressRequest> {
        let service = self.stores.services.get(key)?;
        let wish = &service.address;
        let exposed = service.exposure == Exposure::LoadBalancer;
        let ours = exposed && not_ours(service, &self.config).is_none();
        let door = self.door_of(service);
        let (ask, on) = match (ours, &service.placement) {
            (true, Ok(Placement::Door(_))) if door.is_none() => {
                let message = "no load balancer names this Service as the one in front of it";
                (Err(Problem::new(Reason::LoadBalancerNotFound, message)), None)
            }
            (true, _) => self.address_ask(service),
            (false, _) => (Ok(Ask::Nothing), None),
        };
        let mut uses = wish.uses.clone();
        if exposed && !ours {
            uses.extend(&status);
        }
        uses.sort_unstable();
        uses.dedup();
        let holder =
            HolderRef { key: key.clone(), kind: HolderKind::Service, uid: service.uid.clone() };
        Some(AddressRequest {
            holder,
            created: service.created,
            labels: wish.labels.clone(),
            // The addresses of a load balancer are for the clients in its scope.
            scope: on.or(door).and_then(|lb| lb.scope),
            ask,
            door: door.is_some(),
            load_balancer: on.map(|lb| lb.name.clone()),
            families: wish.families(service),
            sharing: wish.sharing(service),
            status,
            uses,
        })
    }

    /// The load balancer of which a Service is the door. Any tenant may name an owner, so the load balancer must name
    /// the Service, too.
    fn door_of(&self, service: &Service) -> Option<&LoadBalancer> {
        let Ok(Placement::Door(uid)) = &service.placement else { return None };
        self.stores.directory.behind(&service.key).find(|lb| lb.uid == *uid).map(|lb| &**lb)
    }

    /// What a Service of ours asks of the AddressPools, and for which load balancer.
    fn address_ask(&self, service: &Service) -> (Result<Ask, Problem>, Option<&LoadBalancer>) {
        let asked = match ask_of_service(service, &self.config) {
            Ok(asked) if self.is_nowhere(&asked.ask) => {
                return (service.address.ask(service), None);
            }
            Ok(asked) => asked,
            Err(problem) => return (Err(problem), None),
        };
        let (namespace, directory) = (&service.key.namespace, &self.stores.directory);
        let labels = self.stores.namespaces.get(namespace).map(|labels| &**labels);
        // A Service that cannot go to its load balancer keeps its addresses and gets no new ones.
        let placed = place(&asked, namespace, labels, &self.stores).and_then(|lb| {
            self.seated(lb, &ConsumerKey::service(&service.key), &service.uid)?;
            Ok(lb)
        });
        match placed {
            Ok(lb) if !wants_own(service, &directory.addresses(lb)) => (Ok(Ask::Nothing), None),
            Ok(lb) if lb.door.is_some() => (Err(none_of_its_own(lb)), None),
            Ok(lb) => (service.address.ask(service), Some(lb)),
            Err(refusal) => (Err(refusal.named_by(&asked.by).problem), None),
        }
    }

    fn is_nowhere(&self, ask: &asked_load_balancer::Ask) -> bool {
        match ask {
            asked_load_balancer::Ask::Nothing => true,
            asked_load_balancer::Ask::External => self.stores.directory.only_external().is_none(),
            _ => false,
        }
    }

    /// Whether a Service of ours is on no load balancer and asks for none: it has only its address. Where its request
    /// cannot be read, it is alone if it has an address and no Plan records it.
    pub fn is_alone(&self, key: &ObjectKey) -> bool {
        let Some(service) = self.stores.services.get(key) else { return false };
        if service.exposure != Exposure::LoadBalancer || not_ours(service, &self.config).is_some() {
            return false;
        }
        match ask_of_service(service, &self.config) {
            Ok(asked) => self.is_nowhere(&asked.ask),
            Err(_) => {
                let has = self.grants.get(key).is_some_and(|grant| !grant.addresses.is_empty());
                has && !self.is_recorded(&ConsumerKey::service(key).with_uid(&service.uid))
            }
        }
    }

    /// The address request of a load balancer. While it is being deleted it serves, and keeps its addresses. None: the
    /// load balancer does not exist.
    pub fn load_balancer_request(&self, name: &str, status: Vec<IpAddr>) -> Option<AddressRequest> {
        let lb: &LoadBalancer = self.stores.directory.by_name(name)?;
        let pool = lb.address_pool.clone().filter(|_| lb.addresses.is_empty());
        let key = ObjectKey::new("", lb.name.clone());
        Some(AddressRequest {
            holder: HolderRef { key, kind: HolderKind::LoadBalancer, uid: lb.uid.clone() },
            created: lb.created,
            labels: <_>::default(),
            scope: lb.scope,
            ask: Ok(pool.map_or(Ask::Nothing, Ask::Pool)),
            door: false,
            load_balancer: None,
            families: Families::OfPool,
            sharing: None,
            status: if lb.address_pool.is_some() { status } else { Vec::new() },
            uses: lb.addresses.clone(),
        })
    }
}

/// The problem of a Service that requests addresses of its own on a load balancer with a door.
pub(super) fn none_of_its_own(lb: &LoadBalancer) -> Problem {
    let message = format!(
        "load balancer {} can have only the address of the Service in front of it: remove what asks for another \
         address",
        quote(&lb.name)
    );
    Problem::new(Reason::NotSupported, message)
}

/// Whether a Service needs addresses of its own on a load balancer with these addresses: it names an AddressPool or a
/// DNS name, requests an address that is not one of them, or its request cannot be read.
pub(super) fn wants_own(service: &Service, addresses: &[IpAddr]) -> bool {
    service.address.pool.is_some()
        || service.address.name.is_some()
        || service.address.problem.is_some()
        || service.vips.iter().flatten().any(|vip| !addresses.contains(vip))
}
