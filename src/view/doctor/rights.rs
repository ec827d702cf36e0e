//! Checks that the ServiceAccounts of controllers and agents may do what they need. Pure.

use super::{Check, Checked, Installation, Rights, some};

pub(super) fn rights(installation: &Installation) -> Vec<Checked> {
    let lacking = match &installation.rights {
        Rights::Unknown(why) => return Check::Rights.unknown(why),
        Rights::Known(lacking) => lacking,
    };
    let found = lacking.iter().filter(|(_, all)| !all.is_empty()).map(|(account, all)| {
        let message = format!("ServiceAccount {account} may not {}", some(all));
        Check::Rights.wrong(
            message,
            "helm upgrade with the chart of the controllers' version, or: kubectl apply -f deploy/rbac",
        )
    });
    let accounts: Vec<_> = lacking.keys().map(String::as_str).collect();
    let fine = format!("{} may do what they need", accounts.join(", "));
    Check::Rights.or_ok(found.collect(), fine)
}
