//! The flags of `bowline agent --template`: which files to write for a load balancer of any kind, and what to
//! notify.

use anyhow::Context as _;
use bowline_core::member_rules::MemberRules;
use bowline_drivers::template::{Certificates, Notifier, Publisher, ServerNames, Target, names};
use bowline_runtime::roles;
use bowline_runtime::templates::TemplateOptions;
use clap::ValueEnum;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// What files are made, and whom to tell.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Templates")]
pub(super) struct TemplateFlags {
    /// Fill this template: Jinja where its name ends in .j2, else a Go template; may be repeated, each
    /// with an --output
    #[arg(long = "template", value_name = "FILE", requires = "outputs")]
    templates: Vec<PathBuf>,

    /// Write the filled template here: whole, or not at all
    #[arg(long = "output", value_name = "FILE", requires = "templates")]
    outputs: Vec<PathBuf>,

    /// Check a file with this command before it is put in place, {} being the file; given once it checks
    /// every output, else give one for each
    #[arg(long = "check", value_name = "COMMAND", requires = "templates")]
    checks: Vec<String>,

    /// Write the certificates of the load balancer into this folder of the agent's own, a file each, for templates
    /// that use tls
    #[arg(long, value_name = "FOLDER", requires = "templates", requires = "load_balancer")]
    certificates: Option<PathBuf>,

    /// Notify a program when an output has changed: command:SHELL, pid:SIGNAL:PID, pidfile:SIGNAL:FILE,
    /// http:URL or debug:; may be repeated
    #[arg(long = "notify", value_name = "SPEC", requires = "templates")]
    notifiers: Vec<Notifier>,

    /// How long a notifier or a check may take
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 10,
        value_parser = clap::value_parser!(u64).range(1..=3600),
        requires = "templates"
    )]
    notify_timeout: u64,

    /// The domain of the cluster
    #[arg(long, value_name = "NAME", default_value = "local", requires = "templates")]
    domain: String,

    /// How names of Services are made: Go templates, separated by commas
    #[arg(
        long, value_name = "TEMPLATES", default_value = names::DEFAULT, hide_default_value = true,
        requires = "templates"
    )]
    server_name_templates: String,

    /// The mode of ports for which no annotation gives one
    #[arg(
        long,
        value_name = "MODE",
        default_value = "http",
        requires = "templates",
        conflicts_with = "load_balancer"
    )]
    default_port_mode: Mode,

    /// The address of Services that ask for none
    #[arg(
        long, value_name = "IP", default_value_t = IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        requires = "templates", conflicts_with = "load_balancer"
    )]
    default_lb_ip: IpAddr,

    /// Changes that follow each other within this time are one change
    #[arg(
        long,
        value_name = "MILLISECONDS",
        default_value_t = 200,
        value_parser = clap::value_parser!(u64).range(1..=60_000),
        requires = "templates"
    )]
    settle: u64,

    /// Write and notify once, then exit; with an error if something failed. There is no admin endpoint then,
    /// unless --admin is given
    #[arg(long, requires = "templates", conflicts_with = "addresses")]
    once: bool,

    /// With --once: how long the API may take to deliver all objects
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 60,
        value_parser = clap::value_parser!(u64).range(1..=3600),
        requires = "once"
    )]
    once_timeout: u64,
}

/// How a port is balanced.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Mode {
    /// By the names of its requests
    Http,
    /// As a whole
    Tcp,
}

impl TemplateFlags {
    /// Whether any template is given.
    pub(super) fn are_given(&self) -> bool {
        !self.templates.is_empty()
    }

    /// Whether the templates are filled once.
    pub(super) fn runs_once(&self) -> bool {
        self.once
    }

    /// Reads the templates, and returns how to fill them.
    pub(super) fn read(
        self,
        grace: Duration,
        members: MemberRules,
    ) -> anyhow::Result<(TemplateOptions, Publisher, Option<Certificates>)> {
        let targets = targets(self.templates, self.outputs, self.checks)?;
        let names = ServerNames::new(&self.server_name_templates)?;
        let names = Arc::new(names);
        let limit = Duration::from_secs(self.notify_timeout);
        let publisher = Publisher::new(targets, self.notifiers, names.clone(), limit)
            .context("cannot prepare the templates")?;
        let options = TemplateOptions {
            domain: self.domain,
            default_mode: match self.default_port_mode {
                Mode::Http => "http".to_owned(),
                Mode::Tcp => "tcp".to_owned(),
            },
            default_address: self.default_lb_ip,
            names,
            settle: Duration::from_millis(self.settle),
            once: self.once.then(|| Duration::from_secs(self.once_timeout)),
            grace,
            members,
            identity: roles::identity(),
        };
        let certificates = match self.certificates {
            Some(folder) => {
                let doing = || format!("--certificates {}", folder.display());
                Some(Certificates::open(&folder).with_context(doing)?)
            }
            None => None,
        };
        Ok((options, publisher, certificates))
    }
}

