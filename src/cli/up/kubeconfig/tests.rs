//! Kubeconfigs on a disk: writers that start at once, links, and owners of files.

use super::*;
use serde_json::json;
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::sync::Barrier;

fn text(authority: &str, port: u16) -> String {
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "bowline",
        "clusters": [{"name": "bowline", "cluster": {
            "server": format!("https://127.0.0.1:{port}"), "certificate-authority-data": authority,
        }}],
        "contexts": [
            {"name": "bowline", "context": {"cluster": "bowline", "user": "admin"}},
            {"name": "bowline-read-only", "context": {"cluster": "bowline", "user": "read-only"}},
        ],
        "users": [
            {"name": "admin", "user": {"token": "1"}}, {"name": "read-only", "user": {"token": "2"}},
        ],
    });
    yaml::to_yaml(&config).expect("YAML")
}

fn kubeconfig(path: &Path, merges: bool) -> Kubeconfig {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    Kubeconfig::new(Some(path), merges, None, any).expect("a kubeconfig")
}

fn names_in(folder: &Path) -> Vec<String> {
    let all = std::fs::read_dir(folder).expect("a folder").flatten();
    all.map(|it| it.file_name().into_string().expect("a name")).collect()
}

/// Servers in memory that write the same file at once: the authorities of those that wrote it, which go on.
fn at_once(path: &Path) -> Vec<(String, Written)> {
    const SERVERS: u16 = 8;
    let start = Barrier::new(SERVERS.into());
    std::thread::scope(|scope| {
        let servers: Vec<_> = (0..SERVERS)
            .map(|server| {
                let start = &start;
                scope.spawn(move || {
                    let authority = format!("authority-{server}");
                    start.wait();
                    let written = kubeconfig(path, false).write(&text(&authority, 7000 + server));
                    written.ok().map(|written| (authority, written))
                })
            })
            .collect();
        servers.into_iter().filter_map(|it| it.join().expect("no panic")).collect()
    })
}

#[test]
fn of_servers_that_start_at_once_one_gets_the_file() {
    for before in [None, Some(String::new()), Some(text("killed", 6999))] {
        for _ in 0..5 {
            let folder = tempfile::tempdir().expect("a folder");
            let path = folder.path().join("bowline.kubeconfig");
            if let Some(before) = &before {
                let marked = match before.is_empty() {
                    true => String::new(),
                    false => {
                        entries::marked(yaml::from_yaml(before.as_bytes()).expect("YAML"), None)
                            .to_string()
                    }
                };
                std::fs::write(&path, marked).expect("written");
            }
            let written = at_once(&path);
            let got: Vec<_> = written.iter().map(|(authority, _)| authority.as_str()).collect();
            let found = std::fs::read(&path).expect("a kubeconfig");
            assert_eq!(got.len(), 1, "{got:?} after {before:?}");
            assert!(Found::read(&found).is_of(Some(got[0])), "the file is of {got:?}");
            assert_eq!(names_in(folder.path()), ["bowline.kubeconfig"]);
        }
    }
}

#[test]
fn a_link_that_leads_nowhere_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let link = folder.path().join("bowline.kubeconfig");
    symlink(folder.path().join("gone"), &link).expect("a link");
    for merges in [false, true] {
        let file = kubeconfig(&link, merges);
        for result in [file.check(), file.write(&text("A", 7000)).map(drop)] {
            let why = result.expect_err("refused").to_string();
            assert!(why.contains("is a symbolic link to") && why.contains("gone"), "{why}");
        }
    }
    assert_eq!(names_in(folder.path()), ["bowline.kubeconfig"]);
}

#[test]
fn a_link_is_followed_to_a_shared_file_and_not_replaced_by_one_of_our_own() {
    let folder = tempfile::tempdir().expect("a folder");
    let (file, link) = (folder.path().join("config"), folder.path().join("link"));
    std::fs::write(&file, "").expect("written");
    symlink(&file, &link).expect("a link");
    let why = kubeconfig(&link, false).check().expect_err("refused").to_string();
    assert!(why.contains("which is not replaced"), "{why}");
    kubeconfig(&link, true).write(&text("A", 7000)).expect("written");
    assert!(link.is_symlink());
    let found = std::fs::read_to_string(&file).expect("a kubeconfig");
    assert!(found.contains("bowline-admin"), "{found}");
}

/// Needs root, as the tests with network namespaces do.
#[test]
fn a_shared_file_keeps_its_owner_and_its_mode() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("config");
    std::fs::write(&path, "apiVersion: v1\nkind: Config\n").expect("written");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o664)).expect("a mode");
    chown(&path, Some(1234), Some(4321)).expect("root may give away a file");
    let owner_and_mode = || {
        let found = std::fs::metadata(&path).expect("a file");
        (found.uid(), found.gid(), found.mode() & 0o777)
    };
    let written = kubeconfig(&path, true).write(&text("A", 7000)).expect("written");
    assert_eq!(owner_and_mode(), (1234, 4321, 0o664));
    written.end();
    assert_eq!(owner_and_mode(), (1234, 4321, 0o664));
    let left = std::fs::read_to_string(&path).expect("a kubeconfig");
    assert!(!left.contains("bowline-admin"), "{left}");
}
