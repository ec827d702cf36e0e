//! The load balancers that are attacked: the built-in proxy, HAProxy and nginx.

use crate::stage::{Stage, play_with};
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

/// A program outlives an agent that is killed, as stages end theirs: it is ended with the test, by what it
/// has open in its folder.
struct Left(Program, Mutex<Option<String>>);

impl Drop for Left {
    fn drop(&mut self) {
        let Some(lb) = self.1.lock().ok().and_then(|mut lb| lb.take()) else { return };
        let folder = self.0.folder(&lb);
        let ours = |pid: &u32| {
            let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let command = String::from_utf8_lossy(&command).into_owned();
            command.contains(&folder.display().to_string())
        };
        let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = processes.filter_map(|it| it.file_name().to_str()?.parse::<u32>().ok());
        for pid in pids.filter(ours) {
            let _ = std::process::Command::new("kill").arg(pid.to_string()).status();
        }
        let _ = std::fs::remove_dir_all(folder);
    }
}
