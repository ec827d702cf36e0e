//! Tests of planned slices, with an index and no API.

mod properties;

use super::plan::Content;
use super::shell::Index as _;
use super::*;
use k8s_openapi::api::core::v1::{Pod, Service};
use records::{Condition, Family, HEADLESS, Identity, Port};
use serde_json::{Value, json};

fn mk_service(change: impl FnOnce(&mut Value)) -> (Name, Wanted) {
    let mut service = json!({
        "metadata": {"namespace": "shop", "name": "web", "uid": "s1", "labels": {"tier": "front"}},
        "spec": {
            "selector": {"app": "web"}, "clusterIP": "10.0.0.1", "ipFamilies": ["IPv4"],
            "ports": [{"name": "http", "port": 80, "targetPort": 8080}],
        },
    });
    change(&mut service);
    records::service(serde_json::from_value::<Service>(service).unwrap())
}

fn mk_pod(number: usize, change: impl FnOnce(&mut Value)) -> (Name, Offer) {
    let name = format!("web-{number:03}");
    let mut pod = json!({
        "metadata": {
            "namespace": "shop", "name": name, "uid": format!("p{number}"),
            "labels": {"app": "web"},
        },
        "spec": {"nodeName": "n1", "containers": [{"name": "main"}]},
        "status": {
            "phase": "Running",
            "podIPs": [{"ip": format!("10.1.{}.{}", number / 250, number % 250 + 1)}],
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    });
    change(&mut pod);
    records::pod(serde_json::from_value::<Pod>(pod).unwrap())
}

/// An index, and the slices that the server would hold if all plans were carried out.
#[derive(Default)]
struct World {
    index: Index,
    slices: BTreeMap<Name, Slice>,
    writes: u64,
}

impl World {
    fn new() -> Self {
        let mut world = Self::default();
        for event in [
            Seen::Service(Event::InitDone),
            Seen::Pod(Event::InitDone),
            Seen::Node(Event::InitDone),
            Seen::Slice(Event::InitDone),
        ] {
            assert!(!world.index.ready());
            world.index.observe(event);
        }
        assert!(world.index.ready());
        world
    }

    fn service(&mut self, change: impl FnOnce(&mut Value)) -> &mut Self {
        self.index.observe(Seen::Service(Event::Apply(mk_service(change))));
        self
    }

    fn pod(&mut self, number: usize, change: impl FnOnce(&mut Value)) -> &mut Self {
        self.index.observe(Seen::Pod(Event::Apply(mk_pod(number, change))));
        self
    }

    fn pods(&mut self, numbers: std::ops::Range<usize>) -> &mut Self {
        for number in numbers {
            self.pod(number, |_| {});
        }
        self
    }

    fn without(&mut self, number: usize) -> &mut Self {
        self.index.observe(Seen::Pod(Event::Delete(mk_pod(number, |_| {}))));
        self
    }

    /// Carries out the planned actions, and returns them.
    fn settle(&mut self) -> Vec<Action> {
        let web = ("shop".to_owned(), "web".to_owned());
        let Plan::Do(actions) = self.index.plan(&web, Timestamp::UNIX_EPOCH) else {
            return Vec::new();
        };
        for action in &actions {
            self.write(action.clone());
        }
        assert_eq!(self.index.plan(&web, Timestamp::UNIX_EPOCH), Plan::Idle, "after {actions:?}");
        actions
    }

    fn write(&mut self, action: Action) {
        self.writes += 1;
        let (name, slice) = match action {
            Action::Create { service, owner, family, content } => {
                let name = (service.0, format!("{}-{:04}", service.1, self.writes));
                let slice = Slice {
                    uid: name.1.clone(),
                    version: 0,
                    labels: BTreeMap::new(),
                    owners: vec![owner],
                    family: Some(family),
                    ports: Vec::new(),
                    endpoints: Vec::new(),
                    deleting: false,
                };
                (name, filled(slice, self.writes, content))
            }
            Action::Update { slice, version, content, .. } => {
                let old = self.slices[&slice].clone();
                assert_eq!(old.version, version);
                (slice, filled(old, self.writes, content))
            }
            Action::Delete { slice, .. } => {
                let old = self.slices.remove(&slice).unwrap();
                self.index.observe(Seen::Slice(Event::Delete((slice, old))));
                return;
            }
        };
        self.slices.insert(name.clone(), slice.clone());
        self.index.observe(Seen::Slice(Event::Apply((name, slice))));
    }

    /// For each slice: its family, its port numbers and its Pods, in order.
    fn content(&self) -> Vec<(Family, Vec<i32>, Vec<String>)> {
        let content = self.slices.values().map(|slice| {
            let pods = slice.endpoints.iter().map(|(it, _)| it.target.clone().unwrap().1).collect();
            let ports = slice.ports.iter().filter_map(|port| port.port).collect();
            (slice.family.unwrap(), ports, pods)
        });
        content.collect()
    }

    fn sizes(&self) -> Vec<usize> {
        self.slices.values().map(|slice| slice.endpoints.len()).collect()
    }

    fn only(&self) -> &Slice {
        let slices: Vec<_> = self.slices.values().collect();
        let [slice] = slices[..] else { panic!("not one slice: {slices:?}") };
        slice
    }
}

fn filled(slice: Slice, version: u64, content: Content) -> Slice {
    let Content { labels, ports, endpoints } = content;
    Slice { version, labels, ports, endpoints, ..slice }
}

#[test]
fn a_ready_pod_is_an_endpoint_with_all_that_is_known_of_it() {
    let mut world = World::new();
    world.index.observe(Seen::Node(Event::Apply(("n1".into(), Zone("a".into())))));
    world.service(|_| {}).pods(0..1).settle();
    let slice = world.only();
    let identity = Identity {
        addresses: vec!["10.1.0.1".into()],
        hostname: None,
        target: Some(("shop".into(), "web-000".into())),
    };
    let condition = Condition {
        uid: "p0".into(),
        ready: Some(true),
        serving: Some(true),
        terminating: Some(false),
        node: Some("n1".into()),
        zone: Some("a".into()),
    };
    assert_eq!(slice.endpoints, [(identity, condition)]);
    let port =
        Port { name: "http".into(), protocol: "TCP".into(), port: Some(8080), app_protocol: None };
    assert_eq!((&slice.ports[..], &slice.owners[..]), (&[port][..], &["s1".to_owned()][..]));
    let labels = [("tier", "front"), (SERVICE_NAME, "web"), (MANAGED_BY, MANAGER)];
    assert_eq!(slice.labels, labels.map(|(k, v)| (k.to_owned(), v.to_owned())).into());
}

#[test]
fn readiness_and_deletion_show_in_the_conditions() {
    let unready = |pod: &mut Value| pod["status"]["conditions"][0]["status"] = json!("False");
    let going =
        |pod: &mut Value| pod["metadata"]["deletionTimestamp"] = json!("2030-01-01T00:00:00Z");
    let publish = |it: &mut Value| it["spec"]["publishNotReadyAddresses"] = json!(true);
    let conditions = |service: &dyn Fn(&mut Value), pod: &dyn Fn(&mut Value)| {
        let mut world = World::new();
        world.service(|it| service(it)).pod(0, |it| pod(it)).settle();
        let (_, it) = &world.only().endpoints[0];
        [it.ready, it.serving, it.terminating].map(Option::unwrap)
    };
    assert_eq!(conditions(&|_| {}, &unready), [false, false, false]);
    assert_eq!(conditions(&|_| {}, &going), [false, true, true]);
    assert_eq!(conditions(&publish, &unready), [true, false, false]);
    assert_eq!(conditions(&publish, &going), [true, true, true]);
}

#[test]
fn a_service_without_endpoints_has_one_empty_slice() {
    let mut world = World::new();
    world
        .service(|_| {})
        .pod(1, |pod| pod["status"]["phase"] = json!("Succeeded"))
        .pod(2, |pod| pod["status"]["phase"] = json!("Failed"))
        .pod(3, |pod| pod["status"]["podIPs"] = json!([]))
        .pod(4, |pod| pod["metadata"]["labels"]["app"] = json!("other"))
        .pod(5, |pod| pod["metadata"]["namespace"] = json!("other"))
        .settle();
    assert_eq!(world.content(), [(Family::V4, vec![], vec![])]);
    world.pods(0..1).settle();
    assert_eq!(world.content(), [(Family::V4, vec![8080], vec!["web-000".to_owned()])]);
    world.without(0).settle();
    assert_eq!(world.content(), [(Family::V4, vec![], vec![])]);
}

#[test]
fn each_family_has_its_own_slices() {
    let mut world = World::new();
    world
        .service(|it| it["spec"]["ipFamilies"] = json!(["IPv4", "IPv6"]))
        .pod(0, |pod| pod["status"]["podIPs"] = json!([{"ip": "10.1.0.1"}, {"ip": "fd00::0:1"}]))
        .pod(1, |pod| pod["status"]["podIPs"] = json!([{"ip": "fd00::2"}]))
        .settle();
    let names = |names: &[&str]| names.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
    assert_eq!(
        world.content(),
        [
            (Family::V4, vec![8080], names(&["web-000"])),
            (Family::V6, vec![8080], names(&["web-000", "web-001"])),
        ]
    );
    world.service(|_| {}).settle();
    assert_eq!(world.content(), [(Family::V4, vec![8080], names(&["web-000"]))]);
}

#[test]
fn pods_on_which_a_named_port_differs_are_in_different_slices() {
    let port = |number: i32| {
        move |pod: &mut Value| {
            pod["spec"]["containers"][0]["ports"] =
                json!([{"name": "web", "containerPort": number, "protocol": "TCP"}]);
        }
    };
    let mut world = World::new();
    world
        .service(|it| it["spec"]["ports"][0]["targetPort"] = json!("web"))
        .pod(0, port(80))
        .pod(1, port(81))
        .pod(2, port(80))
        .pod(3, |_| {})
        .settle();
    let mut content = world.content();
    content.sort_by(|a, b| a.1.cmp(&b.1));
    let ports: Vec<_> =
        content.iter().map(|(_, ports, pods)| (ports.clone(), pods.len())).collect();
    assert_eq!(ports, [(vec![], 1), (vec![80], 2), (vec![81], 1)]);
}

#[test]
fn a_headless_service_labels_its_slices_and_names_its_hosts() {
    let mut world = World::new();
    world
        .service(|it| it["spec"]["clusterIP"] = json!("None"))
        .pod(0, |pod| {
            pod["spec"]["hostname"] = json!("zero");
            pod["spec"]["subdomain"] = json!("web");
        })
        .pod(1, |pod| {
            pod["spec"]["hostname"] = json!("one");
            pod["spec"]["subdomain"] = json!("other");
        })
        .settle();
    let slice = world.only();
    assert_eq!(slice.labels.get(HEADLESS), Some(&String::new()));
    let hosts: Vec<_> = slice.endpoints.iter().map(|(it, _)| it.hostname.as_deref()).collect();
    assert_eq!(hosts, [Some("zero"), None]);
}

#[test]
fn slices_of_a_service_that_loses_its_selector_are_let_be() {
    let changes: [fn(&mut Value); 2] =
        [|it| it["spec"]["selector"] = json!({}), |it| it["spec"]["type"] = json!("ExternalName")];
    for change in changes {
        let mut world = World::new();
        assert_eq!(world.service(change).settle(), []);
        world.service(|_| {}).pods(0..1).settle();
        assert_eq!(world.sizes(), [1]);
        assert_eq!(world.service(change).settle(), []);
        assert_eq!(world.sizes(), [1]);
    }
}

#[test]
fn slices_of_a_former_service_of_that_name_are_replaced() {
    let mut world = World::new();
    world.service(|_| {}).pods(0..1).settle();
    let actions = world.service(|it| it["metadata"]["uid"] = json!("s2")).settle();
    assert!(matches!(actions[..], [Action::Create { .. }, Action::Delete { .. }]), "{actions:?}");
    assert_eq!(world.only().owners, ["s2"]);
}

#[test]
fn nothing_is_created_for_a_service_that_is_going() {
    let mut world = World::new();
    let going =
        |it: &mut Value| it["metadata"]["deletionTimestamp"] = json!("2030-01-01T00:00:00Z");
    world.service(going).pods(0..1);
    assert_eq!(world.index.plan(&("shop".into(), "web".into()), Timestamp::UNIX_EPOCH), Plan::Idle);
}

#[test]
fn a_slice_holds_at_most_a_hundred_and_changes_touch_as_few_as_possible() {
    let mut world = World::new();
    world.service(|_| {}).pods(0..250).settle();
    assert_eq!(world.sizes(), [100, 100, 50]);
    assert_eq!(world.settle(), []);

    // One Pod is replaced: the new one takes the free place.
    assert_eq!(world.without(7).pods(300..301).settle().len(), 1);
    assert_eq!(world.sizes(), [100, 100, 50]);

    // One more Pod goes into the slice with room.
    assert_eq!(world.pods(301..302).settle().len(), 1);
    assert_eq!(world.sizes(), [100, 100, 51]);

    // One Pod becomes unready: only its slice is written.
    let unready = |pod: &mut Value| pod["status"]["conditions"][0]["status"] = json!("False");
    assert_eq!(world.pod(120, unready).settle().len(), 1);

    // The labels of the Service change: all slices are written.
    let relabel = |it: &mut Value| it["metadata"]["labels"] = json!({"tier": "back"});
    let actions = world.service(relabel).settle();
    let removed: Vec<_> = actions
        .iter()
        .map(|action| match action {
            Action::Update { removed, .. } => removed.clone(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(removed, vec![Vec::<String>::new(); 3]);
    world.service(|it| it["metadata"]["labels"] = json!({})).settle();
    assert!(world.slices.values().all(|slice| !slice.labels.contains_key("tier")));
}

#[test]
fn an_answer_that_overtakes_the_watch_is_not_undone_by_it() {
    let mut world = World::new();
    world.service(|_| {}).pods(0..1).settle();
    let (name, old) = world.slices.first_key_value().map(|(k, v)| (k.clone(), v.clone())).unwrap();
    world.pods(1..2).settle();
    assert_eq!(world.index.observe(Seen::Slice(Event::Apply((name, old)))), Vec::<Name>::new());
    assert_eq!(world.settle(), []);
}
