//! What serves load balancers that classes make in a cluster: when it is to be looked at, what it should be,
//! and what became of it. The writer looks, makes and mends; nothing is decided here.

use super::*;
use crate::controller::provision::Provisioned;
use bowline_api::proxies::{Images, Made, Wish};
use bowline_core::plan::Transport;
use bowline_core::provision::{Reach, Standing};
use bowline_core::status::Condition as Said;

/// How often what is ready is looked at although nothing was heard of it; and what is not.
const SELDOM: Duration = Duration::from_secs(60);
const OFTEN: Duration = Duration::from_secs(10);
/// How often what is being removed is looked at.
const REMOVING: Duration = Duration::from_secs(1);

/// What serves load balancers that classes made.
#[derive(Default)]
pub(super) struct Provisions {
    all: BTreeMap<Arc<str>, Provision>,
    /// Load balancers by the Service in front of them.
    doors: BTreeMap<ObjectKey, Arc<str>>,
    /// Where that is reached, as it was read last or as the load balancer's status says.
    reach: BTreeMap<Arc<str>, Reach>,
    pub(super) images: Images,
    /// Networks in which their agents send traffic to no member.
    pub(super) deny_members: Vec<IpNet>,
}

/// What serves one.
#[derive(Default)]
struct Provision {
    /// What it was to be when it was looked at last.
    wish: Option<Wish>,
    /// Whether something was heard of it since.
    touched: bool,
    look_at: Option<Instant>,
    now: Option<Provisioned>,
}

impl Provisions {
    /// Whether a load balancer is reached where the Service in front of it is.
    pub(super) fn is_reached(&self, lb: &str) -> bool {
        self.reach.contains_key(lb)
    }
}

impl State {
    /// Something was heard of what serves a load balancer.
    pub(in crate::controller) fn touch_provision(&mut self, lb: &Arc<str>) {
        if let Some(provision) = self.provisions.all.get_mut(lb) {
            provision.touched = true;
            self.dirty.insert(Target::Provision(Arc::clone(lb)));
        }
    }

    /// Something was heard of a Service.
    pub(super) fn touch_door(&mut self, service: &ObjectKey) {
        if let Some(lb) = self.provisions.doors.get(service).cloned() {
            self.touch_provision(&lb);
        }
    }

    /// A class is another one, or we begin to lead: everything is looked at.
    pub(super) fn touch_provisions(&mut self) {
        for lb in self.provisions.all.keys().cloned().collect::<Vec<_>>() {
            self.touch_provision(&lb);
        }
    }

    pub(super) fn forget_provision(&mut self, lb: &Arc<str>) {
        self.provisions.all.remove(lb);
        self.provisions.reach.remove(lb);
        self.provisions.doors.retain(|_, it| it != lb);
    }

    /// What a load balancer that a class made in the cluster is.
    pub(super) fn made(&self, lb: &Arc<str>) -> Option<&Made> {
        self.balancers.get(lb)?.status.made.as_ref()
    }

    pub(super) fn next_provision(&mut self, lb: &Arc<str>, now: Instant) -> Next {
        let Some(made) = self.made(lb).filter(|made| !made.deleting).cloned() else {
            return Next::Nothing;
        };
        let door = ObjectKey::new(made.namespace.as_str(), made.service.as_str());
        self.provisions.doors.insert(door, Arc::clone(lb));
        let class = self.balancers.get(lb).and_then(|it| it.status.known.class.clone());
        // Of a class that is gone nobody knows what it would say now: what is there stays.
        let Some(class) = class.and_then(|class| self.bindings.class(&class)) else {
            return Next::Nothing;
        };
        let listeners = self.listeners(lb);
        let images = self.provisions.images.clone();
        let wish = Wish {
            deny_members: self.provisions.deny_members.clone(),
            ..Wish::new(made, &self.bindings.own_namespace(), &class, listeners, images)
        };
        let provision = self.provisions.all.entry(Arc::clone(lb)).or_default();
        let due = provision.look_at.is_none_or(|at| at <= now);
        if !due && !provision.touched && provision.wish.as_ref() == Some(&wish) {
            return provision.look_at.map_or(Next::Nothing, Next::Later);
        }
        provision.touched = false;
        provision.wish = Some(wish.clone());
        Next::Write(Write::Provision(Box::new(wish)), Tried::default())
    }

    /// The ports that are open on a load balancer.
    fn listeners(&self, lb: &Arc<str>) -> BTreeSet<(u16, Transport)> {
        let own = (ConsumerKind::LoadBalancer, ObjectKey::new("", Arc::clone(lb)));
        let consumers = self.planner.consumers(lb).map(|it| (it.kind, key(it)));
        let open = consumers.chain([own]).flat_map(|(kind, key)| {
            let parts = self.planner.parts_on(lb, kind, &key);
            parts.iter().flat_map(|it| &it.listeners).map(ListenerKey::of).collect::<Vec<_>>()
        });
        open.map(|it| (it.port, it.transport)).collect()
    }

