//! Classes on `bowline up`: what a claim has made for it serves real traffic on this machine, and goes with it.

use bowline_testing::{Backend, Dial, Scratch, Service, eventually, net, objects, until};
use serde_json::{Value, json};
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

/// A running `bowline up`.
pub(crate) struct Up {
    service: Service,
    pub(crate) scratch: Scratch,
    pub(crate) kubeconfig: PathBuf,
}

impl Up {
    pub(crate) fn start() -> Self {
        Self::with(&[])
    }

    /// With these variables.
    fn with(env: &[(&str, &str)]) -> Self {
        let scratch = Scratch::new();
        let kubeconfig = scratch.path().join("kubeconfig");
        let file = kubeconfig.display().to_string();
        let args =
            ["up", "--kubeconfig", &file, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
        let args = args.map(str::to_owned);
        let program = Path::new(env!("CARGO_BIN_EXE_bowline"));
        let mut service = scratch.spawn_with("up", program, &args, env);
        until("bowline up is ready", || {
            service.assert_alive();
            let log = service.log();
            if log.contains("Ctrl-C stops it.") { Ok(()) } else { Err(log) }
        });
        Self { service, scratch, kubeconfig }
    }

    fn kubectl(&self, args: &[&str]) -> String {
        self.scratch.kubectl(&self.kubeconfig, args).ok()
    }

    fn apply(&self, object: &Value) {
        let file = self.scratch.write(&bowline_testing::unique(), &object.to_string());
        self.kubectl(&["apply", "-f", &file.display().to_string()]);
    }

    fn get(&self, what: &str) -> Value {
        let text = self.kubectl(&["get", what, "-o", "json"]);
        serde_json::from_str(&text).expect("JSON")
    }

    fn names(&self, kind: &str) -> Vec<String> {
        let list = self.get(kind);
        let items = list["items"].as_array().cloned().unwrap_or_default();
        let name = |it: &Value| it["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        items.iter().map(name).collect()
    }

    fn class(&self, name: &str, spec: Value) {
        self.apply(&json!({
            "apiVersion": "bowline.dev/v1alpha1", "kind": "LoadBalancerClass",
            "metadata": {"name": name}, "spec": spec,
        }));
    }

    /// A claim of this class; the name of what is made for it.
    fn claim(&self, name: &str, class: &str) -> String {
        self.apply(&json!({
            "apiVersion": "bowline.dev/v1alpha1", "kind": "LoadBalancerClaim",
            "metadata": {"name": name}, "spec": {"className": class},
        }));
        let claim = self.get(&format!("lbc/{name}"));
        format!("lbc-{}", claim["metadata"]["uid"].as_str().expect("a uid"))
    }

    /// A Service and an Ingress on a claim, answered by a backend on loopback.
    fn consumers(&self, claim: &str, service: &str, port: u16, backend: &Backend) {
        let on = json!({"bowline.dev/load-balancer-claim": claim});
        self.apply(&json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": service, "annotations": on},
            "spec": {
                "type": "LoadBalancer",
                "ports": [{"port": port, "targetPort": backend.at.port()}],
            },
        }));
        let member = ("", backend.at.port(), "TCP");
        let endpoint = objects::Endpoint::ready(backend.at.ip());
        self.apply(&objects::slice(service, member, &[endpoint]));
        let mut ingress =
            objects::ingress(service, "web", &[("shop.example", "/", "Prefix", service)]);
        ingress["metadata"]["annotations"] = on;
        let backend = &mut ingress["spec"]["rules"][0]["http"]["paths"][0]["backend"];
        backend["service"]["port"]["number"] = json!(port);
        self.apply(&ingress);
    }

    /// Waits until something shows an address, and says which.
    fn address(&self, what: &str) -> IpAddr {
        until(&format!("{what} has an address"), || {
            let object = self.get(what);
            let points = match what.starts_with("lb") {
                true => &object["status"]["ingress"],
                false => &object["status"]["loadBalancer"]["ingress"],
            };
            let ip = points[0]["ip"].as_str().and_then(|ip| ip.parse().ok());
            ip.ok_or_else(|| object.to_string())
        })
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("---- log of bowline up\n{}", self.service.log());
        }
        self.service.end();
    }
}

/// They share loopback.
static ONE_AT_A_TIME: std::sync::Mutex<()> = std::sync::Mutex::new(());

/// Runs a test while no other one of these runs.
pub(crate) fn play(test: impl AsyncFnOnce()) {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    net::in_namespace(|| async { test().await });
}

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn ingress_class() -> Value {
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "IngressClass",
        "metadata": {"name": "web"}, "spec": {"controller": "bowline.dev/ingress"},
    })
}

/// Waits until a backend answers there.
async fn answers(address: IpAddr, port: u16) -> String {
    eventually(&format!("{address}:{port} answers"), || async {
        let answer = Dial::to(address, port).get("shop.example", "/").await?;
        answer.echo().map(|echo| echo.name)
    })
    .await
}

