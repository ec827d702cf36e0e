//! Tests look-ups against a real BIND 9, and against servers of the test's own for misbehaviour
//! that BIND does not show.

use bowline_core::dns::{
    Answer, Answers, Config, Event, Failure, FailureKind, Families, Found, Name, Report,
};
use bowline_core::objects::Family;
use bowline_runtime::dns::{Dns, DnsOptions};
use bowline_testing::Bind;
use hickory_resolver::proto::op::{Message, OpCode, ResponseCode};
use hickory_resolver::proto::rr::rdata::{A, CNAME};
use hickory_resolver::proto::rr::{self, RData, Record};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use tokio::net::UdpSocket;
use tokio::sync::mpsc;

/// A running look-up; it ends with the test.
struct Asker {
    wants: mpsc::UnboundedSender<Event>,
    reports: mpsc::Receiver<(Name, Report)>,
}

impl Asker {
    /// Asks these servers for a second each, and again after a second at the earliest.
    fn new(servers: &[SocketAddr]) -> Self {
        let mut options = DnsOptions::new(servers.to_vec());
        options.timeout = Duration::from_secs(1);
        options.schedule = Config::new(Duration::from_secs(1), Duration::from_secs(3600)).unwrap();
        options.schedule.most_late = Duration::ZERO;
        let (wants, heard) = mpsc::unbounded_channel();
        let (told, reports) = mpsc::channel(16);
        tokio::spawn(Dns::new(options).unwrap().run(heard, told));
        Self { wants, reports }
    }

    fn want(&self, name: &str, families: Families) {
        let (name, namespaces) = (name.parse().unwrap(), ["shop".into()].into());
        self.wants.send(Event::Want { name, families, namespaces }).unwrap();
    }

    /// The next report, which must be for this name.
    async fn report(&mut self, name: &str) -> Report {
        let (of, report) = self.reports.recv().await.unwrap();
        assert_eq!(of.as_str(), name);
        report
    }

    /// Waits until a report is as expected.
    async fn until(&mut self, name: &str, expected: &Answers) {
        let wait = async { while self.report(name).await.answers != *expected {} };
        let waited = tokio::time::timeout(Duration::from_secs(30), wait).await;
        assert!(waited.is_ok(), "{name} never was {expected:?}");
    }
}

/// The result of one look-up of a name.
async fn ask(servers: &[SocketAddr], name: &str, families: Families) -> Answers {
    let mut asker = Asker::new(servers);
    asker.want(name, families);
    asker.report(name).await.answers
}

async fn ask_v4(server: SocketAddr, name: &str) -> Answers {
    ask(&[server], name, Families::V4).await
}

fn found(family: Family, ttl: u64, addresses: &[&str]) -> Answer {
    let addresses = addresses.iter().map(|address| address.parse::<IpAddr>().unwrap());
    Found::new(family, addresses, Duration::from_secs(ttl))
}

fn v4(answer: Answer) -> Answers {
    Answers { v4: Some(answer), v6: None }
}

fn found_v4(ttl: u64, addresses: &[&str]) -> Answers {
    v4(found(Family::V4, ttl, addresses))
}

fn failed(kind: FailureKind, text: impl ToString) -> Answers {
    v4(Err(Failure::new(kind, text.to_string())))
}

/// A server that answers every question over UDP in this way, or not at all.
async fn server(answer: impl Fn(&Message) -> Option<Vec<u8>> + Send + 'static) -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    tokio::spawn(async move {
        let mut buffer = [0; 2048];
        while let Ok((length, from)) = socket.recv_from(&mut buffer).await {
            let question = Message::from_vec(&buffer[..length]).unwrap();
            if let Some(answer) = answer(&question) {
                socket.send_to(&answer, from).await.unwrap();
            }
        }
    });
    address
}

fn answer(question: &Message, code: ResponseCode, records: Vec<Record>) -> Option<Vec<u8>> {
    let mut message = Message::response(question.metadata.id, OpCode::Query);
    message.add_queries(question.queries.iter().cloned());
    message.add_answers(records);
    message.metadata.response_code = code;
    Some(message.to_vec().unwrap())
}

#[tokio::test]
async fn a_name_has_the_addresses_and_the_ttl_of_its_records() {
    let bind = Bind::new();
    bind.set("web.example.test", "A", 300, &["192.0.2.7", "192.0.2.10"]);
    bind.set("web.example.test", "AAAA", 200, &["2001:db8::7"]);
    bind.set("my_web.example.test", "A", 10, &["192.0.2.8"]);
    let mut asker = Asker::new(&[bind.address()]);
    asker.want("web.example.test", Families::BOTH);
    let answers = Answers {
        v4: Some(found(Family::V4, 300, &["192.0.2.7", "192.0.2.10"])),
        v6: Some(found(Family::V6, 200, &["2001:db8::7"])),
    };
    let (next_check, retried_within) = (Duration::from_secs(200), Duration::from_secs(60));
    let expected = Report { answers, next_check, retried_within };
    assert_eq!(asker.report("web.example.test").await, expected);
    let underscore = ask_v4(bind.address(), "my_web.example.test").await;
    assert_eq!(underscore, found_v4(10, &["192.0.2.8"]));
}

