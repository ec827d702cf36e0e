//! The provisioned objects of load balancers: when they are observed, what they should be, and what was found. It
//! does no I/O: the writer reads, creates and repairs; `bowline_core::provision` decides.

use super::outbox::Outbox;
use super::target::{Next, Target, Tried};
use super::writer::Write;
use super::writer::provisions::Provisioned;
use bowline_api::provisioned_objects::{Images, Made, Wish};
use bowline_core::binder;
use bowline_core::clock::Uptime;
use bowline_core::event_correlator::{EventDraft, Severity};
use bowline_core::key::{ConsumerKind, ConsumerRef, ObjectKey};
use bowline_core::provision::{Reach, Standing};
use bowline_core::status::Condition;
use ipnet::IpNet;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Resync interval for objects that are ready.
const SELDOM: Duration = Duration::from_secs(60);
/// Requeue interval for objects that are not ready.
const OFTEN: Duration = Duration::from_secs(10);
/// Requeue interval while objects are being removed.
const REMOVING: Duration = Duration::from_secs(1);

/// The provisioned objects of all load balancers.
#[derive(Default)]
pub(super) struct Provisions {
    all: BTreeMap<Arc<str>, Provision>,
    /// Load balancers by the Service in front of them.
    doors: BTreeMap<ObjectKey, Arc<str>>,
    /// Where clients reach each load balancer: as read last, or as its status says.
    reach: BTreeMap<Arc<str>, Reach>,
    images: Images,
    /// Their agents send no traffic to members in these networks.
    deny_members: Vec<IpNet>,
}

/// The provisioned objects of one load balancer.
#[derive(Default)]
struct Provision {
    /// What the objects should have been at the last write.
    wish: Option<Wish>,
    /// Whether an event concerned them since the last write.
    touched: bool,
    look_at: Option<Uptime>,
    now: Option<Provisioned>,
}

impl Provisions {
    /// Agents run these images and send no traffic to members in the `deny_members` networks.
    pub(super) fn with(images: Images, deny_members: Vec<IpNet>) -> Self {
        Self { images, deny_members, ..Self::default() }
    }

    /// Enqueues a load balancer's objects after an event that concerns them.
    pub(super) fn touch(&mut self, lb: &Arc<str>, outbox: &mut Outbox) {
        if let Some(provision) = self.all.get_mut(lb) {
            provision.touched = true;
            outbox.enqueue(Target::Provision(Arc::clone(lb)));
        }
    }

    /// Enqueues the load balancer behind this Service, if it is behind one.
    pub(super) fn touch_service(&mut self, service: &ObjectKey, outbox: &mut Outbox) {
        if let Some(lb) = self.doors.get(service).cloned() {
            self.touch(&lb, outbox);
        }
    }

    /// Enqueues the objects of all load balancers: a class changed, or this process begins to lead.
    pub(super) fn touch_all(&mut self, outbox: &mut Outbox) {
        for lb in self.all.keys().cloned().collect::<Vec<_>>() {
            self.touch(&lb, outbox);
        }
    }

    /// Forgets a deleted load balancer.
    pub(super) fn forget(&mut self, lb: &Arc<str>) {
        self.all.remove(lb);
        self.reach.remove(lb);
        self.doors.retain(|_, it| it != lb);
    }

    /// Notes the Service that is in front of a load balancer.
    pub(super) fn note_door(&mut self, made: &Made, lb: &Arc<str>) {
        let door = ObjectKey::new(made.namespace.as_str(), made.service.as_str());
        self.doors.insert(door, Arc::clone(lb));
    }

    /// The next write of a load balancer's objects, or when they are due. `wish` builds what they should be.
    pub(super) fn next(
        &mut self,
        lb: &Arc<str>,
        wish: impl FnOnce(Images, Vec<IpNet>) -> Wish,
        now: Uptime,
    ) -> Next {
        let wish = wish(self.images.clone(), self.deny_members.clone());
        let provision = self.all.entry(Arc::clone(lb)).or_default();
        let due = provision.look_at.is_none_or(|at| at <= now);
        if !due && !provision.touched && provision.wish.as_ref() == Some(&wish) {
            return provision.look_at.map_or(Next::Nothing, Next::Later);
        }
        provision.touched = false;
        provision.wish = Some(wish.clone());
        Next::Write(Write::Provision(Box::new(wish)), Tried::default())
    }

