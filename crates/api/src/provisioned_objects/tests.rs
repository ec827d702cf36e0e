//! Tests of the objects that are rendered for a load balancer, and of their comparison with
//! existing ones.

use super::*;
use crate::LoadBalancerClass;

fn made(source: &Value) -> Made {
    let mut spec = json!({"httpPort": 80, "httpsPort": 443});
    if let (Some(spec), Value::Object(source)) = (spec.as_object_mut(), source.clone()) {
        spec.extend(source);
    }
    let object = json!({
        "apiVersion": "bowline.dev/v1alpha1", "kind": "LoadBalancer",
        "metadata": {
            "name": "lbc-1", "uid": "u",
            "annotations": {
                names::ANNOTATION_PROVISIONED_FOR: "shop/web/c",
                names::ANNOTATION_PROXY_NAMESPACE: "kube-system",
            },
        },
        "spec": spec,
    });
    Made::of(&serde_json::from_value(object).unwrap()).unwrap()
}

fn wish(source: &Value, class: &Value) -> Wish {
    let class = json!({
        "apiVersion": "bowline.dev/v1alpha1", "kind": "LoadBalancerClass",
        "metadata": {"name": "bronze"}, "spec": class,
    });
    let class: LoadBalancerClass = serde_json::from_value(class).unwrap();
    let listeners = [(53, Transport::Udp), (80, Transport::Tcp)].into();
    let images = Images::default();
    Wish::new(made(source), "bowline-system", &class.spec, listeners, images)
}

fn builtin() -> Wish {
    wish(&json!({"builtin": {}}), &json!({"builtin": {}, "replicas": 3}))
}

#[test]
fn every_part_belongs_to_its_load_balancer_and_is_called_after_it() {
    let wish = builtin();
    let places: Vec<_> = Part::ALL
        .iter()
        .filter_map(|part| wish.object(*part))
        .map(|it| {
            assert!(wish.made.owns(&it), "{it}");
            assert_eq!(it["metadata"]["labels"][names::LABEL_LOAD_BALANCER], "lbc-1");
            let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
            let (namespace, name) = (&it["metadata"]["namespace"], &it["metadata"]["name"]);
            format!("{} {}/{}", text(&it["kind"]), text(namespace), text(name))
        })
        .collect();
    assert_eq!(
        places,
        [
            "ServiceAccount kube-system/lbc-1",
            "Role bowline-system/bowline-proxy-lbc-1",
            "RoleBinding bowline-system/bowline-proxy-lbc-1",
            "PodDisruptionBudget kube-system/lbc-1",
            "NetworkPolicy kube-system/lbc-1",
            "Deployment kube-system/lbc-1",
            "Service kube-system/lbc-1",
        ]
    );
}

#[test]
fn every_part_reads_as_its_kind_with_no_field_too_many() {
    fn again<T: serde::de::DeserializeOwned + serde::Serialize>(object: &Value) -> Value {
        serde_json::to_value(serde_json::from_value::<T>(object.clone()).unwrap()).unwrap()
    }
    use k8s_openapi::api::{apps, core, networking, policy, rbac};
    let haproxy = json!({"bareMetalLoadBalancer": {"type": "Haproxy", "serviceName": "lbc-1"}});
    let nginx = json!({"bareMetalLoadBalancer": {"type": "Nginx", "serviceName": "lbc-1"}});
    for source in [json!({"builtin": {}}), haproxy, nginx] {
        let wish = wish(&source, &json!({"builtin": {}, "addressPool": "public"}));
        for part in Part::ALL {
            let Some(object) = wish.object(part) else { continue };
            let read = match part {
                Part::Lease => continue,
                Part::Account => again::<core::v1::ServiceAccount>(&object),
                Part::Rights => again::<rbac::v1::Role>(&object),
                Part::Grant => again::<rbac::v1::RoleBinding>(&object),
                Part::Budget => again::<policy::v1::PodDisruptionBudget>(&object),
                Part::Fence => again::<networking::v1::NetworkPolicy>(&object),
                Part::Proxies => again::<apps::v1::Deployment>(&object),
                Part::Door => again::<core::v1::Service>(&object),
            };
            assert_eq!(read, object);
        }
    }
}

