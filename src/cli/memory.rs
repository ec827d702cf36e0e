//! How much memory this process may have: the least of the limits of its cgroups (version 2 or 1, with their
//! ancestors) and of the machine's memory, less the space of kept state that is in memory, too. It reads files and
//! sets nothing.

use super::tmpfs;
use std::fs;
use std::path::{Path, PathBuf};

/// The limit; None if neither cgroups nor the machine tell one.
pub(super) fn limit() -> Option<u64> {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let groups = cgroups(&read("/proc/self/cgroup"), Path::new("/sys/fs/cgroup"));
    groups.into_iter().chain(total(&read("/proc/meminfo"))).min()
}

/// The most that a folder of kept state holds: two copies of the largest state, as one is written beside the other.
const STATE: u64 = 128 << 20;

/// The memory that remains beside the files in a folder. Files in memory count toward the same limit; at least half
/// remains.
pub(super) fn beside(memory: u64, folder: Option<&Path>) -> u64 {
    memory - folder.and_then(tmpfs::size).unwrap_or(0).min(STATE).min(memory / 2)
}

/// The limits of the cgroups that a process is in, given its `/proc/PID/cgroup`.
fn cgroups(text: &str, root: &Path) -> Vec<u64> {
    let mut limits = Vec::new();
    for line in text.lines() {
        let mut parts = line.splitn(3, ':');
        let (_, controllers, path) = (parts.next(), parts.next(), parts.next());
        let (Some(controllers), Some(path)) = (controllers, path) else { continue };
        let (root, files): (PathBuf, &[&str]) = match controllers {
            "" => (root.to_owned(), &["memory.max", "memory.high"]),
            "memory" => (root.join("memory"), &["memory.limit_in_bytes"]),
            _ => continue,
        };
        // In a container the path may be one of the machine, which does not exist here; its own cgroup is then the
        // root.
        let own = root.join(path.trim_start_matches('/'));
        for folder in own.ancestors().take_while(|folder| folder.starts_with(&root)) {
            let values = files.iter().filter_map(|file| fs::read_to_string(folder.join(file)).ok());
            limits.extend(values.filter_map(|value| value.trim().parse::<u64>().ok()));
        }
    }
    // Version 1 expresses "none" as a number larger than any machine's memory.
    limits.retain(|limit| *limit < 1 << 60);
    limits
}

/// The memory of a machine, from its `/proc/meminfo`.
fn total(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().trim_end_matches("kB").trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Parses a size such as `268435456`, `256Mi` or `1Gi`.
pub(super) fn size(text: &str) -> Result<u64, String> {
    let units = [("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40)];
    let unit = units.iter().find_map(|(unit, shift)| Some((text.strip_suffix(unit)?, *shift)));
    let (number, shift) = unit.unwrap_or((text, 0));
    let number = number.parse::<u64>().ok().and_then(|it| it.checked_mul(1 << shift));
    number.ok_or_else(|| "write a number of bytes, or one with Ki, Mi, Gi or Ti".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_room_of_kept_state_in_memory_is_left_out_and_on_a_disk_it_is_not() {
        // Linux has a file system in memory here, larger than any kept state.
        let kept = Path::new("/dev/shm/bowline-test/state");
        assert!(tmpfs::size(kept).is_some_and(|size| size > 0), "{:?}", tmpfs::size(kept));
        let mib = 1 << 20;
        let left = |memory: u64, folder: &Path| beside(memory * mib, Some(folder)) / mib;
        let room = tmpfs::size(kept).unwrap().min(STATE) / mib;
        assert_eq!((left(512, kept), left(64, kept)), (512 - room, 64 - room.min(32)));
        let elsewhere = Path::new("/proc/self");
        assert_eq!((left(512, elsewhere), beside(512, None)), (512, 512));
    }

    fn file(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn the_limits_of_a_cgroup_and_those_above_it_are_found_in_both_versions() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        file(root, "memory.max", "max\n");
        file(root, "kubepods/memory.max", "1073741824\n");
        file(root, "kubepods/pod/memory.max", "268435456\n");
        file(root, "kubepods/pod/memory.high", "max\n");
        file(root, "memory/memory.limit_in_bytes", "9223372036854771712\n");
        file(root, "memory/pod/memory.limit_in_bytes", "536870912\n");
        let two = cgroups("0::/kubepods/pod\n", root);
        assert_eq!(two, [268_435_456, 1_073_741_824]);
        let one = cgroups("9:name=systemd:/\n4:memory:/pod\n0::/\n", root);
        assert_eq!(one, [536_870_912]);
        assert_eq!(cgroups("0::/\n", root), Vec::<u64>::new());
        // A path that does not exist, as in a container with version 1.
        file(root, "memory/memory.limit_in_bytes", "1048576\n");
        assert_eq!(cgroups("4:memory:/docker/abc\n", root), [1_048_576]);
    }

    #[test]
    fn a_machine_and_a_person_say_how_much_there_is() {
        assert_eq!(total("MemFree: 1 kB\nMemTotal:       24683524 kB\n"), Some(25_275_928_576));
        assert_eq!(total(""), None);
        assert_eq!(size("256Mi"), Ok(268_435_456));
        assert_eq!(size("1000"), Ok(1000));
        for bad in ["", "Mi", "1.5Gi", "-1", "99999999Ti", "1M"] {
            assert!(size(bad).is_err(), "{bad}");
        }
    }
}
