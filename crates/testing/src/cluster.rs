//! Starts the cluster of a test. The environment decides which server it is; the tests of a binary share
//! it. Each test gets a client, namespaces and names of its own.

use crate::janitor::{Scratch, Service};
use crate::{embedded, real, unique};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::json;
use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};

/// The kind of server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flavour {
    /// Bowline's embedded server.
    Embedded,
    /// kube-apiserver.
    Real,
}

/// The caller of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// A caller with all rights.
    Admin,
    /// A caller with the read-only token.
    ReadOnly,
    /// A caller with an invalid token.
    WrongToken,
    /// A caller without a token.
    Anonymous,
}

/// A running server, shared by the tests of one binary.
pub(crate) struct Server {
    pub(crate) flavour: Flavour,
    /// Whether it was started for this run, so that tests need not clean up.
    pub(crate) disposable: bool,
    pub(crate) kubeconfig: PathBuf,
    pub(crate) read_only_token: Option<String>,
    pub(crate) scratch: Arc<Scratch>,
    /// The cluster's processes; dropping them ends them.
    pub(crate) components: Vec<Service>,
}

/// A cluster as one test sees it.
pub struct Cluster {
    server: &'static Server,
    clients: BTreeMap<Access, Client>,
    made: Mutex<Vec<String>>,
}

static SERVER: OnceLock<Server> = OnceLock::new();

/// The address families of Services.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stack {
    /// IPv4 only.
    Single,
    /// IPv4, and IPv6 for Services that request it.
    Dual,
}

/// The kubeconfig of an existing cluster, if the tests should run on it.
fn existing() -> Option<PathBuf> {
    std::env::var_os("BOWLINE_TEST_KUBECONFIG").filter(|file| !file.is_empty()).map(Into::into)
}

impl Cluster {
    /// Whether a test with a network of its own must be left out, because an existing cluster cannot be
    /// reached from there. If so, it prints a line directly to stderr, because the test harness would
    /// capture it.
    pub fn is_out_of_reach() -> bool {
        let out = existing().is_some();
        if out {
            tell_left_out(
                "it has a network of its own, from which BOWLINE_TEST_KUBECONFIG does not lead to its cluster",
            );
        }
        out
    }

    /// Whether a test must be left out on this kind of server. If so, it prints a line with the reason directly to
    /// stderr: a test that checks nothing must not look like one that agrees.
    pub fn leaves_out(&self, flavour: Flavour, why: &str) -> bool {
        let out = self.flavour() == flavour;
        if out {
            tell_left_out(&format!("on this server {why}"));
        }
        out
    }

    /// The cluster that the environment selects. The first test of a binary starts it.
    pub async fn start() -> Self {
        Self::shared(Stack::Single).await
    }

    /// As [`Self::start`], with these address families. All tests of a binary must use the same.
    pub async fn shared(stack: Stack) -> Self {
        let server = tokio::task::spawn_blocking(move || SERVER.get_or_init(|| start(stack)))
            .await
            .unwrap_or_else(|e| panic!("no cluster: {e}"));
        Self::on(server).await
    }

    /// A cluster for this test alone, if the test would disturb others.
    pub async fn own(stack: Stack) -> Self {
        let server = tokio::task::spawn_blocking(move || &*Box::leak(Box::new(start(stack))))
            .await
            .unwrap_or_else(|e| panic!("no cluster: {e}"));
        assert!(
            server.disposable,
            "this test needs a cluster for itself, which BOWLINE_TEST_KUBECONFIG is not"
        );
        Self::on(server).await
    }

    async fn on(server: &'static Server) -> Self {
        let mut kinds = vec![Access::Admin, Access::WrongToken, Access::Anonymous];
        kinds.extend(server.read_only_token.as_ref().map(|_| Access::ReadOnly));
        let mut clients = BTreeMap::new();
        for access in kinds {
            clients.insert(access, server.client(access).await);
        }
        Self { server, clients, made: Mutex::default() }
    }

    /// A client with the administrator's rights.
    pub fn client(&self) -> Client {
        self.client_as(Access::Admin)
    }

    /// A client with this access. Panics if an existing cluster has no such user.
    pub fn client_as(&self, access: Access) -> Client {
        self.clients
            .get(&access)
            .cloned()
            .unwrap_or_else(|| panic!("this cluster has no {access:?} user"))
    }

    /// Whether the cluster has a user with this access.
    pub fn has(&self, access: Access) -> bool {
        self.clients.contains_key(&access)
    }

    /// The kind of server.
    pub fn flavour(&self) -> Flavour {
        self.server.flavour
    }

    /// The administrator's kubeconfig.
    pub fn kubeconfig(&self) -> &Path {
        &self.server.kubeconfig
    }

