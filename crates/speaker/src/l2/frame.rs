//! ARP and neighbour discovery (NDP) as a speaker uses them: frames of other hosts become a value or are refused, and
//! values become frames. It decides nothing. A claim says that a host has an address, a question asks which host has it.

use etherparse::icmpv6::{
    Icmpv6PayloadSlice, NdpOptionSlice, NdpOptionsIterator, NeighborAdvertisementHeader,
    NeighborAdvertisementPayload, NeighborSolicitationPayload,
};
use etherparse::{
    ArpEthIpv4Packet, ArpOperation, ArpPacketSlice, EtherType, Ethernet2Header, Icmpv6Header,
    Icmpv6Slice, Icmpv6Type, IpNumber, Ipv6Header,
};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The Ethernet address of an interface.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// Every interface of the link.
    const BROADCAST: Self = Self([0xff; 6]);

    /// Whether one interface can have it.
    pub fn is_unicast(self) -> bool {
        self.0[0] & 1 == 0 && self.0 != [0; 6]
    }

    /// The interfaces that are members of an IPv6 group (RFC 2464).
    fn of_group(group: Ipv6Addr) -> Self {
        let [.., a, b, c, d] = group.octets();
        Self([0x33, 0x33, a, b, c, d])
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What a frame says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame {
    /// A host asks which host has an address.
    Question(Question),
    /// A host says that it has an address.
    Claim {
        /// The address.
        address: IpAddr,
        /// Its interface.
        mac: Mac,
    },
}

/// A host asks which host has an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question {
    /// The address.
    pub address: IpAddr,
    /// The interface of the host that asks.
    pub mac: Mac,
    /// The address of the host that asks. A host that wants to know whether an address is free, before it uses it, has
    /// none: the question is a probe (RFC 5227), or a duplicate address detection (RFC 4862).
    pub asker: Option<IpAddr>,
}

/// Why a frame is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// It is shorter than its headers say.
    #[error("the frame is cut")]
    Cut,
    /// It is of another protocol, or another kind of message.
    #[error("neither ARP for IPv4 nor a neighbour solicitation or advertisement")]
    Other,
    /// It came through a router, or claims so.
    #[error("the hop limit is not 255")]
    HopLimit,
    /// Its bytes changed on the way.
    #[error("the checksum is wrong")]
    Checksum,
    /// What it says cannot be so: a group as an address, a message that the RFC forbids.
    #[error("the message contradicts RFC 826 or RFC 4861")]
    Nonsense,
}

/// Reads a frame.
pub fn parse(bytes: &[u8]) -> Result<Frame, Refused> {
    let (ethernet, payload) = Ethernet2Header::from_slice(bytes).map_err(|_| Refused::Cut)?;
    let source = Mac(ethernet.source);
    if !source.is_unicast() {
        return Err(Refused::Nonsense);
    }
    match ethernet.ether_type {
        EtherType::ARP => parse_arp(payload),
        EtherType::IPV6 => parse_ndp(source, payload),
        _ => Err(Refused::Other),
    }
}

fn parse_arp(payload: &[u8]) -> Result<Frame, Refused> {
    let arp = ArpPacketSlice::from_slice(payload).map_err(|_| Refused::Cut)?;
    let arp = arp.to_packet().try_eth_ipv4().map_err(|_| Refused::Other)?;
    let (mac, sender, target) =
        (Mac(arp.sender_mac), arp.sender_ipv4_addr(), arp.target_ipv4_addr());
    if !mac.is_unicast() {
        return Err(Refused::Nonsense);
    }
    match arp.operation {
        ArpOperation::REPLY if is_host4(sender) => Ok(Frame::Claim { address: sender.into(), mac }),
        ArpOperation::REQUEST if !is_host4(target) => Err(Refused::Nonsense),
        ArpOperation::REQUEST if sender == target => {
            Ok(Frame::Claim { address: sender.into(), mac })
        }
        ArpOperation::REQUEST if sender.is_unspecified() => {
            Ok(Frame::Question(Question { address: target.into(), mac, asker: None }))
        }
        ArpOperation::REQUEST if is_host4(sender) => Ok(Frame::Question(Question {
            address: target.into(),
            mac,
            asker: Some(sender.into()),
        })),
        ArpOperation::REPLY | ArpOperation::REQUEST => Err(Refused::Nonsense),
        _ => Err(Refused::Other),
    }
}

