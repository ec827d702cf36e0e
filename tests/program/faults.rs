//! What goes wrong around the program: traffic flows on what is there, and everything converges without help.

use crate::edge::{
    IS_CHECK, LEARNS, METRICS, PROGRAM_FLAG, SOCKET, args, folder, kill, master_in, steady, workers,
};
use crate::play::{master, play, signal, unharmed};
use crate::stage::{
    PROGRAM, Stage, TARGET, agent_kubeconfig, annotate, answers, http, serves, start_agent_with,
};
use bowline_testing::objects::{self, Endpoint};
use bowline_testing::{Authority, Backend, Bowline, Call, Dial, Flavour, Link, eventually, net};
use serde_json::json;
use std::collections::BTreeSet;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

async fn served(stage: &Stage) -> Backend {
    let a = http("a").await;
    stage.behind("web", &[&a]).await;
    stage.ingress("web", &[("web.example", "/", "Prefix", "web")]).await;
    serves(&stage.dial(80), "web.example", "/", "a").await;
    a
}

/// An Ingress whose pool no program learns of while it runs.
async fn loaded(stage: &Stage, name: &str, service: &str) {
    let host = format!("{name}.example");
    let mut ingress = objects::ingress(name, &stage.lb, &[(&host, "/", "Prefix", service)]);
    annotate(&mut ingress, "bowline.dev/persistence", "cookie");
    stage.apply(ingress).await;
}

/// What docs/metrics.md says of it.
fn documented() -> BTreeSet<String> {
    let page = include_str!("../../docs/metrics.md");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `"));
    let names = rows.filter_map(|rest| Some(rest.split_once('`')?.0.to_owned()));
    names.filter(|name| name.starts_with(METRICS)).collect()
}

/// What the agent shows of it.
async fn shown(stage: &Stage) -> BTreeSet<String> {
    let dial = Dial::to(stage.agent.admin.ip(), stage.agent.admin.port());
    let text = dial.get("localhost", "/metrics").await.expect("metrics").text();
    let lines = text.lines().filter(|line| line.starts_with(METRICS));
    lines.filter_map(|line| Some(line.split_once([' ', '{'])?.0.to_owned())).collect()
}

/// Starts the agent again, with these arguments.
fn start(stage: &mut Stage, kubeconfig: &Path, args: &[String]) {
    let args: Vec<_> = args.iter().map(String::as_str).collect();
    stage.agent = start_agent_with(&stage.cluster, kubeconfig, &stage.lb, &args);
}

/// A program made of these lines of shell.
fn script(stage: &Stage, lines: &str) -> PathBuf {
    let file = stage.cluster.scratch().join("program");
    std::fs::write(&file, format!("#!/bin/sh\n{lines}\n")).expect("written");
    let executable = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&file, executable).expect("executable");
    file
}

#[test]
fn agent_and_program_that_are_killed_while_the_api_is_away_serve_what_was_kept() {
    play(async |stage| {
        let _a = served(stage).await;
        let kubeconfig = agent_kubeconfig(&stage.cluster, &stage.lb).await;
        let link = Link::new(&stage.cluster, &kubeconfig).await;
        let state = stage.cluster.scratch().join(format!("state-{}", stage.lb));
        let state = ["--state".to_owned(), state.display().to_string()];
        let with_state = [args(&stage.lb), state.to_vec()].concat();
        stage.agent.process.kill();
        start(stage, &link.kubeconfig, &with_state);
        stage.agent.ready().await;
        serves(&stage.dial(80), "web.example", "/", "a").await;
        eventually("the state", || async {
            let kept = std::fs::read_to_string(format!("{}/state", state[1])).unwrap_or_default();
            if kept.contains("web.example") { Ok(()) } else { Err(kept) }
        })
        .await;

        stage.agent.process.kill();
        signal(master(&stage.lb), "KILL");
        link.cut();
        // As after a reboot: nothing is left of the program and its files.
        let _ = std::fs::remove_dir_all(folder(&stage.lb));
        start(stage, &link.kubeconfig, &with_state);
        stage.agent.ready().await;
        serves(&stage.dial(80), "web.example", "/", "a").await;
        let b = http("b").await;
        stage.served_by("web", &[&b]).await;
        link.mend();
        serves(&stage.dial(80), "web.example", "/", "b").await;
    });
}

