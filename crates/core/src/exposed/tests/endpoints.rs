//! Which endpoints an entry has.

use super::*;

#[test]
fn endpoints_that_may_be_no_members_are_left_out_and_told() {
    let mut web = service("a/web");
    web.address = Some("192.0.2.7".parse().unwrap());
    // It asks for the address of a Pod, which is not an address of this machine.
    let mut greedy = service("b/greedy");
    greedy.address = Some("10.0.0.1".parse().unwrap());
    let mut exposed = told([Object::Service(web), Object::Service(greedy)]);
    let machine = Machine {
        addresses: Some(["192.0.2.7".parse().unwrap()].into()),
        nonlocal_v4: true,
        ..Machine::default()
    };
    let rules = MemberRules {
        denied: vec!["10.9.0.0/16".parse().unwrap()],
        listening: vec!["10.0.0.2:8080".parse().unwrap()],
        ..MemberRules::default()
    };
    let settings = Settings { machine, members: rules, ..settings() };
    let all = ["10.0.0.1", "10.0.0.2", "10.9.0.1", "127.0.0.1", "192.0.2.7"].map(str::to_owned);
    let (endpoints, told) = members(&mut exposed, &settings, &all);
    assert_eq!(endpoints, ["10.0.0.1"]);
    let message = "members of Service a/web get no traffic: 10.0.0.2:8080 (where the agent itself \
                   listens), 10.9.0.1:8080 (in 10.9.0.0/16, which --deny-members lists), \
                   127.0.0.1:8080 (a loopback address) and 1 more";
    assert_eq!(told, [(Reason::MemberRefused, message.to_owned())]);
}

#[test]
fn of_too_many_endpoints_those_stay_that_the_last_view_had() {
    let mut exposed = told([Object::Service(service("a/web"))]);
    let numbers = |range: std::ops::Range<usize>| -> Vec<String> {
        range.map(|n| format!("10.1.{}.{}", n / 250, n % 250)).collect()
    };
    let (first, told) = members(&mut exposed, &settings(), &numbers(500..500 + MOST_MEMBERS));
    assert_eq!((first.len(), told), (MOST_MEMBERS, vec![]));
    let (then, told) = members(&mut exposed, &settings(), &numbers(0..500 + MOST_MEMBERS));
    assert_eq!(then, first);
    let message = "500 members of Service a/web get no traffic: a pool can have at most 2000";
    assert_eq!(told, [(Reason::TooManyMembers, message.to_owned())]);
}

#[test]
fn a_port_that_comes_to_have_too_many_endpoints_keeps_those_that_it_had() {
    let mut exposed = told([Object::Service(service("a/web"))]);
    let numbers = |range: std::ops::Range<usize>| -> Vec<String> {
        range.map(|n| format!("10.1.{}.{}", n / 250, n % 250)).collect()
    };
    let (first, _) = members(&mut exposed, &settings(), &numbers(500..600));
    let (then, _) = members(&mut exposed, &settings(), &numbers(0..600 + MOST_MEMBERS));
    assert_eq!(then.len(), MOST_MEMBERS);
    assert!(first.iter().all(|it| then.contains(it)));
}

/// How many endpoints each entry has, and which Services are told that they have too many.
fn crowd(exposed: &mut Exposed) -> (Vec<(String, usize)>, Vec<String>) {
    let View { cluster, told, .. } = view(exposed, &settings());
    let entries = cluster.services.iter().map(|it| {
        (format!("{}/{}:{}", it.namespace(), it.name(), it.port.port), it.endpoints.len())
    });
    let told = told.iter().filter(|it| it.problem.reason == Reason::TooManyMembers);
    (entries.collect(), told.map(|it| it.problem.message.to_string()).collect())
}

