//! Moves by hand: which wishes at Addresses are new, so that each is carried out once. A wish that was there before the
//! speaker looked for the first time is an old one. The speaker's shell calls it.

use rustc_hash::FxHashMap;
use std::net::IpAddr;
use std::sync::Arc;

/// The wish that a node should own an address. Written `NODE` or `NODE/ID`; another ID makes another wish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wish(Arc<str>);

impl Wish {
    /// As it is written at the Address.
    pub fn new(text: &str) -> Self {
        Self(text.into())
    }

    /// The node that should own the address.
    pub fn node(&self) -> &str {
        self.0.split_once('/').map_or(&*self.0, |(node, _)| node)
    }

    /// As it is written at the Address.
    pub fn text(&self) -> &Arc<str> {
        &self.0
    }
}

/// The wishes that are known.
#[derive(Debug, Default)]
pub struct Moves {
    known: FxHashMap<IpAddr, Wish>,
    listed: bool,
}

impl Moves {
    /// Takes in an Address. Returns the wish that is to be carried out now.
    pub fn observe(&mut self, address: IpAddr, wish: Option<Wish>) -> Option<Wish> {
        let before = match &wish {
            Some(wish) => self.known.insert(address, wish.clone()),
            None => self.known.remove(&address),
        };
        wish.filter(|wish| self.listed && before.as_ref() != Some(wish))
    }

    /// All Addresses were listed once: what comes now is new.
    pub fn listed(&mut self) {
        self.listed = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wish_is_carried_out_once_and_only_if_it_is_new() {
        let mut moves = Moves::default();
        let [one, two] = ["192.0.2.1", "192.0.2.2"].map(|it| it.parse().unwrap());
        let observe = |moves: &mut Moves, address, wish: Option<&str>| {
            moves.observe(address, wish.map(Wish::new)).map(|it| it.node().to_owned())
        };
        assert_eq!(observe(&mut moves, one, Some("b/1")), None, "from before the start");
        moves.listed();
        assert_eq!(observe(&mut moves, one, Some("b/1")), None, "delivered again");
        assert_eq!(observe(&mut moves, one, Some("b/2")), Some("b".into()));
        assert_eq!(observe(&mut moves, one, Some("b/2")), None);
        assert_eq!(observe(&mut moves, one, None), None);
        assert_eq!(observe(&mut moves, one, Some("b/2")), Some("b".into()));
        assert_eq!(observe(&mut moves, two, Some("c")), Some("c".into()));
    }
}
