//! Tests of the validation of Services.

use super::*;

/// A valid Service with these fields of its spec replaced (null removes).
fn with(changes: Value) -> Value {
    let mut service = json!({"spec": {
        "type": "ClusterIP", "sessionAffinity": "None", "internalTrafficPolicy": "Cluster",
        "clusterIP": "10.96.0.9", "clusterIPs": ["10.96.0.9"], "ipFamilies": ["IPv4"],
        "ipFamilyPolicy": "SingleStack",
        "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}],
    }});
    for (key, value) in changes.as_object().unwrap() {
        service["spec"][key] = value.clone();
    }
    service
}

fn said(errors: Vec<FieldError>) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}

fn balancer(changes: Value) -> Value {
    let mut all = json!({
        "type": "LoadBalancer", "externalTrafficPolicy": "Cluster", "allocateLoadBalancerNodePorts": true,
    });
    for (key, value) in changes.as_object().unwrap() {
        all[key] = value.clone();
    }
    with(all)
}

#[test]
fn each_rule_has_the_real_servers_words() {
    let port = |changes: Value| {
        let mut port = json!({"port": 80, "protocol": "TCP", "targetPort": 80});
        for (key, value) in changes.as_object().unwrap() {
            port[key] = value.clone();
        }
        with(json!({"ports": [port]}))
    };
    let cases: Vec<(Value, &[&str])> = vec![
        (with(json!({})), &[]),
        (balancer(json!({})), &[]),
        (with(json!({"ports": []})), &["spec.ports: Required value"]),
        (with(json!({"ports": [], "clusterIP": "None", "clusterIPs": ["None"]})), &[]),
        (
            port(json!({"port": 0})),
            &["spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive"],
        ),
        (
            port(json!({"port": 65536})),
            &["spec.ports[0].port: Invalid value: 65536: must be between 1 and 65535, inclusive"],
        ),
        (
            port(json!({"port": -1})),
            &["spec.ports[0].port: Invalid value: -1: must be between 1 and 65535, inclusive"],
        ),
        (
            port(json!({"protocol": "tcp"})),
            &[
                "spec.ports[0].protocol: Unsupported value: \"tcp\": supported values: \"SCTP\", \"TCP\", \"UDP\"",
            ],
        ),
        (
            port(json!({"targetPort": "a--b"})),
            &[
                "spec.ports[0].targetPort: Invalid value: \"a--b\": must not contain consecutive hyphens",
            ],
        ),
        (
            port(json!({"targetPort": 70000})),
            &[
                "spec.ports[0].targetPort: Invalid value: 70000: must be between 1 and 65535, inclusive",
            ],
        ),
        (
            port(json!({"nodePort": 30000})),
            &["spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'"],
        ),
        (
            with(json!({"ports": [
            {"port": 80, "protocol": "TCP", "targetPort": 80}, {"name": "b", "port": 80, "protocol": "TCP", "targetPort": 80}]})),
            &[
                "spec.ports[0].name: Required value",
                "spec.ports[1]: Duplicate value: {\"Name\":\"\",\"Protocol\":\"TCP\",\"AppProtocol\":null,\"Port\":80,\
            \"TargetPort\":0,\"NodePort\":0}",
            ],
        ),
        (
            with(json!({"ports": [
            {"name": "a", "port": 80, "protocol": "TCP", "targetPort": 80}, {"name": "a", "port": 81, "protocol": "TCP", "targetPort": 80}]})),
            &["spec.ports[1].name: Duplicate value: \"a\""],
        ),
        (
            with(json!({"type": "Weird"})),
            &[
                "spec.type: Unsupported value: \"Weird\": supported values: \"ClusterIP\", \"ExternalName\", \
            \"LoadBalancer\", \"NodePort\"",
            ],
        ),
        (
            balancer(json!({"clusterIP": "None", "clusterIPs": ["None"]})),
            &[
                "spec.clusterIPs[0]: Invalid value: \"None\": may not be set to 'None' for LoadBalancer services",
            ],
        ),
        (
            with(json!({"clusterIP": "10.96.0.8"})),
            &[
                "spec.clusterIPs: Invalid value: [\"10.96.0.9\"]: first value must match `clusterIP`",
            ],
        ),
        (
            with(json!({"clusterIP": "nope", "clusterIPs": ["nope"]})),
            &[
                "spec.clusterIPs[0]: Invalid value: \"nope\": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
            ],
        ),
        (
            with(json!({"clusterIPs": ["10.96.0.9", "10.96.0.10"]})),
            &[
                "spec.clusterIPs: Invalid value: [\"10.96.0.9\",\"10.96.0.10\"]: may specify no more than one IP for each IP family",
            ],
        ),
        (
            with(json!({"ipFamilies": ["IPv6"]})),
            &[
                "spec.clusterIPs[0]: Invalid value: \"10.96.0.9\": expected an IPv6 value as indicated by `ipFamilies[0]`",
            ],
        ),
        (
            with(json!({"ipFamilies": ["IPv4", "IPv4"]})),
            &["spec.ipFamilies[1]: Duplicate value: \"IPv4\""],
        ),
        (
            with(json!({"externalIPs": ["127.0.0.1"], "externalTrafficPolicy": "Cluster"})),
            &[
                "spec.externalIPs[0]: Invalid value: \"127.0.0.1\": may not be in the loopback range (127.0.0.0/8, ::1/128)",
            ],
        ),
        (
            with(json!({"loadBalancerSourceRanges": ["10.0.0.0/8"]})),
            &[
                "spec.LoadBalancerSourceRanges: Forbidden: may only be used when `type` is 'LoadBalancer'",
            ],
        ),
        (
            balancer(json!({"loadBalancerSourceRanges": [" 10.0.0.0/8 ", "x"]})),
            &[
                "spec.LoadBalancerSourceRanges[1]: Invalid value: \"x\": must be a valid CIDR value, (e.g. 10.9.8.0/24 \
            or 2001:db8::/64)",
            ],
        ),
        (
            with(json!({"loadBalancerClass": "a/b"})),
            &["spec.loadBalancerClass: Forbidden: may only be used when `type` is 'LoadBalancer'"],
        ),
        (balancer(json!({"loadBalancerClass": "bowline.dev/lb"})), &[]),
        (
            with(json!({"allocateLoadBalancerNodePorts": true})),
            &[
                "spec.allocateLoadBalancerNodePorts: Forbidden: may only be used when `type` is 'LoadBalancer'",
            ],
        ),
        (
            with(json!({"externalTrafficPolicy": "Local"})),
            &[
                "spec.externalTrafficPolicy: Invalid value: \"Local\": may only be set for externally-accessible services",
            ],
        ),
        (balancer(json!({"externalTrafficPolicy": "Local"})), &[]),
        (
            balancer(json!({"externalTrafficPolicy": "Local", "healthCheckNodePort": 70000})),
            &[
                "spec.healthCheckNodePort: Invalid value: 70000: must be between 1 and 65535, inclusive",
            ],
        ),
        (
            balancer(json!({"healthCheckNodePort": 31000})),
            &[
                "spec.healthCheckNodePort: Invalid value: 31000: may only be set when `type` is 'LoadBalancer' and \
            `externalTrafficPolicy` is 'Local'",
            ],
        ),
        (
            with(
                json!({"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 0}}}),
            ),
            &[
                "spec.sessionAffinityConfig.clientIP.timeoutSeconds: Invalid value: 0: must be greater than 0 and less \
            than 86400",
            ],
        ),
        (
            with(json!({"trafficDistribution": "Far"})),
            &[
                "spec.trafficDistribution: Unsupported value: \"Far\": supported values: \"PreferClose\", \
            \"PreferSameZone\", \"PreferSameNode\"",
            ],
        ),
        (
            json!({"spec": {"type": "ExternalName", "sessionAffinity": "None", "externalName": "a.example.",
            "clusterIPs": ["10.96.0.1"], "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack"}}),
            &[
                "spec.clusterIPs: Forbidden: may not be set for ExternalName services",
                "spec.ipFamilies: Forbidden: may not be set for ExternalName services",
                "spec.ipFamilyPolicy: Forbidden: may not be set for ExternalName services",
            ],
        ),
        (
            json!({"spec": {"type": "ExternalName", "sessionAffinity": "None"}}),
            &["spec.externalName: Required value"],
        ),
    ];
    for (service, expected) in cases {
        assert_eq!(said(super::service(&service, None)), expected, "{service}");
    }
}

#[test]
fn addresses_and_classes_may_not_change() {
    let old = balancer(json!({"loadBalancerClass": "a/b"}));
    let change = |changes: Value| said(service(&balancer(changes), Some(&old)));
    assert_eq!(change(json!({"loadBalancerClass": "a/b"})), Vec::<String>::new());
    assert_eq!(
        change(
            json!({"loadBalancerClass": "a/b", "clusterIP": "10.96.0.10", "clusterIPs": ["10.96.0.10"]})
        ),
        ["spec.clusterIPs[0]: Invalid value: [\"10.96.0.10\"]: may not change once set"]
    );
    assert_eq!(
        change(json!({"loadBalancerClass": "a/c"})),
        ["spec.loadBalancerClass: Invalid value: \"a/c\": may not change once set"]
    );
    assert_eq!(
        change(json!({})),
        ["spec.loadBalancerClass: Invalid value: null: may not change once set"]
    );
    assert_eq!(
        change(json!({"loadBalancerClass": "a/b", "clusterIP": null, "clusterIPs": null})),
        ["spec.clusterIPs[0]: Invalid value: []: primary clusterIP can not be unset",]
    );
}

#[test]
fn nothing_panics_on_values_of_the_wrong_type() {
    for spec in [
        json!(null),
        json!(1),
        json!([]),
        json!({"ports": {"a": 1}, "type": [], "clusterIPs": "x"}),
    ] {
        let object = json!({"spec": spec, "status": []});
        service(&object, Some(&object));
    }
}
