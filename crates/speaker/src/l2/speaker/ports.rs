//! The sockets of each link: packet sockets for ARP and NDP frames, and memberships in solicited-node groups.

use crate::l2::frame::{self, Frame, solicited_node};
use crate::l2::owners::Link;
use bowline_sys::{PacketSocket, Protocol};
use socket2::{Domain, SockFilter, Socket, Type};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::Ipv6Addr;
use std::num::NonZeroU32;
use std::os::fd::{AsFd, BorrowedFd};

/// How many frames of one socket are read before others get their turn.
const FRAMES_AT_ONCE: usize = 512;
/// How many groups a socket is a member of at most. The kernel limits the memory of each.
const GROUPS_PER_SOCKET: usize = 200;

/// Operations 1 and 2 of ARP: `ldh [20]; jeq #1, pass; jeq #2, pass; ret #0; pass: ret #65535`.
const ARP: [(u16, u8, u8, u32); 5] =
    [(0x28, 0, 0, 20), (0x15, 2, 0, 1), (0x15, 1, 0, 2), (0x06, 0, 0, 0), (0x06, 0, 0, 0xffff)];
/// ICMPv6 right after the header, of types 135 and 136: `ldb [20]; jeq #58, next, fail; next: ldb [54]; jeq #135, pass;
/// jeq #136, pass; fail: ret #0; pass: ret #65535`.
const NDP: [(u16, u8, u8, u32); 7] = [
    (0x30, 0, 0, 20),
    (0x15, 0, 3, 58),
    (0x30, 0, 0, 54),
    (0x15, 2, 0, 135),
    (0x15, 1, 0, 136),
    (0x06, 0, 0, 0),
    (0x06, 0, 0, 0xffff),
];

/// What comes before both: the kernel also hands on frames of VLAN interfaces above an interface, after it has taken the
/// tag off, and frames of VLANs that have no interface here, as if they were for another host. `ld ifindex; jeq #index,
/// next; ret #0; next: ld pkttype; jeq #PACKET_OTHERHOST, fail, pass; fail: ret #0; pass:`.
fn own(index: u32) -> [(u16, u8, u8, u32); 6] {
    // SKF_AD_OFF, where the kernel has what it knows of a frame, with SKF_AD_IFINDEX and SKF_AD_PKTTYPE.
    let (interface, kind) = (0xffff_f000 + 8, 0xffff_f000 + 4);
    [
        (0x20, 0, 0, interface),
        (0x15, 1, 0, index),
        (0x06, 0, 0, 0),
        (0x20, 0, 0, kind),
        (0x15, 0, 1, 3),
        (0x06, 0, 0, 0),
    ]
}

#[derive(Debug)]
struct Port {
    arp: PacketSocket,
    ndp: PacketSocket,
}

impl Port {
    fn open(index: u32) -> io::Result<Self> {
        let index = NonZeroU32::new(index)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "no interface index"))?;
        let filter = |code: &[(u16, u8, u8, u32)]| -> Vec<_> {
            let code = own(index.get()).into_iter().chain(code.iter().copied());
            code.map(|(code, jt, jf, k)| SockFilter::new(code, jt, jf, k)).collect()
        };
        Ok(Self {
            arp: PacketSocket::open(index, Protocol::Arp, &filter(&ARP))?,
            ndp: PacketSocket::open(index, Protocol::Ipv6, &filter(&NDP))?,
        })
    }
}

/// All sockets of all links.
#[derive(Debug, Default)]
pub(super) struct Ports {
    ports: BTreeMap<u32, Port>,
    groups: Groups,
    /// Frames that could not be sent.
    pub(super) lost: u64,
}

impl Ports {
    /// Opens the sockets of links that come up, and closes those of links that are down or gone. A link that has none
    /// is as one that is down.
    pub(super) fn set(&mut self, links: &mut BTreeMap<u32, Link>) -> Option<io::Error> {
        let is_up = |index: &u32| links.get(index).is_some_and(|it| it.up);
        self.ports.retain(|index, _| is_up(index));
        self.groups.keep(is_up);
        let mut failed = None;
        for (index, link) in links.iter_mut().filter(|it| it.1.up) {
            if self.ports.contains_key(index) {
                continue;
            }
            match Port::open(*index) {
                Ok(port) => _ = self.ports.insert(*index, port),
                Err(error) => {
                    link.up = false;
                    failed = Some(error);
                }
            }
        }
        failed
    }

