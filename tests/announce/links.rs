//! A client on the segment of the nodes reaches a Service by an address that one node owns on layer 2.

use crate::lan::{Lan, VIP};
use crate::stage::{PROGRAM, play};
use bowline_testing::{eventually, until};
use serde_json::json;
use std::process::Command;

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

async fn owned(lan: &Lan) -> usize {
    lan.reached();
    eventually("one node owns the address", || async { lan.owner().ok_or("none".to_owned()) }).await
}

#[test]
fn an_address_moves_by_hand_without_a_lost_attempt_and_after_a_crash_without_the_api() {
    play(async || {
        let mut lan =
            Lan::new(json!({"builtin": {}}), |_| vec!["--driver".to_owned(), "builtin".to_owned()])
                .await;
        owned(&lan).await;
        // By hand, to each other node in turn.
        for _ in 0..2 {
            let from = lan.owner().expect("an owner");
            let to = (from + 1) % lan.nodes.len();
            let name = lan.nodes[to].name;
            let address = VIP.to_string();
            let (failures, count) = lan
                .meanwhile(async || {
                    let (done, said) = announce(&lan, &["move", &address, name]);
                    assert!(done, "{said}");
                    assert!(said.contains(&format!("node {name} owns {address} now")), "{said}");
                })
                .await;
            assert_eq!(failures, [""; 0], "of {count} attempts");
            assert_eq!(lan.owner(), Some(to));
        }
        let (done, said) = announce(&lan, &["move", &VIP.to_string(), "nowhere"]);
        assert!(!done && said.contains("no speaker of node nowhere reports"), "{said}");
        let owner = lan.owner().expect("an owner");
        let shows = |at: usize| lan.nodes[at].metric("bowline_l2_owned_addresses");
        assert_eq!((0..3).map(|at| shows(at).expect("metrics")).sum::<u64>(), 1);
        assert_eq!(shows(owner), Ok(1));
        assert_eq!(lan.nodes[owner].metric("bowline_l2_members"), Ok(2));
        // A node that leaves moves what it owns, too.
        let from = lan.owner().expect("an owner");
        let mut speaker = lan.nodes[from].speaker.take().expect("a speaker");
        speaker.signal("TERM");
        assert_eq!(speaker.wait(), Some(0));
        lan.start_speaker_with(from, &["--withdraw-at-end"]);
        until("the next speaker has the address", || {
            yes(lan.nodes[from].metric("bowline_l2_owned_addresses") == Ok(1))
        });
        let (failures, count) = lan
            .meanwhile(async || {
                let speaker = lan.nodes[from].speaker.as_ref().expect("a speaker");
                speaker.signal("TERM");
                until("another owner", || yes(lan.owner() != Some(from)));
            })
            .await;
        assert_eq!(failures, [""; 0], "of {count} attempts");
        lan.nodes[from].speaker.take().expect("a speaker").wait();
        lan.start_speaker(from);
        // The API away, and a crash.
        lan.nodes.iter().for_each(|node| node.api.cut());
        let from = owned(&lan).await;
        lan.kill_speaker(from);
        until("another owner", || yes(lan.owner() != Some(from) && lan.reaches().is_ok()));
        lan.nodes.iter().for_each(|node| node.api.mend());
    });
}

#[test]
fn an_address_behind_haproxy_is_on_every_node_and_moves_after_a_crash() {
    play(async || {
        let source = json!({"bareMetalLoadBalancer": {"type": "Haproxy", "serviceName": "edge"}});
        let mut lan = Lan::new(source, |node| {
            let folder = Lan::files(node);
            let args = ["--driver", "haproxy", "--exec", "--haproxy-folder", &folder];
            args.map(str::to_owned).to_vec()
        })
        .await;
        let from = owned(&lan).await;
        let on_lo = |at: usize| lan.nodes[at].machine.ip("addr show dev lo").contains("10.0.0.200");
        until("the address is on every node", || yes((0..3).all(on_lo)));
        // A port without a listener is out of reach, although a program of the node listens there.
        let listener = lan.nodes[from].machine.on(|| std::net::TcpListener::bind("0.0.0.0:22"));
        let connect = |to: &str| {
            let to = to.parse().expect("an address");
            let patience = std::time::Duration::from_millis(300);
            lan.client.on(|| std::net::TcpStream::connect_timeout(&to, patience).is_ok())
        };
        assert!(connect(&format!("10.0.0.{}:22", from + 1)), "the node's own address");
        assert!(!connect("10.0.0.200:22"));
        drop(listener);
        lan.kill_speaker(from);
        let begun = std::time::Instant::now();
        until("another owner", || yes(lan.owner() != Some(from) && lan.reaches().is_ok()));
        println!("reached again after {:?}", begun.elapsed());
        assert_ne!(owned(&lan).await, from);
        // A speaker that comes back finds the address on its node, and leaves it where it is.
        let now = owned(&lan).await;
        lan.start_speaker(from);
        let address = VIP.to_string();
        eventually("the speaker reports", || async {
            let (done, said) = announce(&lan, &["move", &address, lan.nodes[now].name]);
            if done && said.contains("owns 10.0.0.200 already") { Ok(()) } else { Err(said) }
        })
        .await;
        assert_eq!(lan.owner(), Some(now));
        // A node that does not serve the address cannot have it.
        lan.end_agent(from);
        let name = lan.nodes[from].name;
        eventually("a move there is refused", || async {
            let (done, said) = announce(&lan, &["move", &address, name]);
            let refused = !done && said.contains(&format!("was not moved to node {name}"));
            yes(refused).map_err(|_| said)
        })
        .await;
        assert_eq!(lan.owner(), Some(now));
    });
}

#[test]
fn an_upgrade_of_all_speakers_loses_no_attempt_and_no_connection() {
    play(async || {
        let mut lan =
            Lan::new(json!({"builtin": {}}), |_| vec!["--driver".to_owned(), "builtin".to_owned()])
                .await;
        let owner = owned(&lan).await;
        let hears = |lan: &Lan, at: usize| {
            until("the speaker hears the others", || {
                match lan.nodes[at].metric("bowline_l2_members") {
                    Ok(2) => Ok(()),
                    other => Err(format!("{other:?}")),
                }
            });
        };
        (0..3).for_each(|at| hears(&lan, at));
        let held: Vec<_> = (0..5).map(|_| lan.hold()).collect();
        let attempts = lan.attempts();
        for at in 0..3 {
            let mut speaker = lan.nodes[at].speaker.take().expect("a speaker");
            speaker.signal("TERM");
            assert_eq!(speaker.wait(), Some(0));
            assert_eq!(lan.owner(), Some(owner));
            lan.start_speaker(at);
            hears(&lan, at);
            until("the owner has its address itself", || {
                match lan.nodes[owner].metric("bowline_l2_owned_addresses") {
                    Ok(1) => Ok(()),
                    other => Err(format!("{other:?}")),
                }
            });
            assert_eq!(lan.owner(), Some(owner), "after the upgrade of {}", lan.nodes[at].name);
        }
        let (failures, count) = attempts.stop();
        assert_eq!(failures, [""; 0], "of {count} attempts");
        for connection in held {
            assert_eq!(connection.ask(), Ok(()), "a connection that was open");
        }
        println!("three speakers upgraded: {count} attempts, none lost");
    });
}
