//! Machines of a test: network namespaces with links between them, which end with the test.

use nix::sched::{CloneFlags, setns, unshare};
use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::process::Command;
use std::sync::Arc;

/// A network namespace with an interface `lo`.
#[derive(Clone)]
pub struct Machine(Arc<File>);

impl Default for Machine {
    fn default() -> Self {
        Self::new()
    }
}

impl Machine {
    /// A new one, without links.
    pub fn new() -> Self {
        let made = std::thread::spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET)
                .unwrap_or_else(|e| panic!("these tests make networks, which takes root: {e}"));
            File::open("/proc/thread-self/ns/net").expect("open the namespace")
        });
        let machine = Self(Arc::new(made.join().expect("a namespace")));
        machine.ip("link set lo up");
        machine
    }

    /// Runs something on this machine. Threads and processes that it starts stay there.
    pub fn on<T: Send>(&self, run: impl FnOnce() -> T + Send) -> T {
        let inside = || {
            setns(&self.0, CloneFlags::CLONE_NEWNET).expect("enter the namespace");
            run()
        };
        let done = std::thread::scope(|scope| scope.spawn(inside).join());
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// Runs a program to its end and returns what it prints. A failure panics.
    pub fn run(&self, program: &str, words: &str) -> String {
        let output = self.on(|| {
            let output = Command::new(program).args(words.split_whitespace()).output();
            output.unwrap_or_else(|e| panic!("{program} is missing (scripts/setup test): {e}"))
        });
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{program} {words}: {said}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Runs `ip`.
    pub fn ip(&self, words: &str) -> String {
        self.run("ip", words)
    }

    /// Its path, for `ip link … netns`.
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
    }
}
