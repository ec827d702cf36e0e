//! The kubeconfig that `bowline up` writes: it replaces and removes only its own, and what others have in a shared one stays.

use crate::bowline::{Start, run, said};
use bowline_testing::{Scratch, until};
use serde_json::Value;
use std::net::TcpStream;
use std::path::Path;

fn read(file: &Path) -> Value {
    let text = std::fs::read_to_string(file);
    read_text(&text.unwrap_or_else(|error| panic!("{}: {error}", file.display())))
}

fn read_text(text: &str) -> Value {
    bowline_apiserver::yaml::from_yaml(text.as_bytes()).expect("YAML")
}

const PRODUCTION: &str = "\
apiVersion: v1
kind: Config
current-context: production
clusters: [{name: production, cluster: {server: 'https://a'}}]
contexts: [{name: production, context: {cluster: production, user: admin}}]
users: [{name: admin, user: {token: t}}]
";

#[test]
fn the_second_server_in_a_folder_leaves_the_kubeconfig_of_the_first() {
    let scratch = Scratch::new();
    let mut first = Start::new(&scratch).ready();
    let before = std::fs::read(&first.kubeconfig).expect("a kubeconfig");
    for second in [Start::new(&scratch), Start::kept(&scratch)] {
        let second = second.output();
        assert_eq!(second.status.code(), Some(1), "{}", said(&second));
        for part in [&format!("https://{}", first.address), "--kubeconfig", "--merge-kubeconfig"] {
            assert!(said(&second).contains(part), "{part}: {}", said(&second));
        }
        assert_eq!(std::fs::read(&first.kubeconfig).expect("it is there"), before);
    }
    TcpStream::connect(first.address).expect("the first goes on");
    assert_eq!(first.stop(), Some(0));
    assert!(!first.kubeconfig.exists(), "its server has ended");
}

#[test]
fn what_a_killed_server_in_memory_left_is_replaced_and_what_leads_to_kept_data_is_not() {
    let scratch = Scratch::new();
    let mut killed = Start::new(&scratch).ready();
    let left = std::fs::read(&killed.kubeconfig).expect("a kubeconfig");
    killed.service.kill();
    let mut kept = Start::kept(&scratch).ready();
    assert_ne!(std::fs::read(&kept.kubeconfig).expect("a kubeconfig"), left);
    kept.service.kill();

    let other = Start::new(&scratch).output();
    assert_eq!(other.status.code(), Some(1), "{}", said(&other));
    let data = scratch.path().join("data").display().to_string();
    assert!(
        said(&other).contains(&format!("is of the bowline up with --data {data}")),
        "{}",
        said(&other)
    );
    let mut again = Start::kept(&scratch).ready();
    assert_eq!(again.stop(), Some(0));
}

#[test]
fn a_shared_kubeconfig_has_a_context_of_ours_while_we_run_and_nothing_else_changes() {
    let scratch = Scratch::new();
    let file = scratch.write("kubeconfig", PRODUCTION);
    let before = read(&file);
    let mut server = Start::new(&scratch).arg("--merge-kubeconfig").ready();
    let now = read(&file);
    assert_eq!(now["current-context"], "bowline");
    assert_eq!(now["users"][0], before["users"][0]);
    let current = scratch.kubectl(&file, &["get", "namespaces"]);
    assert!(current.ok().contains("kube-system"));
    let log = server.service.log();
    assert!(log.contains("its context bowline is current"), "{log}");

    let file_of = file.display().to_string();
    let second = run(&[
        "up",
        "--kubeconfig",
        &file_of,
        "--merge-kubeconfig",
        "--listen",
        "127.0.0.1:0",
        "--admin",
        "127.0.0.1:0",
    ]);
    assert_eq!(second.status.code(), Some(1));
    assert!(said(&second).contains("kubectl config delete-cluster bowline"), "{}", said(&second));
    assert_eq!(read(&file), now);

    scratch.kubectl(&file, &["config", "set-context", "mine", "--cluster=production"]).ok();
    assert_eq!(server.stop(), Some(0));
    let mut after = read(&file);
    let contexts = after["contexts"].as_array_mut().expect("contexts");
    contexts.retain(|it| it["name"] != "mine");
    assert_eq!(contexts.len(), 1, "{after}");
    for list in ["clusters", "users", "current-context"] {
        assert_eq!(after[list], before[list], "{list}");
    }
    until("nothing is left beside it", || {
        let all = std::fs::read_dir(scratch.path()).expect("a folder").flatten();
        let left: Vec<_> = all.map(|it| it.file_name().into_string().expect("a name")).collect();
        let extra = left.iter().any(|it| it.starts_with("kubeconfig."));
        if extra { Err(format!("{left:?}")) } else { Ok(()) }
    });
}

