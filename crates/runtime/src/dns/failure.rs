//! Converts errors of the resolver library to the failure kinds of `bowline-core`. `lookup` calls it
//! for every look-up without an address.

use bowline_core::dns::FailureKind;
use bowline_core::outcome::quote;
use hickory_resolver::net::{DnsError, NetError, NoRecords};
use hickory_resolver::proto::op::ResponseCode;

/// The kind of failure, and what the kind does not say; mostly empty.
pub(super) fn of(error: &NetError) -> (FailureKind, String) {
    let kind = match error {
        NetError::Timeout | NetError::Busy => FailureKind::Timeout,
        NetError::NoConnections => FailureKind::Unreachable,
        NetError::Io(error) => return (FailureKind::Unreachable, error.to_string()),
        NetError::Dns(DnsError::NoRecordsFound(none)) => return no_records(none),
        NetError::Dns(DnsError::ResponseCode(code)) => return response_code(*code),
        // The text may contain what a server wrote.
        other => return (FailureKind::Unusable, quote(&other.to_string())),
    };
    (kind, String::new())
}

/// Whether an alias loop may be the cause: BIND answers it with SERVFAIL, other servers with no
/// address, no SOA and no referral.
pub(super) fn may_be_loop(error: &NetError) -> bool {
    match error {
        NetError::Dns(DnsError::ResponseCode(code)) => *code == ResponseCode::ServFail,
        NetError::Dns(DnsError::NoRecordsFound(none)) => {
            none.response_code == ResponseCode::NoError && none.soa.is_none() && none.ns.is_none()
        }
        _ => false,
    }
}

fn no_records(none: &NoRecords) -> (FailureKind, String) {
    let kind = match none.response_code {
        ResponseCode::NXDomain => FailureKind::NxDomain,
        // A server that knows the domain adds its SOA record. A server that refers to others instead
        // was asked to resolve the name and did not.
        ResponseCode::NoError if none.soa.is_none() && none.ns.is_some() => FailureKind::Lame,
        ResponseCode::NoError => FailureKind::NoData,
        code => return response_code(code),
    };
    (kind, String::new())
}

fn response_code(code: ResponseCode) -> (FailureKind, String) {
    let kind = match code {
        ResponseCode::ServFail => FailureKind::ServFail,
        ResponseCode::Refused => FailureKind::Refused,
        ResponseCode::NXDomain => FailureKind::NxDomain,
        ResponseCode::NotAuth | ResponseCode::NotZone => FailureKind::Lame,
        other => return (FailureKind::Unusable, other.to_string()),
    };
    (kind, String::new())
}
