//! The text of `bowline status --addresses`, and the phrases for an address that `explain` shares.
//! Pure.

use super::addresses::{AddressView, Addresses, ConditionView, HolderView, PoolView};
use super::status_text::notes;
use super::words::{bullet, columns};
use bowline_api::address_pool::{COUNT_MAX, FamilyCounts};
use bowline_core::key::ObjectKey;
use bowline_core::outcome::quote;

/// Pools, addresses, and problems of pools.
pub(super) fn addresses(view: &Addresses) -> String {
    let mut out = String::new();
    if view.pools.is_empty() {
        out.push_str("No address pools.\n");
    } else {
        out.push_str(&columns(&pools(&view.pools), ""));
    }
    out.push('\n');
    if view.addresses.is_empty() {
        out.push_str("No address is held.\n");
    } else {
        out.push_str(&columns(&table(&view.addresses), ""));
    }
    let wrong: Vec<_> =
        view.pools.iter().flat_map(|pool| wrong(pool).map(move |it| (pool, it))).collect();
    if !wrong.is_empty() {
        out.push_str("\nProblems:\n");
    }
    for (pool, condition) in wrong {
        bullet(&mut out, "  - ", &format!("AddressPool {}: {}", pool.name, told(condition)));
    }
    notes(&mut out, &view.notes);
    out
}

/// The conditions of a pool that do not hold; all hold when the pool is fine.
fn wrong(pool: &PoolView) -> impl Iterator<Item = &ConditionView> {
    pool.conditions.iter().filter(|it| it.status != "True")
}

/// The reason and the message of a condition.
pub(super) fn told(condition: &ConditionView) -> String {
    match condition.message.as_str() {
        "" => condition.reason.clone(),
        message => format!("{}: {message}", condition.reason),
    }
}

fn pools(all: &[PoolView]) -> Vec<Vec<String>> {
    let head = ["POOL", "ASSIGN", "FAMILY", "USED", "FREE", "RESTING", "STATE"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for pool in all {
        let families = [("IPv4", pool.ipv4), ("IPv6", pool.ipv6)];
        let counted = families.into_iter().filter_map(|(name, counts)| Some((name, counts?)));
        let mut counts: Vec<_> = counted.map(|(name, it)| cells(name, it)).collect();
        if counts.is_empty() {
            counts.push(["-"; 4].map(str::to_owned));
        }
        for (index, cells) in counts.into_iter().enumerate() {
            let first = index == 0;
            let of_pool = |text: &str| if first { text.to_owned() } else { String::new() };
            let mut row = vec![
                of_pool(&pool.name),
                of_pool(if pool.auto_assign { "auto" } else { "by name" }),
            ];
            row.extend(cells);
            row.push(of_pool(&state(pool)));
            rows.push(row);
        }
    }
    rows
}

fn cells(family: &str, counts: FamilyCounts) -> [String; 4] {
    let number = |count: i64| match count >= COUNT_MAX {
        true => "plenty".to_owned(),
        false => count.to_string(),
    };
    [family.to_owned(), number(counts.assigned), number(counts.available), number(counts.resting)]
}

fn state(pool: &PoolView) -> String {
    match wrong(pool).next() {
        Some(condition) => condition.reason.clone(),
        None if pool.conditions.is_empty() => "-".to_owned(),
        None => "ok".to_owned(),
    }
}

fn table(all: &[AddressView]) -> Vec<Vec<String>> {
    let head = ["ADDRESS", "POOL", "STATE", "UNTIL", "HELD BY"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for one in all {
        let holders: Vec<_> = one.holders.iter().map(holder).collect();
        rows.push(vec![
            one.address.to_string(),
            one.pool.clone().unwrap_or_else(|| "-".to_owned()),
            format!("{:?}", one.state),
            one.left.map_or_else(|| "-".to_owned(), left),
            if holders.is_empty() { "-".to_owned() } else { holders.join(", ") },
        ]);
    }
    rows
}

/// `Service shop/web (key "k", on edge)`.
fn holder(one: &HolderView) -> String {
    let key = one.key.as_deref().map(|key| format!("key {}", quote(key)));
    let on = one.load_balancer.as_deref().map(|name| format!("on {name}"));
    let more: Vec<_> = key.into_iter().chain(on).collect();
    match more.is_empty() {
        true => who(one),
        false => format!("{} ({})", who(one), more.join(", ")),
    }
}

/// `Service shop/web`.
pub(super) fn who(one: &HolderView) -> String {
    let key = ObjectKey::new(one.namespace.as_str(), one.name.as_str());
    format!("{:?} {key}", one.kind)
}

/// The time left, in one unit.
pub(super) fn left(seconds: i64) -> String {
    match seconds {
        ..=0 => "now".to_owned(),
        1..120 => format!("in {seconds} s"),
        120..7200 => format!("in {} min", seconds / 60),
        7200..172_800 => format!("in {} h", seconds / 3600),
        _ => format!("in {} days", seconds / 86_400),
    }
}
