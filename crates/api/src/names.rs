//! Every fixed name that Bowline writes into a cluster, once: finalizers, condition types and reasons,
//! Leases, Plans, Secrets, field managers, classes. No other module spells one out. Annotation keys are in
//! [`crate::annotation_keys`].

use sha2::{Digest, Sha256};
use std::borrow::Cow;

/// The API group of Bowline's kinds.
pub const GROUP: &str = "bowline.dev";
/// The version of Bowline's kinds.
pub const VERSION: &str = "v1alpha1";
/// The category by which `kubectl get bowline` lists all of them.
pub const CATEGORY: &str = "bowline";

/// Bowline's own namespace unless `--system-namespace` says otherwise.
pub const NAMESPACE: &str = "bowline-system";

/// `spec.loadBalancerClass` of a Service that Bowline serves.
pub const CLASS_LOAD_BALANCER: &str = "bowline.dev/lb";
/// `spec.loadBalancerClass` of a Service with an address for each of its Pods.
pub const CLASS_IP_PER_POD: &str = "bowline.dev/ip-per-pod";
/// `spec.controller` of an IngressClass that Bowline serves.
pub const INGRESS_CONTROLLER: &str = "bowline.dev/ingress";

/// On objects whose configuration on a device, or whose address, must be released before they are deleted.
pub const FINALIZER_CLEANUP: &str = "bowline.dev/cleanup";
/// On claims and load balancers while consumers use them.
pub const FINALIZER_IN_USE: &str = "bowline.dev/in-use";

/// Condition of LoadBalancers and claims: whether they are bound to each other.
pub const CONDITION_BOUND: &str = "Bound";
/// Condition of LoadBalancers: False while the objects behind one whose claim is deleted cannot be wiped or removed.
pub const CONDITION_RECLAIMED: &str = "Reclaimed";
/// Condition of LoadBalancers that a class made: since when it has no consumers.
pub const CONDITION_IDLE: &str = "Idle";
/// Condition of LoadBalancers that a class made in a cluster: whether the objects that serve it are in place.
pub const CONDITION_PROVISIONED: &str = "Provisioned";
/// Condition of LoadBalancers: whether the current plan is in force.
pub const CONDITION_PROGRAMMED: &str = "Programmed";
/// Condition of Services: whether a load balancer serves them. It has Bowline's domain, because all controllers share
/// the conditions of a Service.
pub const CONDITION_SERVICE_PROGRAMMED: &str = "bowline.dev/Programmed";
/// Of a LoadBalancer: True while a listener is not open, or a pool has no endpoint that answers.
pub const CONDITION_DEGRADED: &str = "Degraded";
/// The same of a Service: True while endpoints of it do not answer. The condition is there only while it is True.
pub const CONDITION_SERVICE_DEGRADED: &str = "bowline.dev/Degraded";
/// Condition of Services whose address comes from a DNS name.
pub const CONDITION_ADDRESS_FROM_DNS: &str = "AddressFromDNS";

/// Condition of ExternalIPs, and of LoadBalancers with an AddressPool: whether they have their addresses.
pub const CONDITION_ASSIGNED: &str = "Assigned";

/// Condition of AddressPools: whether new addresses are granted from them.
pub const CONDITION_USED: &str = "Used";
/// Condition of AddressPools: whether all their entries can be read.
pub const CONDITION_READABLE: &str = "Readable";

/// Reason of Bound on a LoadBalancer: no claim has it.
pub const REASON_AVAILABLE: &str = "Available";
/// Reason of Bound: a claim has it.
pub const REASON_BOUND: &str = "Bound";
/// Reason of Bound on a LoadBalancer: its claim is deleted.
pub const REASON_RELEASED: &str = "Released";
/// Reason of Reclaimed: reclaiming failed.
pub const REASON_FAILED: &str = "Failed";
/// Reason of Idle: no consumer uses it.
pub const REASON_NO_CONSUMERS: &str = "NoConsumers";
/// Reason of Programmed: the current plan is in force. `bowline_core::programmed` has the reasons why it is not.
pub const REASON_PROGRAMMED: &str = "Programmed";
/// Reason of Programmed: this build has no driver for the source.
pub const REASON_NO_DRIVER: &str = "NoDriver";

