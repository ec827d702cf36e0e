//! AddressPools, and what they are told: the finalizer that keeps it while somebody has an address of it, counts
//! and conditions. What they say is decided by the machine; this compares and renders.

use super::*;
use crate::controller::inputs::PoolSeen;
use crate::controller::shown::Shown;
use crate::controller::writes::Amend;
use bowline_api::address_pool::{AddressPoolStatus, COUNT_MAX, FamilyCounts};
use bowline_core::addresses::{Counts, Guard};
use bowline_core::announce::About;
use bowline_core::status::Condition;
use serde_json::json;

impl State {
    pub(in crate::controller::state) fn hear_pool(&mut self, seen: Seen<PoolSeen>) {
        let pooled = &mut self.pooled;
        match seen {
            Seen::Begin => {
                pooled.pools.begin();
                pooled.tell(Told::Begin(Class::Pool));
            }
            Seen::Apply(PoolSeen { pool, shown }) => {
                let name = Arc::clone(&pool.name);
                pooled.pools.put(Arc::clone(&name), shown);
                pooled.tell(Told::Apply(Box::new(Thing::Pool(pool))));
                self.dirty.insert(Target::Pool(name));
            }
            Seen::Delete(PoolSeen { pool, .. }) => {
                pooled.pools.remove(&pool.name);
                pooled.tell(Told::Delete(Class::Pool, ObjectKey::new("", pool.name)));
            }
            Seen::Done => {
                pooled.pools.done();
                pooled.tell(Told::Done(Class::Pool));
                self.listed.insert("AddressPool");
            }
        }
    }

    /// Says what is wrong with a pool, unless a former leader wrote so already.
    pub(super) fn say_of_pool(&mut self, name: &Arc<str>, report: &PoolReport) {
        let Some(shown) = self.pooled.pools.get(name) else { return };
        let before = &shown.status.status.conditions;
        let is_told = |it: &Condition| {
            before.iter().any(|old| old.reason == *it.reason && old.message == *it.message)
        };
        let about = About::Pool { key: ObjectKey::new("", &**name), uid: shown.status.uid.clone() };
        for news in report.news(self.pooled.reports.get(name)).filter(|it| !is_told(it)) {
            self.said.push(Announcement {
                object: about.clone(),
                severity: Severity::Warning,
                reason: news.reason,
                message: news.message,
            });
        }
    }

    pub(in crate::controller::state) fn next_pool(
        &self,
        name: &Arc<str>,
        clock: Timestamp,
    ) -> Next {
        let (Some(shown), Some(report)) =
            (self.pooled.pools.get(name), self.pooled.reports.get(name))
        else {
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
        "metadata": {"resourceVersion": tried.version(), "finalizers": finalizers},
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
