//! docs/security.md names the test that shows each bound: every one of them is there.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// What the tree has that a test can be named by.
#[derive(Default)]
struct Tree {
    /// Files, as paths from the root.
    files: BTreeSet<PathBuf>,
    /// Functions.
    functions: BTreeSet<String>,
    /// Packages, folders, files without their ending, and modules.
    modules: BTreeSet<String>,
}

impl Tree {
    fn read(&mut self, root: &Path, folder: &Path) {
        for entry in std::fs::read_dir(root.join(folder)).expect("a folder").flatten() {
            let name = entry.file_name().into_string().expect("a name");
            let path = folder.join(&name);
            if entry.file_type().expect("a type").is_dir() {
                self.modules.insert(name);
                self.read(root, &path);
            } else if let Some(module) = name.strip_suffix(".rs") {
                self.modules.insert(module.to_owned());
                let text = std::fs::read_to_string(entry.path()).expect("a text");
                for line in text.lines() {
                    let words: Vec<_> =
                        line.split(|c: char| !(c.is_alphanumeric() || c == '_')).collect();
                    for pair in words.windows(2) {
                        match *pair {
                            ["fn", name] => drop(self.functions.insert(name.to_owned())),
                            ["mod", name] => drop(self.modules.insert(name.to_owned())),
                            _ => {}
                        }
                    }
                }
                self.files.insert(path);
            }
        }
    }

    /// Whether this is the name of a test, of several that begin so, of a module or of a file.
    fn has(&self, named: &str) -> bool {
        if named.ends_with(".rs") {
            return self.files.iter().any(|file| file.ends_with(named));
        }
        if named.contains('/') {
            return self.files.iter().any(|file| file.starts_with(named));
        }
        let parts: Vec<_> = named.split([':', ' ']).filter(|part| !part.is_empty()).collect();
        let Some((last, before)) = parts.split_last() else { return false };
        let is_there = match last.strip_suffix('…') {
            Some(begin) => self.functions.iter().any(|name| name.starts_with(begin)),
            None => self.functions.contains(*last) || self.modules.contains(*last),
        };
        is_there && before.iter().all(|part| self.modules.contains(*part))
    }
}

#[test]
fn every_test_that_the_page_on_security_names_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut tree = Tree::default();
    for folder in ["crates", "src", "tests"] {
        tree.read(root, Path::new(folder));
    }
    let page = std::fs::read_to_string(root.join("docs/security.md")).expect("the page");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |"));
    let tests: Vec<&str> = rows.filter_map(|row| row.rsplit(" | ").next()).collect();
    let quoted = tests.iter().flat_map(|it| it.split('`').skip(1).step_by(2));
    let named: Vec<&str> = quoted.filter(|it| !it.starts_with("--")).collect();
    assert!(named.len() > 30, "{named:?}");
    let missing: Vec<_> = named.iter().filter(|it| !tree.has(it)).collect();
    assert!(missing.is_empty(), "not in the tree: {missing:#?}");
}
