//! Services as kube2lb sees them: all of type LoadBalancer and NodePort, with kube2lb's annotations. A value that a
//! template must not get keeps the Service out, with a [`Problem`] that says so.

use super::read::{Annotations, bad_tuning, bad_value, created, key, tuned, uid};
use super::service::{exposure, families, service_port, source_ranges, timeouts, vips};
use crate::annotation_keys::{self, EXTERNAL_DOMAINS, Found, PORT_MODE};
use bowline_core::exposed::text::{ServerName, is_mode};
use bowline_core::exposed::{Port, Service};
use bowline_core::objects::{self, Exposure, Family};
use bowline_core::outcome::{Problem, Reason, quote};
use k8s_openapi::api::core::v1;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The most further names of a Service.
const MOST_NAMES: usize = 1000;

/// A Service as a template gets it. None: it is not exposed.
pub fn exposed(service: &v1::Service) -> Option<Service> {
    let spec = service.spec.as_ref()?;
    let meta = &service.metadata;
    let no_annotations = Annotations::new();
    let all = meta.annotations.as_ref().unwrap_or(&no_annotations);
    let balanced = match exposure(spec) {
        Exposure::LoadBalancer => true,
        Exposure::NodePort => false,
        Exposure::ClusterIp | Exposure::ExternalName => return None,
    };
    let (mut problems, mut refused) = (Vec::new(), None);
    let mut or_refuse = |problem| {
        refused.get_or_insert(problem);
    };
    let ports = spec.ports.iter().flatten();
    let ports: Vec<_> = ports.filter_map(|port| service_port(port, &mut problems)).collect();
    let modes = modes(all, &ports, &mut problems).unwrap_or_else(|problem| {
        or_refuse(problem);
        BTreeMap::new()
    });
    let external = external(all).unwrap_or_else(|problem| {
        or_refuse(problem);
        Vec::new()
    });
    let source_ranges = if balanced { source_ranges(spec, all) } else { Ok(Vec::new()) };
    let source_ranges = source_ranges.unwrap_or_else(|problem| {
        or_refuse(problem);
        Vec::new()
    });
    let family = families(spec).first().copied().unwrap_or(Family::V4);
    let vips = if balanced { vips(spec, all) } else { Ok(Vec::new()) };
    let vips = vips.unwrap_or_else(|problem| {
        or_refuse(problem);
        Vec::new()
    });
    let timeouts = timeouts(all, &ports, &mut problems);
    problems.extend(annotation_keys::unknown(all));
    let ports = ports.into_iter().map(|port| Port {
        mode: modes.get(&port.name).cloned(),
        timeout_ms: timeouts.get(&port.name).and_then(|timeouts| timeouts.backend_ms),
        name: port.name,
        number: port.number,
        transport: port.transport,
        node_port: port.node_port,
    });
    Some(Service {
        key: key(meta),
        uid: uid(meta),
        created: created(meta),
        address: vips.iter().find(|ip| Family::of(**ip) == family).or(vips.first()).copied(),
        family,
        ports: ports.collect(),
        external,
        source_ranges,
        refused,
        problems,
    })
}

/// A text that is not a map counts as no map, as with kube2lb. A mode that is not a word keeps the Service out.
fn modes(
    all: &Annotations,
    ports: &[objects::ServicePort],
    problems: &mut Vec<Problem>,
) -> Result<BTreeMap<Arc<str>, Arc<str>>, Problem> {
    let read = tuned(all, &PORT_MODE, problems, |found| {
        serde_json::from_str::<BTreeMap<String, String>>(found.value).map_err(|_| {
            "is not a JSON map of port names to modes, such as {\"mysql\":\"tcp\"}".into()
        })
    });
    let (Some(read), Some(found)) = (read, annotation_keys::read(all, &PORT_MODE)) else {
        return Ok(BTreeMap::new());
    };
    let mut modes = BTreeMap::new();
    let mut strangers = Vec::new();
    for (name, mode) in read {
        let mode = mode.to_lowercase();
        if !is_mode(&mode) {
            let why = format!("has {}, which is not a mode such as http or tcp", quote(&mode));
            return Err(refused(found, &why));
        }
        match ports.iter().find(|port| *port.name == *name) {
            Some(port) => drop(modes.insert(port.name.clone(), mode.into())),
            None => strangers.push(name),
        }
    }
    if let Some(name) = strangers.first() {
        problems.push(bad_tuning(
            found,
            &format!("names {}, which is not a port of the Service", quote(name)),
        ));
    }
    Ok(modes)
}

