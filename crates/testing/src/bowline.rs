//! Bowline's own processes: a controller or an agent as a child of the test, with exactly the rights
//! of its role. It is stopped by its pid, or with the test.

use crate::cluster::kubeconfig;
use crate::objects::path;
use crate::{Call, Cluster, Dial, Flavour, Service, eventually, unique, until};
use kube::config::Kubeconfig;
use serde_json::json;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// The namespace that Bowline keeps its own objects in.
pub const SYSTEM: &str = "bowline-system";

/// A running controller or agent.
pub struct Bowline {
    /// The process.
    pub process: Service,
    /// The address of its probes and metrics.
    pub admin: SocketAddr,
}

impl Bowline {
    /// Starts a role, such as `controller` or `agent`, without waiting for it.
    pub fn start(
        cluster: &Cluster,
        program: &Path,
        kubeconfig: &Path,
        role: &str,
        args: &[&str],
    ) -> Self {
        let held = std::net::TcpListener::bind("127.0.0.1:0").expect("bind a free port");
        let admin = held.local_addr().expect("an address");
        drop(held);
        let mut all = vec![role.to_owned(), "--admin".to_owned(), admin.to_string()];
        all.extend(args.iter().map(|&arg| arg.to_owned()));
        let kubeconfig = kubeconfig.display().to_string();
        let log = std::env::var("BOWLINE_LOG").unwrap_or_else(|_| "info".to_owned());
        let process = cluster.scratch_root().spawn_with(
            &format!("{role}-{}", unique()),
            program,
            &all,
            &[("KUBECONFIG", &kubeconfig), ("BOWLINE_LOG", &log)],
        );
        Self { process, admin }
    }

    /// Waits until it reports that it is ready.
    pub async fn ready(&mut self) {
        let dial = Dial::to(self.admin.ip(), self.admin.port());
        eventually("bowline is ready", || {
            self.process.assert_alive();
            let dial = dial.clone();
            async move {
                let answer = dial.get("localhost", "/readyz").await?;
                if answer.status == 200 { Ok(()) } else { Err(answer.text()) }
            }
        })
        .await;
    }

    /// The value of a metric, summed over its labels. Zero: it is absent.
    pub async fn metric(&self, name: &str) -> f64 {
        let dial = Dial::to(self.admin.ip(), self.admin.port());
        let text = dial.get("localhost", "/metrics").await.expect("metrics").text();
        let samples = text.lines().filter(|line| {
            line.strip_prefix(name).is_some_and(|rest| rest.starts_with([' ', '{']))
        });
        samples.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum()
    }

    /// Stops it with a signal, and returns its exit code.
    pub fn stop(&mut self) -> Option<i32> {
        self.process.signal("TERM");
        self.process.wait()
    }
}

impl Drop for Bowline {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("---- log of {}\n{}", self.process.id(), self.process.log());
        }
        self.process.end();
    }
}

impl Cluster {
    /// Installs what Bowline needs in a cluster: kinds, namespace and, if rights are checked, the
    /// roles of `deploy`.
    pub async fn install(&self, deploy: &Path) {
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM}});
        let created =
            self.http(Call::new("POST", path("Namespace", "", "")).json(&namespace)).await;
        assert!(matches!(created.status, 201 | 409), "{}", created.text());
        if self.flavour() == Flavour::Embedded {
            return;
        }
        let crds = deploy.join("crds").display().to_string();
        self.kubectl(&["apply", "-f", &crds], "").ok();
        self.kubectl(&["wait", "--for=condition=Established", "--timeout=60s", "-f", &crds], "")
            .ok();
        let rbac = deploy.join("rbac/controller.yaml").display().to_string();
        self.kubectl(&["apply", "-f", &rbac], "").ok();
    }

    /// A kubeconfig with the rights that `deploy` gives to the agent of this load balancer.
    pub async fn agent_kubeconfig(&self, deploy: &Path, load_balancer: &str) -> PathBuf {
        if self.flavour() == Flavour::Real {
            let rbac = deploy.join("rbac/agent.yaml");
            let text = std::fs::read_to_string(&rbac).expect("read the agent's roles");
            // The replacement that deploy/README.md describes.
            let text = text.replace("edge", load_balancer);
            // All agents share two of the roles, and two tests may create them at the same time.
            until("the agent's roles are made", || {
                self.kubectl(&["apply", "-f", "-"], &text).success()
            });
        }
        self.kubeconfig_of(&format!("bowline-agent-{load_balancer}")).await
    }

    /// A kubeconfig of this agent with which it may read what it serves, and may not write its Lease.
    pub async fn kubeconfig_without_reports(&self, deploy: &Path, load_balancer: &str) -> PathBuf {
        if self.flavour() == Flavour::Real {
            let file = self.agent_kubeconfig(deploy, load_balancer).await;
            let role = format!("role/bowline-agent-{load_balancer}");
            let rule = json!([{"op": "replace", "path": "/rules/0/verbs", "value": ["get"]}]);
            let rule = rule.to_string();
            self.kubectl(&["patch", &role, "-n", SYSTEM, "--type=json", "-p", &rule], "").ok();
            return file;
        }
        let token = self.server().read_only_token.as_ref().expect("a read-only token");
        let mut config = Kubeconfig::read_from(self.kubeconfig()).expect("a kubeconfig");
        let user = serde_json::from_value(json!({"token": token})).expect("a kubeconfig user");
        config.auth_infos[0].auth_info = Some(user);
        let file = self.scratch().join("kubeconfig");
        std::fs::write(&file, serde_json::to_string(&config).expect("JSON")).expect("write it");
        file
    }

    /// A kubeconfig with the rights that `deploy` gives to speakers.
    pub async fn speaker_kubeconfig(&self, deploy: &Path) -> PathBuf {
        if self.flavour() == Flavour::Real {
            let rbac = deploy.join("rbac/speaker.yaml").display().to_string();
            self.kubectl(&["apply", "-f", &rbac], "").ok();
        }
        self.kubeconfig_of("bowline-speaker").await
    }

    /// A kubeconfig with the rights of a role. The embedded API does not check roles.
    pub async fn kubeconfig_of(&self, account: &str) -> PathBuf {
        if self.flavour() == Flavour::Embedded {
            return self.kubeconfig().to_owned();
        }
        let request = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": {"expirationSeconds": 3600},
        });
        let token = path("ServiceAccount", SYSTEM, account) + "/token";
        let answer = self.create(&token, &request).await;
        let token = answer["status"]["token"].as_str().expect("a token");
        let admin = Kubeconfig::read_from(self.kubeconfig()).expect("a kubeconfig");
        let cluster = admin.clusters[0].cluster.as_ref().expect("a cluster");
        let ca: k8s_openapi::ByteString =
            serde_json::from_value(json!(cluster.certificate_authority_data)).expect("base64");
        let url = cluster.server.as_deref().expect("a server");
        let text = kubeconfig(url, &String::from_utf8_lossy(&ca.0), token);
        let file = self.scratch().join("kubeconfig");
        std::fs::write(&file, text).expect("write a kubeconfig");
        file
    }
}
