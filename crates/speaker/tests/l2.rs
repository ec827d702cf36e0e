//! Speakers on a segment of real links, with clients whose kernel asks by ARP and neighbour discovery. The frames that
//! arrive at a client are the truth.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    reason = "tests measure time, wait for what has no event, and fail by panicking"
)]

#[path = "l2/segment.rs"]
mod segment;
#[path = "l2/uplinks.rs"]
mod uplinks;

use bowline_speaker::l2::frame;
use bowline_speaker::l2::speaker::{News, Owner};
use bowline_speaker::served::{Ports, Protocol, Served};
use segment::{Segment, V4, V6, v4, within};
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn one_of_three_answers_and_after_its_crash_another_one_within_three_seconds() {
    let mut segment = Segment::started();
    let client = segment.clients[0].clone();
    for address in [V4, V6] {
        let owner = segment.owner(address).expect("one owner");
        let name = segment.nodes[owner].name.clone();
        assert_eq!(client.connect(address, 80), Some(name), "the owner serves {address}");
        for (at, node) in segment.nodes.iter().enumerate() {
            let groups = node.host.machine.ip("-6 maddr show dev eth0");
            let listens = groups.contains("ff02::1:ff00:200");
            assert!(listens || at != segment.owner(V6).expect("one owner"), "{groups}");
        }
        let old = client.neighbour(address).expect("a neighbour");
        segment.nodes[owner].crash();
        // The kernel of the client still has the old address: it learns the new one by the announcement.
        let time = within(4 * SECOND, "the client knows the new owner", || {
            client.neighbour(address).is_some_and(|it| it != old)
        });
        assert!(time <= 3 * SECOND, "{address}: {time:?}");
        let by = client.connect(address, 80).expect("served");
        assert_eq!(client.ask(address).len(), 1, "{address}");
        let new = segment.owner(address).expect("one owner");
        assert_eq!(by, segment.nodes[new].name);
        let peers = segment.peers();
        segment.nodes[owner].start(b"a key of the test", &peers);
        segment.nodes[owner].news.wait("the others are seen", |told| {
            told.iter().any(|it| matches!(it, News::Members(it) if it.len() == 2)).then_some(())
        });
    }
}

/// Splits and heals. At every moment at most one node of a side answers, once those of a side know each other.
fn split_and_heal(block_gossip: bool) {
    let segment = Segment::started();
    if block_gossip {
        segment.block_gossip(true);
        // Long enough for every speaker to believe that it is alone.
        let end = Instant::now() + 5 * SECOND;
        while Instant::now() < end {
            for address in [V4, V6] {
                assert_eq!(segment.clients[1].ask(address).len(), 1, "{address} without gossip");
            }
        }
    }
    segment.split(true);
    let [left, right] = &segment.clients;
    within(8 * SECOND, "an owner on each side", || {
        let answers = [left.ask(V4), right.ask(V4), left.ask(V6), right.ask(V6)];
        assert!(answers.iter().all(|it| it.len() <= 1), "{answers:?}");
        answers.iter().all(|it| it.len() == 1)
    });
    for address in [V4, V6] {
        assert_ne!(left.ask(address), right.ask(address), "{address}");
    }
    segment.split(false);
    within(8 * SECOND, "one owner again", || {
        [V4, V6].iter().all(|address| {
            let answers = [left.ask(*address), right.ask(*address)];
            answers[0].len() == 1 && answers[0] == answers[1]
        })
    });
    let owners = [V4, V6].map(|it| segment.owner(it));
    let end = Instant::now() + 5 * SECOND;
    while Instant::now() < end {
        for address in [V4, V6] {
            assert_eq!(right.ask(address).len(), 1, "{address} after the split");
        }
    }
    assert_eq!([V4, V6].map(|it| segment.owner(it)), owners, "the owners stay");
}

#[test]
fn each_side_of_a_split_has_one_owner_and_the_whole_has_one_again() {
    split_and_heal(false);
}

#[test]
fn each_side_of_a_split_has_one_owner_also_without_gossip() {
    split_and_heal(true);
}

