//! A load balancer with a claim, at an API that answers every write.

use super::*;
use crate::controller::observed::{ClaimSeen, LoadBalancerSeen};
use crate::controller::writer::bindings::{Current, Step, StepReply};

/// An API with one load balancer and one claim bound to it, and a leader's state.
struct Site {
    state: State,
    now: Uptime,
    clock: i64,
    version: u64,
    lb: Value,
    claim: Value,
    /// The writes of the load balancer and the claim.
    writes: Vec<&'static str>,
}

/// Merges a patch as the API does: null removes.
fn merge(object: &mut Value, patch: &Value) {
    let Some(fields) = patch.as_object() else { return *object = patch.clone() };
    if !object.is_object() {
        *object = json!({});
    }
    for (name, value) in fields {
        match value {
            Value::Null => _ = object.as_object_mut().unwrap().remove(name),
            value => merge(&mut object[name], value),
        }
    }
}

fn condition(type_: &str, reason: &str, message: &str) -> Value {
    json!({
        "type": type_, "status": "True", "reason": reason, "message": message,
        "lastTransitionTime": "1970-01-01T00:00:00Z",
    })
}

impl Site {
    fn new() -> Self {
        let capacity = json!({"network-bandwidth": "10G", "network-iops": "10k"});
        let lb = json!({
            "metadata": {
                "name": "lbc-c1", "uid": "l1", "resourceVersion": "1",
                "finalizers": [names::FINALIZER_IN_USE, names::FINALIZER_CLEANUP],
                "annotations": {names::ANNOTATION_PROVISIONED_FOR: "shop/web/c1"},
            },
            "spec": {
                "builtin": {}, "className": "bronze", "addresses": ["192.0.2.1"],
                "capacity": capacity,
                "claimRef": {"namespace": "shop", "name": "web", "uid": "c1"},
            },
            "status": {"conditions": [
                condition("Bound", "Bound", "claim shop/web has it"),
                condition(names::CONDITION_IDLE, names::REASON_NO_CONSUMERS, "it has no consumers"),
            ]},
        });
        let claim = json!({
            "metadata": {
                "name": "web", "namespace": "shop", "uid": "c1", "resourceVersion": "1",
                "finalizers": [names::FINALIZER_IN_USE],
            },
            "spec": {"className": "bronze"},
            "status": {
                "phase": "Bound", "loadBalancerName": "lbc-c1", "capacity": capacity,
                "conditions": [condition("Bound", "Bound", "bound to load balancer lbc-c1")],
            },
        });
        let config = Config { default_class: true, ..Config::default() };
        let mut site = Self {
            state: State::new(config, Default::default()),
            now: Uptime::default(),
            clock: 1,
            version: 1,
            lb,
            claim,
            writes: Vec::new(),
        };
        let class = json!({
            "metadata": {"name": "bronze"}, "spec": {"builtin": {}, "idleTimeout": "1h"},
        });
        site.observe(testing::class(class));
        site.show();
        testing::listed().into_iter().for_each(|it| site.observe(it));
        assert!(site.state.is_complete());
        site.run();
        assert_eq!(site.writes, Vec::<&str>::new());
        site
    }

    fn observe(&mut self, observed: Observed) {
        self.state.observe(observed, self.now);
    }

    fn shown_lb(&self) -> LoadBalancerSeen {
        testing::seen_load_balancer(self.lb.clone())
    }

    fn shown_claim(&self) -> ClaimSeen {
        testing::seen_claim(self.claim.clone())
    }

    /// The watches deliver both.
    fn show(&mut self) {
        self.observe(Observed::LoadBalancer(Seen::Apply(Box::new(self.shown_lb()))));
        self.observe(Observed::Claim(Seen::Apply(Box::new(self.shown_claim()))));
    }

