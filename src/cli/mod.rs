//! The command line: one module per command. It reads flags, starts the command, and prints what went
//! wrong.

mod agent;
mod announce;
mod ask;
mod class;
mod completion;
mod config;
mod connect;
mod controller;
mod crds;
mod dns;
mod doctor;
mod explain;
mod haproxy;
mod log;
mod look;
mod members;
#[cfg(feature = "proxy")]
mod memory;
mod nginx;
#[cfg(feature = "apiserver")]
mod paint;
mod plan;
mod plugin;
mod program;
#[cfg(feature = "proxy")]
mod proxies;
#[cfg(not(feature = "proxy"))]
#[path = "no_proxies.rs"]
mod proxies;
mod proxy;
#[cfg(feature = "apiserver")]
mod quoted;
mod role;
mod say;
mod sense;
mod signals;
#[cfg(feature = "speaker")]
mod speaker;
mod status;
mod template;
mod terminal;
mod tmpfs;
mod top;
#[cfg(not(feature = "apiserver"))]
#[path = "no_up.rs"]
mod up;
#[cfg(feature = "apiserver")]
mod up;
mod version;

use crate::visible::visible;
use bowline_runtime::causes::own_text;
use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use say::complain;
use std::ffi::OsString;
use std::process::ExitCode;

/// Load balancing for Kubernetes clusters that do not live inside one cloud.
#[derive(Debug, Parser)]
#[command(name = "bowline", version = version::LONG)]
#[command(max_term_width = 80, arg_required_else_help = true)]
#[cfg_attr(
    all(feature = "apiserver", feature = "proxy"),
    command(after_help = "The first five minutes: bowline up --demo")
)]
struct Cli {
    #[command(subcommand)]
    command: Command,

    #[command(flatten)]
    log: log::Log,
}

#[derive(Debug, Subcommand)]
enum Command {
    Up(Box<up::Up>),
    Controller(Box<controller::Controller>),
    Agent(Box<agent::Agent>),
    #[cfg(feature = "speaker")]
    Speaker(Box<speaker::Speaker>),
    Announce(announce::Announce),
    Plan(plan::PlanCommand),
    Explain(explain::Explain),
    Status(status::StatusCommand),
    Doctor(doctor::Doctor),
    Top(top::Top),
    Crds(crds::Crds),
    Completion(completion::Completion),
    Man(completion::Manual),
    Version(version::VersionCommand),
}

impl Command {
    /// The default log level: a role in a cluster has only its log, the other commands print their
    /// results.
    fn log_level(&self) -> &'static str {
        match self {
            Self::Controller(_) | Self::Agent(_) => "info",
            // It shows what fails, and a line of a log would stand across it.
            Self::Top(_) => "off",
            #[cfg(feature = "speaker")]
            Self::Speaker(_) => "info",
            _ => "warn",
        }
    }
}

