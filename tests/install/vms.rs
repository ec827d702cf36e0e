//! The example of two machines outside the cluster: systemd and keepalived take the files, and the command of
//! the unit is one that the program understands and serves with.

use crate::tools::{run, run_in, text};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

pub(crate) const UNIT: &str = "examples/vms/bowline-agent@.service";

/// What makes it a unit for HAProxy.
pub(crate) const HAPROXY: &str = "examples/vms/haproxy.conf";

/// The command of a unit, for the load balancer "edge".
fn command(unit: &str) -> Vec<String> {
    let unit = text(unit);
    let mut lines = unit.lines().filter_map(|line| line.strip_prefix("ExecStart="));
    let line = lines.rfind(|line| !line.is_empty()).expect("a command");
    line.replace("%i", "edge").split(' ').map(str::to_owned).collect()
}

/// Arguments of a unit that say what to do; where it is, and for whom, differs in a test.
pub(crate) fn arguments(unit: &str) -> Vec<String> {
    let command = command(unit);
    let mut args = command.into_iter().skip(2).filter(|arg| !arg.starts_with('$'));
    let mut kept = Vec::new();
    while let Some(arg) = args.next() {
        match &*arg {
            "--admin" => _ = args.next(),
            // Its value is gone already.
            "--kubeconfig" | "--state" => {}
            _ => kept.push(arg),
        }
    }
    kept
}

#[test]
fn systemd_takes_the_unit_and_finds_it_confined() {
    let scratch = tempfile::tempdir().expect("a folder");
    let unit = scratch.path().join("bowline-agent@edge.service");
    // It must name a program that is there.
    let here = |file| text(file).replace("/usr/local/bin/bowline", env!("CARGO_BIN_EXE_bowline"));
    std::fs::write(&unit, here(UNIT)).expect("write");
    let path = unit.display().to_string();
    run("systemd-analyze", &["verify", "--man=no", &path]);
    run("systemd-analyze", &["security", "--offline=yes", "--threshold=25", "--no-pager", &path]);
    let drop_in = scratch.path().join("bowline-agent@edge.service.d");
    std::fs::create_dir(&drop_in).expect("make a folder");
    std::fs::write(drop_in.join("haproxy.conf"), here(HAPROXY)).expect("write");
    run("systemd-analyze", &["verify", "--man=no", &path]);
}

#[test]
fn the_unit_runs_the_agent_and_probes_ask_it_where_it_listens() {
    for unit in [UNIT, HAPROXY] {
        let command = command(unit);
        assert_eq!(command[..2], ["/usr/local/bin/bowline", "agent"]);
        assert_eq!(arguments(unit)[..2], ["--load-balancer", "edge"]);
        let admin = command.iter().position(|arg| arg == "--admin").expect("a flag") + 1;
        let asked = format!("http://{}/readyz", command[admin]);
        assert!(text("examples/vms/keepalived.conf").contains(&asked), "{asked}");
    }
}

#[test]
fn keepalived_takes_its_file_on_both_machines() {
    let scratch = tempfile::tempdir().expect("a folder");
    for priority in ["priority 100", "priority 90"] {
        // keepalived 2.2.7 ends itself in a check after it has looked at a script as another user.
        let file = text("examples/vms/keepalived.conf")
            .replace("priority 100", priority)
            .replace("script_user nobody nogroup", "script_user root root");
        let path = scratch.path().join("keepalived.conf");
        std::fs::write(&path, file).expect("write");
        let check = format!(
            "ip link add eth0 type veth peer name other && keepalived -t -l -f {} 2>&1",
            path.display()
        );
        let env = Path::new("/usr/sbin");
        let said = run_in(
            env,
            "unshare",
            &["--net", "bash", "-ec", &format!("PATH=$PATH:{}; {check}", env.display())],
        );
        // Who is root in a namespace of users only owns nothing, so no script is safe there.
        let owned = std::fs::metadata("/usr").expect("a folder").uid() == 0;
        match said {
            Err(why) if !owned => {
                for script in ["bowline", "proxy"] {
                    let only = format!("Disabling track script {script} due to insecure\n");
                    assert!(why.contains(&only), "{why}");
                }
            }
            said => assert_eq!(said.as_deref().map(str::trim), Ok("")),
        }
    }
}

#[test]
fn keepalived_notices_that_nobody_listens_on_the_port() {
    let conf = text("examples/vms/keepalived.conf");
    let script = conf.lines().find_map(|line| line.trim().strip_prefix("script \"/usr/bin/grep "));
    let script = script.expect("a script").trim_end_matches('"');
    let scratch = tempfile::tempdir().expect("a folder");
    let table = scratch.path().join("tcp");
    let script = script.replace("/proc/net/tcp", &table.display().to_string());
    let words: Vec<&str> = script.split(' ').collect();
    let line = |local: &str, state: &str| {
        let zero = "00000000:00000000 00:00000000 00000000     0        0 1046 1";
        format!("   0: {local} 00000000:0000 {state} {zero}\n")
    };
    for (table_has, healthy) in [
        (line("0A0200C0:0050", "0A"), true),
        (line("0A0200C0:0050", "01"), false),
        (line("0A0200C0:1F90", "0A"), false),
    ] {
        std::fs::write(&table, &table_has).expect("write");
        assert_eq!(run_in(scratch.path(), "grep", &words).is_ok(), healthy, "{table_has}");
    }
}
