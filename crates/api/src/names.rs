//! Every fixed name that Bowline writes into a cluster, once: finalizers, condition types and reasons,
//! Leases, field managers, classes. No other module spells one out. Annotation keys are in
//! [`crate::annotations`].

/// The API group of our kinds.
pub const GROUP: &str = "bowline.dev";
/// The version of our kinds.
pub const VERSION: &str = "v1alpha1";
/// The category by which `kubectl get bowline` lists them all.
pub const CATEGORY: &str = "bowline";

/// Bowline's own namespace unless `--namespace` says otherwise.
pub const NAMESPACE: &str = "bowline-system";

/// `spec.loadBalancerClass` of a Service that Bowline serves.
pub const CLASS_LOAD_BALANCER: &str = "bowline.dev/lb";
/// `spec.loadBalancerClass` of a Service each of whose Pods gets an address.
pub const CLASS_IP_PER_POD: &str = "bowline.dev/ip-per-pod";
/// `spec.controller` of an IngressClass that Bowline serves.
pub const INGRESS_CONTROLLER: &str = "bowline.dev/ingress";

/// On objects whose configuration elsewhere must be removed before they go.
pub const FINALIZER_CLEANUP: &str = "bowline.dev/cleanup";
/// On claims and load balancers while consumers use them.
pub const FINALIZER_IN_USE: &str = "bowline.dev/in-use";

/// Condition of LoadBalancers and claims: whether they belong together.
pub const CONDITION_BOUND: &str = "Bound";
/// Condition of LoadBalancers: whether the present plan is in force there.
pub const CONDITION_PROGRAMMED: &str = "Programmed";
/// Condition of Services whose address comes from a DNS name.
pub const CONDITION_ADDRESS_FROM_DNS: &str = "AddressFromDNS";

/// Reason of Bound on a LoadBalancer: nobody has it.
pub const REASON_AVAILABLE: &str = "Available";
/// Reason of Bound: a claim has it.
pub const REASON_BOUND: &str = "Bound";
/// Reason of Bound on a LoadBalancer: the claim that had it is gone.
pub const REASON_RELEASED: &str = "Released";
/// Reason of Programmed: this build has no driver for the source.
pub const REASON_NO_DRIVER: &str = "NoDriver";

/// The field manager of what the leader writes.
pub const MANAGER_CONTROLLER: &str = "bowline-controller";
/// The field manager of what an agent writes.
pub const MANAGER_AGENT: &str = "bowline-agent";
/// The field manager of what the command line writes.
pub const MANAGER_CLI: &str = "bowline";

/// The Lease by which controllers choose their leader.
pub const LEASE_CONTROLLER: &str = "bowline-controller";

/// The Lease in which the agent of a load balancer reports.
pub fn agent_lease(load_balancer: &str) -> String {
    format!("bowline-agent-{load_balancer}")
}
