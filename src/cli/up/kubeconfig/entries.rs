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

/// What a kubeconfig says, beside ours.
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

    /// Whether a server with this authority and this folder of data may replace the file. `held`: the process that
    /// wrote it runs. The error says why not.
    pub(super) fn replaceable(
        &self,
        authority: Option<&str>,
        data: Option<&Path>,
        held: bool,
    ) -> Result<(), String> {
        let Self::OfUp(server) = self else {
            let other = || Err("exists and was not written by bowline up".to_owned());
            return if *self == Self::Empty { Ok(()) } else { other() };
        };
        match &server.kept {
            _ if self.is_of(authority) => Ok(()),
            Kept::Memory if !held => Ok(()),
            Kept::Memory => Err(format!("is of the bowline up that serves {}", server.url)),
            // The credentials that were there have been removed: no server has them any more.
            Kept::Folder(folder) if Some(folder.as_path()) == data => Ok(()),
            Kept::Folder(folder) => {
                Err(format!("is of the bowline up with --data {}", folder.display()))
            }
            Kept::Unknown => Err(format!(
                "leads to {}, and was written by an earlier bowline up with other data, or in memory: remove it if \
                 nothing needs it",
                server.url
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

/// The kubeconfig `all` with the entries of `ours` in it; its context is the current one. The error names what stands in
/// the way: entries of our names that lead to another server.
pub(super) fn merged(all: &Value, ours: &Value) -> Result<Value, String> {
    let mut all = match all {
        Value::Null => json!({"apiVersion": "v1", "kind": "Config"}),
        Value::Object(_) => all.clone(),
        _ => return Err("is no kubeconfig".to_owned()),
    };
    let mine = server(ours);
    let theirs = server(&all);
    // A server in memory whose address this process has now has ended.
    let ended =
        matches!((&theirs, &mine), (Some(a), Some(b)) if a.kept == Kept::Memory && a.url == b.url);
    let same = matches!((&theirs, &mine), (Some(a), Some(b)) if a.authority == b.authority);
    if same || ended {
        all = without(&all, theirs.as_ref().map_or("", |it| &it.authority));
    }
    let ours = renamed(ours.clone());
    for list in ["clusters", "contexts", "users"] {
        if let Some(taken) =
            names(&ours, list).find(|it| names(&all, list).any(|other| other == *it))
        {
            let kind = list.trim_end_matches('s');
            return Err(format!(
                "has a {kind} {taken} already, which leads elsewhere: `kubectl config delete-{kind} {taken}` removes it"
            ));
        }
    }
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
    Ok(all)
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
    let ours: [(&str, &[&str]); 3] =
        [("clusters", &[NAME]), ("contexts", &[NAME, READ_ONLY]), ("users", &MERGED_USERS)];
    for (list, ours) in ours {
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

/// The authority of a kubeconfig of ours.
pub(super) fn authority(ours: &Value) -> String {
    server(ours).map(|it| it.authority).unwrap_or_default()
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
mod tests {
    use super::*;

    fn ours(authority: &str, data: Option<&str>) -> Value {
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "bowline",
            "clusters": [{"name": "bowline", "cluster": {
                "server": "https://127.0.0.1:6443", "certificate-authority-data": authority,
            }}],
            "contexts": [
                {"name": "bowline", "context": {"cluster": "bowline", "user": "admin"}},
                {"name": "bowline-read-only", "context": {"cluster": "bowline", "user": "read-only"}},
            ],
            "users": [
                {"name": "admin", "user": {"token": "1"}}, {"name": "read-only", "user": {"token": "2"}},
            ],
        });
        marked(config, data.map(Path::new))
    }

    fn read(config: &Value) -> Found {
        Found::read(config.to_string().as_bytes())
    }

    fn production() -> Value {
        json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "production", "preferences": {"colors": true},
            "clusters": [{"name": "production", "cluster": {"server": "https://a"}}],
            "contexts": [{"name": "production", "context": {"cluster": "production", "user": "admin"}}],
            "users": [{"name": "admin", "user": {"token": "t"}}],
        })
    }

    #[test]
    fn a_file_is_replaced_by_its_own_server_and_after_a_server_in_memory_has_ended() {
        let refused = |found: &Found, own: Option<&str>, data: Option<&str>, held| {
            found.replaceable(own, data.map(Path::new), held).is_err()
        };
        let (memory, kept) = (read(&ours("A", None)), read(&ours("A", Some("/data"))));
        assert!(!refused(&Found::read(b" \n"), None, None, false));
        assert!(!refused(&memory, Some("B"), None, false), "its credentials are worth nothing");
        assert!(refused(&memory, Some("B"), None, true), "its server runs");
        assert!(!refused(&kept, Some("A"), Some("/elsewhere"), true), "the same data, moved");
        assert!(!refused(&kept, Some("B"), Some("/data"), false), "the data were removed");
        assert!(refused(&kept, Some("B"), Some("/other"), false), "its data may be served again");
        assert!(refused(&kept, None, None, false));
        assert!(memory.is_of(Some("A")) && !memory.is_of(Some("B")) && !memory.is_of(None));

        let mut older = ours("A", None);
        older["clusters"][0]["cluster"]["extensions"] = json!([]);
        let older = read(&older);
        assert!(!refused(&older, Some("A"), Some("/data"), false), "an upgrade with its data");
        assert!(refused(&older, Some("B"), None, false), "it does not say whose it is");
    }

    #[test]
    fn what_is_not_exactly_a_file_of_ours_is_of_somebody_else() {
        let mut more = ours("A", None);
        more["users"].as_array_mut().expect("users").push(json!({"name": "me", "user": {}}));
        for other in [more, production(), json!({}), json!({"users": []}), json!("notes")] {
            assert_eq!(read(&other), Found::Other, "{other}");
        }
        assert_eq!(Found::read(b"clusters: []\n"), Found::Other);
        assert_eq!(Found::read(b"a: [\n"), Found::Other);
        assert_eq!(
            Found::Other.replaceable(None, None, false).expect_err("refused"),
            "exists and was not written by bowline up"
        );
    }

    #[test]
    fn a_kubeconfig_has_our_entries_beside_all_others_and_then_exactly_the_others_again() {
        for before in [
            production(),
            json!({"apiVersion": "v1", "kind": "Config", "clusters": [],
            "contexts": [], "users": [], "current-context": ""}),
        ] {
            let both = merged(&before, &ours("A", None)).expect("merged");
            assert_eq!(both["current-context"], "bowline");
            assert_eq!(names(&both, "contexts").filter(|it| it.starts_with("bowline")).count(), 2);
            let user = |name| {
                both["users"].as_array().expect("users").iter().find(|it| it["name"] == name)
            };
            assert_eq!(user("bowline-admin").expect("ours")["user"]["token"], "1");
            let again = merged(&both, &ours("A", None)).expect("merged again");
            assert_eq!(names(&again, "clusters").count(), names(&both, "clusters").count());
            assert_eq!(without(&again, "A"), before);
            assert_eq!(without(&both, "B"), both, "the entries of another server");
        }
        assert_eq!(
            merged(&Value::Null, &ours("A", None)).expect("made")["current-context"],
            "bowline"
        );
    }

    #[test]
    fn a_context_that_was_chosen_meanwhile_stays_and_one_that_is_gone_does_not_come_back() {
        let mut chosen = merged(&production(), &ours("A", None)).expect("merged");
        chosen["current-context"] = json!("other");
        assert_eq!(without(&chosen, "A")["current-context"], "other");
        let mut gone = merged(&production(), &ours("A", None)).expect("merged");
        gone["contexts"].as_array_mut().expect("contexts").remove(0);
        assert_eq!(without(&gone, "A")["current-context"], "");
    }

    #[test]
    fn entries_of_our_names_that_lead_to_another_server_stay() {
        let kept = merged(&production(), &ours("A", Some("/data"))).expect("merged");
        let why = merged(&kept, &ours("B", None)).expect_err("refused");
        assert!(
            why.starts_with("has a cluster bowline already") && why.contains("delete-cluster"),
            "{why}"
        );
        let ended = merged(&production(), &ours("A", None)).expect("merged");
        let next = merged(&ended, &ours("B", None)).expect("this process has its address now");
        assert_eq!(without(&next, "B"), production());
    }
}
