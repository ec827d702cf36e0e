//! What `bowline up` prints when everything runs: what is where, and what to type next. It formats
//! text only; `up` prints it.

use super::local;
use crate::cli::paint::Paint;
use crate::cli::quoted::quoted;
use bowline_api::source::LoadBalancerSource;
use bowline_api::{LoadBalancer, convert};
use kube::Client;
use kube::api::{Api, ListParams};
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

/// What the greeting tells.
pub(super) struct Greeting {
    /// `https://…` of the Kubernetes API.
    pub(super) api: String,
    /// Where the state is stored.
    pub(super) data: Option<PathBuf>,
    /// The absolute path of the kubeconfig.
    pub(super) kubeconfig: PathBuf,
    /// Whether that file has a context of ours beside others.
    pub(super) merged: bool,
    /// The load balancers that run in this process.
    pub(super) load_balancers: Vec<Serving>,
    /// Where health and metrics are.
    pub(super) admin: SocketAddr,
    /// Whether the demo runs.
    pub(super) demo: bool,
    /// Whether Services that name no load balancer get only an address.
    pub(super) alone: bool,
}

/// A load balancer that runs in this process.
pub(super) struct Serving {
    pub(super) name: String,
    pub(super) addresses: Vec<std::net::IpAddr>,
    pub(super) http_port: u16,
    pub(super) https_port: u16,
}

/// The load balancers that run in this process, with the one that `up` creates first.
pub(super) async fn serving(client: &Client) -> Vec<Serving> {
    let api: Api<LoadBalancer> = Api::all(client.clone());
    let Ok(list) = api.list(&ListParams::default()).await else { return Vec::new() };
    let here = |one: &LoadBalancer| matches!(one.spec.source, LoadBalancerSource::Builtin(_));
    let mut all: Vec<_> = list.items.iter().filter(|one| here(one)).map(Serving::of).collect();
    all.sort_by_key(|one| (one.name != local::NAME, one.name.clone()));
    all
}

impl Greeting {
    /// The text; its last line says how to stop.
    pub(super) fn text(&self, paint: Paint) -> String {
        let mut out = String::new();
        let mut row = |what: &str, value: &str| {
            let _ = writeln!(out, "{}{value}", paint.strong(format!("{what:<16}")));
        };
        row("Kubernetes API", &self.api);
        match &self.data {
            Some(data) => row("State", &format!("kept in {}", data.display())),
            None => row("State", "in memory, gone at the end (keep it with --data DIR)"),
        }
        for (index, one) in self.load_balancers.iter().enumerate() {
            row(if index == 0 { "Load balancer" } else { "" }, &one.text());
        }
        if self.alone {
            row("Default", "none: a Service that names no load balancer gets an address of a pool");
        }
        row("Metrics", &format!("http://{}/metrics", reachable(self.admin)));
        row("Workloads", "Deployments and StatefulSets are stored, not run");
        out.push('\n');
        if self.demo {
            self.demo(&mut out, paint);
        }
        let file = quoted(&self.kubeconfig.display().to_string());
        let _ = writeln!(out, "In another terminal:");
        let current = if self.merged { "   # its context bowline is current" } else { "" };
        let _ = writeln!(out, "  export KUBECONFIG={file}{current}");
        let next = if self.demo {
            "kubectl -n demo delete pod hello-2   # and curl again"
        } else if self.alone {
            "kubectl get apool,addr,svc -A"
        } else {
            "kubectl get lb,svc,ingress -A"
        };
        let _ = writeln!(out, "  {next}");
        out.push('\n');
        let _ = writeln!(out, "{}", paint.faint("Ctrl-C stops it."));
        out
    }

    fn demo(&self, out: &mut String, paint: Paint) {
        let Some(first) = self.load_balancers.first() else { return };
        let Some(address) = first.addresses.first() else { return };
        let service = format!("curl {}", url(SocketAddr::new(*address, 8000)));
        let ingress = ingress(&first.addresses, *address, first.http_port);
        let _ =
            writeln!(out, "Three small web servers run as Pods of the namespace demo. Ask them:");
        for (command, what) in
            [(service, "Service demo/hello, in turn"), (ingress, "Ingress demo/hello, by name")]
        {
            let _ = writeln!(
                out,
                "  {}  {}",
                paint.good(format!("{command:<35}")),
                paint.faint(format!("# {what}"))
            );
        }
        out.push('\n');
    }
}

impl Serving {
    fn of(object: &LoadBalancer) -> Self {
        let read = convert::load_balancer(object);
        Self {
            name: read.name.to_string(),
            addresses: read.addresses,
            http_port: read.http_port,
            https_port: read.https_port,
        }
    }

