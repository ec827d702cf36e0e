//! BGPPeers: shows in the status which nodes have a session with the router, as their speakers report it.

use super::{Amend, Parts, StatusKind};
use crate::controller::shown::Shown;
use crate::watch::Seen;
use bowline_api::bgp_peer::{BGPPeer, BGPPeerStatus, PeerNode};
use bowline_core::key::ObjectKey;
use bowline_core::report::speaker::Session;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::api::Api;
use serde_json::json;
use std::sync::Arc;

/// The most nodes that the status names of each kind.
const MOST_NAMED: usize = 5;
/// The longest reason.
const LONGEST_MESSAGE: usize = 1024;

impl StatusKind for BGPPeer {
    type Shown = BGPPeerStatus;
    const NAME: &'static str = "BGPPeer";

    fn api(client: Client, _: &ObjectKey) -> Api<Self> {
        Api::all(client)
    }

    fn shown(&self) -> BGPPeerStatus {
        self.status.clone().unwrap_or_default()
    }

    /// Speakers read BGPPeers themselves.
    fn observe(_: Seen<&BGPPeerStatus>, _: &mut Parts<'_>) {}

    fn next(
        key: &ObjectKey,
        shown: &Shown<BGPPeerStatus>,
        parts: &mut Parts<'_>,
        _: Timestamp,
    ) -> Option<Amend> {
        let status = status(parts.speakers.sessions(&key.name));
        // A merge patch removes a list only by null.
        let list = |nodes: &Vec<PeerNode>| (!nodes.is_empty()).then(|| json!(nodes));
        (status != shown.status).then(|| {
            Amend::Status(json!({
                "up": status.up, "down": status.down,
                "upNodes": list(&status.up_nodes), "downNodes": list(&status.down_nodes),
            }))
        })
    }
}

fn status<'a>(sessions: impl Iterator<Item = (&'a Arc<str>, &'a Session)>) -> BGPPeerStatus {
    let mut status = BGPPeerStatus::default();
    for (node, session) in sessions {
        let (count, nodes) = match session.up {
            true => (&mut status.up, &mut status.up_nodes),
            false => (&mut status.down, &mut status.down_nodes),
        };
        *count = count.saturating_add(1);
        if nodes.len() < MOST_NAMED {
            let message = session.reason.as_deref();
            nodes.push(PeerNode {
                node: node.to_string(),
                routes: i32::try_from(session.routes).unwrap_or(i32::MAX),
                message: message.map(|it| it.chars().take(LONGEST_MESSAGE).collect()),
            });
        }
    }
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_nodes_are_counted_and_the_first_are_named() {
        let session = |up| Session { up, routes: 3, reason: (!up).then(|| "refused".into()) };
        let names: Vec<Arc<str>> = (0..8).map(|n| format!("n{n}").into()).collect();
        let sessions: Vec<_> = names.iter().map(|name| (name, session(**name != *"n7"))).collect();
        let status = status(sessions.iter().map(|(name, session)| (*name, session)));
        assert_eq!((status.up, status.down), (7, 1));
        let named: Vec<_> = status.up_nodes.iter().map(|it| it.node.as_str()).collect();
        assert_eq!(named, ["n0", "n1", "n2", "n3", "n4"]);
        let down =
            PeerNode { node: "n7".to_owned(), routes: 3, message: Some("refused".to_owned()) };
        assert_eq!(status.down_nodes, [down]);
    }
}
