//! What a kubeconfig has of a `bowline up`, as values: whether a file may be replaced or removed, and how the entries of a
//! server come into a kubeconfig that has others, and leave it. It reads and writes no file; `kubeconfig` does.

use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// The cluster, and the context of the administrator, have this name.
pub(super) const NAME: &str = "bowline";
/// The other context, and the user of each in a file of our own.
const READ_ONLY: &str = "bowline-read-only";
const USERS: [&str; 2] = ["admin", "read-only"];
/// The users in a kubeconfig with those of others.
const MERGED_USERS: [&str; 2] = ["bowline-admin", READ_ONLY];
/// A list of a kubeconfig, and the names in it that are ours where others have entries, too.
type Ours = (&'static str, &'static [&'static str]);
const OUR_CLUSTERS: Ours = ("clusters", &[NAME]);
const OUR_CONTEXTS: Ours = ("contexts", &[NAME, READ_ONLY]);
const OUR_USERS: Ours = ("users", &MERGED_USERS);
/// The extension of the cluster in which the server says where it keeps its data.
const EXTENSION: &str = "bowline.dev/up";

/// A server: what distinguishes it from all others, and where its credentials are kept.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Server {
    /// The authority of its certificates, in base64.
    authority: String,
    /// Where it listens.
    url: String,
    /// Where it keeps its credentials.
    kept: Kept,
}

/// Where a server keeps its credentials.
#[derive(Clone, Debug, PartialEq)]
enum Kept {
    /// In memory: they end with the process.
    Memory,
    /// In this folder of data.
    Folder(PathBuf),
    /// An earlier version wrote the file, which does not say it.
    Unknown,
}

/// The server of this process.
#[derive(Clone, Copy, Debug)]
pub(super) struct Own<'a> {
    /// None: it makes its credentials when it starts.
    pub(super) authority: Option<&'a str>,
    /// Where it listens. None: not known yet.
    pub(super) url: Option<&'a str>,
    /// The folder of its data.
    pub(super) data: Option<&'a Path>,
}

/// Whether a running process holds the lock of a file, as a server in memory does until it ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Held {
    Yes,
    No,
    /// The file is shared, or its file system has no locks.
    Unknown,
}

/// Entries of our names that may not be replaced.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Taken {
    /// To whom they belong.
    pub(super) of: String,
    /// Their kinds and names.
    pub(super) entries: Vec<(&'static str, &'static str)>,
}

/// What a kubeconfig says.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Found {
    /// Nothing.
    Empty,
    /// Exactly what a `bowline up` writes.
    OfUp(Server),
    /// Something else, which may be the only key to a cluster.
    Other,
}

impl Found {
    /// Reads the text of a file.
    pub(super) fn read(text: &[u8]) -> Self {
        if text.trim_ascii().is_empty() {
            return Self::Empty;
        }
        let config = bowline_apiserver::yaml::from_yaml(text).unwrap_or_default();
        let only = |list: &str, known: &[&str]| {
            let names: Vec<_> = names(&config, list).collect();
            names.len() == known.len() && known.iter().all(|name| names.contains(name))
        };
        let alone = only("clusters", &[NAME])
            && only("contexts", &[NAME, READ_ONLY])
            && only("users", &USERS);
        match server(&config).filter(|_| alone) {
            Some(server) => Self::OfUp(server),
            None => Self::Other,
        }
    }

    /// Whether the file is this server's: this process, or the one before it on the same data, wrote it.
    pub(super) fn is_of(&self, authority: Option<&str>) -> bool {
        matches!(self, Self::OfUp(server) if Some(server.authority.as_str()) == authority)
    }

    /// Whether this server may replace the file. The error says why not.
    pub(super) fn replaceable(&self, own: &Own<'_>, held: Held) -> Result<(), String> {
        match self {
            Self::Empty if held == Held::Yes => {
                Err("is empty, and another process has locked it".to_owned())
            }
            Self::Empty => Ok(()),
            Self::Other => Err("exists and was not written by bowline up".to_owned()),
            Self::OfUp(server) => server.is_replaceable(own, held).map_err(|of| format!("is {of}")),
        }
    }
}

impl Server {
    /// Whether what leads to this server may be replaced by what leads to our own. The error says to whom it belongs.
    fn is_replaceable(&self, own: &Own<'_>, held: Held) -> Result<(), String> {
        let url = &self.url;
        match &self.kept {
            _ if own.authority == Some(self.authority.as_str()) => Ok(()),
            Kept::Memory if held == Held::No => Ok(()),
            Kept::Memory if held == Held::Yes => {
                Err(format!("of the bowline up that serves {url}"))
            }
            // That server has ended: this process has its address now.
            Kept::Memory if own.url == Some(url.as_str()) => Ok(()),
            Kept::Memory => Err(format!("of a bowline up in memory at {url}, which may still run")),
            // The credentials that were there have been removed: no server has them any more.
            Kept::Folder(folder) if Some(folder.as_path()) == own.data => Ok(()),
            Kept::Folder(folder) => {
                Err(format!("of the bowline up with --data {}", folder.display()))
            }
            Kept::Unknown => Err(format!(
                "of a bowline up at {url}, an earlier version with other data or in memory: remove it if nothing needs \
                 it"
            )),
        }
    }
}