    /// A new folder for a test's own files, deleted when the test binary ends.
    pub fn scratch(&self) -> PathBuf {
        let dir = self.server.scratch.path().join(unique());
        std::fs::create_dir(&dir).expect("create a scratch folder");
        dir
    }

    pub(crate) fn scratch_root(&self) -> &Scratch {
        &self.server.scratch
    }

    /// Creates a namespace with a fresh name.
    pub async fn namespace(&self) -> String {
        let name = format!("t-{}", unique());
        let namespace: Namespace =
            serde_json::from_value(json!({"metadata": {"name": name}})).expect("a namespace");
        self.owns("namespace", &name);
        Api::all(self.client())
            .create(&PostParams::default(), &namespace)
            .await
            .unwrap_or_else(|e| panic!("create namespace {name}: {e}"));
        name
    }

    /// Registers a cluster-scoped object of this test, which is deleted from an existing cluster
    /// afterwards.
    pub fn owns(&self, resource: &str, name: &str) {
        self.made.lock().expect("not poisoned").push(format!("{resource}/{name}"));
    }

    pub(crate) fn server(&self) -> &'static Server {
        self.server
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let made = std::mem::take(self.made.get_mut().expect("not poisoned"));
        if self.server.disposable || made.is_empty() {
            return;
        }
        let mut args = vec!["delete", "--ignore-not-found", "--wait=false"];
        args.extend(made.iter().map(String::as_str));
        let output = self.server.kubectl(&args, "");
        if output.status != 0 {
            eprintln!("left behind: {made:?}: {}", output.stderr);
        }
    }
}

impl Server {
    async fn client(&self, access: Access) -> Client {
        let mut config = Kubeconfig::read_from(&self.kubeconfig)
            .unwrap_or_else(|e| panic!("read {}: {e}", self.kubeconfig.display()));
        let token = match access {
            Access::Admin => None,
            Access::ReadOnly => Some(json!({"token": self.read_only_token})),
            Access::WrongToken => Some(json!({"token": unique()})),
            Access::Anonymous => Some(json!({})),
        };
        if let Some(user) = token {
            let user = serde_json::from_value(user).expect("a kubeconfig user");
            for named in &mut config.auth_infos {
                named.auth_info.clone_from(&user);
            }
        }
        let mut config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default())
            .await
            .expect("a usable kubeconfig");
        // The client would retry after 504 and hide it from the test.
        config.default_retry = false;
        Client::try_from(config).expect("a client")
    }
}

fn start(stack: Stack) -> Server {
    let scratch = Arc::new(Scratch::new());
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    if let Some(file) = existing() {
        assert!(
            !crate::net::is_entered(),
            "the cluster of BOWLINE_TEST_KUBECONFIG cannot be reached from a network of the tests' own; \
             unset it here, or name a real API server with KUBEBUILDER_ASSETS"
        );
        return Server {
            flavour: Flavour::Real,
            disposable: false,
            kubeconfig: file,
            read_only_token: None,
            scratch,
            components: Vec::new(),
        };
    }
    match variable("KUBEBUILDER_ASSETS") {
        Some(assets) => real::start(Path::new(&assets), scratch, stack),
        None => embedded::start(scratch, stack),
    }
}

/// A kubeconfig with one user, as JSON (which is YAML).
pub(crate) fn kubeconfig(url: &str, ca_pem: &str, token: &str) -> String {
    use k8s_openapi::ByteString;
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "test",
        "clusters": [{"name": "test", "cluster": {
            "server": url,
            "certificate-authority-data": ByteString(ca_pem.as_bytes().to_vec()),
        }}],
        "users": [{"name": "test", "user": {"token": token}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
    })
    .to_string()
}

/// Says that the test of this thread checks nothing, and why.
fn tell_left_out(why: &str) {
    let name = std::thread::current().name().unwrap_or("a test").to_owned();
    let _ = std::io::stderr().write_all(format!("left out: {name}: {why}\n").as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{net, objects};

    #[test]
    fn a_cluster_starts_in_a_network_of_its_own_and_has_both_families() {
        if Cluster::is_out_of_reach() {
            return;
        }
        let test = || {
            net::in_namespace(|| async {
                let cluster = Cluster::shared(Stack::Dual).await;
                let namespace = cluster.namespace().await;
                let mut service = objects::cluster_service("both", 80, 80);
                service["spec"]["ipFamilyPolicy"] = json!("RequireDualStack");
                let made = cluster.apply(&namespace, &service).await;
                assert_eq!(made["spec"]["ipFamilies"], json!(["IPv4", "IPv6"]));
            });
        };
        std::thread::spawn(test).join().expect("the test inside");
    }
}
