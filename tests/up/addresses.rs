//! Addresses from pools with `bowline up` alone, as docs/addresses.md prints it.

use crate::bowline::PROGRAM;
use bowline_testing::{Scratch, net, page};
use std::path::Path;

#[test]
fn the_page_on_addresses_runs_as_printed() {
    net::in_namespace(|| async {
        let scratch = Scratch::new();
        let script = page::typed(include_str!("../../docs/addresses.md"), "Try it");
        let output = page::run(&script, Path::new(PROGRAM), scratch.path(), &[]);
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