/// A kubeconfig of ours, with the mark that says where its server keeps its data.
pub(super) fn marked(mut config: Value, data: Option<&Path>) -> Value {
    let kept = data.map(|data| data.display().to_string());
    if let Some(cluster) = first(&mut config, "clusters") {
        cluster["cluster"]["extensions"] =
            json!([{"name": EXTENSION, "extension": {"data": kept}}]);
    }
    config
}

/// The kubeconfig `all` without entries of our names, which must be such as our own server may replace.
pub(super) fn cleared(all: &Value, own: &Own<'_>) -> Result<Value, Taken> {
    let mut all = match all {
        Value::Object(_) => all.clone(),
        _ => json!({"apiVersion": "v1", "kind": "Config"}),
    };
    let mut of = "that bowline up did not write".to_owned();
    if let Some(found) = server(&all) {
        match found.is_replaceable(own, Held::Unknown) {
            Ok(()) => all = without(&all, &found.authority),
            Err(whose) if found.kept != Kept::Unknown => of = whose,
            Err(_) => {}
        }
    }
    // kubectl warns if the cluster of a context that is current goes first.
    let entries: Vec<_> = [OUR_CONTEXTS, OUR_CLUSTERS, OUR_USERS]
        .into_iter()
        .flat_map(|(list, ours)| {
            let there: Vec<_> = names(&all, list).collect();
            let kind = list.trim_end_matches('s');
            let taken = ours.iter().copied().filter(move |name| there.contains(name));
            taken.map(move |name| (kind, name)).collect::<Vec<_>>()
        })
        .collect();
    if entries.is_empty() {
        return Ok(all);
    }
    Err(Taken { of, entries })
}

/// The kubeconfig `all`, which was [`cleared`], with the entries of `ours`; their context is the current one.
pub(super) fn merged(mut all: Value, ours: Value) -> Value {
    let ours = renamed(ours);
    let before = all["current-context"].as_str().unwrap_or_default().to_owned();
    for list in ["clusters", "contexts", "users"] {
        let added = ours[list].as_array().cloned().unwrap_or_default();
        match &mut all[list] {
            Value::Array(there) => there.extend(added),
            none => *none = added.into(),
        }
    }
    if let Some(cluster) = ours_of(&mut all) {
        cluster["extensions"][0]["extension"]["previousContext"] = json!(before);
    }
    all["current-context"] = json!(NAME);
    all
}

/// The kubeconfig `all` without the entries that [`merged`] added for the server with this authority. Where its context
/// is current, the one before it is again, if it still exists.
pub(super) fn without(all: &Value, authority: &str) -> Value {
    let mut all = all.clone();
    if server(&all).is_none_or(|found| found.authority != authority) {
        return all;
    }
    let extension = ours_of(&mut all).map(|cluster| cluster["extensions"][0]["extension"].clone());
    let before = extension.and_then(|it| Some(it["previousContext"].as_str()?.to_owned()));
    for (list, ours) in [OUR_CLUSTERS, OUR_CONTEXTS, OUR_USERS] {
        if let Some(there) = all[list].as_array_mut() {
            there.retain(|it| !it["name"].as_str().is_some_and(|name| ours.contains(&name)));
        }
    }
    let current = all["current-context"].as_str().unwrap_or_default();
    if [NAME, READ_ONLY].contains(&current) {
        let before = before.filter(|name| names(&all, "contexts").any(|it| it == name));
        all["current-context"] = json!(before.unwrap_or_default());
    }
    all
}

/// Our kubeconfig, with users that have no name which another cluster's may have.
fn renamed(mut ours: Value) -> Value {
    let of = |name: &Value| {
        let at = USERS.iter().position(|it| name.as_str() == Some(it));
        at.map_or(name.clone(), |at| json!(MERGED_USERS[at]))
    };
    for context in ours["contexts"].as_array_mut().into_iter().flatten() {
        context["context"]["user"] = of(&context["context"]["user"]);
    }
    for user in ours["users"].as_array_mut().into_iter().flatten() {
        user["name"] = of(&user["name"]);
    }
    ours
}

/// The server of the cluster that has our name.
fn server(config: &Value) -> Option<Server> {
    let clusters = config["clusters"].as_array()?;
    let cluster = &clusters.iter().find(|it| it["name"] == NAME)?["cluster"];
    let mut marks = cluster["extensions"].as_array().into_iter().flatten();
    let kept = match marks.find(|it| it["name"] == EXTENSION) {
        None => Kept::Unknown,
        Some(mark) => match mark["extension"]["data"].as_str() {
            None => Kept::Memory,
            Some(folder) => Kept::Folder(folder.into()),
        },
    };
    Some(Server {
        authority: cluster["certificate-authority-data"].as_str()?.to_owned(),
        url: cluster["server"].as_str()?.to_owned(),
        kept,
    })
}

/// The authority and the URL of a kubeconfig of ours.
pub(super) fn authority_and_url(ours: &Value) -> (String, String) {
    server(ours).map(|it| (it.authority, it.url)).unwrap_or_default()
}

fn names<'a>(config: &'a Value, list: &str) -> impl Iterator<Item = &'a str> {
    config[list].as_array().into_iter().flatten().filter_map(|it| it["name"].as_str())
}

fn first<'a>(config: &'a mut Value, list: &str) -> Option<&'a mut Value> {
    config[list].as_array_mut()?.first_mut()
}

fn ours_of(config: &mut Value) -> Option<&mut Value> {
    let clusters = config["clusters"].as_array_mut()?;
    Some(&mut clusters.iter_mut().find(|it| it["name"] == NAME)?["cluster"])
}

#[cfg(test)]
mod tests;
