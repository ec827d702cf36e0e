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

/// Reads the command line of the plugin.
pub(super) fn parse(args: Vec<OsString>) -> Result<Cli, clap::Error> {
    let given = command().try_get_matches_from(args)?;
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
        ] {
            assert!(said(line).is_ok(), "{line}");
        }
        let refused = said("kubectl-bowline up").expect_err("refused");
        assert!(refused.contains("unrecognized subcommand 'up'"), "{refused}");
        assert!(refused.contains("kubectl bowline"), "{refused}");
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
