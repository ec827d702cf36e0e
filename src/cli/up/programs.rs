//! HAProxy and nginx as `bowline up` runs them for load balancers that ask for one: as children of this process, each
//! with files in a folder of its own. If a program is not installed, its load balancer reports that until it is.

use bowline_api::source::BareMetalType;
use bowline_core::update::{Report, Update};
use bowline_drivers::program::{Driven, MAX_OLD_GENERATIONS};
use bowline_drivers::{Driver, Error, haproxy, nginx};
use bowline_runtime::admin::Readiness;
use bowline_runtime::agent;
use bowline_runtime::metrics::Metrics;
use bowline_runtime::roles::{AgentOptions, Context, RoleError};
use kube::Client;
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How often to look for a program that is not installed.
const LOOK_AGAIN: Duration = Duration::from_secs(15);

/// Starts the programs of this process.
#[derive(Clone)]
pub(super) struct Programs {
    folder: PathBuf,
    haproxy: haproxy::Counters,
    nginx: nginx::Counters,
    access_log: bool,
}

impl Programs {
    /// With files in this folder; the programs' counters are added to `metrics`.
    pub(super) fn new(folder: PathBuf, access_log: bool, metrics: &Metrics) -> Self {
        let (haproxy, nginx) = (haproxy::Counters::default(), nginx::Counters::default());
        metrics.register(|registry| {
            haproxy.register(registry);
            nginx.register(registry);
        });
        Self { folder, haproxy, nginx, access_log }
    }

    /// The folder for the files of a load balancer.
    pub(super) fn folder(&self, load_balancer: &str) -> PathBuf {
        self.folder.join(load_balancer)
    }

    /// Runs the agent of a load balancer with its program, until it is asked to stop.
    pub(super) async fn run(
        self,
        type_: BareMetalType,
        client: Client,
        options: AgentOptions,
        context: Context,
    ) -> Result<(), RoleError> {
        match self.drive(type_, &options.load_balancer).await {
            Ok(driver) => agent::run(client, options, driver, context).await,
            Err(why) => {
                // Readiness does not wait for a program that a person has to install.
                let waits = Context { readiness: Readiness::default(), ..context.clone() };
                let told = agent::run(client, options, Missing(why.clone()), waits);
                match tokio::time::timeout(LOOK_AGAIN, told).await {
                    Ok(ended) => ended,
                    Err(_) => Err(RoleError::Template(why)),
                }
            }
        }
    }

    async fn drive(&self, type_: BareMetalType, load_balancer: &str) -> Result<Driven, String> {
        let name = match type_ {
            BareMetalType::Haproxy => "haproxy",
            BareMetalType::Nginx => "nginx",
        };
        let program = installed(name)?;
        let folder = self.folder(load_balancer);
        for folder in [&self.folder, &folder] {
            private(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        }
        let folder = std::path::absolute(&folder).map_err(|error| error.to_string())?;
        let driven = match type_ {
            BareMetalType::Haproxy => {
                let options = haproxy::Options {
                    program,
                    exec: true,
                    admin_socket: folder.join("admin.sock"),
                    master_socket: folder.join("master.sock"),
                    folder,
                    min_reload_interval: Duration::from_secs(1),
                    max_old_generations: MAX_OLD_GENERATIONS,
                    shutdown_timeout: haproxy::SHUTDOWN_TIMEOUT,
                    compare_every: Duration::from_secs(30),
                    access_log: self.access_log,
                };
                haproxy::drive(options, self.haproxy.clone()).await
            }
            BareMetalType::Nginx => {
                let options = nginx::Options {
                    program,
                    exec: true,
                    folder,
                    min_reload_interval: Duration::from_secs(1),
                    max_old_generations: MAX_OLD_GENERATIONS,
                    shutdown_timeout: Duration::from_secs(3600),
                    access_log: self.access_log,
                };
                nginx::drive(options, self.nginx.clone()).await
            }
        };
        driven.map_err(|error| error.to_string())
    }
}

/// Creates a folder that only this user can use. An existing folder is accepted only if it is private to this user:
/// in a directory that all users can write to, another user may have created it first.
fn private(folder: &Path) -> std::io::Result<()> {
    match std::fs::DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            let (found, us) = (folder.symlink_metadata()?, std::fs::metadata("/proc/self")?);
            let ours = found.is_dir() && found.uid() == us.uid() && found.mode() & 0o077 == 0;
            if ours { Ok(()) } else { Err(ErrorKind::PermissionDenied.into()) }
        }
        made => made,
    }
}

/// Finds a program: in PATH, or where distributions put programs for root.
fn installed(name: &str) -> Result<PathBuf, String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let all = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/usr/local/sbin".into()]);
    all.map(|folder| folder.join(name)).find(|file| Path::is_file(file)).ok_or_else(|| {
        format!("{name} is not installed on this machine: install it, or use a class with builtin")
    })
}

/// Takes the place of a program that is not installed, and reports that.
struct Missing(String);

impl Driver for Missing {
    async fn apply(&mut self, _: &Update) -> Result<Report, Error> {
        let (doing, cause) = ("cannot serve".to_owned(), self.0.clone());
        Err(Error { doing, cause, retry: true })
    }

    async fn drain(&mut self, _: Duration) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[tokio::test]
    async fn a_program_that_is_not_there_is_told_by_its_name() {
        let why = installed("bowline-no-such-program").expect_err("nobody has it");
        assert!(why.starts_with("bowline-no-such-program is not installed"), "{why}");
        let error =
            Missing(why.clone()).apply(&Update::default()).await.expect_err("it serves not");
        assert_eq!(error.to_string(), format!("cannot serve: {why}"));
    }

    #[test]
    fn a_folder_that_others_may_enter_is_not_used() {
        let folder = std::env::temp_dir().join(format!("bowline-test-{}", std::process::id()));
        private(&folder).expect("it is made");
        private(&folder).expect("it is ours");
        let open = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&folder, open).expect("it is opened");
        let refused = private(&folder);
        std::fs::remove_dir(&folder).expect("it is removed");
        assert_eq!(refused.map_err(|error| error.kind()), Err(ErrorKind::PermissionDenied));
    }
}