/// An error and its causes, each once: many errors repeat their cause in their own words.
fn told(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(own_text) {
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

/// Reads a command line. An error is printed, and gives the exit code.
fn read(args: Vec<OsString>) -> Result<Cli, ExitCode> {
    let mut file = None;
    let cli = if plugin::is_called(args.first()) {
        plugin::parse(args)
    } else {
        let mut command = Cli::command();
        let args = config::complete(&command, args).map_err(|error| {
            complain(error);
            ExitCode::from(2)
        })?;
        file = args.file;
        let given = command.try_get_matches_from_mut(args.all);
        given.and_then(|given| {
            sense::check(&mut command, &given)?;
            Cli::from_arg_matches(&given)
        })
    };
    cli.map_err(|error| {
        let _ = error.print();
        if let Some((file, flags)) = file.filter(|_| error.use_stderr()) {
            complain(config::hint(&file, &flags));
        }
        u8::try_from(error.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from)
    })
}

/// Runs the command of the command line.
pub(crate) fn run() -> ExitCode {
    let cli = match read(std::env::args_os().collect()) {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    if let Err(error) = cli.log.start(cli.command.log_level()) {
        complain(error);
        return ExitCode::from(2);
    }
    let failure = match &cli.command {
        Command::Plan(command) => command.failure(),
        _ => ExitCode::FAILURE,
    };
    let done = match cli.command {
        Command::Up(command) => command.run().map(|()| ExitCode::SUCCESS),
        Command::Controller(command) => command.run().map(|()| ExitCode::SUCCESS),
        Command::Agent(command) => command.run().map(|()| ExitCode::SUCCESS),
        #[cfg(feature = "speaker")]
        Command::Speaker(command) => command.run().map(|()| ExitCode::SUCCESS),
        Command::Announce(command) => command.run().map(|()| ExitCode::SUCCESS),
        Command::Plan(command) => command.run(),
        Command::Explain(command) => command.run().map(|()| ExitCode::SUCCESS),
        Command::Status(command) => command.run().map(|()| ExitCode::SUCCESS),
        Command::Doctor(command) => command.run(),
        Command::Top(command) => command.run().map(|()| ExitCode::SUCCESS),
        Command::Crds(command) => command.run().map(|()| ExitCode::SUCCESS),
        Command::Completion(command) => command.run().map(|()| ExitCode::SUCCESS),
        Command::Man(command) => command.run().map(|()| ExitCode::SUCCESS),
        Command::Version(command) => command.run().map(|()| ExitCode::SUCCESS),
    };
    match done {
        Ok(code) => code,
        Err(error) => {
            complain(visible(&told(&error)));
            failure
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Cli, told};
    use clap::CommandFactory as _;

    #[test]
    fn flags_stand_under_the_headings_where_they_belong() {
        let cli = Cli::command();
        let heading = |command: &str, flag: &str| {
            let command = cli.find_subcommand(command).expect("a command");
            let mut flags = command.get_arguments();
            let found = flags.find(|it| it.get_long() == Some(flag));
            found.unwrap_or_else(|| panic!("--{flag}")).get_help_heading()
        };
        let process = Some("Process");
        let names = Some("Addresses and names");
        for (command, flag, expected) in [
            ("agent", "load-balancer", None),
            ("agent", "driver", None),
            ("agent", "listen", None),
            ("agent", "deny-members", Some("Members")),
            ("agent", "allow-loopback-members", Some("Members")),
            ("agent", "state", process),
            ("agent", "grace", process),
            ("agent", "admin", process),
            ("agent", "config", process),
            ("agent", "access-log", Some("Proxy")),
            ("agent", "once", Some("Templates")),
            ("agent", "system-namespace", Some("Cluster")),
            ("controller", "default-class", None),
            ("controller", "leader-elect", None),
            ("controller", "proxy-image", Some("Proxies that classes make")),
            ("controller", "deny-members", Some("Proxies that classes make")),
            ("controller", "dns-server", names),
            ("controller", "address-grace", names),
            ("controller", "admin", process),
            ("controller", "config", process),
            ("controller", "kubeconfig", Some("Cluster")),
            ("status", "namespace", None),
            ("status", "system-namespace", Some("Cluster")),
            ("top", "namespace", None),
            ("top", "interval", None),
        ] {
            assert_eq!(heading(command, flag), expected, "{command} --{flag}");
        }
        #[cfg(feature = "apiserver")]
        for (flag, expected) in [
            ("demo", None),
            ("default-load-balancer", None),
            ("http-port", Some("The load balancer \"local\"")),
            ("dns-server", names),
            ("address-grace", names),
            ("deny-members", Some("Members")),
            ("access-log", Some("Proxy")),
            ("grace", process),
            ("admin", process),
            ("system-namespace", Some("Cluster")),
        ] {
            assert_eq!(heading("up", flag), expected, "up --{flag}");
        }
    }

    #[test]
    fn a_cause_that_was_told_is_not_told_again() {
        let error = anyhow::anyhow!("connection refused")
            .context("cannot read a: connection refused")
            .context("cannot begin");
        assert_eq!(told(&error), "cannot begin: cannot read a: connection refused");
    }
}
