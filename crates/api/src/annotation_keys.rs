//! The annotation keys that users write, each with the older keys that are also read. This module finds the value that
//! counts; the modules that use a value parse it.

use crate::names;
use bowline_core::nearest::nearest;
use bowline_core::outcome::{Problem, Reason, quote};
use std::collections::BTreeMap;
use std::ops::Bound::{Included, Unbounded};

/// Every annotation under this is Bowline's own, so one that does not exist is a slip.
const OWN: &str = "bowline.dev/";
/// The annotations of older programs. Those programs may have more, so only what is nearly a key that is read is a
/// slip.
const OLDER: [&str; 2] = ["lb.zcloud.cn/", "kube2lb/"];
/// The most unknown annotations of an object that are named.
const MOST_NAMED: usize = 3;

/// An annotation: our key, then the other keys that are read, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// Our key.
    pub name: &'static str,
    /// Other keys; the first one that is set counts.
    pub alternatives: &'static [&'static str],
}

/// An annotation that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found<'a> {
    /// The key that was found: some keys have values of their own, and messages quote the key.
    pub key: &'static str,
    /// The value.
    pub value: &'a str,
}

const fn key(name: &'static str) -> Key {
    Key { name, alternatives: &[] }
}

/// The claim of its namespace that a Service or Ingress uses.
pub const LOAD_BALANCER_CLAIM: Key = key("bowline.dev/load-balancer-claim");
/// The load balancer that a Service or Ingress uses.
pub const LOAD_BALANCER: Key = key("bowline.dev/load-balancer");
/// The load balancer that an Ingress uses, by its source as JSON. It is written for `spec.loadBalancer` with an inline
/// source, see [`crate::translate`].
pub const LOAD_BALANCER_SOURCE: Key = key("bowline.dev/load-balancer-source");
/// The requested address, or one of each family. After these keys comes `spec.loadBalancerIP`.
pub const VIP: Key =
    Key { name: "bowline.dev/vip", alternatives: &["metallb.io/loadBalancerIPs", DEVICE_VIP] };
/// elb-controller's key for [`VIP`]. Only this one leads to the only external load balancer.
pub const DEVICE_VIP: &str = "lb.zcloud.cn/vip";
/// The DNS name that resolves to the requested address.
pub const ASSIGN_FROM_FQDN: Key =
    Key { name: "bowline.dev/assign-from-fqdn", alternatives: &["metallb.io/assign-from-fqdn"] };
/// The AddressPool of the requested address.
pub const ADDRESS_POOL: Key =
    Key { name: "bowline.dev/address-pool", alternatives: &["metallb.io/address-pool"] };
/// The key under which the address is shared.
pub const ALLOW_SHARED_IP: Key =
    Key { name: "bowline.dev/allow-shared-ip", alternatives: &["metallb.io/allow-shared-ip"] };
/// How connections are spread. The alternative key has its own values: `rr`, `lc`, `hash`.
pub const ALGORITHM: Key =
    Key { name: "bowline.dev/algorithm", alternatives: &["lb.zcloud.cn/method"] };
/// Whether members see the load balancer's address instead of the client's.
pub const SNAT: Key = key("bowline.dev/snat");
/// How members are told the client's address.
pub const PROXY_PROTOCOL: Key = key("bowline.dev/proxy-protocol");
/// How a client stays with a member. After this key comes `spec.sessionAffinity`.
pub const PERSISTENCE: Key = key("bowline.dev/persistence");
/// How long a client stays with a member.
pub const PERSISTENCE_TIMEOUT: Key = key("bowline.dev/persistence-timeout");
/// Whether clear-text requests for hosts with TLS are sent to HTTPS.
pub const HTTPS_REDIRECT: Key = key("bowline.dev/https-redirect");
/// How members are checked beside their readiness.
pub const HEALTH_CHECK: Key = key("bowline.dev/health-check");
/// Clients that may use a Service, where `spec.loadBalancerSourceRanges` is not set. This is Kubernetes' own older key.
pub const SOURCE_RANGES: Key = key("service.beta.kubernetes.io/load-balancer-source-ranges");
/// How many bits per second a consumer requests.
pub const NETWORK_BANDWIDTH: Key = key("bowline.dev/network-bandwidth");
/// How many operations per second a consumer requests.
pub const NETWORK_IOPS: Key = key("bowline.dev/network-iops");
/// One address per Pod, also on a headless Service.
pub const IP_PER_POD: Key = key("bowline.dev/ip-per-pod");
/// A load balancer per Pod, where the provider has no external addresses.
pub const FALLBACK_LOADBALANCER_PER_POD: Key =
    key("service.beta.kubernetes.io/fallback-loadbalancer-per-pod");
