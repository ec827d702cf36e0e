//! Addresses from pools with `bowline up` alone, as docs/addresses.md prints it.

use crate::bowline::PROGRAM;
use bowline_testing::{Scratch, net};
use std::path::Path;
use std::process::{Command, Stdio};

/// All that is to be typed in one section of a page.
fn typed(page: &str, section: &str) -> String {
    let section = page.split("\n## ").find(|it| it.starts_with(section)).expect("the section");
    let blocks = section.split("```sh\n").skip(1).filter_map(|block| block.split("```").next());
    blocks.collect()
}

#[test]
fn the_page_on_addresses_runs_as_printed() {
    net::in_namespace(|| async {
        let scratch = Scratch::new();
        // Whatever was started ends before the test does.
        let script = format!("{}wait\n", typed(include_str!("../../docs/addresses.md"), "Try it"));
        let programs = Path::new(PROGRAM).parent().expect("a folder").display().to_string();
        let path = std::env::var("PATH").unwrap_or_default();
        let output = Command::new("timeout")
            .args(["120", "bash", "-e", "-c", &script])
            .current_dir(scratch.path())
            .env("PATH", format!("{programs}:{path}"))
            .env("HOME", scratch.path())
            .env("NO_PROXY", "*")
            .stdin(Stdio::null())
            .output()
            .expect("run bash");
        let log = std::fs::read_to_string(scratch.path().join("up.log")).unwrap_or_default();
        let said = String::from_utf8_lossy(&output.stdout);
        let all = format!("{said}\n{}\n{log}", String::from_utf8_lossy(&output.stderr));
        let expected = [
            "Service default/a waits for an address\n",
            "    - NoPool: there is no AddressPool\n",
            "    - PoolsExhausted: pool \"public\": no free IPv4 address\n",
            "192.0.2.1  public  Active  -      Service default/a\n",
            "addresspool.bowline.dev/public",
            "AddressReleased",
        ];
        for line in expected {
            assert!(said.contains(line), "{line:?} is not in:\n{all}");
        }
        let objects: Vec<&str> =
            said.lines().filter(|line| line.starts_with("address.bowline.dev/192.0.2.1")).collect();
        let [object] = objects[..] else { panic!("{all}") };
        let cells: Vec<&str> = object.split_whitespace().skip(1).take(4).collect();
        assert_eq!(cells, ["public", "Service", "default/a", "Active"], "{all}");
        assert!(!said.contains("NoAddress"), "{all}");
    });
}
