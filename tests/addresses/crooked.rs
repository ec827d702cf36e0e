//! Name servers that do not do as they should, which no BIND can be made to be: one that never answers,
//! that is lame, that cuts its answers short. By what the name says, each in its own way.

use crate::stage::{Site, play};
use serde_json::json;
use std::net::{Ipv4Addr, SocketAddr};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, UdpSocket};

const FROM_DNS: &str = "AddressFromDNS";
const TRUNCATED: u16 = 0x0200;

/// How it answers.
#[derive(Clone, Copy)]
enum Manner {
    Silent,
    /// Refers to the root, as one does who does not have the zone.
    Lame,
    /// With nothing over UDP, and the record over TCP.
    Short,
    Honest,
}

/// The answer to a question for an A record: 192.0.2.4 for ever zero seconds.
fn answer(question: &[u8], tcp: bool) -> Option<Vec<u8>> {
    let labels = question.get(12..)?;
    let first = labels.get(1..1 + usize::from(*labels.first()?))?;
    let manner = match first {
        b"silent" => Manner::Silent,
        b"lame" => Manner::Lame,
        b"short" => Manner::Short,
        _ => Manner::Honest,
    };
    let end = labels.iter().position(|byte| *byte == 0)? + 1 + 4;
    let is_a = labels.get(end - 4..end - 2)? == [0, 1];
    let record = |kind: u8, name: &[u8], data: &[u8]| {
        let length = [0, data.len() as u8];
        [name, &[0, kind, 0, 1, 0, 0, 0, 0], &length, data].concat()
    };
    // A response with authority; the counts follow.
    let (flags, answers, authorities, records) = match manner {
        Manner::Silent => return None,
        Manner::Lame => (0x8000, 0, 1, record(2, &[0], b"\x01a\x0croot-servers\x03net\0")),
        Manner::Short if !tcp => (0x8400 | TRUNCATED, 0, 0, Vec::new()),
        _ if !is_a => (0x8400, 0, 0, Vec::new()),
        _ => (0x8400, 1, 0, record(1, &[0xc0, 12], &Ipv4Addr::new(192, 0, 2, 4).octets())),
    };
    let mut reply = question.get(..2)?.to_vec();
    for number in [flags, 1, answers, authorities, 0u16] {
        reply.extend(number.to_be_bytes());
    }
    reply.extend(&labels[..end]);
    reply.extend(records);
    Some(reply)
}

/// Serves UDP and TCP at one port until the test ends.
async fn server() -> SocketAddr {
    let tcp = TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let address = tcp.local_addr().expect("an address");
    let udp = UdpSocket::bind(address).await.expect("bind");
    tokio::spawn(async move {
        let mut buffer = [0; 2048];
        while let Ok((length, from)) = udp.recv_from(&mut buffer).await {
            if let Some(reply) = answer(&buffer[..length], false) {
                let _ = udp.send_to(&reply, from).await;
            }
        }
    });
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = tcp.accept().await {
            tokio::spawn(async move {
                while let Ok(length) = stream.read_u16().await {
                    let mut question = vec![0; length.into()];
                    stream.read_exact(&mut question).await?;
                    if let Some(reply) = answer(&question, true) {
                        stream.write_u16(reply.len() as u16).await?;
                        stream.write_all(&reply).await?;
                    }
                }
                std::io::Result::Ok(())
            });
        }
    });
    address
}

#[test]
fn a_server_that_is_silent_or_lame_gives_nothing_and_takes_nothing() {
    play(async || {
        let server = server().await.to_string();
        let site = Site::new(&["--dns-server", &server, "--dns-min-ttl", "1"]).await;
        let pool = json!({"addresses": ["192.0.2.0/28"], "autoAssign": false});
        site.pool("global", pool).await;
        site.service("kept", json!({"bowline.dev/vip": "192.0.2.9"})).await;
        site.shows("kept", &["192.0.2.9"]).await;
        for (service, name, told) in [
            ("silent", "silent.example.test", "did not answer in time"),
            ("lame", "lame.example.test", "lame"),
        ] {
            site.service(service, json!({"bowline.dev/assign-from-fqdn": name})).await;
            let message = site.says(service, FROM_DNS, "NameFailed").await;
            assert!(message.contains(told), "{message}");
            assert!(message.contains("; no address is assigned; "), "{message}");
            site.shows(service, &[]).await;
            // One that has an address keeps it when it turns to such a name.
            let turn = json!({"bowline.dev/vip": null, "bowline.dev/assign-from-fqdn": name});
            site.patch("kept", json!({"metadata": {"annotations": turn}})).await;
            let message = site.says("kept", FROM_DNS, "NameFailed").await;
            assert!(
                message.contains(name) && message.contains("; still assigned: 192.0.2.9; "),
                "{message}"
            );
            site.shows("kept", &["192.0.2.9"]).await;
            site.patch(
                "kept",
                json!({"metadata": {"annotations": {"bowline.dev/assign-from-fqdn": null}}}),
            )
            .await;
            site.says("kept", "bowline.dev/Programmed", "Assigned").await;
        }
        site.records(&[("192.0.2.9", &["kept"])]).await;
    });
}

#[test]
fn an_answer_that_is_cut_short_is_fetched_over_tcp_and_a_ttl_of_zero_is_the_shortest() {
    play(async || {
        let server = server().await.to_string();
        let site = Site::new(&["--dns-server", &server, "--dns-min-ttl", "2"]).await;
        let pool = json!({"addresses": ["192.0.2.0/28"], "autoAssign": false});
        site.pool("global", pool).await;
        site.service("web", json!({"bowline.dev/assign-from-fqdn": "short.example.test"})).await;
        site.shows("web", &["192.0.2.4"]).await;
        let message = site.says("web", FROM_DNS, "Resolved").await;
        let expected = "short.example.test is 192.0.2.4 (TTL 0s, looked up again after 2s)";
        assert_eq!(message, expected);
    });
}
