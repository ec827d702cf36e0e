//! The status of a CustomResourceDefinition: which of its names are accepted, and whether it is served.
//! Names are unique in a group: a name that another definition holds is not accepted. It does no I/O;
//! the server writes the status.

use super::{storage_version, text, texts};
use serde_json::{Map, Value, json};

/// Names of resources and names of kinds do not conflict with each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum NameSpace {
    /// plural, singular and short names.
    Resource,
    /// kind and listKind.
    Kind,
}

/// A name that a definition requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameClaim {
    /// The group in which the name must be free.
    pub group: String,
    /// Resource or kind.
    pub space: NameSpace,
    /// The name itself.
    pub name: String,
    /// `metadata.name` of the definition that requests it.
    pub definition: String,
}

/// The status of `crd`. `taken` returns the other definition of the group that holds a name.
pub fn status(
    crd: &Value,
    taken: &dyn Fn(&NameClaim) -> Option<String>,
    now: jiff::Timestamp,
) -> Value {
    let wanted = &crd["spec"]["names"];
    let old = &crd["status"];
    let held = &old["acceptedNames"];
    let free = |space: NameSpace, name: &str| -> Result<(), String> {
        let claim = NameClaim {
            group: text(&crd["spec"], "group").to_owned(),
            space,
            name: name.to_owned(),
            definition: crate::meta::name(crd).to_owned(),
        };
        match taken(&claim) {
            Some(_) => Err(format!("{name:?} is already in use")),
            None => Ok(()),
        }
    };
    let mut accepted = held.as_object().cloned().unwrap_or_default();
    let mut conflict = None;
    // The status shows the last conflict, so the order matters.
    for (key, space, reason) in [
        ("plural", NameSpace::Resource, "PluralConflict"),
        ("singular", NameSpace::Resource, "SingularConflict"),
        ("shortNames", NameSpace::Resource, "ShortNamesConflict"),
        ("kind", NameSpace::Kind, "KindConflict"),
        ("listKind", NameSpace::Kind, "ListKindConflict"),
    ] {
        let verdict = match (key, text(wanted, key)) {
            ("shortNames", _) => short_names(wanted, held, &free),
            (_, name) if name == text(held, key) => Ok(()),
            (_, name) => free(space, name),
        };
        match verdict {
            Ok(()) => copy(wanted, key, &mut accepted),
            Err(why) => conflict = Some((reason, why)),
        }
    }
    copy(wanted, "categories", &mut accepted);
    for key in ["kind", "plural"] {
        accepted.entry(key).or_insert_with(|| json!(""));
    }

    let conditions = old["conditions"].as_array().cloned().unwrap_or_default();
    let mut conditions = Conditions { list: conditions, now };
    match &conflict {
        None => conditions.set("NamesAccepted", true, "NoConflicts", "no conflicts found"),
        Some((reason, why)) => conditions.set("NamesAccepted", false, reason, why),
    }
    if conflict.is_none() {
        let words = "the initial names have been accepted";
        conditions.set("Established", true, "InitialNamesAccepted", words);
    } else if !established(crd) {
        conditions.set("Established", false, "NotAccepted", "not all names are accepted");
    }
    let mut stored = texts(&old["storedVersions"]);
    let storage = storage_version(crd).to_owned();
    if !stored.contains(&storage) {
        stored.push(storage);
    }
    json!({"acceptedNames": accepted, "conditions": conditions.list, "storedVersions": stored})
}

/// Short names are accepted together or not at all.
fn short_names(
    wanted: &Value,
    held: &Value,
    free: &dyn Fn(NameSpace, &str) -> Result<(), String>,
) -> Result<(), String> {
    let ours = texts(&held["shortNames"]);
    let mut problems: Vec<String> = texts(&wanted["shortNames"])
        .iter()
        .filter(|name| !ours.contains(name))
        .filter_map(|name| free(NameSpace::Resource, name).err())
        .collect();
    problems.dedup();
    match problems.as_slice() {
        [] => Ok(()),
        [one] => Err(one.clone()),
        many => Err(format!("[{}]", many.join(", "))),
    }
}

fn copy(from: &Value, key: &str, to: &mut Map<String, Value>) {
    let empty = |value: &&Value| value.is_null() || **value == json!("") || **value == json!([]);
    match from.get(key).filter(|value| !empty(value)) {
        Some(value) => drop(to.insert(key.into(), value.clone())),
        None => drop(to.remove(key)),
    }
}

