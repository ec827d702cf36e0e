//! What a Service says about addresses beyond its other values. `bowline-api` parses it. Whether it counts depends on
//! the Service's load balancer, which [`crate::planner`] decides. Data only.

use super::record::Port;
use super::request::{Ask, Families, Labels, Sharing};
use crate::objects::{Family, Service};
use crate::outcome::Problem;
use std::net::IpAddr;
use std::sync::Arc;

/// What a Service says about addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wish {
    /// Its labels, for `serviceSelectors`.
    pub labels: Labels,
    /// Its Pods, for sharing.
    pub selector: Labels,
    /// The pool that it names.
    pub pool: Option<Arc<str>>,
    /// The DNS name that it takes its address from.
    pub name: Option<Arc<str>>,
    /// Why one of these values cannot be read.
    pub problem: Option<Problem>,
    /// The key under which it would share an address.
    pub key: Option<Arc<str>>,
    /// Whether it wants one family, or both.
    pub policy: Policy,
    /// Whether it asks for its address by `lb.zcloud.cn/vip`, as elb-controller's users do. If it names no load
    /// balancer and there is no default, it means an address of the only external load balancer.
    pub of_device: bool,
    /// `externalIPs`.
    pub uses: Vec<IpAddr>,
}

/// `ipFamilyPolicy`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// One family.
    #[default]
    Single,
    /// Both if they can be had.
    Prefer,
    /// Both.
    Require,
}

impl Wish {
    /// What a Service asks for if it gets addresses of its own.
    pub(crate) fn ask(&self, service: &Service) -> Result<Ask, Problem> {
        if let Some(problem) = &self.problem {
            return Err(problem.clone());
        }
        let pool = self.pool.clone();
        let addresses = service.vips.clone()?;
        Ok(match (&self.name, pool) {
            (Some(name), pool) => Ask::Name { name: name.clone(), pool },
            (None, pool) if !addresses.is_empty() => Ask::Addresses { addresses, pool },
            (None, Some(pool)) => Ask::Pool(pool),
            (None, None) => Ask::Any,
        })
    }

    pub(crate) fn families(&self, service: &Service) -> Families {
        let first = service.families.first().copied().unwrap_or(Family::V4);
        match self.policy {
            Policy::Single => Families::One(first),
            // In a cluster with one family there is one to prefer.
            Policy::Prefer if service.families.len() < 2 => Families::One(first),
            Policy::Prefer => Families::Prefer(first),
            Policy::Require => Families::Require(first),
        }
    }

    pub(crate) fn sharing(&self, service: &Service) -> Option<Sharing> {
        let mut ports: Vec<Port> = service
            .ports
            .iter()
            .map(|port| Port { transport: port.transport, number: port.number })
            .collect();
        ports.sort_unstable();
        ports.dedup();
        self.key.clone().map(|key| Sharing {
            key,
            ports,
            local_only: service.local_only,
            selector: self.selector.clone(),
        })
    }
}