#[test]
fn the_service_has_the_ports_of_ingresses_and_of_all_listeners() {
    let door = builtin().object(Part::Door).unwrap();
    let ports = door["spec"]["ports"].as_array().unwrap();
    let names: Vec<_> = ports.iter().map(|port| port["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["udp-53", "tcp-80", "tcp-443"]);
    assert_eq!(door["spec"]["loadBalancerClass"], Value::Null);
    let pooled = wish(&json!({"builtin": {}}), &json!({"builtin": {}, "addressPool": "public"}));
    let door = pooled.object(Part::Door).unwrap();
    assert_eq!(door["spec"]["loadBalancerClass"], "bowline.dev/lb");
    assert_eq!(door["metadata"]["annotations"], json!({"bowline.dev/address-pool": "public"}));
    assert_eq!(pooled.change(Part::Door).unwrap()["spec"]["loadBalancerClass"], Value::Null);
}

#[test]
fn the_agents_own_port_is_led_to_by_nobody() {
    let mut wish = builtin();
    wish.listeners = [(9180, Transport::Tcp), (9180, Transport::Udp)].into();
    let door = wish.object(Part::Door).unwrap();
    let ports = door["spec"]["ports"].as_array().unwrap();
    let names: Vec<_> = ports.iter().map(|port| port["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["tcp-80", "tcp-443", "udp-9180"]);
}

#[test]
fn the_agent_is_asked_how_it_is_at_addresses_of_both_families() {
    let proxies = builtin().object(Part::Proxies).unwrap();
    let agent = &proxies["spec"]["template"]["spec"]["containers"][0];
    let args = agent["args"].as_array().unwrap();
    assert!(args.contains(&json!("--admin=[::]:9180")), "{args:?}");
}

#[test]
fn the_agent_has_the_token_and_the_proxy_beside_it_has_none() {
    for kind in ["Haproxy", "Nginx"] {
        let source = json!({"bareMetalLoadBalancer": {"type": kind, "serviceName": "lbc-1"}});
        let wish = wish(&source, &json!({"builtin": {}}));
        let account = wish.object(Part::Account).unwrap();
        assert_eq!(account["automountServiceAccountToken"], false);
        let proxies = wish.object(Part::Proxies).unwrap();
        let pod = &proxies["spec"]["template"]["spec"];
        assert_eq!(pod["automountServiceAccountToken"], false);
        let mounts = |container: &Value| -> Vec<String> {
            let mounts = container["volumeMounts"].as_array().unwrap();
            mounts.iter().map(|it| it["mountPath"].as_str().unwrap().to_owned()).collect()
        };
        let token = "/var/run/secrets/kubernetes.io/serviceaccount";
        assert_eq!(mounts(&pod["initContainers"][0]), ["/run/bowline", token, "/var/lib/bowline"]);
        assert_eq!(mounts(&pod["containers"][0]), ["/run/bowline"]);
        let paths = pod["volumes"][1]["projected"]["sources"].to_string();
        for path in ["\"token\"", "\"ca.crt\"", "\"namespace\""] {
            assert!(paths.contains(path), "{paths}");
        }
    }
    let proxies = builtin().object(Part::Proxies).unwrap();
    let pod = &proxies["spec"]["template"]["spec"];
    assert_eq!(pod["containers"][0]["volumeMounts"][0]["name"], pod["volumes"][0]["name"]);
}

#[test]
fn what_somebody_opens_to_the_node_is_a_difference_and_what_is_closed_anyway_is_none() {
    let wanted = builtin().object(Part::Proxies).unwrap();
    let mut found = wanted.clone();
    let pod = found["spec"]["template"]["spec"].as_object_mut().unwrap();
    // As the API stores it: fields that are false are left out.
    pod.retain(|_, value| *value != json!(false));
    pod["containers"][0]["securityContext"].as_object_mut().unwrap().remove("privileged");
    assert!(covers(&found, &wanted));
    for key in ["hostNetwork", "hostPID", "hostIPC"] {
        let mut opened = found.clone();
        opened["spec"]["template"]["spec"][key] = json!(true);
        assert!(!covers(&opened, &wanted), "{key}");
    }
    found["spec"]["template"]["spec"]["containers"][0]["securityContext"]["privileged"] =
        json!(true);
    assert!(!covers(&found, &wanted));
}

#[test]
fn agents_read_the_secrets_of_their_own_load_balancer_alone() {
    let rights = builtin().object(Part::Rights).unwrap();
    for rule in rights["rules"].as_array().unwrap() {
        if rule["resources"] == json!(["secrets"]) {
            let names = rule["resourceNames"].as_array().unwrap();
            assert!(names.iter().all(|it| it.as_str().unwrap().contains("-lbc-1")), "{names:?}");
        }
    }
}

#[test]
fn a_proxy_that_is_a_program_has_the_agent_as_its_sidecar() {
    let source = json!({"bareMetalLoadBalancer": {"type": "Nginx", "serviceName": "lbc-1"}});
    let proxies = wish(&source, &json!({"builtin": {}})).object(Part::Proxies).unwrap();
    let pod = &proxies["spec"]["template"]["spec"];
    assert_eq!(pod["initContainers"][0]["restartPolicy"], "Always");
    let args = pod["initContainers"][0]["args"].as_array().unwrap();
    assert!(args.contains(&json!("--driver=nginx")), "{args:?}");
    assert_eq!(pod["containers"][0]["name"], "nginx");
    assert_eq!(pod["shareProcessNamespace"], true);
    assert_eq!(proxies["spec"]["replicas"], 2);
}

#[test]
fn what_the_api_adds_is_no_difference_and_what_somebody_edits_is() {
    let wanted = builtin().object(Part::Proxies).unwrap();
    let mut found = wanted.clone();
    found["metadata"]["resourceVersion"] = json!("7");
    found["spec"]["template"]["spec"]["containers"][0]["imagePullPolicy"] = json!("Always");
    assert!(covers(&found, &wanted));
    let containers = &mut found["spec"]["template"]["spec"]["containers"];
    containers.as_array_mut().unwrap().push(json!({"name": "another"}));
    assert!(!covers(&found, &wanted));
    let mut found = wanted.clone();
    found["spec"]["replicas"] = json!(1);
    assert!(!covers(&found, &wanted));
}

#[test]
fn a_deployment_counts_its_copies_once_it_has_seen_what_is_wanted() {
    let deployment = |seen: u32, conditions: Value| {
        json!({
            "metadata": {"generation": 2}, "spec": {"replicas": 2},
            "status": {
                "observedGeneration": seen, "readyReplicas": 2, "updatedReplicas": 1,
                "conditions": conditions,
            },
        })
    };
    let rolled =
        |ready, stuck: Option<&str>| Rollout { wanted: 2, ready, stuck: stuck.map(Into::into) };
    assert_eq!(rollout(&deployment(2, json!([]))), rolled(1, None));
    assert_eq!(rollout(&deployment(1, json!([]))), rolled(0, None));
    let stuck = json!([{"type": "Progressing", "status": "False", "message": "too long"}]);
    assert_eq!(rollout(&deployment(2, stuck)), rolled(1, Some("too long")));
}
