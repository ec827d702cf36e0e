//! Ports and names stay with the owner that has them.

use super::*;

#[test]
fn what_an_owner_has_stays_its_own_while_nobody_serves_it() {
    let tcp = |name: &str, created| Service {
        created,
        ports: vec![Port { mode: Some("tcp".into()), ..port("http", 81) }, port("web", 80)],
        external: vec!["shop.example".parse().unwrap()],
        ..service(name)
    };
    let mut exposed = told([
        Object::Service(tcp("a/young", 2)),
        Object::Service(tcp("b/owner", 1)),
        Object::Slice(slice("a/young", vec![endpoint("10.0.0.1", None)])),
    ]);
    let View { cluster, told, .. } = view(&mut exposed, &settings());
    let labels = cluster.services.iter().map(|entry| format!("{entry} {}", entry.external.len()));
    assert_eq!(labels.collect::<Vec<_>>(), ["young_a_80_tcp_http 0"]);
    let told: Vec<_> = told.iter().map(|t| (&*t.consumer.name, t.problem.reason)).collect();
    assert_eq!(told, [("young", Reason::PortTaken), ("young", Reason::HostTaken)]);
}

#[test]
fn an_older_service_that_asks_later_takes_neither_port_nor_name() {
    let tcp = |name: &str, number: u16, created| {
        let port = Port { mode: Some("tcp".into()), ..port("", number) };
        Service { created, ports: vec![port], ..service(name) }
    };
    let named = |name: &str, names: &[&str], created| Service {
        created,
        external: names.iter().map(|name| name.parse().unwrap()).collect(),
        ..service(name)
    };
    let shop = [tcp("shop/db", 5432, 5), named("shop/web", &["shop.example", "*.old.example"], 6)];
    let mut exposed = told(shop.iter().flat_map(with_pod));
    edit(&mut exposed, &tcp("evil/db", 1, 0));
    edit(&mut exposed, &named("evil/web", &[], 0));
    publish(&mut exposed);
    edit(&mut exposed, &tcp("evil/db", 5432, 0));
    edit(&mut exposed, &named("evil/web", &["shop.example", "a.old.example"], 0));
    let expected = ["evil/web a.old.example", "shop/db", "shop/web shop.example,*.old.example"];
    let refused = [Reason::HostTaken, Reason::PortTaken];
    for _ in 0..2 {
        let (entries, told) = publish(&mut exposed);
        assert_eq!(entries, expected);
        let reasons: Vec<_> = told.iter().map(|(_, reason)| *reason).collect();
        assert!(told.iter().all(|(namespace, _)| namespace == "evil"), "{told:?}");
        assert!(refused.iter().all(|it| reasons.contains(it)), "{told:?}");
    }

    // A process that restarts has what was stored beside the files.
    let mut again = told(
        [tcp("evil/db", 5432, 0), named("evil/web", &["shop.example", "a.old.example"], 0)]
            .iter()
            .chain(&shop)
            .flat_map(with_pod),
    );
    again.hold(exposed.held().clone());
    assert_eq!(publish(&mut again).0, expected);

    // What the holder gives up goes to the Service that waits.
    edit(&mut again, &tcp("shop/db", 5433, 5));
    edit(&mut again, &named("shop/web", &[], 6));
    let (entries, told) = publish(&mut again);
    let expected = ["evil/db", "evil/web shop.example,a.old.example", "shop/db", "shop/web"];
    assert_eq!((entries, told), (expected.map(str::to_owned).to_vec(), Vec::new()));
}
