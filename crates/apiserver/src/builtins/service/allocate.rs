//! Allocates cluster IPs and node ports. The search for a free one begins at a number that is
//! computed from the Service's name: it need not scan from the bottom, and the same writes give the
//! same numbers. It does no I/O; the write path says what is taken.

use super::super::fields::{has, int, list, set, text, texts};
use super::super::ip;
use super::defaults::{node_ports, wants_node_ports};
use super::families::{V6, unchanged_preference};
use super::{EXTERNAL_NAME, ServiceNetwork, kind, needs_health_check, needs_node_ports};
use crate::error::{FieldError, FieldErrorKind};
use crate::meta;
use ipnet::IpNet;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

type Outcome = Result<(), Vec<FieldError>>;

pub(super) fn allocate(
    object: &mut Value,
    old: Option<&Value>,
    network: &ServiceNetwork,
    taken: &dyn Fn(&str) -> bool,
) -> Outcome {
    cluster_ips(object, old, network, taken)?;
    let mut ports = Ports {
        range: network.node_ports.clone(),
        taken,
        mine: BTreeSet::new(),
        seed: seed(object),
    };
    if needs_node_ports(object) {
        match old {
            None => first_node_ports(object, &mut ports)?,
            Some(old) => next_node_ports(object, old, &mut ports)?,
        }
    }
    if needs_health_check(object) && !old.is_some_and(needs_health_check) {
        health_check_port(object, old, &mut ports)?;
    }
    Ok(())
}

fn cluster_ips(
    object: &mut Value,
    old: Option<&Value>,
    network: &ServiceNetwork,
    taken: &dyn Fn(&str) -> bool,
) -> Outcome {
    let headless = |service: &Value| texts(&service["spec"], "clusterIPs").first() == Some(&"None");
    if kind(object) == EXTERNAL_NAME || unchanged_preference(object, old) || headless(object) {
        return Ok(());
    }
    let first = match old {
        Some(old) if kind(old) != EXTERNAL_NAME => {
            let before = list(&old["spec"], "ipFamilies").len();
            let upgraded = before == 1 && list(&object["spec"], "ipFamilies").len() == 2;
            if headless(old) || !upgraded {
                return Ok(());
            }
            1
        }
        _ => 0,
    };
    let requested = list(&object["spec"], "clusterIPs").to_vec();
    let families: Vec<String> =
        texts(&object["spec"], "ipFamilies").into_iter().map(str::to_owned).collect();
    let mut ips = requested.clone();
    for (i, family) in families.iter().enumerate().skip(first) {
        let given = ips.get(i).and_then(Value::as_str).unwrap_or_default().to_owned();
        let net = network
            .cluster_cidrs
            .iter()
            .find(|net| net.addr().is_ipv6() == (family == V6))
            .map(Block::of);
        let refuse = |why: &str| {
            vec![FieldError::invalid(
                "spec.clusterIPs",
                &json!(requested),
                format!("failed to allocate IP {given}: {why}"),
            )]
        };
        let Some(net) = net else {
            return Err(refuse("the provided network does not match the current range"));
        };
        let address = if given.is_empty() {
            let Some(free) = net.free(seed(object), taken) else {
                return Err(internal(
                    "spec.clusterIPs",
                    format!(
                        "failed to allocate a serviceIP for Service {:?}: range is full",
                        meta::name(object)
                    ),
                ));
            };
            free.to_string()
        } else {
            let ip = ip::parse(&given);
            let Some(ip) = ip.filter(|ip| net.contains(*ip)) else {
                return Err(refuse("the provided network does not match the current range"));
            };
            let reserved = net.address(0) == ip
                && (meta::namespace(object), meta::name(object)) != ("default", "kubernetes");
            if reserved || taken(&format!("clusterip/{ip}")) {
                return Err(refuse("provided IP is already allocated"));
            }
            given
        };
        match ips.get_mut(i) {
            Some(slot) => *slot = json!(address),
            None => ips.push(json!(address)),
        }
    }
    if let Some(ip) = ips.first() {
        set(&mut object["spec"], "clusterIP", ip.clone());
        set(&mut object["spec"], "clusterIPs", json!(ips));
    }
    Ok(())
}

