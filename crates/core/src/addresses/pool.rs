//! An AddressPool as its administrator describes it, and which requesters may have its addresses.
//! It does not know which addresses are free; [`super::pools`] does.

use super::range::{Range, RangeError};
use super::request::{AddressRequest, Labels, Scope};
use crate::dns::is_under;
use crate::objects::{LabelSelector, Timestamp};
use std::net::IpAddr;
use std::sync::Arc;

/// An AddressPool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Its name.
    pub name: Arc<str>,
    /// When it was created. Of two pools that overlap, the younger is not used.
    pub created: Timestamp,
    /// Whether it is being deleted: nothing new is given from it.
    pub deleting: bool,
    /// Its addresses, by [`Range::parse_all`].
    pub ranges: Vec<Range>,
    /// Entries that could not be read.
    pub refused: Vec<RangeError>,
    /// Which clients can reach its addresses. None: they serve either scope.
    pub scope: Option<Scope>,
    /// Whether a request that names no pool and no address may get one of its addresses.
    pub auto_assign: bool,
    /// Whether IPv4 addresses that end in .0 or .255 are left out.
    pub avoid_buggy: bool,
    /// Which requesters may have its addresses.
    pub allocate_to: AllocateTo,
    /// How many of its addresses one namespace may hold.
    pub per_namespace_quota: Option<u32>,
    /// Whether Services of different namespaces may share an address.
    pub sharing_across_namespaces: bool,
    /// Domains that may be used as names, with the names below them; in lower case. Empty: all
    /// names.
    pub allowed_domains: Vec<Arc<str>>,
    /// Seconds that an address rests after its last holder.
    pub reuse_after: Timestamp,
}

/// Which requesters may have addresses of a pool. What is left out does not restrict.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllocateTo {
    /// The lowest number above 0 is tried first, 0 after all others.
    pub priority: u32,
    /// Namespaces by name. With `namespace_selectors`: one of either must fit.
    pub namespaces: Vec<Arc<str>>,
    /// Namespaces by their labels; one must match.
    pub namespace_selectors: Vec<LabelSelector>,
    /// Services by their labels; one must match.
    pub service_selectors: Vec<LabelSelector>,
}

impl AllocateTo {
    /// Whether the pool is pinned: only for some namespaces or Services.
    fn pins(&self) -> bool {
        !(self.namespaces.is_empty()
            && self.namespace_selectors.is_empty()
            && self.service_selectors.is_empty())
    }
}

/// Why a requester may not have addresses of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unfit {
    Namespace,
    Labels,
    Scope,
}

impl Pool {
    pub(super) fn contains(&self, address: IpAddr) -> bool {
        self.ranges.iter().any(|range| range.contains(address))
    }

    /// The order in which pools are tried: pinned ones first, then by priority, then by name.
    pub(super) fn rank(&self) -> (bool, u32, &str) {
        // 0 wraps to the largest number: it comes last.
        (!self.allocate_to.pins(), self.allocate_to.priority.wrapping_sub(1), &self.name)
    }

    /// Whether a requester may have addresses of it. A namespace with unknown labels matches no
    /// selector.
    pub(super) fn fits(
        &self,
        request: &AddressRequest,
        namespace: Option<&Labels>,
    ) -> Result<(), Unfit> {
        if let (Some(pool), Some(wanted)) = (self.scope, request.scope)
            && pool != wanted
        {
            return Err(Unfit::Scope);
        }
        let Some(tenant) = request.tenant() else { return Ok(()) };
        let to = &self.allocate_to;
        let anywhere = to.namespaces.is_empty() && to.namespace_selectors.is_empty();
        let selected = |labels: &Labels| to.namespace_selectors.iter().any(|it| it.matches(labels));
        let by_name = to.namespaces.contains(tenant);
        if !(anywhere || by_name || namespace.is_some_and(selected)) {
            return Err(Unfit::Namespace);
        }
        let services = &to.service_selectors;
        if !(services.is_empty() || services.iter().any(|it| it.matches(&request.labels))) {
            return Err(Unfit::Labels);
        }
        Ok(())
    }