    pub(super) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.ports.values().flat_map(|it| [it.arp.as_fd(), it.ndp.as_fd()])
    }

    /// Passes on the frames that wait, each with the index of its link. Whether more wait.
    pub(super) fn read(&self, mut take: impl FnMut(u32, Frame)) -> bool {
        let mut buffer = [0; 2048];
        let mut more = false;
        for (index, port) in &self.ports {
            for socket in [&port.arp, &port.ndp] {
                let mut frames = 0;
                while let Ok(length) = socket.receive(&mut buffer) {
                    if let Ok(frame) = frame::parse(buffer.get(..length).unwrap_or(&buffer)) {
                        take(*index, frame);
                    }
                    frames += 1;
                    if frames == FRAMES_AT_ONCE {
                        more = true;
                        break;
                    }
                }
            }
        }
        more
    }

    /// Drops the frames that wait.
    pub(super) fn drain(&self) {
        while self.read(|_, _| {}) {}
    }

    pub(super) fn send(&mut self, index: u32, frame: &[u8]) {
        let sent = self.ports.get(&index).map(|it| match frame.get(12..14) {
            Some([0x08, 0x06]) => it.arp.send(frame),
            _ => it.ndp.send(frame),
        });
        if !matches!(sent, Some(Ok(()))) {
            self.lost += 1;
        }
    }

    /// Makes the links with these indices, and no others, members of the group of an address.
    pub(super) fn listen(&mut self, address: Ipv6Addr, indices: &[u32]) -> io::Result<()> {
        self.groups.set(address, indices)
    }
}

/// Memberships. Several addresses may have the same group.
#[derive(Debug, Default)]
struct Groups {
    sockets: Vec<(Socket, usize)>,
    members: BTreeMap<(Ipv6Addr, u32), Membership>,
    wanted: BTreeMap<Ipv6Addr, BTreeSet<u32>>,
}

#[derive(Debug)]
struct Membership {
    addresses: BTreeSet<Ipv6Addr>,
    socket: usize,
}

impl Groups {
    fn set(&mut self, address: Ipv6Addr, indices: &[u32]) -> io::Result<()> {
        let wanted: BTreeSet<_> = indices.iter().copied().collect();
        let before = if wanted.is_empty() {
            self.wanted.remove(&address)
        } else {
            self.wanted.insert(address, wanted.clone())
        };
        let before = before.unwrap_or_default();
        for index in before.difference(&wanted) {
            self.leave(address, *index);
        }
        wanted.iter().map(|index| self.join(address, *index)).fold(Ok(()), Result::and)
    }

    fn join(&mut self, address: Ipv6Addr, index: u32) -> io::Result<()> {
        let group = solicited_node(address);
        if let Some(member) = self.members.get_mut(&(group, index)) {
            member.addresses.insert(address);
            return Ok(());
        }
        let place = self.sockets.iter().position(|it| it.1 < GROUPS_PER_SOCKET);
        let place = match place {
            Some(it) => it,
            None => {
                self.sockets.push((Socket::new(Domain::IPV6, Type::DGRAM, None)?, 0));
                self.sockets.len() - 1
            }
        };
        self.sockets[place].0.join_multicast_v6(&group, index)?;
        self.sockets[place].1 += 1;
        let addresses = BTreeSet::from([address]);
        self.members.insert((group, index), Membership { addresses, socket: place });
        Ok(())
    }

    fn leave(&mut self, address: Ipv6Addr, index: u32) {
        let group = solicited_node(address);
        let Some(member) = self.members.get_mut(&(group, index)) else { return };
        member.addresses.remove(&address);
        if member.addresses.is_empty() {
            let (socket, count) = &mut self.sockets[member.socket];
            // It fails if the interface is gone, and the membership with it.
            let _ = socket.leave_multicast_v6(&group, index);
            *count -= 1;
            self.members.remove(&(group, index));
        }
    }

    /// Forgets the memberships of interfaces that are gone.
    fn keep(&mut self, is_there: impl Fn(&u32) -> bool) {
        let gone: Vec<_> = self.members.keys().filter(|it| !is_there(&it.1)).copied().collect();
        for (group, index) in gone {
            let addresses = self.members.get(&(group, index)).map(|it| it.addresses.clone());
            for address in addresses.into_iter().flatten() {
                self.leave(address, index);
                if let Some(wanted) = self.wanted.get_mut(&address) {
                    wanted.remove(&index);
                }
            }
        }
    }
}