/// The addresses of a network that can be allocated, by number, without the network address and, in
/// IPv4, the broadcast address. The first one is reserved for the API server's own Service.
struct Block {
    base: u128,
    count: u128,
    v6: bool,
}

impl Block {
    fn of(net: &IpNet) -> Self {
        let (base, size, v6) = match net.trunc() {
            IpNet::V4(net) => {
                let size = 1u128 << (32 - net.prefix_len());
                (u128::from(net.network().to_bits()), size.saturating_sub(1), false)
            }
            IpNet::V6(net) => {
                let size = 1u128.checked_shl(128 - u32::from(net.prefix_len()));
                (net.network().to_bits(), size.unwrap_or(u128::MAX), true)
            }
        };
        Self { base: base.saturating_add(1), count: size.saturating_sub(1), v6 }
    }

    fn address(&self, number: u128) -> IpAddr {
        let bits = self.base.saturating_add(number);
        if self.v6 {
            IpAddr::V6(Ipv6Addr::from_bits(bits))
        } else {
            IpAddr::V4(Ipv4Addr::from_bits(u32::try_from(bits).unwrap_or(u32::MAX)))
        }
    }

    fn contains(&self, ip: IpAddr) -> bool {
        let bits = match ip {
            IpAddr::V4(v4) if !self.v6 => u128::from(v4.to_bits()),
            IpAddr::V6(v6) if self.v6 => v6.to_bits(),
            _ => return false,
        };
        bits >= self.base && bits - self.base < self.count
    }

    fn free(&self, seed: u64, taken: &dyn Fn(&str) -> bool) -> Option<IpAddr> {
        // The lowest addresses are left for Services that request one, as long as others are free.
        let size = self.count + 1;
        let low = if size <= 16 { 1 } else { (size / 16).clamp(16, 256) };
        walk(low, self.count, seed)
            .chain(walk(1, low.min(self.count), seed))
            .map(|number| self.address(number))
            .find(|ip| !taken(&format!("clusterip/{ip}")))
    }
}

/// The numbers of `from..to`, each once, beginning at a number that depends on the seed.
fn walk(from: u128, to: u128, seed: u64) -> impl Iterator<Item = u128> {
    let count = to.saturating_sub(from);
    let start = if count == 0 { 0 } else { u128::from(seed) % count };
    (start..count).chain(0..start).map(move |number| from + number)
}

/// The FNV-1a hash of the Service's full name.
fn seed(object: &Value) -> u64 {
    let name = [meta::namespace(object), "/", meta::name(object)];
    name.iter().flat_map(|part| part.bytes()).fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// The node ports during one write. A number belongs to one Service, for all protocols.
struct Ports<'a> {
    range: std::ops::RangeInclusive<u16>,
    taken: &'a dyn Fn(&str) -> bool,
    mine: BTreeSet<i64>,
    seed: u64,
}

impl Ports<'_> {
    fn reserve(&mut self, port: i64) -> Result<(), String> {
        if !u16::try_from(port).is_ok_and(|port| self.range.contains(&port)) {
            return Err(format!(
                "provided port is not in the valid range. The range of valid ports is {}-{}",
                self.range.start(),
                self.range.end()
            ));
        }
        if self.mine.contains(&port) || (self.taken)(&format!("nodeport/{port}")) {
            return Err("provided port is already allocated".to_owned());
        }
        self.mine.insert(port);
        Ok(())
    }

    fn next(&mut self) -> Option<i64> {
        let (start, end) = (u128::from(*self.range.start()), u128::from(*self.range.end()) + 1);
        let size = end.saturating_sub(start);
        let low = if size <= 16 { 0 } else { (size / 32).clamp(16, 128) };
        let port = walk(start + low, end, self.seed)
            .chain(walk(start, start + low, self.seed))
            .filter_map(|port| i64::try_from(port).ok())
            .find(|port| !self.mine.contains(port) && !(self.taken)(&format!("nodeport/{port}")))?;
        self.mine.insert(port);
        Some(port)
    }
}

