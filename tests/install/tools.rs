//! Files of the repository, and programs that it does not bring along. One that is missing fails the test,
//! with the command that installs it.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A file or folder of the repository.
pub(crate) fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// What is in a file of the repository.
pub(crate) fn text(path: &str) -> String {
    let file = repository(path);
    std::fs::read_to_string(&file).unwrap_or_else(|e| panic!("read {}: {e}", file.display()))
}

/// A program: on `PATH`, in `/usr/sbin`, or brought by `scripts/setup`.
pub(crate) fn program(name: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = [repository(".bowline/tools/bin"), "/usr/sbin".into()];
    let mut folders = folders.into_iter().chain(std::env::split_paths(&path));
    folders
        .find_map(|folder| Some(folder.join(name)).filter(|file| file.is_file()))
        .unwrap_or_else(|| panic!("{name} is missing; install it with\n  scripts/setup test"))
}

/// What a program says; it must succeed.
pub(crate) fn run(name: &str, args: &[&str]) -> String {
    run_in(&repository(""), name, args).unwrap_or_else(|why| panic!("{why}"))
}

/// The same in a folder; why not, if it fails.
pub(crate) fn run_in(folder: &Path, name: &str, args: &[&str]) -> Result<String, String> {
    let mut command = Command::new(program(name));
    let output = command.args(args).current_dir(folder).output();
    let output = output.unwrap_or_else(|e| panic!("run {name}: {e}"));
    let [out, err] =
        [output.stdout, output.stderr].map(|it| String::from_utf8_lossy(&it).into_owned());
    if output.status.success() {
        Ok(out)
    } else {
        Err(format!("{name} {} failed\n{out}{err}", args.join(" ")))
    }
}