    fn text(&self) -> String {
        let addresses: Vec<String> = self.addresses.iter().map(ToString::to_string).collect();
        let at =
            if addresses.is_empty() { "no address yet".to_owned() } else { addresses.join(", ") };
        format!(
            "{}: {at}; Ingresses at {} and {} (TLS)",
            self.name, self.http_port, self.https_port
        )
    }
}

/// How to ask the Ingress of the demo: its name leads to the loopback addresses of this machine, and for others the
/// request has to name it.
fn ingress(all: &[IpAddr], address: IpAddr, port: u16) -> String {
    let local: [IpAddr; 4] = [
        Ipv4Addr::LOCALHOST.into(),
        Ipv6Addr::LOCALHOST.into(),
        Ipv4Addr::UNSPECIFIED.into(),
        Ipv6Addr::UNSPECIFIED.into(),
    ];
    if all.iter().any(|address| local.contains(address)) {
        return format!("curl http://hello.localhost:{port}/");
    }
    format!("curl -H 'Host: hello.localhost' {}", url(SocketAddr::new(address, port)))
}

/// The URL of a server. Brackets mean something to some shells.
fn url(at: SocketAddr) -> String {
    let url = format!("http://{}/", reachable(at));
    if at.is_ipv6() { format!("'{url}'") } else { url }
}

/// Where a client on this machine reaches a listener: one on all addresses also on loopback.
fn reachable(at: SocketAddr) -> SocketAddr {
    let ip = match at.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, at.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn greeting(demo: bool) -> Greeting {
        Greeting {
            api: "https://127.0.0.1:6443".into(),
            data: demo.then(|| "data".into()),
            kubeconfig: "/home/me/kubeconfig".into(),
            merged: false,
            load_balancers: vec![Serving {
                name: "local".into(),
                addresses: vec![[127, 0, 0, 1].into(), std::net::Ipv6Addr::LOCALHOST.into()],
                http_port: 8080,
                https_port: 8443,
            }],
            admin: ([127, 0, 0, 1], 9180).into(),
            demo,
            alone: false,
        }
    }

    #[test]
    fn it_says_what_runs_where_and_what_to_type() {
        assert_eq!(
            greeting(true).text(Paint::plain()),
            "\
Kubernetes API  https://127.0.0.1:6443
State           kept in data
Load balancer   local: 127.0.0.1, ::1; Ingresses at 8080 and 8443 (TLS)
Metrics         http://127.0.0.1:9180/metrics
Workloads       Deployments and StatefulSets are stored, not run

Three small web servers run as Pods of the namespace demo. Ask them:
  curl http://127.0.0.1:8000/          # Service demo/hello, in turn
  curl http://hello.localhost:8080/    # Ingress demo/hello, by name

In another terminal:
  export KUBECONFIG=/home/me/kubeconfig
  kubectl -n demo delete pod hello-2   # and curl again

Ctrl-C stops it.
"
        );
    }

    #[test]
    fn the_commands_work_for_the_addresses_that_there_are() {
        let said = |addresses: &[&str]| {
            let mut greeting = greeting(true);
            let all = addresses.iter().map(|it| it.parse().expect("an address"));
            greeting.load_balancers[0].addresses = all.collect();
            let text = greeting.text(Paint::plain());
            let curls = text.lines().filter_map(|line| line.trim().strip_prefix("curl "));
            curls.map(|it| it.split("  ").next().unwrap_or_default().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(
            said(&["192.0.2.10"]),
            ["http://192.0.2.10:8000/", "-H 'Host: hello.localhost' http://192.0.2.10:8080/"]
        );
        assert_eq!(
            said(&["2001:db8::1", "192.0.2.10"]),
            [
                "'http://[2001:db8::1]:8000/'",
                "-H 'Host: hello.localhost' 'http://[2001:db8::1]:8080/'"
            ]
        );
        assert_eq!(
            said(&["192.0.2.10", "127.0.0.1"]),
            ["http://192.0.2.10:8000/", "http://hello.localhost:8080/"]
        );
        assert_eq!(said(&["::1"]), ["'http://[::1]:8000/'", "http://hello.localhost:8080/"]);
        assert_eq!(said(&["0.0.0.0"])[0], "http://127.0.0.1:8000/");
    }

    #[test]
    fn without_the_demo_there_is_less_to_say_and_80_columns_are_enough_for_all() {
        let plain = greeting(false).text(Paint::plain());
        assert!(plain.contains("in memory") && !plain.contains("demo"), "{plain}");
        for line in plain.lines().chain(greeting(true).text(Paint::plain()).lines()) {
            assert!(line.chars().count() <= 80, "{line}");
        }
    }
}
