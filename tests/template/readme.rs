//! `examples/template/README.md`, run as printed.

use crate::stage::play;
use bowline_testing::{Scratch, page};
use std::path::Path;
use std::process::{Command, Stdio};

const PROGRAM: &str = env!("CARGO_BIN_EXE_bowline");

#[test]
fn the_readme_runs_as_printed() {
    play(async || {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(root.join("examples/template/README.md")).unwrap();
        let scratch = Scratch::new();
        // Its own folder, so that two tests can run at once.
        let here = scratch.path().join("template").display().to_string();
        let script = page::typed_without_installing(&text).replace("/tmp/template", &here);
        let programs = Path::new(PROGRAM).parent().unwrap().display().to_string();
        let path = std::env::var("PATH").unwrap_or_default();
        let output = Command::new("bash")
            .args(["-e", "-c", &script])
            .current_dir(root)
            .env("PATH", format!("{programs}:{path}:/usr/sbin"))
            .env("HOME", scratch.path())
            .env("NO_PROXY", "*")
            .stdin(Stdio::null())
            .output()
            .expect("run bash");
        let said = String::from_utf8_lossy(&output.stdout);
        let logs: String = ["up.log", "agent.log"]
            .map(|log| std::fs::read_to_string(format!("{here}/{log}")).unwrap_or_default())
            .concat();
        let all = format!("{said}\n{}\n{logs}", String::from_utf8_lossy(&output.stderr));
        let lines: Vec<&str> = said.lines().collect();
        assert!(lines.contains(&"one") && lines.contains(&"two"), "{all}");
        assert!(said.contains("x.example\\n  use_backend evil"), "{all}");
        assert!(output.status.success(), "{all}");
    });
}
