//! Addresses: the address annotations of a Service, AddressPools, and Address objects in both directions. An entry of
//! an AddressPool that cannot be read is left out and reported; an Address object without an address as its name is
//! ignored.

use super::load_balancer::{label_selector, scope};
use super::read::{Annotations, NOT_A_NAME, bad_value, created, deleting, name};
use crate::address::{
    self, Address, AddressSpec, AddressStatus, HeldPort, Protocol, address_name, address_of_name,
};
use crate::address_pool::AddressPool;
use crate::annotation_keys::{self, ADDRESS_POOL, ALLOW_SHARED_IP, ASSIGN_FROM_FQDN, VIP};
use crate::translate::is_object_name;
use bowline_core::ObjectKey;
use bowline_core::addresses::{
    AddressState, AllocateTo, Content, Holder, HolderKind, HolderRef, Policy, Pool, Port, Range,
    Record, Wish,
};
use bowline_core::dns::Name;
use bowline_core::objects::{LabelSelector, Operator, Requirement, Timestamp, Version};
use bowline_core::outcome::Problem;
use bowline_core::plan::Transport;
use k8s_openapi::api::core::v1::{Node, ServiceSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::jiff;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

/// The annotation with the names that external-dns writes.
const EXTERNAL_DNS_HOSTNAME: &str = "external-dns.alpha.kubernetes.io/hostname";
/// The longest key under which addresses are shared.
const LONGEST_KEY: usize = 1024;

/// What a Service says about addresses, besides the addresses that it requests.
pub(super) fn wish(meta: &ObjectMeta, spec: &ServiceSpec, all: &Annotations) -> Wish {
    let mut problem = None;
    let mut read = |read: Result<Option<Arc<str>>, Problem>| {
        read.unwrap_or_else(|found| {
            problem.get_or_insert(found);
            None
        })
    };
    let (pool, name, key) =
        (read(address_pool(all)), read(dns_name(spec, all)), read(sharing_key(all)));
    Wish {
        labels: texts(meta.labels.as_ref()),
        selector: texts(spec.selector.as_ref()),
        pool,
        name,
        problem,
        key,
        policy: match spec.ip_family_policy.as_deref() {
            Some("PreferDualStack") => Policy::Prefer,
            Some("RequireDualStack") => Policy::Require,
            _ => Policy::Single,
        },
        of_device: all.contains_key(annotation_keys::DEVICE_VIP),
        uses: spec.external_ips.iter().flatten().filter_map(|ip| ip.parse().ok()).collect(),
    }
}

fn texts(labels: Option<&BTreeMap<String, String>>) -> BTreeMap<Arc<str>, Arc<str>> {
    let text = |(key, value): (&String, &String)| (key.as_str().into(), value.as_str().into());
    labels.into_iter().flatten().map(text).collect()
}

fn address_pool(all: &Annotations) -> Result<Option<Arc<str>>, Problem> {
    let Some(found) = annotation_keys::read(all, &ADDRESS_POOL) else { return Ok(None) };
    match is_object_name(found.value) {
        true => Ok(Some(found.value.into())),
        false => Err(bad_value(found.key, found.value, NOT_A_NAME)),
    }
}

fn sharing_key(all: &Annotations) -> Result<Option<Arc<str>>, Problem> {
    let found =
        annotation_keys::read(all, &ALLOW_SHARED_IP).filter(|found| !found.value.is_empty());
    match found {
        Some(found) if found.value.len() > LONGEST_KEY => {
            Err(bad_value(found.key, found.value, "is longer than 1024 bytes"))
        }
        found => Ok(found.map(|found| found.value.into())),
    }
}

/// The DNS name from which an address is to be taken. A name that external-dns writes for the Service itself would
/// resolve to its own address.
fn dns_name(spec: &ServiceSpec, all: &Annotations) -> Result<Option<Arc<str>>, Problem> {
    let Some(found) = annotation_keys::read(all, &ASSIGN_FROM_FQDN) else { return Ok(None) };
    let name: Name =
        found.value.parse().map_err(|bad: bowline_core::dns::BadName| bad_name(found.key, &bad))?;
    let contradicts = |what: &str| {
        let why = format!("contradicts {what}; write one of them");
        Err(bad_value(found.key, found.value, &why))
    };
    if let Some(vip) = annotation_keys::read(all, &VIP) {
        return contradicts(vip.key);
    }
    if spec.load_balancer_ip.as_deref().is_some_and(|ip| !ip.is_empty()) {
        return contradicts("spec.loadBalancerIP");
    }
    let written = all.get(EXTERNAL_DNS_HOSTNAME).map(String::as_str).unwrap_or_default();
    let mut written = written.split(',').filter_map(|text| text.trim().parse::<Name>().ok());
    if written.any(|other| other == name) {
        let why = format!(
            "is also in {EXTERNAL_DNS_HOSTNAME}: external-dns would write the address that is \
            looked up; remove one of them"
        );
        return Err(bad_value(found.key, found.value, &why));
    }
    Ok(Some(name.as_str().into()))
}

fn bad_name(key: &str, bad: &bowline_core::dns::BadName) -> Problem {
    Problem::new(bowline_core::outcome::Reason::BadValue, format!("{key}: {bad}"))
}

/// An AddressPool as the address allocator gets it.
pub fn pool(pool: &AddressPool) -> Pool {
    let AddressPool { metadata, spec, .. } = pool;
    let (ranges, refused) = Range::parse_all(&spec.addresses);
    let to = spec.allocate_to.clone().unwrap_or_default();
    let all = |texts: &[String]| texts.iter().map(|text| text.as_str().into()).collect();
    // A selector that no server would have accepted matches nothing.
    let nobody = || {
        let requirement = Requirement { key: "".into(), operator: Operator::In(Vec::new()) };
        LabelSelector { requirements: vec![requirement] }
    };
    let selectors = |written: &[_]| -> Vec<LabelSelector> {
        written.iter().map(|it| label_selector(it).unwrap_or_else(nobody)).collect()
    };
    let reuse_after = spec.reuse_after.map(std::time::Duration::from).unwrap_or_default();
    let namespace_selectors = selectors(&to.namespace_selectors);
    let service_selectors = selectors(&to.service_selectors);
    Pool {
        name: name(metadata),
        created: created(metadata),
        deleting: deleting(metadata),
        ranges,
        refused,
        scope: spec.scope.map(scope),
        auto_assign: spec.auto_assign,
        avoid_buggy: spec.avoid_buggy_ips,
        allocate_to: AllocateTo {
            priority: u32::try_from(to.priority).unwrap_or(0),
            namespaces: all(&to.namespaces),
            namespace_selectors,
            service_selectors,
        },
        per_namespace_quota: spec.per_namespace_quota.map(|it| u32::try_from(it).unwrap_or(0)),
        sharing_across_namespaces: spec.sharing_across_namespaces,
        allowed_domains: spec
            .allowed_domains
            .iter()
            .map(|it| it.trim_end_matches('.').to_lowercase().into())
            .collect(),
        reuse_after: Timestamp::try_from(reuse_after.as_secs()).unwrap_or(Timestamp::MAX),
    }
}

/// All addresses of a Node: they are granted to no other object.
pub fn node_addresses(node: &Node) -> Vec<IpAddr> {
    let status = node.status.as_ref();
    let addresses = status.and_then(|status| status.addresses.as_ref()).into_iter().flatten();
    addresses.filter_map(|address| address.address.parse().ok()).collect()
}

/// The content of an Address object. None: its name is not an address.
pub fn record(address: &Address) -> Option<Record> {
    let Address { metadata, spec, status } = address;
    let ip = address_of_name(metadata.name.as_deref().unwrap_or_default())?;
    let until = status.as_ref().and_then(|status| status.until.as_ref());
    let until = until.map_or(0, |time| time.0.as_second());
    let state = match status.as_ref().and_then(|status| status.state) {
        None | Some(address::AddressState::Active) => AddressState::Active,
        Some(address::AddressState::Draining) => AddressState::Draining { until },
        Some(address::AddressState::Resting) => AddressState::Resting { until },
    };
    let version = Version(metadata.resource_version.as_deref().unwrap_or_default().into());
    let pool = spec.pool.as_deref().map(Into::into);
    let holders = spec.holders.iter().map(holder).collect();
    Some(Record { address: ip, version, content: Content { pool, holders, state } })
}

fn holder(held: &address::Holder) -> Holder {
    let kind = match held.kind {
        address::HolderKind::Service => HolderKind::Service,
        address::HolderKind::LoadBalancer => HolderKind::LoadBalancer,
        address::HolderKind::ExternalIP => HolderKind::ExternalIp,
    };
    let namespace = held.namespace.as_deref().unwrap_or_default();
    let key = ObjectKey::new(namespace, held.name.as_str());
    let mut ports: Vec<Port> = held
        .ports
        .iter()
        .map(|port| Port {
            transport: match port.protocol {
                Protocol::Tcp => Transport::Tcp,
                Protocol::Udp => Transport::Udp,
                Protocol::Sctp => Transport::Sctp,
            },
            number: port.port,
        })
        .collect();
    ports.sort_unstable();
    Holder {
        holder: HolderRef { key, kind, uid: held.uid.as_str().into() },
        ports,
        key: held.key.as_deref().map(Into::into),
        load_balancer: held.load_balancer.as_deref().map(Into::into),
        since: held.since.as_ref().map_or(0, |time| time.0.as_second()),
    }
}

/// The Address object with this content, with the version that a write replaces.
pub fn address_object(address: IpAddr, version: Option<&Version>, content: &Content) -> Address {
    let time = |seconds: Timestamp| jiff::Timestamp::from_second(seconds).ok().map(Time);
    let (state, until) = match content.state {
        AddressState::Active => (address::AddressState::Active, None),
        AddressState::Draining { until } => (address::AddressState::Draining, time(until)),
        AddressState::Resting { until } => (address::AddressState::Resting, time(until)),
    };
    let held = |it: &Holder| address::Holder {
        kind: match it.holder.kind {
            HolderKind::Service => address::HolderKind::Service,
            HolderKind::LoadBalancer => address::HolderKind::LoadBalancer,
            HolderKind::ExternalIp => address::HolderKind::ExternalIP,
        },
        namespace: Some(it.holder.key.namespace.to_string()).filter(|text| !text.is_empty()),
        name: it.holder.key.name.to_string(),
        uid: it.holder.uid.to_string(),
        ports: it.ports.iter().map(port).collect(),
        key: it.key.as_ref().map(ToString::to_string),
        load_balancer: it.load_balancer.as_ref().map(ToString::to_string),
        since: time(it.since),
    };
    let spec = AddressSpec {
        pool: content.pool.as_ref().map(ToString::to_string),
        holders: content.holders.iter().map(held).collect(),
        held_by: held_by(&content.holders),
    };
    let mut object = Address::new(&address_name(address), spec);
    object.metadata.resource_version = version.map(|version| version.0.to_string());
    object.status = Some(AddressStatus { state: Some(state), until, announced_by: None });
    object
}

/// `Service shop/web, Service shop/api, 3 more`.
fn held_by(holders: &[Holder]) -> Option<String> {
    const MOST_NAMED: usize = 2;
    let mut named: Vec<String> =
        holders.iter().take(MOST_NAMED).map(|it| it.holder.to_string()).collect();
    let more = holders.len().saturating_sub(MOST_NAMED);
    named.extend((more > 0).then(|| format!("{more} more")));
    (!named.is_empty()).then(|| named.join(", "))
}

fn port(port: &Port) -> HeldPort {
    HeldPort {
        protocol: match port.transport {
            Transport::Tcp => Protocol::Tcp,
            Transport::Udp => Protocol::Udp,
            Transport::Sctp => Protocol::Sctp,
        },
        port: port.number,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::convert::service;
    use crate::convert::testing::object;

    fn read(annotations: &str) -> Wish {
        let text = format!(
            "metadata: {{name: web, labels: {{a: b}}, annotations: {{{annotations}}}}}\n\
             spec: {{type: LoadBalancer, selector: {{app: web}}, externalIPs: [192.0.2.7]}}"
        );
        service(&object(&text)).address
    }

    fn plain() -> Wish {
        Wish {
            labels: [("a".into(), "b".into())].into(),
            selector: [("app".into(), "web".into())].into(),
            uses: vec!["192.0.2.7".parse().unwrap()],
            ..Wish::default()
        }
    }

    #[test]
    fn only_the_spelling_of_elb_controller_asks_for_an_address_of_a_device() {
        for (key, of_device) in [
            ("lb.zcloud.cn/vip", true),
            ("bowline.dev/vip", false),
            ("metallb.io/loadBalancerIPs", false),
        ] {
            assert_eq!(read(&format!("{key}: 192.0.2.1")), Wish { of_device, ..plain() });
        }
    }

    #[test]
    fn what_a_service_says_of_addresses_is_read_in_both_spellings() {
        assert_eq!(read(""), plain());
        for domain in ["bowline.dev", "metallb.io"] {
            let wish = read(&format!(
                "{domain}/address-pool: public, {domain}/allow-shared-ip: k, \
                 {domain}/assign-from-fqdn: WWW.Example.com."
            ));
            let expected = Wish {
                pool: Some("public".into()),
                key: Some("k".into()),
                name: Some("www.example.com".into()),
                ..plain()
            };
            assert_eq!(wish, expected);
        }
        assert_eq!(read("bowline.dev/allow-shared-ip: ''"), plain());
    }

    #[test]
    fn what_cannot_be_read_or_contradicts_itself_is_told() {
        let hostname =
            "external-dns.alpha.kubernetes.io/hostname: 'a.example.com, web.example.com'";
        for (annotations, told) in [
            ("bowline.dev/address-pool: ''", "bowline.dev/address-pool: \"\" is not the name"),
            ("bowline.dev/assign-from-fqdn: 192.0.2.1", "bowline.dev/assign-from-fqdn: "),
            (
                "bowline.dev/assign-from-fqdn: a.example.com, bowline.dev/vip: 192.0.2.1",
                "contradicts bowline.dev/vip",
            ),
            (
                &format!("bowline.dev/assign-from-fqdn: web.example.com, {hostname}"),
                "external-dns would write the address",
            ),
        ] {
            let message = read(annotations).problem.unwrap().message;
            assert!(message.contains(told), "{annotations}: {message}");
        }
    }

    #[test]
    fn an_address_object_says_what_was_meant() {
        let holder = Holder {
            holder: HolderRef {
                key: ObjectKey::new("shop", "web"),
                kind: HolderKind::Service,
                uid: "u".into(),
            },
            ports: vec![Port { transport: Transport::Tcp, number: 80 }],
            key: Some("k".into()),
            load_balancer: Some("edge".into()),
            since: 1_000,
        };
        let states = [
            AddressState::Active,
            AddressState::Draining { until: 2_000 },
            AddressState::Resting { until: 3_000 },
        ];
        for (state, ip) in states.into_iter().zip(["192.0.2.1", "2001:db8::1", "192.0.2.3"]) {
            let content = Content { pool: Some("p".into()), holders: vec![holder.clone()], state };
            let version = Version("7".into());
            let ip: IpAddr = ip.parse().unwrap();
            let object = address_object(ip, Some(&version), &content);
            assert_eq!(record(&object), Some(Record { address: ip, version, content }));
        }
    }
}
