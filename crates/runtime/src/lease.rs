//! What an agent says about itself in its Lease: the plan it has applied, what it could not do, where it
//! can be reached. The agent writes it, the leader and whoever looks on read it; all use this one
//! spelling.

use bowline_api::names;
use bowline_core::hash::PlanHash;
use bowline_core::key::ConsumerKind;
use bowline_core::status::MOST_ADDRESSES;
use bowline_core::update::{Extent, Refusal};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// An agent that has been silent for longer counts as gone.
pub(crate) const DURATION_SECONDS: u32 = 15;
/// Refusals take no more bytes than this; all annotations of an object together may have 256 KiB.
const MOST_BYTES: usize = 128 * 1024;

/// What an agent says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The plan in force; None: none yet.
    pub hash: Option<PlanHash>,
    /// Why the plan could not be applied.
    pub error: Option<String>,
    /// What it could not do for whom.
    pub refused: Vec<Refusal>,
    /// How many refusals a Lease has no room for. An agent knows all of its own.
    pub unlisted: usize,
    /// Where it can be reached, for a load balancer without fixed addresses.
    pub addresses: Vec<IpAddr>,
}

impl Report {
    /// The merge patch that puts this into a Lease. Fields that say nothing are taken away.
    pub(crate) fn patch(&self, holder: &str, now: Timestamp) -> Value {
        let (refused, unlisted) = list(&self.refused);
        let addresses = (!self.addresses.is_empty())
            .then(|| self.addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(","));
        json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"annotations": {
                names::ANNOTATION_PLAN_HASH: self.hash.map(|hash| hash.to_string()),
                names::ANNOTATION_ERROR: self.error,
                names::ANNOTATION_REFUSED: refused,
                names::ANNOTATION_REFUSED_UNLISTED: (unlisted > 0).then(|| unlisted.to_string()),
                names::ANNOTATION_ADDRESSES: addresses,
            }},
            "spec": {
                "holderIdentity": holder,
                "leaseDurationSeconds": DURATION_SECONDS,
                "renewTime": format!("{now:.6}"),
            },
        })
    }

    /// What a Lease says. What cannot be read counts as not said, and a refusal that cannot be read as
    /// one that is not listed: the agent proves less, never more.
    pub fn read(lease: &Lease) -> Self {
        let annotation = |key: &str| {
            lease.metadata.annotations.as_ref().and_then(|all| all.get(key)).map(String::as_str)
        };
        let all = annotation(names::ANNOTATION_REFUSED)
            .map_or(Ok(Vec::new()), serde_json::from_str::<Vec<Value>>)
            .unwrap_or_else(|_| vec![Value::Null]);
        let told = all.len();
        let refused: Vec<Refusal> =
            all.into_iter().filter_map(|one| serde_json::from_value(one).ok()).collect();
        let unlisted = annotation(names::ANNOTATION_REFUSED_UNLISTED)
            .map_or(0, |text| text.parse::<usize>().unwrap_or(1));
        Self {
            hash: annotation(names::ANNOTATION_PLAN_HASH).and_then(|text| text.parse().ok()),
            error: annotation(names::ANNOTATION_ERROR).map(ToOwned::to_owned),
            unlisted: unlisted + told - refused.len(),
            refused,
            addresses: annotation(names::ANNOTATION_ADDRESSES)
                .unwrap_or_default()
                .split(',')
                .filter_map(|text| text.trim().parse().ok())
                .take(MOST_ADDRESSES)
                .collect(),
        }
    }
}

