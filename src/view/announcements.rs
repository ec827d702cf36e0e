//! Which addresses are announced to the network, from which nodes and to which routers, and why the others are not:
//! what `bowline status --announcements` prints. Speakers say what they announce; the reasons are decided by the same
//! machine that decides in a speaker. Pure.

use super::View;
use super::status_text::notes;
use super::words::{bullet, columns};
use bowline_api::address::address_of_name;
use bowline_api::{Address, AddressPool, Advertisement, BGPPeer, convert};
use bowline_core::ObjectKey;
use bowline_core::announce::{self, Event, Kind, Listening, Object, WhyNot};
use bowline_core::outcome::{Problem, Reason, quote};
use bowline_core::report::speaker::SpeakerReport;
use k8s_openapi::api::core::v1::{self, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

/// The objects that decide what is announced, and what speakers report.
#[derive(Clone, Debug, Default)]
pub(crate) struct AnnouncementLists {
    pub(crate) addresses: Vec<Address>,
    pub(crate) advertisements: Vec<Advertisement>,
    pub(crate) peers: Vec<BGPPeer>,
    pub(crate) pools: Vec<AddressPool>,
    pub(crate) nodes: Vec<v1::Node>,
    pub(crate) services: Vec<Service>,
    pub(crate) slices: Vec<EndpointSlice>,
    /// Of the speakers that live.
    pub(crate) reports: Vec<SpeakerReport>,
    pub(crate) notes: Vec<String>,
}

/// All addresses and sessions.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AnnouncementsView {
    sessions: Vec<SessionView>,
    addresses: Vec<AnnouncedView>,
    /// What speakers say that does not work on their nodes.
    troubles: Vec<TroubleView>,
    notes: Vec<String>,
}

/// What does not work on a node.
#[derive(Debug, PartialEq, Serialize)]
struct TroubleView {
    node: Arc<str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<IpAddr>,
    message: Arc<str>,
}

impl TroubleView {
    fn of(report: &SpeakerReport) -> impl Iterator<Item = Self> {
        let view = |address, message| Self { node: report.node.clone(), address, message };
        let links = &report.links;
        let conflicts = links.conflicts.iter().map(move |(address, host)| {
            let message = format!(
                "host {host} claims {address} and is no speaker of this cluster; the node leaves the address alone \
                 while the host answers"
            );
            view(Some(*address), message.into())
        });
        let troubles = links.troubles.iter().map(move |trouble| view(None, trouble.clone()));
        conflicts.chain(troubles)
    }
}

/// The session of a node with a BGPPeer.
#[derive(Debug, PartialEq, Serialize)]
struct SessionView {
    peer: Arc<str>,
    node: Arc<str>,
    up: bool,
    routes: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<Arc<str>>,
}

/// An address.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct AnnouncedView {
    pub(super) address: IpAddr,
    /// The node that owns it on its links.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) owner: Option<Arc<str>>,
    /// The nodes that announce it by BGP, each with the peers that are told.
    pub(super) bgp: BTreeMap<Arc<str>, Vec<Arc<str>>>,
    /// Why no node announces it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) problem: Option<ProblemView>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct ProblemView {
    pub(super) reason: Reason,
    pub(super) message: Arc<str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) remedy: Option<&'static str>,
}

impl AnnouncementsView {
    /// Builds the view, sorted by peer and by address.
    pub(crate) fn of(lists: &AnnouncementLists) -> Self {
        let mut sessions: Vec<_> = lists
            .reports
            .iter()
            .flat_map(|report| {
                report.sessions.iter().map(|(peer, session)| SessionView {
                    peer: peer.clone(),
                    node: report.node.clone(),
                    up: session.up,
                    routes: session.routes,
                    message: session.reason.clone(),
                })
            })
            .collect();
        sessions.sort_by(|one, other| (&one.peer, &one.node).cmp(&(&other.peer, &other.node)));
        // Speakers also announce addresses of load balancers that no Address object records.
        let mut addresses = lists.recorded();
        for report in &lists.reports {
            addresses.extend(report.by_bgp().map(|(address, _)| address).chain(report.owned()));
        }
        let addresses = announced(addresses, &lists.reports, &lists.objects(), &Own::new());
        let troubles = lists.reports.iter().flat_map(TroubleView::of).collect();
        Self { sessions, addresses, troubles, notes: lists.notes.clone() }
    }
}

/// Addresses that no Address object records, with the load balancers whose own they are.
pub(super) type Own = BTreeMap<IpAddr, BTreeSet<Arc<str>>>;

