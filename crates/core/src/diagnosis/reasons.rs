//! The rows of Services and Ingresses: each reason for which one is refused, not served as written, or not reached. A reason
//! cannot exist without its row, because the rows are what defines it.

use super::remedy::{Remedy, administrator, tenant};
use super::{Place, Row};
use serde::{Deserialize, Serialize};
use std::fmt;

/// What keeps a consumer, or a part of it, from being served.
const REFUSAL: &[Place] =
    &[Place::Event, Place::Status, Place::Refused, Place::Programmed, Place::Explain];
/// The same, where it may close a listener.
const CLOSED: &[Place] = &[
    Place::Event,
    Place::Status,
    Place::Refused,
    Place::Programmed,
    Place::LoadBalancerDegraded,
    Place::Explain,
];
/// The same, where waiting does not help.
const CLOSED_AT_START: &[Place] = &[
    Place::Event,
    Place::Start,
    Place::Status,
    Place::Refused,
    Place::Programmed,
    Place::LoadBalancerDegraded,
    Place::Explain,
];
/// A refusal against which waiting does not help. The listener is open, for another consumer.
const AT_START: &[Place] =
    &[Place::Event, Place::Start, Place::Status, Place::Refused, Place::Programmed, Place::Explain];
/// A DNS name has no usable answer.
const OF_NAME: &[Place] = &[
    Place::Event,
    Place::Status,
    Place::Refused,
    Place::Programmed,
    Place::AddressFromDns,
    Place::Explain,
];
/// The consumer is served all the same.
const WARNING: &[Place] = &[Place::Event, Place::Programmed, Place::Explain];
/// It passes in a moment.
const PASSING: &[Place] = &[Place::Programmed, Place::Explain];
/// The plan is in force, and its clients are not served.
const OUTAGE: &[Place] =
    &[Place::Event, Place::Status, Place::Degraded, Place::LoadBalancerDegraded, Place::Explain];
/// The plan is in force, and its clients are served by some endpoints only.
const FAILING: &[Place] = &[Place::Event, Place::Status, Place::Degraded, Place::Explain];
/// The role that fills templates for all Services leaves it out; it writes nothing but Events.
const BY_TEMPLATES: &[Place] = &[Place::Event];
/// No node announces an address.
const ANNOUNCED: &[Place] = &[Place::Announced, Place::Explain];
/// A speaker has seen it on a link. It may be over in a moment.
const SEEN: &[Place] = &[Place::Event];
/// Nobody could write a condition.
const ASKED: &[Place] = &[Place::Explain];
/// No problem: the reason of a condition about addresses.
const WELL: &[Place] = &[];

macro_rules! reasons {
    ($($reason:ident {
        means: $means:literal,
        told: $told:expr,
        words: [$($words:literal),* $(,)?],
        helps: $helps:expr,
    })*) => {
        /// Why a consumer is refused, is not served as written, or has the addresses that it has: the reason of a condition, an
        /// Event or an entry of `LoadBalancer.status.refused`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum Reason {
            $(#[doc = $means] $reason,)*
        }

        impl Reason {
            /// All reasons.
            pub const ALL: [Self; [$(stringify!($reason)),*].len()] = [$(Self::$reason),*];

            /// Its row of the table.
            pub fn row(self) -> Row {
                match self {
                    $(Self::$reason => Row {
                        means: $means,
                        told: $told,
                        words: &[$($words),*],
                        helps: $helps,
                    },)*
                }
            }
        }
    };
}