#[tokio::test]
async fn a_change_is_seen_when_the_ttl_has_ended() {
    let bind = Bind::new();
    bind.set("web.example.test", "A", 1, &["192.0.2.1"]);
    let mut asker = Asker::new(&[bind.address()]);
    asker.want("web.example.test", Families::V4);
    asker.until("web.example.test", &found_v4(1, &["192.0.2.1"])).await;
    bind.set("web.example.test", "A", 1, &["192.0.2.2"]);
    asker.until("web.example.test", &found_v4(1, &["192.0.2.2"])).await;
    bind.remove("web.example.test", "A");
    let gone = failed(FailureKind::NxDomain, bind.address());
    asker.until("web.example.test", &gone).await;
    bind.set("web.example.test", "A", 1, &["192.0.2.3"]);
    asker.until("web.example.test", &found_v4(1, &["192.0.2.3"])).await;
}

#[tokio::test]
async fn a_stopped_server_is_a_timeout_and_its_return_is_noticed() {
    let mut bind = Bind::new();
    bind.set("web.example.test", "A", 1, &["192.0.2.1"]);
    let mut asker = Asker::new(&[bind.address()]);
    asker.want("web.example.test", Families::V4);
    asker.until("web.example.test", &found_v4(1, &["192.0.2.1"])).await;
    bind.stop();
    let silent = failed(FailureKind::Timeout, bind.address());
    asker.until("web.example.test", &silent).await;
    bind.start();
    asker.until("web.example.test", &found_v4(1, &["192.0.2.1"])).await;
}

#[tokio::test]
async fn each_way_in_which_a_server_has_no_address_is_told_apart() {
    let bind = Bind::new();
    bind.set("text.example.test", "TXT", 60, &["nothing"]);
    bind.set("sub.example.test", "NS", 60, &["ns.elsewhere.test."]);
    let cases = [
        ("nobody.example.test", FailureKind::NxDomain),
        ("text.example.test", FailureKind::NoData),
        ("web.broken.test", FailureKind::ServFail),
        ("web.elsewhere.test", FailureKind::Refused),
        ("web.sub.example.test", FailureKind::Lame),
    ];
    for (name, kind) in cases {
        let answers = ask_v4(bind.address(), name).await;
        assert_eq!(answers, failed(kind, bind.address()), "{name}");
    }
}

#[tokio::test]
async fn of_two_families_one_may_be_found_and_the_other_not() {
    let bind = Bind::new();
    bind.set("web.example.test", "A", 60, &["192.0.2.1"]);
    let answers = ask(&[bind.address()], "web.example.test", Families::BOTH).await;
    let none = Failure::new(FailureKind::NoData, bind.address().to_string());
    let expected = Answers { v6: Some(Err(none)), ..found_v4(60, &["192.0.2.1"]) };
    assert_eq!(answers, expected);
}

#[tokio::test]
async fn aliases_are_followed_and_the_shortest_ttl_of_all_counts() {
    let bind = Bind::new();
    bind.set("a.example.test", "CNAME", 300, &["b.example.test."]);
    bind.set("b.example.test", "CNAME", 20, &["c.example.test."]);
    bind.set("c.example.test", "A", 100, &["192.0.2.1"]);
    let answers = ask_v4(bind.address(), "a.example.test").await;
    assert_eq!(answers, found_v4(20, &["192.0.2.1"]));
    bind.set("dangling.example.test", "CNAME", 300, &["nobody.example.test."]);
    let answers = ask_v4(bind.address(), "dangling.example.test").await;
    assert_eq!(answers, failed(FailureKind::NxDomain, bind.address()));
    bind.set("away.example.test", "CNAME", 300, &["web.elsewhere.test."]);
    let answers = ask_v4(bind.address(), "away.example.test").await;
    assert_eq!(answers, failed(FailureKind::Refused, bind.address()));
}

#[tokio::test]
async fn the_shortest_ttl_counts_also_when_every_alias_has_to_be_asked_for() {
    let server = server(|question| {
        let name = question.queries[0].name().clone();
        let alias = |to: &str| RData::CNAME(CNAME(rr::Name::from_ascii(to).unwrap()));
        let (ttl, data) = match name.to_string().as_str() {
            "a.example.test." => (300, alias("b.example.test.")),
            "b.example.test." => (20, alias("c.example.test.")),
            _ => (100, RData::A(A::new(192, 0, 2, 1))),
        };
        answer(question, ResponseCode::NoError, vec![Record::from_rdata(name, ttl, data)])
    })
    .await;
    assert_eq!(ask_v4(server, "a.example.test").await, found_v4(20, &["192.0.2.1"]));
}