    /// It was looked at.
    pub(super) fn provisioned(&mut self, lb: &Arc<str>, after: Provisioned, now: Instant) {
        let Some(provision) = self.provisions.all.get_mut(lb) else { return };
        let ready = after.standing == Standing::Ready;
        provision.look_at = Some(now + if ready { SELDOM } else { OFTEN });
        let before = provision.now.replace(after.clone());
        self.dirty.insert(Target::Provision(Arc::clone(lb)));
        self.dirty.insert(Target::LoadBalancer(Arc::clone(lb)));
        if let Some(reach) = after.reach {
            self.reached(lb, reach);
        }
        if before.is_some_and(|before| before.standing == after.standing) {
            return;
        }
        let Some(uid) = self.uid(lb) else { return };
        let severity = match &after.standing {
            Standing::Ready => Severity::Normal,
            Standing::Failed(_) => Severity::Warning,
            Standing::Coming(_) => return,
        };
        let (kind, name) = (ConsumerKind::LoadBalancer, Arc::clone(lb));
        self.said.push(Announcement {
            object: ConsumerRef { kind, namespace: "".into(), name, uid }.into(),
            severity,
            reason: format!("Provisioning{}", after.standing.reason()).into(),
            message: after.standing.message(),
        });
    }

    /// A load balancer that a class made is reached there, and nowhere else any more.
    pub(super) fn reached(&mut self, lb: &Arc<str>, reach: Reach) {
        let before = self.provisions.reach.insert(Arc::clone(lb), reach.clone());
        if before.as_ref() == Some(&reach) {
            return;
        }
        self.planner.handle(Event::Reported(Arc::clone(lb), reach.listeners()));
        if before.is_some_and(|before| before.hostnames != reach.hostnames) {
            // The plan is the same under another name; what shows the name is not.
            let consumers = self.planner.consumers(lb).map(|it| (it.kind, key(it)));
            let consumers: Vec<_> = consumers.collect();
            self.dirty.extend(consumers.into_iter().map(|it| Target::Consumer(it.0, it.1)));
        }
    }

    /// Whether a load balancer is reached where the Service in front of it is.
    pub(super) fn is_reached(&self, lb: &str) -> bool {
        self.provisions.is_reached(lb)
    }

    /// The names under which a load balancer is reached.
    pub(super) fn hostnames(&self, lb: &str) -> &[Arc<str>] {
        self.provisions.reach.get(lb).map_or(&[], |reach| &reach.hostnames)
    }

    /// Whether some load balancer is reached under a name.
    pub(super) fn is_hostname(&self, name: &str) -> bool {
        let mut all = self.provisions.reach.values().flat_map(|reach| &reach.hostnames);
        all.any(|it| **it == *name)
    }

    /// What the status of a load balancer says of what serves it. None: nothing was made for it.
    pub(super) fn standing(&self, lb: &Arc<str>) -> Option<Said> {
        let standing = &self.provisions.all.get(lb)?.now.as_ref()?.standing;
        Some(Said {
            holds: *standing == Standing::Ready,
            reason: standing.reason().into(),
            message: standing.message(),
        })
    }

    /// Removes what serves a load balancer, once nothing is planned for it any more.
    pub(super) fn next_removal(&mut self, lb: &Arc<str>, job: binder::Id, now: Instant) -> Next {
        let Some(made) = self.made(lb).cloned() else { return Next::Nothing };
        let provision = self.provisions.all.entry(Arc::clone(lb)).or_default();
        match provision.look_at.filter(|at| *at > now && !provision.touched) {
            Some(at) => Next::Later(at),
            None => {
                provision.touched = false;
                Next::Write(Write::Deprovision(job, Box::new(made)), Tried::default())
            }
        }
    }

    /// What serves a load balancer is gone (true), going, or could not be removed.
    pub(super) fn removed(
        &mut self,
        lb: &Arc<str>,
        job: binder::Id,
        result: Result<bool, String>,
        now: Instant,
    ) {
        let provision = self.provisions.all.entry(Arc::clone(lb)).or_default();
        provision.look_at = None;
        match result {
            Ok(false) => {
                provision.look_at = Some(now + REMOVING);
                self.dirty.insert(Target::Job(Arc::clone(lb)));
            }
            Ok(true) => self.finish_job(lb, job, Ok(())),
            Err(why) => self.finish_job(lb, job, Err(why.into())),
        }
    }
}

#[cfg(test)]
mod tests;