/// The refusals as JSON, as many as there is room for, and how many more keep something from being
/// served. What concerns all comes first and mere parts last; a consumer is listed with all of its
/// refusals or not at all.
fn list(refused: &[Refusal]) -> (Option<String>, usize) {
    let mut groups: BTreeMap<_, Vec<String>> = BTreeMap::new();
    for refusal in refused {
        let part = refusal.extent == Extent::Part;
        let shared = refusal.consumer.kind == ConsumerKind::LoadBalancer;
        let Ok(text) = serde_json::to_string(refusal) else { continue };
        groups.entry((part, !shared, &refusal.consumer)).or_default().push(text);
    }
    let (mut listed, mut bytes, mut unlisted) = (Vec::new(), 2, 0);
    for ((part, ..), texts) in groups {
        bytes += texts.iter().map(|text| text.len() + 1).sum::<usize>();
        if bytes <= MOST_BYTES {
            listed.extend(texts);
        } else if !part {
            unlisted += texts.len();
        }
    }
    ((!listed.is_empty()).then(|| format!("[{}]", listed.join(","))), unlisted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bowline_core::key::ConsumerRef;
    use bowline_core::outcome::{Problem, Reason};
    use bowline_core::plan::Transport;
    use bowline_core::update::ListenerKey;

    fn listener(address: [u8; 4], port: u16) -> Extent {
        let address = address.into();
        Extent::Listener(ListenerKey { address, port, transport: Transport::Tcp })
    }

    fn refusal(kind: ConsumerKind, name: &str, extent: Extent) -> Refusal {
        let consumer =
            ConsumerRef { kind, namespace: "shop".into(), name: name.into(), uid: name.into() };
        let problem = Problem::new(Reason::BindFailed, "127.0.0.1:80: permission denied");
        Refusal { consumer, problem, extent }
    }

    fn told(report: &Report) -> Report {
        let mut patch = report.patch("me", Timestamp::UNIX_EPOCH);
        let annotations = patch["metadata"]["annotations"].as_object_mut().unwrap();
        annotations.retain(|_, value| !value.is_null());
        Report::read(&serde_json::from_value(patch).unwrap())
    }

    #[test]
    fn what_an_agent_says_is_read_back() {
        let report = Report {
            hash: Some(PlanHash::default()),
            error: Some("no".to_owned()),
            refused: vec![
                refusal(ConsumerKind::Service, "all", Extent::All),
                refusal(ConsumerKind::Service, "one", listener([127, 0, 0, 1], 80)),
                refusal(ConsumerKind::Ingress, "part", Extent::Part),
            ],
            unlisted: 0,
            addresses: vec!["127.0.0.1".parse().unwrap(), "::1".parse().unwrap()],
        };
        assert_eq!(told(&report), report);
    }

    #[test]
    fn what_cannot_be_read_counts_as_not_said() {
        let lease = json!({"metadata": {"annotations": {
            names::ANNOTATION_PLAN_HASH: "x",
            names::ANNOTATION_REFUSED: r#"[{"reason": "FromTheFuture"}]"#,
            names::ANNOTATION_ADDRESSES: "localhost",
        }}});
        let lease = serde_json::from_value(lease).unwrap();
        assert_eq!(Report::read(&lease), Report { unlisted: 1, ..Report::default() });
    }

    #[test]
    fn many_refusals_are_told_and_those_without_room_are_counted() {
        let name = |n: u16| format!("service-{n:05}");
        let service =
            |n: u16| refusal(ConsumerKind::Service, &name(n), listener([127, 0, 0, 1], n));
        let mut refused: Vec<_> = (0..300).map(service).collect();
        let all = Report { refused: refused.clone(), ..Report::default() };
        assert_eq!(told(&all), all);

        refused.extend((300..5000).map(service));
        // Two of one consumer are listed together or not at all.
        refused.extend(
            (0..5000)
                .map(|n| refusal(ConsumerKind::Service, &name(n), listener([127, 0, 0, 2], n))),
        );
        refused.push(refusal(ConsumerKind::Ingress, "part", Extent::Part));
        refused.push(refusal(ConsumerKind::LoadBalancer, "edge", listener([127, 0, 0, 1], 443)));
        let all = Report { refused, ..Report::default() };
        let patch = all.patch("me", Timestamp::UNIX_EPOCH);
        let size = patch["metadata"]["annotations"].to_string().len();
        assert!(size < 256 * 1024, "{size}");
        let told = told(&all);
        assert_eq!(told.refused.len() + told.unlisted, 10_001, "all but the part");
        assert_eq!(told.refused[0].consumer.kind, ConsumerKind::LoadBalancer);
        let mut counts = BTreeMap::new();
        for refusal in &told.refused[1..] {
            *counts.entry(&refusal.consumer).or_insert(0) += 1;
        }
        assert!(counts.len() > 200 && counts.values().all(|count| *count == 2), "{counts:?}");
    }

    #[test]
    fn no_more_addresses_are_believed_than_a_status_can_show() {
        let addresses = (0..20).map(|n| IpAddr::from([192, 0, 2, n])).collect();
        let report = Report { addresses, ..Report::default() };
        assert_eq!(told(&report).addresses.len(), 16);
    }
}
