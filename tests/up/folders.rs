//! What `bowline up --data` keeps for the load balancers that it carries.

use crate::bowline::Start;
use bowline_api::LoadBalancer;
use bowline_testing::{Scratch, eventually};
use kube::api::{Api, DeleteParams, PostParams};
use kube::{Client, ResourceExt as _};
use serde_json::json;
use std::collections::BTreeSet;
use std::path::Path;

/// Makes the load balancer; its uid.
async fn made(client: &Client) -> String {
    let api: Api<LoadBalancer> = Api::all(client.clone());
    let edge = json!({
        "apiVersion": "bowline.dev/v1alpha1", "kind": "LoadBalancer", "metadata": {"name": "edge"},
        "spec": {"builtin": {}, "addresses": ["127.0.0.97"]},
    });
    let edge: LoadBalancer = serde_json::from_value(edge).expect("one");
    let created = eventually("it can be made", async || {
        api.create(&PostParams::default(), &edge).await.map_err(|error| error.to_string())
    });
    created.await.uid().expect("a uid")
}

/// The folders in which there is state.
fn kept(state: &Path) -> BTreeSet<String> {
    let all = std::fs::read_dir(state).into_iter().flatten().flatten();
    let all = all.filter(|one| one.path().join("state").exists());
    all.filter_map(|one| one.file_name().into_string().ok()).collect()
}

async fn keeps(state: &Path, there: &str, gone: &[&str]) {
    eventually("what is kept", async || {
        let kept = kept(state);
        match kept.contains(there) && gone.iter().all(|one| !kept.contains(*one)) {
            true => Ok(()),
            false => Err(format!("{kept:?}, and {there} should be there, {gone:?} not")),
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_load_balancer_that_is_made_again_has_its_own_folder_and_that_of_the_deleted_one_is_gone()
{
    let scratch = Scratch::new();
    let state = scratch.path().join("data/state");
    let start = || Start::kept(&scratch).arg("--no-default-load-balancer");
    let mut server = start().ready();
    let client = server.client().await;
    let first = made(&client).await;
    keeps(&state, &first, &[]).await;
    let api: Api<LoadBalancer> = Api::all(client.clone());
    api.delete("edge", &DeleteParams::default()).await.expect("deleted");
    let second = made(&client).await;
    assert_ne!(first, second);
    keeps(&state, &second, &[&first]).await;

    // One that went while nothing ran, as a version before kept it.
    server.stop();
    let lost = state.join("lost");
    std::fs::create_dir_all(&lost).expect("made");
    std::fs::write(lost.join("state"), "a key").expect("written");
    let mut server = start().ready();
    keeps(&state, &second, &["lost"]).await;
    server.stop();
}