/// The field manager of the leader's writes.
pub const MANAGER_CONTROLLER: &str = "bowline-controller";
/// The field manager of an agent's writes.
pub const MANAGER_AGENT: &str = "bowline-agent";
/// The field manager of a speaker's writes.
pub const MANAGER_SPEAKER: &str = "bowline-speaker";
/// The field manager of objects that are taken over from another product.
pub const MANAGER_IMPORT: &str = "bowline-import";
/// The field manager of writes from the command line.
pub const MANAGER_CLI: &str = "bowline";

/// The ServiceAccount with which the manifests run controllers.
pub const ACCOUNT_CONTROLLER: &str = "bowline-controller";

/// The ServiceAccount with which the manifests run the agent of a load balancer.
pub fn agent_account(load_balancer: &str) -> String {
    format!("bowline-agent-{load_balancer}")
}

/// The Lease by which controllers choose their leader.
pub const LEASE_CONTROLLER: &str = "bowline-controller";

/// Annotation of an agent's Lease: the hash of the plan that it has applied.
pub const ANNOTATION_PLAN_HASH: &str = "bowline.dev/plan-hash";
/// Annotation of an agent's Lease: why it cannot apply the plan. Absent: it can.
pub const ANNOTATION_ERROR: &str = "bowline.dev/error";
/// Annotation of an agent's Lease: its refusals, as a JSON list.
pub const ANNOTATION_REFUSED: &str = "bowline.dev/refused";
/// Annotation of an agent's Lease: how many refusals the list has no room for.
pub const ANNOTATION_REFUSED_UNLISTED: &str = "bowline.dev/refused-unlisted";
/// Annotation of an agent's Lease: the addresses of a load balancer without fixed ones, separated by commas.
pub const ANNOTATION_ADDRESSES: &str = "bowline.dev/addresses";

/// Annotation of an Address: the node that should own it on layer 2, and a mark that tells one wish from another, as
/// `NODE/MARK`. `bowline announce move` writes it.
pub const ANNOTATION_MOVE_TO: &str = "bowline.dev/move-to";
/// Annotation of a speaker's Lease: its report, as JSON.
pub const ANNOTATION_SPEAKER: &str = "bowline.dev/speaker";

/// Annotation of the controllers' Lease: `true` where Services without a class are served.
pub const ANNOTATION_DEFAULT_CLASS: &str = "bowline.dev/default-class";
/// Annotation of the controllers' Lease: the load balancer of consumers that ask for none in particular.
pub const ANNOTATION_DEFAULT_LOAD_BALANCER: &str = "bowline.dev/default-load-balancer";

/// Annotation of the controllers' Lease: the version of the leader's program, with its commit where that is known.
pub const ANNOTATION_VERSION: &str = "bowline.dev/version";

/// Annotation of a LoadBalancer that a class made: its claim, as namespace/name/uid.
pub const ANNOTATION_PROVISIONED_FOR: &str = "bowline.dev/provisioned-for";

/// Annotation of a LoadBalancer that a class made: the namespace in which its proxies run.
pub const ANNOTATION_PROXY_NAMESPACE: &str = "bowline.dev/proxy-namespace";

/// Annotation of an object that was taken over from another product: the original object.
pub const ANNOTATION_IMPORTED_FROM: &str = "bowline.dev/imported-from";

/// The annotations that Bowline itself writes on Services and Ingresses.
pub const WRITTEN: &[&str] = &[ANNOTATION_IMPORTED_FROM];

/// The type of Secrets with the password of a BGPPeer.
pub const SECRET_TYPE_PASSWORD: &str = "kubernetes.io/basic-auth";

