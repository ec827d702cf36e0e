//! A disk that is full.

use crate::patient::{is_well, status_says, suffers_from_role};
use crate::programs::kill_all_of;
use crate::stage::{PROGRAM, Stage, agent_kubeconfig, is_closed, leads_to, play_with, tcp};
use bowline_core::diagnosis::RoleProblem;
use bowline_testing::Bowline;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// Starts the agent anew with HAProxy's files on a small disk of its own, which only its process sees; returns the folder.
async fn on_a_small_disk(stage: &mut Stage, folder: &Path) -> PathBuf {
    let scratch = stage.cluster.scratch();
    std::fs::create_dir(folder).expect("a folder");
    let folder = folder.display().to_string();
    let program = scratch.join("bowline-on-a-small-disk");
    let mounted =
        format!("mount -t tmpfs -o size=2m,mode=700 disk {folder} && exec {PROGRAM} \"$@\"");
    let script = format!("#!/bin/sh\nexec unshare -m sh -c '{mounted}' sh \"$@\"\n");
    std::fs::write(&program, script).expect("write a script");
    let all = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&program, all).expect("may be executed");
    let kubeconfig = agent_kubeconfig(&stage.cluster, &stage.lb).await;
    let args = [
        "--load-balancer",
        &stage.lb,
        "--driver",
        "haproxy",
        "--exec",
        "--haproxy-folder",
        &folder,
    ];
    stage.agent.stop();
    stage.agent = Bowline::start(&stage.cluster, &program, &kubeconfig, "agent", &args);
    stage.agent.ready().await;
    PathBuf::from(format!("/proc/{}/root{folder}", stage.agent.process.id()))
}

/// A program outlives an agent that is killed: it is ended with the test.
#[derive(Default)]
struct Left(Mutex<Option<PathBuf>>);

impl Drop for Left {
    fn drop(&mut self) {
        if let Some(folder) = self.0.lock().ok().and_then(|mut it| it.take()) {
            kill_all_of(&folder);
        }
    }
}

#[test]
fn an_agent_that_cannot_write_its_files_is_told_with_the_cause_and_writes_them_once_there_is_space()
{
    let folder = std::env::temp_dir().join(format!("bowline-{}", bowline_testing::unique()));
    let first = folder.display().to_string();
    let args = |_: &str| {
        ["--driver", "haproxy", "--exec", "--haproxy-folder", &first].map(str::to_owned).to_vec()
    };
    let left = Left::default();
    play_with(&args, async |stage| {
        let own = stage.cluster.scratch().join("haproxy");
        *left.0.lock().expect("no panic") = Some(own.clone());
        let disk = on_a_small_disk(stage, &own).await;
        let (a, b) = (tcp("a").await, tcp("b").await);
        stage.service("web", 5000, &[&a]).await;
        leads_to(&stage.dial(5000), "a").await;
        is_well(stage, "service/web").await;
        let filler = disk.join("filler");
        let mut file = std::fs::File::create(&filler).expect("a file");
        while file.write_all(&[7; 1024]).is_ok() {}
        drop(file);
        stage.service("new", 5001, &[&b]).await;
        let told = suffers_from_role(stage, "service/new", RoleProblem::AgentFailed).await;
        assert!(told.contains("No space left on device"), "{told}");
        status_says(stage, "No space left on device").await;
        is_closed(&stage.dial(5001)).await;
        leads_to(&stage.dial(5000), "a").await;
        // What helps: remove the cause that the message names.
        std::fs::remove_file(&filler).expect("space");
        leads_to(&stage.dial(5001), "b").await;
        is_well(stage, "service/new").await;
    });
    let _ = std::fs::remove_dir_all(folder);
}
