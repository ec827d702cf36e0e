//! The example of two machines outside the cluster: systemd takes the units, their command is one that the program understands
//! and serves with, and the scripts of keepalived see what they look for. The module `vrrp` runs it.

use crate::tools::{run, run_in, text};

pub(crate) const UNIT: &str = "examples/vms/bowline-agent@.service";

/// What makes it a unit for HAProxy.
pub(crate) const HAPROXY: &str = "examples/vms/haproxy.conf";

/// The command of a unit, for the load balancer "edge".
pub(crate) fn command(unit: &str) -> Vec<String> {
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
fn systemd_takes_what_the_example_adds_to_the_unit_of_keepalived() {
    let scratch = tempfile::tempdir().expect("a folder");
    let unit = scratch.path().join("keepalived.service");
    std::fs::copy("/lib/systemd/system/keepalived.service", &unit).expect("keepalived's unit");
    let drop_in = scratch.path().join("keepalived.service.d");
    std::fs::create_dir(&drop_in).expect("make a folder");
    let restart = text("examples/vms/keepalived-restart.conf");
    std::fs::write(drop_in.join("restart.conf"), restart).expect("write");
    run("systemd-analyze", &["verify", "--man=no", &unit.display().to_string()]);
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
