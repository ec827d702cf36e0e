//! Which program this is: version, commit, API versions and features. `bowline version` prints it; roles tell it by a
//! metric and in their Leases. build.rs finds the commit.

use super::look::{Output, print};
use crate::view::View;
use bowline_api::names;
use bowline_runtime::metrics::Metrics;
use serde::Serialize;

/// The version.
pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The commit that this program is built from; empty where it is unknown.
pub(super) const COMMIT: &str = env!("BOWLINE_BUILD_COMMIT");

/// The version, with the commit where it is known, as Leases have it: `0.1.0+3f2a1b4c5d6e`.
pub(super) const BUILD: &str = env!("BOWLINE_BUILD");

/// Both in words, for `--version`.
pub(super) const LONG: &str = env!("BOWLINE_BUILD_LONG");

/// Tells the version by a metric.
pub(super) fn count(metrics: &Metrics) {
    metrics.build_info(VERSION, COMMIT);
}

/// Print the version of this program, its commit, and the API versions and features that it has.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  bowline version
  bowline version -o json | jq -r .commit")]
pub(super) struct VersionCommand {
    /// Print text, or JSON for programs
    #[arg(short = 'o', long, value_enum, default_value_t, value_name = "FORM")]
    output: Output,
}

/// What is printed.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Version {
    version: &'static str,
    /// Left out where it is unknown.
    #[serde(skip_serializing_if = "str::is_empty")]
    commit: &'static str,
    /// The versions of Bowline's kinds that it reads and writes.
    api_versions: Vec<String>,
    /// The features that it was built with.
    features: Vec<&'static str>,
}

impl Version {
    fn of_this_program() -> Self {
        let features = [
            cfg!(feature = "apiserver").then_some("apiserver"),
            cfg!(feature = "proxy").then_some("proxy"),
            cfg!(feature = "speaker").then_some("speaker"),
        ];
        Self {
            version: VERSION,
            commit: COMMIT,
            api_versions: vec![format!("{}/{}", names::GROUP, names::VERSION)],
            features: features.into_iter().flatten().collect(),
        }
    }
}

impl View for Version {
    fn kind(&self) -> &'static str {
        "Version"
    }

    fn text(&self) -> String {
        let or = |text: String, none: &str| if text.is_empty() { none.to_owned() } else { text };
        let rows = [
            ("Version", self.version.to_owned()),
            ("Commit", or(self.commit.to_owned(), "unknown")),
            ("API versions", self.api_versions.join(", ")),
            ("Features", or(self.features.join(", "), "none")),
        ];
        rows.iter().map(|(label, text)| format!("{label:<14}{text}\n")).collect()
    }
}

impl VersionCommand {
    pub(super) fn run(self) -> anyhow::Result<()> {
        print(self.output, &Version::of_this_program())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_says_its_version_its_commit_and_what_it_can_do() {
        let version = Version {
            version: "0.1.0",
            commit: "3f2a",
            api_versions: vec!["bowline.dev/v1alpha1".to_owned()],
            features: vec!["apiserver", "proxy"],
        };
        assert_eq!(
            version.text(),
            "Version       0.1.0\nCommit        3f2a\nAPI versions  bowline.dev/v1alpha1\n\
             Features      apiserver, proxy\n"
        );
        let unknown = Version { commit: "", features: Vec::new(), ..version };
        assert!(unknown.text().contains("Commit        unknown\n"), "{}", unknown.text());
        assert!(unknown.text().ends_with("Features      none\n"), "{}", unknown.text());
        assert!(!unknown.json().expect("it has a form").contains("commit"));
    }

    #[test]
    fn the_version_with_its_commit_begins_with_the_version() {
        assert!(BUILD == VERSION || BUILD == format!("{VERSION}+{COMMIT}"), "{BUILD}");
        assert!(LONG.starts_with(VERSION) && LONG.contains("commit"), "{LONG}");
    }
}
