//! What an event costs: its cost follows what changes, not how many objects there are.

use super::make::*;
use crate::addresses::*;

/// So many Services with an address each, as many that wait for one of a full pool, and as many
/// that share addresses in groups of ten.
fn crowd(services: usize) -> World {
    let last = IpAddr::from(std::net::Ipv4Addr::from_bits(0x0a00_0000 + services as u32 - 1));
    let full = Pool {
        auto_assign: false,
        ranges: vec![Range::new(ip("10.0.0.0"), last).unwrap()],
        ..pool("full", &[])
    };
    let mut world = World::new([full, pool("free", &["172.16.0.0/12"])]);
    let requests = (0..services).flat_map(|at| {
        let created = at as i64;
        let ask = || Ok(Ask::Pool("full".into()));
        [
            AddressRequest { created, ask: ask(), ..service(&format!("shop/has-{at}")) },
            AddressRequest {
                created: 1_000_000 + created,
                ask: ask(),
                ..service(&format!("shop/waits-{at}"))
            },
            AddressRequest {
                created,
                sharing: sharing(&format!("key-{}", at / 10), &[8_000 + at as u16 % 10]),
                ..service(&format!("shop/shares-{at}"))
            },
        ]
    });
    world.with(requests);
    world
}

fn costs(world: &mut World) -> Vec<(&'static str, u64)> {
    let mut costs = Vec::new();
    let mut cost = |world: &mut World, name, change: &dyn Fn(&mut World)| {
        let before = world.machine.visited();
        change(world);
        world.run();
        costs.push((name, world.machine.visited() - before));
    };
    cost(world, "nothing", &|_| {});
    cost(world, "an equal object", &|world| world.put(world.request("shop/has-7").clone()));
    cost(world, "a new Service", &|world| world.put(service("shop/new")));
    cost(world, "a Service gone", &|world| world.remove("shop/new"));
    cost(world, "an address that is waited for", &|world| world.remove("shop/has-500"));
    cost(world, "one who waits goes", &|world| world.remove("shop/waits-600"));
    cost(world, "a port of one who shares", &|world| {
        let mut request = world.request("shop/shares-55").clone();
        request.sharing = sharing("key-5", &[9_000]);
        world.put(request);
    });
    cost(world, "an Address deleted", &|world| {
        let address = world.has("shop/has-700")[0];
        world.records.remove(&address);
        world.tell(Event::Unrecorded { address, version: None });
    });
    cost(world, "a Node", &|world| {
        let addresses = ips(&["172.31.255.255"]);
        let node = Object::Node { name: "worker".into(), addresses };
        world.tell(Event::Apply(Box::new(node)));
    });
    costs
}

#[test]
fn an_event_costs_the_same_among_1_000_and_10_000_services() {
    let (few, many) = (costs(&mut crowd(1_000)), costs(&mut crowd(10_000)));
    assert_eq!(few, many);
    assert!(few.iter().all(|(_, cost)| *cost <= 16), "{few:?}");
}

#[test]
fn the_suggestion_for_a_missing_pool_looks_at_1_000_pools_at_most() {
    let message = |others: usize| {
        let other = |at: usize| Pool {
            deleting: true,
            ..pool(&format!("m-{at:04}"), &[&format!("10.0.{}.{}/32", at / 256, at % 256)])
        };
        let others = (0..others).map(other);
        let mut world = World::new(others.chain([pool("zone", &["192.0.2.0/28"])]));
        world.with([AddressRequest { ask: Ok(Ask::Pool("zonne".into())), ..service("shop/web") }]);
        world.message("shop/web").to_owned()
    };
    let (few, many) = (message(999), message(1_000));
    assert!(few.contains("did you mean \"zone\"?"), "{few}");
    assert!(!many.contains("did you mean"), "{many}");
}
