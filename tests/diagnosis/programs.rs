//! HAProxy and nginx in place of the built-in proxy: what they serve and do not serve is told in the same words, and
//! so is a program that is killed or cannot start.

use crate::patient::{Wrong, all_tell, explain, is_well, load_balancer_is, problems, says};
use crate::stage::{Stage, TARGET, leads_to, play_with, tcp};
use bowline_core::outcome::Reason;
use bowline_testing::{Backend, eventually};
use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::Instant;

const DEGRADED: &str = "bowline.dev/Degraded";
const PROGRAMMED: &str = "bowline.dev/Programmed";

/// A program that an agent starts and drives.
#[derive(Clone, Copy)]
enum Program {
    Haproxy,
    Nginx,
}

impl Program {
    fn name(self) -> &'static str {
        match self {
            Self::Haproxy => "haproxy",
            Self::Nginx => "nginx",
        }
    }

    /// Where it has its files. Short: sockets have short names.
    fn folder(self, lb: &str) -> PathBuf {
        let (name, pid) = (self.name(), std::process::id());
        std::env::temp_dir().join(format!("bd-{}-{pid}-{lb}", &name[..2]))
    }

    /// The program as its agent finds it: a link, which a test can remove.
    fn link(self, lb: &str) -> PathBuf {
        self.folder(lb).with_extension("program")
    }

    fn install(self, lb: &str) {
        let usual = Path::new("/usr/sbin").join(self.name());
        let hint = format!("sudo apt-get install -y {} libnginx-mod-stream", self.name());
        assert!(usual.exists(), "{} is missing; install it with\n  {hint}", usual.display());
        symlink(usual, self.link(lb)).expect("a link");
    }

    /// What the agent of a load balancer is started with.
    fn args(self, lb: &str) -> Vec<String> {
        let (name, link, folder) = (self.name(), self.link(lb), self.folder(lb));
        let flag = |what: &str| format!("--{name}-{what}");
        let path = |path: PathBuf| path.display().to_string();
        let all = ["--driver".to_owned(), name.to_owned(), "--exec".to_owned()];
        let own = [flag("program"), path(link), flag("folder"), path(folder)];
        let often = ["--min-reload-interval", "1"].map(str::to_owned);
        [&all[..], &own, &often].concat()
    }

    /// Ends all of its processes without a word.
    fn kill(self, lb: &str) {
        kill_all_of(&self.folder(lb));
    }
}

