//! The scratch folder and the child processes of one test binary. A test binary shares its server through
//! a static, and statics are never dropped. So a small shell waits until this process ends in any way,
//! then stops each child by its pid and removes the folder. It first sends a signal that children can
//! handle, because a child that is killed cannot end its own children. A process that such a child left, such
//! as a proxy, is known by its command line, which names a file in the folder.

use crate::wait::until;
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

const SCRIPT: &str = r#"
cat > /dev/null
all() { for f in "$1"/*.pid; do [ -e "$f" ] && kill "$2" "$(cat "$f")" 2>/dev/null && r=0; done; }
all "$1" -TERM
n=0
while r=1; all "$1" -0; [ $r = 0 ] && [ $n -lt 10 ]; do n=$((n + 1)); sleep 0.1; done
all "$1" -KILL
left() {
  for c in $(grep -laF "$1/" /proc/[0-9]*/cmdline 2>/dev/null); do
    p=${c#/proc/} && kill "$2" "${p%/cmdline}" 2>/dev/null && r=0
  done
}
left "$1" -TERM
n=0
while r=1; left "$1" -0; [ $r = 0 ] && [ $n -lt 10 ]; do n=$((n + 1)); sleep 0.1; done
left "$1" -KILL
n=0
until rm -rf "$1" 2>/dev/null || [ $n -gt 50 ]; do n=$((n + 1)); sleep 0.1; done
"#;

/// How long a child may take to end after the signal. The shell waits as long.
const ASKED: Duration = Duration::from_secs(1);

/// A folder that is removed when this process ends, with every child started in it.
pub struct Scratch {
    dir: PathBuf,
    shell: Child,
    /// The kernel closes this pipe when the process ends, which wakes the shell.
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
            // A Ctrl-C at the terminal reaches the whole group, and the shell must survive it.
            .process_group(0)
            .spawn()
            .expect("start sh, which cleans up after the tests");
        let alive = shell.stdin.take();
        Self { dir, shell, alive }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.dir
    }

    /// Writes a file in the folder and returns its path.
    pub fn write(&self, name: &str, content: &str) -> PathBuf {
        let path = self.dir.join(name);
        fs::write(&path, content).unwrap_or_else(|e| panic!("write {}: {e}", path.display()));
        path
    }

    /// Starts a child whose output goes to `NAME.log`.
    pub fn spawn(&self, name: &str, program: &Path, args: &[String]) -> Service {
        self.spawn_with(name, program, args, &[])
    }

    /// As [`Self::spawn`], with additional environment variables.
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

/// A running component. When it is dropped, it gets a signal to end, and is killed soon after.
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

    /// All its output so far, of both streams.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Sends a signal, such as `INT`.
    pub fn signal(&self, signal: &str) {
        let sent =
            Command::new("kill").arg(format!("-{signal}")).arg(self.id().to_string()).status();
        assert!(sent.is_ok_and(|status| status.success()), "send {signal} to {}", self.name);
    }

    /// Kills it with SIGKILL, as a power cut would, and returns when it has ended.
    pub fn kill(&mut self) {
        self.child.kill().unwrap_or_else(|e| panic!("kill {}: {e}", self.name));
        self.wait();
    }

    /// Ends it, if it is still running.
    pub fn end(&mut self) {
        if self.is_running() {
            self.kill();
        }
    }

    fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Waits until it ends by itself, and returns its exit code; `None` after a signal. Panics with the
    /// end of its log after a minute.
    pub fn wait(&mut self) -> Option<i32> {
        let status = until(&format!("{} ends", self.name), || match self.child.try_wait() {
            Ok(Some(status)) => Ok(status),
            Ok(None) => Err(format!("still running:\n{}", tail(&self.log))),
            Err(error) => Err(error.to_string()),
        });
        // Another process may soon get this pid.
        let _ = fs::remove_file(&self.pid);
        status.code()
    }

    /// Panics with the end of its log if it has ended.
    pub fn assert_alive(&mut self) {
        if let Ok(Some(status)) = self.child.try_wait() {
            let tail = tail(&self.log);
            panic!("{} ended with {status} while starting:\n{tail}", self.name);
        }
    }
}

