//! What a view says does not depend on the order and number of events.

use super::*;
use proptest::prelude::*;

#[test]
fn what_changes_nothing_makes_nothing_dirty() {
    let pods = vec![endpoint("10.0.0.1", None)];
    let mut exposed =
        told([Object::Service(service("a/x")), Object::Slice(slice("a/x", pods.clone()))]);
    view(&mut exposed, &settings());
    exposed.handle(Event::Apply(Object::Service(service("a/x"))));
    exposed.handle(Event::Apply(Object::Slice(slice("a/x", pods))));
    exposed.handle(Event::Apply(Object::Slice(slice("a/unseen", Vec::new()))));
    exposed.handle(Event::Delete(Kind::Slice, key("a/unseen-1")));
    exposed.handle(Event::Delete(Kind::Service, key("a/none")));
    assert!(!exposed.is_dirty());
    exposed.handle(Event::Apply(Object::Slice(slice("a/x", Vec::new()))));
    assert!(exposed.is_dirty());
}

#[test]
fn a_list_takes_away_what_it_does_not_have() {
    let mut exposed = told([Object::Service(service("a/x")), Object::Node("n".into())]);
    exposed.handle(Event::Apply(Object::Slice(slice("a/x", vec![endpoint("10.0.0.1", None)]))));
    view(&mut exposed, &settings());
    exposed.handle(Event::Begin(Kind::Service));
    exposed.handle(Event::Begin(Kind::Node));
    exposed.handle(Event::Apply(Object::Node("m".into())));
    exposed.handle(Event::Done(Kind::Service));
    exposed.handle(Event::Done(Kind::Node));
    assert!(exposed.is_dirty());
    let cluster = view(&mut exposed, &settings()).cluster;
    assert_eq!((cluster.services, cluster.nodes), (vec![], vec!["m".into()]));
}

proptest! {
    #[test]
    fn the_order_of_telling_does_not_matter(
        ages in prop::collection::vec(0i64..3, 6),
        order in Just((0..12usize).collect::<Vec<_>>()).prop_shuffle(),
        shared in prop::collection::vec(any::<bool>(), 6),
    ) {
        let services = ages.iter().enumerate().map(|(i, created)| {
            let name = format!("n{}/s{i}", i % 2);
            let external = if shared[i] { vec!["a.example".parse().unwrap()] } else { vec![] };
            let mode = (i % 3 == 0).then(|| "tcp".into());
            let ports = vec![Port { mode, ..port("http", 80 + (i % 2) as u16) }];
            Service { created: *created, external, ports, ..service(&name) }
        });
        let objects: Vec<Object> = services
            .flat_map(|s| {
                let slice = slice(&s.key.to_string(), vec![endpoint("10.0.0.1", None)]);
                [Object::Service(s), Object::Slice(slice)]
            })
            .collect();
        let mut straight = told(objects.clone());
        let mut shuffled = told(order.iter().map(|at| objects[*at].clone()));
        prop_assert_eq!(view(&mut straight, &settings()), view(&mut shuffled, &settings()));
    }
}
