//! The kubelet of the demo's node: runs a small web server for each Pod of the demo, sets it Ready,
//! and ends it when the Pod is deleted. It touches no Pod of another namespace or node; `bowline up
//! --demo` starts it.

use super::backend::Backend;
use crate::running::sweep;
use bowline_runtime::observe::{Change, Changes};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// The namespace and the node of the demo's Pods.
pub(crate) const NAMESPACE: &str = "demo";
const NODE: &str = "demo";

/// How long a deleted Pod still answers: enough for load balancers to release it, and short for a
/// person at a terminal.
const LINGER: Duration = Duration::from_millis(500);
/// How long until a port that is in use is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// What a Pod of the demo needs.
#[derive(Clone, Debug, PartialEq)]
struct Wanted {
    name: String,
    uid: String,
    containers: Vec<String>,
    ports: Vec<u16>,
    deleting: bool,
}

/// Reads a Pod; None if it is not on the demo's node.
fn wanted(pod: Pod) -> Option<Wanted> {
    let spec = pod.spec.filter(|spec| spec.node_name.as_deref() == Some(NODE))?;
    let ports = spec.containers.iter().flat_map(|one| one.ports.iter().flatten());
    let tcp = ports.filter(|port| port.protocol.as_deref().is_none_or(|name| name == "TCP"));
    Some(Wanted {
        ports: tcp.filter_map(|port| u16::try_from(port.container_port).ok()).collect(),
        containers: spec.containers.into_iter().map(|one| one.name).collect(),
        deleting: pod.metadata.deletion_timestamp.is_some(),
        name: pod.metadata.name?,
        uid: pod.metadata.uid?,
    })
}

/// What the task of a Pod has to do.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Told {
    Run,
    /// The Pod is being deleted, and the kubelet must confirm its end.
    End,
    /// The Pod is gone, or the demo is over.
    Stop,
}

/// The running Pods.
pub(crate) struct Kubelet {
    client: Client,
    say: Changes,
    pods: BTreeMap<String, Running>,
}

struct Running {
    uid: String,
    told: watch::Sender<Told>,
    task: JoinHandle<()>,
}

impl Kubelet {
    /// Runs the Pods until `stopped`, then ends their servers and leaves the objects as they are, so
    /// that the next start has them again. Changes for the user go to `say`.
    pub(crate) async fn run(client: Client, say: Changes, mut stopped: watch::Receiver<bool>) {
        let api: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
        let events = watcher(api, watcher::Config::default()).default_backoff();
        let mut events = std::pin::pin!(events);
        let mut kubelet = Self { client, say, pods: BTreeMap::new() };
        let mut seen = Vec::new();
        loop {
            let event = tokio::select! {
                event = events.next() => event,
                _ = stopped.wait_for(|stop| *stop) => break,
            };
            match event {
                None => break,
                Some(Err(error)) => tracing::warn!("cannot watch the Pods of the demo: {error}"),
                Some(Ok(watcher::Event::Init)) => seen.clear(),
                Some(Ok(watcher::Event::InitApply(pod))) => {
                    seen.extend(pod.metadata.name.clone());
                    kubelet.apply(pod);
                }
                Some(Ok(watcher::Event::InitDone)) => {
                    sweep(&mut kubelet.pods, &seen, |pod| pod.told.send(Told::Stop));
                }
                Some(Ok(watcher::Event::Apply(pod))) => kubelet.apply(pod),
                Some(Ok(watcher::Event::Delete(pod))) => {
                    kubelet.stop(pod.metadata.name.as_deref().unwrap_or_default());
                }
            }
        }
        for (_, pod) in std::mem::take(&mut kubelet.pods) {
            let _ = pod.told.send(Told::Stop);
            let _ = pod.task.await;
        }
    }

    fn stop(&mut self, name: &str) {
        if let Some(pod) = self.pods.remove(name) {
            let _ = pod.told.send(Told::Stop);
        }
    }

    fn apply(&mut self, pod: Pod) {
        let Some(pod) = wanted(pod) else { return };
        if let Some(running) = self.pods.get(&pod.name) {
            if running.uid == pod.uid && !running.task.is_finished() {
                if pod.deleting {
                    let _ = running.told.send(Told::End);
                }
                return;
            }
            self.stop(&pod.name);
        }
        let first = if pod.deleting { Told::End } else { Told::Run };
        let (told, hears) = watch::channel(first);
        let (name, uid) = (pod.name.clone(), pod.uid.clone());
        let task = tokio::spawn(play(self.client.clone(), pod, hears, self.say.clone()));
        self.pods.insert(name, Running { uid, told, task });
    }
}