    /// A Service that names the claim.
    fn consumer(&mut self, name: &str) {
        let service = testing::service(json!({
            "metadata": {
                "name": name, "namespace": "shop", "uid": name, "resourceVersion": "1",
                "annotations": {
                    "bowline.dev/load-balancer-claim": "web",
                    "bowline.dev/network-bandwidth": "1G",
                },
            },
            "spec": {
                "type": "LoadBalancer", "ports": [{"port": 80, "protocol": "TCP"}],
                "ipFamilies": ["IPv4"], "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"],
            },
        }));
        self.observe(service);
    }

    /// An administrator edits the load balancer.
    fn edit(&mut self, patch: &Value) {
        let before = self.lb.clone();
        merge(&mut self.lb, patch);
        assert_ne!(self.lb, before);
        self.version += 1;
        self.lb["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.show();
    }

    fn decide(&mut self) {
        self.state.at(Timestamp::from_second(self.clock).unwrap(), true);
        self.state.decide(self.now);
    }

    /// The next write of the load balancer or the claim.
    fn next(&mut self, target: &Target) -> Option<Write> {
        let clock = Timestamp::from_second(self.clock).unwrap();
        match self.state.next(target, self.now, clock) {
            Next::Nothing => None,
            Next::Later(_) => {
                self.state.outbox.enqueue(target.clone());
                None
            }
            Next::Write(write, _) => Some(write),
        }
    }

    fn amend(object: &mut Value, step: Step, version: &mut u64) {
        let (Step::Amend(patch) | Step::Status(patch)) = step else { panic!("{step:?}") };
        let (mut patch, before) = (patch, object.clone());
        let at = patch["metadata"]["resourceVersion"].take();
        assert_eq!(at, before["metadata"]["resourceVersion"]);
        merge(object, &patch);
        object["metadata"]["resourceVersion"] = at;
        // A write that changes nothing gets no new version.
        if *object != before {
            *version += 1;
            object["metadata"]["resourceVersion"] = json!(version.to_string());
        }
    }

    /// Carries out a write, and answers it.
    fn perform(&mut self, target: &Target, write: Write) {
        let written = match write {
            Write::Binding(id, _, step) => {
                self.writes.push("binding");
                Self::amend(&mut self.lb, step, &mut self.version);
                let found = Current::LoadBalancer(Box::new(self.shown_lb().shown));
                Reply::Binding(id, StepReply::Ok(Some(found)))
            }
            Write::Seats(id, _, step) => {
                self.writes.push("seats");
                Self::amend(&mut self.lb, step, &mut self.version);
                let found = Current::LoadBalancer(Box::new(self.shown_lb().shown));
                Reply::Seats(id, StepReply::Ok(Some(found)))
            }
            Write::BindClaim(id, _, step) => {
                self.writes.push("claim");
                Self::amend(&mut self.claim, step, &mut self.version);
                let found = Current::Claim(Box::new(self.shown_claim().shown));
                Reply::Binding(id, StepReply::Ok(Some(found)))
            }
            other => panic!("{other:?}"),
        };
        self.state.wrote(target, written, self.now);
    }

    /// Carries out and answers all writes of the load balancer and the claim.
    fn run(&mut self) {
        for _ in 0..30 {
            self.decide();
            let targets = self.state.outbox.take_targets();
            let ours = |it: &Target| matches!(it, Target::Binding(_) | Target::Claim(_));
            let ours: Vec<_> = targets.into_iter().filter(ours).collect();
            if ours.is_empty() {
                return;
            }
            for target in ours {
                if let Some(write) = self.next(&target) {
                    self.perform(&target, write);
                }
            }
        }
        panic!("it does not come to rest: {:?}", self.writes);
    }

    fn seats(&self) -> Vec<&str> {
        let seats = self.lb["status"]["consumers"].as_array();
        seats.into_iter().flatten().filter_map(|it| it["name"].as_str()).collect()
    }
}

#[test]
fn a_seat_and_a_binding_that_are_decided_at_once_are_both_written() {
    let mut site = Site::new();
    site.consumer("first");
    site.decide();
    assert!(site.state.bindings.has_write(&"lbc-c1".into()), "it is no longer idle");
    assert!(site.state.seats.has_write(&"lbc-c1".into()), "and has a seat to record");
    site.run();
    assert_eq!(site.seats(), ["first"]);
}

#[test]
fn a_binding_that_is_decided_while_a_seat_is_being_written_is_written_then() {
    let mut site = Site::new();
    site.consumer("first");
    site.run();
    site.consumer("second");
    site.decide();
    let target = Target::Binding("lbc-c1".into());
    assert!(site.state.outbox.take_targets().contains(&target));
    let write = site.next(&target).expect("the seat");
    let gone = site.shown_claim();
    site.observe(Observed::Claim(Seen::Delete(Box::new(gone))));
    site.decide();
    site.perform(&target, write);
    site.run();
    assert_eq!(site.seats(), ["first", "second"]);
}

#[test]
fn a_capacity_that_loses_a_resource_is_written_once_into_the_claim() {
    let mut site = Site::new();
    site.edit(&json!({"spec": {"capacity": {"network-iops": null}}}));
    site.run();
    assert_eq!(site.claim["status"]["capacity"], json!({"network-bandwidth": "10G"}));
    assert_eq!(site.writes, ["claim"]);
    site.edit(&json!({"spec": {"capacity": null}}));
    site.run();
    assert_eq!(site.claim["status"]["capacity"], Value::Null);
}
