use super::*;
use bowline_api::{LoadBalancer, LoadBalancerClaim, LoadBalancerClass};
use bowline_core::planner::Kind as Planned;
use k8s_openapi::api::core::v1::Service;

/// An API that has one load balancer, one claim that has it, and a leader's state.
struct Site {
    state: State,
    now: Instant,
    clock: i64,
    version: u64,
    lb: Value,
    claim: Value,
    /// What was written to the load balancer and the claim.
    writes: Vec<&'static str>,
}

/// As the API merges a patch: null takes away.
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
            "apiVersion": "bowline.dev/v1alpha1", "kind": "LoadBalancer",
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
                condition(names::CONDITION_IDLE, names::REASON_NO_CONSUMERS, "nobody uses it"),
            ]},
        });
        let claim = json!({
            "apiVersion": "bowline.dev/v1alpha1", "kind": "LoadBalancerClaim",
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
            now: Instant::now(),
            clock: 1,
            version: 1,
            lb,
            claim,
            writes: Vec::new(),
        };
        let class: LoadBalancerClass = serde_json::from_value(json!({
            "apiVersion": "bowline.dev/v1alpha1", "kind": "LoadBalancerClass",
            "metadata": {"name": "bronze"}, "spec": {"builtin": {}, "idleTimeout": "1h"},
        }))
        .unwrap();
        let known = (convert::class(&class), Arc::new(class.spec.clone()));
        site.hear(Heard::Class(Seen::Apply(known)));
        site.show();
        for kind in [
            Planned::Service,
            Planned::Ingress,
            Planned::IngressClass,
            Planned::TlsSecret,
            Planned::Namespace,
            Planned::LoadBalancer,
            Planned::Claim,
        ] {
            site.hear(Heard::Planner(Event::Done(kind), None));
        }
        site.hear(Heard::Plan(Seen::Done));
        site.hear(Heard::Certificates(Seen::Done));
        site.hear(Heard::Cookies(Seen::Done));
        site.hear(Heard::Lease(Seen::Done));
        site.hear(Heard::Pool(Seen::Done));
        site.hear(Heard::Address(Seen::Done));
        site.hear(Heard::ExternalIp(Seen::Done));
        site.hear(Heard::Node(Seen::Done));
        site.hear(Heard::Class(Seen::Done));
        assert!(site.state.is_complete());
        site.run();
        assert_eq!(site.writes, Vec::<&str>::new());
        site
    }

    fn hear(&mut self, heard: Heard) {
        self.state.hear(heard, self.now);
    }

    fn shown_lb(&self) -> (LoadBalancer, Shown<LoadBalancerShown>) {
        let lb: LoadBalancer = serde_json::from_value(self.lb.clone()).unwrap();
        let shown = Shown::<LoadBalancerShown>::of(&lb);
        (lb, shown)
    }

    fn shown_claim(&self) -> (LoadBalancerClaim, Shown<ClaimShown>) {
        let claim: LoadBalancerClaim = serde_json::from_value(self.claim.clone()).unwrap();
        let shown = Shown::<ClaimShown>::of(&claim);
        (claim, shown)
    }

    /// The watch tells of both.
    fn show(&mut self) {
        let (lb, shown) = self.shown_lb();
        let object = Box::new(Object::LoadBalancer(convert::load_balancer(&lb)));
        let shown = Some(Status::LoadBalancer(Box::new(shown)));
        self.hear(Heard::Planner(Event::Apply(object), shown));
        let (claim, shown) = self.shown_claim();
        let object = Box::new(Object::Claim(convert::claimed(&claim)));
        let shown = Some(Status::Claim(Box::new(shown)));
        self.hear(Heard::Planner(Event::Apply(object), shown));
    }

    /// A Service that names the claim.
    fn consumer(&mut self, name: &str) {
        let service: Service = serde_json::from_value(json!({
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
        }))
        .unwrap();
        let shown = Status::Service(Shown::<ServiceShown>::of(&service));
        let object = Box::new(Object::Service(convert::service(&service)));
        self.hear(Heard::Planner(Event::Apply(object), Some(shown)));
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

    fn settle(&mut self) {
        self.state.at(Timestamp::from_second(self.clock).unwrap(), true);
        self.state.settle(self.now);
    }

    /// What is to be written of the load balancer or the claim.
    fn next(&mut self, target: &Target) -> Option<Write> {
        let clock = Timestamp::from_second(self.clock).unwrap();
        match self.state.next(target, self.now, clock) {
            Next::Nothing => None,
            Next::Later(_) => {
                self.state.dirty.insert(target.clone());
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
        // A write that changes nothing makes no new version.
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
                let found = Found::LoadBalancer(Box::new(self.shown_lb().1));
                Written::Binding(id, Answer::Ok(Some(found)))
            }
            Write::Seats(id, _, step) => {
                self.writes.push("seats");
                Self::amend(&mut self.lb, step, &mut self.version);
                let found = Found::LoadBalancer(Box::new(self.shown_lb().1));
                Written::Seats(id, Answer::Ok(Some(found)))
            }
            Write::BindClaim(id, _, step) => {
                self.writes.push("claim");
                Self::amend(&mut self.claim, step, &mut self.version);
                let found = Found::Claim(Box::new(self.shown_claim().1));
                Written::Binding(id, Answer::Ok(Some(found)))
            }
            other => panic!("{other:?}"),
        };
        self.state.wrote(target, written, self.now);
    }

    /// Everything that concerns the load balancer and the claim is written and answered.
    fn run(&mut self) {
        for _ in 0..30 {
            self.settle();
            let dirty = std::mem::take(&mut self.state.dirty);
            let ours = |it: &Target| matches!(it, Target::Binding(_) | Target::Claim(_));
            let ours: Vec<_> = dirty.into_iter().filter(ours).collect();
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
    site.settle();
    assert!(!site.state.bindings.on_balancers.is_empty(), "it is no longer idle");
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
    site.settle();
    let target = Target::Binding("lbc-c1".into());
    assert!(site.state.dirty.remove(&target));
    let write = site.next(&target).expect("the seat");
    let gone = Event::Delete(Planned::Claim, ObjectKey::new("shop", "web"));
    let shown = Status::Claim(Box::new(site.shown_claim().1));
    site.hear(Heard::Planner(gone, Some(shown)));
    site.settle();
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
