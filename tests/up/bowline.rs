//! The binary under test. Starts `bowline up`, knows where it listens from what it prints, and hands out
//! clients; asserts nothing about it.

use bowline_testing::{Scratch, Service, until};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The program.
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_bowline");

/// A running `bowline up`.
pub(crate) struct Bowline {
    pub(crate) service: Service,
    pub(crate) kubeconfig: PathBuf,
    pub(crate) address: SocketAddr,
}

/// How to start one.
pub(crate) struct Start<'a> {
    scratch: &'a Scratch,
    args: Vec<String>,
}

impl<'a> Start<'a> {
    /// In memory, on any free port.
    pub(crate) fn new(scratch: &'a Scratch) -> Self {
        let kubeconfig = scratch.path().join("kubeconfig");
        let args = vec!["up".into(), "--kubeconfig".into(), kubeconfig.display().to_string()];
        Self { scratch, args }.listen("127.0.0.1:0").arg("--admin").arg("127.0.0.1:0")
    }

    /// With its state in the folder `data` of the scratch folder.
    pub(crate) fn kept(scratch: &'a Scratch) -> Self {
        Self::new(scratch).arg("--data").arg(&scratch.path().join("data").display().to_string())
    }

    pub(crate) fn arg(mut self, arg: &str) -> Self {
        self.args.push(arg.to_owned());
        self
    }

    /// Listens here; the last one counts.
    pub(crate) fn listen(mut self, address: &str) -> Self {
        if let Some(at) = self.args.iter().position(|arg| arg == "--listen") {
            self.args.drain(at..at + 2);
        }
        self.arg("--listen").arg(address)
    }

    /// Starts it.
    pub(crate) fn spawn(&self) -> Service {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("up-{}", COUNT.fetch_add(1, Ordering::Relaxed));
        self.scratch.spawn(&name, Path::new(PROGRAM), &self.args)
    }

    /// Starts it and waits until it says that it is ready.
    pub(crate) fn ready(self) -> Bowline {
        let mut service = self.spawn();
        let address = until("bowline up is ready", || {
            service.assert_alive();
            let log = service.log();
            let line = log.lines().find_map(|line| line.strip_prefix("Kubernetes API  https://"));
            match line {
                Some(address) if log.contains("Ctrl-C stops it.") => Ok(address.to_owned()),
                _ => Err(log),
            }
        });
        Bowline {
            service,
            kubeconfig: self.scratch.path().join("kubeconfig"),
            address: address.parse().expect("an address is printed"),
        }
    }

    /// Runs it to its end, which must come by itself.
    pub(crate) fn output(self) -> Output {
        Command::new(PROGRAM).args(&self.args).output().expect("run bowline")
    }
}

impl Bowline {
    /// What the kubeconfig says.
    pub(crate) fn config(&self) -> Kubeconfig {
        Kubeconfig::read_from(&self.kubeconfig).expect("a kubeconfig")
    }

    /// The token of a user of the kubeconfig: `admin` or `read-only`.
    pub(crate) fn token(&self, user: &str) -> String {
        let file = std::fs::read_to_string(&self.kubeconfig).expect("a kubeconfig");
        let config = bowline_apiserver::yaml::from_yaml(file.as_bytes()).expect("YAML");
        let users = config["users"].as_array().expect("users");
        let found = users.iter().find(|entry| entry["name"] == user);
        found.and_then(|entry| entry["user"]["token"].as_str()).expect("a token").to_owned()
    }

    /// PEM of the certificate authority that clients are told to trust.
    pub(crate) fn authority(&self) -> Vec<u8> {
        let cluster = self.config().clusters.remove(0).cluster.expect("a cluster");
        let data = cluster.certificate_authority_data.expect("an authority");
        let data: k8s_openapi::ByteString =
            serde_json::from_value(data.into()).expect("base64 of an authority");
        data.0
    }

    /// A client of the administrator. What it asks for once is asked once.
    pub(crate) async fn client(&self) -> Client {
        let options = KubeConfigOptions::default();
        let mut config =
            Config::from_custom_kubeconfig(self.config(), &options).await.expect("a kubeconfig");
        config.default_retry = false;
        Client::try_from(config).expect("a client")
    }

    /// Asks it to stop, and returns its exit code.
    pub(crate) fn stop(&mut self) -> Option<i32> {
        self.service.signal("INT");
        let code = self.service.wait();
        self.assert_never_panicked();
        code
    }

    /// No thread of it has panicked.
    #[track_caller]
    pub(crate) fn assert_never_panicked(&self) {
        let log = self.service.log();
        assert!(!log.contains("panicked"), "{log}");
    }
}

/// Runs the program to its end.
pub(crate) fn run(args: &[&str]) -> Output {
    Command::new(PROGRAM).args(args).env_remove("BOWLINE_LOG").output().expect("run bowline")
}

/// Both streams of a run, for asserts on what a user sees.
pub(crate) fn said(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}
