//! `--config FILE` of `bowline controller` and `bowline agent`: flags from a YAML file, under their long names. What
//! the command line or the environment says wins over the file. This turns the file into arguments before the command
//! line is read; `cli` calls it. It knows no flag by name: the command tells which there are.

use bowline_core::nearest::nearest;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command};
use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The flag for the file itself.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Process")]
pub(super) struct ConfigFlag {
    /// Read flags from this YAML file, by their long names: `load-balancer: edge`. Lists are for flags that may be
    /// repeated. Flags of the command line win over the file, and so does the environment
    #[arg(long = "config", id = ID, value_name = "FILE")]
    _config: Option<PathBuf>,
}

const ID: &str = "config_file";

/// Flags that a file cannot have.
const NOT_IN_FILES: [&str; 4] = ["config", "help", "version", "namespace"];

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("--config {}: {why}", file.display())]
pub(super) struct ConfigError {
    file: PathBuf,
    why: String,
}

/// Command-line arguments with those of a file after them.
#[derive(Debug, PartialEq)]
pub(super) struct Args {
    pub(super) all: Vec<OsString>,
    /// The file, and the flags that it gives; for an error about one of them.
    pub(super) file: Option<(PathBuf, Vec<String>)>,
}

/// The arguments, completed with those of the file that they name.
pub(super) fn complete(cli: &Command, args: Vec<OsString>) -> Result<Args, ConfigError> {
    // The file may give what the command line lacks, so that is no error yet.
    let lenient = cli.clone().ignore_errors(true);
    let given = lenient.try_get_matches_from(&args).ok();
    let Some((name, given)) = given.as_ref().and_then(ArgMatches::subcommand) else {
        return Ok(Args { all: args, file: None });
    };
    let file = given.try_get_one::<PathBuf>(ID).ok().flatten().cloned();
    let (Some(file), Some(command)) = (file, cli.find_subcommand(name)) else {
        return Ok(Args { all: args, file: None });
    };
    let refused = |why: String| ConfigError { file: file.clone(), why };
    let text = std::fs::read_to_string(&file).map_err(|error| refused(error.to_string()))?;
    let flags: Vec<&Arg> = command
        .get_arguments()
        .chain(cli.get_arguments().filter(|it| it.is_global_set()))
        .collect();
    let more = arguments(&text, &flags, given).map_err(refused)?;
    let named = more.iter().filter_map(|arg| arg.split('=').next().map(str::to_owned)).collect();
    let mut all = args;
    all.extend(more.into_iter().map(OsString::from));
    Ok(Args { all, file: Some((file, named)) })
}

/// The arguments that a file adds to those that are given.
fn arguments(text: &str, flags: &[&Arg], given: &ArgMatches) -> Result<Vec<String>, String> {
    if text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#')) {
        return Ok(Vec::new());
    }
    let read: BTreeMap<String, Value> =
        serde_saphyr::from_str(text).map_err(|error| format!("it is no YAML map: {error}"))?;
    let mut all = Vec::new();
    for (name, value) in read {
        let flag = flags.iter().find(|it| it.get_long() == Some(name.as_str()));
        let known = flag.filter(|_| !NOT_IN_FILES.contains(&name.as_str()));
        let Some(flag) = known else { return Err(unknown(&name, flags)) };
        let written = of(&name, &value, flag)?;
        let source = given.try_contains_id(flag.get_id().as_str()).ok();
        let source = source.and_then(|_| given.value_source(flag.get_id().as_str()));
        if !matches!(source, Some(ValueSource::CommandLine | ValueSource::EnvVariable)) {
            all.extend(written);
        }
    }
    Ok(all)
}

/// The arguments of one flag.
fn of(name: &str, value: &Value, flag: &Arg) -> Result<Vec<String>, String> {
    let takes = flag.get_action().takes_values();
    let least = flag.get_num_args().map_or(1, |range| range.min_values());
    let one = |value: &Value| match value {
        Value::String(text) => Ok(format!("--{name}={text}")),
        Value::Number(number) => Ok(format!("--{name}={number}")),
        Value::Bool(it) => Ok(format!("--{name}={it}")),
        _ => Err(format!("{name:?}: write one value, not {value}")),
    };
    let possible = flag.get_possible_values();
    let is_switch = possible.iter().any(|it| it.get_name() == "false");
    match value {
        Value::Bool(true) if !takes => Ok(vec![format!("--{name}")]),
        Value::Bool(false) if !takes => Ok(Vec::new()),
        _ if !takes => Err(format!("{name:?}: write true or false, not {value}")),
        // Without its value, as on the command line.
        Value::Null | Value::Bool(true) if least == 0 && !is_switch => {
            Ok(vec![format!("--{name}")])
        }
        Value::Bool(false) if least == 0 && !is_switch => Ok(Vec::new()),
        Value::Null => Err(format!("{name:?} has no value")),
        Value::Array(all) if matches!(flag.get_action(), ArgAction::Append) => {
            all.iter().map(one).collect()
        }
        Value::Array(_) => Err(format!("{name:?}: write one value, not a list")),
        value => one(value).map(|it| vec![it]),
    }
}

