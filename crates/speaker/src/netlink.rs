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
use netlink_sys::protocols::{NETLINK_NETFILTER, NETLINK_ROUTE};
use netlink_sys::{Socket, SocketAddr};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// Groups of news: links, addresses of IPv4, addresses of IPv6.
const GROUPS: [u32; 3] = [1, 5, 9];
/// The group of news of nftables.
const NFTABLES: u32 = 7;
/// A part of a dump carries this flag if what is dumped changed meanwhile: something may be missing.
const INTERRUPTED: u16 = 0x10;
/// How often a dump is begun again that others interrupt.
const DUMPS: usize = 20;

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
    let answers = dump(RouteNetlinkMessage::GetLink(LinkMessage::default()))?;
    let link = |it| match it {
        RouteNetlinkMessage::NewLink(link) => Some(link),
        _ => None,
    };
    Ok(answers.into_iter().filter_map(link).collect())
}

/// Every address of every interface.
pub(crate) fn addresses() -> io::Result<Vec<AddressMessage>> {
    let answers = dump(RouteNetlinkMessage::GetAddress(AddressMessage::default()))?;
    let address = |it| match it {
        RouteNetlinkMessage::NewAddress(address) => Some(address),
        _ => None,
    };
    Ok(answers.into_iter().filter_map(address).collect())
}

/// Every route of every table.
pub(crate) fn routes() -> io::Result<Vec<RouteMessage>> {
    let answers = dump(RouteNetlinkMessage::GetRoute(RouteMessage::default()))?;
    let route = |it| match it {
        RouteNetlinkMessage::NewRoute(route) => Some(route),
        _ => None,
    };
    Ok(answers.into_iter().filter_map(route).collect())
}

/// Every rule that chooses a routing table.
pub(crate) fn rules() -> io::Result<Vec<RuleMessage>> {
    let answers = dump(RouteNetlinkMessage::GetRule(RuleMessage::default()))?;
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

/// All of a kind, as it was at one moment.
fn dump(question: RouteNetlinkMessage) -> io::Result<Vec<RouteNetlinkMessage>> {
    let interrupted = |it: &io::Result<_>| {
        it.as_ref().is_err_and(|error: &io::Error| error.kind() == io::ErrorKind::Interrupted)
    };
    let mut dumps = (0..DUMPS).map(|_| exchange(question.clone(), NLM_F_DUMP));
    let whole = dumps.find(|it| !interrupted(it));
    whole.unwrap_or_else(|| Err(io::Error::other("what is read changes all the time")))
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
        if take(&bytes, &mut answers)? {
            return Ok(answers);
        }
    }
}

/// Takes the messages of one datagram. Whether these were the last.
fn take(bytes: &[u8], answers: &mut Vec<RouteNetlinkMessage>) -> io::Result<bool> {
    let mut rest = bytes;
    while let Some(length) = rest.first_chunk::<4>().map(|it| u32::from_ne_bytes(*it) as usize) {
        let Some(message) = rest.get(..length).filter(|_| length >= 16) else { break };
        if u16::from_ne_bytes([message[6], message[7]]) & INTERRUPTED != 0 {
            return Err(io::ErrorKind::Interrupted.into());
        }
        match NetlinkMessage::<RouteNetlinkMessage>::deserialize(message).map(|it| it.payload) {
            Ok(NetlinkPayload::Done(_)) => return Ok(true),
            Ok(NetlinkPayload::Error(error)) => {
                return match error.code {
                    Some(code) => Err(io::Error::from_raw_os_error(code.get().abs())),
                    None => Ok(true),
                };
            }
            Ok(NetlinkPayload::InnerMessage(message)) => answers.push(message),
            // A kind of interface that the library does not know: nothing that is asked for here.
            Ok(_) | Err(_) => {}
        }
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(false)
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

/// Tells that nftables rules in a table of this name changed, not which.
#[derive(Debug)]
pub(crate) struct RuleChanges {
    socket: Socket,
    /// The name as it is in messages.
    table: Vec<u8>,
}

impl RuleChanges {
    /// From now on. It takes CAP_NET_ADMIN.
    pub(crate) fn watch(table: &str) -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_NETFILTER)?;
        socket.bind_auto()?;
        socket.add_membership(NFTABLES)?;
        socket.set_non_blocking(true)?;
        let table = [table.as_bytes(), &[0]].concat();
        Ok(Self { socket, table })
    }

    /// Whether there were any since the last call.
    pub(crate) fn happened(&self) -> bool {
        let mut happened = false;
        let mut buffer = vec![0; 1 << 16];
        loop {
            match self.socket.recv(&mut buffer.as_mut_slice(), 0) {
                Ok(length) => {
                    let news = buffer.get(..length).unwrap_or_default();
                    happened |= news.windows(self.table.len()).any(|it| it == self.table);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return happened,
                // The queue was too short: news were lost.
                Err(_) => return true,
            }
        }
    }
}

impl AsFd for RuleChanges {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dump_that_was_interrupted_is_not_taken_for_whole() {
        let datagram = |flags| {
            let mut header = NetlinkHeader::default();
            header.flags = flags;
            let address = RouteNetlinkMessage::NewAddress(AddressMessage::default());
            let mut packet = NetlinkMessage::new(header, NetlinkPayload::from(address));
            packet.finalize();
            let mut bytes = vec![0; packet.buffer_len()];
            packet.serialize(&mut bytes);
            bytes
        };
        let mut answers = Vec::new();
        assert!(!take(&datagram(2), &mut answers).expect("a part"));
        assert_eq!(answers.len(), 1);
        let error = take(&datagram(2 | INTERRUPTED), &mut answers).expect_err("interrupted");
        assert_eq!(error.kind(), io::ErrorKind::Interrupted);
    }
}
