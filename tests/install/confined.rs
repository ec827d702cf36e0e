//! Programs with no more rights than a container or a unit of ours gives them. The kernel tells what they have.

use crate::tools::{program, text};
use serde_json::Value;
use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};

/// `CAP_NET_BIND_SERVICE`, the only one that is given.
const BIND: &str = "net_bind_service";
const BIND_MASK: u64 = 1 << 10;

/// Whom a program runs as, always with the right to bind ports below 1024 and no other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rights {
    uid: u32,
    /// Whether the capability comes with another user, rather than with root.
    ambient: bool,
}

/// Whether there are other users than root: where one is root in a namespace only, there may be none.
fn has_users() -> bool {
    let map = std::fs::read_to_string("/proc/self/uid_map").expect("a map of users");
    map.split_whitespace().nth(2) != Some("1")
}

impl Rights {
    /// Those of a container of an example.
    pub(crate) fn of_container(container: &Value) -> Self {
        let context = &container["securityContext"];
        let only = serde_json::json!({"drop": ["ALL"], "add": [BIND.to_uppercase()]});
        assert_eq!(context["capabilities"], only);
        assert_eq!(context["allowPrivilegeEscalation"], false);
        assert_eq!(context["runAsUser"], 0, "no other user gets a capability in a container");
        Self { uid: 0, ambient: false }
    }

    /// Those of a unit of an example, with what is changed of it.
    pub(crate) fn of_unit(unit: &str, change: &str) -> Self {
        let both = text(unit) + &text(change);
        for line in ["AmbientCapabilities", "CapabilityBoundingSet"] {
            let line = format!("{line}=CAP_{}", BIND.to_uppercase());
            assert_eq!(both.matches(&line).count(), 1, "{line}");
        }
        assert!(both.contains("NoNewPrivileges=yes") && both.contains("User=haproxy"), "{both}");
        // Nobody in place of a user that a package makes.
        Self { uid: if has_users() { 65_534 } else { 0 }, ambient: true }
    }

    /// A command in this folder that is the program with these rights. The program may be where only root comes.
    pub(crate) fn confine(&self, folder: &Path, name: &str, path: &Path) -> PathBuf {
        let Self { uid, ambient } = self;
        let mut words = vec![program("setpriv").display().to_string(), "--no-new-privs".to_owned()];
        words.push(format!("--bounding-set=-all,+{BIND}"));
        if *uid != 0 {
            words.extend([format!("--reuid={uid}"), format!("--regid={uid}")]);
            words.push("--clear-groups".to_owned());
        }
        if *ambient {
            words.extend(["inh", "ambient"].map(|set| format!("--{set}-caps=-all,+{BIND}")));
        }
        let script = format!(
            "#!/bin/sh\nexec 3< '{}'\nexec {} -- /proc/self/fd/3 \"$@\"\n",
            path.display(),
            words.join(" ")
        );
        let file = folder.join(name);
        std::fs::write(&file, script).expect("write");
        std::fs::set_permissions(&file, Permissions::from_mode(0o755)).expect("executable");
        file
    }

    /// Gives a file or folder to them.
    pub(crate) fn give(&self, path: &Path) {
        chown(path, Some(self.uid), Some(self.uid)).expect("give it away");
    }

    /// Asserts that a process has these rights and no more, and that they are needed.
    pub(crate) fn are_of(&self, pid: u32) {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("a process");
        let of = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.expect(name).split_whitespace().next().expect("a value").to_owned()
        };
        let set = |name: &str| u64::from_str_radix(&of(name), 16).expect("a set");
        let sets = ["CapPrm:", "CapEff:", "CapBnd:"].map(set);
        assert_eq!(
            (sets, of("NoNewPrivs:"), of("Uid:")),
            ([BIND_MASK; 3], "1".into(), self.uid.to_string())
        );
        let free = std::fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start");
        assert_eq!(free.expect("the first free port").trim(), "1024");
    }
}
