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
fn typed_without_installing(page: &str) -> String {
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
    let script = format!("{script}wait\n");
    shell(&BASH, &script, program, folder, folder).envs(env.iter().copied()).output().expect("bash")
}

/// A shell that ends at the first failure, or when something hangs.
const BASH: [&str; 5] = ["timeout", "120", "bash", "-e", "-c"];

fn shell(words: &[&str], script: &str, program: &Path, folder: &Path, home: &Path) -> Command {
    let programs = program.parent().expect("a folder").display().to_string();
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).arg(script).current_dir(folder);
    command.env("PATH", format!("{programs}:{path}:/usr/sbin")).env("HOME", home);
    command.env("NO_PROXY", "*").stdin(Stdio::null());
    command
}

/// An example of the repository, to be run as its README prints it.
pub struct Example<'a> {
    /// The root of the repository, or of a copy.
    pub root: &'a Path,
    /// The folder of the example in it.
    pub folder: &'a str,
    /// The folder that the example writes to.
    pub writes: &'a str,
    /// The folder that it writes to instead, so that two tests can run at once. It is in one that the test removes.
    pub here: &'a Path,
}

/// What an example did.
pub struct Ran {
    /// Whether its last command succeeded, and all before it.
    pub succeeded: bool,
    /// What it printed.
    pub said: String,
    /// The same with errors and logs, for the message of a failing test.
    pub all: String,
}

impl Ran {
    /// Whether it printed this line.
    pub fn has(&self, line: &str) -> bool {
        self.said.lines().any(|it| it == line)
    }
}

impl Example<'_> {
    /// Runs it, without the lines that install or build, and without those that remove what the test looks at.
    pub fn run(&self, program: &Path) -> Ran {
        self.run_by(&BASH, program)
    }

    /// The same by other words than those of a shell. The script comes after them.
    pub fn run_by(&self, words: &[&str], program: &Path) -> Ran {
        let page = std::fs::read_to_string(self.root.join(self.folder).join("README.md"));
        let script = typed_without_installing(&page.expect("the README"));
        let lines = script.lines().filter(|line| !line.starts_with("rm -rf "));
        let script: String = lines.map(|line| format!("{line}\n")).collect();
        let script = script.replace(self.writes, &self.here.display().to_string());
        let home = self.here.parent().expect("a folder of the test");
        let mut command = shell(words, &script, program, self.root, home);
        let output = command.output().expect("run the example");
        let [said, errors] = [&output.stdout, &output.stderr].map(|it| String::from_utf8_lossy(it));
        let log = |name: &str| std::fs::read_to_string(self.here.join(name)).unwrap_or_default();
        let all = format!("{said}\n{errors}\n{}{}", log("up.log"), log("agent.log"));
        Ran { succeeded: output.status.success(), said: said.into_owned(), all }
    }
}
