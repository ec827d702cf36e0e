//! Exhausting connections: one client opens as many as it can to evil's listeners, or asks for as much as it can at
//! once. It is refused before the program has none left, and shop's client, which comes from elsewhere, is served.

use crate::listeners::{FILES, start_with_few_files};
use crate::programs::Program;
use crate::stage::{Stage, TARGET, leads_to, serves};
use crate::tenants::{Evil, shop, unharmed};
use bowline_testing::objects::{self, Endpoint};
use bowline_testing::{Backend, Dial, Line, eventually, net};
use serde_json::json;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU16, Ordering};
use tokio::net::UdpSocket;
use tokio::task::JoinSet;

/// More than the program has, whatever it counts.
const ATTEMPTS: usize = 2 * FILES as usize;

/// What one client may have: each process of nginx counts for itself.
fn most(program: Program) -> usize {
    FILES as usize / 8 * program.workers_of_a_load()
}

/// Opens connections from these addresses in turn until several in a row lead nowhere, and keeps the others.
async fn hold(dial: &Dial, from: &[IpAddr]) -> Vec<Line> {
    let (mut held, mut refused) = (Vec::new(), 0);
    for address in from.iter().cycle().take(ATTEMPTS) {
        match dial.clone().from(*address).line().await {
            Ok(line) => {
                held.push(line);
                refused = 0;
            }
            Err(_) => refused += 1,
        }
        // One process of nginx may be full before another.
        if refused == 8 {
            break;
        }
    }
    held
}

/// Starts the program anew: with an agent that is only replaced it would go on, with all the files that it may open.
async fn begin(program: Program, stage: &mut Stage) {
    assert_eq!(stage.agent.stop(), Some(0));
    start_with_few_files(stage, &program.args(&stage.lb)).await;
}

/// Waits until no process of an earlier load is left: a client may have its share in each.
async fn settled(program: Program, stage: &Stage) {
    eventually("the processes of the last load are alone", || async {
        let found = program.processes(&stage.lb);
        let alone = found.len() == 1 + program.workers_of_a_load();
        if alone { Ok(()) } else { Err(format!("{found:?}")) }
    })
    .await;
}

/// Evil's Service `line` at a port of its own.
async fn line(stage: &Stage, evil: &Evil, family: &str) -> Backend {
    let pod = if family == "IPv6" { net::pod6() } else { net::pod4() };
    let mut service = objects::service("line", &stage.lb, &[(6000, TARGET)]);
    service["spec"]["ipFamilies"] = json!([family]);
    evil.apply(stage, service).await;
    let at = [Endpoint::ready(pod)];
    evil.apply(stage, objects::slice("line", ("", TARGET, "TCP"), &at)).await;
    Backend::tcp("evil", pod, TARGET).await
}

/// The addresses of one client, and that of another.
fn clients(family: &str) -> (Vec<IpAddr>, IpAddr) {
    if family == "IPv4" {
        return (vec![net::client4()], net::client4());
    }
    // Several addresses of one /64 are one client. Tests of one process share a network, so each has another one here.
    static NETWORKS: AtomicU16 = AtomicU16::new(1);
    let network = NETWORKS.fetch_add(1, Ordering::Relaxed);
    let other = IpAddr::from([0x2001, 2, 0, network, 0, 0, 0, 1]);
    net::add(other);
    ((0..3).map(|_| net::client6()).collect(), other)
}

fn one_client_opens_connections(program: Program, family: &str) {
    program.play(async |stage| {
        begin(program, stage).await;
        let evil = Evil::new(stage).await;
        let _line = line(stage, &evil, family).await;
        let dial = if family == "IPv6" { stage.dial6(6000) } else { stage.dial(6000) };
        leads_to(&dial, "evil").await;
        let (theirs, other) = clients(family);
        let _shop = shop(stage).await;
        settled(program, stage).await;
        unharmed(&stage.dial(80).from(net::client4()), async {
            let (held, most) = (hold(&dial, &theirs).await, most(program));
            assert!((16..=most).contains(&held.len()), "{} held, {most} at most", held.len());
            leads_to(&dial.clone().from(other), "evil").await;
            drop(held);
            leads_to(&dial.clone().from(theirs[0]), "evil").await;
        })
        .await;
    });
}

