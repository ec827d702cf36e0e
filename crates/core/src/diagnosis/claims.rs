//! The rows of claims: why a claim is in its phase. What is under way or well has no remedy.

use super::remedy::{administrator, tenant};
use super::{Place, Row};
use crate::binder::ClaimReason;

const TOLD: &[Place] = &[Place::Bound, Place::Event, Place::Explain];

/// The row of a claim with this reason.
pub fn row(reason: ClaimReason) -> Row {
    const DECIDED: &[&str] = &["core::binder::decide"];
    let (means, helps) = match reason {
        ClaimReason::Bound => ("the claim has a load balancer", None),
        ClaimReason::Invalid => (
            "what the claim asks for is contradictory or cannot be read",
            tenant("correct the claim; the message says what is wrong with it"),
        ),
        ClaimReason::NoMatch => (
            "no load balancer fits, and none is made",
            tenant(
                "name a class (`kubectl get lbclass`) or a load balancer (`kubectl get lb`) that exists, or request less \
                 (`bowline explain lbc/CLAIM -n NAMESPACE` says why it does not get each load balancer); an administrator \
                 can create the LoadBalancerClass or a load balancer that fits",
            ),
        ),
        ClaimReason::Refused => (
            "there is a load balancer for it, and the API server refuses to record that",
            administrator(
                "the message has what the API server says: give the controller the right that it lacks",
            ),
        ),
        ClaimReason::Provisioning => ("a load balancer is created for it", None),
        ClaimReason::Removing => (
            "the load balancer that was created for it is removed, and another one created then",
            None,
        ),
        ClaimReason::Idle => (
            "its load balancer was removed because no consumer used it; one is created when a consumer does",
            None,
        ),
        ClaimReason::LoadBalancerGone => (
            "the load balancer that it had does not exist any more",
            tenant(
                "delete the claim (`kubectl delete lbc CLAIM -n NAMESPACE`) and create it again, to get another load \
                 balancer; an administrator can create the load balancer of that name again",
            ),
        ),
        ClaimReason::LoadBalancerTaken => (
            "the load balancer that it had has another claim, or does not fit any more",
            tenant(
                "delete the claim (`kubectl delete lbc CLAIM -n NAMESPACE`) and create it again, to get another load \
                 balancer",
            ),
        ),
    };
    Row { means, told: TOLD, words: DECIDED, helps }
}
