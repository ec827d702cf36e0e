//! `examples/haproxy/README.md`, run as printed.

use crate::stage::PROGRAM;
use bowline_testing::{Cluster, Scratch, net};
use std::path::Path;
use std::process::{Command, Stdio};

/// All that is to be typed, but what installs.
fn typed(text: &str) -> String {
    let blocks = text.split("```sh\n").skip(1).filter_map(|block| block.split("```").next());
    let lines = blocks.flat_map(str::lines).filter(|line| !line.starts_with("sudo "));
    lines.map(|line| format!("{line}\n")).collect()
}

#[test]
fn the_readme_runs_as_printed() {
    if Cluster::is_out_of_reach() {
        return;
    }
    net::in_namespace(|| async {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(root.join("examples/haproxy/README.md")).expect("read");
        let scratch = Scratch::new();
        let here = scratch.path().join("example").display().to_string();
        // Whatever was started ends before the test does.
        let script = format!("{}wait\n", typed(&text).replace("/tmp/haproxy-example", &here));
        let programs = Path::new(PROGRAM).parent().expect("a folder").display().to_string();
        let path = std::env::var("PATH").unwrap_or_default();
        let output = Command::new("timeout")
            .args(["120", "bash", "-e", "-c", &script])
            .current_dir(root)
            .env("PATH", format!("{programs}:{path}"))
            .env("HOME", scratch.path())
            .env("NO_PROXY", "*")
            .stdin(Stdio::null())
            .output()
            .expect("run bash");
        let said = String::from_utf8_lossy(&output.stdout);
        let logs = ["up.log", "agent.log"]
            .map(|log| std::fs::read_to_string(format!("{here}/{log}")).unwrap_or_default());
        let errors = String::from_utf8_lossy(&output.stderr);
        let all = format!("{said}\n{errors}\n{}", logs.concat());
        let lines: Vec<&str> = said.lines().collect();
        assert!(lines.contains(&"server 1") && lines.contains(&"server 2"), "{all}");
        assert!(lines.contains(&"bowline_haproxy_reloads_total 0"), "{all}");
        assert!(lines.contains(&"backend ingress:default:web:web:"), "{all}");
        let ended = std::os::unix::net::UnixStream::connect(format!("{here}/edge/master.sock"));
        assert!(ended.is_err(), "HAProxy runs on: {all}");
    });
}
