//! Questions and orders to the kernel over rtnetlink, and its news. Blocking, each on a socket of its own: the kernel
//! answers at once.

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage,
    NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::AddressMessage;
use netlink_packet_route::link::LinkMessage;
use netlink_packet_route::route::RouteMessage;
use netlink_packet_route::rule::RuleMessage;
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// Groups of news: links, addresses of IPv4, addresses of IPv6.
const GROUPS: [u32; 3] = [1, 5, 9];

/// What the kernel has, or what is done to it.
#[derive(Debug)]
pub(crate) enum Order {
    /// Add an address. That it is there already is an error.
    Add(AddressMessage),
    /// Remove an address.
    Remove(AddressMessage),
    /// Add a route. That it is there already is an error.
    AddRoute(RouteMessage),
    /// Remove a route.
    RemoveRoute(RouteMessage),
    /// Add a rule that chooses a routing table. That it is there already is an error.
    AddRule(RuleMessage),
    /// Remove a rule.
    RemoveRule(RuleMessage),
}

/// Every interface.
pub(crate) fn links() -> io::Result<Vec<LinkMessage>> {
    let question = RouteNetlinkMessage::GetLink(LinkMessage::default());
    let answers = exchange(question, NLM_F_DUMP)?;
    let link = |it| match it {
        RouteNetlinkMessage::NewLink(link) => Some(link),
        _ => None,
    };
    Ok(answers.into_iter().filter_map(link).collect())
}

/// Every address of every interface.
pub(crate) fn addresses() -> io::Result<Vec<AddressMessage>> {
    let question = RouteNetlinkMessage::GetAddress(AddressMessage::default());
    let answers = exchange(question, NLM_F_DUMP)?;
    let address = |it| match it {
        RouteNetlinkMessage::NewAddress(address) => Some(address),
        _ => None,
    };
    Ok(answers.into_iter().filter_map(address).collect())
}

/// Every route of every table.
pub(crate) fn routes() -> io::Result<Vec<RouteMessage>> {
    let question = RouteNetlinkMessage::GetRoute(RouteMessage::default());
    let answers = exchange(question, NLM_F_DUMP)?;
    let route = |it| match it {
        RouteNetlinkMessage::NewRoute(route) => Some(route),
        _ => None,
    };
    Ok(answers.into_iter().filter_map(route).collect())
}

/// Every rule that chooses a routing table.
pub(crate) fn rules() -> io::Result<Vec<RuleMessage>> {
    let question = RouteNetlinkMessage::GetRule(RuleMessage::default());
    let answers = exchange(question, NLM_F_DUMP)?;
    let rule = |it| match it {
        RouteNetlinkMessage::NewRule(rule) => Some(rule),
        _ => None,
    };
    Ok(answers.into_iter().filter_map(rule).collect())
}

/// Carries out an order.
pub(crate) fn carry_out(order: Order) -> io::Result<()> {
    let (message, flags) = match order {
        Order::Add(it) => (RouteNetlinkMessage::NewAddress(it), NLM_F_CREATE | NLM_F_EXCL),
        Order::Remove(it) => (RouteNetlinkMessage::DelAddress(it), 0),
        Order::AddRoute(it) => (RouteNetlinkMessage::NewRoute(it), NLM_F_CREATE | NLM_F_EXCL),
        Order::RemoveRoute(it) => (RouteNetlinkMessage::DelRoute(it), 0),
        Order::AddRule(it) => (RouteNetlinkMessage::NewRule(it), NLM_F_CREATE | NLM_F_EXCL),
        Order::RemoveRule(it) => (RouteNetlinkMessage::DelRule(it), 0),
    };
    exchange(message, flags | NLM_F_ACK).map(drop)
}

fn exchange(message: RouteNetlinkMessage, flags: u16) -> io::Result<Vec<RouteNetlinkMessage>> {
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | flags;
    header.sequence_number = 1;
    let mut packet = NetlinkMessage::new(header, NetlinkPayload::from(message));
    packet.finalize();
    let mut bytes = vec![0; packet.buffer_len()];
    packet.serialize(&mut bytes);
    socket.send(&bytes, 0)?;
    let mut answers = Vec::new();
    loop {
        let (bytes, _) = socket.recv_from_full()?;
        let mut rest = bytes.as_slice();
        while let Some(length) = rest.first_chunk::<4>().map(|it| u32::from_ne_bytes(*it) as usize)
        {
            let Some(message) = rest.get(..length).filter(|_| length >= 16) else { break };
            match NetlinkMessage::<RouteNetlinkMessage>::deserialize(message).map(|it| it.payload) {
                Ok(NetlinkPayload::Done(_)) => return Ok(answers),
                Ok(NetlinkPayload::Error(error)) => {
                    return match error.code {
                        Some(code) => Err(io::Error::from_raw_os_error(code.get().abs())),
                        None => Ok(answers),
                    };
                }
                Ok(NetlinkPayload::InnerMessage(message)) => answers.push(message),
                // A kind of interface that the library does not know: nothing that is asked for here.
                Ok(_) | Err(_) => {}
            }
            rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        }
    }
}

/// Tells that interfaces or addresses changed, not which.
#[derive(Debug)]
pub(crate) struct Changes(Socket);

impl Changes {
    /// From now on.
    pub(crate) fn watch() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        for group in GROUPS {
            socket.add_membership(group)?;
        }
        socket.set_non_blocking(true)?;
        Ok(Self(socket))
    }

    /// Whether there were any since the last call.
    pub(crate) fn happened(&self) -> bool {
        let mut happened = false;
        let mut buffer = [0; 8192];
        loop {
            match self.0.recv(&mut buffer.as_mut_slice(), 0) {
                Ok(_) => happened = true,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return happened,
                // The queue was too short: news were lost.
                Err(_) => return true,
            }
        }
    }
}

impl AsFd for Changes {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