/// A map of port names to modes, as with kube2lb.
pub const PORT_MODE: Key =
    Key { name: "bowline.dev/port-mode", alternatives: &["kube2lb/port-mode"] };
/// Further names of a Service, as with kube2lb.
pub const EXTERNAL_DOMAINS: Key =
    Key { name: "bowline.dev/external-domains", alternatives: &["kube2lb/external-domains"] };
/// A map of port names to milliseconds, as with kube2lb.
pub const BACKEND_TIMEOUT: Key =
    Key { name: "bowline.dev/backend-timeout", alternatives: &["kube2lb/backend-timeout"] };

/// All keys.
pub const ALL: &[Key] = &[
    LOAD_BALANCER_CLAIM,
    LOAD_BALANCER,
    LOAD_BALANCER_SOURCE,
    VIP,
    ASSIGN_FROM_FQDN,
    ADDRESS_POOL,
    ALLOW_SHARED_IP,
    ALGORITHM,
    SNAT,
    PROXY_PROTOCOL,
    PERSISTENCE,
    PERSISTENCE_TIMEOUT,
    HTTPS_REDIRECT,
    HEALTH_CHECK,
    SOURCE_RANGES,
    NETWORK_BANDWIDTH,
    NETWORK_IOPS,
    IP_PER_POD,
    FALLBACK_LOADBALANCER_PER_POD,
    PORT_MODE,
    EXTERNAL_DOMAINS,
    BACKEND_TIMEOUT,
];

/// The value of a key or, if it is not set, of its first alternative that is set. An empty value counts: a user wrote
/// it.
pub fn read<'a>(annotations: &'a BTreeMap<String, String>, key: &Key) -> Option<Found<'a>> {
    std::iter::once(key.name)
        .chain(key.alternatives.iter().copied())
        .find_map(|key| annotations.get(key).map(|value| Found { key, value }))
}