/// The node ports of a new Service: the requested ones, and one number for all protocols of a port.
fn first_node_ports(object: &mut Value, ports: &mut Ports<'_>) -> Outcome {
    let unasked = wants_node_ports(object);
    let wanted: Vec<(i64, i64)> = list(&object["spec"], "ports")
        .iter()
        .map(|port| (int(port, "port"), int(port, "nodePort")))
        .collect();
    let mut given: Vec<(i64, i64)> = Vec::new();
    for (i, (port, asked)) in wanted.iter().copied().enumerate() {
        if asked == 0 && !unasked {
            continue;
        }
        let known = given.iter().find(|(p, _)| *p == port).map(|(_, number)| *number);
        let number = match known {
            Some(number) if asked == 0 || asked == number => number,
            Some(_) => reserve(ports, i, asked)?,
            None => {
                let asked = wanted.iter().find(|(p, asked)| *p == port && *asked != 0);
                let number = match asked {
                    Some((_, asked)) => reserve(ports, i, *asked)?,
                    None => next(ports)?,
                };
                given.push((port, number));
                number
            }
        };
        set(&mut object["spec"]["ports"][i], "nodePort", json!(number));
    }
    Ok(())
}

/// The node ports of a changed Service: new requests are reserved, missing ones allocated.
fn next_node_ports(object: &mut Value, old: &Value, ports: &mut Ports<'_>) -> Outcome {
    let held = node_ports(old);
    let unasked = wants_node_ports(object);
    let mut seen = BTreeSet::new();
    for i in 0..list(&object["spec"], "ports").len() {
        let port = &object["spec"]["ports"][i];
        let asked = int(port, "nodePort");
        let protocol = text(port, "protocol").to_owned();
        if asked == 0 && !unasked {
            continue;
        }
        let number = if asked == 0 {
            ports.mine.extend(&held);
            let number = next(ports)?;
            set(&mut object["spec"]["ports"][i], "nodePort", json!(number));
            number
        } else {
            if !held.contains(&asked) && !ports.mine.contains(&asked) {
                reserve(ports, i, asked)?;
            }
            asked
        };
        if !seen.insert((protocol.clone(), number)) {
            return Err(internal(
                format!("spec.ports[{i}].nodePort"),
                format!("duplicate nodePort: {{{protocol} {number}}}"),
            ));
        }
    }
    Ok(())
}

fn health_check_port(object: &mut Value, old: Option<&Value>, ports: &mut Ports<'_>) -> Outcome {
    if let Some(old) = old {
        ports.mine.extend(node_ports(old));
    }
    if !has(&object["spec"], "healthCheckNodePort") {
        let number = next(ports)?;
        set(&mut object["spec"], "healthCheckNodePort", json!(number));
        return Ok(());
    }
    let asked = int(&object["spec"], "healthCheckNodePort");
    ports.reserve(asked).map_err(|why| {
        internal(
            "spec.healthCheckNodePort",
            format!("failed to allocate requested HealthCheck NodePort {asked}: {why}"),
        )
    })
}

fn reserve(ports: &mut Ports<'_>, i: usize, number: i64) -> Result<i64, Vec<FieldError>> {
    ports.reserve(number).map(|()| number).map_err(|why| {
        vec![FieldError::invalid(format!("spec.ports[{i}].nodePort"), &json!(number), why)]
    })
}

fn next(ports: &mut Ports<'_>) -> Result<i64, Vec<FieldError>> {
    ports.next().ok_or_else(|| {
        internal("spec.ports", "failed to allocate a nodePort: range is full".to_owned())
    })
}

/// An error that is not the writer's fault; kube-apiserver answers with an internal error.
fn internal(field: impl Into<String>, detail: String) -> Vec<FieldError> {
    let kind = FieldErrorKind::Internal;
    vec![FieldError { kind, field: field.into(), value: None, detail }]
}

#[cfg(test)]
mod tests {
    use super::super::ServiceRules;
    use super::super::tests::network;
    use super::*;
    use crate::kind::Rules;

    fn create(network: &ServiceNetwork, spec: Value, taken: &[&str]) -> Result<Value, String> {
        let mut service = json!({"metadata": {"namespace": "shop", "name": "web"}, "spec": spec});
        let rules = ServiceRules::new(network.clone());
        rules.default(&mut service);
        rules.prepare_create(&mut service);
        said(rules.allocate(&mut service, None, &|claim| taken.contains(&claim)))?;
        Ok(service)
    }

