//! Pages of the documentation that run as they are printed: what is to be typed, and a shell that types it.

use std::path::Path;
use std::process::{Command, Output, Stdio};

/// How lines begin that install and build programs, which a test has.
const BRINGS: [&str; 4] = ["sudo ", "scripts/setup ", "cargo build", "export PATH=$PWD/target"];

/// All that is to be typed in one section of a page.
pub fn typed(page: &str, section: &str) -> String {
    let section = page.split("\n## ").find(|it| it.starts_with(section)).expect("the section");
    blocks(section).collect()
}

/// All that is to be typed on a page, but what installs and builds.
pub fn typed_without_installing(page: &str) -> String {
    let installs = |line: &str| BRINGS.iter().any(|begin| line.starts_with(begin));
    let lines = blocks(page).flat_map(str::lines).filter(|line| !installs(line));
    lines.map(|line| format!("{line}\n")).collect()
}

fn blocks(text: &str) -> impl Iterator<Item = &str> {
    text.split("```sh\n").skip(1).filter_map(|block| block.split("```").next())
}

/// Types it into a shell that ends at the first failure, with the folder of `program` first in PATH; waits for
/// all that it started.
pub fn run(script: &str, program: &Path, folder: &Path, env: &[(&str, &str)]) -> Output {
    let programs = program.parent().expect("a folder").display().to_string();
    let path = std::env::var("PATH").unwrap_or_default();
    Command::new("timeout")
        .args(["120", "bash", "-e", "-c", &format!("{script}wait\n")])
        .current_dir(folder)
        .env("PATH", format!("{programs}:{path}"))
        .env("HOME", folder)
        .env("NO_PROXY", "*")
        .envs(env.iter().copied())
        .stdin(Stdio::null())
        .output()
        .expect("run bash")
}
