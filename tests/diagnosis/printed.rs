//! Follows what is printed: takes the commands out of the output of `bowline explain` and runs them as a person would who
//! copies them into a shell.

use crate::patient::run;
use crate::stage::{PROGRAM, Stage};
use bowline_core::diagnosis::remedy::with_names;
use bowline_testing::Bowline;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use tokio::process::Command;

/// The names that a remedy leaves to the person where `explain` does not know them.
const LEFT_OPEN: [&str; 9] =
    ["KIND", "NAME", "NAMESPACE", "LB", "OTHER", "CLAIM", "SECRET", "ADDRESS", "ANNOTATION"];

/// The command in the output of `bowline explain` about an object that begins with these words, or is these words. It stands
/// whole on one line, between backticks.
pub(crate) async fn command(stage: &Stage, object: &str, beginning: &str) -> String {
    let text = run(stage, &["explain", object, "-n", &stage.namespace]).await;
    let of_line = |line: &str| line.split('`').skip(1).step_by(2).map(str::to_owned).collect();
    let quoted = text.lines().flat_map(|line| -> Vec<String> { of_line(line) });
    let begins = |it: &String| {
        it.strip_prefix(beginning).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
    };
    let mut found: Vec<_> = quoted.filter(begins).collect();
    found.dedup();
    let [only] = &found[..] else {
        panic!("one command that begins with {beginning:?}, and not {found:?}: {text}")
    };
    only.clone()
}

/// Where a person sits: a folder of its own with these files, and `bowline` on the path.
pub(crate) struct Shell {
    folder: PathBuf,
    kubeconfig: PathBuf,
}

impl Shell {
    pub(crate) fn new(stage: &Stage, files: &[(&str, &str)]) -> Self {
        let folder = stage.cluster.scratch();
        std::fs::create_dir(folder.join("bin")).expect("a folder");
        symlink(PROGRAM, folder.join("bin/bowline")).expect("a link");
        for (name, content) in files {
            std::fs::write(folder.join(name), content).expect("write a file");
        }
        Self { folder, kubeconfig: stage.cluster.kubeconfig().to_owned() }
    }

    /// Runs a printed command, exactly, except for the names that are left to the person. Returns what it prints.
    pub(crate) async fn follow(&self, command: &str, chosen: &[(&str, &str)]) -> String {
        let command = with_names(&format!("`{command}`"), chosen);
        let command = command.trim_matches('`');
        let words = command.split(|it: char| !it.is_ascii_alphanumeric());
        let open: Vec<_> = words.filter(|it| LEFT_OPEN.contains(it)).collect();
        assert!(open.is_empty(), "{open:?} of {command:?} is for the person to know");
        let path = std::env::var("PATH").unwrap_or_default();
        let kubectl = std::env::var_os("KUBECTL").map(PathBuf::from);
        let kubectl = kubectl.as_deref().and_then(Path::parent).unwrap_or(Path::new("/usr/bin"));
        let path = format!("{}/bin:{path}:{}", self.folder.display(), kubectl.display());
        let mut shell = Command::new("sh");
        let shell = shell.args(["-c", command]).current_dir(&self.folder);
        let shell = shell.env("PATH", path).env("KUBECONFIG", &self.kubeconfig);
        let shell = shell.env("KUBECACHEDIR", self.folder.join("cache")).env("NO_PROXY", "*");
        let output = shell.output().await.expect("run a shell");
        let (said, error) = (
            String::from_utf8_lossy(&output.stdout).into_owned(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        );
        assert!(output.status.success(), "{command}: {said}{error}");
        said
    }
}

/// Starts a role by a printed command, with an admin endpoint of the test's own: the default one can be taken.
pub(crate) fn start(stage: &Stage, command: &str, kubeconfig: &Path) -> Bowline {
    let words: Vec<_> = command.split(' ').collect();
    let ["bowline", role, args @ ..] = &words[..] else { panic!("no command: {command:?}") };
    Bowline::start(&stage.cluster, Path::new(PROGRAM), kubeconfig, role, args)
}
