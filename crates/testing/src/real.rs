//! A control plane of kube-apiserver as child processes: etcd, kube-apiserver and, if present,
//! kube-controller-manager, on free loopback ports, with certificates and tokens made for the run.

use crate::cluster::{Server, Stack};
use crate::janitor::{Scratch, Service, on_path};
use crate::pki::Pki;
use crate::wait::until;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Only the controllers that the embedded cluster also has, because the tests compare the two.
const CONTROLLERS: &str =
    "namespace-controller,garbage-collector-controller,endpointslice-controller";

/// The second user: it may read everything and write nothing.
const READER: &str = r#"{"apiVersion":"v1","kind":"List","items":[
{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":"read-only"},
 "rules":[{"apiGroups":["*"],"resources":["*"],"verbs":["get","list","watch"]},
          {"nonResourceURLs":["*"],"verbs":["get"]}]},
{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRoleBinding","metadata":{"name":"read-only"},
 "roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"read-only"},
 "subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"read-only"}]}]}"#;

/// Starts the components found in `assets` and waits until they answer.
pub(crate) fn start(assets: &Path, scratch: Arc<Scratch>, stack: Stack) -> Server {
    let apiserver = component(assets, "kube-apiserver").unwrap_or_else(|| {
        panic!(
            "KUBEBUILDER_ASSETS={} has no kube-apiserver; install one with\n  go install \
             sigs.k8s.io/controller-runtime/tools/setup-envtest@latest && export \
             KUBEBUILDER_ASSETS=$(setup-envtest use -p path)",
            assets.display()
        )
    });
    let etcd = component(assets, "etcd").or_else(|| on_path("etcd")).unwrap_or_else(|| {
        panic!(
            "no etcd in KUBEBUILDER_ASSETS={} or on PATH; install it with\n  sudo apt-get install \
             -y etcd-server",
            assets.display()
        )
    });

    let [etcd_client, etcd_peer, secure] = free_ports();
    let etcd_url = format!("http://{etcd_client}");
    let mut etcd = scratch.spawn(
        "etcd",
        &etcd,
        &[
            format!("--data-dir={}", scratch.path().join("etcd").display()),
            "--unsafe-no-fsync".into(),
            format!("--listen-client-urls={etcd_url}"),
            format!("--advertise-client-urls={etcd_url}"),
            format!("--listen-peer-urls=http://{etcd_peer}"),
        ],
    );
    await_port("etcd", &mut etcd, etcd_client);

    let pki = Pki::new();
    let (admin, reader) = (token(), token());
    let tokens = format!("{admin},admin,admin,system:masters\n{reader},read-only,read-only\n");
    let file = |name: &str, content: &str| scratch.write(name, content).display().to_string();
    let mut running = scratch.spawn(
        "kube-apiserver",
        &apiserver,
        &[
            format!("--etcd-servers={etcd_url}"),
            "--bind-address=127.0.0.1".into(),
            // Otherwise it looks for a default route, which a network of the tests' own does not
            // have.
            "--advertise-address=127.0.0.1".into(),
            format!("--secure-port={}", secure.port()),
            format!("--tls-cert-file={}", file("server.crt", &pki.server_cert)),
            format!("--tls-private-key-file={}", file("server.key", &pki.server_key)),
            format!("--token-auth-file={}", file("tokens.csv", &tokens)),
            "--authorization-mode=RBAC".into(),
            "--anonymous-auth=false".into(),
            "--endpoint-reconciler-type=none".into(),
            "--service-account-issuer=https://kubernetes.default.svc".into(),
            format!("--service-account-key-file={}", file("accounts.pub", &pki.accounts_public)),
            format!(
                "--service-account-signing-key-file={}",
                file("accounts.key", &pki.accounts_key)
            ),
            format!(
                "--service-cluster-ip-range={}",
                match stack {
                    Stack::Single => "10.96.0.0/12",
                    Stack::Dual => "10.96.0.0/12,fd00:10:96::/108",
                }
            ),
            // Tests create Pods, and no controller here creates ServiceAccounts.
            "--disable-admission-plugins=ServiceAccount".into(),
            "--allow-privileged=true".into(),
        ],
    );
    await_port("kube-apiserver", &mut running, secure);
    let kubeconfig = crate::cluster::kubeconfig(&format!("https://{secure}"), &pki.ca, &admin);
    let mut server = Server {
        flavour: crate::Flavour::Real,
        disposable: true,
        kubeconfig: scratch.write("kubeconfig", &kubeconfig),
        read_only_token: Some(reader),
        scratch: scratch.clone(),
        components: vec![etcd],
    };
    until("kube-apiserver is ready", || {
        running.assert_alive();
        server.kubectl(&["get", "--raw", "/readyz"], "").success()
    });
    until("the read-only user is made", || server.kubectl(&["apply", "-f", "-"], READER).success());

    server.components.push(running);
    if let Some(manager) = component(assets, "kube-controller-manager") {
        let manager = scratch.spawn(
            "kube-controller-manager",
            &manager,
            &[
                format!("--kubeconfig={}", server.kubeconfig.display()),
                "--leader-elect=false".into(),
                "--secure-port=0".into(),
                "--kube-api-qps=500".into(),
                "--kube-api-burst=1000".into(),
                format!("--flex-volume-plugin-dir={}", scratch.path().join("flexvolume").display()),
                format!("--controllers={CONTROLLERS}"),
            ],
        );
        server.components.push(manager);
    }
    server
}

fn component(assets: &Path, name: &str) -> Option<PathBuf> {
    Some(assets.join(name)).filter(|path| path.is_file())
}

fn token() -> String {
    (0..4).map(|_| crate::unique()).collect()
}

/// Binds all ports at the same time, so that they differ.
fn free_ports<const N: usize>() -> [SocketAddr; N] {
    let held = [(); N].map(|()| TcpListener::bind("127.0.0.1:0").expect("bind a free port"));
    held.each_ref().map(|listener| listener.local_addr().expect("a bound address"))
}

fn await_port(what: &str, service: &mut Service, at: SocketAddr) {
    until(what, || {
        service.assert_alive();
        TcpStream::connect_timeout(&at, Duration::from_secs(1)).map_err(|e| e.to_string())
    });
}