/// The speakers of all nodes are replaced, one after another. Every frame that arrives at a client says that the addresses
/// are where they were.
#[test]
fn replaced_speakers_keep_their_addresses_and_no_question_gets_two_answers() {
    let mut segment = Segment::started();
    let peers = segment.peers();
    let places = [V4, V6].map(|it| segment.owner(it).expect("one owner"));
    let macs = places.map(|at| segment.nodes[at].host.mac);
    let (asker, stop) = (segment.clients[1].clone(), AtomicBool::new(false));
    let asked = std::thread::scope(|scope| {
        let asking = scope.spawn(|| {
            let mut answers = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                answers.push([V4, V6].map(|it| asker.ask(it)));
            }
            answers
        });
        for at in 0..segment.nodes.len() {
            segment.nodes[at].speaker().lend();
            segment.nodes[at]
                .news
                .wait("the addresses are lent", |told| told.contains(&News::Left).then_some(()));
            segment.nodes[at].speaker = None;
            for (address, mac) in [V4, V6].into_iter().zip(macs) {
                within(4 * SECOND, "another node answers, and names the owner", || {
                    segment.clients[0].ask(address) == [mac]
                });
            }
            segment.nodes[at].speak(b"a key of the test", &peers);
            for (address, place) in [V4, V6].into_iter().zip(places) {
                let owner = segment.nodes[place].name.clone();
                let owner = if place == at { Owner::Me } else { Owner::Member(owner) };
                within(10 * SECOND, "the speaker knows the owner", || {
                    segment.nodes[at].owner_of(address) == Some(owner.clone())
                });
            }
            within(10 * SECOND, "the speaker answers itself again", || {
                let owned = places.iter().filter(|it| **it == at).count() as u64;
                segment.nodes[at].speaker().counts().owned == owned
            });
        }
        stop.store(true, Ordering::Relaxed);
        asking.join().expect("the client")
    });
    for answers in &asked {
        for (answers, mac) in answers.iter().zip(macs) {
            assert!(answers.is_empty() || *answers == [mac], "{answers:?}, and not {mac} alone");
        }
    }
    let silent = asked.iter().flatten().filter(|it| it.is_empty()).count();
    println!("{} questions, {silent} without an answer at once", 2 * asked.len());
}

#[test]
fn a_planned_move_loses_no_connection_attempt() {
    let segment = Segment::started();
    let client = &segment.clients[0];
    for address in [V4, V6] {
        for _ in 0..3 {
            let owner = segment.owner(address).expect("one owner");
            let to = (owner + 1) % 3;
            let target = segment.nodes[to].name.clone();
            for node in &segment.nodes {
                node.speaker().move_to(address, &target);
            }
            let end = Instant::now() + Duration::from_millis(500);
            let mut resets = 0;
            while Instant::now() < end {
                // The server accepts one after another.
                std::thread::sleep(Duration::from_millis(2));
                match client.attempt(address, 80) {
                    Ok(time) => assert!(time < Duration::from_millis(500), "{address}: {time:?}"),
                    // Its first packet went to the old owner and its second one to the new: no move can avoid that.
                    Err(error) if error.kind() == ErrorKind::ConnectionReset => resets += 1,
                    Err(error) => panic!("{address}: an attempt fails: {error}"),
                }
            }
            assert!(resets <= 1, "{address}: {resets} handshakes were cut");
            assert_eq!(client.connect(address, 80), Some(target), "{address}");
            assert_eq!(segment.owner(address), Some(to), "{address}");
        }
    }
}

#[test]
fn a_speaker_that_leaves_hands_its_addresses_over() {
    let mut segment = Segment::started();
    let client = segment.clients[0].clone();
    let owner = segment.owner(V4).expect("one owner");
    segment.nodes[owner].speaker().leave();
    segment.nodes[owner].news.wait("it has left", |told| told.contains(&News::Left).then_some(()));
    segment.nodes[owner].crash();
    for address in [V4, V6] {
        let by = client.connect(address, 80).expect("served");
        assert_ne!(by, segment.nodes[owner].name);
    }
}