/// Label of Plans and of Bowline's own Secrets: their load balancer, by [`load_balancer_label`].
pub const LABEL_LOAD_BALANCER: &str = "bowline.dev/load-balancer";
/// Annotation of Plans: what the agents of the load balancer have to run (`core::objects::Carrier`).
pub const ANNOTATION_DRIVER: &str = "bowline.dev/driver";
/// On a Secret with certificates: the room of each certificate (`core::certificate_rooms`).
pub const ANNOTATION_ROOMS: &str = "bowline.dev/rooms";
/// The type of Bowline's own Secrets with certificates.
pub const SECRET_TYPE_CERTIFICATES: &str = "bowline.dev/certificates";
/// The type of Bowline's own Secrets with the secret that signs persistence cookies.
pub const SECRET_TYPE_COOKIES: &str = "bowline.dev/cookie-secret";

/// The longest name of an object.
const LONGEST_NAME: usize = 253;
/// The longest value of a label.
const LONGEST_LABEL: usize = 63;

/// The Lease in which the agent of a load balancer reports.
pub fn agent_lease(load_balancer: &str) -> String {
    const PREFIX: &str = "bowline-agent-";
    format!("{PREFIX}{}", fitted(load_balancer, LONGEST_NAME - PREFIX.len()))
}

/// The type of Bowline's own Secret with the key that speakers have in common.
pub const SECRET_TYPE_GOSSIP: &str = "bowline.dev/gossip-key";
/// The name of Bowline's own Secret with the key that speakers have in common.
pub const GOSSIP_SECRET: &str = "bowline-gossip";
/// The entry of that Secret.
pub const GOSSIP_ENTRY: &str = "key";
/// The prefix of the names of Leases in which speakers report.
pub const SPEAKER_LEASE_PREFIX: &str = "bowline-speaker-";

/// The Lease in which the speaker of a node reports.
pub fn speaker_lease(node: &str) -> String {
    let room = LONGEST_NAME - SPEAKER_LEASE_PREFIX.len();
    format!("{SPEAKER_LEASE_PREFIX}{}", fitted(node, room))
}

/// The prefix of annotations of an agent's Lease that are entries of single agents.
pub const AGENT_ENTRY_PREFIX: &str = "agents.bowline.dev/";

/// The annotation of an agent's Lease in which the agent of this identity reports.
pub fn agent_entry(identity: &str) -> String {
    let allowed =
        |it: char| if it.is_ascii_alphanumeric() || "-_.".contains(it) { it } else { '-' };
    let name: String = identity.chars().map(allowed).collect();
    let name = name.trim_matches(|it: char| !it.is_ascii_alphanumeric());
    // A changed identity may be the same as another agent's name.
    let name = if name == identity && !name.is_empty() {
        name.into()
    } else {
        format!("{name}{}", digest(identity))
    };
    format!("{AGENT_ENTRY_PREFIX}{}", fitted(&name, LONGEST_LABEL))
}

/// The name of the Role and RoleBinding for the agents of a load balancer that a class made.
pub fn proxy_rights(load_balancer: &str) -> String {
    const PREFIX: &str = "bowline-proxy-";
    format!("{PREFIX}{}", fitted(load_balancer, LONGEST_NAME - PREFIX.len()))
}

/// The name of the n-th Plan of a load balancer. It always has the number, so that no Plan of `edge` has the name
/// `edge-1`.
pub fn plan_name(load_balancer: &str, index: u32) -> String {
    numbered("", load_balancer, index)
}

/// The number in a Plan's name. None: [`plan_name`] does not make this name.
pub fn plan_index(name: &str) -> Option<u32> {
    let (_, number) = name.rsplit_once('-')?;
    number.parse().ok().filter(|index: &u32| index.to_string() == number)
}

/// The prefix of the names of Bowline's own Secrets with certificates.
pub const SECRET_PREFIX: &str = "bowline-tls-";

/// The name of the n-th of Bowline's own Secrets with certificates of a load balancer. It always has the number, so
/// that the agent of `edge-1` may read no Secret of `edge`.
pub fn certificates_secret(load_balancer: &str, index: u32) -> String {
    numbered(SECRET_PREFIX, load_balancer, index)
}

/// The prefix of the names of Bowline's own Secrets with a cookie secret.
pub const COOKIES_PREFIX: &str = "bowline-cookies-";

/// The name of Bowline's own Secret with the cookie secret of a load balancer.
pub fn cookies_secret(load_balancer: &str) -> String {
    format!("{COOKIES_PREFIX}{}", fitted(load_balancer, LONGEST_NAME - COOKIES_PREFIX.len()))
}