fn is_host4(address: Ipv4Addr) -> bool {
    !(address.is_unspecified() || address.is_multicast() || address.is_broadcast())
}

fn is_host6(address: Ipv6Addr) -> bool {
    !(address.is_unspecified() || address.is_multicast())
}

/// Checks what RFC 4861 (7.1.1 and 7.1.2) demands of a receiver.
fn parse_ndp(source: Mac, payload: &[u8]) -> Result<Frame, Refused> {
    let (ip, rest) = Ipv6Header::from_slice(payload).map_err(|_| Refused::Cut)?;
    // Extension headers have no use here, and are an old way past filters.
    if ip.next_header != IpNumber::IPV6_ICMP {
        return Err(Refused::Other);
    }
    let message = rest.get(..usize::from(ip.payload_length)).ok_or(Refused::Cut)?;
    let message = Icmpv6Slice::from_slice(message).map_err(|_| Refused::Cut)?;
    let kind = message.icmp_type();
    if !matches!(kind, Icmpv6Type::NeighborSolicitation | Icmpv6Type::NeighborAdvertisement(_)) {
        return Err(Refused::Other);
    }
    if ip.hop_limit != 255 {
        return Err(Refused::HopLimit);
    }
    if !message.is_checksum_valid(ip.source, ip.destination) {
        return Err(Refused::Checksum);
    }
    let (from, to) = (ip.source_addr(), ip.destination_addr());
    match (kind, message.payload_slice().map_err(|_| Refused::Cut)?) {
        (_, Icmpv6PayloadSlice::NeighborSolicitation(it)) => {
            let address = it.target_address();
            let option = link_layer_address(it.options_iterator())?;
            if !is_host6(address) || from.is_multicast() {
                return Err(Refused::Nonsense);
            }
            if !from.is_unspecified() {
                let (mac, asker) = (option.unwrap_or(source), Some(from.into()));
                return Ok(Frame::Question(Question { address: address.into(), mac, asker }));
            }
            if to != solicited_node(address) || option.is_some() {
                return Err(Refused::Nonsense);
            }
            Ok(Frame::Question(Question { address: address.into(), mac: source, asker: None }))
        }
        (
            Icmpv6Type::NeighborAdvertisement(flags),
            Icmpv6PayloadSlice::NeighborAdvertisement(it),
        ) => {
            let address = it.target_address();
            let mac = link_layer_address(it.options_iterator())?.unwrap_or(source);
            if !is_host6(address) || (to.is_multicast() && flags.solicited) {
                return Err(Refused::Nonsense);
            }
            Ok(Frame::Claim { address: address.into(), mac })
        }
        _ => Err(Refused::Other),
    }
}

/// The address in the option of a message, of which there is at most one kind that fits it.
fn link_layer_address(options: NdpOptionsIterator<'_>) -> Result<Option<Mac>, Refused> {
    let mut found = None;
    for option in options {
        let bytes = match option.map_err(|_| Refused::Nonsense)? {
            NdpOptionSlice::SourceLinkLayerAddress(it) => it.link_layer_address(),
            NdpOptionSlice::TargetLinkLayerAddress(it) => it.link_layer_address(),
            _ => continue,
        };
        let mac = Mac(bytes.try_into().map_err(|_| Refused::Nonsense)?);
        if !mac.is_unicast() {
            return Err(Refused::Nonsense);
        }
        found = Some(mac);
    }
    Ok(found)
}

/// The group in which questions for an IPv6 address arrive (RFC 4291).
pub fn solicited_node(address: Ipv6Addr) -> Ipv6Addr {
    let [.., a, b, c] = address.octets();
    Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | u16::from(a), u16::from_be_bytes([b, c]))
}

const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// The answer to a question, from the interface `mac`: it has the address.
pub fn answer(mac: Mac, question: &Question) -> Vec<u8> {
    match (question.address, question.asker) {
        (IpAddr::V4(address), asker) => {
            let asker = match asker {
                Some(IpAddr::V4(it)) => it,
                _ => Ipv4Addr::UNSPECIFIED,
            };
            let target = (question.mac, asker);
            arp(question.mac, ArpOperation::REPLY, (mac, address), target)
        }
        (IpAddr::V6(address), Some(IpAddr::V6(asker))) => {
            advertisement(mac, address, (question.mac, asker), true)
        }
        // The host that asks has no address yet, so all nodes are told (RFC 4861, 7.2.4).
        (IpAddr::V6(address), _) => unsolicited(mac, address),
    }
}

