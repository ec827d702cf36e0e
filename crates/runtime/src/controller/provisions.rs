//! The objects that serve load balancers of classes in a cluster: when they are looked at, what they should be, and
//! what was found. The writer looks, makes and repairs; `bowline_core::provision` decides.

use super::outbox::Outbox;
use super::target::{Next, Target, Tried};
use super::writer::Write;
use super::writer::provisions::Provisioned;
use bowline_api::provisioned_objects::{Images, Made, Wish};
use bowline_core::announce::{Announcement, Severity};
use bowline_core::binder;
use bowline_core::clock::Uptime;
use bowline_core::key::{ConsumerKind, ConsumerRef, ObjectKey};
use bowline_core::provision::{Reach, Standing};
use bowline_core::status::Condition;
use ipnet::IpNet;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// How often objects that are ready are looked at although no event came; and objects that are not.
const SELDOM: Duration = Duration::from_secs(60);
const OFTEN: Duration = Duration::from_secs(10);
/// How often objects that are being removed are looked at.
const REMOVING: Duration = Duration::from_secs(1);

/// See the module.
#[derive(Default)]
pub(super) struct Provisions {
    all: BTreeMap<Arc<str>, Provision>,
    /// Load balancers by the Service in front of them.
    doors: BTreeMap<ObjectKey, Arc<str>>,
    /// Where clients reach them: as read last, or as the load balancer's status says.
    reach: BTreeMap<Arc<str>, Reach>,
    images: Images,
    /// Networks in which their agents send traffic to no member.
    deny_members: Vec<IpNet>,
}

/// The objects of one load balancer.
#[derive(Default)]
struct Provision {
    /// What they were to be when they were looked at last.
    wish: Option<Wish>,
    /// Whether an event concerned them since.
    touched: bool,
    look_at: Option<Uptime>,
    now: Option<Provisioned>,
}

impl Provisions {
    /// Agents run these images and send traffic to no member in these networks.
    pub(super) fn with(images: Images, deny_members: Vec<IpNet>) -> Self {
        Self { images, deny_members, ..Self::default() }
    }

    /// An event concerned the objects of a load balancer.
    pub(super) fn touch(&mut self, lb: &Arc<str>, outbox: &mut Outbox) {
        if let Some(provision) = self.all.get_mut(lb) {
            provision.touched = true;
            outbox.enqueue(Target::Provision(Arc::clone(lb)));
        }
    }

    /// An event concerned a Service, which may be in front of a load balancer.
    pub(super) fn touch_service(&mut self, service: &ObjectKey, outbox: &mut Outbox) {
        if let Some(lb) = self.doors.get(service).cloned() {
            self.touch(&lb, outbox);
        }
    }

    /// A class changed, or this process begins to lead: the objects of all load balancers are looked at.
    pub(super) fn touch_all(&mut self, outbox: &mut Outbox) {
        for lb in self.all.keys().cloned().collect::<Vec<_>>() {
            self.touch(&lb, outbox);
        }
    }

    /// A load balancer is deleted.
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

    /// The next look at the objects of a load balancer, which should be this.
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

    /// The objects of a load balancer were looked at. `uid` is the load balancer's. False: it has none any more.
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
            announce(lb, uid, standing, outbox);
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

    /// Whether clients reach some load balancer under a name.
    pub(super) fn is_hostname(&self, name: &str) -> bool {
        let mut all = self.reach.values().flat_map(|reach| &reach.hostnames);
        all.any(|it| **it == *name)
    }

    /// What the status of a load balancer says of its objects. None: it has none.
    pub(super) fn condition(&self, lb: &Arc<str>) -> Option<Condition> {
        let standing = &self.all.get(lb)?.now.as_ref()?.standing;
        Some(Condition {
            holds: *standing == Standing::Ready,
            reason: standing.reason().into(),
            message: standing.message(),
        })
    }

    /// Removes the objects of a load balancer, for a job of the binder.
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

    /// The objects of a load balancer are gone (true), going, or could not be removed. What the job led to; None: it
    /// goes on.
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

/// Announces that the objects of a load balancer are ready, or have failed.
fn announce(lb: &Arc<str>, uid: Arc<str>, standing: &Standing, outbox: &mut Outbox) {
    let severity = match standing {
        Standing::Ready => Severity::Normal,
        Standing::Failed(_) => Severity::Warning,
        Standing::Coming(_) => return,
    };
    let (kind, name) = (ConsumerKind::LoadBalancer, Arc::clone(lb));
    outbox.announce(Announcement {
        object: ConsumerRef { kind, namespace: "".into(), name, uid }.into(),
        severity,
        reason: format!("Provisioning{}", standing.reason()).into(),
        message: standing.message(),
    });
}
