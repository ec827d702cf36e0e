//! The scratch folder and the child processes of one test binary. A test binary shares its server
//! through a static, and statics are never dropped; so a small shell waits for this process to end,
//! however it ends, then stops each child by its own pid and removes the folder.

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
pub(crate) struct Scratch {
    dir: PathBuf,
    /// Closed by the kernel when this process ends; that wakes the shell.
    _alive: ChildStdin,
}

impl Scratch {
    // The shell outlives this process on purpose; there is nobody left to wait for it.
    #[expect(clippy::zombie_processes)]
    pub(crate) fn new() -> Self {
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
        let alive = shell.stdin.take().expect("stdin is piped");
        Self { dir, _alive: alive }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.dir
    }

    /// Writes a file of the folder and returns its path.
    pub(crate) fn write(&self, name: &str, content: &str) -> PathBuf {
        let path = self.dir.join(name);
        fs::write(&path, content).unwrap_or_else(|e| panic!("write {}: {e}", path.display()));
        path
    }

    /// Starts a child whose output goes to `NAME.log`.
    pub(crate) fn spawn(&self, name: &str, program: &Path, args: &[String]) -> Service {
        let log = self.dir.join(format!("{name}.log"));
        let out = File::create(&log).expect("create a log file");
        let child = Command::new(program)
            .args(args)
            .stdin(Stdio::null())
            .stderr(out.try_clone().expect("share the log file"))
            .stdout(out)
            .spawn()
            .unwrap_or_else(|e| panic!("start {}: {e}", program.display()));
        self.write(&format!("{name}.pid"), &child.id().to_string());
        Service { name: name.to_owned(), child, log }
    }
}

/// A running component.
pub(crate) struct Service {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Service {
    /// Panics with the end of its log if the component has ended.
    pub(crate) fn assert_alive(&mut self) {
        if let Ok(Some(status)) = self.child.try_wait() {
            let log = fs::read_to_string(&self.log).unwrap_or_default();
            let lines: Vec<_> = log.lines().collect();
            let tail = lines[lines.len().saturating_sub(20)..].join("\n");
            panic!("{} ended with {status} while starting:\n{tail}", self.name);
        }
    }
}
