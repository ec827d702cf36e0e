//! `examples/template/README.md`, run as printed.

use crate::stage::play;
use bowline_testing::{Scratch, page};
use std::path::Path;

const PROGRAM: &str = env!("CARGO_BIN_EXE_bowline");

#[test]
fn the_readme_runs_as_printed() {
    play(async || {
        let scratch = Scratch::new();
        let example = page::Example {
            root: Path::new(env!("CARGO_MANIFEST_DIR")),
            folder: "examples/template",
            writes: "/tmp/template",
            here: &scratch.path().join("template"),
        };
        let ran = example.run(Path::new(PROGRAM));
        assert!(ran.has("one") && ran.has("two"), "{}", ran.all);
        assert!(ran.said.contains("x.example\\n  use_backend evil"), "{}", ran.all);
        assert!(ran.succeeded, "{}", ran.all);
    });
}
