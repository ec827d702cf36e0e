//! The command line: one module a command. Reads flags, starts what they ask for, says what went wrong.

mod crds;
mod log;
mod paint;
mod up;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Load balancing for Kubernetes clusters that do not live inside one cloud.
#[derive(Debug, Parser)]
#[command(
    name = "bowline",
    version,
    max_term_width = 100,
    arg_required_else_help = true,
    after_help = "The first five minutes: bowline up --demo"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,

    #[command(flatten)]
    log: log::Log,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run everything on this machine, with nothing to install
    Up(Box<up::Up>),
    /// Print the CustomResourceDefinitions of Bowline's kinds
    Crds(crds::Crds),
}

/// Runs the command that was asked for.
pub(crate) fn run() -> ExitCode {
    let cli = Cli::parse();
    if let Err(error) = cli.log.start("warn") {
        eprintln!("bowline: {error}");
        return ExitCode::from(2);
    }
    let done = match cli.command {
        Command::Up(command) => command.run(),
        Command::Crds(command) => command.run(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bowline: {error:#}");
            ExitCode::FAILURE
        }
    }
}
