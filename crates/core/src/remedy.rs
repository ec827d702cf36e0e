//! What helps against each problem, and who can do it: one table for conditions, Events, `bowline explain` and
//! docs/troubleshooting.md. The message of a problem says what is wrong with which value; this says what to do. Nothing
//! here decides whether there is a problem.

use crate::binder::ClaimReason;
use crate::outcome::Reason;
use crate::programmed::Pending;
use crate::status::Waiting;
use std::fmt;

/// Who can remove the cause of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The owner of the Service, Ingress or claim.
    Tenant,
    /// The administrator of load balancers, pools and agents.
    Administrator,
}

/// A row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remedy {
    /// Who can do it.
    pub owner: Owner,
    /// What to do, as a command to a person.
    pub what: &'static str,
}

/// What helps against a problem of this reason. None: there is no problem, it passes in a moment, or this version does
/// not know the reason.
pub fn of(reason: Reason) -> Option<Remedy> {
    use Owner::{Administrator, Tenant};
    use Reason::*;
    let (owner, what) = match reason {
        LoadBalancerNotFound => (
            Tenant,
            "name a load balancer that exists (`kubectl get lb`) in the annotation, the IngressClass or \
             `--default-load-balancer`",
        ),
        LoadBalancerDeleting => (
            Tenant,
            "name another load balancer: this one serves the consumers that it has, and takes no new ones",
        ),
        UnknownAnnotation => (
            Tenant,
            "correct the name of the annotation, or remove it; docs/annotations.md lists all of them",
        ),
        ClaimNotBound => (
            Tenant,
            "see why the claim waits: `bowline explain lbc/NAME`; `kubectl get lbc` lists the claims",
        ),
        NotAllowed => (
            Administrator,
            "open the load balancer to the namespace by `allowedNamespaces`, or claim it for the namespace; of a pool \
             change `allocateTo`, `scope` or `allowedDomains`",
        ),
        NoAddress => (
            Administrator,
            "give the load balancer `spec.addresses` of the Service's families, or start its agent with `--address`",
        ),
        AddressNotAvailable => (Tenant, "request an address of the load balancer, or none"),
        PortTaken => (Tenant, "use another port, another address or another load balancer"),
        HostTaken => (Tenant, "use another host name, or a load balancer of your own"),
        PathTaken => (Tenant, "use another path, or delete the rule of the other Ingress"),
        BackendNotFound => (Tenant, "create the Service, or correct its name or port in the rule"),
        BackendNotSupported => (Tenant, "name a Service with endpoints as the backend"),
        SecretNotFound => (
            Tenant,
            "create the Secret, of type `kubernetes.io/tls`, in the namespace of the Ingress",
        ),
        BadCertificate => (
            Tenant,
            "put a PEM certificate, and the key that belongs to it, into `tls.crt` and `tls.key` of the Secret",
        ),
        BadValue | BadTuning => {
            (Tenant, "correct the value; the message says which values are accepted")
        }
        NotSupported => {
            (Tenant, "remove what is not supported, or use a load balancer that supports it")
        }
        BindFailed => (
            Administrator,
            "see what the message says: stop the process that has the port, add the address to the machine, or give the \
             agent the capability NET_BIND_SERVICE for ports below 1024; the agent tries again every two seconds",
        ),
        NoNodePort => {
            (Tenant, "let the Service allocate node ports (`allocateLoadBalancerNodePorts: true`)")
        }
        EphemeralPort => (
            Tenant,
            "use another port; an administrator can narrow `net.ipv4.ip_local_port_range` on the machine",
        ),
        RefusedByCheck => (Tenant, "correct the object; the message has what the check says of it"),
        TemplateFailed => {
            (Administrator, "correct the template at the line that the message names")
        }
        NoCapacity => (
            Tenant,
            "request less, or wait until another consumer leaves; an administrator can raise the capacity",
        ),
        RequestsRequired => (
            Tenant,
            "say how much it uses, by `bowline.dev/network-bandwidth` or `bowline.dev/network-iops`",
        ),
        TooManyConsumers => (Tenant, "use another load balancer"),
        PoolNotFound => {
            (Tenant, "name an AddressPool that exists (`kubectl get addresspools`), or none")
        }
        PoolNotUsed => (Administrator, "remove the overlap with the older AddressPool"),
        QuotaReached => (
            Tenant,
            "delete a Service of the namespace that holds an address; an administrator can raise `perNamespaceQuota`",
        ),
        NotInPool => (Tenant, "request an address that an AddressPool contains, or none"),
        AddressTaken => (
            Tenant,
            "request another address, or share it: give both Services the same `bowline.dev/allow-shared-ip` and \
             different ports",
        ),
        WrongFamily => (Tenant, "request an address of a family in `ipFamilies` of the Service"),
        NoPool => (
            Administrator,
            "create an AddressPool with `autoAssign: true`, or name one in the Service",
        ),
        PoolsExhausted => (
            Administrator,
            "add addresses to a pool; the request that waits longest is served first",
        ),
        NameFailed => (
            Tenant,
            "see that the DNS name exists and that the controller can reach its DNS server; the look-up is repeated",
        ),
        NameUnusable => (
            Tenant,
            "let the DNS name resolve to an address that an AddressPool contains and no other holder has",
        ),
        MemberRefused => (
            Tenant,
            "correct the EndpointSlice; an administrator can change `--deny-members` or set `--allow-loopback-members`",
        ),
        TooManyMembers => {
            (Tenant, "use fewer endpoints, or claim a load balancer for the namespace")
        }
        TooManyListeners => (
            Tenant,
            "use fewer ports, or claim a load balancer; an administrator can raise the limit of open files (`nofile`)",
        ),
        TooManyCertificates => (
            Tenant,
            "use fewer or smaller certificates (one with several names, or a wildcard), or claim a load balancer",
        ),
        TooManyNames => (Tenant, "use fewer external names, or a wildcard"),
        NoDescriptors => {
            (Administrator, "raise the limit of open files (`nofile`) of the agent and the proxy")
        }
        PlanUnread => (Administrator, "run leader and agents of the same version"),
        NoEndpoints => (
            Tenant,
            "see why no Pod is ready: `kubectl get pods,endpointslices`; the selector of the Service must match them",
        ),
        EndpointsDown | EndpointsFailing => (
            Tenant,
            "see that the Pods listen at the target port of the Service and pass its health check; the load balancer must \
             be able to reach them",
        ),
        NotAdvertised => (
            Administrator,
            "create an Advertisement that covers the AddressPool or the load balancer of the address (`kubectl get adv`)",
        ),
        NodeNotSelected => (
            Administrator,
            "label a node as `nodeSelector` of the Advertisement says, or change `nodeSelector`",
        ),
        NodeExcluded => (
            Administrator,
            "remove the label `node.kubernetes.io/exclude-from-external-load-balancers` from a node that may announce",
        ),
        NodeLeaving => (Administrator, "add a node that runs a speaker, or keep one of the nodes"),
        NotServed => (
            Tenant,
            "see that Pods of the Service are ready (with `externalTrafficPolicy: Local` on a node that announces); behind a \
             load balancer an administrator sees that an agent runs on a node with a speaker: `bowline explain lb/NAME`",
        ),
        NoPeer => (
            Administrator,
            "create a BGPPeer for the nodes that serve the address, or add `l2: {}` to the Advertisement",
        ),
        SessionsDown => (
            Administrator,
            "see why the sessions are down: `kubectl get bgppeers -o yaml`; the router must accept the AS numbers and the \
             password",
        ),
        NoSpeaker => (Administrator, "run `bowline speaker` on the nodes that should announce"),
        AddressConflict => (
            Administrator,
            "find the host with that Ethernet address and give it another address, or take the address out of the \
             AddressPool; another cluster on the segment needs a range of its own",
        ),
        SeatPending | Recording | NamePending | Assigned | Released | Unknown => return None,
    };
    Some(Remedy { owner, what })
}

