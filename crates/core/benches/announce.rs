//! `make bench`: what it costs to decide what a node announces, in CPU time: one pass over 10,000 addresses at the
//! start, then single changes. Prints numbers and ratios; asserts nothing about time.

use bowline_core::ObjectKey;
use bowline_core::addresses::{AddressState, Content, Holder, HolderKind, HolderRef, Record};
use bowline_core::announce::{
    Advertisement, AnnouncedService, Announcements, Announcing, ByBgp, ByL2, Covers, Event, Kind,
    Object, Peer, PeerAsn, PeerTarget,
};
use bowline_core::objects::{Endpoint, Slice, Version};
use std::error::Error;
use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

/// As the program has.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const CHANGES: u32 = 1_000;

fn main() -> Result<()> {
    println!("{:32}{:>14}{:>16}{:>10}", "announcements", "at start", "one change", "ratio");
    let mut single = Vec::new();
    for addresses in [1_000, 10_000, 100_000] {
        let (start, change) = measure(addresses)?;
        let ratio = start.as_secs_f64() / change.as_secs_f64();
        println!(
            "{:32}{:>11.1} ms{:>13.1} us{ratio:>10.0}",
            format!("{addresses} addresses, 4 peers"),
            start.as_secs_f64() * 1e3,
            change.as_secs_f64() * 1e6
        );
        single.push(change.as_secs_f64());
    }
    if let [small, .., large] = single[..] {
        println!("one change, 100000 addresses : 1000 addresses = {:.2}", large / small);
    }
    Ok(())
}

/// CPU time of the first pass, and of one change of endpoints.
fn measure(addresses: u32) -> Result<(Duration, Duration)> {
    let mut machine = Announcements::new("node-0".into());
    let mut objects = Vec::new();
    for number in 0..addresses {
        objects.extend(of_service(number));
    }
    objects.push(Object::Advertisement(
        Advertisement {
            name: "all".into(),
            covers: Covers::default(),
            nodes: None,
            l2: Some(ByL2::default()),
            bgp: Some(ByBgp::default()),
        }
        .into(),
    ));
    objects.extend((0..4).map(peer));
    let before = on_cpu()?;
    objects.into_iter().for_each(|object| machine.handle(Event::Apply(object)));
    Kind::ALL.into_iter().for_each(|kind| machine.handle(Event::Done(kind)));
    let effects = machine.take().len();
    let start = on_cpu()?.saturating_sub(before);
    if effects < addresses as usize * 5 {
        return Err(format!("{effects} effects for {addresses} addresses").into());
    }
    let changes: Vec<_> =
        (0..CHANGES).map(|number| slice(number * 7 % addresses, number % 2 == 1)).collect();
    let before = on_cpu()?;
    for change in changes {
        machine.handle(Event::Apply(change));
        machine.take();
    }
    Ok((start, on_cpu()?.saturating_sub(before) / CHANGES))
}

/// How long this process has been on a CPU: a busy machine does not count.
fn on_cpu() -> Result<Duration> {
    let schedule = fs::read_to_string("/proc/self/schedstat")?;
    let nanoseconds = schedule.split_whitespace().next().ok_or("time on a CPU")?.parse()?;
    Ok(Duration::from_nanos(nanoseconds))
}

fn name(number: u32) -> String {
    format!("service-{number}")
}

fn of_service(number: u32) -> [Object; 3] {
    let key = ObjectKey::new("shop", name(number));
    let holder = Holder {
        holder: HolderRef { key: key.clone(), kind: HolderKind::Service, uid: name(number).into() },
        ports: Vec::new(),
        key: None,
        load_balancer: None,
        since: 0,
    };
    let content =
        Content { pool: Some("public".into()), holders: vec![holder], state: AddressState::Active };
    let address = IpAddr::from(Ipv4Addr::from(0x0a00_0000 + number));
    let record = Record { address, version: Version("1".into()), content };
    [
        Object::Address(record, Announcing::default()),
        Object::Service(key, AnnouncedService::default()),
        slice(number, true),
    ]
}

fn slice(number: u32, ready: bool) -> Object {
    let endpoint = |index: u8| Endpoint {
        address: IpAddr::from([10, 1, 0, index]),
        ready,
        serving: ready,
        terminating: false,
        node: Some(format!("node-{index}").into()),
        target: None,
    };
    Object::Slice(Slice {
        key: ObjectKey::new("shop", format!("{}-1", name(number))),
        service: Some(name(number).into()),
        ports: Vec::new(),
        endpoints: (0..10).map(endpoint).collect(),
    })
}

fn peer(number: u8) -> Object {
    Object::Peer(
        Peer {
            name: format!("tor-{number}").into(),
            target: PeerTarget::Address([192, 0, 2, number].into()),
            port: 179,
            asn: PeerAsn::External,
            my_asn: 64_512,
            router_id: None,
            source: None,
            next_hop: None,
            vrf: None,
            ttl_security: false,
            listen: false,
            nodes: None,
            hold_time: 90,
            keepalive_time: None,
            connect_time: Duration::from_secs(10),
            multi_hop: false,
            password_secret: None,
            graceful_restart: None,
            bfd: None,
        }
        .into(),
    )
}