/// Where these addresses are announced. `objects` are those that decide about them.
pub(super) fn announced(
    addresses: BTreeSet<IpAddr>,
    reports: &[SpeakerReport],
    objects: &[Object],
    own: &Own,
) -> Vec<AnnouncedView> {
    let view = |address| {
        let view = AnnouncedView { address, owner: None, bgp: BTreeMap::new(), problem: None };
        (address, view)
    };
    let mut views: BTreeMap<IpAddr, AnnouncedView> = addresses.into_iter().map(view).collect();
    for report in reports {
        for (address, peers) in report.by_bgp() {
            if let Some(view) = views.get_mut(&address) {
                view.bgp.insert(report.node.clone(), peers.to_vec());
            }
        }
        for address in report.owned() {
            if let Some(view) = views.get_mut(&address) {
                view.owner = Some(report.node.clone());
            }
        }
    }
    let silent = |it: &AnnouncedView| it.bgp.is_empty() && it.owner.is_none();
    if views.values().any(silent) {
        let mut nodes: Vec<_> = reports.iter().map(|it| Node::of(it, objects, own)).collect();
        for view in views.values_mut().filter(|it| silent(it)) {
            view.problem = Some(why(view.address, &mut nodes));
        }
    }
    views.into_values().collect()
}

/// A node with a speaker: its report, and the machine that decides as the speaker does.
struct Node<'a> {
    report: &'a SpeakerReport,
    machine: announce::Announcements,
    own: &'a Own,
}

impl<'a> Node<'a> {
    fn of(report: &'a SpeakerReport, objects: &[Object], own: &'a Own) -> Self {
        let mut machine = announce::Announcements::new(report.node.clone());
        objects.iter().cloned().for_each(|object| machine.handle(Event::Apply(object)));
        Kind::ALL.into_iter().for_each(|kind| machine.handle(Event::Done(kind)));
        machine.take();
        Self { report, machine, own }
    }

    /// All agents that the speaker hears have this address open, or none.
    fn hear(&mut self, open: Option<IpAddr>) {
        let own = open.and_then(|address| self.own.get(&address));
        let has = |agent: &&Arc<str>| own.is_none_or(|of| of.contains(*agent));
        for agent in self.report.agents.iter().filter(|it| open.is_none() || has(it)) {
            let listening = || Listening { open: true, ..Listening::default() };
            let open = open.map(|address| BTreeMap::from([(address, listening())]));
            self.machine.handle(Event::Agent(agent.clone(), open));
        }
        self.machine.handle(Event::Present(open.into_iter().collect()));
        self.machine.take();
    }

    /// Why it does not announce an address.
    fn why(&mut self, address: IpAddr) -> Option<(Option<WhyNot>, Problem)> {
        let unserved = match self.machine.announced(address) {
            Some(it) => it.why,
            None if self.own.contains_key(&address) => None,
            None => return None,
        };
        // What agents have open is known from what their speaker does: where it tells peers, they are open.
        self.hear(Some(address));
        let served = self.machine.announced(address).map(|it| it.why);
        self.hear(None);
        let node = &self.report.node;
        let Some(served) = served else {
            let load_balancers: Vec<_> =
                self.own.get(&address).into_iter().flatten().map(|it| quote(it)).collect();
            let message = format!(
                "node {} does not serve {address}: no agent of load balancer {} on it has the address",
                quote(node),
                load_balancers.join(", ")
            );
            return Some((Some(WhyNot::NotServed), Problem::new(Reason::NotServed, message)));
        };
        Some(match (served, unserved) {
            (Some((why, problem)), _) => (Some(why), problem),
            (None, _) if self.report.tells(address) => {
                let message =
                    format!("no session with a peer that is told {address} is established");
                (None, Problem::new(Reason::SessionsDown, message))
            }
            (None, Some((why, problem))) => (Some(why), problem),
            (None, None) => {
                let message = format!(
                    "the speaker of node {} does not announce {address}: no endpoint there, as kube-proxy says, or \
                     another node has it",
                    quote(node)
                );
                (Some(WhyNot::NotServed), Problem::new(Reason::NotServed, message))
            }
        })
    }
}

impl AnnouncementLists {
    /// The addresses that are recorded.
    fn recorded(&self) -> BTreeSet<IpAddr> {
        let names = self.addresses.iter().filter_map(|it| it.metadata.name.as_deref());
        names.filter_map(address_of_name).collect()
    }