/// The answer to a question, from the interface `mac`: the interface `has` of another host has the address. The frame comes
/// from where it is sent, so that switches learn nothing wrong.
pub fn answer_for(mac: Mac, has: Mac, question: &Question) -> Vec<u8> {
    let mut frame = answer(has, question);
    if let Some(source) = frame.get_mut(6..12) {
        source.copy_from_slice(&mac.0);
    }
    frame
}

/// Tells every host of the link that the interface `mac` has the address: for IPv4 as request and as reply, because
/// there are hosts that take only one of these into their tables.
pub fn announcement(mac: Mac, address: IpAddr) -> Vec<Vec<u8>> {
    match address {
        IpAddr::V4(address) => {
            let own = (mac, address);
            let reply = arp(Mac::BROADCAST, ArpOperation::REPLY, own, (Mac::BROADCAST, address));
            vec![arp(Mac::BROADCAST, ArpOperation::REQUEST, own, (Mac([0; 6]), address)), reply]
        }
        IpAddr::V6(address) => vec![unsolicited(mac, address)],
    }
}

/// Asks, from the interface `mac`, whether a host has the address, without a claim to it.
pub fn probe(mac: Mac, address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => {
            let own = (mac, Ipv4Addr::UNSPECIFIED);
            arp(Mac::BROADCAST, ArpOperation::REQUEST, own, (Mac([0; 6]), address))
        }
        IpAddr::V6(address) => {
            let group = solicited_node(address);
            let payload = NeighborSolicitationPayload { target_address: address }.to_bytes();
            let to = (Mac::of_group(group), group);
            ndp(mac, Ipv6Addr::UNSPECIFIED, to, Icmpv6Type::NeighborSolicitation, &payload)
        }
    }
}

fn arp(
    to: Mac,
    operation: ArpOperation,
    sender: (Mac, Ipv4Addr),
    target: (Mac, Ipv4Addr),
) -> Vec<u8> {
    let packet = ArpEthIpv4Packet {
        operation,
        sender_mac: sender.0.0,
        sender_ipv4: sender.1.octets(),
        target_mac: target.0.0,
        target_ipv4: target.1.octets(),
    };
    let mut frame = ethernet(to, sender.0, EtherType::ARP);
    frame.extend(packet.to_bytes());
    frame
}

fn unsolicited(mac: Mac, address: Ipv6Addr) -> Vec<u8> {
    advertisement(mac, address, (Mac::of_group(ALL_NODES), ALL_NODES), false)
}

fn advertisement(mac: Mac, address: Ipv6Addr, to: (Mac, Ipv6Addr), solicited: bool) -> Vec<u8> {
    let flags = NeighborAdvertisementHeader { router: false, solicited, r#override: true };
    let mut payload = NeighborAdvertisementPayload { target_address: address }.to_bytes().to_vec();
    // Type 2, target link-layer address; length 1, in units of eight bytes.
    payload.extend([2, 1]);
    payload.extend(mac.0);
    ndp(mac, address, to, Icmpv6Type::NeighborAdvertisement(flags), &payload)
}

fn ndp(
    mac: Mac,
    from: Ipv6Addr,
    (to_mac, to): (Mac, Ipv6Addr),
    kind: Icmpv6Type,
    payload: &[u8],
) -> Vec<u8> {
    let mut message = Icmpv6Header::new(kind);
    // It fails only for messages longer than 4 GiB.
    let _ = message.update_checksum(from.octets(), to.octets(), payload);
    let message = message.to_bytes();
    let ip = Ipv6Header {
        payload_length: (message.len() + payload.len()) as u16,
        next_header: IpNumber::IPV6_ICMP,
        hop_limit: 255,
        source: from.octets(),
        destination: to.octets(),
        ..Ipv6Header::default()
    };
    let mut frame = ethernet(to_mac, mac, EtherType::IPV6);
    frame.extend(ip.to_bytes());
    frame.extend(message);
    frame.extend(payload);
    frame
}

fn ethernet(to: Mac, from: Mac, ether_type: EtherType) -> Vec<u8> {
    Ethernet2Header { destination: to.0, source: from.0, ether_type }.to_bytes().to_vec()
}

#[cfg(test)]
mod tests;