/// Runs one Pod from start to end.
async fn play(client: Client, pod: Wanted, mut told: watch::Receiver<Told>, say: Changes) {
    let api: Api<Pod> = Api::namespaced(client, NAMESPACE);
    if let Some(backend) = bind(&api, &pod, &mut told, &say).await {
        report(&api, &pod, None).await;
        backend
            .serve(|| {
                let mut told = told.clone();
                async move {
                    let end = told.wait_for(|told| *told != Told::Run).await.map(|told| *told);
                    if matches!(end, Ok(Told::End)) {
                        let gone = told.wait_for(|told| *told == Told::Stop);
                        let _ = tokio::time::timeout(LINGER, gone).await;
                    }
                }
            })
            .await;
    }
    if *told.borrow() == Told::End {
        let precondition = Preconditions { uid: Some(pod.uid), ..Preconditions::default() };
        let now = DeleteParams::default().grace_period(0).preconditions(precondition);
        if let Err(error) = api.delete(&pod.name, &now).await {
            tracing::debug!("the end of Pod {}: {error}", pod.name);
        }
    }
}

/// Listens for a Pod, and tries again while its port is in use. None: the Pod ends before that.
async fn bind(
    api: &Api<Pod>,
    pod: &Wanted,
    told: &mut watch::Receiver<Told>,
    say: &Changes,
) -> Option<Backend> {
    let mut complained = false;
    loop {
        if *told.borrow() != Told::Run {
            return None;
        }
        match Backend::bind(&pod.name, &pod.ports).await {
            Ok(backend) => {
                if complained {
                    let what = format!("Pod {NAMESPACE}/{} is ready", pod.name);
                    say.tell(Change::Works(what));
                }
                return Some(backend);
            }
            Err((port, error)) if !complained => {
                let why = format!("cannot listen on 127.0.0.1:{port}: {error}");
                let what = format!("Pod {NAMESPACE}/{} is not ready: {why}", pod.name);
                say.tell(Change::Trouble(what));
                report(api, pod, Some(&why)).await;
                complained = true;
            }
            Err(_) => {}
        }
        let ends = told.wait_for(|told| *told != Told::Run);
        let _ = tokio::time::timeout(RETRY, ends).await;
    }
}

async fn report(api: &Api<Pod>, pod: &Wanted, problem: Option<&str>) {
    let patch = Patch::Merge(json!({"status": status(pod, problem)}));
    if let Err(error) = api.patch_status(&pod.name, &PatchParams::default(), &patch).await {
        tracing::warn!("cannot write the status of Pod {NAMESPACE}/{}: {error}", pod.name);
    }
}

/// The status of a Pod that runs, or that cannot run.
fn status(pod: &Wanted, problem: Option<&str>) -> Value {
    let ready = problem.is_none();
    let condition = |kind: &str| {
        let status = if ready { "True" } else { "False" };
        match problem {
            None => json!({"type": kind, "status": status}),
            Some(why) => {
                json!({"type": kind, "status": status, "reason": "PortTaken", "message": why})
            }
        }
    };
    let state =
        if ready { json!({"running": {}}) } else { json!({"waiting": {"reason": "PortTaken"}}) };
    let container = |name: &String| json!({"name": name, "ready": ready, "started": ready, "restartCount": 0, "image": "bowline.dev/demo", "imageID": "", "state": state});
    json!({
        "phase": if ready { "Running" } else { "Pending" },
        "podIP": "127.0.0.1",
        "podIPs": [{"ip": "127.0.0.1"}],
        "conditions": [condition("Ready"), condition("ContainersReady")],
        "containerStatuses": pod.containers.iter().map(container).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(node: &str) -> Pod {
        let pod = json!({
            "metadata": {"name": "hello", "uid": "1"},
            "spec": {"nodeName": node, "containers": [{"name": "web", "ports": [
                {"containerPort": 80}, {"containerPort": 81, "protocol": "TCP"}, {"containerPort": 53, "protocol": "UDP"},
            ]}]},
        });
        serde_json::from_value(pod).expect("a Pod")
    }

    #[test]
    fn only_pods_of_the_demos_node_are_played_and_only_their_tcp_ports() {
        let expected = Wanted {
            name: "hello".into(),
            uid: "1".into(),
            containers: vec!["web".into()],
            ports: vec![80, 81],
            deleting: false,
        };
        assert_eq!(wanted(pod("demo")), Some(expected));
        assert_eq!(wanted(pod("other")), None);
    }

    #[test]
    fn a_pod_whose_port_is_taken_says_so_in_its_status() {
        let pod = wanted(pod("demo")).expect("a Pod of the demo");
        let fine = status(&pod, None);
        assert_eq!(fine["conditions"][0], json!({"type": "Ready", "status": "True"}));
        assert_eq!(fine["containerStatuses"][0]["ready"], true);
        let taken = status(&pod, Some("port 80 is taken"));
        assert_eq!(
            taken["conditions"][0],
            json!({"type": "Ready", "status": "False", "reason": "PortTaken", "message": "port 80 is taken"})
        );
        assert_eq!(taken["phase"], "Pending");
    }
}
