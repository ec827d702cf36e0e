//! What the API shows of the objects whose status the leader writes: one board for each kind that several parts of
//! the state read. Watches and write answers fill the boards; the newer version wins. Kinds with one owner are in
//! `kinds`.

use super::render;
use super::shown::{Board, ClaimShown, CookiesShown, LoadBalancerShown, ServiceShown};
use bowline_core::key::{ConsumerKind, ObjectKey};
use bowline_core::point::Point;
use k8s_openapi::api::networking::v1::IngressLoadBalancerIngress;
use std::net::IpAddr;
use std::sync::Arc;

/// One board for each kind.
#[derive(Debug, Default)]
pub(super) struct Boards {
    pub(super) services: Board<ObjectKey, ServiceShown>,
    pub(super) ingresses: Board<ObjectKey, Vec<IngressLoadBalancerIngress>>,
    pub(super) load_balancers: Board<Arc<str>, LoadBalancerShown>,
    pub(super) claims: Board<ObjectKey, ClaimShown>,
    pub(super) cookies: Board<Arc<str>, CookiesShown>,
}

impl Boards {
    /// Whether this build has a driver for a load balancer. None: the load balancer does not exist.
    pub(super) fn driven(&self, lb: &Arc<str>) -> Option<bool> {
        self.load_balancers.get(lb).map(|shown| shown.status.driven)
    }

    /// The ingress points in the status of a Service or Ingress. None: the object does not exist.
    pub(super) fn points(&self, kind: ConsumerKind, key: &ObjectKey) -> Option<Vec<Point>> {
        match kind {
            ConsumerKind::Service => {
                self.services.get(key).map(|it| render::points_of_service(&it.status))
            }
            ConsumerKind::Ingress => {
                self.ingresses.get(key).map(|it| render::points_of_ingress(&it.status))
            }
            ConsumerKind::LoadBalancer => None,
        }
    }

    /// The addresses in the status of a Service or load balancer. None: the object does not exist.
    pub(super) fn addresses(&self, kind: ConsumerKind, key: &ObjectKey) -> Option<Vec<IpAddr>> {
        match kind {
            ConsumerKind::Service => {
                self.services.get(key).map(|it| render::addresses_of_service(&it.status))
            }
            ConsumerKind::LoadBalancer => self.load_balancers.get(&key.name).map(|shown| {
                shown.status.status.ingress.iter().filter_map(|point| point.ip).collect()
            }),
            ConsumerKind::Ingress => None,
        }
    }
}
