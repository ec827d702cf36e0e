//! The defaults of a Service: constants and, on update, values that the old Service held. The rules
//! call them; they do no I/O.

use super::super::fields::{
    child, default, default_text, has, int, items, list, omit_empty, put, remove, set, text,
};
use super::{
    EXTERNAL_NAME, LOAD_BALANCER, externally_accessible, kind, needs_health_check,
    needs_node_ports, same_list,
};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Fields that a typed server omits if they are empty.
const OMITTED: &[&str] = &[
    "clusterIP",
    "clusterIPs",
    "externalIPs",
    "externalName",
    "externalTrafficPolicy",
    "healthCheckNodePort",
    "ipFamilies",
    "loadBalancerIP",
    "loadBalancerSourceRanges",
    "ports",
    "publishNotReadyAddresses",
    "selector",
    "sessionAffinity",
    "type",
];

pub(super) fn fill(object: &mut Value) {
    let Some(spec) = child(object, "spec") else { return };
    omit_empty(spec, OMITTED);
    default(spec, "sessionAffinity", "None");
    match text(spec, "sessionAffinity") {
        "None" => remove(spec, "sessionAffinityConfig"),
        "ClientIP" if !has(&spec["sessionAffinityConfig"]["clientIP"], "timeoutSeconds") => {
            set(spec, "sessionAffinityConfig", json!({"clientIP": {"timeoutSeconds": 10800}}));
        }
        _ => {}
    }
    default(spec, "type", "ClusterIP");
    for port in items(spec, "ports") {
        omit_empty(port, &["name", "nodePort"]);
        default_text(port, "protocol", "TCP");
        let target = &port["targetPort"];
        if (target.is_null() || *target == 0 || *target == "") && port["port"].is_i64() {
            let number = port["port"].clone();
            set(port, "targetPort", number);
        }
    }
    if externally_accessible(object) {
        default(&mut object["spec"], "externalTrafficPolicy", "Cluster");
    }
    let spec = &mut object["spec"];
    match text(spec, "type") {
        LOAD_BALANCER => {
            default(spec, "internalTrafficPolicy", "Cluster");
            default(spec, "allocateLoadBalancerNodePorts", true);
            for ingress in object
                .get_mut("status")
                .and_then(|status| status.get_mut("loadBalancer"))
                .into_iter()
                .flat_map(|balancer| items(balancer, "ingress"))
            {
                if !text(ingress, "ip").is_empty() {
                    default(ingress, "ipMode", "VIP");
                }
            }
        }
        "ClusterIP" | "NodePort" => default(spec, "internalTrafficPolicy", "Cluster"),
        // An ExternalName has no endpoints to prefer; kube-apiserver hides the field there.
        EXTERNAL_NAME => remove(spec, "internalTrafficPolicy"),
        _ => {}
    }
}

pub(super) fn prepare_create(object: &mut Value) {
    set(object, "status", json!({"loadBalancer": {}}));
    let spec = &mut object["spec"];
    let single = text(spec, "clusterIP").to_owned();
    if !single.is_empty() && list(spec, "clusterIPs").is_empty() {
        set(spec, "clusterIPs", json!([single]));
    }
}

pub(super) fn prepare_update(object: &mut Value, old: &Value) {
    keep_allocated(object, old);
    follow_single(object, old);
    drop_what_the_type_has_no_use_for(object, old);
}

/// Keeps allocated values that the writer does not repeat.
fn keep_allocated(object: &mut Value, old: &Value) {
    if kind(old) != EXTERNAL_NAME && kind(object) != EXTERNAL_NAME {
        let spec = &mut object["spec"];
        if text(spec, "clusterIP").is_empty() {
            put(spec, "clusterIP", old["spec"]["clusterIP"].clone());
        }
        if list(spec, "clusterIPs").is_empty() {
            put(spec, "clusterIPs", old["spec"]["clusterIPs"].clone());
        }
    }
    if wants_node_ports(old) && wants_node_ports(object) {
        let used: BTreeSet<i64> =
            node_ports(old).intersection(&node_ports(object)).copied().collect();
        let by_name: BTreeMap<&str, i64> = list(&old["spec"], "ports")
            .iter()
            .map(|port| (text(port, "name"), int(port, "nodePort")))
            .collect();
        for port in items(&mut object["spec"], "ports") {
            if int(port, "nodePort") == 0
                && let Some(number) = by_name.get(text(port, "name"))
                && *number != 0
                && !used.contains(number)
            {
                set(port, "nodePort", json!(number));
            }
        }
    }
    if needs_health_check(old)
        && needs_health_check(object)
        && int(&object["spec"], "healthCheckNodePort") == 0
    {
        let number = old["spec"]["healthCheckNodePort"].clone();
        put(&mut object["spec"], "healthCheckNodePort", number);
    }
}

