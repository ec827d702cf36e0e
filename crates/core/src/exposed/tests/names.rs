//! Which namespace has a name.

use super::*;

#[test]
fn a_wildcard_does_not_cover_older_or_made_names_of_another_namespace() {
    let named = |name: &str, created, external: &[&str]| Service {
        created,
        external: external.iter().map(|name| name.parse().unwrap()).collect(),
        ..service(name)
    };
    let services = vec![
        named("a/young", 2, &["*.Example", "*.local", "*.xample", "*.own.example"]),
        named("a/mate", 3, &["*.own.example", "b.own.example"]),
        named("b/old", 1, &["shop.example"]),
        named("b/late", 4, &["x.own.example", "*.deep.own.example"]),
    ];
    let (labels, told) = seen(services, &settings());
    let expected = [
        "mate_a_80_tcp_http 00000000_80_tcp_http *.own.example,b.own.example",
        "young_a_80_tcp_http 00000000_80_tcp_http *.xample,*.own.example",
        "late_b_80_tcp_http 00000000_80_tcp_http x.own.example,*.deep.own.example",
        "old_b_80_tcp_http 00000000_80_tcp_http shop.example",
    ];
    assert_eq!(labels, expected);
    let taken = ("young".to_owned(), Reason::HostTaken);
    assert_eq!(told, [taken.clone(), taken]);
}

#[test]
fn a_name_belongs_to_the_namespace_that_had_it_first_and_made_names_to_their_own() {
    let named = |name: &str, created, external: &[&str]| Service {
        created,
        external: external.iter().map(|name| name.parse().unwrap()).collect(),
        ..service(name)
    };
    let services = vec![
        named("a/late", 3, &["shop.example", "Own.example"]),
        named("b/first", 1, &["shop.example", "late.a.svc.local"]),
        named("b/same", 2, &["shop.example"]),
    ];
    let (labels, told) = seen(services, &settings());
    let expected = [
        "late_a_80_tcp_http 00000000_80_tcp_http Own.example",
        "first_b_80_tcp_http 00000000_80_tcp_http shop.example",
        "same_b_80_tcp_http 00000000_80_tcp_http shop.example",
    ];
    assert_eq!(labels, expected);
    let expected = [("late", Reason::HostTaken), ("first", Reason::HostTaken)];
    assert_eq!(told, expected.map(|(name, reason)| (name.to_owned(), reason)));
}

#[test]
fn two_namespaces_with_one_made_name_do_not_share_it() {
    let services = vec![Service { created: 2, ..service("a/x") }, service("b/x")];
    let slices: Vec<_> = services
        .iter()
        .map(|s| Object::Slice(slice(&s.key.to_string(), vec![endpoint("10.0.0.1", None)])))
        .collect();
    let mut exposed = told(services.into_iter().map(Object::Service).chain(slices));
    let view = exposed.view(&settings(), |entry| vec![format!("{}.example", entry.name())]);
    let labels: Vec<_> = view.cluster.services.iter().map(ToString::to_string).collect();
    assert_eq!(labels, ["x_b_80_tcp_http"]);
    assert_eq!(view.told[0].problem.reason, Reason::HostTaken);
}

#[test]
fn a_generated_name_belongs_to_its_service_also_where_another_had_it_first() {
    let squatter =
        Service { external: vec!["web.shop.svc.local".parse().unwrap()], ..service("evil/web") };
    let mut exposed = told(with_pod(&squatter));
    assert_eq!(publish(&mut exposed).0, ["evil/web web.shop.svc.local"]);
    edit(&mut exposed, &Service { created: 5, ..service("shop/web") });
    for _ in 0..2 {
        let (entries, told) = publish(&mut exposed);
        assert_eq!(entries, ["evil/web", "shop/web"]);
        assert_eq!(told, [("evil".to_owned(), Reason::HostTaken)]);
    }
}