    /// All that decides about announcements.
    pub(super) fn objects(&self) -> Vec<Object> {
        let addresses = self
            .addresses
            .iter()
            .filter_map(|it| Some(Object::Address(convert::record(it)?, convert::announcing(it))));
        let advertisements = self
            .advertisements
            .iter()
            .filter_map(|it| Some(Object::Advertisement(convert::advertisement(it).ok()?.into())));
        let peers = self
            .peers
            .iter()
            .filter_map(|it| Some(Object::Peer(convert::bgp_peer(it).ok()?.into())));
        let pools = self.pools.iter().map(|it| {
            let (name, labels) = convert::pool_labels(it);
            Object::Pool(name, labels)
        });
        let nodes = self.nodes.iter().map(|it| Object::Node(convert::speaker_node(it)));
        let services = self.services.iter().map(|it| {
            let (key, mut service): (ObjectKey, _) = convert::announced_service(it);
            // What kube-proxy says on a node is not known here.
            service.health_check_port = None;
            Object::Service(key, service)
        });
        let slices = self.slices.iter().map(|it| Object::Slice(convert::slice(it)));
        addresses
            .chain(advertisements)
            .chain(peers)
            .chain(pools)
            .chain(nodes)
            .chain(services)
            .chain(slices)
            .collect()
    }
}

/// Why no node announces an address: the reason of the node that is nearest to it.
fn why(address: IpAddr, nodes: &mut [Node<'_>]) -> ProblemView {
    let nearest = nodes
        .iter_mut()
        .filter_map(|node| node.why(address))
        .max_by_key(|(why, _)| why.map_or((1, WhyNot::NoPeer), |why| (0, why)));
    let problem = nearest.map(|(_, problem)| problem).unwrap_or_else(|| {
        Problem::new(Reason::NoSpeaker, format!("no speaker runs that could announce {address}"))
    });
    ProblemView {
        reason: problem.reason,
        message: problem.message,
        remedy: problem.reason.remedy().map(|it| it.what),
    }
}

impl View for AnnouncementsView {
    fn kind(&self) -> &'static str {
        "Announcements"
    }

    fn text(&self) -> String {
        let mut out = String::new();
        let mut rows = vec![["ADDRESS", "BY", "NODES", "PEERS"].map(str::to_owned).to_vec()];
        for view in &self.addresses {
            let by = match (&view.owner, view.bgp.is_empty()) {
                (Some(_), false) => "L2, BGP",
                (Some(_), true) => "L2",
                (None, false) => "BGP",
                (None, true) => "-",
            };
            let nodes: BTreeSet<&Arc<str>> = view.owner.iter().chain(view.bgp.keys()).collect();
            let peers: BTreeSet<&Arc<str>> = view.bgp.values().flatten().collect();
            rows.push(vec![
                view.address.to_string(),
                by.to_owned(),
                listed(&nodes),
                listed(&peers),
            ]);
        }
        match self.addresses.is_empty() {
            true => out.push_str("No address is held.\n"),
            false => out.push_str(&columns(&rows, "")),
        }
        if !self.sessions.is_empty() {
            let mut rows = vec![["PEER", "NODE", "SESSION", "ROUTES"].map(str::to_owned).to_vec()];
            rows.extend(self.sessions.iter().map(|it| {
                let state = if it.up { "up" } else { "down" };
                vec![
                    it.peer.to_string(),
                    it.node.to_string(),
                    state.to_owned(),
                    it.routes.to_string(),
                ]
            }));
            out.push('\n');
            out.push_str(&columns(&rows, ""));
        }
        let silent: Vec<_> = self.addresses.iter().filter_map(|it| it.problem.as_ref()).collect();
        let broken = self.sessions.iter().filter_map(|it| {
            let message = it.message.as_deref()?;
            Some(format!("BGPPeer {} at node {}: {message}", it.peer, it.node))
        });
        let troubles = self.troubles.iter().map(|it| format!("node {}: {}", it.node, it.message));
        let broken: Vec<_> = broken.chain(troubles).collect();
        if !silent.is_empty() || !broken.is_empty() {
            out.push_str("\nProblems:\n");
        }
        for problem in silent {
            bullet(&mut out, "  - ", &format!("{}: {}", problem.reason, problem.message));
            if let Some(remedy) = problem.remedy {
                bullet(&mut out, "    ", remedy);
            }
        }
        for message in broken {
            bullet(&mut out, "  - ", &message);
        }
        notes(&mut out, &self.notes);
        out
    }
}