/// `clusterIP` is the older name of the first of `clusterIPs`: old clients change only that field.
fn follow_single(object: &mut Value, old: &Value) {
    let same_plural = same_list(object, old, "clusterIPs");
    let before = text(&old["spec"], "clusterIP");
    let spec = &mut object["spec"];
    let now = text(spec, "clusterIP").to_owned();
    if !list(&old["spec"], "clusterIPs").is_empty()
        && list(spec, "clusterIPs").is_empty()
        && before == now
    {
        put(spec, "clusterIPs", old["spec"]["clusterIPs"].clone());
    }
    if before == now || !same_plural {
        return;
    }
    if now.is_empty() {
        remove(spec, "clusterIPs");
    } else {
        set(spec, "clusterIPs", json!([now]));
    }
}

/// Clears fields that a new type does not use, unless the writer changed them too; then validation
/// reports them.
fn drop_what_the_type_has_no_use_for(object: &mut Value, old: &Value) {
    let same = |object: &Value, field: &str| object["spec"][field] == old["spec"][field];
    if kind(old) != EXTERNAL_NAME && kind(object) == EXTERNAL_NAME {
        if same(object, "clusterIP") && same_list(object, old, "clusterIPs") {
            remove(&mut object["spec"], "clusterIP");
            remove(&mut object["spec"], "clusterIPs");
        }
        for field in ["ipFamilies", "ipFamilyPolicy"] {
            if same(object, field) {
                remove(&mut object["spec"], field);
            }
        }
    }
    if needs_node_ports(old)
        && !needs_node_ports(object)
        && node_ports(old).is_superset(&node_ports(object))
    {
        for port in items(&mut object["spec"], "ports") {
            remove(port, "nodePort");
        }
    }
    if needs_health_check(old) && !needs_health_check(object) && same(object, "healthCheckNodePort")
    {
        remove(&mut object["spec"], "healthCheckNodePort");
    }
    if kind(old) == LOAD_BALANCER && kind(object) != LOAD_BALANCER {
        for field in ["allocateLoadBalancerNodePorts", "loadBalancerClass"] {
            if same(object, field) {
                remove(&mut object["spec"], field);
            }
        }
    }
    if externally_accessible(old)
        && !externally_accessible(object)
        && same(object, "externalTrafficPolicy")
    {
        remove(&mut object["spec"], "externalTrafficPolicy");
    }
    if kind(object) != LOAD_BALANCER
        && let Some(status) = child(object, "status")
    {
        set(status, "loadBalancer", json!({}));
    }
}

/// Whether node ports are allocated without a request.
pub(super) fn wants_node_ports(service: &Value) -> bool {
    match kind(service) {
        "NodePort" => true,
        LOAD_BALANCER => service["spec"]["allocateLoadBalancerNodePorts"] != false,
        _ => false,
    }
}

