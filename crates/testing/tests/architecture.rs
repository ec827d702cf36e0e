//! docs/architecture.md names files, functions and types. Each of them exists.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    reason = "tests fail by panicking"
)]

use std::fs;
use std::path::{Path, PathBuf};

const HEADER: &str = "| step | file | function |";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn page() -> String {
    fs::read_to_string(root().join("docs/architecture.md")).expect("docs/architecture.md")
}

/// The texts in backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// The folder with the modules of a crate, as the page abbreviates it.
fn sources(name: &str) -> PathBuf {
    match name {
        "controller" => root().join("crates/runtime/src/controller"),
        name => root().join("crates").join(name).join("src"),
    }
}

/// The code of a module: its file and the files below it. None: there is no such module.
fn code(module: &Path) -> Option<String> {
    let mut code = fs::read_to_string(module.with_extension("rs")).ok();
    for entry in fs::read_dir(module).into_iter().flatten() {
        let path = entry.expect("an entry").path();
        if path.is_dir() || path.extension().is_some_and(|it| it == "rs") {
            let below = self::code(&path.with_extension("")).unwrap_or_default();
            code.get_or_insert_default().push_str(&below);
        }
    }
    code
}

const DEFINITIONS: [&str; 8] =
    ["fn ", "impl", "struct ", "enum ", "trait ", "type ", "const ", "mod "];

/// Whether a line of the code with one of these words has the name.
fn has(code: &str, words: &[&str], name: &str) -> bool {
    let whole =
        |line: &str| line.split(|it: char| !it.is_alphanumeric() && it != '_').any(|it| it == name);
    let word = |line: &str| words.iter().any(|it| line.contains(it));
    code.lines().any(|line| !line.trim_start().starts_with("//") && word(line) && whole(line))
}

/// What is wrong with one row of a walk.
fn wrong_in_row(row: &str) -> Vec<String> {
    let cells: Vec<&str> = row.trim_matches('|').split('|').collect();
    let [_, files, functions] = cells[..] else { return vec![format!("no three cells: {row}")] };
    let (mut all, mut wrong) = (String::new(), Vec::new());
    for file in quoted(files) {
        let (name, path) = file.split_once('/').unwrap_or((file, "lib"));
        match code(&sources(name).join(path).with_extension("")) {
            Some(code) => all.push_str(&code),
            None => wrong.push(format!("no file {file}")),
        }
    }
    let names = quoted(functions).flat_map(|it| it.split("::"));
    let missing = names.filter(|it| !has(&all, &DEFINITIONS, it));
    wrong.extend(missing.map(|it| format!("no {it} in {files}")));
    wrong
}

/// What is wrong with a path of the glossary. None: it is not a path of a crate.
fn wrong_path(path: &str) -> Option<String> {
    let mut parts = path.split("::");
    let mut module = sources(parts.next()?);
    if !path.contains("::") || !module.is_dir() {
        return None;
    }
    for part in parts {
        let below = module.join(part);
        if code(&below).is_none() {
            let here = code(&module).or_else(|| code(&module.join("lib")));
            let found =
                here.is_some_and(|it| has(&it, &DEFINITIONS, part) || has(&it, &["use "], part));
            return (!found).then(|| format!("no {part} of {path}"));
        }
        module = below;
    }
    None
}

#[test]
fn every_step_of_the_walks_names_files_that_exist_and_functions_that_they_have() {
    let page = page();
    let walks: Vec<&str> = page.split(HEADER).skip(1).collect();
    assert_eq!(walks.len(), 4, "walks");
    let rows = walks
        .iter()
        .flat_map(|it| it.lines().skip(2).take_while(|it| it.starts_with('|')).collect::<Vec<_>>());
    let wrong: Vec<String> = rows.flat_map(wrong_in_row).collect();
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn every_path_of_the_glossary_exists() {
    let page = page();
    let (_, rest) = page.split_once("\n## Glossary\n").expect("a glossary");
    let glossary = rest.split("\n## ").next().expect("a part");
    let paths: Vec<&str> = quoted(glossary).filter(|it| it.contains("::")).collect();
    assert!(paths.len() > 50, "{paths:?}");
    let wrong: Vec<String> = paths.into_iter().filter_map(wrong_path).collect();
    assert_eq!(wrong, Vec::<String>::new());
}
