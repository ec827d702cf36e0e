//! The command line: one module a command.

mod crds;
mod up;

use clap::{Parser, Subcommand};
use std::process::ExitCode;
use tracing_subscriber::EnvFilter;

/// Load balancing for Kubernetes clusters that do not live inside one cloud.
#[derive(Debug, Parser)]
#[command(name = "bowline", version, max_term_width = 100, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,

    /// What to log, as in RUST_LOG (for example: info, debug, bowline_apiserver=debug)
    #[arg(long, global = true, env = "BOWLINE_LOG", default_value = "warn", value_name = "FILTER")]
    log: String,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run everything on this machine, with nothing to install
    Up(up::Up),
    /// Print the CustomResourceDefinitions of Bowline's kinds
    Crds(crds::Crds),
}

/// Runs the command that was asked for.
pub(crate) fn run() -> ExitCode {
    let cli = Cli::parse();
    let filter = match EnvFilter::try_new(&cli.log) {
        Ok(filter) => filter,
        Err(error) => {
            eprintln!("bowline: --log {:?}: {error}", cli.log);
            return ExitCode::from(2);
        }
    };
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
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
