//! The address requests of Services and load balancers, given where these are placed, and the addresses that they are
//! granted. [`crate::addresses`] decides which requester gets which address; the controller carries requests there and
//! grants here.

use super::build::{Built, Target};
use super::consumer::ConsumerKey;
use super::index::Planner;
use super::placement::{self, ask_of_service, not_ours, place};
use crate::addresses::{AddressRequest, Ask, Families, HolderKind, HolderRef};
use crate::key::{ConsumerKind, ObjectKey};
use crate::objects::{Exposure, LoadBalancer, Placement, Service};
use crate::outcome::{Problem, Reason, quote};
use std::net::IpAddr;

/// What is said of one whose address is about to be recorded.
pub const NOT_RECORDED: &str = "its address is not recorded yet";

/// The addresses that somebody has from pools.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grant {
    /// Those it has.
    pub addresses: Vec<IpAddr>,
    /// Those it still has for a while: they are served and not shown.
    pub draining: Vec<IpAddr>,
    /// Why it has none, or not what it asks for.
    pub problem: Option<Problem>,
}

impl Grant {
    /// All that are served, sorted.
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

/// At which addresses a Service is served on a load balancer.
pub(super) enum Has<'a> {
    /// At those of the load balancer.
    LoadBalancers,
    /// At its own.
    Own(Own<'a>),
    /// Where it was, at the load balancer's, while it cannot have what it asks for.
    AsBefore(Box<Service>),
}

/// What a Service has of its own on a load balancer.
pub(super) struct Own<'a> {
    grant: &'a Grant,
    served: Vec<IpAddr>,
}

impl<'a> Own<'a> {
    pub(super) fn new(grant: &'a Grant) -> Self {
        Self { grant, served: grant.served() }
    }

    /// The load balancer, as if these were its addresses.
    pub(super) fn on<'b>(&'b self, target: Target<'b>) -> Target<'b> {
        Target { addresses: &self.served, own: true, ..target }
    }

    /// What drains is served, and nobody is told of it who does not know it.
    pub(super) fn hide(&self, built: Built) -> Built {
        let mut built = built.hiding(&self.grant.draining);
        if let Some(problem) = &self.grant.problem {
            // What cannot be read is told once: by those who say what helps, too.
            built.problems.retain(|it| !problem.message.starts_with(&*it.message));
            built.problems.push(problem.clone());
        }
        built
    }
}

impl Planner {
    /// Somebody has these addresses from pools.
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

    /// What a Service asks of the pools. `status` is what its status shows. None: there is none.
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
            // Whom the load balancer is for, its addresses are for.
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

    /// The load balancer that a Service stands in front of. Anybody may name an owner: the load balancer must
    /// name the Service, too.
    fn door_of(&self, service: &Service) -> Option<&LoadBalancer> {
        let Ok(Placement::Door(uid)) = &service.placement else { return None };
        self.stores.directory.behind(&service.key).find(|lb| lb.uid == *uid).map(|lb| &**lb)
    }

    /// What a Service of ours asks of the pools, and on which load balancer.
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
        // Where it cannot go to its load balancer it keeps what it has, and gets nothing.
        let placed = place(&asked.ask, namespace, labels, &self.stores).and_then(|lb| {
            self.seated(lb, &ConsumerKey::service(&service.key), &service.uid)?;
            Ok(lb)
        });
        match placed {
            Ok(lb) if !wants_own(service, &directory.addresses(lb)) => (Ok(Ask::Nothing), None),
            Ok(lb) if lb.door.is_some() => (Err(none_of_its_own(lb)), None),
            Ok(lb) => (service.address.ask(service), Some(lb)),
            Err(refusal) => (Err(refusal.problem), None),
        }
    }

    fn is_nowhere(&self, ask: &placement::Ask) -> bool {
        match ask {
            placement::Ask::Nothing => true,
            placement::Ask::External => self.stores.directory.only_external().is_none(),
            _ => false,
        }
    }

    /// Whether a Service of ours is on no load balancer and wants none: it has its address alone. Where
    /// its wish cannot be read, that it has an address and is in no Plan tells.
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

    /// What a load balancer asks of the pools. None: there is none.
    pub fn load_balancer_request(&self, name: &str, status: Vec<IpAddr>) -> Option<AddressRequest> {
        let lb: &LoadBalancer = self.stores.directory.by_name(name)?;
        let pool = lb.address_pool.clone().filter(|_| !lb.deleting && lb.addresses.is_empty());
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

/// What is said of one that wants addresses of its own on a load balancer that only its Service leads to.
pub(super) fn none_of_its_own(lb: &LoadBalancer) -> Problem {
    let message = format!(
        "load balancer {} can have only the address of the Service in front of it: remove what asks for another \
         address",
        quote(&lb.name)
    );
    Problem::new(Reason::NotSupported, message)
}

/// Whether a Service is to have addresses of its own on a load balancer with these: where it names a
/// pool or a DNS name, or asks for an address that is not one of them; or where it cannot be read which.
pub(super) fn wants_own(service: &Service, addresses: &[IpAddr]) -> bool {
    service.address.pool.is_some()
        || service.address.name.is_some()
        || service.address.problem.is_some()
        || service.vips.iter().flatten().any(|vip| !addresses.contains(vip))
}
