//! Texts that occur many times (namespaces, Services, ports, nodes), each stored once under a
//! number. A text is forgotten when its last user releases it, so memory does not grow with churn.
//! `endpoints` uses it.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Numbers for texts. A number stands for the same text as long as it has a user.
#[derive(Debug, Default)]
pub(super) struct Names {
    ids: BTreeMap<Arc<str>, u32>,
    slots: Vec<Slot>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Slot {
    text: Arc<str>,
    users: u32,
}

impl Names {
    /// The number of a text, with one more user.
    pub(super) fn hold(&mut self, text: &Arc<str>) -> u32 {
        if let Some(&id) = self.ids.get(text) {
            self.hold_again(id);
            return id;
        }
        let slot = Slot { text: text.clone(), users: 1 };
        let id = match self.free.pop() {
            Some(id) => {
                self.slots[id as usize] = slot;
                id
            }
            None => {
                self.slots.push(slot);
                (self.slots.len() - 1) as u32
            }
        };
        self.ids.insert(text.clone(), id);
        id
    }

    fn hold_again(&mut self, id: u32) {
        self.slots[id as usize].users += 1;
    }

    /// The number of a text that has a user.
    pub(super) fn find(&self, text: &str) -> Option<u32> {
        self.ids.get(text).copied()
    }

    /// The text of a number that has a user.
    pub(super) fn text(&self, id: u32) -> &Arc<str> {
        &self.slots[id as usize].text
    }

    /// Removes one user.
    pub(super) fn release(&mut self, id: u32) {
        let slot = &mut self.slots[id as usize];
        slot.users -= 1;
        if slot.users == 0 {
            self.ids.remove(&slot.text);
            slot.text = Arc::default();
            self.free.push(id);
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.ids.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_has_one_number_until_its_last_user_lets_go() {
        let mut names = Names::default();
        let (a, b) = (names.hold(&"a".into()), names.hold(&"b".into()));
        assert_eq!((names.hold(&"a".into()), names.find("b"), &**names.text(b)), (a, Some(b), "b"));
        names.release(a);
        assert_eq!(names.find("a"), Some(a));
        names.release(a);
        assert_eq!((names.find("a"), names.hold(&"c".into()), names.len()), (None, a, 2));
    }
}