pub(super) fn node_ports(service: &Value) -> BTreeSet<i64> {
    let ports = list(&service["spec"], "ports").iter().map(|port| int(port, "nodePort"));
    ports.filter(|number| *number != 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(spec: Value) -> Value {
        let mut service = json!({"spec": spec});
        fill(&mut service);
        service["spec"].take()
    }

    #[test]
    fn a_plain_service_gets_the_real_servers_defaults() {
        assert_eq!(
            filled(
                json!({"ports": [{"port": 80}, {"port": 53, "protocol": "UDP", "targetPort": "dns"}]})
            ),
            json!({
                "type": "ClusterIP", "sessionAffinity": "None", "internalTrafficPolicy": "Cluster",
                "ports": [
                    {"port": 80, "protocol": "TCP", "targetPort": 80},
                    {"port": 53, "protocol": "UDP", "targetPort": "dns"},
                ],
            })
        );
        assert_eq!(
            filled(json!({"type": "LoadBalancer", "sessionAffinity": "ClientIP"})),
            json!({
                "type": "LoadBalancer", "sessionAffinity": "ClientIP",
                "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 10800}},
                "internalTrafficPolicy": "Cluster", "externalTrafficPolicy": "Cluster",
                "allocateLoadBalancerNodePorts": true,
            })
        );
        assert_eq!(
            filled(
                json!({"type": "ExternalName", "externalName": "a.example", "internalTrafficPolicy": "Cluster"})
            ),
            json!({"type": "ExternalName", "externalName": "a.example", "sessionAffinity": "None"})
        );
        assert_eq!(
            filled(json!({"externalIPs": ["192.0.2.1"]}))["externalTrafficPolicy"],
            "Cluster"
        );
    }

    #[test]
    fn values_of_the_wrong_type_are_left_for_the_schema_to_refuse() {
        for spec in [
            json!("x"),
            json!([1]),
            json!({"ports": "x"}),
            json!({"ports": [1, null, "x", {"port": "http"}]}),
            json!({"type": 7, "sessionAffinity": [], "sessionAffinityConfig": 3, "externalIPs": {}}),
        ] {
            let before = spec.clone();
            let mut service = json!({"spec": spec, "status": {"loadBalancer": "x"}});
            fill(&mut service);
            if service["spec"].is_object() {
                prepare_update(&mut service, &json!({"spec": before}));
                prepare_create(&mut service);
            }
        }
        fill(&mut json!("not an object"));
    }

    #[test]
    fn an_address_in_the_status_is_a_vip_unless_said_otherwise() {
        let mut service = json!({
            "spec": {"type": "LoadBalancer"},
            "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}, {"hostname": "a"}]}},
        });
        fill(&mut service);
        assert_eq!(
            service["status"]["loadBalancer"]["ingress"],
            json!([{"ip": "192.0.2.1", "ipMode": "VIP"}, {"hostname": "a"}])
        );
    }

    fn updated(spec: Value, old: Value) -> Value {
        let mut service =
            json!({"spec": spec, "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.9"}]}}});
        prepare_update(&mut service, &json!({"spec": old}));
        service
    }

    #[test]
    fn a_repeated_manifest_keeps_what_was_given_out() {
        let old = json!({
            "type": "LoadBalancer", "externalTrafficPolicy": "Local", "healthCheckNodePort": 31000,
            "clusterIP": "10.96.0.9", "clusterIPs": ["10.96.0.9"],
            "ports": [{"name": "a", "port": 80, "nodePort": 30080}, {"name": "b", "port": 81, "nodePort": 30081}],
        });
        let new = json!({
            "type": "LoadBalancer", "externalTrafficPolicy": "Local",
            "ports": [{"name": "b", "port": 82}, {"name": "c", "port": 83}],
        });
        let mut expected = old.clone();
        expected["ports"] =
            json!([{"name": "b", "port": 82, "nodePort": 30081}, {"name": "c", "port": 83}]);
        assert_eq!(updated(new, old)["spec"], expected);
    }

    #[test]
    fn a_change_of_type_clears_what_the_new_type_has_no_use_for() {
        let old = json!({
            "type": "LoadBalancer", "externalTrafficPolicy": "Local", "healthCheckNodePort": 31000,
            "clusterIP": "10.96.0.9", "clusterIPs": ["10.96.0.9"], "loadBalancerClass": "a/b",
            "allocateLoadBalancerNodePorts": true, "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack",
            "ports": [{"port": 80, "nodePort": 30080}],
        });
        let mut new = old.clone();
        new["type"] = json!("ClusterIP");
        let service = updated(new.clone(), old.clone());
        assert_eq!(
            service["spec"],
            json!({
                "type": "ClusterIP", "clusterIP": "10.96.0.9", "clusterIPs": ["10.96.0.9"],
                "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack", "ports": [{"port": 80}],
            })
        );
        assert_eq!(service["status"], json!({"loadBalancer": {}}));
        new["type"] = json!("ExternalName");
        assert_eq!(
            updated(new.clone(), old.clone())["spec"],
            json!({"type": "ExternalName", "ports": [{"port": 80}]})
        );
        new["ports"][0]["nodePort"] = json!(30099);
        new["clusterIP"] = json!("10.96.0.10");
        let service = updated(new, old);
        assert_eq!(
            service["spec"]["ports"][0]["nodePort"], 30099,
            "a changed field is judged, not dropped"
        );
        assert_eq!(service["spec"]["clusterIPs"], json!(["10.96.0.10"]));
    }
}
