//! Where the log goes, and in which form. Called once, before anything can log.

use std::io::IsTerminal as _;
use tracing_subscriber::EnvFilter;

/// How much is logged, and how.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Log")]
pub(super) struct Log {
    /// What to log, as in RUST_LOG (for example: info, debug, bowline_runtime=debug)
    #[arg(
        long = "log-level",
        visible_alias = "log",
        global = true,
        env = "BOWLINE_LOG",
        value_name = "FILTER"
    )]
    level: Option<String>,

    /// Lines for people, or one JSON object a line
    #[arg(long = "log-format", global = true, value_enum, default_value_t, value_name = "FORM")]
    format: Format,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, clap::ValueEnum)]
enum Format {
    /// Lines for people.
    #[default]
    Human,
    /// One JSON object a line.
    Json,
}

impl Log {
    /// Logs to standard error from now on, at level `default` if no level was given. The error says what
    /// is wrong with the level.
    pub(super) fn start(&self, default: &str) -> Result<(), String> {
        let level = self.level.as_deref().unwrap_or(default);
        // The client logs every failed connection as an error, in addition to the error that it returns.
        let quiet = if level.contains("kube") { "" } else { ",kube_client::client::builder=off" };
        let filter = EnvFilter::try_new(format!("{level}{quiet}"))
            .map_err(|error| format!("--log-level {level:?}: {error}; try info or debug"))?;
        let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
        match self.format {
            Format::Human => log.with_ansi(coloured(std::io::stderr().is_terminal())).init(),
            Format::Json => log.json().init(),
        }
        Ok(())
    }
}

/// Whether to use colours on a stream that is, or is not, a terminal.
pub(super) fn coloured(terminal: bool) -> bool {
    let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    terminal && !refused
}