#[test]
fn the_ports_of_a_namespace_share_its_endpoints_and_keep_those_that_they_have() {
    let endpoints = || -> Vec<_> {
        let address = |n: usize| format!("10.1.{}.{}", n / 250, n % 250);
        (0..MOST_MEMBERS).map(|n| endpoint(&address(n), None)).collect()
    };
    let many = |name: &str, numbers: std::ops::Range<u16>| {
        let ports = numbers.map(|number| port("http", number)).collect();
        Object::Service(Service { ports, ..service(name) })
    };
    let full = |name: &str, number: u16| (format!("{name}:{number}"), MOST_MEMBERS);
    // Ten ports with 2,000 endpoints each are all that a namespace may have.
    let mut exposed = told([
        many("evil/web", 8_000..8_010),
        Object::Slice(slice("evil/web", endpoints())),
        Object::Service(service("shop/web")),
        Object::Slice(slice("shop/web", endpoints())),
    ]);
    let evil: Vec<_> = (8_000..8_010).map(|number| full("evil/web", number)).collect();
    let whole = [evil.clone(), vec![full("shop/web", 80)]].concat();
    assert_eq!(crowd(&mut exposed), (whole, vec![]));
    // Further ports get what is left, also those that come first by name; another namespace has its
    // own bound.
    exposed.handle(Event::Apply(many("evil/early", 7_000..7_002)));
    exposed.handle(Event::Apply(Object::Slice(slice("evil/early", endpoints()))));
    let early =
        |first| vec![("evil/early:7000".to_owned(), first), ("evil/early:7001".to_owned(), 0)];
    let message = |number| {
        format!(
            "{number} members of Service evil/early get no traffic: a namespace can have at most 20000 over all \
             its ports"
        )
    };
    let then = [early(0), evil.clone(), vec![full("shop/web", 80)]].concat();
    assert_eq!(crowd(&mut exposed), (then, vec![message(4_000)]));
    // Endpoints that a port gives up go to ports that wait.
    exposed.handle(Event::Apply(many("evil/web", 8_000..8_009)));
    let then = [early(MOST_MEMBERS), evil[..9].to_vec(), vec![full("shop/web", 80)]].concat();
    assert_eq!(crowd(&mut exposed), (then, vec![message(2_000)]));
}

#[test]
fn a_service_without_pods_has_no_entry_and_one_whose_pods_are_not_ready_has() {
    let absent = Endpoint { ready: false, serving: false, ..endpoint("10.0.0.9", None) };
    let mut exposed = told([
        Object::Service(service("a/none")),
        Object::Service(service("a/unready")),
        Object::Slice(slice("a/none", Vec::new())),
        Object::Slice(slice("a/unready", vec![absent])),
    ]);
    let entries = view(&mut exposed, &settings()).cluster.services;
    let entries: Vec<_> = entries.iter().map(|e| (e.to_string(), e.endpoints.len())).collect();
    assert_eq!(entries, [("unready_a_80_tcp_http".to_owned(), 0)]);
}

#[test]
fn pods_that_leave_take_traffic_only_where_nobody_is_ready() {
    let leaving =
        Endpoint { ready: false, serving: true, terminating: true, ..endpoint("10.0.0.9", None) };
    let of = |endpoints| {
        let mut exposed =
            told([Object::Service(service("a/x")), Object::Slice(slice("a/x", endpoints))]);
        let endpoints = view(&mut exposed, &settings()).cluster.services.remove(0).endpoints;
        endpoints.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(of(vec![leaving.clone()]), ["10.0.0.9:8080"]);
    assert_eq!(of(vec![leaving, endpoint("10.0.0.1", None)]), ["10.0.0.1:8080"]);
}

#[test]
fn endpoints_of_an_entry_have_names_of_their_own_and_bad_ones_are_left_out_and_told() {
    let pods = vec![
        endpoint("10.0.0.1", Some("same")),
        endpoint("10.0.0.2", Some("same")),
        endpoint("10.0.0.3", Some("10.0.0.2")),
        endpoint("10.0.0.4", Some("x\n  server evil 203.0.113.1:80")),
    ];
    let mut exposed = told([Object::Service(service("a/x")), Object::Slice(slice("a/x", pods))]);
    let View { cluster, told, .. } = view(&mut exposed, &settings());
    let names: Vec<_> = cluster.services[0].endpoints.iter().map(|e| e.name.to_string()).collect();
    assert_eq!(names, ["same", "10.0.0.2", "10.0.0.3"]);
    let told: Vec<_> = told.iter().map(|t| t.problem.message.to_string()).collect();
    let why =
        r#"endpoint 10.0.0.4 is left out: "x\n  server evil 203.0.113.1:80" is not a valid name"#;
    assert_eq!(told, [why]);
}