#[test]
fn a_program_that_is_killed_comes_back_with_what_is_wanted_now() {
    play(async |stage| {
        let _a = served(stage).await;
        let before = master(&stage.lb);
        signal(master(&stage.lb), "KILL");
        let b = http("b").await;
        stage.served_by("web", &[&b]).await;
        serves(&stage.dial(80), "web.example", "/", "b").await;
        assert_ne!(master(&stage.lb), before);
        assert_eq!(shown(stage).await, documented());
    });
}

#[test]
fn a_socket_that_is_removed_is_made_again_and_traffic_flows_meanwhile() {
    play(async |stage| {
        let _a = served(stage).await;
        let (web, b) = (stage.dial(80), http("b").await);
        unharmed(&web, "web.example", async {
            std::fs::remove_file(folder(&stage.lb).join(SOCKET)).expect("a socket");
            stage.served_by("web", &[&b]).await;
            serves(&web, "web.example", "/", "b").await;
        })
        .await;
    });
}

#[test]
fn an_address_that_goes_stops_no_change_and_is_served_when_it_is_back() {
    play(async |stage| {
        let _a = served(stage).await;
        serves(&stage.dial6(80), "web.example", "/", "a").await;
        net::remove(stage.vip6);
        let b = http("b").await;
        stage.behind("more", &[&b]).await;
        stage.ingress("more", &[("more.example", "/", "Prefix", "more")]).await;
        serves(&stage.dial(80), "more.example", "/", "b").await;
        // One that is started now cannot have it.
        let before = master(&stage.lb);
        signal(before, "KILL");
        eventually("another master", || async {
            match master_in(&folder(&stage.lb)) {
                Some(now) if now != before => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await;
        serves(&stage.dial(80), "more.example", "/", "b").await;
        net::add(stage.vip6);
        serves(&stage.dial6(80), "more.example", "/", "b").await;
    });
}

#[test]
fn an_agent_that_is_killed_leaves_the_program_serving_and_the_next_one_takes_it_over() {
    play(async |stage| {
        let _a = served(stage).await;
        let before = (master(&stage.lb), steady(&stage.lb));
        let web = stage.dial(80);
        let running = unharmed(&web, "web.example", async {
            stage.agent.process.end();
            serves(&web, "web.example", "/", "a").await;
            let kubeconfig = agent_kubeconfig(&stage.cluster, &stage.lb).await;
            let running = workers(&stage.lb);
            start(stage, &kubeconfig, &args(&stage.lb));
            stage.agent.ready().await;
            serves(&web, "web.example", "/", "a").await;
            running
        })
        .await;
        // Some may have been about to end when the agent was killed.
        let now = workers(&stage.lb);
        assert!(now.is_subset(&running), "nothing needed a reload: {running:?}, {now:?}");
        let b = http("b").await;
        stage.served_by("web", &[&b]).await;
        serves(&stage.dial(80), "web.example", "/", "b").await;
        assert_eq!((master(&stage.lb), steady(&stage.lb)), before);
    });
}

#[test]
fn an_agent_that_is_killed_between_writing_and_renaming_leaves_the_files_of_before() {
    play(async |stage| {
        let _a = served(stage).await;
        stage.agent.stop();
        // Files are written, and not yet in place, while they are checked.
        let folder = folder(&stage.lb);
        let (hold, held) = (folder.join("hold"), folder.join("held"));
        let mut args = args(&stage.lb);
        let at = args.iter().position(|arg| arg == PROGRAM_FLAG).expect("a program") + 1;
        let program = std::mem::take(&mut args[at]);
        let slow = format!(
            "{IS_CHECK} && while [ -e {0} ]; do touch {1}; sleep 0.1; done\nexec {program} \"$@\"",
            hold.display(),
            held.display()
        );
        args[at] = script(stage, &slow).display().to_string();
        let kubeconfig = agent_kubeconfig(&stage.cluster, &stage.lb).await;
        start(stage, &kubeconfig, &args);
        serves(&stage.dial(80), "web.example", "/", "a").await;
        let sets = || -> Vec<String> {
            let names = std::fs::read_dir(&folder).expect("a folder");
            let names =
                names.map(|it| it.expect("a name").file_name().into_string().expect("text"));
            names.filter(|name| name.starts_with("set-")).collect()
        };
        let current = || std::fs::read_link(folder.join("current")).expect("a link");
        eventually("one set of files", || async {
            if sets().len() == 1 { Ok(()) } else { Err(format!("{:?}", sets())) }
        })
        .await;
        let before = current();

        std::fs::write(&hold, "").expect("written");
        let b = http("b").await;
        stage.behind("more", &[&b]).await;
        loaded(stage, "more", "more").await;
        eventually("it is checked", || async {
            if held.exists() { Ok(()) } else { Err("not yet".to_owned()) }
        })
        .await;
        stage.agent.process.kill();
        assert_eq!((sets().len(), current()), (2, before));
        // Whoever starts it now starts it with whole files.
        signal(master(&stage.lb), "TERM");
        std::fs::remove_file(&hold).expect("removed");
        start(stage, &kubeconfig, &args);
        serves(&stage.dial(80), "more.example", "/", "b").await;
        serves(&stage.dial(80), "web.example", "/", "a").await;
        assert_eq!(sets().len(), 1, "{:?}", sets());
    });
}

/// A program that outlives its agent and has its folder to itself: it is ended with the test.
struct Hidden(PathBuf);

impl Drop for Hidden {
    fn drop(&mut self) {
        if let Some(pid) = master_in(&self.0) {
            signal(pid, "TERM");
        }
    }
}

#[test]
fn a_full_disk_stops_no_traffic_and_what_waited_for_it_follows() {
    play(async |stage| {
        let _a = served(stage).await;
        stage.agent.stop();
        // A disk of one megabyte, which only the agent and its program see.
        let disk = folder(&stage.lb);
        let program = script(
            stage,
            &format!(
                "exec unshare -m sh -c 'mount -t tmpfs -o size=1m,mode=700 disk \"$0\" && exec \"$@\"' \
                 {} {PROGRAM} \"$@\"",
                disk.display()
            ),
        );
        let kubeconfig = agent_kubeconfig(&stage.cluster, &stage.lb).await;
        let args = [vec!["--load-balancer".to_owned(), stage.lb.clone()], args(&stage.lb)].concat();
        let args: Vec<_> = args.iter().map(String::as_str).collect();
        stage.agent = Bowline::start(&stage.cluster, &program, &kubeconfig, "agent", &args);
        stage.agent.ready().await;
        let inside = format!("/proc/{}/root{}", stage.agent.process.id(), disk.display());
        let hidden = Hidden(inside.into());
        let web = stage.dial(80);
        serves(&web, "web.example", "/", "a").await;

        stage.ingress("moved", &[("moved.example", "/", "Prefix", "web")]).await;
        serves(&web, "moved.example", "/", "a").await;
        let filler = hidden.0.join("filler");
        let mut file = std::fs::File::create(&filler).expect("a file");
        while file.write_all(&[7; 4096]).is_ok() {}
        drop(file);
        // Members need no file where they can be told.
        let b = http("b").await;
        stage.served_by("web", &[&b]).await;
        let meanwhile = if LEARNS { "b" } else { "a" };
        serves(&web, "web.example", "/", meanwhile).await;
        // A pool does: the load balancer's status says why it waits; and who had another is served by that.
        stage.behind("more", &[&b]).await;
        for name in ["more", "moved"] {
            loaded(stage, name, "more").await;
        }
        unharmed(
            &web,
            "moved.example",
            eventually("it is told why the plan waits", || async {
                let lb = stage.cluster.read("LoadBalancer", "", &stage.lb).await;
                let status = lb["status"].to_string();
                if status.contains("No space left") { Ok(()) } else { Err(status) }
            }),
        )
        .await;
        serves(&web, "web.example", "/", meanwhile).await;
        // With nothing but the files of before it comes back, and learns what has changed.
        let before = master_in(&hidden.0).expect("a master");
        signal(before, "KILL");
        eventually("another master", || async {
            match master_in(&hidden.0) {
                Some(now) if now != before => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await;
        serves(&web, "web.example", "/", meanwhile).await;

        std::fs::remove_file(&filler).expect("removed");
        for host in ["more.example", "moved.example", "web.example"] {
            serves(&web, host, "/", "b").await;
        }
        let log = stage.agent.process.log();
        let complaints = log.lines().filter(|line| line.contains("No space left")).count();
        assert!((1..200).contains(&complaints), "{complaints} complaints");
        // It ends its program when it is asked to, and leaves the stage to one that others can see.
        assert_eq!(stage.agent.stop(), Some(0));
        start(stage, &kubeconfig, &crate::edge::args(&stage.lb));
        stage.agent.ready().await;
    });
}

/// Changes so many objects of the kind that agents watch that the history of before is forgotten.
async fn forget_history(stage: &Stage) {
    let slices = format!("/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices", stage.namespace);
    let (_, list) = stage.cluster.get(&slices).await;
    let version = list["metadata"]["resourceVersion"].as_str().expect("a version").to_owned();
    stage.apply(objects::cluster_service("large", 80, TARGET)).await;
    let mut slice = objects::slice("large", ("", TARGET, "TCP"), &[]);
    for round in 0..180 {
        slice["metadata"]["annotations"] = json!({"filler": format!("{round:03}").repeat(80_000)});
        stage.apply(slice.clone()).await;
    }
    if stage.cluster.flavour() == Flavour::Embedded {
        let watch = format!("{slices}?watch=true&resourceVersion={version}");
        let answer = stage.cluster.http(Call::new("GET", watch)).await.text();
        assert!(answer.contains("410"), "{answer}");
    }
}

fn away() -> Duration {
    let long = std::env::var_os("BOWLINE_LONG").is_some_and(|it| it == "1");
    Duration::from_secs(if long { 60 } else { 2 })
}

#[test]
fn the_api_may_be_away_and_come_back_without_its_history() {
    play(async |stage| {
        stage.agent.stop();
        let kubeconfig = agent_kubeconfig(&stage.cluster, &stage.lb).await;
        let link = Link::new(&stage.cluster, &kubeconfig).await;
        start(stage, &link.kubeconfig, &args(&stage.lb));
        let (a, b) = (served(stage).await, http("b").await);
        let before = steady(&stage.lb);
        link.cut();
        let cut = Instant::now();
        forget_history(stage).await;
        stage.endpoints("web", &[Endpoint::ready(b.at.ip())]).await;
        while cut.elapsed() < away() {
            let answer = stage.dial(80).get("web.example", "/").await.and_then(|it| it.echo());
            assert_eq!(answer.map(|it| it.name), Ok(a.name.clone()));
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        link.mend();
        serves(&stage.dial(80), "web.example", "/", "b").await;
        assert_eq!(steady(&stage.lb), before);
    });
}

#[test]
fn with_the_api_away_the_program_is_started_with_the_files_of_before() {
    play(async |stage| {
        stage.agent.stop();
        let kubeconfig = agent_kubeconfig(&stage.cluster, &stage.lb).await;
        let link = Link::new(&stage.cluster, &kubeconfig).await;
        start(stage, &link.kubeconfig, &args(&stage.lb));
        let _a = served(stage).await;
        link.cut();
        // As when the machine starts anew.
        stage.agent.process.kill();
        kill(&stage.lb);
        eventually("nobody serves", || async {
            match stage.dial(80).tcp().await {
                Ok(_) => Err("a connection".to_owned()),
                Err(_) => Ok(()),
            }
        })
        .await;
        start(stage, &link.kubeconfig, &args(&stage.lb));
        serves(&stage.dial(80), "web.example", "/", "a").await;
        let b = http("b").await;
        stage.served_by("web", &[&b]).await;
        link.mend();
        serves(&stage.dial(80), "web.example", "/", "b").await;
        stage.agent.ready().await;
    });
}

#[test]
fn what_the_program_refuses_is_left_out_and_told_and_the_others_are_served() {
    play(async |stage| {
        let _a = served(stage).await;
        let authority = Authority::new();
        let (good, other) = (authority.issue(&["bad.example"]), authority.issue(&["x.example"]));
        let mut mixed = good.clone();
        mixed.key = other.key;
        stage.apply(objects::tls_secret("bad", &mixed)).await;
        let rules = [("bad.example", "/", "Prefix", "web")];
        let mut ingress = objects::ingress("bad", &stage.lb, &rules);
        ingress["spec"]["tls"] = json!([{"hosts": ["bad.example"], "secretName": "bad"}]);
        stage.apply(ingress).await;
        stage.ingress("later", &[("later.example", "/", "Prefix", "web")]).await;
        serves(&stage.dial(80), "later.example", "/", "a").await;
        stage.told("Ingress", "bad", "BadCertificate").await;
        answers(&stage.dial(80), "bad.example", "/", 308).await;

        stage.apply(objects::tls_secret("bad", &good)).await;
        let dial = stage.dial(443).tls(&authority.trusted(&[]), "bad.example");
        serves(&dial, "bad.example", "/", "a").await;
    });
}
