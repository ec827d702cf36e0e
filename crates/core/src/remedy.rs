//! What helps against each problem, and who can do it: one table for conditions, Events, `bowline explain` and
//! docs/troubleshooting.md. The message of a problem says what is wrong with which value; this says what to do. Nothing
//! here decides whether there is a problem.

use crate::outcome::Reason;

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
        SeatPending | Recording | NamePending | Assigned | Released | Unknown => return None,
    };
    Some(Remedy { owner, what })
}

/// The table for people, as docs/troubleshooting.md has it.
pub fn table() -> String {
    let rows = Reason::ALL.into_iter().filter_map(|reason| {
        let Remedy { owner, what } = of(reason)?;
        let owner = match owner {
            Owner::Tenant => "the object's owner",
            Owner::Administrator => "an administrator",
        };
        Some(format!("| `{reason}` | {owner} | {what} |\n"))
    });
    format!("| reason | who can help | what helps |\n|---|---|---|\n{}", rows.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_on_troubleshooting_has_the_table() {
        let page = include_str!("../../../docs/troubleshooting.md");
        let (_, rest) = page.split_once("<!-- reasons -->\n").expect("the beginning of the table");
        let (found, _) = rest.split_once("<!-- end of reasons -->").expect("its end");
        assert_eq!(found, table());
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
