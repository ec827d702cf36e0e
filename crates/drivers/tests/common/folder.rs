//! The folder of one test, and the programs that run with files in it.

use super::{Duration, Instant};
use std::path::Path;
use std::process::Command;

/// A folder. Dropping it kills the programs that run with its files, so that a failed test leaves none running.
/// Dropping a driver does not: its program goes on serving.
pub(crate) struct Folder(tempfile::TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Folder {
    #[allow(clippy::disallowed_methods, reason = "asks until no process is left")]
    fn drop(&mut self) {
        // A driver that has not noticed yet may restart its program once more.
        let until = Instant::now() + Duration::from_secs(5);
        loop {
            let running = running(self.path());
            if running.is_empty() || Instant::now() >= until {
                return;
            }
            let pids = running.iter().map(ToString::to_string);
            // One of them may have exited by itself.
            let _ = Command::new("kill").arg("-KILL").args(pids).output();
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// The processes with a file of this folder in their command line, and their children.
pub(crate) fn running(folder: &Path) -> Vec<u32> {
    let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let all: Vec<u32> = all.filter_map(|it| it.file_name().to_str()?.parse().ok()).collect();
    let within = format!("{}/", folder.display());
    let names = |pid: &&u32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        **pid != std::process::id() && String::from_utf8_lossy(&line).contains(&within)
    };
    let named: Vec<u32> = all.iter().filter(names).copied().collect();
    let is_child = |pid: &&u32| parent(**pid).is_some_and(|parent| named.contains(&parent));
    let children = all.iter().filter(|pid| !named.contains(pid)).filter(is_child);
    named.iter().chain(children).copied().collect()
}

/// The parent of a process.
pub(crate) fn parent(pid: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|it| it.strip_prefix("PPid:")?.trim().parse().ok())
}
