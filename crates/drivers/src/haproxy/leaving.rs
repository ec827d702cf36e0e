//! Retired servers that HAProxy still has; namespaces take turns. Each server is tried for removal until it has no
//! connections. A sweep tries some of them, so a namespace with thousands of them does not delay others. Pure; the
//! HAProxy driver sweeps.

use super::text::Word;
use bowline_core::fair_queue::Queue;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::time::Instant;

/// A server, by its backend and address.
pub(super) type Server = (Word, SocketAddr);

/// The retired servers.
#[derive(Clone, Debug, Default)]
pub(super) struct Leaving {
    /// The time until which its connections may live, and its namespace.
    ends: BTreeMap<Server, (Instant, Arc<str>)>,
    queue: Queue<Arc<str>, Server>,
}

impl Leaving {
    /// Adds a retired server whose connections may live until `ends`. A server that is here already keeps its place.
    pub(super) fn insert(&mut self, namespace: &Arc<str>, server: Server, ends: Instant) {
        if self.ends.insert(server.clone(), (ends, namespace.clone())).is_none() {
            self.queue.insert(namespace, 0, server);
        }
    }

    /// Forgets a server that is removed or takes traffic again.
    pub(super) fn remove(&mut self, server: &Server) {
        if let Some((_, namespace)) = self.ends.remove(server) {
            self.queue.remove(&namespace, server);
        }
    }

    pub(super) fn contains(&self, server: &Server) -> bool {
        self.ends.contains_key(server)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// The next servers to try for removal, each with the time until which its connections may live. Each of them then
    /// goes to the end of its namespace's queue.
    pub(super) fn next(&mut self, most: usize) -> Vec<(Server, Instant)> {
        let popped: Vec<_> = std::iter::from_fn(|| self.queue.pop()).take(most).collect();
        for (namespace, server) in &popped {
            self.queue.insert(namespace, 0, server.clone());
        }
        let end = |server: Server| self.ends.get(&server).map(|(ends, _)| (server.clone(), *ends));
        popped.into_iter().filter_map(|(_, server)| end(server)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn server(name: &str, n: u16) -> Server {
        (Word::name(name).unwrap(), ([10, 0, 0, 1], n).into())
    }

    #[test]
    fn a_server_of_another_namespace_is_judged_at_once_however_many_of_one_leave() {
        let (mut leaving, now) = (Leaving::default(), Instant::now());
        for n in 0..5_000 {
            leaving.insert(&"evil".into(), server("evil", n), now);
        }
        leaving.next(1_000);
        leaving.insert(&"shop".into(), server("shop", 1), now);
        let judged = leaving.next(1_000);
        assert_eq!(judged.len(), 1_000);
        assert!(judged.contains(&(server("shop", 1), now)));
    }

    #[test]
    fn every_server_has_its_turn_though_others_cannot_be_removed() {
        let (mut leaving, now) = (Leaving::default(), Instant::now());
        for n in 0..5_000 {
            leaving.insert(&"evil".into(), server("evil", n), now);
            leaving.insert(&"evil".into(), server("evil", n), now);
        }
        let mut judged = BTreeSet::new();
        for _ in 0..5 {
            judged.extend(leaving.next(1_000).into_iter().map(|(server, _)| server));
        }
        assert_eq!(judged.len(), 5_000);
        for server in judged {
            leaving.remove(&server);
        }
        assert!(leaving.is_empty() && leaving.next(1_000).is_empty());
    }
}
