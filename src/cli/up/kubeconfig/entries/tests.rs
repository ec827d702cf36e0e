//! Which files and entries a server may replace, and how entries come and go.

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

/// A server about which nothing is known yet.
const NEW: Own<'static> = Own { authority: None, url: None, data: None };

/// The kubeconfig with the entries of `ours`, as `up` adds them.
fn added(all: &Value, ours: &Value) -> Result<Value, Taken> {
    let found = server(ours).expect("a server");
    let data = match &found.kept {
        Kept::Folder(folder) => Some(folder.as_path()),
        _ => None,
    };
    let own = Own { authority: Some(&found.authority), url: Some(&found.url), data };
    Ok(merged(cleared(all, &own)?, ours.clone()))
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
    let refused = |found: &Found, authority: Option<&str>, data: Option<&str>, held: bool| {
        let own = Own { authority, url: None, data: data.map(Path::new) };
        found.replaceable(&own, if held { Held::Yes } else { Held::No }).is_err()
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
        Found::Other.replaceable(&NEW, Held::No).expect_err("refused"),
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
        let both = added(&before, &ours("A", None)).expect("merged");
        assert_eq!(both["current-context"], "bowline");
        assert_eq!(names(&both, "contexts").filter(|it| it.starts_with("bowline")).count(), 2);
        let user =
            |name| both["users"].as_array().expect("users").iter().find(|it| it["name"] == name);
        assert_eq!(user("bowline-admin").expect("ours")["user"]["token"], "1");
        let again = added(&both, &ours("A", None)).expect("merged again");
        assert_eq!(names(&again, "clusters").count(), names(&both, "clusters").count());
        assert_eq!(without(&again, "A"), before);
        assert_eq!(without(&both, "B"), both, "the entries of another server");
    }
    assert_eq!(added(&Value::Null, &ours("A", None)).expect("made")["current-context"], "bowline");
}

#[test]
fn a_context_that_was_chosen_meanwhile_stays_and_one_that_is_gone_does_not_come_back() {
    let mut chosen = added(&production(), &ours("A", None)).expect("merged");
    chosen["current-context"] = json!("other");
    assert_eq!(without(&chosen, "A")["current-context"], "other");
    let mut gone = added(&production(), &ours("A", None)).expect("merged");
    gone["contexts"].as_array_mut().expect("contexts").remove(0);
    assert_eq!(without(&gone, "A")["current-context"], "");
}

#[test]
fn entries_of_our_names_that_lead_to_another_server_stay_and_all_of_them_are_named() {
    let entries = vec![
        ("context", "bowline"),
        ("context", "bowline-read-only"),
        ("cluster", "bowline"),
        ("user", "bowline-admin"),
        ("user", "bowline-read-only"),
    ];
    let kept = added(&production(), &ours("A", Some("/data"))).expect("merged");
    let of = "of the bowline up with --data /data".to_owned();
    assert_eq!(added(&kept, &ours("B", None)), Err(Taken { of, entries: entries.clone() }));

    let memory = added(&production(), &ours("A", None)).expect("merged");
    let mut elsewhere = ours("B", None);
    elsewhere["clusters"][0]["cluster"]["server"] = json!("https://127.0.0.1:7443");
    let of = "of a bowline up in memory at https://127.0.0.1:6443, which may still run".to_owned();
    assert_eq!(added(&memory, &elsewhere), Err(Taken { of, entries }));

    let mut others = production();
    others["users"][0]["name"] = json!("bowline-admin");
    let of = "that bowline up did not write".to_owned();
    let entries = vec![("user", "bowline-admin")];
    assert_eq!(added(&others, &ours("B", None)), Err(Taken { of, entries }));
}

#[test]
fn entries_of_a_server_that_has_ended_are_replaced_in_a_shared_file_as_in_one_of_our_own() {
    let ended = added(&production(), &ours("A", None)).expect("merged");
    let next = added(&ended, &ours("B", None)).expect("this process has its address now");
    assert_eq!(without(&next, "B"), production());
    let removed = added(&production(), &ours("A", Some("/data"))).expect("merged");
    let next = added(&removed, &ours("B", Some("/data"))).expect("the data were removed");
    assert_eq!(without(&next, "B"), production());
}

#[test]
fn where_files_have_no_locks_a_server_in_memory_counts_as_running_but_at_our_own_address() {
    let url = Some("https://127.0.0.1:6443");
    let found = read(&ours("A", None));
    assert_eq!(found.replaceable(&Own { url, ..NEW }, Held::Unknown), Ok(()));
    assert_eq!(
        found.replaceable(&NEW, Held::Unknown).expect_err("refused"),
        "is of a bowline up in memory at https://127.0.0.1:6443, which may still run"
    );
    assert_eq!(Found::Empty.replaceable(&NEW, Held::Unknown), Ok(()));
    assert!(Found::Empty.replaceable(&NEW, Held::Yes).is_err());
}
