//! The load balancers that are attacked: the built-in proxy, HAProxy and nginx.

use crate::stage::{Stage, play_with};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// What serves the load balancer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    Builtin,
    Haproxy,
    Nginx,
}

impl Program {
    fn name(self) -> &'static str {
        match self {
            Self::Builtin => "builtin",
            Self::Haproxy => "haproxy",
            Self::Nginx => "nginx",
        }
    }

    /// Short: sockets have short names.
    fn folder(self, lb: &str) -> PathBuf {
        std::env::temp_dir().join(format!("atk-{}-{lb}", std::process::id()))
    }

    /// The arguments of an agent that drives this.
    pub(crate) fn args(self, lb: &str) -> Vec<String> {
        if self == Self::Builtin {
            return Vec::new();
        }
        let (name, folder) = (self.name(), self.folder(lb).display().to_string());
        let usual = format!("/usr/sbin/{name}");
        let program = if Path::new(&usual).exists() { usual } else { name.to_owned() };
        let flag = |what: &str| format!("--{name}-{what}");
        let mut args = vec!["--driver".to_owned(), name.to_owned(), "--exec".to_owned()];
        args.extend([flag("program"), program, flag("folder"), folder]);
        args.extend(["--min-reload-interval".to_owned(), "1".to_owned()]);
        args
    }

    /// How many processes a load of it begins.
    pub(crate) fn workers_of_a_load(self) -> usize {
        match self {
            Self::Nginx => std::thread::available_parallelism().map_or(1, usize::from),
            Self::Builtin | Self::Haproxy => 1,
        }
    }

    /// All its processes: those that were started with its folder, and their children.
    pub(crate) fn processes(self, lb: &str) -> BTreeSet<u32> {
        let folder = self.folder(lb);
        let parent = |pid: u32| -> Option<u32> {
            let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
            status.lines().find_map(|it| it.strip_prefix("PPid:")?.trim().parse().ok())
        };
        // The agent has the folder among its arguments, too.
        let is_program = |pid: u32| {
            let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            name.trim() == self.name()
        };
        let all: Vec<u32> = pids().filter(|pid| is_program(*pid)).collect();
        let begun: BTreeSet<u32> =
            all.iter().copied().filter(|pid| has_argument(*pid, &folder)).collect();
        let is_child = |pid: &u32| parent(*pid).is_some_and(|parent| begun.contains(&parent));
        all.into_iter().filter(|pid| begun.contains(pid) || is_child(pid)).collect()
    }

    /// Runs a test on a stage that this serves.
    pub(crate) fn play(self, test: impl AsyncFnOnce(&mut Stage)) {
        let left = Left(self, Mutex::new(None));
        let args = |lb: &str| {
            *left.1.lock().expect("no panic") = Some(lb.to_owned());
            self.args(lb)
        };
        play_with(&args, test);
    }
}

fn pids() -> impl Iterator<Item = u32> {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    processes.filter_map(|it| it.file_name().to_str()?.parse().ok())
}

/// Whether a process was started with something in this folder.
fn has_argument(pid: u32, folder: &Path) -> bool {
    let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&command).contains(&folder.display().to_string())
}

/// A program outlives an agent that is killed, as stages end theirs: it is ended with the test, by what it
/// has open in its folder.
struct Left(Program, Mutex<Option<String>>);

impl Drop for Left {
    fn drop(&mut self) {
        let Some(lb) = self.1.lock().ok().and_then(|mut lb| lb.take()) else { return };
        let folder = self.0.folder(&lb);
        for pid in pids().filter(|pid| has_argument(*pid, &folder)) {
            let _ = std::process::Command::new("kill").arg(pid.to_string()).status();
        }
        let _ = std::fs::remove_dir_all(folder);
    }
}