/// Requests that are answered late, on HTTP/2 many on a connection.
fn one_client_asks_for_much_at_once(program: Program) {
    program.play(async |stage| {
        begin(program, stage).await;
        let evil = Evil::new(stage).await;
        let _evil = evil.web(stage).await;
        evil.ingress(stage, "web", &["evil.example"]).await;
        let theirs = stage.dial(80).from(net::client4());
        serves(&theirs, "evil.example", "/", "evil").await;
        let _shop = shop(stage).await;
        settled(program, stage).await;
        unharmed(&stage.dial(80).from(net::client4()), async {
            let mut requests = JoinSet::new();
            let ask = "/?delay=4000";
            match program {
                // nginx speaks HTTP/2 over TLS only, where each request counts as well.
                Program::Nginx => {
                    for _ in 0..ATTEMPTS / 2 {
                        let theirs = theirs.clone();
                        requests.spawn(async move { theirs.get("evil.example", ask).await });
                    }
                }
                Program::Haproxy | Program::Builtin => {
                    for _ in 0..8 {
                        let session = theirs.clone().http2().session().await.expect("a session");
                        for _ in 0..64 {
                            let mut beside = session.beside().expect("HTTP/2");
                            requests.spawn(async move { beside.get("evil.example", ask).await });
                        }
                    }
                }
            }
            let done = requests.join_all().await;
            let with = |status| {
                done.iter().filter(|it| it.as_ref().is_ok_and(|it| it.status == status)).count()
            };
            let (served, refused, most) = (with(200), with(503), most(program));
            assert!(refused > 0, "{served} served, none refused");
            assert!((16..=most).contains(&served), "{served} served, {most} at most");
            serves(&theirs, "evil.example", "/", "evil").await;
        })
        .await;
    });
}

/// Datagrams, each from another port: a session each, which takes connections of nginx.
#[test]
fn sessions_of_datagrams_leave_connections_for_others_on_nginx() {
    let program = Program::Nginx;
    program.play(async |stage| {
        begin(program, stage).await;
        // First: a session keeps the process of an earlier load for a minute.
        let _shop = shop(stage).await;
        let evil = Evil::new(stage).await;
        let theirs = Backend::udp("evil", net::pod4(), TARGET).await;
        evil.apply(stage, objects::udp_service("datagrams", &stage.lb, 6001, TARGET)).await;
        let at = [Endpoint::ready(theirs.at.ip())];
        evil.apply(stage, objects::slice("datagrams", ("", TARGET, "UDP"), &at)).await;
        let dial = stage.dial(6001);
        eventually("datagrams are carried", || async { dial.datagram("x").await.map(drop) }).await;
        settled(program, stage).await;
        let from = net::client4();
        unharmed(&stage.dial(80).from(net::client4()), async {
            let mut sockets = Vec::new();
            for _ in 0..ATTEMPTS {
                let socket = dial.clone().from(from).udp().await.expect("a socket");
                socket.send(b"x").await.expect("sent");
                sockets.push(socket);
            }
            // Sessions of a client have no more than a client's connections have.
            few_are_answered(&sockets, most(program)).await;
        })
        .await;
    });
}

/// Waits for answers, and sees that so many sockets have one at most.
async fn few_are_answered(sockets: &[UdpSocket], most: usize) {
    let answered = eventually("some are answered", || async {
        let has = |it: &&UdpSocket| it.try_recv(&mut [0; 64]).is_ok();
        let answered = sockets.iter().filter(has).count();
        if answered >= 16 { Ok(answered) } else { Err(answered.to_string()) }
    })
    .await;
    assert!(answered <= most, "{answered} answered, {most} at most");
}

#[test]
fn a_client_that_opens_connections_without_end_leaves_some_for_others_on_haproxy() {
    one_client_opens_connections(Program::Haproxy, "IPv4");
}

#[test]
fn a_client_that_opens_connections_without_end_leaves_some_for_others_on_nginx() {
    one_client_opens_connections(Program::Nginx, "IPv4");
}

#[test]
fn many_addresses_of_one_ipv6_network_are_one_client_on_haproxy() {
    one_client_opens_connections(Program::Haproxy, "IPv6");
}

#[test]
fn many_addresses_of_one_ipv6_network_are_one_client_on_nginx() {
    one_client_opens_connections(Program::Nginx, "IPv6");
}

#[test]
fn a_client_with_many_requests_at_once_leaves_room_for_others_on_haproxy() {
    one_client_asks_for_much_at_once(Program::Haproxy);
}

#[test]
fn a_client_with_many_requests_at_once_leaves_room_for_others_on_nginx() {
    one_client_asks_for_much_at_once(Program::Nginx);
}
