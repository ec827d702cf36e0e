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

fn named(name: &str, created: Timestamp, external: &[String]) -> Service {
    Service {
        created,
        external: external.iter().map(|name| name.parse().unwrap()).collect(),
        ..service(name)
    }
}

#[test]
fn a_generated_name_that_any_namespace_can_make_takes_no_name_that_another_has() {
    let by_name = |entry: &Entry| vec![format!("{}.example.com", entry.name())];
    let shop = named("shop/front", 5, &["Shop.example.com".to_owned()]);
    let mut exposed = told(with_pod(&shop));
    assert_eq!(publish_with(&mut exposed, by_name).0, ["shop/front Shop.example.com"]);
    edit(&mut exposed, &service("evil/shop"));
    for _ in 0..2 {
        let (entries, told) = publish_with(&mut exposed, by_name);
        assert_eq!(entries, ["shop/front Shop.example.com"]);
        assert_eq!(told, [("evil".to_owned(), Reason::HostTaken)]);
    }

    // A process that restarts has what was stored beside the files.
    let mut again = told([service("evil/shop"), shop].iter().flat_map(with_pod));
    again.hold(exposed.held().clone());
    assert_eq!(publish_with(&mut again, by_name).0, ["shop/front Shop.example.com"]);
    // What the holder gives up goes to the Service that waits.
    edit(&mut again, &named("shop/front", 5, &[]));
    assert_eq!(publish_with(&mut again, by_name).0, ["evil/shop", "shop/front"]);
}

/// Names that are regular expressions, in the order in which they are tried.
fn expressions(exposed: &mut Exposed) -> Vec<String> {
    let View { cluster, held, .. } = view(exposed, &settings());
    exposed.hold(Held::from_json(&held.to_json()).unwrap());
    let all = cluster.expressions.iter();
    all.map(|it| format!("{}/{} {}", it.consumer.namespace, it.consumer.name, it.name)).collect()
}

#[test]
fn an_expression_that_comes_later_is_tried_after_those_that_namespaces_have() {
    let text = str::to_owned;
    let of_shop = r"~^[a-z]+\.shop\.example$";
    let mut exposed = told(with_pod(&named("shop/web", 5, &[text(of_shop)])));
    edit(&mut exposed, &named("evil/web", 0, &[text("~^evil$")]));
    let before = ["evil/web ~^evil$", r"shop/web ~^[a-z]+\.shop\.example$"].map(text);
    assert_eq!(
        expressions(&mut exposed),
        before,
        "the older Service is first where none has it yet"
    );

    // A second expression of an entry comes last.
    let all = r"~^.*\.example$";
    edit(&mut exposed, &named("evil/web", 0, &[text(all), text("~^evil$")]));
    let [evil, shop] = before;
    let after = [evil, shop, format!("evil/web {all}")];
    assert_eq!(expressions(&mut exposed), after);
    let mut again = told(
        [
            named("evil/web", 0, &[text(all), text("~^evil$")]),
            named("shop/web", 5, &[text(of_shop)]),
        ]
        .iter()
        .flat_map(with_pod),
    );
    again.hold(exposed.held().clone());
    assert_eq!(expressions(&mut again), after, "also when the process begins anew");
    // An expression that is given up and asked for again is new.
    edit(&mut again, &named("evil/web", 0, &[text(all)]));
    expressions(&mut again);
    edit(&mut again, &named("evil/web", 0, &[text(all), text("~^evil$")]));
    let [evil, shop, all] = after;
    assert_eq!(expressions(&mut again), [shop, all, evil]);
}

#[test]
fn expressions_in_a_file_without_their_order_come_before_new_ones() {
    let shop = named("shop/web", 5, &["~^shop$".to_owned()]);
    let mut exposed = told(with_pod(&shop));
    expressions(&mut exposed);
    let mut kept: serde_json::Value = serde_json::from_str(&exposed.held().to_json()).unwrap();
    kept.as_object_mut().unwrap().remove("expressions").unwrap();
    let mut again =
        told([shop, named("evil/web", 0, &["~^.*$".to_owned()])].iter().flat_map(with_pod));
    again.hold(Held::from_json(&kept.to_string()).unwrap());
    assert_eq!(expressions(&mut again), ["shop/web ~^shop$", "evil/web ~^.*$"]);
}

#[test]
fn a_namespace_has_so_many_names_at_a_port_and_those_that_it_has_stay() {
    let many = |first: usize, count: usize| -> Vec<String> {
        (first..first + count).map(|n| format!("n{n}.example")).collect()
    };
    let most = super::super::contend::MOST_NAMES;
    let mut exposed = told(with_pod(&named("evil/a", 5, &many(0, most - 10))));
    edit(&mut exposed, &named("shop/web", 6, &["shop.example".to_owned()]));
    publish(&mut exposed);
    // An older Service of the namespace, with many more.
    edit(&mut exposed, &named("evil/b", 0, &many(1000, 1000)));
    for _ in 0..2 {
        let View { cluster, told, held } = view(&mut exposed, &settings());
        exposed.hold(held);
        let counts = cluster.services.iter().map(|it| it.external.len());
        assert_eq!(counts.collect::<Vec<_>>(), [most - 10, 10, 1]);
        let told: Vec<_> = told.iter().map(|it| (&*it.consumer.name, it.problem.reason)).collect();
        assert_eq!(told, [("b", Reason::TooManyNames)]);
    }
}
