//! The scratch folder and the child processes of one test binary. A test binary shares its server
//! through a static, and statics are never dropped; so a small shell waits for this process to end,
//! however it ends, then stops each child by its own pid and removes the folder.

use crate::wait::until;
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

const SCRIPT: &str = r#"
cat > /dev/null
for f in "$1"/*.pid; do [ -e "$f" ] && kill -KILL "$(cat "$f")" 2>/dev/null; done
n=0
until rm -rf "$1" 2>/dev/null || [ $n -gt 50 ]; do n=$((n + 1)); sleep 0.1; done
"#;

/// A folder that disappears with this process, along with every child started in it.
pub struct Scratch {
    dir: PathBuf,
    shell: Child,
    /// Closed by the kernel when this process ends; that wakes the shell.
    alive: Option<ChildStdin>,
}

impl Drop for Scratch {
    fn drop(&mut self) {
        drop(self.alive.take());
        let _ = self.shell.wait();
    }
}

impl Default for Scratch {
    fn default() -> Self {
        Self::new()
    }
}

impl Scratch {
    /// A new, empty folder.
    pub fn new() -> Self {
        let dir = std::env::temp_dir().join(format!("bowline-test-{}", crate::unique()));
        fs::create_dir(&dir).unwrap_or_else(|e| panic!("create {}: {e}", dir.display()));
        let mut shell = Command::new("sh")
            .args(["-c", SCRIPT, "janitor"])
            .arg(&dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // A Ctrl-C at the terminal reaches the whole group; the shell must outlive it.
            .process_group(0)
            .spawn()
            .expect("start sh, which cleans up after the tests");
        let alive = shell.stdin.take();
        Self { dir, shell, alive }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.dir
    }

    /// Writes a file of the folder and returns its path.
    pub fn write(&self, name: &str, content: &str) -> PathBuf {
        let path = self.dir.join(name);
        fs::write(&path, content).unwrap_or_else(|e| panic!("write {}: {e}", path.display()));
        path
    }

    /// Starts a child whose output goes to `NAME.log`.
    pub fn spawn(&self, name: &str, program: &Path, args: &[String]) -> Service {
        self.spawn_with(name, program, args, &[])
    }

    /// The same with additional environment variables.
    pub fn spawn_with(
        &self,
        name: &str,
        program: &Path,
        args: &[String],
        env: &[(&str, &str)],
    ) -> Service {
        let log = self.dir.join(format!("{name}.log"));
        let out = File::create(&log).expect("create a log file");
        let child = Command::new(program)
            .args(args)
            .envs(env.iter().copied())
            .stdin(Stdio::null())
            .stderr(out.try_clone().expect("share the log file"))
            .stdout(out)
            .spawn()
            .unwrap_or_else(|e| panic!("start {}: {e}", program.display()));
        let pid = self.write(&format!("{name}.pid"), &child.id().to_string());
        Service { name: name.to_owned(), child, log, pid }
    }
}

/// A running component.
pub struct Service {
    name: String,
    child: Child,
    log: PathBuf,
    pid: PathBuf,
}

impl Service {
    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Everything it has printed so far, on both streams.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Sends a signal, such as `INT`.
    pub fn signal(&self, signal: &str) {
        let sent =
            Command::new("kill").arg(format!("-{signal}")).arg(self.id().to_string()).status();
        assert!(sent.is_ok_and(|status| status.success()), "send {signal} to {}", self.name);
    }

    /// Ends it as a power cut would (SIGKILL), and returns once it is gone.
    pub fn kill(&mut self) {
        self.child.kill().unwrap_or_else(|e| panic!("kill {}: {e}", self.name));
        self.wait();
    }

    /// Ends it if it has not ended yet.
    pub fn end(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.kill();
        }
    }

    /// Waits until it has ended by itself, and returns its exit code; `None` after a signal. Panics with
    /// the end of its log when that takes a minute.
    pub fn wait(&mut self) -> Option<i32> {
        let status = until(&format!("{} ends", self.name), || match self.child.try_wait() {
            Ok(Some(status)) => Ok(status),
            Ok(None) => Err(format!("still running:\n{}", tail(&self.log))),
            Err(error) => Err(error.to_string()),
        });
        // Its number may soon be somebody else's.
        let _ = fs::remove_file(&self.pid);
        status.code()
    }

    /// Panics with the end of its log if the component has ended.
    pub fn assert_alive(&mut self) {
        if let Ok(Some(status)) = self.child.try_wait() {
            let tail = tail(&self.log);
            panic!("{} ended with {status} while starting:\n{tail}", self.name);
        }
    }
}

fn tail(log: &Path) -> String {
    let log = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<_> = log.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}