/// The problem with the annotations of a Service or Ingress that do not exist, which are probably slips. None: there
/// are none.
pub fn unknown(annotations: &BTreeMap<String, String>) -> Option<Problem> {
    let spellings = || {
        ALL.iter().flat_map(|key| [key.name].into_iter().chain(key.alternatives.iter().copied()))
    };
    let known = |key: &str| spellings().any(|it| it == key) || names::WRITTEN.contains(&key);
    // What follows the domain is compared: the domain would make every two keys alike.
    let meant = |domain: &str, key: &str| {
        let rest = |it: &'static str| it.strip_prefix(domain);
        nearest(key.strip_prefix(domain)?, spellings().filter_map(rest)).map(str::to_owned)
    };
    let (mut told, mut more) = (Vec::new(), 0);
    for domain in [OWN].into_iter().chain(OLDER) {
        let under =
            annotations.range::<str, _>((Included(domain), Unbounded)).map(|(key, _)| key.as_str());
        let under = under.take_while(|key| key.starts_with(domain)).filter(|key| !known(key));
        for key in under {
            if told.len() == MOST_NAMED {
                // Those of older programs are not compared any more.
                more += usize::from(domain == OWN);
                continue;
            }
            match meant(domain, key) {
                Some(meant) => told.push(format!(
                    "annotation {} does not exist and has no effect: did you mean {domain}{meant}?",
                    quote(key)
                )),
                None if domain == OWN => {
                    told.push(format!(
                        "annotation {} does not exist and has no effect",
                        quote(key)
                    ));
                }
                None => {}
            }
        }
    }
    if told.is_empty() {
        return None;
    }
    let mut message = told.join("; ");
    if more > 0 {
        message.push_str(&format!("; and {more} more under {OWN}"));
    }
    Some(Problem::new(Reason::UnknownAnnotation, message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn told(keys: &[&str]) -> Option<String> {
        let pairs: Vec<_> = keys.iter().map(|key| (*key, "x")).collect();
        unknown(&annotations(&pairs)).map(|problem| {
            assert_eq!(problem.reason, Reason::UnknownAnnotation);
            problem.message.to_string()
        })
    }

    #[test]
    fn an_annotation_that_does_not_exist_is_told_with_the_nearest_one_that_does() {
        for (key, meant) in [
            ("bowline.dev/load-balncer", "bowline.dev/load-balancer"),
            ("bowline.dev/loadBalancer", "bowline.dev/load-balancer"),
            ("bowline.dev/persistance", "bowline.dev/persistence"),
            ("bowline.dev/vpi", "bowline.dev/vip"),
            ("lb.zcloud.cn/methode", "lb.zcloud.cn/method"),
            ("kube2lb/port-modes", "kube2lb/port-mode"),
        ] {
            let expected = format!(
                "annotation {key:?} does not exist and has no effect: did you mean {meant}?"
            );
            assert_eq!(told(&[key]), Some(expected));
        }
        let expected = "annotation \"bowline.dev/colour\" does not exist and has no effect";
        assert_eq!(told(&["bowline.dev/colour"]).as_deref(), Some(expected));
    }

    #[test]
    fn every_annotation_that_is_read_and_those_of_others_are_no_slip() {
        for key in ALL {
            let spellings = [key.name].into_iter().chain(key.alternatives.iter().copied());
            for spelling in spellings {
                assert_eq!(told(&[spelling]), None, "{spelling}");
            }
        }
        for key in names::WRITTEN {
            assert_eq!(told(&[key]), None, "{key}");
        }
        let others =
            ["example.com/vpi", "metallb.io/adress-pool", "kube2lb/other", "bowline.device/x"];
        assert_eq!(told(&others), None);
    }

    #[test]
    fn thousands_of_unknown_annotations_give_a_short_message() {
        let keys: Vec<String> =
            (0..5_000).map(|n| format!("bowline.dev/{n}-{}", "x\n".repeat(200))).collect();
        let older: Vec<String> = (0..5_000).map(|n| format!("kube2lb/port-mod{n}")).collect();
        let all: Vec<&str> = keys.iter().chain(&older).map(String::as_str).collect();
        let told = told(&all).unwrap();
        assert!(
            told.len() < 1_000 && told.ends_with("; and 4997 more under bowline.dev/"),
            "{told}"
        );
        assert!(!told.chars().any(char::is_control), "{told}");
    }

    fn annotations(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect()
    }

    #[test]
    fn our_key_comes_first_and_the_alternatives_in_order() {
        let all = annotations(&[
            ("lb.zcloud.cn/vip", "c"),
            ("metallb.io/loadBalancerIPs", "b"),
            ("bowline.dev/vip", "a"),
        ]);
        assert_eq!(read(&all, &VIP), Some(Found { key: "bowline.dev/vip", value: "a" }));
        let two = annotations(&[("lb.zcloud.cn/vip", "c"), ("metallb.io/loadBalancerIPs", "b")]);
        assert_eq!(read(&two, &VIP), Some(Found { key: "metallb.io/loadBalancerIPs", value: "b" }));
        let one = annotations(&[("lb.zcloud.cn/vip", "c")]);
        assert_eq!(read(&one, &VIP), Some(Found { key: "lb.zcloud.cn/vip", value: "c" }));
        assert_eq!(read(&annotations(&[]), &VIP), None);
    }

    #[test]
    fn an_empty_value_hides_the_alternatives() {
        let both = annotations(&[("bowline.dev/vip", ""), ("lb.zcloud.cn/vip", "c")]);
        assert_eq!(read(&both, &VIP), Some(Found { key: "bowline.dev/vip", value: "" }));
    }

    #[test]
    fn no_spelling_means_two_things() {
        let spellings: Vec<_> = ALL
            .iter()
            .flat_map(|key| std::iter::once(key.name).chain(key.alternatives.iter().copied()))
            .collect();
        let distinct: BTreeSet<_> = spellings.iter().collect();
        assert_eq!(distinct.len(), spellings.len());
    }
}
