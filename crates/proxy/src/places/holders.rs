//! How much each client holds of something that clients share, and which client holds the most. It counts
//! and decides nothing; [`super::ledger`] asks it about places, [`super::heads`] about bytes.

use super::client::Client;
use super::ledger::Id;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The clients that share something.
#[derive(Debug, Default)]
pub(super) struct Holders {
    total: usize,
    of: HashMap<Client, Share>,
    by_amount: BTreeSet<(usize, Client)>,
}

/// What one client holds.
#[derive(Debug, Default)]
struct Share {
    amount: usize,
    ids: BTreeMap<Id, usize>,
}

impl Holders {
    /// What all hold together.
    pub(super) fn total(&self) -> usize {
        self.total
    }

    /// What a client holds.
    pub(super) fn amount(&self, client: Client) -> usize {
        self.of.get(&client).map_or(0, |share| share.amount)
    }

    /// The client that holds the most, and how much.
    pub(super) fn largest(&self) -> Option<(usize, Client)> {
        self.by_amount.last().copied()
    }

    /// What a client holds, the oldest first.
    pub(super) fn ids(&self, client: Client) -> impl DoubleEndedIterator<Item = Id> {
        self.of.get(&client).into_iter().flat_map(|share| share.ids.keys().copied())
    }

    /// What all hold, in no order.
    pub(super) fn all(&self) -> impl Iterator<Item = Id> {
        self.of.values().flat_map(|share| share.ids.keys().copied())
    }

    /// A client holds so much more under this id.
    pub(super) fn add(&mut self, client: Client, id: Id, amount: usize) {
        let share = self.of.entry(client).or_default();
        self.by_amount.remove(&(share.amount, client));
        *share.ids.entry(id).or_default() += amount;
        share.amount += amount;
        self.total += amount;
        self.by_amount.insert((share.amount, client));
    }

    /// A client gives back all that it holds under this id.
    pub(super) fn remove(&mut self, client: Client, id: Id) -> usize {
        let Some(share) = self.of.get_mut(&client) else { return 0 };
        let Some(amount) = share.ids.remove(&id) else { return 0 };
        self.by_amount.remove(&(share.amount, client));
        share.amount -= amount;
        self.total -= amount;
        if share.ids.is_empty() {
            self.of.remove(&client);
        } else {
            self.by_amount.insert((share.amount, client));
        }
        amount
    }

    /// What the clients hold, the one with the least first.
    #[cfg(test)]
    pub(super) fn shares(&self) -> impl Iterator<Item = (usize, Client)> {
        self.by_amount.iter().copied()
    }
}