    /// Whether a DNS name may be used to get an address of it.
    pub(super) fn allows_name(&self, name: &str) -> bool {
        let mut domains = self.allowed_domains.iter();
        self.allowed_domains.is_empty() || domains.any(|domain| is_under(name, domain))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::make::{pool, service};
    use super::*;
    use crate::objects::{Operator, Requirement};

    fn selector(key: &str, value: &str) -> LabelSelector {
        let operator = Operator::In(vec![value.into()]);
        LabelSelector { requirements: vec![Requirement { key: key.into(), operator }] }
    }

    fn labels(key: &str, value: &str) -> Labels {
        [(key.into(), value.into())].into()
    }

    #[test]
    fn a_name_may_be_used_in_its_domain_and_below_it() {
        let mut pool = pool("p", &["192.0.2.0/24"]);
        assert!(pool.allows_name("anything.example"));
        pool.allowed_domains = vec!["example.com".into()];
        assert!(pool.allows_name("example.com") && pool.allows_name("a.b.example.com"));
        assert!(!pool.allows_name("badexample.com") && !pool.allows_name("example.org"));
    }

    #[test]
    fn pinned_pools_come_first_then_priority_then_name() {
        let ranked = |name: &str, priority, namespaces: &[&str]| Pool {
            allocate_to: AllocateTo {
                priority,
                namespaces: namespaces.iter().map(|it| (*it).into()).collect(),
                ..AllocateTo::default()
            },
            ..pool(name, &[])
        };
        let mut pools = [
            ranked("a", 0, &[]),
            ranked("b", 7, &[]),
            ranked("c", 0, &["shop"]),
            ranked("d", 9, &["shop"]),
            ranked("e", 2, &["shop"]),
        ];
        pools.sort_by(|one, other| one.rank().cmp(&other.rank()));
        assert_eq!(pools.map(|pool| pool.name.to_string()), ["e", "d", "c", "b", "a"]);
    }

    #[test]
    fn a_namespace_fits_by_its_name_or_by_its_labels() {
        let mut pool = pool("p", &[]);
        pool.allocate_to.namespaces = vec!["shop".into()];
        pool.allocate_to.namespace_selectors = vec![selector("tier", "gold")];
        assert_eq!(pool.fits(&service("shop/web"), None), Ok(()));
        assert_eq!(pool.fits(&service("bank/web"), Some(&labels("tier", "gold"))), Ok(()));
        let other = pool.fits(&service("bank/web"), Some(&labels("tier", "tin")));
        assert_eq!(other, Err(Unfit::Namespace));
        assert_eq!(pool.fits(&service("bank/web"), None), Err(Unfit::Namespace));
    }

    #[test]
    fn a_service_must_fit_one_service_selector() {
        let mut pool = pool("p", &[]);
        pool.allocate_to.service_selectors = vec![selector("app", "web"), selector("app", "api")];
        let mut request = service("shop/web");
        assert_eq!(pool.fits(&request, None), Err(Unfit::Labels));
        request.labels = labels("app", "api");
        assert_eq!(pool.fits(&request, None), Ok(()));
    }

    #[test]
    fn scopes_must_be_equal_where_both_are_told() {
        let mut pool = pool("p", &[]);
        let mut request = service("shop/web");
        for (has, wants, fits) in [
            (None, Some(Scope::Internet), Ok(())),
            (Some(Scope::Intranet), None, Ok(())),
            (Some(Scope::Intranet), Some(Scope::Intranet), Ok(())),
            (Some(Scope::Intranet), Some(Scope::Internet), Err(Unfit::Scope)),
        ] {
            (pool.scope, request.scope) = (has, wants);
            assert_eq!(pool.fits(&request, None), fits);
        }
    }
}