/// The pids of the processes of HAProxy or nginx with files in this folder, the masters first.
fn processes(folder: &Path) -> Vec<u32> {
    let folder = folder.display().to_string();
    let read = |pid: u32, file: &str| {
        let bytes = std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let all = std::fs::read_dir("/proc").expect("/proc").flatten();
    let all: Vec<u32> = all.filter_map(|it| it.file_name().to_str()?.parse().ok()).collect();
    let named = |pid: &u32| {
        let line = read(*pid, "cmdline");
        // The agent names the folder, too.
        line.contains(&format!("{folder}/")) && !line.contains("--driver")
    };
    let mut found: Vec<_> = all.iter().copied().filter(named).collect();
    let parent = |pid: u32| {
        let status = read(pid, "status");
        status.lines().find_map(|line| line.strip_prefix("PPid:")?.trim().parse::<u32>().ok())
    };
    let masters = found.clone();
    found.extend(all.into_iter().filter(|pid| {
        !masters.contains(pid) && parent(*pid).is_some_and(|it| masters.contains(&it))
    }));
    found
}

/// Ends all of these processes without a word.
pub(crate) fn kill_all_of(folder: &Path) {
    for pid in processes(folder) {
        // A worker may end with its master.
        let _ = Command::new("kill").args(["-KILL", &pid.to_string()]).output();
    }
}

/// A program outlives an agent that is killed: it is ended with the test.
struct Left(Program, Mutex<Option<String>>);

impl Drop for Left {
    fn drop(&mut self) {
        let Some(lb) = self.1.lock().ok().and_then(|mut lb| lb.take()) else { return };
        self.0.kill(&lb);
        let _ = std::fs::remove_dir_all(self.0.folder(&lb));
        let _ = std::fs::remove_file(self.0.link(&lb));
    }
}

/// Runs a test on a stage whose agent drives the program.
fn play(program: Program, test: impl AsyncFnOnce(&mut Stage)) {
    let left = Left(program, Mutex::default());
    let args = |lb: &str| {
        *left.1.lock().expect("no panic") = Some(lb.to_owned());
        program.install(lb);
        program.args(lb)
    };
    play_with(&args, test);
}

fn a_service_is_told_that_none_of_its_endpoints_answers(program: Program) {
    play(program, async |stage| {
        let a = tcp("a").await;
        let at = a.at;
        stage.service("web", 5000, &[&a]).await;
        leads_to(&stage.dial(5000), "a").await;
        is_well(stage, "service/web").await;
        a.kill().await;
        let broken = Instant::now();
        let dial = stage.dial(5000);
        for _ in 0..10 {
            assert!(dial.line().await.is_err(), "nobody answers");
        }
        let down = Wrong {
            kind: "Service",
            name: "web",
            reason: Reason::EndpointsDown,
            helps: "see that the Pods listen at the target port",
        };
        let told = all_tell(stage, down, broken).await;
        assert!(told.contains(&at.to_string()) && told.contains(&stage.namespace), "{told}");
        says(stage, "Service", "web", DEGRADED, Some(("True", "EndpointsDown"))).await;
        says(stage, "Service", "web", PROGRAMMED, Some(("True", "Programmed"))).await;
        load_balancer_is(stage, "Running", true).await;
        // What helps: the Pods listen again.
        let _a = Backend::tcp("a", at.ip(), TARGET).await;
        leads_to(&stage.dial(5000), "a").await;
        is_well(stage, "service/web").await;
        says(stage, "Service", "web", DEGRADED, None).await;
        load_balancer_is(stage, "Running", false).await;
    });
}

#[test]
fn a_service_on_haproxy_is_told_that_none_of_its_endpoints_answers() {
    a_service_is_told_that_none_of_its_endpoints_answers(Program::Haproxy);
}

#[test]
fn a_service_on_nginx_is_told_that_none_of_its_endpoints_answers() {
    a_service_is_told_that_none_of_its_endpoints_answers(Program::Nginx);
}

fn a_service_is_told_that_its_port_is_taken(program: Program) {
    play(program, async |stage| {
        let (a, b) = (tcp("a").await, tcp("b").await);
        stage.service("other", 6000, &[&b]).await;
        leads_to(&stage.dial(6000), "b").await;
        let taken = TcpListener::bind((stage.vip, 5000)).expect("take the port");
        let broken = Instant::now();
        stage.service("web", 5000, &[&a]).await;
        let shut = Wrong {
            kind: "Service",
            name: "web",
            reason: Reason::BindFailed,
            helps: "stop the process that has the port",
        };
        let told = all_tell(stage, shut, broken).await;
        assert!(told.contains(":5000"), "{told}");
        says(stage, "Service", "web", PROGRAMMED, Some(("False", "BindFailed"))).await;
        load_balancer_is(stage, "Running", true).await;
        is_well(stage, "service/other").await;
        let explained = explain(stage, "service/web").await;
        let all = explained["listeners"].as_array().expect("listeners");
        let closed: Vec<_> = all.iter().filter(|it| it["closed"] == true).collect();
        let closed: Vec<_> = closed.iter().map(|it| it["address"].as_str()).collect();
        assert_eq!(closed, [Some(stage.vip.to_string().as_str())], "{explained}");
        assert_eq!(explained["applied"]["state"], "NotOpen", "{explained}");
        // What helps: stop the process that has the port.
        drop(taken);
        leads_to(&stage.dial(5000), "a").await;
        is_well(stage, "service/web").await;
        load_balancer_is(stage, "Running", false).await;
        assert_eq!(explain(stage, "service/web").await["applied"]["state"], "Yes");
    });
}

#[test]
fn a_service_on_haproxy_is_told_that_its_port_is_taken() {
    a_service_is_told_that_its_port_is_taken(Program::Haproxy);
}

#[test]
fn a_service_on_nginx_is_told_that_its_port_is_taken() {
    a_service_is_told_that_its_port_is_taken(Program::Nginx);
}

/// A killed program comes back by itself. One that is gone does not, and that is told until it is installed again.
fn a_program_that_is_killed_comes_back_unless_it_is_gone(program: Program) {
    play(program, async |stage| {
        let a = tcp("a").await;
        stage.service("web", 5000, &[&a]).await;
        leads_to(&stage.dial(5000), "a").await;
        is_well(stage, "service/web").await;
        program.kill(&stage.lb);
        leads_to(&stage.dial(5000), "a").await;
        is_well(stage, "service/web").await;
        load_balancer_is(stage, "Running", false).await;

        std::fs::remove_file(program.link(&stage.lb)).expect("a link");
        eventually("nothing listens", || async {
            // One that began to start before its program was gone ends, too.
            program.kill(&stage.lb);
            match stage.dial(5000).tcp().await {
                Ok(_) => Err("a connection".to_owned()),
                Err(_) => Ok(()),
            }
        })
        .await;
        let remedy = eventually("what the agent says is told", || async {
            let found = problems(stage, "service/web").await;
            let told = found
                .iter()
                .find(|it| it.reason == "AgentFailed" && it.message.contains("No such file"));
            told.and_then(|it| it.remedy.clone()).ok_or_else(|| format!("{found:?}"))
        })
        .await;
        assert!(remedy.contains("tries again"), "{remedy}");
        says(stage, "LoadBalancer", &stage.lb, "Programmed", Some(("False", "AgentFailed"))).await;
        // What helps: correct it on the machine of the agent.
        program.install(&stage.lb);
        leads_to(&stage.dial(5000), "a").await;
        is_well(stage, "service/web").await;
        load_balancer_is(stage, "Running", false).await;
    });
}

#[test]
fn an_haproxy_that_is_killed_comes_back_unless_it_is_gone() {
    a_program_that_is_killed_comes_back_unless_it_is_gone(Program::Haproxy);
}

#[test]
fn an_nginx_that_is_killed_comes_back_unless_it_is_gone() {
    a_program_that_is_killed_comes_back_unless_it_is_gone(Program::Nginx);
}