#[test]
fn a_kubeconfig_that_is_a_link_to_nothing_is_refused_before_anything_starts() {
    let scratch = Scratch::new();
    let link = scratch.path().join("kubeconfig");
    std::os::unix::fs::symlink("/gone", &link).expect("a link");
    for start in [Start::kept(&scratch), Start::kept(&scratch).arg("--merge-kubeconfig")] {
        let refused = start.output();
        assert_eq!(refused.status.code(), Some(1), "{}", said(&refused));
        assert!(said(&refused).contains("is a symbolic link to /gone"), "{}", said(&refused));
    }
    assert!(!scratch.path().join("data").exists(), "nothing was started");
}

#[test]
fn of_two_that_start_at_once_with_an_empty_file_one_runs() {
    let scratch = Scratch::new();
    scratch.write("kubeconfig", "");
    let mut both = [Start::new(&scratch).spawn(), Start::new(&scratch).spawn()];
    let (ended, runs) = until("one has ended", || {
        let ended = both.iter().position(|it| it.log().contains("is of the bowline up that"));
        ended.map(|it| (it, 1 - it)).ok_or_else(|| format!("{}\n{}", both[0].log(), both[1].log()))
    });
    assert_eq!(both[ended].wait(), Some(1));
    until("the other runs", || {
        both[runs].assert_alive();
        let log = both[runs].log();
        if log.contains("Ctrl-C stops it.") { Ok(()) } else { Err(log) }
    });
    let server =
        read(&scratch.path().join("kubeconfig"))["clusters"][0]["cluster"]["server"].clone();
    let server = server.as_str().expect("a URL");
    assert!(both[runs].log().contains(server), "the file leads to the one that runs");
    assert!(both[ended].log().contains(server), "{}", both[ended].log());
}

#[test]
fn the_command_that_a_refusal_prints_removes_all_entries_that_are_in_the_way() {
    let scratch = Scratch::new();
    let file = scratch.write("kubeconfig", PRODUCTION);
    let mut killed = Start::kept(&scratch).arg("--merge-kubeconfig").ready();
    killed.service.kill();
    // Its data are gone, and so is what its entries lead to.
    std::fs::remove_dir_all(scratch.path().join("data")).expect("removed");

    let other = scratch.path().join("other");
    let start = || {
        let start = Start::new(&scratch).arg("--merge-kubeconfig");
        start.arg("--data").arg(&other.display().to_string())
    };
    let refused = start().output();
    assert_eq!(refused.status.code(), Some(1), "{}", said(&refused));
    assert!(!other.exists(), "the API was not started");
    let text = said(&refused);
    let command = text.split('`').nth(1).expect("a command");
    let kubectl = std::env::var("KUBECTL").unwrap_or_else(|_| "command kubectl".to_owned());
    let script = format!("kubectl() {{ {kubectl} \"$@\"; }}\n{command}");
    let done = std::process::Command::new("sh").args(["-c", &script]).output().expect("sh");
    assert!(done.status.success(), "{command}: {}", said(&done));

    let mut server = start().ready();
    assert_eq!(read(&file)["current-context"], "bowline");
    assert_eq!(server.stop(), Some(0));
    assert_eq!(read(&file)["clusters"], read_text(PRODUCTION)["clusters"]);
}
