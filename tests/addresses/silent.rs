//! Names under a zone that no name server answers for, and the names of another tenant meanwhile.

use crate::stage::{Site, play};
use bowline_testing::{Bind, eventually, objects};
use serde_json::json;
use std::collections::BTreeSet;
use std::net::{SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A name server in front of BIND that passes questions on, except for names in `silent.test`: these it drops, as a
/// resolver does to its client while the servers of a zone do not answer.
struct Front {
    address: SocketAddr,
    /// The names that were asked for and dropped.
    dropped: Arc<Mutex<BTreeSet<Vec<u8>>>>,
}

impl Front {
    fn new(bind: SocketAddr) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        let dropped = Arc::<Mutex<BTreeSet<_>>>::default();
        let seen = dropped.clone();
        std::thread::spawn(move || {
            let upstream = UdpSocket::bind("127.0.0.1:0").unwrap();
            upstream.connect(bind).unwrap();
            upstream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            let (mut question, mut answer) = ([0; 4096], [0; 4096]);
            while let Ok((length, from)) = socket.recv_from(&mut question) {
                let question = &question[..length];
                // The first label, with its length, begins after the header.
                let zone = b"\x06silent\x04test\x00";
                if question.windows(zone.len()).any(|it| it == zone) {
                    let end = 13 + usize::from(question[12]);
                    seen.lock().unwrap().insert(question[13..end].to_vec());
                    continue;
                }
                upstream.send(question).unwrap();
                if let Ok(length) = upstream.recv(&mut answer) {
                    socket.send_to(&answer[..length], from).unwrap();
                }
            }
        });
        Self { address, dropped }
    }

    fn dropped(&self) -> usize {
        self.dropped.lock().unwrap().len()
    }
}

#[test]
fn names_that_no_server_answers_for_delay_no_name_of_another_tenant() {
    play(async || {
        let bind = Bind::new();
        let front = Front::new(bind.address());
        let server = front.address.to_string();
        let site = Site::new(&["--dns-server", &server, "--dns-min-ttl", "1"]).await;
        site.pool("global", json!({"addresses": ["192.0.2.0/28"], "autoAssign": false})).await;
        // One look-up takes five seconds. Were they not shared, these would keep all 64 under way for 45 seconds.
        let evil = site.cluster.namespace().await;
        for number in 0..600 {
            let mut service = objects::service(&format!("silent-{number}"), "", &[(80, 8080)]);
            service["metadata"]["annotations"] =
                json!({"bowline.dev/assign-from-fqdn": format!("n{number}.silent.test")});
            site.cluster.apply(&evil, &service).await;
        }
        eventually("many silent names are under way", async || match front.dropped() {
            64.. => Ok(()),
            few => Err(format!("{few} were asked for")),
        })
        .await;
        bind.set("web.example.test", "A", 1, &["192.0.2.5"]);
        let start = Instant::now();
        site.service("web", json!({"bowline.dev/assign-from-fqdn": "web.example.test"})).await;
        site.shows("web", &["192.0.2.5"]).await;
        let first = start.elapsed();
        // A change is seen when the TTL of a second has ended.
        let start = Instant::now();
        bind.set("web.example.test", "A", 1, &["192.0.2.6"]);
        site.shows("web", &["192.0.2.6", "192.0.2.5"]).await;
        let change = start.elapsed();
        let (limit, waits) = (Duration::from_secs(5), 600 - front.dropped());
        assert!(waits > 0, "nothing waited any more");
        assert!(first < limit && change < limit, "a new name {first:?}, a change {change:?}");
    });
}
