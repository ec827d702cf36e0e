//! Runs the commands of a documentation page as they are printed: extracts them, and runs them in a shell.

use std::path::Path;
use std::process::{Command, Output, Stdio};

/// The beginnings of lines that install or build programs. A test already has these programs.
const BRINGS: [&str; 4] = ["sudo ", "scripts/setup ", "cargo build", "export PATH=$PWD/target"];

/// All commands of one section of a page.
pub fn typed(page: &str, section: &str) -> String {
    let section = page.split("\n## ").find(|it| it.starts_with(section)).expect("the section");
    blocks(section).collect()
}

/// All commands of a page, without those that install or build.
pub fn typed_without_installing(page: &str) -> String {
    let installs = |line: &str| BRINGS.iter().any(|begin| line.starts_with(begin));
    let lines = blocks(page).flat_map(str::lines).filter(|line| !installs(line));
    lines.map(|line| format!("{line}\n")).collect()
}

fn blocks(text: &str) -> impl Iterator<Item = &str> {
    text.split("```sh\n").skip(1).filter_map(|block| block.split("```").next())
}

/// Runs commands in a shell that ends at the first failure, with the folder of `program` first in PATH. Waits
/// for all processes that the shell started.
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
