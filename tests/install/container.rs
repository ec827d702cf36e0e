//! The image's recipe, which nobody builds here: a linter finds nothing, what it copies is enough to build
//! from, and what it runs is there.

use crate::tools::{repository, run, run_in, text};
use serde_json::Value;
use std::path::Path;

/// The instructions, without comments: name and rest.
fn instructions() -> Vec<(String, String)> {
    let recipe = text("Containerfile");
    let lines = recipe.lines().filter(|line| !line.starts_with('#'));
    lines
        .filter_map(|line| line.split_once(' '))
        .map(|(name, rest)| (name.to_owned(), rest.to_owned()))
        .collect()
}

/// What is copied from the repository: paths, and where they go.
fn copies() -> Vec<(Vec<String>, String)> {
    let from_here = |(name, rest): &(String, String)| name == "COPY" && !rest.starts_with("--from");
    let parse = |(_, rest): (String, String)| {
        let mut words: Vec<_> = rest.split(' ').map(str::to_owned).collect();
        let to = words.pop().expect("a destination");
        (words, to)
    };
    instructions().into_iter().filter(from_here).map(parse).collect()
}

fn copy(from: &Path, to: &Path) {
    if from.is_dir() {
        std::fs::create_dir_all(to).expect("make a folder");
        for entry in std::fs::read_dir(from).expect("a folder") {
            let entry = entry.expect("a file");
            copy(&entry.path(), &to.join(entry.file_name()));
        }
    } else {
        std::fs::copy(from, to).unwrap_or_else(|e| panic!("copy {}: {e}", from.display()));
    }
}

/// Source files of a folder.
fn sources(folder: &Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(folder).expect("a folder").map(|it| it.expect("a file").path());
    entries
        .flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] })
        .filter(|path| path.extension().is_some_and(|it| it == "rs"))
        .collect()
}

#[test]
fn a_linter_finds_no_fault_with_the_recipes() {
    run("hadolint", &["Containerfile", "examples/sidecar/Containerfile"]);
}

#[test]
fn what_is_copied_is_a_whole_workspace_with_everything_that_the_code_includes() {
    let scratch = tempfile::tempdir().expect("a folder");
    for (paths, to) in copies() {
        for path in paths {
            let to = scratch.path().join(to.trim_start_matches('/'));
            let to = if to.is_dir() { to.join(&path) } else { to };
            std::fs::create_dir_all(to.parent().expect("a parent")).expect("make a folder");
            copy(&repository(&path), &to);
        }
    }
    let args = ["metadata", "--format-version=1", "--no-deps", "--locked", "--offline"];
    let metadata = run_in(scratch.path(), "cargo", &args).unwrap_or_else(|why| panic!("{why}"));
    let metadata: Value = serde_json::from_str(&metadata).expect("JSON");
    let packages = metadata["packages"].as_array().expect("packages");
    let targets = packages.iter().filter_map(|it| it["targets"].as_array()).flatten();
    assert!(targets.clone().any(|it| it["name"] == "bowline" && it["kind"][0] == "bin"));
    for file in sources(&scratch.path().join("src"))
        .into_iter()
        .chain(sources(&scratch.path().join("crates")))
    {
        let code = std::fs::read_to_string(&file).expect("a text");
        // Tests are not built.
        let code = code.split("#[cfg(test)]").next().unwrap_or_default();
        if file.components().any(|it| it.as_os_str() == "tests") || file.ends_with("tests.rs") {
            continue;
        }
        for included in code.split("include_str!(\"").skip(1) {
            let name = included.split('"').next().expect("a name");
            let there = file.parent().expect("a folder").join(name);
            assert!(there.is_file(), "{} includes {name}, which is not copied", file.display());
        }
    }
}

#[test]
fn what_runs_is_what_was_built_and_nobody_runs_it() {
    let all = instructions();
    let has = |name: &str, rest: &str| all.contains(&(name.to_owned(), rest.to_owned()));
    assert!(has("RUN", "cargo build --release --locked --bin bowline"), "{all:?}");
    assert!(
        has("COPY", "--from=build /src/target/release/bowline /usr/local/bin/bowline"),
        "{all:?}"
    );
    assert!(has("ENTRYPOINT", "[\"/usr/local/bin/bowline\"]"), "{all:?}");
    // As controller.yaml says.
    assert!(has("USER", "65532:65532"), "{all:?}");
    assert_eq!(all.iter().rfind(|(name, _)| name == "FROM").expect("a base").1, "scratch");
}

#[test]
fn it_is_built_with_the_same_rust_as_everywhere() {
    let toolchain = text("rust-toolchain.toml");
    let line = toolchain.lines().find_map(|line| line.strip_prefix("channel = \""));
    let version = line.expect("a channel").trim_end_matches('"');
    let base = instructions().into_iter().find(|(name, _)| name == "FROM").expect("a base").1;
    assert!(base.starts_with(&format!("docker.io/library/rust:{version}-alpine")), "{base}");
}
