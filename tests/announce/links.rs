//! A client on the segment of the nodes reaches a Service by an address that one node owns on layer 2.

use crate::lan::{Family, Lan};
use crate::stage::{PROGRAM, play};
use bowline_testing::{eventually, until};
use serde_json::json;
use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

fn announce(lan: &Lan, args: &[&str]) -> (bool, String) {
    let mut command = Command::new(PROGRAM);
    let command = command.arg("announce").args(args).env("KUBECONFIG", lan.cluster.kubeconfig());
    let output = command.output().expect("run bowline");
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&said).into_owned())
}

fn yes(it: bool) -> Result<(), String> {
    if it { Ok(()) } else { Err("not yet".to_owned()) }
}

/// Waits until every speaker hears the two others.
fn all_are_heard(lan: &Lan) {
    for node in &lan.nodes {
        until(&format!("node {} hears the others", node.name), || {
            let heard = node.metric("bowline_l2_members")?;
            if heard == 2 { Ok(()) } else { Err(format!("{heard} others")) }
        });
    }
}

async fn owned(lan: &Lan) -> usize {
    lan.reached();
    eventually("one node owns the address", || async { lan.owner().ok_or("none".to_owned()) }).await
}

/// Waits until the speaker of a node owns the address, and no other one stands in for it.
fn has_it_itself(lan: &Lan, at: usize) {
    until("the owner has its address itself", || {
        let owned = lan.nodes[at].metric("bowline_l2_owned_addresses")?;
        if owned == 1 { Ok(()) } else { Err(format!("{owned} addresses")) }
    });
}

/// Waits until another node than this one owns the address, and the client is served there.
fn moves_away(lan: &Lan, from: usize) {
    until("another owner", || yes(lan.owner() != Some(from) && lan.reaches().is_ok()));
}

async fn moves_and_crashes(family: Family) {
    let builtin = |_: &_| vec!["--driver".to_owned(), "builtin".to_owned()];
    let mut lan = Lan::new(family, json!({"builtin": {}}), builtin).await;
    let address = family.vip().to_string();
    owned(&lan).await;
    all_are_heard(&lan);
    // By hand, to each other node in turn.
    for _ in 0..2 {
        let from = lan.owner().expect("an owner");
        let to = (from + 1) % lan.nodes.len();
        let name = lan.nodes[to].name;
        lan.without_a_lost_attempt(async || {
            let (done, said) = announce(&lan, &["move", &address, name]);
            assert!(done, "{said}");
            assert!(said.contains(&format!("node {name} owns {address} now")), "{said}");
        })
        .await;
        assert_eq!(lan.owner(), Some(to));
    }
    let (done, said) = announce(&lan, &["move", &address, "nowhere"]);
    assert!(!done && said.contains("no speaker of node nowhere reports"), "{said}");
    let owner = lan.owner().expect("an owner");
    let shows = |at: usize| lan.nodes[at].metric("bowline_l2_owned_addresses");
    assert_eq!((0..3).map(|at| shows(at).expect("metrics")).sum::<u64>(), 1);
    assert_eq!(shows(owner), Ok(1));
    // A node that leaves moves what it owns, too.
    let from = lan.owner().expect("an owner");
    lan.end_speaker(from);
    lan.start_speaker_with(from, &["--withdraw-at-end"]);
    has_it_itself(&lan, from);
    all_are_heard(&lan);
    lan.without_a_lost_attempt(async || {
        let speaker = lan.nodes[from].speaker.as_ref().expect("a speaker");
        speaker.signal("TERM");
        until("another owner", || yes(lan.owner() != Some(from)));
    })
    .await;
    lan.nodes[from].speaker.take().expect("a speaker").wait();
    lan.start_speaker(from);
    all_are_heard(&lan);
    // The API away, and a crash.
    lan.nodes.iter().for_each(|node| node.api.cut());
    let from = owned(&lan).await;
    lan.kill_speaker(from);
    moves_away(&lan, from);
    lan.nodes.iter().for_each(|node| node.api.mend());
}

#[test]
fn an_address_moves_by_hand_without_a_lost_attempt_and_after_a_crash_without_the_api() {
    play(async || moves_and_crashes(Family::V4).await);
}

#[test]
fn an_ipv6_address_moves_by_hand_without_a_lost_attempt_and_after_a_crash_without_the_api() {
    play(async || moves_and_crashes(Family::V6).await);
}

