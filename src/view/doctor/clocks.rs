//! Checks that the clocks of all machines agree, as far as Leases show. Pure.

use super::{Check, Checked, Installation, bounded};
use bowline_api::names;
use bowline_runtime::lease;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::Timestamp;

/// Clocks that differ by this many seconds are no matter.
const CLOCKS_AGREE: i64 = 5;

pub(super) fn clocks(installation: &Installation) -> Vec<Checked> {
    const REMEDY: &str = "synchronize it by NTP (timedatectl set-ntp true)";
    let mut found = Vec::new();
    if let Some(ahead) = installation.server_ahead.filter(|it| it.abs() > CLOCKS_AGREE) {
        let word = if ahead > 0 { "behind" } else { "ahead of" };
        let message = format!("this machine's clock is {} s {word} the API server's", ahead.abs());
        found.push(Check::Clocks.wrong(message, REMEDY));
    }
    // A renewal from the future has only one reason. One of the past has many.
    let renewals = installation.leases.iter().flat_map(renewals);
    for (process, renewed) in renewals {
        let ahead = renewed.as_second() - installation.now.as_second();
        if ahead > CLOCKS_AGREE {
            let message = format!("the clock of {process} is {ahead} s ahead");
            found.push(Check::Clocks.wrong(message, REMEDY));
        }
    }
    if found.is_empty() && installation.server_ahead.is_none() {
        return Check::Clocks.unknown("the API server does not tell the time");
    }
    Check::Clocks.or_ok(bounded(found), "they agree, as far as Leases show")
}

/// Who has renewed a Lease, and when by its own clock.
fn renewals(lease: &Lease) -> Vec<(String, Timestamp)> {
    let name = lease.metadata.name.as_deref();
    if name == Some(names::LEASE_CONTROLLER) {
        let spec = lease.spec.iter();
        return spec
            .filter_map(|it| Some((it.holder_identity.clone()?, it.renew_time.as_ref()?.0)))
            .collect();
    }
    let entries = lease::entries(lease).into_iter().filter(|it| it.left.is_none());
    entries.filter_map(|it| Some((it.agent.to_string(), it.renewed.parse().ok()?))).collect()
}
