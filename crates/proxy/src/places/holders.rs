//! How much each client holds of a shared resource, and which client gives way to another. It counts with
//! values alone; [`super::ledger`] uses it for places, [`super::heads`] for bytes.
//!
//! The client that holds the most gives way. If no client holds enough, the IPv6 network (/48) whose
//! clients together hold the most gives way: all of them may be one.

use super::client::Client;
use super::ledger::Id;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The clients that share a resource.
#[derive(Debug, Default)]
pub(super) struct Holders {
    clients: Tally,
    /// By /48. IPv4 clients are not in it.
    networks: Tally,
}

/// The client or network that gives way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Giver {
    Client(Client),
    /// Any client of this /48.
    Network(Client),
}

impl Holders {
    /// The sum over all clients.
    pub(super) fn total(&self) -> usize {
        self.clients.total
    }

    /// The amount that a client holds.
    pub(super) fn amount(&self, client: Client) -> usize {
        self.clients.amount(client)
    }

    /// The client or network that gives way to a client that wants this much more: it must hold more than
    /// that client would then hold.
    pub(super) fn giver(&self, client: Client, more: usize) -> Option<Giver> {
        let most = |tally: &Tally, than: usize| tally.largest().filter(|(most, _)| *most > than);
        if let Some((_, largest)) = most(&self.clients, self.amount(client) + more) {
            return Some(Giver::Client(largest));
        }
        let around = match client.network() {
            Some(network) => self.networks.amount(network),
            None => self.amount(client),
        };
        most(&self.networks, around + more).map(|(_, largest)| Giver::Network(largest))
    }

    /// The ids of a client or network, the oldest first.
    pub(super) fn ids(&self, giver: Giver) -> impl DoubleEndedIterator<Item = Id> {
        match giver {
            Giver::Client(client) => self.clients.ids(client),
            Giver::Network(network) => self.networks.ids(network),
        }
    }

    /// All ids, in no order.
    pub(super) fn all(&self) -> impl Iterator<Item = Id> {
        self.clients.of.values().flat_map(|share| share.ids.keys().copied())
    }

    /// A client holds this much more under this id.
    pub(super) fn add(&mut self, client: Client, id: Id, amount: usize) {
        self.clients.add(client, id, amount);
        if let Some(network) = client.network() {
            self.networks.add(network, id, amount);
        }
    }

    /// Removes all that a client holds under this id, and returns the amount.
    pub(super) fn remove(&mut self, client: Client, id: Id) -> usize {
        if let Some(network) = client.network() {
            self.networks.remove(network, id);
        }
        self.clients.remove(client, id)
    }

    /// The amounts of the clients, the smallest first.
    #[cfg(test)]
    pub(super) fn shares(&self) -> impl Iterator<Item = (usize, Client)> {
        self.clients.by_amount.iter().copied()
    }
}

/// Amounts by client, or by network.
#[derive(Debug, Default)]
struct Tally {
    total: usize,
    of: HashMap<Client, Share>,
    by_amount: BTreeSet<(usize, Client)>,
}

#[derive(Debug, Default)]
struct Share {
    amount: usize,
    ids: BTreeMap<Id, usize>,
}

impl Tally {
    fn amount(&self, client: Client) -> usize {
        self.of.get(&client).map_or(0, |share| share.amount)
    }

    fn largest(&self) -> Option<(usize, Client)> {
        self.by_amount.last().copied()
    }

    fn ids(&self, client: Client) -> impl DoubleEndedIterator<Item = Id> + use<'_> {
        self.of.get(&client).into_iter().flat_map(|share| share.ids.keys().copied())
    }

    fn add(&mut self, client: Client, id: Id, amount: usize) {
        let share = self.of.entry(client).or_default();
        self.by_amount.remove(&(share.amount, client));
        *share.ids.entry(id).or_default() += amount;
        share.amount += amount;
        self.total += amount;
        self.by_amount.insert((share.amount, client));
    }

    fn remove(&mut self, client: Client, id: Id) -> usize {
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
}
