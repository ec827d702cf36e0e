//! The load balancer `local` that `bowline up` creates, so that a Service is reachable without any
//! other object. It is created once; from then on it belongs to the user, and only flags change it.

use crate::cli::say::say;
use anyhow::Context as _;
use bowline_api::source::{BuiltinSource, LoadBalancerSource};
use bowline_api::{LoadBalancer, convert};
use bowline_runtime::controller::has_driver;
use kube::ResourceExt as _;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::runtime::conditions;
use kube::runtime::wait::await_condition;
use serde_json::{Value, json};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};

/// Its name.
pub(super) const NAME: &str = "local";

const HTTP_PORT: u16 = 8080;
const HTTPS_PORT: u16 = 8443;

/// What the load balancer `local` is like. A flag that is left out leaves it as it is.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "The load balancer \"local\"")]
pub(super) struct Local {
    /// Address that it has; may be repeated [default: 127.0.0.1, and ::1 where there is IPv6]
    #[arg(long = "address", value_name = "IP")]
    addresses: Vec<IpAddr>,

    /// Port on which Ingresses are served in clear text [default: 8080, which needs no root]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    http_port: Option<u16>,

    /// Port on which Ingresses are served over TLS [default: 8443]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    https_port: Option<u16>,
}

impl Local {
    /// Creates it if it is missing, and applies the flags to it. Returns what is to be created when the one that is there,
    /// and is being deleted, is gone.
    pub(super) async fn ensure(&self, client: &kube::Client) -> anyhow::Result<Option<Again>> {
        anyhow::ensure!(
            has_driver(&LoadBalancerSource::Builtin(BuiltinSource {})),
            "the load balancer {NAME:?} needs the built-in proxy, which this build lacks (feature `proxy`): name \
             another one with --default-load-balancer, or have none with --no-default-load-balancer"
        );
        let api: Api<LoadBalancer> = Api::all(client.clone());
        let doing = || format!("cannot set up the load balancer {NAME:?}");
        let object = || serde_json::from_value(self.object(has_ipv6())).with_context(doing);
        if let Some(found) = api.get_opt(NAME).await.with_context(doing)? {
            if found.metadata.deletion_timestamp.is_some() {
                say(format_args!(
                    "The load balancer {NAME:?} is being deleted: it serves the consumers that it has, takes no new \
                     ones, and is created again when it is gone."
                ));
                return Ok(Some(Again { object: object()?, uid: found.uid().unwrap_or_default() }));
            }
            let changes = self.changes();
            if changes != json!({}) {
                let patch = Patch::Merge(json!({"spec": changes}));
                api.patch(NAME, &PatchParams::default(), &patch).await.with_context(doing)?;
            }
            return Ok(None);
        }
        api.create(&PostParams::default(), &object()?).await.with_context(doing)?;
        Ok(None)
    }

    /// Says which listeners of its Ingresses cannot be opened, and what helps. Nothing runs yet that could have them.
    pub(super) async fn tell_unopened(&self, client: &kube::Client) {
        let api: Api<LoadBalancer> = Api::all(client.clone());
        let Ok(object) = api.get(NAME).await else { return };
        let read = convert::load_balancer(&object);
        let ports = [(read.http_port, "--http-port"), (read.https_port, "--https-port")];
        for address in read.addresses {
            for (port, flag) in ports {
                if let Err(error) = TcpListener::bind((address, port)) {
                    say(unopened(SocketAddr::new(address, port), flag, &error));
                }
            }
        }
    }

    /// The ports of load balancers that classes make: the same as for a new `local`.
    pub(super) fn ports(&self) -> (u16, u16) {
        (self.http_port.unwrap_or(HTTP_PORT), self.https_port.unwrap_or(HTTPS_PORT))
    }

    /// What the flags change in an existing one.
    fn changes(&self) -> Value {
        let mut spec = json!({});
        if !self.addresses.is_empty() {
            spec["addresses"] = json!(self.addresses);
        }
        if let Some(port) = self.http_port {
            spec["httpPort"] = json!(port);
        }
        if let Some(port) = self.https_port {
            spec["httpsPort"] = json!(port);
        }
        spec
    }