    fn update(
        network: &ServiceNetwork,
        old: &Value,
        change: impl Fn(&mut Value),
    ) -> Result<Value, String> {
        let mut service = old.clone();
        change(&mut service);
        let rules = ServiceRules::new(network.clone());
        rules.default(&mut service);
        rules.prepare_update(&mut service, old);
        said(rules.allocate(&mut service, Some(old), &|_| false))?;
        Ok(service)
    }

    fn said(outcome: Outcome) -> Result<(), String> {
        outcome.map_err(|e| e.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))
    }

    #[test]
    fn the_same_name_gets_the_same_free_address() {
        let network = ServiceNetwork::default();
        let one = create(&network, json!({"ports": [{"port": 80}]}), &[]).unwrap();
        let again = create(&network, json!({"ports": [{"port": 80}]}), &[]).unwrap();
        assert_eq!(one, again);
        let ip = text(&one["spec"], "clusterIP");
        assert!(ip.starts_with("10."), "{ip}");
        assert_eq!(one["spec"]["clusterIPs"], json!([ip]));
        let taken = format!("clusterip/{ip}");
        let other = create(&network, json!({"ports": [{"port": 80}]}), &[&taken]).unwrap();
        assert_ne!(other["spec"]["clusterIP"], one["spec"]["clusterIP"]);
    }

    #[test]
    fn a_small_network_is_given_out_to_its_last_usable_address() {
        let network = network(&["192.0.2.0/29"]);
        let mut taken: Vec<String> = Vec::new();
        for _ in 0..5 {
            let claims: Vec<&str> = taken.iter().map(String::as_str).collect();
            let service = create(&network, json!({"ports": [{"port": 80}]}), &claims).unwrap();
            taken.push(format!("clusterip/{}", text(&service["spec"], "clusterIP")));
        }
        taken.sort();
        assert_eq!(
            taken,
            ["2", "3", "4", "5", "6"].map(|n| format!("clusterip/192.0.2.{n}")),
            "neither the network, the broadcast address, nor the API server's own"
        );
        let claims: Vec<&str> = taken.iter().map(String::as_str).collect();
        assert_eq!(
            create(&network, json!({"ports": [{"port": 80}]}), &claims),
            Err("spec.clusterIPs: Internal error: failed to allocate a serviceIP for Service \"web\": range is full"
                .to_owned())
        );
    }

    #[test]
    fn dual_stack_services_get_one_address_of_each_family() {
        let network = network(&["10.96.0.0/12", "fd00::/108"]);
        let spec = json!({"ports": [{"port": 80}], "ipFamilyPolicy": "RequireDualStack"});
        let service = create(&network, spec, &[]).unwrap();
        assert_eq!(service["spec"]["ipFamilies"], json!(["IPv4", "IPv6"]));
        assert!(ip::is_v6(service["spec"]["clusterIPs"][1].as_str().unwrap()));
        let single = create(&network, json!({"ports": [{"port": 80}]}), &[]).unwrap();
        let both =
            update(&network, &single, |s| s["spec"]["ipFamilyPolicy"] = json!("PreferDualStack"));
        assert_eq!(both.unwrap()["spec"]["clusterIPs"].as_array().unwrap().len(), 2);
    }

    #[test]
    fn an_address_that_is_taken_or_elsewhere_is_refused() {
        let network = ServiceNetwork::default();
        for (ip, why) in [
            ("10.96.0.5", "provided IP is already allocated"),
            ("10.96.0.1", "provided IP is already allocated"),
            ("10.96.0.0", "the provided network does not match the current range"),
            ("10.111.255.255", "the provided network does not match the current range"),
            ("192.0.2.1", "the provided network does not match the current range"),
        ] {
            let spec = json!({"clusterIP": ip, "ports": [{"port": 80}]});
            assert_eq!(
                create(&network, spec, &["clusterip/10.96.0.5"]),
                Err(format!(
                    "spec.clusterIPs: Invalid value: [\"{ip}\"]: failed to allocate IP {ip}: {why}"
                ))
            );
        }
        let spec = json!({"clusterIP": "10.96.0.6", "ports": [{"port": 80}]});
        assert_eq!(
            create(&network, spec, &[]).unwrap()["spec"]["clusterIPs"],
            json!(["10.96.0.6"])
        );
    }

    #[test]
    fn headless_and_external_services_get_no_address() {
        let network = ServiceNetwork::default();
        let headless =
            create(&network, json!({"clusterIP": "None", "selector": {"a": "b"}}), &[]).unwrap();
        assert_eq!(headless["spec"]["clusterIPs"], json!(["None"]));
        let external =
            create(&network, json!({"type": "ExternalName", "externalName": "a.b"}), &[]).unwrap();
        assert_eq!(external["spec"].get("clusterIP"), None);
        let back = update(&network, &external, |s| {
            s["spec"]["type"] = json!("ClusterIP");
            s["spec"]["ports"] = json!([{"port": 80}]);
        });
        assert!(has(&back.unwrap()["spec"], "clusterIP"));
    }

    #[test]
    fn node_ports_are_given_kept_and_refused_as_a_real_server_does() {
        let network = ServiceNetwork::default();
        let two = json!([{"name": "t", "port": 53}, {"name": "u", "port": 53, "protocol": "UDP"}, {"name": "w", "port": 80}]);
        let service = create(&network, json!({"type": "NodePort", "ports": two}), &[]).unwrap();
        let numbers: Vec<i64> =
            list(&service["spec"], "ports").iter().map(|p| int(p, "nodePort")).collect();
        assert_eq!(numbers[0], numbers[1], "protocols of one port share the number");
        assert_ne!(numbers[0], numbers[2]);
        assert!(numbers.iter().all(|n| (30000..=32767).contains(n)), "{numbers:?}");
        let ask =
            |number: i64| json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": number}]});
        assert_eq!(
            create(&network, ask(30080), &["nodeport/30080"]),
            Err("spec.ports[0].nodePort: Invalid value: 30080: provided port is already allocated"
                .to_owned())
        );
        for bad in [80, 32768, -1, 99_999_999] {
            assert_eq!(
                create(&network, ask(bad), &[]),
                Err(format!(
                    "spec.ports[0].nodePort: Invalid value: {bad}: provided port is not in the valid range. The \
                     range of valid ports is 30000-32767"
                ))
            );
        }
        let clash = json!({"type": "NodePort", "ports": [
            {"name": "a", "port": 80, "nodePort": 30080}, {"name": "b", "port": 81, "nodePort": 30080}]});
        assert_eq!(
            create(&network, clash, &[]),
            Err("spec.ports[1].nodePort: Invalid value: 30080: provided port is already allocated"
                .to_owned())
        );
        let off = json!({"type": "LoadBalancer", "allocateLoadBalancerNodePorts": false,
            "ports": [{"name": "a", "port": 80}, {"name": "b", "port": 81, "nodePort": 30081}]});
        let service = create(&network, off, &[]).unwrap();
        assert_eq!(service["spec"]["ports"][0].get("nodePort"), None);
        assert_eq!(service["spec"]["ports"][1]["nodePort"], 30081);
    }

    #[test]
    fn a_health_check_port_comes_and_goes_with_the_local_policy() {
        let network = ServiceNetwork::default();
        let spec = json!({"type": "LoadBalancer", "ports": [{"port": 80}], "externalTrafficPolicy": "Local"});
        let local = create(&network, spec, &[]).unwrap();
        let number = int(&local["spec"], "healthCheckNodePort");
        assert!((30000..=32767).contains(&number));
        assert_ne!(number, int(&local["spec"]["ports"][0], "nodePort"));
        let cluster =
            update(&network, &local, |s| s["spec"]["externalTrafficPolicy"] = json!("Cluster"))
                .unwrap();
        assert_eq!(cluster["spec"].get("healthCheckNodePort"), None);
        let again =
            update(&network, &cluster, |s| s["spec"]["externalTrafficPolicy"] = json!("Local"))
                .unwrap();
        assert_ne!(int(&again["spec"], "healthCheckNodePort"), 0);
        let spec = json!({"type": "LoadBalancer", "ports": [{"port": 80}], "externalTrafficPolicy": "Local",
            "healthCheckNodePort": 31000});
        assert_eq!(
            create(&network, spec, &["nodeport/31000"]),
            Err("spec.healthCheckNodePort: Internal error: failed to allocate requested HealthCheck NodePort \
                 31000: provided port is already allocated"
                .to_owned())
        );
    }
}
