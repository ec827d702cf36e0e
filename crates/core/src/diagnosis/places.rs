//! The places where a problem is told.

/// A place where a problem is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// A Warning on the object, and a line in the terminal of `bowline up`.
    Event,
    /// A line before the greeting of `bowline up`: waiting does not help.
    Start,
    /// `bowline status`.
    Status,
    /// `status.refused` of the load balancer.
    Refused,
    /// The condition `bowline.dev/Programmed` of the Service.
    Programmed,
    /// The condition `bowline.dev/Degraded` of the Service.
    Degraded,
    /// The condition `Degraded` of the load balancer.
    LoadBalancerDegraded,
    /// The condition `Programmed` of the load balancer, and an Event of it.
    LoadBalancerProgrammed,
    /// The condition `AddressFromDNS` of the Service.
    AddressFromDns,
    /// The condition `bowline.dev/Announced` of the Service.
    Announced,
    /// The condition `Bound` of the claim.
    Bound,
    /// The problems of `bowline explain`.
    Explain,
}

impl Place {
    /// All places.
    pub const ALL: [Self; 12] = [
        Self::Event,
        Self::Start,
        Self::Status,
        Self::Refused,
        Self::Programmed,
        Self::Degraded,
        Self::LoadBalancerDegraded,
        Self::LoadBalancerProgrammed,
        Self::AddressFromDns,
        Self::Announced,
        Self::Bound,
        Self::Explain,
    ];

    /// Its name in the tables of docs/troubleshooting.md.
    pub fn name(self) -> &'static str {
        match self {
            Self::Event => "Event",
            Self::Start => "start",
            Self::Status => "`status`",
            Self::Refused => "`refused`",
            Self::Programmed => "`Programmed`",
            Self::Degraded => "`Degraded`",
            Self::LoadBalancerDegraded => "`Degraded` of the load balancer",
            Self::LoadBalancerProgrammed => "`Programmed` of the load balancer",
            Self::AddressFromDns => "`AddressFromDNS`",
            Self::Announced => "`Announced`",
            Self::Bound => "`Bound`",
            Self::Explain => "`explain`",
        }
    }

    /// What the name stands for.
    pub fn means(self) -> &'static str {
        match self {
            Self::Event => {
                "a Warning of the object that it concerns (`kubectl describe`), and a line in the terminal of `bowline up`"
            }
            Self::Start => {
                "a line of `bowline up` even before its greeting, as waiting does not help"
            }
            Self::Status => "the list of refusals of `bowline status`",
            Self::Refused => "`status.refused` of the load balancer that refuses it; the first 20",
            Self::Programmed => {
                "the condition `bowline.dev/Programmed` of the Service; an Ingress has no conditions"
            }
            Self::Degraded => "the condition `bowline.dev/Degraded` of the Service",
            Self::LoadBalancerDegraded => {
                "the condition `Degraded` of the load balancer, where a listener is closed or a pool serves nobody"
            }
            Self::LoadBalancerProgrammed => {
                "the condition `Programmed` of the load balancer, and an Event of it"
            }
            Self::AddressFromDns => "the condition `AddressFromDNS` of the Service",
            Self::Announced => "the condition `bowline.dev/Announced` of the Service",
            Self::Bound => "the condition `Bound` of the claim",
            Self::Explain => "`bowline explain`, with what helps",
        }
    }
}