/// A problem of the leader or of the agents of a load balancer, and of all its consumers: the plan is not in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoleProblem {
    /// What is planned is not recorded, and no controller leads.
    NoLeader,
    /// Nothing is recorded for the load balancer yet.
    NoPlan,
    /// No agent has ever reported.
    NoAgent,
    /// The agent has not reported in time.
    AgentSilent,
    /// The agent could not apply the plan.
    AgentFailed,
    /// The agent has not applied the plan yet.
    AgentBehind,
    /// This build has no driver for the source of the load balancer.
    NoDriver,
    /// The agent refuses more than its report has room for.
    RefusalsUnlisted,
}

impl RoleProblem {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::NoLeader,
        Self::NoPlan,
        Self::NoAgent,
        Self::AgentSilent,
        Self::AgentFailed,
        Self::AgentBehind,
        Self::NoDriver,
        Self::RefusalsUnlisted,
    ];

    /// What helps against it.
    pub fn remedy(self) -> Remedy {
        let what = match self {
            Self::NoLeader => {
                "start `bowline controller`, or see in the log of each one that runs what it waits for; `bowline doctor` \
                 checks its rights"
            }
            Self::NoPlan => "see that a controller runs and leads: `bowline status`",
            Self::NoAgent => {
                "start an agent with the command that the message names, where the addresses of the load balancer are"
            }
            Self::AgentSilent => {
                "see on the agent's machine whether it runs, and in its log whether it reaches the API server and has its \
                 rights (`bowline doctor`); one that does not run or does not answer: end it, and start it with the \
                 command that the message names"
            }
            Self::AgentFailed => {
                "remove the cause that the message names; the agent tries again, at the latest after half a minute"
            }
            Self::AgentBehind => "wait a moment; if it lasts, see the log of the agent",
            Self::NoDriver => {
                "use a build of Bowline that has the driver (`bowline version` lists features), or a load balancer with \
                 another source"
            }
            Self::RefusalsUnlisted => "see the log of the agent, which names all that it refuses",
        };
        Remedy { owner: Owner::Administrator, what }
    }
}

