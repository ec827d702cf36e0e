//! Refuses flags of `bowline agent` that have no effect with the other flags: a user who gives a flag expects
//! an effect. `cli` calls it before it runs the command.

use super::agent::Carrier;
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgMatches, Command, Error};

/// The flag that selects what the agent does.
fn asked(given: &ArgMatches) -> &'static str {
    if given.value_source("templates") == Some(ValueSource::CommandLine) {
        return "--template";
    }
    match given.get_one("driver") {
        Some(Carrier::Haproxy) => "--driver haproxy",
        Some(Carrier::Nginx) => "--driver nginx",
        Some(Carrier::Builtin) | None => "--driver builtin",
    }
}

/// Groups of flags, and the selections in which they have an effect.
const GROUPS: [(&str, &[&str]); 4] = [
    ("ProxyFlags", &["--driver builtin", "--driver haproxy", "--driver nginx"]),
    ("ProgramFlags", &["--driver haproxy", "--driver nginx"]),
    ("HaproxyFlags", &["--driver haproxy"]),
    ("NginxFlags", &["--driver nginx"]),
];

/// Refuses the first flag that has no effect.
pub(super) fn check(cli: &mut Command, given: &ArgMatches) -> Result<(), Error> {
    let Some(given) = given.subcommand_matches("agent") else { return Ok(()) };
    let Some(agent) = cli.find_subcommand_mut("agent") else { return Ok(()) };
    let asked = asked(given);
    let foreign = GROUPS.into_iter().filter(|(_, with)| !with.contains(&asked));
    for (group, with) in foreign {
        let group = agent.get_groups().find(|it| it.get_id() == group);
        let by_hand =
            |id: &&clap::Id| given.value_source(id.as_str()) == Some(ValueSource::CommandLine);
        let id = group.and_then(|group| group.get_args().find(by_hand).cloned());
        let Some(id) = id else { continue };
        let flag = agent.get_arguments().find(|it| *it.get_id() == id).and_then(|it| it.get_long());
        let flag = flag.unwrap_or(id.as_str());
        let message =
            format!("--{flag} cannot be used with {asked}: it is for {}", with.join(", "));
        return Err(agent.error(ErrorKind::ArgumentConflict, message));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::Cli;
    use super::*;
    use clap::CommandFactory as _;

    fn refused(args: &[&str]) -> Option<String> {
        let mut cli = Cli::command();
        let words = ["bowline", "agent"].iter().chain(args);
        let given = cli.clone().try_get_matches_from(words).expect("it can be read");
        let error = check(&mut cli, &given).err()?;
        let text = error.to_string();
        text.lines().next().and_then(|line| line.strip_prefix("error: ")).map(str::to_owned)
    }

    #[test]
    fn a_flag_that_means_nothing_is_refused_and_says_what_it_is_for() {
        let template = ["--template", "a", "--output", "b"];
        let edge = ["--load-balancer", "edge"];
        let with = |asked: &[&str], flags: &[&str]| refused(&[&edge, asked, flags].concat());
        let programs = "--driver haproxy, --driver nginx";
        for (asked, flags, message) in [
            (&[][..], &["--exec"][..], format!("--exec cannot be used with --driver builtin: it is for {programs}")),
            (
                &[],
                &["--min-reload-interval", "2"],
                format!("--min-reload-interval cannot be used with --driver builtin: it is for {programs}"),
            ),
            (
                &["--driver", "nginx", "--exec"],
                &["--haproxy-folder", "/x"],
                "--haproxy-folder cannot be used with --driver nginx: it is for --driver haproxy".to_owned(),
            ),
            (
                &["--driver", "haproxy"],
                &["--nginx-shutdown-timeout", "5"],
                "--nginx-shutdown-timeout cannot be used with --driver haproxy: it is for --driver nginx".to_owned(),
            ),
            (
                &template,
                &["--access-log"],
                format!("--access-log cannot be used with --template: it is for --driver builtin, {programs}"),
            ),
            (&template, &["--exec"], format!("--exec cannot be used with --template: it is for {programs}")),
        ] {
            assert_eq!(with(asked, flags), Some(message));
        }
        for fine in [
            &["--access-log"][..],
            &["--driver", "haproxy", "--exec", "--haproxy-program", "x", "--access-log"],
            &["--driver", "nginx", "--exec", "--nginx-folder", "x", "--min-reload-interval", "1"],
            &template,
        ] {
            assert_eq!(with(fine, &[]), None, "{fine:?}");
        }
    }
}
