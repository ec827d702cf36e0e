//! Shared by the tests of templates: entries, and a folder with a template and its publisher.

mod engines;
mod planned;
mod publishing;

use super::*;
use bowline_core::exposed::view::{Cluster, Endpoint, Entry, PortSpec};
use bowline_core::key::{ConsumerKind, ConsumerRef};
use bowline_core::outcome::Reason;
use bowline_core::plan::Transport;
use std::time::{Duration, Instant};

/// An entry of Service `NAME` in `shop`, with one endpoint called `NAME-a`.
fn entry(name: &str, port: u16, mode: &str) -> Entry {
    Entry {
        consumer: ConsumerRef {
            kind: ConsumerKind::Service,
            namespace: "shop".into(),
            name: name.into(),
            uid: format!("uid-of-{name}").into(),
        },
        port: PortSpec {
            ip: "192.0.2.7".parse().unwrap(),
            port,
            transport: Transport::Tcp,
            mode: mode.into(),
        },
        endpoints: vec![Endpoint {
            name: format!("{name}-a.b").into(),
            ip: "10.0.0.1".parse().unwrap(),
            port: 8080,
        }],
        node_port: 30080,
        external: Vec::new(),
        timeout_ms: 0,
        source_ranges: Vec::new(),
    }
}

fn cluster(services: Vec<Entry>) -> Cluster {
    let whole = Cluster {
        services,
        ports: Vec::new(),
        expressions: Vec::new(),
        nodes: vec!["n1.example".into(), "n2".into()],
        domain: "local".into(),
    };
    whole.only(|_| true)
}

fn names(rules: &str) -> Arc<ServerNames> {
    Arc::new(ServerNames::new(rules).unwrap())
}

/// A folder with a template and the output of a publisher.
struct Stage {
    folder: tempfile::TempDir,
}

impl Stage {
    fn new(template: &str) -> Self {
        let stage = Self { folder: tempfile::tempdir().unwrap() };
        std::fs::write(stage.path("t.tmpl"), template).unwrap();
        stage
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn publisher(&self, check: Option<&str>, notifiers: &[String]) -> Publisher {
        let target = Target {
            template: self.path("t.tmpl"),
            output: self.path("out"),
            check: check.map(str::to_owned),
        };
        let notifiers = notifiers.iter().map(|text| text.parse().unwrap()).collect();
        Publisher::new(vec![target], notifiers, names(""), Duration::from_secs(20)).unwrap()
    }

    /// A notifier that counts its runs in a file.
    fn counter(&self) -> String {
        format!("command:echo x >> {}", self.path("count").display())
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_default()
    }
}

const SETTLE: Duration = Duration::from_millis(50);

const LINES: &str = "{{ range .Services }}{{ .Name }}\n{{ end }}";

fn of(names: &[&str]) -> Subject {
    let entries = names.iter().enumerate().map(|(i, name)| entry(name, 1 + i as u16, "http"));
    Subject::exposed(cluster(entries.collect()))
}