/// A name that is no flag, with the nearest one that is.
fn unknown(name: &str, flags: &[&Arg]) -> String {
    let names = flags.iter().filter(|it| !it.is_hide_set()).filter_map(|it| it.get_long());
    let names = names.filter(|it| !NOT_IN_FILES.contains(it));
    let written = name.trim_start_matches('-').replace('_', "-");
    match nearest(&written, names) {
        Some(best) => format!("unknown flag {name:?}; did you mean {best:?}?"),
        None => {
            format!("unknown flag {name:?}; the file has the long flags of --help, without dashes")
        }
    }
}

/// A line about the file, for an error about the arguments that came from it.
pub(super) fn hint(file: &Path, named: &[String]) -> String {
    format!("{} gives {}", file.display(), named.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use clap::CommandFactory as _;

    /// The arguments that a file adds to a command line, or why it is refused.
    fn added(line: &str, text: &str) -> Result<Vec<String>, String> {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("config.yaml");
        std::fs::write(&file, text).expect("write");
        let mut args: Vec<OsString> =
            format!("bowline {line}").split(' ').map(Into::into).collect();
        let count = args.len() + 2;
        args.extend(["--config".into(), file.clone().into_os_string()]);
        let read = complete(&Cli::command(), args).map_err(|error| {
            let text = error.to_string();
            text.replace(&format!("--config {}: ", file.display()), "")
        })?;
        let words = read.all.into_iter().skip(count);
        Ok(words.map(|it| it.into_string().expect("text")).collect())
    }

    #[test]
    fn a_file_gives_flags_by_their_long_names() {
        let text = "# edge\nload-balancer: edge\naddress: [192.0.2.1, 192.0.2.2]\ngrace: 5\naccess-log: true\n\
                    allow-loopback-members: false\nlog-format: json\n";
        let expected = [
            "--access-log",
            "--address=192.0.2.1",
            "--address=192.0.2.2",
            "--grace=5",
            "--load-balancer=edge",
            "--log-format=json",
        ];
        assert_eq!(added("agent", text), Ok(expected.map(str::to_owned).to_vec()));
        let text = "default-class: true\nleader-elect: false\nimport-metallb:\n";
        let expected = ["--default-class=true", "--import-metallb", "--leader-elect=false"];
        assert_eq!(added("controller", text), Ok(expected.map(str::to_owned).to_vec()));
        for nothing in ["", "# nothing\n\n"] {
            assert_eq!(added("controller", nothing), Ok(Vec::new()));
        }
    }

    #[test]
    fn the_command_line_wins_over_the_file() {
        let text = "load-balancer: edge\naddress: [192.0.2.1]\ngrace: 5\n";
        let line = "agent --load-balancer=other --address 192.0.2.9";
        assert_eq!(added(line, text), Ok(vec!["--grace=5".to_owned()]));
    }

    #[test]
    fn a_file_that_cannot_be_right_is_refused_with_what_is_wrong() {
        let said = |text: &str| added("agent", text).expect_err("refused");
        let near =
            |name: &str, best: &str| format!("unknown flag {name:?}; did you mean {best:?}?");
        assert_eq!(said("loadBalancer: edge"), near("loadBalancer", "load-balancer"));
        assert_eq!(said("--admin: x"), near("--admin", "admin"));
        assert_eq!(said("load_balancer: edge"), near("load_balancer", "load-balancer"));
        assert_eq!(said("acces-log: true"), near("acces-log", "access-log"));
        assert!(
            said("zzz: 1").starts_with("unknown flag \"zzz\"; the file has"),
            "{}",
            said("zzz: 1")
        );
        assert!(said("config: other").starts_with("unknown flag \"config\""));
        assert!(said("default-class: true").starts_with("unknown flag"), "it is the controller's");
        assert_eq!(said("access-log: 5"), "\"access-log\": write true or false, not 5");
        assert_eq!(said("grace: [5]"), "\"grace\": write one value, not a list");
        assert_eq!(said("grace:"), "\"grace\" has no value");
        assert_eq!(said("address: [{a: 1}]"), "\"address\": write one value, not {\"a\":1}");
        for bad in ["- a", "text", "grace: 1\ngrace: 2", "a: [", "grace: &x 5\n<<: *y"] {
            assert!(said(bad).starts_with("it is no YAML map"), "{bad}: {}", said(bad));
        }
    }

    #[test]
    fn a_file_that_is_not_there_is_named_and_other_commands_have_none() {
        let args = ["bowline", "agent", "--config", "/nowhere"].map(OsString::from).to_vec();
        let said = complete(&Cli::command(), args).expect_err("refused").to_string();
        assert!(said.starts_with("--config /nowhere: "), "{said}");
        let args = ["bowline", "status", "--config", "/nowhere"].map(OsString::from).to_vec();
        let expected = Args { all: args.clone(), file: None };
        assert_eq!(complete(&Cli::command(), args).expect("left alone"), expected);
    }
}