#[test]
fn what_a_class_makes_serves_traffic_and_goes_with_its_claim() {
    play(async || {
        let up = Up::start();
        let backend = Backend::http("one", LOOPBACK, 0).await;
        up.apply(&ingress_class());
        up.class("bronze", json!({"builtin": {}, "capacity": {"network-bandwidth": "1G"}}));
        let made = up.claim("web", "bronze");
        let other = up.claim("other", "bronze");
        up.kubectl(&["wait", "lbc/web", "--for=jsonpath={.status.phase}=Bound", "--timeout=30s"]);
        up.consumers("web", "shop", 9000, &backend);
        let address = up.address(&format!("lb/{made}"));
        assert_ne!(address, up.address(&format!("lb/{other}")), "each has its own");
        assert_eq!(up.address("service/shop"), address);
        assert_eq!(up.address("ingress/shop"), address);
        assert_eq!(answers(address, 9000).await, "one", "the Service");
        assert_eq!(answers(address, 8080).await, "one", "the Ingress");
        until("it is Running", || {
            let lb = up.get(&format!("lb/{made}"));
            if lb["status"]["phase"] == "Running" { Ok(()) } else { Err(lb.to_string()) }
        });
        up.kubectl(&["delete", "service/shop", "ingress/shop"]);
        up.kubectl(&["delete", "lbc/web", "--timeout=30s"]);
        up.kubectl(&["wait", &format!("lb/{made}"), "--for=delete", "--timeout=30s"]);
        until("nothing is left of it", || {
            let left = ["leases", "plans", "secrets"].map(|kind| {
                let text = up.kubectl(&["get", kind, "-A", "-o", "name"]);
                text.lines().filter(|it| it.contains(&made)).map(str::to_owned).collect::<Vec<_>>()
            });
            let left = left.concat();
            if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
        });
        eventually("nobody listens there", || async {
            match Dial::to(address, 9000).tcp().await {
                Ok(_) => Err("somebody does".to_owned()),
                Err(_) => Ok(()),
            }
        })
        .await;
        assert_eq!(up.names("lb"), [other, "local".to_owned()]);
    });
}

#[test]
fn one_that_nobody_uses_is_removed_and_made_again_for_who_comes() {
    play(async || {
        let up = Up::start();
        let backend = Backend::http("one", LOOPBACK, 0).await;
        up.apply(&ingress_class());
        up.class("short", json!({"builtin": {}, "idleTimeout": "2s"}));
        let made = up.claim("web", "short");
        until("it is idle", || {
            let claim = up.get("lbc/web");
            let reason = claim["status"]["conditions"][0]["reason"].as_str() == Some("Idle");
            if reason { Ok(()) } else { Err(claim.to_string()) }
        });
        until("it is gone", || match up.names("lb") {
            names if names == ["local"] => Ok(()),
            names => Err(format!("{names:?}")),
        });
        up.consumers("web", "shop", 9000, &backend);
        let address = up.address(&format!("lb/{made}"));
        assert_eq!(up.address("service/shop"), address);
        assert_eq!(answers(address, 9000).await, "one");
    });
}

#[test]
fn a_class_that_nothing_can_be_made_of_says_so_in_the_claim() {
    play(async || {
        let up = Up::start();
        up.class("cloud", json!({"awsLoadBalancer": {}, "default": true}));
        up.claim("web", "cloud");
        up.apply(&json!({
            "apiVersion": "bowline.dev/v1alpha1", "kind": "LoadBalancerClaim",
            "metadata": {"name": "never"},
            "spec": {"className": "", "scope": "Intranet"},
        }));
        for (claim, why) in [
            (
                "web",
                "none is made, because class cloud cannot make one: this build has no driver for awsLoadBalancer",
            ),
            ("never", "none is made, because className is empty"),
        ] {
            until(&format!("{claim} is told"), || {
                let claim = up.get(&format!("lbc/{claim}"));
                let message = claim["status"]["conditions"][0]["message"].as_str();
                match message.filter(|message| message.ends_with(why)) {
                    Some(_) if claim["status"]["phase"] == "Pending" => Ok(()),
                    _ => Err(claim.to_string()),
                }
            });
        }
        assert_eq!(up.names("lb"), ["local"]);
    });
}

#[test]
fn haproxy_and_nginx_serve_as_children_where_a_class_asks_for_them() {
    play(async || {
        let up = Up::start();
        let backend = Backend::http("one", LOOPBACK, 0).await;
        up.apply(&ingress_class());
        for (number, type_) in ["Haproxy", "Nginx"].into_iter().enumerate() {
            let name = type_.to_lowercase();
            up.class(&name, json!({"bareMetalLoadBalancer": {"type": type_}}));
            let made = up.claim(&name, &name);
            up.consumers(&name, &format!("shop-{number}"), 9000, &backend);
            let address = up.address(&format!("service/shop-{number}"));
            assert_eq!(answers(address, 9000).await, "one", "{type_}: the Service");
            assert_eq!(answers(address, 8080).await, "one", "{type_}: the Ingress");
            let consumers = [format!("service/shop-{number}"), format!("ingress/shop-{number}")];
            up.kubectl(&["delete", &consumers[0], &consumers[1]]);
            up.kubectl(&["delete", &format!("lbc/{name}"), "--timeout=30s"]);
            up.kubectl(&["wait", &format!("lb/{made}"), "--for=delete", "--timeout=30s"]);
            eventually("nobody listens there", || async {
                match Dial::to(address, 9000).tcp().await {
                    Ok(_) => Err("somebody does".to_owned()),
                    Err(_) => Ok(()),
                }
            })
            .await;
        }
    });
}
