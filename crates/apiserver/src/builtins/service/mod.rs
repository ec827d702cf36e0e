//! The rules of Services: defaults, validation, and allocation of cluster IPs and node ports. They are
//! exactly those of kube-apiserver, because everything behind this API depends on Services. The write
//! path calls them through [`Rules`]; the network is an argument.

mod allocate;
mod defaults;
mod families;
mod status;
mod validate;
mod warnings;

pub(super) use status::{check_hostname, known_ips};
pub(super) use validate::check_port;

use super::fields::{int, list, text, texts};
use super::ip;
use crate::error::FieldError;
use crate::kind::Rules;
use crate::names::{self, NameRule};
use ipnet::IpNet;
use serde_json::Value;
use std::ops::RangeInclusive;

/// Where cluster IPs and node ports of Services come from, and where their endpoints may be.
#[derive(Clone, Debug, PartialEq)]
pub struct ServiceNetwork {
    /// One network, or two of different families for dual stack. The first is the default family.
    pub cluster_cidrs: Vec<IpNet>,
    /// Ports that are opened on every node.
    pub node_ports: RangeInclusive<u16>,
    /// Whether EndpointSlices may contain loopback addresses. kube-apiserver never allows it, because
    /// each node has its own loopback; it makes sense only if everything runs on one machine.
    pub loopback_endpoints: bool,
}

impl Default for ServiceNetwork {
    fn default() -> Self {
        let cidr = ipnet::Ipv4Net::new(std::net::Ipv4Addr::new(10, 96, 0, 0), 12);
        Self {
            cluster_cidrs: cidr.into_iter().map(IpNet::V4).collect(),
            node_ports: 30000..=32767,
            loopback_endpoints: false,
        }
    }
}

/// The rules of Services.
pub struct ServiceRules {
    network: ServiceNetwork,
}

impl ServiceRules {
    /// Rules that allocate addresses and ports from this network.
    pub fn new(network: ServiceNetwork) -> Self {
        Self { network }
    }
}

impl Rules for ServiceRules {
    fn answers_with_deleted(&self) -> bool {
        true
    }

    fn name_rule(&self) -> NameRule {
        names::name_is_label
    }

    fn has_generation(&self) -> bool {
        false
    }

    fn default(&self, object: &mut Value) {
        defaults::fill(object);
    }

    fn prepare_create(&self, object: &mut Value) {
        if object["spec"].is_object() {
            defaults::prepare_create(object);
        }
    }

    fn prepare_update(&self, object: &mut Value, old: &Value) {
        if object["spec"].is_object() {
            defaults::prepare_update(object, old);
        }
    }

    fn allocate(
        &self,
        object: &mut Value,
        old: Option<&Value>,
        taken: &dyn Fn(&str) -> bool,
    ) -> Result<(), Vec<FieldError>> {
        if !object["spec"].is_object() {
            return Ok(());
        }
        families::settle(object, old, &self.network)?;
        allocate::allocate(object, old, &self.network, taken)
    }

    fn claims(&self, object: &Value) -> Vec<String> {
        let spec = &object["spec"];
        let ips = texts(spec, "clusterIPs");
        let ports = list(spec, "ports").iter().map(|port| int(port, "nodePort"));
        let ports = ports.chain([int(spec, "healthCheckNodePort")]).filter(|port| *port != 0);
        let mut claims: Vec<String> = ips
            .into_iter()
            .filter_map(ip::parse)
            .map(|ip| format!("clusterip/{ip}"))
            .chain(ports.map(|port| format!("nodeport/{port}")))
            .collect();
        // One number may serve several protocols of one Service.
        claims.sort();
        claims.dedup();
        claims
    }

    fn validate(&self, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
        validate::service(object, old)
    }

    fn validate_status(&self, object: &Value, old: &Value) -> Vec<FieldError> {
        status::status(object, old)
    }

    fn warnings(&self, object: &Value, _old: Option<&Value>) -> Vec<String> {
        warnings::warnings(object)
    }
}

const EXTERNAL_NAME: &str = "ExternalName";
const LOAD_BALANCER: &str = "LoadBalancer";

fn kind(service: &Value) -> &str {
    text(&service["spec"], "type")
}

fn is_headless(service: &Value) -> bool {
    texts(&service["spec"], "clusterIPs") == ["None"]
}

fn needs_node_ports(service: &Value) -> bool {
    matches!(kind(service), "NodePort" | LOAD_BALANCER)
}

fn needs_health_check(service: &Value) -> bool {
    kind(service) == LOAD_BALANCER && text(&service["spec"], "externalTrafficPolicy") == "Local"
}

fn externally_accessible(service: &Value) -> bool {
    needs_node_ports(service)
        || (kind(service) == "ClusterIP" && !list(&service["spec"], "externalIPs").is_empty())
}

/// Whether a list field is equal in both. Absent counts as empty.
fn same_list(one: &Value, other: &Value, field: &str) -> bool {
    list(&one["spec"], field) == list(&other["spec"], field)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// The default network with these cluster CIDRs.
    pub(super) fn network(cidrs: &[&str]) -> ServiceNetwork {
        ServiceNetwork {
            cluster_cidrs: cidrs.iter().map(|c| c.parse().unwrap()).collect(),
            ..ServiceNetwork::default()
        }
    }

    #[test]
    fn claims_name_each_address_and_port_once() {
        let service = json!({"spec": {
            "clusterIPs": ["10.96.0.7", "fd00::7"],
            "healthCheckNodePort": 31000,
            "ports": [
                {"port": 53, "protocol": "TCP", "nodePort": 30053},
                {"port": 53, "protocol": "UDP", "nodePort": 30053},
                {"port": 80},
            ],
        }});
        let rules = ServiceRules::new(ServiceNetwork::default());
        assert_eq!(
            rules.claims(&service),
            ["clusterip/10.96.0.7", "clusterip/fd00::7", "nodeport/30053", "nodeport/31000"]
        );
        assert_eq!(rules.claims(&json!({"spec": {"clusterIPs": ["None"]}})), Vec::<String>::new());
        assert_eq!(rules.claims(&json!("not a service")), Vec::<String>::new());
    }
}
