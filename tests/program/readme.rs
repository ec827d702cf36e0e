//! The `README.md` of the program's example, run as printed.

use crate::edge::{EXAMPLE, PRINTED, SOCKET};
use crate::stage::PROGRAM;
use bowline_testing::{Cluster, Scratch, net, page};
use std::path::Path;

#[test]
fn the_readme_runs_as_printed() {
    if Cluster::is_out_of_reach() {
        return;
    }
    net::in_namespace(|| async {
        let scratch = Scratch::new();
        let example = page::Example {
            root: Path::new(env!("CARGO_MANIFEST_DIR")),
            folder: &format!("examples/{EXAMPLE}"),
            writes: &format!("/tmp/{EXAMPLE}-example"),
            here: &scratch.path().join("example"),
        };
        // Whatever was started ends before the test does.
        let ran = example.run(Path::new(PROGRAM));
        for line in ["server 1", "server 2"].iter().chain(PRINTED) {
            assert!(ran.has(line), "no {line:?}: {}", ran.all);
        }
        let socket = example.here.join("edge").join(SOCKET);
        let ended = std::os::unix::net::UnixStream::connect(socket);
        assert!(ended.is_err(), "{EXAMPLE} runs on: {}", ran.all);
    });
}
