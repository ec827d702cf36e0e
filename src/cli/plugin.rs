//! `kubectl bowline …`: under the name `kubectl-bowline` this program is a plugin of kubectl. It offers the commands
//! that look at a cluster, with kubectl's names for its flags, and says `kubectl bowline` in its help. `cli` asks it
//! how the program was called.

use super::{Cli, Command, announce, doctor, explain, log, plan, status, top, version};
use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use std::ffi::{OsStr, OsString};
use std::path::Path;

/// The file name by which kubectl finds the plugin `bowline`.
const NAME: &str = "kubectl-bowline";

/// Look at what Bowline does in a cluster.
#[derive(Debug, Parser)]
#[command(name = NAME, bin_name = "kubectl bowline", version = version::LONG)]
#[command(max_term_width = 80, arg_required_else_help = true)]
struct Plugin {
    #[command(subcommand)]
    command: Looking,

    #[command(flatten)]
    log: log::Log,
}

#[derive(Debug, Subcommand)]
enum Looking {
    Status(status::StatusCommand),
    Explain(explain::Explain),
    Plan(plan::PlanCommand),
    Doctor(doctor::Doctor),
    Top(top::Top),
    Announce(announce::Announce),
    Version(version::VersionCommand),
}

/// Whether the program was called as the plugin.
pub(super) fn is_called(program: Option<&OsString>) -> bool {
    let name = program.and_then(|it| Path::new(it).file_stem());
    name == Some(OsStr::new(NAME))
}

/// The command of the plugin. Its examples are written as they are typed.
fn command() -> clap::Command {
    let mut command = Plugin::command();
    let names: Vec<_> = command.get_subcommands().map(|it| it.get_name().to_owned()).collect();
    for name in names {
        command = command.mut_subcommand(name, |one| {
            let help = one.get_after_help().map(ToString::to_string).unwrap_or_default();
            one.after_help(help.replace("  bowline ", "  kubectl bowline "))
        });
    }
    command
}

/// The flags of kubectl that take a value, and that users of kubectl write before the command as well.
const OF_KUBECTL: [&str; 4] = ["-n", "--namespace", "--context", "--kubeconfig"];

/// The command line with the command before the flags of kubectl.
fn command_first(args: Vec<OsString>) -> Vec<OsString> {
    let mut rest = args.into_iter().peekable();
    let program = rest.next();
    let (mut flags, mut is_value) = (Vec::new(), false);
    while let Some(arg) = rest.next_if(|arg| {
        let text = arg.to_string_lossy();
        let joined = |flag: &&str| match flag.starts_with("--") {
            true => text.strip_prefix(*flag).is_some_and(|it| it.starts_with('=')),
            false => text.len() > flag.len() && text.starts_with(*flag),
        };
        is_value || OF_KUBECTL.contains(&&*text) || OF_KUBECTL.iter().any(joined)
    }) {
        is_value = !is_value && OF_KUBECTL.contains(&&*arg.to_string_lossy());
        flags.push(arg);
    }
    let command = rest.next();
    program.into_iter().chain(command).chain(flags).chain(rest).collect()
}

/// Reads the command line of the plugin.
pub(super) fn parse(args: Vec<OsString>) -> Result<Cli, clap::Error> {
    let given = command().try_get_matches_from(command_first(args))?;
    let Plugin { command, log } = Plugin::from_arg_matches(&given)?;
    let command = match command {
        Looking::Status(command) => Command::Status(command),
        Looking::Explain(command) => Command::Explain(command),
        Looking::Plan(command) => Command::Plan(command),
        Looking::Doctor(command) => Command::Doctor(command),
        Looking::Top(command) => Command::Top(command),
        Looking::Announce(command) => Command::Announce(command),
        Looking::Version(command) => Command::Version(command),
    };
    Ok(Cli { command, log })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(line: &str) -> Result<Cli, String> {
        let args = line.split(' ').map(OsString::from).collect();
        parse(args).map_err(|error| error.to_string())
    }

    #[test]
    fn only_the_name_of_the_plugin_makes_it_one() {
        let called = |name: &str| is_called(Some(&OsString::from(name)));
        assert!(called("/usr/local/bin/kubectl-bowline") && called("kubectl-bowline"));
        assert!(!called("/usr/local/bin/bowline") && !called("kubectl") && !is_called(None));
    }

    #[test]
    fn the_plugin_takes_the_flags_of_kubectl_and_no_role() {
        for line in [
            "kubectl-bowline status --context a --kubeconfig f",
            "kubectl-bowline explain svc/web -n shop",
            "kubectl-bowline plan --namespace shop",
            "kubectl-bowline top --once -n shop",
            "kubectl-bowline -n shop --context=a explain svc/web",
            "kubectl-bowline --kubeconfig f -nshop plan -o json",
        ] {
            assert!(said(line).is_ok(), "{line}");
        }
        let refused = said("kubectl-bowline up").expect_err("refused");
        assert!(refused.contains("unrecognized subcommand 'up'"), "{refused}");
        assert!(refused.contains("kubectl bowline"), "{refused}");
    }

    #[test]
    fn flags_of_kubectl_before_the_command_count_as_those_after_it() {
        let sorted = |line: &str| {
            let args = command_first(line.split(' ').map(OsString::from).collect());
            args.iter().map(|it| it.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(sorted("k -n status explain svc/a"), "k explain -n status svc/a");
        assert_eq!(sorted("k --context a -nb plan -o json"), "k plan --context a -nb -o json");
        for same in ["k", "k --help", "k status -n a", "k --log-level debug status"] {
            assert_eq!(sorted(same), same);
        }
        let refused = said("kubectl-bowline -n").expect_err("refused");
        assert!(refused.contains("-n"), "{refused}");
    }

    #[test]
    fn the_help_of_the_plugin_says_what_to_type() {
        for (name, example) in [
            ("status", "  kubectl bowline status --namespace shop"),
            ("explain", "  kubectl bowline explain lb/local"),
            ("plan", "  kubectl bowline plan\n"),
            ("top", "  kubectl bowline top\n"),
        ] {
            let help = said(&format!("kubectl-bowline {name} --help")).expect_err("help");
            assert!(help.contains(&format!("Usage: kubectl bowline {name}")), "{help}");
            assert!(help.contains(example), "{help}");
            assert!(!help.contains("\n  bowline "), "{help}");
        }
    }
}
