//! AddressPools. The address machine decides what each pool reports; this module renders the report: the finalizer that
//! keeps a pool while one of its addresses is held, the counts and the conditions. It also records Events for a pool's problems.

use super::{Amend, Parts, StatusKind};
use crate::controller::addresses::AddressShell;
use crate::controller::outbox::Outbox;
use crate::controller::render;
use crate::controller::shown::Shown;
use crate::watch::Seen;
use bowline_api::address_pool::{AddressPool, AddressPoolStatus, COUNT_MAX, FamilyCounts};
use bowline_api::{convert, names};
use bowline_core::addresses::{Counts, Guard, Pool, PoolReport};
use bowline_core::event_correlator::{About, EventDraft, Severity};
use bowline_core::key::ObjectKey;
use bowline_core::lines::{self, State};
use bowline_core::status::Condition;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::api::Api;
use serde_json::json;
use std::sync::Arc;

/// What the leader keeps of an AddressPool.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::controller) struct PoolShown {
    /// The pool in the address machine's terms.
    pool: Pool,
    uid: Arc<str>,
    status: AddressPoolStatus,
    finalizers: Vec<String>,
    deleting: bool,
}

impl StatusKind for AddressPool {
    type Shown = PoolShown;
    const NAME: &'static str = "AddressPool";

    fn api(client: Client, _: &ObjectKey) -> Api<Self> {
        Api::all(client)
    }

    fn shown(&self) -> PoolShown {
        let meta = &self.metadata;
        PoolShown {
            pool: convert::pool(self),
            uid: meta.uid.as_deref().unwrap_or_default().into(),
            status: self.status.clone().unwrap_or_default(),
            finalizers: meta.finalizers.clone().unwrap_or_default(),
            deleting: meta.deletion_timestamp.is_some(),
        }
    }

    fn observe(seen: Seen<&PoolShown>, parts: &mut Parts<'_>) {
        parts.addresses.observe_pool(seen.map(|it| &it.pool));
    }

    fn state(shown: &PoolShown) -> Option<State> {
        let status = &shown.status;
        if status.conditions.is_empty() || shown.deleting {
            return None;
        }
        let wrong = status.conditions.iter().filter(|it| it.status != "True");
        let wrong = wrong.map(|it| (it.reason.as_str(), it.message.as_str()));
        let available = status.ipv4.iter().chain(&status.ipv6).map(|it| it.available).sum();
        Some(lines::pool(wrong, available))
    }

    fn has_state(shown: &PoolShown) -> bool {
        !shown.status.conditions.is_empty()
    }

    fn next(
        key: &ObjectKey,
        shown: &Shown<PoolShown>,
        parts: &mut Parts<'_>,
        clock: Timestamp,
    ) -> Option<Amend> {
        let report = parts.addresses.pool_report(&key.name)?;
        let mut finalizers = shown.status.finalizers.clone();
        let ours = |it: &String| it == names::FINALIZER_IN_USE;
        match report.guard(finalizers.iter().any(ours), shown.status.deleting) {
            Guard::Keep => {}
            Guard::Add => {
                finalizers.push(names::FINALIZER_IN_USE.to_owned());
                return Some(Amend::Finalizers(finalizers));
            }
            Guard::Remove => {
                finalizers.retain(|it| !ours(it));
                return Some(Amend::Finalizers(finalizers));
            }
        }
        let status = pool_status(report, shown, clock);
        let patch = json!({
            "ipv4": status.ipv4, "ipv6": status.ipv6, "conditions": status.conditions,
        });
        (status != shown.status.status).then_some(Amend::Status(patch))
    }
}

/// Keeps a pool's new report. New problems get an Event, unless the pool's status already shows them: then a former
/// leader recorded it.
pub(in crate::controller) fn report(
    addresses: &mut AddressShell,
    name: &Arc<str>,
    report: Option<PoolReport>,
    shown: Option<&Shown<PoolShown>>,
    outbox: &mut Outbox,
) {
    if let (Some(report), Some(shown)) = (&report, shown) {
        let events = warnings(name, report, addresses.pool_report(name), shown);
        events.into_iter().for_each(|event| outbox.record(event));
    }
    addresses.keep_pool_report(name, report);
}

fn pool_status(
    report: &PoolReport,
    shown: &Shown<PoolShown>,
    clock: Timestamp,
) -> AddressPoolStatus {
    let count = |number: u128| i64::try_from(number).unwrap_or(COUNT_MAX).min(COUNT_MAX);
    let counts = |it: &Counts| FamilyCounts {
        assigned: count(it.assigned.into()),
        resting: count(it.resting.into()),
        available: count(it.available),
    };
    let (used, readable) = (report.used_condition(), report.readable_condition());
    let before = &shown.status.status.conditions;
    let generation = shown.generation;
    let with = render::with_condition(before, names::CONDITION_USED, &used, generation, clock);
    let conditions =
        render::with_condition(&with, names::CONDITION_READABLE, &readable, generation, clock);
    AddressPoolStatus {
        ipv4: report.ipv4.as_ref().map(counts),
        ipv6: report.ipv6.as_ref().map(counts),
        conditions,
    }
}

/// The new problems of a pool that its status does not show.
fn warnings(
    name: &Arc<str>,
    report: &PoolReport,
    before: Option<&PoolReport>,
    shown: &Shown<PoolShown>,
) -> Vec<EventDraft> {
    let conditions = &shown.status.status.conditions;
    let is_told = |it: &Condition| {
        conditions.iter().any(|old| old.reason == *it.reason && old.message == *it.message)
    };
    let object = About::Pool { key: ObjectKey::new("", &**name), uid: shown.status.uid.clone() };
    let news = report.news(before).filter(|it| !is_told(it));
    let event = |news: Condition| EventDraft {
        object: object.clone(),
        severity: Severity::Warning,
        reason: news.reason,
        message: news.message,
    };
    news.map(event).collect()
}