/// Behind a program that an agent drives, with this type of load balancer and this driver.
async fn on_every_node(family: Family, kind: &str, driver: &str) {
    let source = json!({"bareMetalLoadBalancer": {"type": kind, "serviceName": "edge"}});
    let mut lan = Lan::new(family, source, |node| {
        let (folder, flag) = (node.files(), format!("--{driver}-folder"));
        let args = ["--driver", driver, "--exec", &flag, &folder];
        args.map(str::to_owned).to_vec()
    })
    .await;
    let vip = family.vip();
    let from = owned(&lan).await;
    all_are_heard(&lan);
    let on_lo =
        |at: usize| lan.nodes[at].machine.ip("addr show dev lo").contains(&format!(" {vip}/"));
    until("the address is on every node", || yes((0..3).all(on_lo)));
    // A port without a listener is out of reach, although a program of the node listens there.
    let listener = lan.nodes[from].machine.on(|| std::net::TcpListener::bind("[::]:22"));
    let connect = |to| {
        let (to, patience) = (SocketAddr::new(to, 22), Duration::from_millis(300));
        lan.client.on(|| std::net::TcpStream::connect_timeout(&to, patience).is_ok())
    };
    assert!(connect(lan.nodes[from].address(family)), "the node's own address");
    assert!(!connect(vip));
    drop(listener);
    lan.kill_speaker(from);
    let begun = std::time::Instant::now();
    moves_away(&lan, from);
    println!("reached again after {:?}", begun.elapsed());
    assert_ne!(owned(&lan).await, from);
    // A speaker that comes back finds the address on its node, and leaves it where it is.
    let now = owned(&lan).await;
    lan.start_speaker(from);
    let address = vip.to_string();
    eventually("the speaker reports", || async {
        let (done, said) = announce(&lan, &["move", &address, lan.nodes[now].name]);
        let owns = said.contains(&format!("owns {address} already"));
        if done && owns { Ok(()) } else { Err(said) }
    })
    .await;
    assert_eq!(lan.owner(), Some(now));
    // A node that does not serve the address cannot have it.
    lan.end_agent(from);
    let name = lan.nodes[from].name;
    let refused = |lan: &Lan| {
        let (done, said) = announce(lan, &["move", &address, name]);
        let refused = !done && said.contains(&format!("was not moved to node {name}"));
        yes(refused).map_err(|_| said)
    };
    until("a move there is refused", || refused(&lan));
    assert_eq!(lan.owner(), Some(now));
    // Nor one whose agent runs while another program has the port.
    let other = lan.nodes[from].machine.on(|| std::net::TcpListener::bind("[::]:80"));
    lan.start_agent(from);
    until("the agent has applied the plan", || lan.nodes[from].agent_is_ready());
    refused(&lan).expect("the agent says that its listener is not open");
    assert_eq!(lan.owner(), Some(now));
    drop(other);
    until("the address moves there", || {
        let (done, said) = announce(&lan, &["move", &address, name]);
        yes(done).map_err(|_| said)
    });
    assert_eq!(owned(&lan).await, from);
}

#[test]
fn an_address_behind_haproxy_is_on_every_node_and_moves_after_a_crash() {
    play(async || on_every_node(Family::V4, "Haproxy", "haproxy").await);
}

#[test]
fn an_ipv6_address_behind_nginx_is_on_every_node_and_moves_after_a_crash() {
    play(async || on_every_node(Family::V6, "Nginx", "nginx").await);
}

async fn upgraded(family: Family) {
    let builtin = |_: &_| vec!["--driver".to_owned(), "builtin".to_owned()];
    let mut lan = Lan::new(family, json!({"builtin": {}}), builtin).await;
    let owner = owned(&lan).await;
    all_are_heard(&lan);
    let held: Vec<_> = (0..5).map(|_| lan.hold()).collect();
    let clients = lan.clients();
    clients.go_on();
    for at in 0..3 {
        lan.end_speaker(at);
        assert_eq!(lan.owner(), Some(owner));
        lan.start_speaker(at);
        all_are_heard(&lan);
        has_it_itself(&lan, owner);
        clients.go_on();
        assert_eq!(lan.owner(), Some(owner), "after the upgrade of {}", lan.nodes[at].name);
    }
    let seen = clients.stop();
    assert_eq!(seen.lost_attempts(), [], "{} were answered", seen.total());
    for mut connection in held {
        assert_eq!(connection.ask().as_deref(), Ok("served"), "a connection that was open");
    }
    println!("three speakers upgraded: {} requests, no attempt lost", seen.total());
}

#[test]
fn an_upgrade_of_all_speakers_loses_no_attempt_and_no_connection() {
    play(async || upgraded(Family::V4).await);
}

#[test]
fn an_upgrade_of_all_speakers_loses_no_attempt_and_no_connection_over_ipv6() {
    play(async || upgraded(Family::V6).await);
}
