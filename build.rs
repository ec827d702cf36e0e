//! Tells the compiler which commit the program is built from: `BOWLINE_COMMIT` where it is set (an image is built
//! without git), else what git says, in an optimized build of a checkout. It never fails: elsewhere the commit is
//! unknown. A debug build does not ask git, so that a commit does not compile everything again.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-env-changed=BOWLINE_COMMIT");
    println!("cargo:rerun-if-changed=build.rs");
    let given = std::env::var("BOWLINE_COMMIT").ok().filter(|it| !it.is_empty());
    let release = std::env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let commit = given.or_else(|| release.then(of_checkout).flatten()).unwrap_or_default();
    // Whatever comes from outside becomes a part of labels, annotations and a version.
    let allowed = |it: &char| it.is_ascii_alphanumeric() || *it == '-';
    let commit: String = commit.chars().filter(allowed).take(48).collect();
    let version = std::env::var("CARGO_PKG_VERSION").unwrap_or_default();
    let (build, long) = match commit.as_str() {
        "" => (version.clone(), format!("{version} (commit unknown)")),
        commit => (format!("{version}+{commit}"), format!("{version} (commit {commit})")),
    };
    println!("cargo:rustc-env=BOWLINE_BUILD_COMMIT={commit}");
    println!("cargo:rustc-env=BOWLINE_BUILD={build}");
    println!("cargo:rustc-env=BOWLINE_BUILD_LONG={long}");
}

/// The commit of the checkout in this folder, with `-dirty` where files differ from it.
fn of_checkout() -> Option<String> {
    let folder = std::env::var("CARGO_MANIFEST_DIR").ok()?;
    let top = git(&folder, &["rev-parse", "--show-toplevel"])?;
    // A source tree that was unpacked inside another checkout is not of that one's commit.
    if Path::new(&top).canonicalize().ok()? != Path::new(&folder).canonicalize().ok()? {
        return None;
    }
    let head = git(&folder, &["rev-parse", "--git-path", "logs/HEAD"])?;
    for path in [head.as_str(), "src", "crates", "Cargo.lock"] {
        if Path::new(&folder).join(path).exists() {
            println!("cargo:rerun-if-changed={path}");
        }
    }
    git(&folder, &["describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"])
}

/// What git prints. None: it is not there, or refuses.
fn git(folder: &str, args: &[&str]) -> Option<String> {
    let output = Command::new("git").arg("-C").arg(folder).args(args).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned()).filter(|text| !text.is_empty())
}
