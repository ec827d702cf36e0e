//! The `README.md` of the program's example, run as printed.

use crate::edge::{EXAMPLE, PRINTED, SOCKET};
use crate::stage::PROGRAM;
use bowline_testing::{Cluster, Scratch, net, page};
use std::path::Path;
use std::process::{Command, Stdio};

/// All that is to be typed, but what takes away what the test looks at in the end.
fn typed(text: &str) -> String {
    let text = page::typed_without_installing(text);
    let lines = text.lines().filter(|line| !line.starts_with("rm -rf "));
    lines.map(|line| format!("{line}\n")).collect()
}

#[test]
fn the_readme_runs_as_printed() {
    if Cluster::is_out_of_reach() {
        return;
    }
    net::in_namespace(|| async {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(root.join("examples").join(EXAMPLE).join("README.md"))
            .expect("read");
        let scratch = Scratch::new();
        let here = scratch.path().join("example").display().to_string();
        // Whatever was started ends before the test does.
        let there = format!("/tmp/{EXAMPLE}-example");
        let script = format!("{}wait\n", typed(&text).replace(&there, &here));
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
        for line in ["server 1", "server 2"].iter().chain(PRINTED) {
            assert!(lines.contains(line), "no {line:?}: {all}");
        }
        let ended = std::os::unix::net::UnixStream::connect(format!("{here}/edge/{SOCKET}"));
        assert!(ended.is_err(), "{EXAMPLE} runs on: {all}");
    });
}
