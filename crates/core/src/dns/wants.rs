//! Which Services want which name: several users of one name are one want, of all their families and
//! namespaces. The controller tells it about each Service and passes the events on to the
//! [`Schedule`](super::Schedule).

use super::{Event, Families, Name};
use crate::key::ObjectKey;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The names that Services want.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wants {
    users: BTreeMap<ObjectKey, (Name, Families)>,
    names: BTreeMap<Name, Wanted>,
}

/// A wanted name. It has counts instead of lists to add up, as a name may have very many users.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Wanted {
    users: BTreeSet<ObjectKey>,
    /// How many users each namespace has.
    namespaces: BTreeMap<Arc<str>, usize>,
    v4: usize,
    v6: usize,
}

impl Wanted {
    fn families(&self) -> Families {
        Families { v4: self.v4 > 0, v6: self.v6 > 0 }
    }

    /// What the schedule knows of it.
    fn known(&self) -> (Families, usize) {
        (self.families(), self.namespaces.len())
    }
}

impl Wants {
    /// Sets the name that a user wants, or none. Returns the events for the names that change:
    /// first for a name that no user wants any more.
    pub fn set(&mut self, user: ObjectKey, wanted: Option<(Name, Families)>) -> Vec<Event> {
        let wanted = wanted.filter(|(_, families)| !families.is_empty());
        let old = match &wanted {
            Some(new) => self.users.insert(user.clone(), new.clone()),
            None => self.users.remove(&user),
        };
        if old == wanted {
            return Vec::new();
        }
        // A user has one namespace, so the number of namespaces changes whenever their set does.
        let known = |wants: &Self, name: &Name| wants.names.get(name).map(Wanted::known);
        let mut before = BTreeMap::new();
        for (name, _) in old.iter().chain(&wanted) {
            before.insert(name.clone(), known(self, name));
        }
        if let Some((name, families)) = &old {
            self.leave(&user, name, *families);
        }
        if let Some((name, families)) = &wanted {
            self.join(user, name, *families);
        }
        let mut events = Vec::new();
        for (name, before) in before {
            if known(self, &name) == before {
                continue;
            }
            match self.names.get(&name) {
                None => events.insert(0, Event::Unwant { name }),
                Some(wanted) => {
                    let families = wanted.families();
                    let namespaces = wanted.namespaces.keys().cloned().collect();
                    events.push(Event::Want { name, families, namespaces });
                }
            }
        }
        events
    }

    /// The users that want this name: they are told of its answers.
    pub fn users(&self, name: &Name) -> impl Iterator<Item = &ObjectKey> {
        self.names.get(name).into_iter().flat_map(|wanted| &wanted.users)
    }

    /// All families that are wanted of this name.
    pub fn families(&self, name: &Name) -> Families {
        self.names.get(name).map_or(Families::NONE, Wanted::families)
    }

    fn join(&mut self, user: ObjectKey, name: &Name, families: Families) {
        let wanted = self.names.entry(name.clone()).or_default();
        *wanted.namespaces.entry(user.namespace.clone()).or_default() += 1;
        wanted.users.insert(user);
        wanted.v4 += usize::from(families.v4);
        wanted.v6 += usize::from(families.v6);
    }

    fn leave(&mut self, user: &ObjectKey, name: &Name, families: Families) {
        let Some(wanted) = self.names.get_mut(name) else { return };
        if let Some(users) = wanted.namespaces.get_mut(&user.namespace) {
            *users -= 1;
            if *users == 0 {
                wanted.namespaces.remove(&user.namespace);
            }
        }
        wanted.users.remove(user);
        wanted.v4 -= usize::from(families.v4);
        wanted.v6 -= usize::from(families.v6);
        if wanted.users.is_empty() {
            self.names.remove(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn want(name: &str, families: Families, namespaces: &[&str]) -> Event {
        let namespaces = namespaces.iter().map(|it| Arc::from(*it)).collect();
        Event::Want { name: name.parse().unwrap(), families, namespaces }
    }

    fn unwant(name: &str) -> Event {
        Event::Unwant { name: name.parse().unwrap() }
    }

    fn some(name: &str, families: Families) -> Option<(Name, Families)> {
        Some((name.parse().unwrap(), families))
    }

    fn user(name: &str) -> ObjectKey {
        ObjectKey::new("shop", name)
    }

    #[test]
    fn users_of_one_name_are_one_want_of_all_their_families() {
        let (v4, v6, both) = (Families::V4, Families::V6, Families::BOTH);
        let want = |name, families| want(name, families, &["shop"]);
        let mut wants = Wants::default();
        assert_eq!(wants.set(user("a"), some("a.example", v4)), [want("a.example", v4)]);
        assert_eq!(wants.set(user("b"), some("A.Example.", v4)), []);
        assert_eq!(wants.set(user("c"), some("a.example", v6)), [want("a.example", both)]);
        let name = "a.example".parse().unwrap();
        let users = ["a", "b", "c"].map(user);
        assert_eq!(wants.users(&name).cloned().collect::<Vec<_>>(), users);
        assert_eq!(wants.set(user("a"), None), []);
        assert_eq!(wants.set(user("b"), None), [want("a.example", v6)]);
        assert_eq!(wants.set(user("c"), some("a.example", Families::NONE)), [unwant("a.example")]);
        assert_eq!(wants.set(user("c"), None), []);
        assert_eq!(wants, Wants::default());
    }

    #[test]
    fn a_want_names_each_namespace_once() {
        let v4 = Families::V4;
        let mut wants = Wants::default();
        wants.set(user("a"), some("a.example", v4));
        let other = |name| ObjectKey::new("other", name);
        let both = [want("a.example", v4, &["other", "shop"])];
        assert_eq!(wants.set(other("a"), some("a.example", v4)), both);
        assert_eq!(wants.set(other("b"), some("a.example", v4)), []);
        assert_eq!(wants.set(other("a"), None), []);
        let one = [want("a.example", v4, &["shop"])];
        assert_eq!(wants.set(other("b"), None), one);
    }

    #[test]
    fn a_user_that_changes_its_name_leaves_the_old_one_first() {
        let v4 = Families::V4;
        let want = |name| want(name, v4, &["shop"]);
        let mut wants = Wants::default();
        wants.set(user("a"), some("a.example", v4));
        let changed = [unwant("a.example"), want("b.example")];
        assert_eq!(wants.set(user("a"), some("b.example", v4)), changed);
        let back = [unwant("b.example"), want("a.example")];
        assert_eq!(wants.set(user("a"), some("a.example", v4)), back);
    }
}
