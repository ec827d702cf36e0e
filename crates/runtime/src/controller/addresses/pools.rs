//! AddressPools: observes them, and renders the finalizer that keeps a pool while an address of it is held, counts and
//! conditions. The machine decides what they say; this compares and renders.

use super::super::observed::PoolSeen;
use super::super::outbox::Outbox;
use super::super::render;
use super::super::shown::{PoolShown, Shown};
use super::super::target::{Next, Target, Tried};
use super::super::writer::{Amend, Write};
use super::AddressShell;
use crate::watch::Seen;
use bowline_api::address_pool::{AddressPoolStatus, COUNT_MAX, FamilyCounts};
use bowline_api::names;
use bowline_core::addresses::{Counts, Event, Guard, Kind, Object, PoolReport};
use bowline_core::announce::{About, Announcement, Severity};
use bowline_core::key::ObjectKey;
use bowline_core::status::Condition;
use k8s_openapi::jiff::Timestamp;
use serde_json::json;
use std::sync::Arc;

impl AddressShell {
    /// Observes an AddressPool.
    pub(in crate::controller) fn observe_pool(&mut self, seen: Seen<PoolSeen>) {
        self.tell(match seen {
            Seen::Begin => Event::Begin(Kind::Pool),
            Seen::Apply(it) => Event::Apply(Box::new(Object::Pool(it.pool))),
            Seen::Delete(it) => Event::Delete(Kind::Pool, ObjectKey::new("", it.pool.name)),
            Seen::Done => Event::Done(Kind::Pool),
        });
    }

    /// A pool reports this from now on. What is wrong with it is announced, unless its status says so: then a former
    /// leader announced it.
    pub(in crate::controller) fn report_pool(
        &mut self,
        name: Arc<str>,
        report: Option<PoolReport>,
        shown: Option<&Shown<PoolShown>>,
        outbox: &mut Outbox,
    ) {
        match report {
            Some(report) => {
                if let Some(shown) = shown {
                    let events = warnings(&name, &report, self.reports.get(&name), shown);
                    events.into_iter().for_each(|event| outbox.announce(event));
                }
                self.reports.insert(Arc::clone(&name), report);
            }
            None => _ = self.reports.remove(&name),
        }
        outbox.enqueue(Target::Pool(name));
    }

    pub(in crate::controller) fn next_pool(
        &self,
        name: &Arc<str>,
        shown: Option<&Shown<PoolShown>>,
        clock: Timestamp,
    ) -> Next {
        let (Some(shown), Some(report)) = (shown, self.reports.get(name)) else {
            return Next::Nothing;
        };
        let tried = Tried::at(&shown.version);
        let finalizers = &shown.status.finalizers;
        let others = finalizers.iter().filter(|it| *it != names::FINALIZER_IN_USE).cloned();
        let guarded = finalizers.iter().any(|it| it == names::FINALIZER_IN_USE);
        match report.guard(guarded, shown.status.deleting) {
            Guard::Keep => {}
            Guard::Add => {
                let mut all = finalizers.clone();
                all.push(names::FINALIZER_IN_USE.to_owned());
                return finalize(name, &all, tried);
            }
            Guard::Remove => return finalize(name, &others.collect::<Vec<_>>(), tried),
        }
        let status = pool_status(report, shown, clock);
        if status == shown.status.status {
            return Next::Nothing;
        }
        let patch = json!({
            "metadata": {"resourceVersion": &*shown.version},
            "status": {
                "ipv4": status.ipv4, "ipv6": status.ipv6, "conditions": status.conditions,
            },
        });
        Next::Write(Write::Pool(Arc::clone(name), Amend::Status(patch)), tried)
    }
}

fn finalize(name: &Arc<str>, finalizers: &[String], tried: Tried) -> Next {
    let finalizers = (!finalizers.is_empty()).then_some(finalizers);
    let patch = json!({
        "metadata": {"resourceVersion": tried.version, "finalizers": finalizers},
    });
    Next::Write(Write::Pool(Arc::clone(name), Amend::Finalizers(patch)), tried)
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

/// What is new and wrong with a pool, and not in its status.
fn warnings(
    name: &Arc<str>,
    report: &PoolReport,
    before: Option<&PoolReport>,
    shown: &Shown<PoolShown>,
) -> Vec<Announcement> {
    let conditions = &shown.status.status.conditions;
    let is_told = |it: &Condition| {
        conditions.iter().any(|old| old.reason == *it.reason && old.message == *it.message)
    };
    let object = About::Pool { key: ObjectKey::new("", &**name), uid: shown.status.uid.clone() };
    let news = report.news(before).filter(|it| !is_told(it));
    let event = |news: Condition| Announcement {
        object: object.clone(),
        severity: Severity::Warning,
        reason: news.reason,
        message: news.message,
    };
    news.map(event).collect()
}
