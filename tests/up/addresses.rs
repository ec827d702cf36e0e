//! Addresses from pools and from a name with `bowline up` alone, as docs/addresses.md and
//! docs/global-load-balancing.md print it.

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

#[test]
fn the_page_on_one_address_for_several_clusters_runs_as_printed() {
    net::in_namespace(|| async {
        let scratch = Scratch::new();
        let folder = scratch.path().join("global").display().to_string();
        let page = include_str!("../../docs/global-load-balancing.md");
        let script = page::typed(page, "Try it on one machine").replace("/tmp/global", &folder);
        let output = page::run(&script, Path::new(PROGRAM), scratch.path(), &[]);
        let said = String::from_utf8_lossy(&output.stdout);
        let all = format!("{said}\n{}", String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{all}");
        // What `kubectl get service` printed of it, in this order.
        let addresses: Vec<&str> = said
            .lines()
            .filter(|line| line.starts_with("my-service "))
            .filter_map(|line| line.split_whitespace().nth(3))
            .collect();
        let [first @ .., chosen, followed] = &addresses[..] else { panic!("{all}") };
        let moved = "127.0.200.6";
        let expected = ["127.0.200.5", "127.0.200.5", moved, moved, moved, "<pending>"];
        assert_eq!(first, expected, "{all}");
        assert_eq!(chosen, followed, "{all}");
        assert!(chosen.starts_with("127.0.200."), "{all}");
        for line in ["is on load balancer local\n", "Draining"] {
            assert!(said.contains(line), "{line:?} is not in:\n{all}");
        }
        // Lines are broken at 80 columns.
        let words = said.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains("still assigned: 127.0.200.6"), "{all}");
    });
}
