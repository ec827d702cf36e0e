//! A disk that is full: what is there is served, writes are refused with a reason, and once there is space the next write is
//! taken, by the same process.

use crate::bowline::{Bowline, PROGRAM};
use bowline_testing::{Scratch, Service, eventually, until};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{ListParams, PostParams};
use serde_json::json;
use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// A server whose data is on a disk of its own, which only its process sees.
fn start(scratch: &Scratch, data: &Path) -> (Bowline, PathBuf) {
    std::fs::create_dir(data).expect("a folder");
    let kubeconfig = scratch.path().join("kubeconfig");
    let (data, file) = (data.display().to_string(), kubeconfig.display().to_string());
    let mounted = "mount -t tmpfs -o size=24m,mode=700 disk \"$0\" && exec \"$@\"";
    let args =
        ["-m", "sh", "-c", mounted, &data, PROGRAM, "up", "--data", &data, "--kubeconfig", &file]
            .into_iter()
            .chain([
                "--listen",
                "127.0.0.1:0",
                "--admin",
                "127.0.0.1:0",
                "--no-default-load-balancer",
            ]);
    let args: Vec<_> = args.map(str::to_owned).collect();
    let mut service: Service = scratch.spawn("up-on-a-small-disk", Path::new("unshare"), &args);
    let address = until("bowline up is ready", || {
        service.assert_alive();
        let log = service.log();
        let line = log.lines().find_map(|line| line.strip_prefix("Kubernetes API  https://"));
        line.filter(|_| log.contains("Ctrl-C stops it.")).map(str::to_owned).ok_or(log.clone())
    });
    let disk = PathBuf::from(format!("/proc/{}/root{data}", service.id()));
    let address = address.parse().expect("an address");
    (Bowline { service, kubeconfig, address }, disk)
}

fn note(index: usize) -> ConfigMap {
    let text = "x".repeat(200_000);
    serde_json::from_value(
        json!({"metadata": {"name": format!("note-{index}")}, "data": {"a": text}}),
    )
    .expect("a ConfigMap")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_full_disk_has_space_again_writes_are_taken_without_a_restart() {
    let scratch = Scratch::new();
    let (mut server, disk) = start(&scratch, &scratch.path().join("disk"));
    let api: Api<ConfigMap> = Api::default_namespaced(server.client().await);
    let filler = disk.join("filler");
    let mut file = std::fs::File::create(&filler).expect("a file");
    while file.write_all(&[7; 4096]).is_ok() {}
    drop(file);

    let params = PostParams::default();
    let mut taken = BTreeSet::new();
    let mut refused = None;
    for index in 0..200 {
        match api.create(&params, &note(index)).await {
            Ok(_) => drop(taken.insert(format!("note-{index}"))),
            Err(error) => {
                refused = Some((format!("note-{index}"), error.to_string()));
                break;
            }
        }
    }
    let (refused, why) = refused.expect("24 MB are full");
    assert!(why.contains("No space left on device"), "{why}");
    assert!(why.contains("until the disk of the data folder can be written again"), "{why}");
    let names = async || -> BTreeSet<String> {
        let all = api.list(&ListParams::default()).await.expect("reads go on").items;
        let all = all.into_iter().filter_map(|it| it.metadata.name);
        all.filter(|name| name.starts_with("note-")).collect()
    };
    assert_eq!(names().await, taken, "what was refused is not there");
    let again = api.create(&params, &note(1000)).await.expect_err("it is still full");
    assert!(again.to_string().contains("No space left on device"), "{again}");

    std::fs::remove_file(&filler).expect("space");
    eventually("a write is taken", async || {
        api.create(&params, &note(1001)).await.map(drop).map_err(|error| error.to_string())
    })
    .await;
    taken.insert("note-1001".to_owned());
    assert_eq!(names().await, taken);
    assert!(!taken.contains(&refused));
    let left = disk.join("store.redb.new");
    assert!(!left.exists(), "nothing is left beside the store");
    assert_eq!(server.stop(), Some(0));
}