/// The value of [`LABEL_LOAD_BALANCER`] for a load balancer.
pub fn load_balancer_label(load_balancer: &str) -> String {
    fitted(load_balancer, LONGEST_LABEL).into_owned()
}

fn numbered(prefix: &str, load_balancer: &str, index: u32) -> String {
    const NUMBER: usize = "-4294967295".len();
    let name = fitted(load_balancer, LONGEST_NAME - prefix.len() - NUMBER);
    format!("{prefix}{name}-{index}")
}

/// A name as it is or, if it is too long, its beginning and a hash of the whole name.
fn fitted(name: &str, room: usize) -> Cow<'_, str> {
    if name.len() <= room {
        return name.into();
    }
    let hash = digest(name);
    let head: String = name.chars().take(room - hash.len() - 1).collect();
    // A part of a name must not end in a hyphen, and must not be empty.
    format!("{}-{hash}", head.trim_end_matches(['-', '.'])).into()
}

fn digest(name: &str) -> String {
    Sha256::digest(name).iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::translate::is_object_name;
    use proptest::prelude::*;

    #[test]
    fn names_of_load_balancers_are_in_the_names_of_what_is_theirs() {
        assert_eq!(agent_lease("edge"), "bowline-agent-edge");
        assert_eq!(plan_name("edge", 0), "edge-0");
        assert_eq!(certificates_secret("edge", 1), "bowline-tls-edge-1");
        assert_eq!(certificates_secret("edge-1", 0), "bowline-tls-edge-1-0");
        assert_eq!(cookies_secret("edge"), "bowline-cookies-edge");
        assert_eq!(load_balancer_label("edge"), "edge");
    }

    #[test]
    fn every_agent_has_an_annotation_of_its_own() {
        assert_eq!(agent_entry("edge-7_00ff"), "agents.bowline.dev/edge-7_00ff");
        let all = ["a b", "a-b", "a:b", "", "_", &"a".repeat(70), &"a".repeat(71)].map(agent_entry);
        for (index, key) in all.iter().enumerate() {
            let name = key.strip_prefix(AGENT_ENTRY_PREFIX).unwrap();
            assert!((1..=63).contains(&name.len()), "{key}");
            assert!(name.starts_with(|it: char| it.is_ascii_alphanumeric()), "{key}");
            assert!(name.ends_with(|it: char| it.is_ascii_alphanumeric()), "{key}");
            assert!(!all[..index].contains(key), "{key}");
        }
    }

    #[test]
    fn only_the_number_that_was_written_is_read_back() {
        for (name, index) in [
            ("edge-0", Some(0)),
            ("a-b-17", Some(17)),
            ("edge-00", None),
            ("edge-+1", None),
            ("edge-4294967296", None),
            ("edge-", None),
            ("edge", None),
            ("", None),
        ] {
            assert_eq!(plan_index(name), index, "{name:?}");
        }
    }

    proptest! {
        #[test]
        fn whatever_a_load_balancer_is_called_what_is_its_own_has_a_name_that_servers_take(
            name in "[a-z0-9]([-.]?[a-z0-9]){0,126}", index: u32,
        ) {
            for made in [
                agent_lease(&name),
                plan_name(&name, index),
                certificates_secret(&name, index),
                cookies_secret(&name),
            ] {
                prop_assert!(is_object_name(&made), "{}", made);
            }
            prop_assert_eq!(plan_index(&plan_name(&name, index)), Some(index));
            let label = load_balancer_label(&name);
            prop_assert!(label.len() <= 63 && is_object_name(&label), "{}", label);
        }

        #[test]
        fn long_names_stay_apart(tail in "[a-z0-9]{1,8}", other in "[a-z0-9]{1,8}") {
            prop_assume!(tail != other);
            let name = |tail: &str| format!("{}{tail}", "a".repeat(245));
            prop_assert_ne!(plan_name(&name(&tail), 0), plan_name(&name(&other), 0));
            prop_assert_ne!(load_balancer_label(&name(&tail)), load_balancer_label(&name(&other)));
        }
    }
}