/// Whether a definition is served.
pub fn established(crd: &Value) -> bool {
    let conditions = crd["status"]["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().any(|c| c["type"] == "Established" && c["status"] == "True")
}

/// The names that a definition holds, from its status.
pub fn accepted_names(crd: &Value) -> Vec<(NameSpace, String)> {
    let names = &crd["status"]["acceptedNames"];
    let one = |space, key: &str| (space, text(names, key).to_owned());
    let mut held = vec![
        one(NameSpace::Resource, "plural"),
        one(NameSpace::Resource, "singular"),
        one(NameSpace::Kind, "kind"),
        one(NameSpace::Kind, "listKind"),
    ];
    held.extend(texts(&names["shortNames"]).into_iter().map(|name| (NameSpace::Resource, name)));
    held.retain(|(_, name)| !name.is_empty());
    held
}

struct Conditions {
    list: Vec<Value>,
    now: jiff::Timestamp,
}

impl Conditions {
    /// Sets a condition. Its time changes only with its status.
    fn set(&mut self, type_: &str, holds: bool, reason: &str, message: &str) {
        let status = if holds { "True" } else { "False" };
        let seconds = jiff::Timestamp::from_second(self.now.as_second()).unwrap_or(self.now);
        let mut condition = json!({
            "type": type_, "status": status, "reason": reason, "message": message,
            "lastTransitionTime": seconds.to_string(),
        });
        match self.list.iter_mut().find(|c| c["type"] == type_) {
            Some(old) => {
                if old["status"] == status && old["lastTransitionTime"].is_string() {
                    condition["lastTransitionTime"] = old["lastTransitionTime"].clone();
                }
                *old = condition;
            }
            None => self.list.push(condition),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::good;
    use super::*;

    fn at(second: i64) -> jiff::Timestamp {
        jiff::Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn free_names_are_accepted_and_the_definition_is_established() {
        let status = status(&good(), &|_| None, at(0));
        assert_eq!(
            status,
            json!({
                "acceptedNames": {"plural": "foos", "singular": "foo", "kind": "Foo",
                    "listKind": "FooList"},
                "conditions": [
                    {"type": "NamesAccepted", "status": "True", "reason": "NoConflicts",
                        "message": "no conflicts found", "lastTransitionTime": "1970-01-01T00:00:00Z"},
                    {"type": "Established", "status": "True", "reason": "InitialNamesAccepted",
                        "message": "the initial names have been accepted",
                        "lastTransitionTime": "1970-01-01T00:00:00Z"},
                ],
                "storedVersions": ["v1"],
            })
        );
    }

    #[test]
    fn taken_names_are_not_given_and_nothing_is_served() {
        let mut crd = good();
        crd["metadata"]["name"] = json!("others.x.dev");
        crd["spec"]["names"] = json!({"plural": "others", "singular": "foo", "kind": "Foo",
            "listKind": "FooList", "shortNames": ["foos", "ok"]});
        let others = ["foo", "foos", "Foo", "FooList"];
        let taken = |claim: &NameClaim| {
            assert_eq!(
                (claim.group.as_str(), claim.definition.as_str()),
                ("x.dev", "others.x.dev")
            );
            others.contains(&claim.name.as_str()).then(|| "foos.x.dev".to_owned())
        };
        let status = status(&crd, &taken, at(0));
        assert_eq!(status["acceptedNames"], json!({"plural": "others", "kind": ""}));
        assert_eq!(status["conditions"][0]["reason"], "ListKindConflict");
        assert_eq!(status["conditions"][0]["message"], "\"FooList\" is already in use");
        assert_eq!(status["conditions"][1]["reason"], "NotAccepted");
        crd["status"] = status;
        assert!(!established(&crd));
        assert_eq!(accepted_names(&crd), [(NameSpace::Resource, "others".to_owned())]);
    }

    #[test]
    fn an_established_definition_stays_so_and_its_times_stay_while_nothing_changes() {
        let mut crd = good();
        crd["status"] = status(&crd, &|_| None, at(0));
        assert_eq!(status(&crd, &|_| None, at(60)), crd["status"]);
        crd["spec"]["names"]["shortNames"] = json!(["fo"]);
        let next = status(&crd, &|claim| (claim.name == "fo").then(|| "x".into()), at(60));
        assert_eq!(next["conditions"][0]["reason"], "ShortNamesConflict");
        assert_eq!(next["conditions"][0]["lastTransitionTime"], "1970-01-01T00:01:00Z");
        assert_eq!(next["conditions"][1]["status"], "True");
        assert_eq!(next["acceptedNames"].get("shortNames"), None);
    }

    #[test]
    fn a_new_storage_version_joins_the_stored_ones() {
        let mut crd = good();
        crd["status"] = json!({"storedVersions": ["v1alpha1"]});
        assert_eq!(status(&crd, &|_| None, at(0))["storedVersions"], json!(["v1alpha1", "v1"]));
    }
}