/// The first names, and how many more there are.
fn listed(names: &BTreeSet<&Arc<str>>) -> String {
    const MOST: usize = 5;
    if names.is_empty() {
        return "-".to_owned();
    }
    let mut all: Vec<String> = names.iter().take(MOST).map(ToString::to_string).collect();
    let more = names.len().saturating_sub(MOST);
    all.extend((more > 0).then(|| format!("{more} more")));
    all.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use bowline_core::report::speaker::Session;
    use serde_json::{Value, json};

    fn object<T: serde::de::DeserializeOwned>(value: Value) -> T {
        serde_json::from_value(value).expect("an object")
    }

    fn address(address: &str, pool: &str) -> Address {
        object(json!({
            "apiVersion": "bowline.dev/v1alpha1", "kind": "Address",
            "metadata": {"name": address},
            "spec": {"pool": pool, "holders": [
                {"kind": "Service", "namespace": "shop", "name": "web", "uid": "1"},
            ]},
        }))
    }

    fn lists(up: bool) -> AnnouncementLists {
        let session = Session { up, routes: 1, reason: (!up).then(|| "refused".into()) };
        let told = [("192.0.2.1".parse().expect("an address"), ["tor".into()].into())];
        let sessions = [("tor".into(), session)].into();
        let kind = |kind: &str, name: &str, spec: Value| {
            json!({
                "apiVersion": "bowline.dev/v1alpha1", "kind": kind, "metadata": {"name": name},
                "spec": spec,
            })
        };
        AnnouncementLists {
            addresses: vec![address("192.0.2.1", "public"), address("192.0.2.2", "other")],
            advertisements: vec![object(kind(
                "Advertisement",
                "public",
                json!({"addressPools": ["public"], "bgp": {}}),
            ))],
            peers: vec![object(kind(
                "BGPPeer",
                "tor",
                json!({"peerAddress": "192.0.2.254", "peerASN": 1, "myASN": 2}),
            ))],
            services: vec![object(json!({"metadata": {"namespace": "shop", "name": "web"}}))],
            slices: vec![object(json!({
                "metadata": {
                    "namespace": "shop", "name": "web-1",
                    "labels": {"kubernetes.io/service-name": "web"},
                },
                "addressType": "IPv4",
                "endpoints": [{"addresses": ["10.0.0.1"], "conditions": {"ready": true}}],
            }))],
            reports: vec![SpeakerReport::new("a".into(), "1".into(), sessions, told, [])],
            ..AnnouncementLists::default()
        }
    }

    #[test]
    fn each_address_is_shown_with_nodes_and_peers_or_with_the_reason() {
        let text = AnnouncementsView::of(&lists(true)).text();
        assert!(text.contains("192.0.2.1  BGP  a      tor"), "{text}");
        assert!(text.contains("NotAdvertised: no Advertisement covers 192.0.2.2"), "{text}");
        assert!(text.contains("create an Advertisement"), "{text}");
        assert!(!text.contains("SessionsDown"), "{text}");
    }

    #[test]
    fn a_session_that_is_down_is_a_reason() {
        let text = AnnouncementsView::of(&lists(false)).text();
        assert!(
            text.contains("SessionsDown: no session with a peer that is told 192.0.2.1"),
            "{text}"
        );
        assert!(text.contains("BGPPeer tor at node a: refused"), "{text}");
    }

    #[test]
    fn owners_on_links_are_shown_and_what_speakers_say_does_not_work() {
        use bowline_core::report::speaker::OnLinks;
        let address: IpAddr = [192, 0, 2, 1].into();
        let links = OnLinks {
            conflicts: [([192, 0, 2, 2].into(), "02:00:00:00:99:99".into())].into(),
            troubles: vec!["nft is missing".into()],
            ..OnLinks::default()
        };
        let owner = SpeakerReport::new("b".into(), "1".into(), [].into(), [], [address]);
        let mut lists = lists(true);
        lists.reports.push(owner.on_links(links));
        let text = AnnouncementsView::of(&lists).text();
        assert!(text.contains("192.0.2.1  L2, BGP  a, b   tor"), "{text}");
        assert!(text.contains("node b: host 02:00:00:00:99:99 claims 192.0.2.2"), "{text}");
        assert!(text.contains("node b: nft is missing"), "{text}");
    }

    #[test]
    fn without_a_speaker_nothing_is_announced() {
        let lists = AnnouncementLists { reports: Vec::new(), ..lists(true) };
        let text = AnnouncementsView::of(&lists).text();
        assert!(
            text.contains("NoSpeaker: no speaker runs that could announce 192.0.2.1"),
            "{text}"
        );
    }
}
