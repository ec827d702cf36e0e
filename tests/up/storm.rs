//! A storm of writes and a memory of it: every object has at most one write under way, so that after a
//! crash there are two states it can be in, and exactly one history that explains the one it is in.
//! Used by the tests that kill the server; it never starts or stops one.

use crate::random::Random;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt as _};
use serde_json::json;
use std::collections::BTreeMap;

/// How many requests are under way at once, each on a connection of its own.
const UNDER_WAY: usize = 64;

/// A write that took place.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Write {
    /// What happened to the object, in the words of a watch.
    pub(crate) kind: &'static str,
    /// The number of the write that its content comes from.
    pub(crate) number: u64,
    /// Where it is known; the answer to a deletion does not tell.
    pub(crate) revision: Option<u64>,
}

/// One object and what became of it.
#[derive(Debug)]
pub(crate) struct Object {
    pub(crate) name: String,
    /// Every write that took place, oldest first.
    pub(crate) history: Vec<Write>,
    /// A write that was sent and not answered.
    unanswered: Option<Write>,
}

/// All objects.
#[derive(Debug)]
pub(crate) struct Storm {
    pub(crate) objects: Vec<Object>,
    random: u64,
    sent: u64,
    /// The highest revision that was seen.
    pub(crate) revision: u64,
}

/// What the content of write `number` looks like: of a length that differs, and recognizable in part.
fn content(number: u64) -> BTreeMap<String, String> {
    let filler = format!("{number}.").repeat(1 + (number as usize * 7919) % 400);
    BTreeMap::from([("number".into(), number.to_string()), ("filler".into(), filler)])
}

fn config_map(name: &str, number: u64, revision: Option<u64>) -> ConfigMap {
    let mut object = ConfigMap { data: Some(content(number)), ..ConfigMap::default() };
    object.metadata.name = Some(name.to_owned());
    object.metadata.resource_version = revision.map(|revision| revision.to_string());
    object
}

/// The revision of an object.
pub(crate) fn revision(object: &ConfigMap) -> u64 {
    object.resource_version().expect("a resourceVersion").parse().expect("a number")
}

/// Which write an object comes from. Panics when it is not whole.
pub(crate) fn number(object: &ConfigMap) -> u64 {
    let data = object.data.as_ref().expect("data");
    let number = data["number"].parse().expect("a number");
    assert_eq!(data, &content(number), "{} is half a write", object.name_any());
    number
}

impl Storm {
    pub(crate) fn new(objects: usize, seed: u64) -> Self {
        let object = |index| Object {
            name: format!("object-{index:04}"),
            history: Vec::new(),
            unanswered: None,
        };
        Self { objects: (0..objects).map(object).collect(), random: seed, sent: 0, revision: 0 }
    }

    /// Writes every object once, all at the same time, and calls `accident` as soon as so many writes are
    /// acknowledged. Returns how many were in the end.
    pub(crate) async fn blow(
        &mut self,
        clients: &[Client],
        acknowledged: usize,
        accident: impl FnOnce(),
    ) -> usize {
        let mut random = Random::new(self.random);
        let mut writes = Vec::new();
        for (index, object) in self.objects.iter_mut().enumerate() {
            self.sent += 1;
            let last = object.history.last().filter(|write| write.kind != "DELETED").cloned();
            let kind = match (&last, random.below(4)) {
                (None, _) => "ADDED",
                (Some(_), 0) => "DELETED",
                (Some(_), _) => "MODIFIED",
            };
            let number = last.as_ref().filter(|_| kind == "DELETED").map(|last| last.number);
            let write = Write { kind, number: number.unwrap_or(self.sent), revision: None };
            object.unanswered = Some(write.clone());
            let api: Api<ConfigMap> =
                Api::default_namespaced(clients[index % clients.len()].clone());
            let (name, patch) = (object.name.clone(), random.below(2) == 0);
            writes.push(async move { (index, send(&api, &name, &write, last, patch).await) });
        }
        self.random = random.next();

        let mut accident = Some(accident);
        let mut count = 0;
        let mut answers = futures::stream::iter(writes).buffer_unordered(UNDER_WAY);
        while let Some((index, answer)) = answers.next().await {
            match answer {
                Ok(revision) => {
                    count += 1;
                    let object = &mut self.objects[index];
                    let write = object.unanswered.take().expect("it was sent");
                    object.history.push(Write { revision, ..write });
                    self.revision = self.revision.max(revision.unwrap_or(0));
                }
                Err(kube::Error::Api(refused)) => {
                    panic!("{}: {refused:?}", self.objects[index].name)
                }
                Err(_unanswered) => {}
            }
            if count == acknowledged
                && let Some(accident) = accident.take()
            {
                accident();
            }
        }
        count
    }

    /// Compares what is there with what was acknowledged, and learns which of the unanswered writes took
    /// place. Returns how many did.
    pub(crate) async fn settle(&mut self, client: &Client) -> usize {
        let api: Api<ConfigMap> = Api::default_namespaced(client.clone());
        let list = api.list(&ListParams::default()).await.expect("a list");
        let listed = list.metadata.resource_version.expect("a resourceVersion");
        let listed: u64 = listed.parse().expect("a number");
        assert!(listed >= self.revision, "the counter went back: {listed} < {}", self.revision);
        self.revision = listed;

        let mut found: BTreeMap<_, _> =
            list.items.into_iter().map(|object| (object.name_any(), object)).collect();
        let mut late = 0;
        for object in &mut self.objects {
            let now = found.remove(&object.name).map(|now| (number(&now), revision(&now)));
            let before = object.history.last().filter(|write| write.kind != "DELETED");
            let before = before.map(|write| (write.number, write.revision.expect("a put has one")));
            let Some(write) = object.unanswered.take() else {
                assert_eq!(now, before, "{}: {:?}", object.name, object.history);
                continue;
            };
            if now == before {
                continue;
            }
            late += 1;
            let wanted = Some(write.number).filter(|_| write.kind != "DELETED");
            assert_eq!(now.map(|now| now.0), wanted, "{}: {:?}", object.name, object.history);
            let revision = now.map(|now| now.1);
            assert!(revision.is_none_or(|now| before.is_none_or(|before| now > before.1)));
            object.history.push(Write { revision, ..write });
        }
        // What every namespace has is not ours.
        found.remove("kube-root-ca.crt");
        assert!(found.is_empty(), "nobody wrote these: {:?}", found.keys());
        late
    }
}

async fn send(
    api: &Api<ConfigMap>,
    name: &str,
    write: &Write,
    last: Option<Write>,
    patch: bool,
) -> Result<Option<u64>, kube::Error> {
    let options = PostParams::default();
    let held = last.and_then(|last| last.revision);
    let object = config_map(name, write.number, held);
    let written = match write.kind {
        "ADDED" => api.create(&options, &object).await?,
        "MODIFIED" if patch => {
            let patch = Patch::Merge(json!({"data": object.data}));
            api.patch(name, &PatchParams::default(), &patch).await?
        }
        "MODIFIED" => api.replace(name, &options, &object).await?,
        _ => {
            api.delete(name, &DeleteParams::default()).await?;
            return Ok(None);
        }
    };
    assert_eq!(number(&written), write.number, "the answer is the object that was sent");
    assert!(held.is_none_or(|held| revision(&written) > held));
    Ok(Some(revision(&written)))
}