#[test]
fn two_clusters_on_one_segment_notice_each_other() {
    let mut segment = Segment::new();
    let peers = segment.peers();
    segment.nodes[0].start(b"one key", &peers);
    within(8 * SECOND, "an owner", || segment.owner(V4) == Some(0) && segment.owner(V6) == Some(0));
    segment.nodes[2].start(b"another key", &peers);
    let stranger = segment.nodes[0].host.mac;
    for address in [V4, V6] {
        segment.nodes[2].news.wait("a conflict", |told| {
            told.contains(&News::Conflict(address, stranger)).then_some(())
        });
        assert_eq!(segment.owner(address), Some(0), "{address} stays where it is");
        assert_eq!(segment.nodes[2].owner_of(address), Some(Owner::Stranger(stranger)));
    }
    assert!(segment.nodes[2].speaker().counts().gossip.refused > 0);
    segment.nodes[0].crash();
    within(6 * SECOND, "the other cluster takes over", || segment.owner(V4) == Some(2));
}

#[test]
fn an_interface_that_comes_back_is_announced_on_again() {
    let segment = Segment::started();
    for address in [V4, V6] {
        let owner = segment.owner(address).expect("one owner");
        let machine = &segment.nodes[owner].host.machine;
        machine.ip("link set eth0 down");
        within(4 * SECOND, "another owner", || {
            segment.owner(address).is_some_and(|it| it != owner)
        });
        machine.ip("link set eth0 up");
        machine.ip(&format!("addr replace {}/64 dev eth0 nodad", segment::v6(owner as u8 + 1)));
        let before = segment.nodes[owner].speaker().counts().gossip.received;
        within(6 * SECOND, "it is heard again", || {
            segment.nodes[owner].speaker().counts().gossip.received > before
        });
        let owners = || segment.nodes.iter().map(|it| it.owner_of(address)).collect::<Vec<_>>();
        assert_eq!(segment.clients[0].ask(address).len(), 1, "{address}: {:?}", owners());
    }
}

#[test]
fn the_kernel_is_silent_about_served_addresses() {
    let mut segment = Segment::new();
    let client = segment.clients[0].clone();
    let node = &mut segment.nodes[0];
    node.host.machine.ip("addr add 10.0.0.201/32 dev lo");
    let foreign = IpAddr::V4(v4(201));
    assert_eq!(client.ask(foreign), [node.host.mac], "what the kernel does by itself");
    node.serve(&[V4, V6], &Ports::All, true);
    assert_eq!([V4, V6].map(|it| client.ask(it)), [vec![], vec![]]);
    // Nor does it tell others that the address is here, when it sends from there.
    node.host.machine.run("ip", "neigh flush dev eth0");
    client.machine.ip(&format!("neigh replace {V4} lladdr {} dev eth0", segment::STRANGER));
    let from_served = node.host.machine.on(|| {
        let socket = std::net::UdpSocket::bind((V4, 0)).expect("bind");
        socket.send_to(b"x", (v4(101), 9)).is_ok()
    });
    assert!(from_served);
    within(2 * SECOND, "the node learned the client", || {
        node.host.neighbour(v4(101).into()).is_some_and(|it| it == client.mac.to_string())
    });
    assert_eq!(client.neighbour(V4), Some(segment::STRANGER.to_owned()), "not learned");
}

#[test]
fn only_our_addresses_are_removed_and_only_after_the_whole_view() {
    let mut segment = Segment::new();
    let node = &mut segment.nodes[0];
    let on_lo = |node: &segment::Node| {
        let addresses = node.host.machine.ip("-o addr show dev lo");
        ["10.0.0.200/32", "fd00::200/128", "10.0.0.201/32"].map(|it| addresses.contains(it))
    };
    node.host.machine.ip("addr add 10.0.0.201/32 dev lo");
    node.serve(&[V4, V6], &Ports::All, true);
    assert_eq!(on_lo(node), [true, true, true]);
    // Others may remove it by mistake.
    node.host.machine.ip("addr del 10.0.0.200/32 dev lo");
    within(2 * SECOND, "repaired", || on_lo(node) == [true, true, true]);
    node.crash();
    assert_eq!(on_lo(node), [true, true, true], "kept for the next start");
    node.serve(&[V6], &Ports::All, false);
    assert_eq!(on_lo(node), [true, true, true], "the view is not whole yet");
    assert_eq!(segment.clients[0].ask(V4), [], "the kernel is silent about what is left");
    node.serve(&[V6], &Ports::All, true);
    within(2 * SECOND, "removed", || on_lo(node) == [false, true, true]);
    node.serve(&[], &Ports::All, true);
    assert_eq!(on_lo(node), [false, false, true]);
    assert!(!node.host.machine.run("nft", "list tables").contains("bowline"), "nothing is left");
}