#[tokio::test]
async fn aliases_in_a_circle_are_a_loop() {
    let bind = Bind::new();
    bind.set("a.example.test", "CNAME", 60, &["b.example.test."]);
    bind.set("b.example.test", "CNAME", 60, &["a.example.test."]);
    bind.set("self.example.test", "CNAME", 60, &["self.example.test."]);
    for name in ["a.example.test", "self.example.test"] {
        let answers = ask_v4(bind.address(), name).await;
        assert_eq!(answers, failed(FailureKind::CnameLoop, bind.address()), "{name}");
    }
    // BIND answers that with SERVFAIL; this server does not notice the loop.
    let patient = server(|question| {
        let name = question.queries[0].name().clone();
        let other = if name.to_string().starts_with('a') { "b" } else { "a" };
        let other = rr::Name::from_ascii(format!("{other}.example.test.")).unwrap();
        let alias = Record::from_rdata(name, 60, RData::CNAME(CNAME(other)));
        answer(question, ResponseCode::NoError, vec![alias])
    })
    .await;
    let answers = ask_v4(patient, "a.example.test").await;
    assert_eq!(answers, failed(FailureKind::CnameLoop, patient));
}

#[tokio::test]
async fn fifty_addresses_are_found_although_they_do_not_fit_a_datagram() {
    let bind = Bind::new();
    let v4: Vec<String> = (1..=50).map(|i| format!("192.0.2.{i}")).collect();
    let v6: Vec<String> = (1..=50).map(|i| format!("2001:db8::{i:x}")).collect();
    let v4: Vec<&str> = v4.iter().map(String::as_str).collect();
    let v6: Vec<&str> = v6.iter().map(String::as_str).collect();
    bind.set("web.example.test", "A", 60, &v4);
    bind.set("web.example.test", "AAAA", 60, &v6);
    let answers = ask(&[bind.address()], "web.example.test", Families::BOTH).await;
    let expected =
        Answers { v4: Some(found(Family::V4, 60, &v4)), v6: Some(found(Family::V6, 60, &v6)) };
    assert_eq!(answers, expected);
}

#[tokio::test]
async fn a_server_that_is_silent_or_talks_nonsense_is_told_so() {
    let silent = server(|_| None).await;
    let answers = ask_v4(silent, "web.example.test").await;
    assert_eq!(answers, failed(FailureKind::Timeout, silent));
    let nonsense =
        server(|question| Some([&question.metadata.id.to_be_bytes()[..], &[0xff; 30]].concat()))
            .await;
    let answers = ask_v4(nonsense, "web.example.test").await;
    let Some(Err(failure)) = &answers.v4 else { panic!("{answers:?}") };
    assert_eq!(failure.kind, FailureKind::Unusable, "{failure}");
    let empty = server(|question| answer(question, ResponseCode::NoError, vec![])).await;
    let answers = ask_v4(empty, "web.example.test").await;
    assert_eq!(answers, failed(FailureKind::NoData, empty));
}

#[tokio::test]
async fn the_next_server_is_asked_when_one_fails_and_only_then() {
    let bind = Bind::new();
    bind.set("web.example.test", "A", 60, &["192.0.2.1"]);
    let silent = server(|_| None).await;
    let failing = server(|question| answer(question, ResponseCode::ServFail, vec![])).await;
    let servers = [silent, failing, bind.address()];
    let answers = ask(&servers, "web.example.test", Families::V4).await;
    assert_eq!(answers, found_v4(60, &["192.0.2.1"]));
    let other = Bind::new();
    other.set("nobody.example.test", "A", 60, &["192.0.2.9"]);
    let servers = [bind.address(), other.address()];
    let answers = ask(&servers, "nobody.example.test", Families::V4).await;
    assert_eq!(answers, failed(FailureKind::NxDomain, bind.address()));
}

#[tokio::test]
async fn when_all_servers_fail_each_is_named_and_the_one_that_answered_counts() {
    let silent = server(|_| None).await;
    let failing = server(|question| answer(question, ResponseCode::ServFail, vec![])).await;
    let answers = ask(&[silent, failing], "web.example.test", Families::V4).await;
    let text = format!("{silent} Timeout, {failing} ServFail");
    assert_eq!(answers, failed(FailureKind::ServFail, text));
    let none = "there is none; name one with --dns-server ADDR:PORT";
    let answers = ask(&[], "web.example.test", Families::V4).await;
    assert_eq!(answers, failed(FailureKind::Unreachable, none));
}

#[tokio::test]
async fn a_server_that_nothing_can_be_sent_to_is_unreachable() {
    // No datagram can be sent to port 0.
    let nowhere: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let answers = ask_v4(nowhere, "web.example.test").await;
    let Some(Err(failure)) = &answers.v4 else { panic!("{answers:?}") };
    assert_eq!(failure.kind, FailureKind::Unreachable, "{failure}");
}