impl Drop for Service {
    #[allow(
        clippy::disallowed_methods,
        reason = "asks until the process has ended, and then ends it"
    )]
    fn drop(&mut self) {
        let asked = Instant::now();
        if self.is_running() {
            let id = self.id().to_string();
            let _ = Command::new("kill").args(["-TERM", &id]).stderr(Stdio::null()).status();
        }
        while self.is_running() && asked.elapsed() < ASKED {
            std::thread::sleep(Duration::from_millis(10));
        }
        if self.is_running() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
        let _ = fs::remove_file(&self.pid);
    }
}

/// The path of a program on `PATH`.
pub(crate) fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(|file| file.is_file())
}

fn tail(log: &Path) -> String {
    let log = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<_> = log.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A child that starts a child of its own and ends it after a signal. Also returns the file with the
    /// pid of that child.
    fn parent(scratch: &Scratch, evidence: &Scratch) -> (Service, PathBuf) {
        let child = evidence.path().join("child");
        let script = format!(
            "sleep 90 & trap 'kill $!; exit' TERM; echo $! > {0}.new; mv {0}.new {0}; wait",
            child.display()
        );
        let service = scratch.spawn("parent", Path::new("/bin/sh"), &["-c".to_owned(), script]);
        until("it has a child", || fs::read_to_string(&child).map_err(|e| e.to_string()));
        (service, child)
    }

    fn ends(child: &Path) {
        let id = fs::read_to_string(child).expect("a number");
        let stat = PathBuf::from(format!("/proc/{}/stat", id.trim()));
        until("the child of the child ends", || match fs::read_to_string(&stat) {
            Ok(stat) if !stat.contains(") Z ") => Err(stat),
            _ => Ok(()),
        });
    }

    #[test]
    fn a_service_that_is_dropped_may_end_its_own_children() {
        let (scratch, evidence) = (Scratch::new(), Scratch::new());
        let (service, child) = parent(&scratch, &evidence);
        drop(service);
        ends(&child);
    }

    #[test]
    fn a_service_that_outlives_its_folder_may_end_its_own_children() {
        let (scratch, evidence) = (Scratch::new(), Scratch::new());
        let (service, child) = parent(&scratch, &evidence);
        // Statics are never dropped.
        std::mem::forget(service);
        drop(scratch);
        ends(&child);
    }

    #[test]
    fn what_a_killed_service_left_ends_with_the_folder() {
        let (scratch, evidence) = (Scratch::new(), Scratch::new());
        let (named, child) = (scratch.write("named", ""), evidence.path().join("child"));
        let script = format!(
            "sh -c 'while :; do sleep 0.1; done' {} & echo $! > {1}.new; mv {1}.new {1}; wait",
            named.display(),
            child.display()
        );
        let mut service = scratch.spawn("parent", Path::new("/bin/sh"), &["-c".to_owned(), script]);
        until("it has a child", || fs::read_to_string(&child).map_err(|e| e.to_string()));
        service.kill();
        drop(scratch);
        ends(&child);
    }

    #[test]
    fn a_service_that_does_not_listen_is_ended_all_the_same() {
        let scratch = Scratch::new();
        let script = "trap '' TERM; echo ready; while :; do sleep 1; done".to_owned();
        let service = scratch.spawn("deaf", Path::new("/bin/sh"), &["-c".to_owned(), script]);
        until("it is deaf", || match service.log() {
            log if log.contains("ready") => Ok(()),
            log => Err(log),
        });
        let place = PathBuf::from(format!("/proc/{}", service.id()));
        drop(service);
        assert!(!place.exists());
    }
}
