//! `bowline completion` and `bowline man`: what shells and `man` know about the command line, made from the command
//! line itself. They print or write files, and ask no cluster.

use super::look;
use super::say::say;
use anyhow::Context as _;
use clap::{Command, CommandFactory as _};
use clap_complete::shells::{Bash, Fish, Zsh};
use clap_mangen::Man;
use std::path::{Path, PathBuf};

/// Print the completion script of a shell.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  bowline completion bash > /etc/bash_completion.d/bowline
  bowline completion zsh > \"${fpath[1]}/_bowline\"
  bowline completion fish > ~/.config/fish/completions/bowline.fish
  source <(bowline completion bash)     for this shell alone")]
pub(super) struct Completion {
    /// The shell
    #[arg(value_enum, value_name = "SHELL")]
    shell: Shell,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
}

impl Completion {
    pub(super) fn run(self) -> anyhow::Result<()> {
        look::write(script(self.shell, super::Cli::command()))
    }
}

/// The script of a shell.
fn script(shell: Shell, mut command: Command) -> Vec<u8> {
    let mut out = Vec::new();
    let name = command.get_name().to_owned();
    match shell {
        Shell::Bash => clap_complete::generate(Bash, &mut command, name, &mut out),
        Shell::Zsh => clap_complete::generate(Zsh, &mut command, name, &mut out),
        Shell::Fish => clap_complete::generate(Fish, &mut command, name, &mut out),
    }
    out
}

/// Write the manual pages of all commands, for `man bowline` and `man bowline-agent`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  bowline man --dir /usr/local/share/man/man1")]
pub(super) struct Manual {
    /// Write one page per command into this folder
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
}

impl Manual {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let dir = &self.dir;
        std::fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
        let mut command = super::Cli::command().disable_help_subcommand(true);
        command.build();
        pages(command, dir)
    }
}

/// Writes the page of a command, and those of its commands.
fn pages(command: Command, dir: &Path) -> anyhow::Result<()> {
    for one in command.get_subcommands().filter(|it| !it.is_hide_set()).cloned() {
        pages(one, dir)?;
    }
    let page = Man::new(command).manual("Bowline");
    let file = dir.join(page.get_filename());
    let mut text = Vec::new();
    page.render(&mut text)
        .and_then(|()| std::fs::write(&file, text))
        .with_context(|| format!("cannot write {}", file.display()))?;
    say(file.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shell_gets_every_command_and_the_flags_that_help_shows() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let text = String::from_utf8(script(shell, crate::cli::Cli::command())).expect("text");
            for word in ["explain", "status", "doctor", "system-namespace", "load-balancer"] {
                assert!(text.contains(word), "{shell:?}: {word}");
            }
            assert!(!text.contains("object-namespace"), "{shell:?} offers a hidden flag");
        }
    }

    #[test]
    fn every_command_has_a_manual_page_with_its_flags_and_examples() {
        let folder = tempfile::tempdir().expect("a folder");
        Manual { dir: folder.path().join("man1") }.run().expect("pages");
        let read = |name: &str| {
            std::fs::read_to_string(folder.path().join("man1").join(name)).expect(name)
        };
        for one in crate::cli::Cli::command().get_subcommands().filter(|it| !it.is_hide_set()) {
            assert!(read(&format!("bowline-{}.1", one.get_name())).starts_with(".ie"));
        }
        assert!(read("bowline.1").contains("bowline\\-agent(1)"), "{}", read("bowline.1"));
        let agent = read("bowline-agent.1");
        for text in ["system\\-namespace", "bowline agent", "Examples:"] {
            assert!(agent.contains(text), "{text}: {agent}");
        }
    }
}
