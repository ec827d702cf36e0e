//! What an agent says about itself in its Lease: the plan it has applied, what it could not do, where it
//! can be reached. The agent writes it, the leader reads it; both use this one spelling.

use bowline_api::names;
use bowline_core::hash::PlanHash;
use bowline_core::update::Refusal;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use std::net::IpAddr;

/// An agent that has been silent for longer counts as gone.
pub(crate) const DURATION_SECONDS: u32 = 15;
/// Refusals beyond these are counted, not told: an annotation has a limit.
const MOST_REFUSALS: usize = 50;

/// What an agent says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Report {
    /// The plan in force; None: none yet.
    pub(crate) hash: Option<PlanHash>,
    /// Why the plan could not be applied.
    pub(crate) error: Option<String>,
    /// What it could not do for whom.
    pub(crate) refused: Vec<Refusal>,
    /// Where it can be reached, for a load balancer without fixed addresses.
    pub(crate) addresses: Vec<IpAddr>,
}

impl Report {
    /// The merge patch that puts this into a Lease. Fields that say nothing are taken away.
    pub(crate) fn patch(&self, holder: &str, now: Timestamp) -> Value {
        let first = &self.refused[..self.refused.len().min(MOST_REFUSALS)];
        let refused = (!first.is_empty()).then(|| serde_json::to_string(first).unwrap_or_default());
        let addresses = (!self.addresses.is_empty())
            .then(|| self.addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(","));
        json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"annotations": {
                names::ANNOTATION_PLAN_HASH: self.hash.map(|hash| hash.to_string()),
                names::ANNOTATION_ERROR: self.error,
                names::ANNOTATION_REFUSED: refused,
                names::ANNOTATION_ADDRESSES: addresses,
            }},
            "spec": {
                "holderIdentity": holder,
                "leaseDurationSeconds": DURATION_SECONDS,
                "renewTime": format!("{now:.6}"),
            },
        })
    }

    /// What a Lease says. What cannot be read counts as not said: the agent proves less, never more.
    pub(crate) fn read(lease: &Lease) -> Self {
        let annotation = |key: &str| {
            lease.metadata.annotations.as_ref().and_then(|all| all.get(key)).map(String::as_str)
        };
        let refused = annotation(names::ANNOTATION_REFUSED)
            .and_then(|text| serde_json::from_str::<Vec<Value>>(text).ok())
            .unwrap_or_default();
        Self {
            hash: annotation(names::ANNOTATION_PLAN_HASH).and_then(|text| text.parse().ok()),
            error: annotation(names::ANNOTATION_ERROR).map(ToOwned::to_owned),
            refused: refused.into_iter().filter_map(|v| serde_json::from_value(v).ok()).collect(),
            addresses: annotation(names::ANNOTATION_ADDRESSES)
                .unwrap_or_default()
                .split(',')
                .filter_map(|text| text.trim().parse().ok())
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bowline_core::key::{ConsumerKind, ConsumerRef};
    use bowline_core::outcome::{Problem, Reason};

    #[test]
    fn what_an_agent_says_is_read_back() {
        let consumer = ConsumerRef {
            kind: ConsumerKind::Service,
            namespace: "shop".into(),
            name: "web".into(),
            uid: "u".into(),
        };
        let problem = Problem::new(Reason::BindFailed, "127.0.0.1:80: permission denied");
        let report = Report {
            hash: Some(PlanHash::default()),
            error: Some("no".to_owned()),
            refused: vec![Refusal { consumer, problem }],
            addresses: vec!["127.0.0.1".parse().unwrap(), "::1".parse().unwrap()],
        };
        let lease = serde_json::from_value(report.patch("me", Timestamp::UNIX_EPOCH)).unwrap();
        assert_eq!(Report::read(&lease), report);
    }

    #[test]
    fn what_cannot_be_read_counts_as_not_said() {
        let lease = json!({"metadata": {"annotations": {
            names::ANNOTATION_PLAN_HASH: "x",
            names::ANNOTATION_REFUSED: r#"[{"reason": "FromTheFuture"}]"#,
            names::ANNOTATION_ADDRESSES: "localhost",
        }}});
        let lease = serde_json::from_value(lease).unwrap();
        assert_eq!(Report::read(&lease), Report::default());
    }
}