#[test]
fn packets_to_ports_without_a_listener_are_dropped() {
    let mut segment = Segment::started();
    let client = segment.clients[0].clone();
    let open = Ports::Only(BTreeSet::from([(Protocol::Tcp, 80)]));
    for node in &mut segment.nodes {
        node.serve(&[V4, V6], &open, true);
    }
    for address in [V4, V6] {
        assert!(client.connect(address, 80).is_some(), "{address}");
        within(4 * SECOND, "a program of the node is out of reach", || {
            client.connect(address, 22).is_none()
        });
    }
    assert_eq!(
        client.connect(v4(1).into(), 22),
        Some("node-1".into()),
        "on the node's own address"
    );
}

#[test]
fn packets_to_unheld_addresses_of_an_aggregate_are_refused_and_programs_of_the_node_not_concerned()
{
    let mut segment = Segment::new();
    let node = &mut segment.nodes[0];
    let way = |node: &segment::Node, from: &str| {
        let words = format!("route get 203.0.113.5 {from}");
        node.host.machine.on(|| {
            let output = std::process::Command::new("ip").args(words.split_whitespace()).output();
            let output = output.expect("run ip");
            String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
        })
    };
    let forwarded = format!("from {} iif eth0", v4(101));
    node.host.machine.run("sysctl", "-q -w net.ipv4.ip_forward=1");
    node.host.machine.ip(&format!("route add default via {}", v4(102)));
    let refused = ["203.0.113.0/24", "2001:db8:1::/64"].map(|it| it.parse().expect("a prefix"));
    let wanted = Served { refused: refused.into(), complete: true, ..Served::default() };
    let rules = |node: &segment::Node| {
        ["-4", "-6"].map(|it| node.host.machine.ip(&format!("{it} rule")).matches("6666").count())
    };
    node.keep(wanted.clone());
    within(4 * SECOND, "packets are refused", || {
        rules(node) == [1, 1] && way(node, &forwarded).contains("No route to host")
    });
    assert!(way(node, "").contains(&format!("via {}", v4(102))), "{}", way(node, ""));
    // A route of the node's own comes first.
    node.host.machine.ip(&format!("route add 203.0.113.0/29 via {}", v4(102)));
    assert!(way(node, &forwarded).contains("via"), "{}", way(node, &forwarded));
    node.host.machine.ip("route del 203.0.113.0/29");
    // After a crash they are swept once the view is whole.
    node.crash();
    node.keep(Served::default());
    node.serve(&[V4], &Ports::All, false);
    assert!(way(node, &forwarded).contains("No route to host"));
    node.keep(Served { complete: true, ..Served::default() });
    within(4 * SECOND, "the rules are gone", || rules(node) == [0, 0]);
    assert!(way(node, &forwarded).contains("via"));
}

#[test]
fn rules_that_others_remove_come_back_at_once_on_a_busy_node_too() {
    let mut segment = Segment::new();
    let open = Ports::Only(BTreeSet::from([(Protocol::Tcp, 80)]));
    let node = &mut segment.nodes[0];
    node.serve(&[V4, V6], &open, true);
    let machine = node.host.machine.clone();
    let rules = || machine.run("nft", "list ruleset");
    let before = rules();
    for others in [
        "flush ruleset",
        "flush set inet bowline_served known4",
        "delete element inet bowline_served open6 { fd00::200 . tcp . 80 }",
        "flush chain arp bowline_served input",
        "delete table arp bowline_served",
    ] {
        machine.run("nft", others);
        within(8 * SECOND, others, || {
            // A Pod that starts and ends is such news.
            machine.ip("addr add 10.9.9.9/32 dev lo");
            machine.ip("addr del 10.9.9.9/32 dev lo");
            rules() == before
        });
    }
    assert_eq!(segment.clients[0].ask(V4), [], "the kernel is silent");
    let node = &mut segment.nodes[0];
    let more = Ports::Only(BTreeSet::from([(Protocol::Tcp, 80), (Protocol::Tcp, 443)]));
    node.serve(&[V4, V6], &more, true);
    within(4 * SECOND, "changes are put in place", || rules().contains("tcp . 443"));
}