    fn object(&self, ipv6: bool) -> Value {
        let mut spec = json!({
            "builtin": {},
            "addresses": addresses(ipv6),
            "allowedNamespaces": {"from": "All"},
            "httpPort": HTTP_PORT,
            "httpsPort": HTTPS_PORT,
        });
        if let (Some(spec), Value::Object(changes)) = (spec.as_object_mut(), self.changes()) {
            spec.extend(changes);
        }
        json!({
            "apiVersion": "bowline.dev/v1alpha1",
            "kind": "LoadBalancer",
            "metadata": {"name": NAME},
            "spec": spec,
        })
    }
}

/// A load balancer to be created when the one with this uid is gone.
pub(super) struct Again {
    object: LoadBalancer,
    uid: String,
}

impl Again {
    /// Waits until the old one is gone, and creates the new one.
    pub(super) async fn run(self, client: kube::Client) {
        let api: Api<LoadBalancer> = Api::all(client);
        let gone = await_condition(api.clone(), NAME, conditions::is_deleted(&self.uid));
        let created = match gone.await {
            Ok(_) => api.create(&PostParams::default(), &self.object).await.map_err(Into::into),
            Err(error) => Err(anyhow::Error::from(error)),
        };
        if let Err(error) = created {
            let why = format!("{error:#}");
            tracing::warn!(why, "the load balancer {NAME:?} is not created again: start up again");
        }
    }
}

/// Why a listener of Ingresses cannot be opened, and what helps.
fn unopened(at: SocketAddr, flag: &str, error: &io::Error) -> String {
    let helps = match error.kind() {
        ErrorKind::AddrInUse => {
            format!(
                "end what listens there (`ss -ltnp` shows it), or choose another port with {flag}"
            )
        }
        ErrorKind::PermissionDenied => {
            format!(
                "ports below 1024 need root or CAP_NET_BIND_SERVICE; or choose another port with {flag}"
            )
        }
        ErrorKind::AddrNotAvailable => {
            "give the address to an interface of this machine, or name another with --address"
                .to_owned()
        }
        _ => format!("choose another port with {flag}, or another address with --address"),
    };
    format!("Not open for Ingresses: {at}: {error}; {helps}")
}

fn addresses(ipv6: bool) -> Vec<IpAddr> {
    let v6 = ipv6.then_some(IpAddr::V6(Ipv6Addr::LOCALHOST));
    std::iter::once(IpAddr::V4(Ipv4Addr::LOCALHOST)).chain(v6).collect()
}

/// Whether this machine has an IPv6 loopback.
fn has_ipv6() -> bool {
    TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_open_to_all_namespaces_on_loopback_and_flags_come_first() {
        let plain = Local { addresses: Vec::new(), http_port: None, https_port: None };
        assert_eq!(
            plain.object(true)["spec"],
            json!({
                "builtin": {}, "addresses": ["127.0.0.1", "::1"], "allowedNamespaces": {"from": "All"},
                "httpPort": 8080, "httpsPort": 8443,
            })
        );
        assert_eq!(plain.changes(), json!({}));
        let address = IpAddr::from([192, 0, 2, 1]);
        let told = Local { addresses: vec![address], http_port: Some(80), https_port: None };
        assert_eq!(told.changes(), json!({"addresses": ["192.0.2.1"], "httpPort": 80}));
        assert_eq!(
            told.object(true)["spec"],
            json!({
                "builtin": {}, "addresses": ["192.0.2.1"], "allowedNamespaces": {"from": "All"},
                "httpPort": 80, "httpsPort": 8443,
            })
        );
    }

    #[test]
    fn a_listener_that_is_not_open_is_told_with_what_helps() {
        let at = SocketAddr::from(([192, 0, 2, 1], 80));
        for (kind, helps) in [
            (ErrorKind::AddrInUse, "another port with --http-port"),
            (ErrorKind::PermissionDenied, "CAP_NET_BIND_SERVICE"),
            (ErrorKind::AddrNotAvailable, "another with --address"),
        ] {
            let text = unopened(at, "--http-port", &kind.into());
            assert!(text.contains("192.0.2.1:80") && text.contains(helps), "{text}");
        }
    }

    #[test]
    fn what_is_written_is_a_load_balancer() {
        let plain = Local { addresses: Vec::new(), http_port: None, https_port: None };
        let read: LoadBalancer =
            serde_json::from_value(plain.object(false)).expect("a LoadBalancer");
        assert_eq!(read.spec.addresses, addresses(false));
    }
}
