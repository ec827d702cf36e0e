//! What shop changes of its own, and how long each change takes to go live: members, which pass the leader by; a
//! host and a port, which the leader plans; and a certificate, which the leader hands out.

use crate::stage::{Stage, TARGET, http, serves};
use bowline_testing::objects;
use bowline_testing::{Authority, Backend};
use serde_json::json;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// A kind of change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// A Service is led from one member to another.
    Members,
    /// An Ingress gets another host.
    Host,
    /// A Service gets another port.
    Port,
    /// A TLS Secret gets another certificate.
    Certificate,
}

impl Kind {
    pub(crate) const ALL: [Self; 4] = [Self::Members, Self::Host, Self::Port, Self::Certificate];
}

/// How long the changes of one run took, each kind's sorted.
pub(crate) type Run = BTreeMap<Kind, Vec<Duration>>;

/// The host of the Service with changing members.
const CHANGING: &str = "changing.example";
/// The host with changing certificates.
const SECURE: &str = "secure.example";

/// Shop's objects that change, with what answers for them.
pub(crate) struct Changes {
    /// Three, because nginx's workers from before a reload still answer for a moment.
    members: [Backend; 3],
    authority: Authority,
    /// How many changes there were.
    count: u16,
}

impl Changes {
    /// Shop's objects, all of them served.
    pub(crate) async fn new(stage: &Stage) -> Self {
        let members = [http("first").await, http("second").await, http("third").await];
        stage.behind("changing", &[&members[0]]).await;
        stage.ingress("changing", &[(CHANGING, "/", "Prefix", "changing")]).await;
        stage.behind("steady", &[&members[0]]).await;
        stage.service("port", 9_000, &[&members[0]]).await;
        let changes = Self { members, authority: Authority::new(), count: 0 };
        changes.issue(stage).await;
        let mut secure =
            objects::ingress("secure", &stage.lb, &[(SECURE, "/", "Prefix", "steady")]);
        secure["spec"]["tls"] = json!([{"hosts": [SECURE], "secretName": "secure"}]);
        stage.apply(secure).await;
        serves(&stage.dial(80), CHANGING, "/", "first").await;
        serves(&stage.dial(9_000), "any.example", "/", "first").await;
        live("the first certificate", || async { changes.shown(stage).await.map(drop) }).await;
        changes
    }

    /// So many changes of each kind, one after another.
    pub(crate) async fn run(&mut self, stage: &Stage, count: usize) -> Run {
        let mut run = Run::new();
        for _ in 0..count {
            for kind in Kind::ALL {
                let took = self.change(stage, kind).await;
                run.entry(kind).or_default().push(took);
            }
        }
        run.values_mut().for_each(|times| times.sort_unstable());
        run
    }

    /// Makes one change; how long it takes until a client sees it.
    pub(crate) async fn change(&mut self, stage: &Stage, kind: Kind) -> Duration {
        self.count += 1;
        match kind {
            Kind::Members => {
                let next = &self.members[usize::from(self.count / 4 + 1) % self.members.len()];
                let begun = Instant::now();
                stage.served_by("changing", &[next]).await;
                answered(stage, 80, CHANGING, &next.name).await;
                begun.elapsed()
            }
            Kind::Host => {
                let host = format!("h{}.shop.example", self.count);
                let begun = Instant::now();
                stage.ingress("hosts", &[(&host, "/", "Prefix", "steady")]).await;
                answered(stage, 80, &host, "first").await;
                begun.elapsed()
            }
            Kind::Port => {
                let port = 9_000 + self.count;
                let begun = Instant::now();
                stage.apply(objects::service("port", &stage.lb, &[(port, TARGET)])).await;
                answered(stage, port, "any.example", "first").await;
                begun.elapsed()
            }
            Kind::Certificate => {
                let before = self.shown(stage).await.expect("the certificate before");
                let begun = Instant::now();
                self.issue(stage).await;
                live("another certificate", || async {
                    let shown = self.shown(stage).await?;
                    if shown == before { Err("the one before".to_owned()) } else { Ok(()) }
                })
                .await;
                begun.elapsed()
            }
        }
    }

    async fn issue(&self, stage: &Stage) {
        stage.apply(objects::tls_secret("secure", &self.authority.issue(&[SECURE]))).await;
    }

    async fn shown(&self, stage: &Stage) -> Result<Vec<u8>, String> {
        let dial = stage.dial(443).tls(&self.authority.trusted(&["http/1.1"]), SECURE);
        dial.certificate().await.map(|shown| shown.to_vec())
    }
}

/// Waits until requests for a host are answered by the backend of this name.
async fn answered(stage: &Stage, port: u16, host: &str, name: &str) {
    live(&format!("{host} from {name}"), || async {
        let echo = stage.dial(port).get(host, "/").await?.echo()?;
        if echo.name == name { Ok(()) } else { Err(format!("from {}", echo.name)) }
    })
    .await;
}

/// Waits with short pauses, since the wait is measured.
async fn live<F: Future<Output = Result<(), String>>>(what: &str, mut probe: impl FnMut() -> F) {
    let begun = Instant::now();
    while let Err(why) = probe().await {
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "{what}: not within a minute; last: {why}"
        );
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