/// Each template with its output and its check.
fn targets(
    templates: Vec<PathBuf>,
    outputs: Vec<PathBuf>,
    checks: Vec<String>,
) -> anyhow::Result<Vec<Target>> {
    let (pairs, given) = (templates.len(), outputs.len());
    anyhow::ensure!(
        pairs == given,
        "{pairs} --template and {given} --output are given: each --template needs one --output"
    );
    anyhow::ensure!(
        checks.len() <= 1 || checks.len() == pairs,
        "{} --check are given for {pairs} outputs: give one for all, or one for each",
        checks.len()
    );
    for check in &checks {
        anyhow::ensure!(
            check.contains("{}"),
            "--check {check:?} has no {{}}, which stands for the file to check"
        );
        anyhow::ensure!(
            !is_quoted(check),
            "--check {check:?} has {{}} within single quotes, where the shell does not replace it; leave the \
             quotes out"
        );
    }
    let mut made = BTreeSet::new();
    for output in &outputs {
        let real = real(output);
        anyhow::ensure!(
            templates.iter().all(|template| self::real(template) != real),
            "--output {}: this file is a template, which would be overwritten; name another file",
            output.display()
        );
        anyhow::ensure!(
            made.insert(real),
            "--output: two templates cannot write the same file; name another file"
        );
    }
    let check = |at: usize| checks.get(at).or(checks.first()).cloned();
    let pairs = templates.into_iter().zip(outputs).enumerate();
    Ok(pairs
        .map(|(at, (template, output))| Target { template, output, check: check(at) })
        .collect())
}

/// Whether the placeholder `{}` is within single quotes.
fn is_quoted(check: &str) -> bool {
    let mut within = None;
    let mut before = ' ';
    check.char_indices().any(|(at, c)| {
        match (within, c) {
            (None, '\'' | '"') if before != '\\' => within = Some(c),
            (Some('\''), '\'') => within = None,
            (Some('"'), '"') if before != '\\' => within = None,
            _ => {}
        }
        before = c;
        within == Some('\'') && check[at..].starts_with("{}")
    })
}

/// The canonical path of a file, whether or not the file exists.
fn real(file: &Path) -> PathBuf {
    if let Ok(real) = file.canonicalize() {
        return real;
    }
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new(".")).canonicalize();
    match (folder, file.file_name()) {
        (Ok(folder), Some(name)) => folder.join(name),
        _ => file.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_outputs_and_checks_go_in_pairs() {
        let paths = |names: &[&str]| names.iter().map(PathBuf::from).collect::<Vec<_>>();
        let target = |template: &str, output: &str, check: Option<&str>| Target {
            template: template.into(),
            output: output.into(),
            check: check.map(str::to_owned),
        };
        let read = |templates: &[&str], outputs: &[&str], checks: &[&str]| {
            let checks = checks.iter().map(|check| (*check).to_owned()).collect();
            targets(paths(templates), paths(outputs), checks).map_err(|error| error.to_string())
        };
        let one = vec![target("a", "x", None), target("b", "y", None)];
        assert_eq!(read(&["a", "b"], &["x", "y"], &[]), Ok(one));
        let shared = vec![target("a", "x", Some("c {}")), target("b", "y", Some("c {}"))];
        assert_eq!(read(&["a", "b"], &["x", "y"], &["c {}"]), Ok(shared));
        for fine in [r#"c "{}""#, r"it\'s {}", r#""it's" {}"#] {
            assert_eq!(read(&["a"], &["x"], &[fine]), Ok(vec![target("a", "x", Some(fine))]));
        }
        let own = vec![target("a", "x", Some("c {}")), target("b", "y", Some("d {}"))];
        assert_eq!(read(&["a", "b"], &["x", "y"], &["c {}", "d {}"]), Ok(own));
        assert!(read(&["a", "b"], &["x"], &[]).is_err());
        assert!(read(&["a", "b"], &["x", "x"], &[]).is_err());
        assert!(read(&["a"], &["x"], &["c {}", "d {}"]).is_err());
    }

    #[test]
    fn files_that_are_one_and_checks_of_nothing_are_refused() {
        let read = |templates: &[&str], outputs: &[&str], checks: &[&str]| {
            let paths = |names: &[&str]| names.iter().map(PathBuf::from).collect::<Vec<_>>();
            let checks = checks.iter().map(|check| (*check).to_owned()).collect();
            let read = targets(paths(templates), paths(outputs), checks);
            read.expect_err("refused").to_string()
        };
        let one = "--output: two templates cannot write the same file; name another file";
        assert_eq!(read(&["a", "b"], &["x", "./x"], &[]), one);
        let template =
            "--output ./a: this file is a template, which would be overwritten; name another file";
        assert_eq!(read(&["a"], &["./a"], &[]), template);
        assert_eq!(read(&["b", "a"], &["x", "./a"], &[]), template);
        let nothing = "--check \"haproxy -c\" has no {}, which stands for the file to check";
        assert_eq!(read(&["a"], &["x"], &["haproxy -c"]), nothing);
        for quoted in ["prog '{}'", r#"a "it's" 'x {}'"#] {
            assert!(read(&["a"], &["x"], &[quoted]).contains("within single quotes"), "{quoted}");
        }
    }
}
