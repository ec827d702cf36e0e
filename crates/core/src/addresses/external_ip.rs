//! Derives what the status of an ExternalIP says of its addresses. It decides nothing about the Pod. The controller
//! compares the result with the current status and writes it.

use super::verdict::Decision;
use crate::status::Condition;
use std::net::IpAddr;

/// The phase of an ExternalIP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExternalIpPhase {
    /// It has no address yet.
    Pending,
    /// It has an address, and nothing is forwarded yet.
    Assigned,
    /// Traffic reaches its Pod.
    Forwarding,
}

/// What the status of an ExternalIP says, or should say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExternalIpStatus {
    /// Its addresses, one per family.
    pub addresses: Vec<IpAddr>,
    /// Its phase. None: not set yet.
    pub phase: Option<ExternalIpPhase>,
    /// Whether it has its addresses. None: unchanged.
    pub condition: Option<Condition>,
}

impl ExternalIpStatus {
    /// The status that follows `before`. Without a decision it stays, except that an ExternalIP that is being deleted
    /// shows no address.
    pub fn of(decision: Option<&Decision>, before: Self, deleting: bool) -> Self {
        let Some(decision) = decision else {
            let addresses = if deleting { Vec::new() } else { before.addresses };
            return Self { addresses, ..before };
        };
        let addresses: Vec<IpAddr> = decision.addresses.iter().map(|it| it.address).collect();
        let phase = match before.phase {
            _ if addresses.is_empty() => ExternalIpPhase::Pending,
            Some(ExternalIpPhase::Forwarding) => ExternalIpPhase::Forwarding,
            _ => ExternalIpPhase::Assigned,
        };
        Self { addresses, phase: Some(phase), condition: Some(decision.condition(None)) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::verdict::{Granted, Verdict};
    use super::*;
    use crate::outcome::Reason;

    fn decision(addresses: &[IpAddr]) -> Decision {
        let granted = addresses.iter().map(|it| Granted { address: *it, pool: Some("p".into()) });
        let reason = if addresses.is_empty() { Reason::PoolsExhausted } else { Reason::Assigned };
        Decision {
            addresses: granted.collect(),
            draining: Vec::new(),
            verdict: Verdict::new(reason, "because"),
        }
    }

    fn said(addresses: &[IpAddr], phase: ExternalIpPhase) -> ExternalIpStatus {
        ExternalIpStatus { addresses: addresses.to_vec(), phase: Some(phase), condition: None }
    }

    fn decided(addresses: &[IpAddr], phase: ExternalIpPhase) -> ExternalIpStatus {
        let condition = Some(decision(addresses).condition(None));
        ExternalIpStatus { condition, ..said(addresses, phase) }
    }

    const ONE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

    #[test]
    fn it_is_assigned_with_its_first_address_and_pending_without_one() {
        use ExternalIpPhase::{Assigned, Pending};
        let new = ExternalIpStatus::default;
        assert_eq!(
            ExternalIpStatus::of(Some(&decision(&[ONE])), new(), false),
            decided(&[ONE], Assigned)
        );
        let lost = ExternalIpStatus::of(Some(&decision(&[])), said(&[ONE], Assigned), false);
        assert_eq!(lost, decided(&[], Pending));
    }

    #[test]
    fn what_is_forwarded_stays_so_while_it_has_an_address() {
        use ExternalIpPhase::{Forwarding, Pending};
        let before = || said(&[ONE], Forwarding);
        let of = |addresses: &[IpAddr]| {
            ExternalIpStatus::of(Some(&decision(addresses)), before(), false)
        };
        assert_eq!(of(&[ONE]), decided(&[ONE], Forwarding));
        assert_eq!(of(&[]), decided(&[], Pending));
    }

    #[test]
    fn while_nothing_is_decided_it_stays_and_when_nothing_is_left_it_shows_no_address() {
        use ExternalIpPhase::Assigned;
        let before = || said(&[ONE], Assigned);
        assert_eq!(ExternalIpStatus::of(None, before(), false), before());
        assert_eq!(ExternalIpStatus::of(None, before(), true), said(&[], Assigned));
    }
}
