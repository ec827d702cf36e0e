//! Runs the real `kubectl` against a test's cluster, with a discovery cache of its own for each
//! run.

use crate::cluster::{Cluster, Server};
use crate::janitor::Scratch;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The longest run of `kubectl`: longer than any wait in a test.
const LIMIT: Duration = Duration::from_secs(90);

/// The result of a run of `kubectl`.
#[derive(Clone, Debug, PartialEq)]
pub struct Output {
    /// The exit code. -1: a signal ended it.
    pub status: i32,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Output {
    /// The standard output of a run that must succeed.
    #[track_caller]
    pub fn ok(self) -> String {
        assert!(self.status == 0, "kubectl failed: {self:#?}");
        self.stdout
    }

    /// The standard error of a run that must fail.
    #[track_caller]
    pub fn fails(self) -> String {
        assert!(self.status != 0, "kubectl succeeded: {self:#?}");
        self.stderr
    }

    /// For polling: the output, or the error text.
    pub fn success(self) -> Result<String, String> {
        if self.status == 0 { Ok(self.stdout) } else { Err(self.stderr) }
    }
}

impl Cluster {
    /// Runs `kubectl` with these arguments and this standard input.
    pub fn kubectl(&self, args: &[&str], stdin: &str) -> Output {
        self.kubectl_with(args, stdin, &[])
    }

    /// As [`Self::kubectl`], with additional environment variables such as `KUBE_EDITOR`.
    pub fn kubectl_with(&self, args: &[&str], stdin: &str, env: &[(&str, &str)]) -> Output {
        self.server().run(args, stdin, env)
    }
}

impl Server {
    pub(crate) fn kubectl(&self, args: &[&str], stdin: &str) -> Output {
        self.run(args, stdin, &[])
    }

    fn run(&self, args: &[&str], stdin: &str, env: &[(&str, &str)]) -> Output {
        run(&self.kubeconfig, self.scratch.path(), args, stdin, env)
    }
}

impl Scratch {
    /// Runs `kubectl` with this kubeconfig.
    pub fn kubectl(&self, kubeconfig: &Path, args: &[&str]) -> Output {
        run(kubeconfig, self.path(), args, "", &[])
    }
}

#[allow(clippy::disallowed_methods, reason = "asks until kubectl has ended")]
fn run(
    kubeconfig: &Path,
    scratch: &Path,
    args: &[&str],
    stdin: &str,
    env: &[(&str, &str)],
) -> Output {
    // Every call has its own discovery cache, so that a test's new kinds are visible at once.
    let cache = scratch.join(format!("cache-{}", crate::unique()));
    let mut child = Command::new(program())
        .args(args)
        .arg("--kubeconfig")
        .arg(kubeconfig)
        .arg("--cache-dir")
        .arg(&cache)
        .env("NO_PROXY", "*")
        .env_remove("KUBECONFIG")
        .envs(env.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("start kubectl");
    let mut input = child.stdin.take().expect("stdin is piped");
    let text = stdin.to_owned();
    // A child that ends without reading closes the pipe; its exit code shows the error.
    let writer = std::thread::spawn(move || input.write_all(text.as_bytes()).is_ok());
    let stdout = read(child.stdout.take().expect("stdout is piped"));
    let stderr = read(child.stderr.take().expect("stderr is piped"));
    let deadline = Instant::now() + LIMIT;
    let status = loop {
        if let Some(status) = child.try_wait().expect("wait for kubectl") {
            break status;
        }
        if Instant::now() > deadline {
            child.kill().expect("end kubectl");
            panic!("kubectl {args:?} does not end within {LIMIT:?}");
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let _ = writer.join();
    let _ = std::fs::remove_dir_all(&cache);
    Output {
        status: status.code().unwrap_or(-1),
        stdout: stdout.join().unwrap_or_default(),
        stderr: stderr.join().unwrap_or_default(),
    }
}

/// Reads a pipe to its end on a thread of its own, so that the child never blocks on a full pipe.
fn read(mut pipe: impl Read + Send + 'static) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = pipe.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// `KUBECTL`, or `kubectl` on `PATH`.
fn program() -> PathBuf {
    std::env::var_os("KUBECTL").map(PathBuf::from).or_else(|| crate::janitor::on_path("kubectl")).unwrap_or_else(
        || {
            panic!(
                "no kubectl on PATH and KUBECTL is not set; install it with\n  curl -fsSLo \
                 ~/.local/bin/kubectl https://dl.k8s.io/release/v1.36.0/bin/linux/amd64/kubectl && chmod \
                 +x ~/.local/bin/kubectl"
            )
        },
    )
}