#[test]
fn the_kernel_is_silent_where_kube_proxy_has_an_address_that_speakers_answer_for() {
    let mut segment = Segment::new();
    let peers = segment.peers();
    let client = segment.clients[0].clone();
    let node = &mut segment.nodes[0];
    // An interface of kind dummy in truth, which not every kernel has.
    node.host.machine.ip("link add kube-ipvs0 type bridge");
    node.host.machine.ip(&format!("addr add {V4}/32 dev kube-ipvs0"));
    let mac = node.host.mac;
    assert_eq!(client.ask(V4), [mac], "what the kernel does by itself");
    let silent = BTreeSet::from([V4, v4(1).into()]);
    node.keep(Served { silent, complete: true, ..Served::default() });
    within(4 * SECOND, "the kernel is silent", || client.ask(V4).is_empty());
    assert_eq!(client.ask(v4(1).into()), [mac], "but for the node's own address");
    node.speak(b"a key of the test", &peers);
    within(8 * SECOND, "the speaker answers", || client.ask(V4) == [mac]);
}

#[test]
fn an_ipv6_address_on_lo_has_a_mark_that_older_kernels_keep() {
    let mut segment = Segment::new();
    let node = &mut segment.nodes[0];
    node.serve(&[V6], &Ports::All, true);
    let shown = node.host.machine.ip("-6 addr show dev lo");
    assert!(shown.contains(&format!("metric {}", 0x626f_776c)), "{shown}");
}

#[test]
fn a_question_in_a_vlan_is_no_question_on_the_interface_below_it() {
    let segment = Segment::started();
    let client = &segment.clients[0];
    let owner = &segment.nodes[segment.owner(V4).expect("one owner")];
    let answers = || owner.speaker().counts().owners.answers;
    let before = answers();
    let question = frame::probe(client.mac, V4);
    // 802.1Q with VLAN 10, between the addresses and the type.
    let tagged = [&question[..12], &[0x81, 0x00, 0x00, 0x0a], &question[12..]].concat();
    for _ in 0..3 {
        client.send(&tagged);
    }
    // Frames of one sender stay in order, so this answer comes after theirs would have.
    client.send(&question);
    within(4 * SECOND, "the question without a tag is answered", || answers() > before);
    assert_eq!(answers() - before, 1, "the others are of another network");
}

#[test]
fn a_bridge_of_pods_is_not_listened_to() {
    let mut segment = Segment::new();
    let peers = segment.peers();
    let pod = bowline_testing::Machine::new();
    let node = &mut segment.nodes[0];
    let machine = node.host.machine.clone();
    machine.ip("link add cni0 type bridge");
    machine.ip("link set cni0 up");
    machine.ip("addr add 10.244.1.1/24 dev cni0");
    pod.ip(&format!("link add eth0 type veth peer name vethpod netns {}", machine.path()));
    pod.ip("link set eth0 up");
    machine.ip("link set vethpod master cni0");
    machine.ip("link set vethpod up");
    node.start(b"a key of the test", &peers);
    let names = node.news.wait("the interfaces", |told| {
        told.iter().find_map(|it| match it {
            News::Interfaces(names) => Some(names.clone()),
            _ => None,
        })
    });
    assert_eq!(names, BTreeSet::from(["eth0".into()]));
    let listening = || {
        let sockets = machine.run("cat", "/proc/net/packet");
        let index = |line: &str| line.split_whitespace().nth(4).map(str::to_owned);
        sockets.lines().skip(1).filter_map(index).collect::<BTreeSet<_>>()
    };
    let link = machine.ip("-o link show eth0");
    let eth0 = link.split(':').next().expect("an index").to_owned();
    assert_eq!(listening(), BTreeSet::from([eth0]), "a packet socket for each protocol of eth0");
    within(8 * SECOND, "an owner", || segment.owner(V4) == Some(0));
}