reasons! {
    LoadBalancerNotFound {
        means: "no load balancer is named, or the named one does not exist",
        told: REFUSAL,
        words: ["core::planner::address_requests::service_request", "core::planner::asked_load_balancer::place"],
        helps: tenant(
            "name a load balancer that exists (`kubectl get lb`): `kubectl annotate KIND NAME -n NAMESPACE \
             --overwrite bowline.dev/load-balancer=OTHER`; or correct the IngressClass, or `--default-load-balancer` \
             of the controllers",
        ),
    }
    LoadBalancerDeleting {
        means: "the load balancer is being deleted: it keeps its consumers and takes no new ones",
        told: REFUSAL,
        words: ["core::outcome"],
        helps: tenant(
            "name another load balancer (this one serves the consumers that it has, and takes no new ones): `kubectl \
             annotate KIND NAME -n NAMESPACE --overwrite bowline.dev/load-balancer=OTHER`",
        ),
    }
    ClaimNotBound {
        means: "the named claim is not bound to a load balancer",
        told: REFUSAL,
        words: ["core::planner::asked_load_balancer::place"],
        helps: tenant("see why the claim waits: `bowline explain lbc/CLAIM -n NAMESPACE`"),
    }
    ClaimNotFound {
        means: "the named claim does not exist",
        told: REFUSAL,
        words: ["core::planner::asked_load_balancer::place"],
        helps: tenant(
            "name a claim of the namespace that exists (`kubectl get lbc -n NAMESPACE`) in the annotation \
             `bowline.dev/load-balancer-claim`, or make this one: `echo \
             '{\"apiVersion\":\"bowline.dev/v1alpha1\",\"kind\":\"LoadBalancerClaim\",\"metadata\":{\"name\":\"CLAIM\"},\"spec\":{}}' \
             | kubectl apply -n NAMESPACE -f -`",
        ),
    }
    NotAllowed {
        means: "the load balancer or AddressPool may not be used from this namespace",
        told: REFUSAL,
        words: [
            "core::addresses::verdict",
            "core::planner::asked_load_balancer::ask_of_ingress",
            "core::planner::asked_load_balancer::place",
        ],
        helps: administrator(
            "open the load balancer to all namespaces (`kubectl patch lb LB --type merge -p \
             '{\"spec\":{\"allowedNamespaces\":{\"from\":\"All\"}}}'`) or to some, or claim it for the namespace; of \
             a pool change `allocateTo`, `scope` or `allowedDomains`",
        ),
    }
    NoAddress {
        means: "the load balancer has no address yet, or none of the Service's families",
        told: REFUSAL,
        words: ["core::planner::service::addresses", "core::planner::web::build"],
        helps: administrator(
            "give the load balancer addresses of the Service's families (`kubectl patch lb LB --type merge -p \
             '{\"spec\":{\"addresses\":[\"ADDRESS\"]}}'`), or start its agent with `--address`",
        ),
    }
    AddressNotAvailable {
        means: "the requested address is not one of the load balancer's",
        told: BY_TEMPLATES,
        words: ["core::exposed::view::lacks"],
        helps: tenant("request an address of the load balancer, or none"),
    }
    PortTaken {
        means: "an older consumer has the address, protocol and port",
        told: AT_START,
        words: ["core::exposed::contend::contend", "core::planner::ports::taken", "core::resolver::refusal"],
        helps: tenant("use another port, another address or another load balancer"),
    }
    HostTaken {
        means: "the host belongs to another namespace on this load balancer",
        told: REFUSAL,
        words: [
            "core::exposed::contend::contend",
            "core::planner::ingress::host_taken",
            "core::planner::ingress::tls_taken",
            "core::resolver::refusal",
        ],
        helps: tenant("use another host name, or a load balancer of your own"),
    }
    PathTaken {
        means: "an older Ingress has the same host and path",
        told: REFUSAL,
        words: ["core::planner::ingress::path_taken", "core::planner::routes::routes"],
        helps: tenant("use another path, or delete the rule of the other Ingress"),
    }
    BackendNotFound {
        means: "a Service, or a port of it, that a backend names does not exist",
        told: CLOSED,
        words: [
            "core::planner::ingress",
            "core::planner::routes::wants",
            "drivers::haproxy::render::tcp_listener",
            "drivers::nginx::render::stream_server",
            "proxy::state::report::problem",
        ],
        helps: tenant(
            "create the Service, or correct its name or port in the rule (`kubectl get services -n NAMESPACE`)",
        ),
    }
    BackendNotSupported {
        means: "a backend that cannot be used, such as an ExternalName Service",
        told: REFUSAL,
        words: ["core::planner::ingress::pool"],
        helps: tenant("name a Service with endpoints as the backend"),
    }
    SecretNotFound {
        means: "a TLS Secret does not exist",
        told: REFUSAL,
        words: ["core::planner::tls::offer", "runtime::agent::with_own"],
        helps: tenant(
            "create the Secret in the namespace of the Ingress: `kubectl create secret tls SECRET -n NAMESPACE \
             --cert=tls.crt --key=tls.key`",
        ),
    }
    BadCertificate {
        means: "a TLS Secret holds no usable certificate",
        told: REFUSAL,
        words: [
            "api::convert::secret::tls_secret",
            "drivers::program::render_filter::refuse_certificate",
            "drivers::template::subject::planned_with",
            "proxy::state::report::refuse_certificates",
        ],
        helps: tenant(
            "put a PEM certificate, and the key that belongs to it, into the Secret: `kubectl create secret tls \
             SECRET -n NAMESPACE --cert=tls.crt --key=tls.key --dry-run=client -o yaml | kubectl apply -f -`",
        ),
    }
    BadValue {
        means: "a placement, address or host that cannot be read",
        told: CLOSED,
        words: [
            "api::convert",
            "core::addresses::choose::plan",
            "core::exposed::view",
            "core::planner::web::build",
            "drivers::haproxy::render",
            "drivers::nginx::render",
            "drivers::template::subject",
            "proxy::state::report::refusals",
        ],
        helps: tenant("correct the value; the message says which values are accepted"),
    }
    BadTuning {
        means: "a tuning value that cannot be read: the default is used",
        told: WARNING,
        words: ["api::convert::read::bad_tuning", "core::planner::service::useless_tuning"],
        helps: tenant("correct the value; the message says which values are accepted"),
    }
    UnknownAnnotation {
        means: "an annotation of Bowline's domain that does not exist: it has no effect",
        told: WARNING,
        words: ["api::annotation_keys::unknown"],
        helps: tenant(
            "correct the name of the annotation, or remove it (`kubectl annotate KIND NAME -n NAMESPACE \
             ANNOTATION-`); docs/annotations.md lists all of them",
        ),
    }
    NotSupported {
        means: "the load balancer or its driver cannot do what is asked",
        told: CLOSED,
        words: [
            "core::exposed::view::unfit",
            "core::planner",
            "drivers::builtin::told",
            "drivers::haproxy::render",
            "drivers::nginx::render",
            "drivers::program::render_filter",
            "drivers::template::subject",
            "proxy::state::report",
        ],
        helps: tenant("remove what is not supported, or use a load balancer that supports it"),
    }
    BindFailed {
        means: "the agent could not bind the address and port",
        told: CLOSED_AT_START,
        words: [
            "core::exposed::view::has_taken",
            "drivers::local_addresses::wanted",
            "drivers::program::render_filter::listeners",
            "proxy::state::report::problem",
        ],
        helps: administrator(
            "see what the message says: stop the process that has the port (`ss -ltnup` lists them), add the address \
             to the machine, or give the agent the capability NET_BIND_SERVICE for ports below 1024; the agent tries \
             again every two seconds",
        ),
    }
    NoNodePort {
        means: "the members are to be nodes, and the Service has no node port",
        told: REFUSAL,
        words: ["core::planner::ingress::pool", "core::planner::service::no_node_port"],
        helps: tenant(
            "let the Service allocate node ports: `kubectl patch service NAME -n NAMESPACE --type merge -p \
             '{\"spec\":{\"allocateLoadBalancerNodePorts\":true}}'`",
        ),
    }
    EphemeralPort {
        means: "the port is in the range that this machine uses for its own outgoing connections",
        told: BY_TEMPLATES,
        words: ["core::exposed::view::unfit"],
        helps: tenant(
            "use another port; an administrator can narrow `net.ipv4.ip_local_port_range` on the machine",
        ),
    }
    RefusedByCheck {
        means: "the proxy's own check refuses a configuration with this consumer",
        told: REFUSAL,
        words: ["drivers::template::publish::attempt", "drivers::template::publish::sift"],
        helps: tenant("correct the object; the message has what the check says of it"),
    }
    TemplateFailed {
        means: "a template fails with this consumer",
        told: REFUSAL,
        words: ["drivers::template::publish::attempt"],
        helps: administrator("correct the template at the line that the message names"),
    }
    NoCapacity {
        means: "the requested amounts are more than the load balancer has left",
        told: REFUSAL,
        words: ["core::admission::plan::lacks"],
        helps: tenant(
            "request less, or wait until another consumer leaves; an administrator can raise the capacity",
        ),
    }
    RequestsRequired {
        means: "the load balancer requires that a consumer requests amounts",
        told: REFUSAL,
        words: ["core::admission::plan::silence"],
        helps: tenant(
            "say how much it uses: `kubectl annotate KIND NAME -n NAMESPACE bowline.dev/network-bandwidth=10M`, or \
             `bowline.dev/network-iops`",
        ),
    }
    TooManyConsumers {
        means: "no more seats can be recorded",
        told: REFUSAL,
        words: ["core::admission::plan::admissible"],
        helps: tenant("use another load balancer"),
    }
    SeatPending {
        means: "its seat is being recorded",
        told: PASSING,
        words: ["core::planner::admitted::seated"],
        helps: None,
    }
    Recording {
        means: "its address is being recorded",
        told: PASSING,
        words: ["core::addresses::publish::verdict", "core::planner::index::has"],
        helps: None,
    }
    NamePending {
        means: "its DNS name is being looked up",
        told: PASSING,
        words: ["core::addresses::choose::resolved"],
        helps: None,
    }
    PoolNotFound {
        means: "the named AddressPool does not exist",
        told: REFUSAL,
        words: ["core::addresses::verdict"],
        helps: tenant("name an AddressPool that exists (`kubectl get addresspools`), or none"),
    }
    PoolNotUsed {
        means: "the AddressPool overlaps an older one, or is being deleted",
        told: REFUSAL,
        words: ["core::addresses::verdict"],
        helps: administrator("remove the overlap with the older AddressPool"),
    }
    QuotaReached {
        means: "its namespace has as many addresses of the AddressPool as a namespace may have",
        told: REFUSAL,
        words: ["core::addresses::verdict"],
        helps: tenant(
            "delete a Service of the namespace that holds an address; an administrator can raise `perNamespaceQuota`",
        ),
    }
    NotInPool {
        means: "the requested address is in no AddressPool, or not in the one that is named",
        told: REFUSAL,
        words: ["core::addresses::verdict"],
        helps: tenant("request an address that an AddressPool contains, or none"),
    }
    AddressTaken {
        means: "another holder has the requested address",
        told: REFUSAL,
        words: ["core::addresses::verdict"],
        helps: tenant(
            "request another address, or share it: give both Services the same `bowline.dev/allow-shared-ip` and \
             different ports",
        ),
    }
    WrongFamily {
        means: "it requests an address of a family that it does not have",
        told: REFUSAL,
        words: ["core::addresses::verdict"],
        helps: tenant("request an address of a family in `ipFamilies` of the Service"),
    }
    NoPool {
        means: "no AddressPool allows automatic assignment",
        told: REFUSAL,
        words: ["core::addresses::verdict", "core::addresses::choose::no_pool"],
        helps: administrator(
            "create an AddressPool with `autoAssign: true`, or name a pool or a load balancer",
        ),
    }
    PoolsExhausted {
        means: "no AddressPool that it may use has a free address",
        told: REFUSAL,
        words: ["core::addresses::verdict"],
        helps: administrator("add addresses to a pool; the request that waits longest is served first"),
    }
    NameFailed {
        means: "its DNS name could not be looked up",
        told: OF_NAME,
        words: ["core::addresses::choose::resolved"],
        helps: tenant(
            "see that the DNS name exists and that the controller can reach its DNS server; the look-up is repeated",
        ),
    }
    NameUnusable {
        means: "its DNS name resolves to no address that it may have",
        told: OF_NAME,
        words: ["core::addresses::choose::resolved"],
        helps: tenant(
            "let the DNS name resolve to an address that an AddressPool contains and no other holder has",
        ),
    }
    MemberRefused {
        means: "some members get no traffic from any agent, such as loopback addresses",
        told: REFUSAL,
        words: ["core::exposed::view::endpoints", "core::resolver::pools::left_out"],
        helps: tenant(
            "correct the EndpointSlice (`kubectl get endpointslices -n NAMESPACE`); an administrator can change \
             `--deny-members` or set `--allow-loopback-members`",
        ),
    }
    TooManyMembers {
        means: "it has more members than a pool may have",
        told: REFUSAL,
        words: [
            "core::exposed::crowd::bound_one",
            "core::exposed::view::endpoints",
            "core::resolver::pools::left_out",
        ],
        helps: tenant("use fewer endpoints, or claim a load balancer for the namespace"),
    }
    TooManyListeners {
        means: "its namespace has no room for the listener at the agent",
        told: CLOSED,
        words: ["core::resolver::listeners::left_out"],
        helps: tenant(
            "use fewer ports, or claim a load balancer; an administrator can raise the limit of open files (`nofile`)",
        ),
    }
    TooManyCertificates {
        means: "its namespace has no room for the certificate on the load balancer",
        told: REFUSAL,
        words: ["core::certificate_rooms::refusal"],
        helps: tenant(
            "use fewer or smaller certificates (one with several names, or a wildcard), or claim a load balancer",
        ),
    }
    TooManyNames {
        means: "it has more external names than its namespace may have at one port",
        told: BY_TEMPLATES,
        words: ["core::exposed::contend::contend"],
        helps: tenant("use fewer external names, or a wildcard"),
    }
    NoDescriptors {
        means: "the proxy may not open enough files for it",
        told: REFUSAL,
        words: ["drivers::haproxy::render::backends"],
        helps: administrator("raise the limit of open files (`nofile`) of the agent and the proxy"),
    }
    PlanUnread {
        means: "an agent of another version cannot read its plan",
        told: REFUSAL,
        words: ["core::resolver::left_out"],
        helps: administrator("run leader and agents of the same version"),
    }
    NoEndpoints {
        means: "a pool has no ready endpoint",
        told: OUTAGE,
        words: ["core::pool_health::no_endpoints"],
        helps: tenant(
            "see why no Pod is ready: `kubectl get pods,endpointslices -n NAMESPACE`; the selector of the Service \
             must match them",
        ),
    }
    EndpointsDown {
        means: "no endpoint of a pool answers",
        told: OUTAGE,
        words: ["core::pool_health::refusal"],
        helps: tenant(
            "see that the Pods listen at the target port of the Service and pass its health check; the load balancer \
             must be able to reach them",
        ),
    }
    EndpointsFailing {
        means: "some endpoints of a pool do not answer",
        told: FAILING,
        words: ["core::pool_health::refusal"],
        helps: tenant(
            "see that the Pods listen at the target port of the Service and pass its health check; the load balancer \
             must be able to reach them",
        ),
    }
    NotAdvertised {
        means: "no Advertisement covers the address: no node announces it",
        told: ANNOUNCED,
        words: ["core::announce::why::reason"],
        helps: administrator(
            "create an Advertisement that covers the AddressPool or the load balancer of the address (`kubectl get \
             adv`); one that announces all addresses to the local network: `echo \
             '{\"apiVersion\":\"bowline.dev/v1alpha1\",\"kind\":\"Advertisement\",\"metadata\":{\"name\":\"all\"},\"spec\":{\"l2\":{}}}' \
             | kubectl apply -f -`",
        ),
    }
    NodeNotSelected {
        means: "no Advertisement of the address selects a node that runs a speaker",
        told: ANNOUNCED,
        words: ["core::announce::why::reason"],
        helps: administrator(
            "label a node as `nodeSelector` of the Advertisement says, or change `nodeSelector`",
        ),
    }
    NodeExcluded {
        means: "the nodes that could announce the address are excluded from load balancers",
        told: ANNOUNCED,
        words: ["core::announce::why::reason"],
        helps: administrator(
            "remove the label from a node that may announce: `kubectl label node NODE \
             node.kubernetes.io/exclude-from-external-load-balancers-`",
        ),
    }
    NodeLeaving {
        means: "the nodes that could announce the address leave",
        told: ANNOUNCED,
        words: ["core::announce::why::reason"],
        helps: administrator("add a node that runs a speaker, or keep one of the nodes"),
    }
    NotServed {
        means: "no node serves the address, so none announces it",
        told: ANNOUNCED,
        words: ["core::announce::why::reason", "bowline::view::announcements::why"],
        helps: tenant(
            "see that Pods of the Service are ready (with `externalTrafficPolicy: Local` on a node that announces); \
             behind a load balancer an administrator sees that an agent runs on a node with a speaker: `bowline \
             explain lb/LB`",
        ),
    }
    NoPeer {
        means: "the address is announced by BGP alone, and no BGPPeer is for the nodes that serve it",
        told: ANNOUNCED,
        words: ["core::announce::why::reason"],
        helps: administrator(
            "create a BGPPeer for the nodes that serve the address, or add `l2: {}` to the Advertisement",
        ),
    }
    SessionsDown {
        means: "no session with a BGPPeer of the address is established",
        told: ANNOUNCED,
        words: ["bowline::view::announcements::why"],
        helps: administrator(
            "see why the sessions are down: `kubectl get bgppeers -o yaml`; the router must accept the AS numbers and \
             the password",
        ),
    }
    NoSpeaker {
        means: "no node runs a speaker",
        told: ASKED,
        words: ["bowline::view::announcements::why"],
        helps: administrator("run `bowline speaker` on the nodes that should announce"),
    }
    AddressConflict {
        means: "a host that is no speaker of this cluster claims the address on a link",
        told: SEEN,
        words: ["core::announce::speakers::conflict"],
        helps: administrator(
            "find the host with that Ethernet address and give it another address, or take the address out of the \
             AddressPool; another cluster on the segment needs a range of its own",
        ),
    }
    Assigned {
        means: "the requester has every address that it requests",
        told: WELL,
        words: ["core::addresses::publish::verdict"],
        helps: None,
    }
    Released {
        means: "the requester no longer requests an address, and the one that it had is being released",
        told: WELL,
        words: ["core::addresses::publish::current_decision", "core::announce::why::reason"],
        helps: None,
    }
    Unknown {
        means: "a reason of a newer agent that this version does not know",
        told: CLOSED,
        words: ["runtime::lease"],
        helps: None,
    }
}

impl Reason {
    /// Whether a problem of this reason is told there.
    pub fn is_told(self, place: Place) -> bool {
        self.row().is_told(place)
    }

    /// Whether the consumer is served all the same.
    pub fn is_warning(self) -> bool {
        self.row().told == WARNING
    }

    /// Whether it is about endpoints of a pool: what the consumer wants is in force, but its clients are not served, or by
    /// some endpoints only.
    pub fn is_health(self) -> bool {
        self.is_told(Place::Degraded)
    }

    /// Whether a pool has no endpoint that answers.
    pub fn is_outage(self) -> bool {
        self.is_health() && self.is_told(Place::LoadBalancerDegraded)
    }

    /// What helps against it.
    pub fn remedy(self) -> Option<Remedy> {
        self.row().helps
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}