    /// Records the observed state of a load balancer's objects. `uid` is the load balancer's. False: it has no
    /// provisioned objects any more.
    pub(super) fn provisioned(
        &mut self,
        lb: &Arc<str>,
        uid: Option<Arc<str>>,
        after: &Provisioned,
        now: Uptime,
        outbox: &mut Outbox,
    ) -> bool {
        let Some(provision) = self.all.get_mut(lb) else { return false };
        let standing = &after.standing;
        let ready = *standing == Standing::Ready;
        provision.look_at = Some(now + if ready { SELDOM } else { OFTEN });
        let before = provision.now.replace(after.clone());
        outbox.enqueue(Target::Provision(Arc::clone(lb)));
        outbox.enqueue(Target::LoadBalancer(Arc::clone(lb)));
        let same = before.is_some_and(|before| before.standing == *standing);
        if let Some(uid) = uid.filter(|_| !same) {
            record_event(lb, uid, standing, outbox);
        }
        true
    }

    /// Records where clients reach a load balancer. None: nothing changed. Some: the reach before, if one was known.
    pub(super) fn reached(&mut self, lb: &Arc<str>, reach: &Reach) -> Option<Option<Reach>> {
        let before = self.reach.insert(Arc::clone(lb), reach.clone());
        (before.as_ref() != Some(reach)).then_some(before)
    }

    /// Whether clients reach a load balancer through the Service in front of it.
    pub(super) fn is_reached(&self, lb: &str) -> bool {
        self.reach.contains_key(lb)
    }

    /// The names under which clients reach a load balancer.
    pub(super) fn hostnames(&self, lb: &str) -> &[Arc<str>] {
        self.reach.get(lb).map_or(&[], |reach| &reach.hostnames)
    }

    /// Whether this is the hostname of a load balancer.
    pub(super) fn is_hostname(&self, name: &str) -> bool {
        let mut all = self.reach.values().flat_map(|reach| &reach.hostnames);
        all.any(|it| **it == *name)
    }

    /// The condition that the status of a load balancer shows for its objects. None: it has no objects, or they are
    /// not observed yet.
    pub(super) fn condition(&self, lb: &Arc<str>) -> Option<Condition> {
        let standing = &self.all.get(lb)?.now.as_ref()?.standing;
        Some(Condition {
            holds: *standing == Standing::Ready,
            reason: standing.reason().into(),
            message: standing.message(),
        })
    }

    /// The next write that removes a load balancer's objects, for a job of the binder.
    pub(super) fn next_removal(
        &mut self,
        lb: &Arc<str>,
        made: Made,
        job: binder::Id,
        now: Uptime,
    ) -> Next {
        let provision = self.all.entry(Arc::clone(lb)).or_default();
        match provision.look_at.filter(|at| *at > now && !provision.touched) {
            Some(at) => Next::Later(at),
            None => {
                provision.touched = false;
                Next::Write(Write::Deprovision(job, Box::new(made)), Tried::default())
            }
        }
    }

    /// Records a removal: all objects are gone (true), some are still being removed (false), or the removal failed.
    /// Returns the result of the job; None: the job goes on.
    pub(super) fn removed(
        &mut self,
        lb: &Arc<str>,
        result: Result<bool, String>,
        now: Uptime,
        outbox: &mut Outbox,
    ) -> Option<Result<(), Arc<str>>> {
        let provision = self.all.entry(Arc::clone(lb)).or_default();
        provision.look_at = None;
        match result {
            Ok(false) => {
                provision.look_at = Some(now + REMOVING);
                outbox.enqueue(Target::Job(Arc::clone(lb)));
                None
            }
            Ok(true) => Some(Ok(())),
            Err(why) => Some(Err(why.into())),
        }
    }
}

/// Records an Event: the objects of a load balancer are ready or have failed.
fn record_event(lb: &Arc<str>, uid: Arc<str>, standing: &Standing, outbox: &mut Outbox) {
    let severity = match standing {
        Standing::Ready => Severity::Normal,
        Standing::Failed(_) => Severity::Warning,
        Standing::Coming(_) => return,
    };
    let (kind, name) = (ConsumerKind::LoadBalancer, Arc::clone(lb));
    outbox.record(EventDraft {
        object: ConsumerRef { kind, namespace: "".into(), name, uid }.into(),
        severity,
        reason: format!("Provisioning{}", standing.reason()).into(),
        message: standing.message(),
    });
}