fn external(all: &Annotations) -> Result<Vec<ServerName>, Problem> {
    let Some(found) = annotation_keys::read(all, &EXTERNAL_DOMAINS) else { return Ok(Vec::new()) };
    if found.value.trim().is_empty() {
        return Ok(Vec::new());
    }
    let names: Vec<&str> = found.value.split(',').map(str::trim).collect();
    if names.len() > MOST_NAMES {
        return Err(refused(found, &format!("has more than {MOST_NAMES} names")));
    }
    let read = |name: &&str| {
        name.parse()
            .map_err(|why| refused(Found { key: found.key, value: name }, &format!("{why}")))
    };
    names.iter().map(read).collect()
}

fn refused(found: Found<'_>, why: &str) -> Problem {
    let Problem { message, .. } = bad_value(found.key, found.value, why);
    Problem::new(Reason::BadValue, format!("{message}; the Service is left out"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::convert::testing::{HOSTILE, annotated, bad_tuning, bad_value, object};
    use bowline_core::ObjectKey;
    use bowline_core::plan::Transport;

    const PLAIN: &str = "
metadata: {namespace: shop, name: web, uid: u1, creationTimestamp: '1970-01-01T00:01:00Z'}
spec:
  type: NodePort
  ipFamilies: [IPv4]
  ports: [{name: http, port: 80, nodePort: 30080}, {name: mysql, port: 3306}]
";

    fn port(name: &str, number: u16) -> Port {
        Port {
            name: name.into(),
            number,
            transport: Transport::Tcp,
            node_port: None,
            mode: None,
            timeout_ms: None,
        }
    }

    fn plain() -> Service {
        Service {
            key: ObjectKey::new("shop", "web"),
            uid: "u1".into(),
            created: 60,
            address: None,
            family: Family::V4,
            ports: vec![Port { node_port: Some(30080), ..port("http", 80) }, port("mysql", 3306)],
            external: vec![],
            source_ranges: vec![],
            refused: None,
            problems: vec![],
        }
    }

    fn noted(pairs: &[(&str, &str)]) -> Service {
        exposed(&annotated(PLAIN, pairs)).expect("an exposed Service")
    }

    #[test]
    fn only_load_balancers_and_node_ports_are_exposed() {
        assert_eq!(exposed(&object(PLAIN)), Some(plain()));
        for other in ["ClusterIP", "ExternalName"] {
            assert_eq!(exposed(&object(&PLAIN.replace("NodePort", other))), None);
        }
        let class =
            "LoadBalancer\n  loadBalancerClass: somebody.else/lb\n  loadBalancerIP: 192.0.2.7";
        let address = Some("192.0.2.7".parse().unwrap());
        let balanced = exposed(&object(&PLAIN.replace("NodePort", class)));
        assert_eq!(balanced, Some(Service { address, ..plain() }));
    }

    #[test]
    fn the_annotations_of_kube2lb_are_read_in_both_spellings() {
        let mut expected = plain();
        expected.ports[1].mode = Some("tcp".into());
        expected.ports[0].timeout_ms = Some(20_000);
        expected.external = vec![
            "test.example.com".parse().unwrap(),
            r"~^(a|b)\.example\.(com|net)$".parse().unwrap(),
        ];
        for prefix in ["kube2lb", "bowline.dev"] {
            let key = |name: &str| format!("{prefix}/{name}");
            let read = noted(&[
                (&key("port-mode"), r#"{ "mysql": "TCP" }"#),
                (&key("backend-timeout"), r#"{ "http": 20000 }"#),
                (&key("external-domains"), r"test.example.com, ~^(a|b)\.example\.(com|net)$"),
            ]);
            assert_eq!(read, expected);
        }
    }

    #[test]
    fn what_is_no_map_counts_as_none_and_what_a_template_must_not_see_keeps_the_service_out() {
        let map = "kube2lb/port-mode: \"tcp\" is not a JSON map of port names to modes, such as \
                   {\"mysql\":\"tcp\"}";
        let expected = Service { problems: vec![bad_tuning(map)], ..plain() };
        assert_eq!(noted(&[("kube2lb/port-mode", "tcp")]), expected);
        let mode = r#"{"http":"http\n  bind :81"}"#;
        let why = "kube2lb/port-mode: \"{\\\"http\\\":\\\"http\\\\n  bind :81\\\"}\" has \"http\\n  bind \
                   :81\", which is not a mode such as http or tcp; the Service is left out";
        let expected = Service { refused: Some(bad_value(why)), ..plain() };
        assert_eq!(noted(&[("kube2lb/port-mode", mode)]), expected);
    }

    #[test]
    fn hostile_names_keep_the_service_out() {
        for text in HOSTILE.iter().filter(|text| !text.trim().is_empty()) {
            let read = noted(&[("kube2lb/external-domains", &format!("ok.example,{text}"))]);
            let harmless = ["true ", "TRUE", "null", "1e309", "999999999999999999999"];
            assert_eq!(read.refused.is_none(), harmless.contains(text), "{text:?} {read:?}");
        }
    }
}