impl fmt::Display for RoleProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl From<&Waiting> for RoleProblem {
    fn from(waiting: &Waiting) -> Self {
        match waiting {
            Waiting::NoDriver => Self::NoDriver,
            Waiting::Unlisted(_) => Self::RefusalsUnlisted,
            Waiting::Agent(Pending::NoPlan) => Self::NoPlan,
            Waiting::Agent(Pending::NoAgent) => Self::NoAgent,
            Waiting::Agent(Pending::AgentSilent) => Self::AgentSilent,
            Waiting::Agent(Pending::AgentFailed(_)) => Self::AgentFailed,
            Waiting::Agent(Pending::AgentBehind) => Self::AgentBehind,
        }
    }
}

/// What helps a claim with this reason. None: it is bound, or what it waits for is under way.
pub fn of_claim(reason: ClaimReason) -> Option<Remedy> {
    use Owner::{Administrator, Tenant};
    let (owner, what) = match reason {
        ClaimReason::Invalid => {
            (Tenant, "correct the claim; the message says what is wrong with it")
        }
        ClaimReason::NoMatch => (
            Tenant,
            "name a class or a load balancer that exists, or request less (`bowline explain lbc/NAME` says why it does not \
             get each load balancer); an administrator can create the LoadBalancerClass or a load balancer that fits",
        ),
        ClaimReason::Refused => (
            Administrator,
            "the message has what the API server says: give the controller the right that it lacks",
        ),
        ClaimReason::LoadBalancerGone => (
            Tenant,
            "delete the claim and create it again, to get another load balancer; an administrator can create the load \
             balancer of that name again",
        ),
        ClaimReason::LoadBalancerTaken => {
            (Tenant, "delete the claim and create it again, to get another load balancer")
        }
        ClaimReason::Bound
        | ClaimReason::Provisioning
        | ClaimReason::Removing
        | ClaimReason::Idle => return None,
    };
    Some(Remedy { owner, what })
}

/// What helps against a problem whose reason is known only as the word in a condition.
pub fn of_word(reason: &str) -> Option<Remedy> {
    let known = Reason::ALL.into_iter().find(|it| it.to_string() == reason);
    let role = || RoleProblem::ALL.into_iter().find(|it| it.to_string() == reason);
    known.and_then(of).or_else(|| role().map(RoleProblem::remedy))
}

fn row(reason: impl fmt::Display, Remedy { owner, what }: Remedy) -> String {
    let owner = match owner {
        Owner::Tenant => "the object's owner",
        Owner::Administrator => "an administrator",
    };
    format!("| `{reason}` | {owner} | {what} |\n")
}

fn headed(rows: impl Iterator<Item = String>) -> String {
    format!("| reason | who can help | what helps |\n|---|---|---|\n{}", rows.collect::<String>())
}

/// The table of reasons for people, as docs/troubleshooting.md has it.
pub fn table() -> String {
    headed(Reason::ALL.into_iter().filter_map(|reason| Some(row(reason, of(reason)?))))
}

/// The table of problems of roles, likewise.
pub fn table_of_roles() -> String {
    headed(RoleProblem::ALL.into_iter().map(|it| row(it, it.remedy())))
}

/// The table of reasons of claims, likewise.
pub fn table_of_claims() -> String {
    headed(ClaimReason::ALL.into_iter().filter_map(|it| Some(row(it, of_claim(it)?))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_on_troubleshooting_has_the_tables() {
        let page = include_str!("../../../docs/troubleshooting.md");
        for (name, table) in
            [("reasons", table()), ("roles", table_of_roles()), ("claims", table_of_claims())]
        {
            let begin = format!("<!-- {name} -->\n");
            let (_, rest) = page.split_once(&begin).expect("the beginning of the table");
            let (found, _) = rest.split_once(&format!("<!-- end of {name} -->")).expect("its end");
            assert_eq!(found, table, "{name}");
        }
    }

    #[test]
    fn what_keeps_a_plan_from_being_in_force_has_the_word_of_its_condition() {
        let pending = [
            Pending::NoPlan,
            Pending::NoAgent,
            Pending::AgentSilent,
            Pending::AgentFailed("".into()),
            Pending::AgentBehind,
        ];
        let all = pending.into_iter().map(Waiting::Agent);
        for waiting in all.chain([Waiting::NoDriver, Waiting::Unlisted(1)]) {
            assert_eq!(RoleProblem::from(&waiting).to_string(), waiting.reason());
        }
    }

    #[test]
    fn the_word_of_a_condition_leads_to_the_same_remedy() {
        assert_eq!(of_word("NameFailed"), of(Reason::NameFailed));
        assert_eq!(of_word("NoAgent"), Some(RoleProblem::NoAgent.remedy()));
        assert_eq!(of_word("Assigned"), None);
        assert_eq!(of_word("FromTheFuture"), None);
    }

    #[test]
    fn every_reason_that_is_told_has_a_remedy() {
        for reason in Reason::ALL {
            let told = !reason.is_passing()
                && !matches!(reason, Reason::Assigned | Reason::Released | Reason::Unknown);
            assert_eq!(of(reason).is_some(), told, "{reason}");
        }
    }
}
