//! Who wants which name: several users of one name are one want, of all their families. The controller
//! tells it about each Service and passes the events on to the [`Schedule`](super::Schedule).

use super::{Event, Families, Name};
use std::collections::{BTreeMap, BTreeSet};

/// The names that users want, `U` being whatever tells users apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wants<U> {
    users: BTreeMap<U, (Name, Families)>,
    names: BTreeMap<Name, Wanted<U>>,
}

/// Counts instead of a list to add up: a name may have very many users.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Wanted<U> {
    users: BTreeSet<U>,
    v4: usize,
    v6: usize,
}

impl<U> Wanted<U> {
    fn families(&self) -> Families {
        Families { v4: self.v4 > 0, v6: self.v6 > 0 }
    }
}

impl<U> Default for Wants<U> {
    fn default() -> Self {
        Self { users: BTreeMap::new(), names: BTreeMap::new() }
    }
}

impl<U: Ord + Clone> Wants<U> {
    /// From now on this user wants that name, or none. What changes for names is returned: a name that
    /// the user leaves first.
    pub fn set(&mut self, user: U, wanted: Option<(Name, Families)>) -> Vec<Event> {
        let wanted = wanted.filter(|(_, families)| !families.is_empty());
        let old = match &wanted {
            Some(new) => self.users.insert(user.clone(), new.clone()),
            None => self.users.remove(&user),
        };
        if old == wanted {
            return Vec::new();
        }
        let mut before = BTreeMap::new();
        for (name, _) in old.iter().chain(&wanted) {
            before.insert(name.clone(), self.families(name));
        }
        if let Some((name, families)) = &old {
            self.leave(&user, name, *families);
        }
        if let Some((name, families)) = &wanted {
            self.join(user, name, *families);
        }
        let mut events = Vec::new();
        for (name, before) in before {
            match self.families(&name) {
                after if after == before => {}
                Families::NONE => events.insert(0, Event::Unwant { name }),
                families => events.push(Event::Want { name, families }),
            }
        }
        events
    }

    /// Who wants this name, and so wants to hear of it.
    pub fn users(&self, name: &Name) -> impl Iterator<Item = &U> {
        self.names.get(name).into_iter().flat_map(|wanted| &wanted.users)
    }

    /// All families that are wanted of this name.
    pub fn families(&self, name: &Name) -> Families {
        self.names.get(name).map_or(Families::NONE, Wanted::families)
    }

    fn join(&mut self, user: U, name: &Name, families: Families) {
        let empty = || Wanted { users: BTreeSet::new(), v4: 0, v6: 0 };
        let wanted = self.names.entry(name.clone()).or_insert_with(empty);
        wanted.users.insert(user);
        wanted.v4 += usize::from(families.v4);
        wanted.v6 += usize::from(families.v6);
    }

    fn leave(&mut self, user: &U, name: &Name, families: Families) {
        let Some(wanted) = self.names.get_mut(name) else { return };
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

    fn want(name: &str, families: Families) -> Event {
        Event::Want { name: name.parse().unwrap(), families }
    }

    fn unwant(name: &str) -> Event {
        Event::Unwant { name: name.parse().unwrap() }
    }

    fn some(name: &str, families: Families) -> Option<(Name, Families)> {
        Some((name.parse().unwrap(), families))
    }

    #[test]
    fn users_of_one_name_are_one_want_of_all_their_families() {
        let (v4, v6, both) = (Families::V4, Families::V6, Families::BOTH);
        let mut wants = Wants::default();
        assert_eq!(wants.set(1, some("a.example", v4)), [want("a.example", v4)]);
        assert_eq!(wants.set(2, some("A.Example.", v4)), []);
        assert_eq!(wants.set(3, some("a.example", v6)), [want("a.example", both)]);
        let name = "a.example".parse().unwrap();
        assert_eq!(wants.users(&name).copied().collect::<Vec<_>>(), [1, 2, 3]);
        assert_eq!(wants.set(1, None), []);
        assert_eq!(wants.set(2, None), [want("a.example", v6)]);
        assert_eq!(wants.set(3, some("a.example", Families::NONE)), [unwant("a.example")]);
        assert_eq!(wants.set(3, None), []);
        assert_eq!(wants, Wants::default());
    }

    #[test]
    fn a_user_that_changes_its_name_leaves_the_old_one_first() {
        let v4 = Families::V4;
        let mut wants = Wants::default();
        wants.set(1, some("a.example", v4));
        let changed = [unwant("a.example"), want("b.example", v4)];
        assert_eq!(wants.set(1, some("b.example", v4)), changed);
        let back = [unwant("b.example"), want("a.example", v4)];
        assert_eq!(wants.set(1, some("a.example", v4)), back);
    }
}
