//! Decides which Service gets a port or a name that several ask for: the one that has it in the last files, else the
//! oldest. It considers all Services, also those without endpoints now, so that nothing passes to another Service
//! meanwhile. Pure; [`super::view`] calls it.

use super::held::Held;
use super::text::ServerName;
use super::view::{Entry, Expression, Told};
use crate::key::ConsumerRef;
use crate::objects::Timestamp;
use crate::outcome::{Problem, Reason, quote};
use crate::plan::Transport;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Bound;
use std::sync::Arc;

/// The most external names of a namespace at one address and port: with simple templates, the proxy compares all
/// names one by one for every request, also for those to other namespaces.
pub(super) const MOST_NAMES: usize = 256;

/// A Service that asks for a port.
pub(super) struct Asked {
    /// When its Service was created.
    pub(super) created: Timestamp,
    /// Whether it is served if it wins.
    pub(super) served: bool,
    /// What it asks for.
    pub(super) entry: Entry,
}

const ALL_V4: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
const ALL: IpAddr = IpAddr::V6(Ipv6Addr::UNSPECIFIED);

/// Whether a listener on one of them takes traffic for the other: an unspecified address stands for all of its
/// family, and the one of IPv6 for IPv4, too.
pub(super) fn overlap(a: IpAddr, b: IpAddr) -> bool {
    let (a, b) = (a.to_canonical(), b.to_canonical());
    let all = |all: IpAddr, one: IpAddr| all == ALL || all == ALL_V4 && one.is_ipv4();
    a == b || all(a, b) || all(b, a)
}

/// The consumers that have the addresses of one port, each with its mode.
#[derive(Default)]
struct Holders(BTreeMap<IpAddr, (ConsumerRef, Arc<str>)>);

impl Holders {
    fn at(&self, ip: IpAddr) -> Option<&(ConsumerRef, Arc<str>)> {
        self.0.get(&ip.to_canonical())
    }

    /// Another address that overlaps this one, and the consumer that has it.
    fn beside(&self, ip: IpAddr) -> Option<(IpAddr, &ConsumerRef)> {
        let ip = ip.to_canonical();
        let wide = [ALL, ALL_V4].into_iter().filter_map(|all| self.0.get_key_value(&all));
        // IPv4 addresses sort first.
        let narrow = self.0.first_key_value();
        let mut others = wide.chain(narrow).filter(|(other, _)| **other != ip);
        let (other, (owner, _)) = others.find(|(other, _)| overlap(ip, **other))?;
        Some((*other, owner))
    }

    fn take(&mut self, ip: IpAddr, owner: &ConsumerRef, mode: &Arc<str>) {
        let taken = || (owner.clone(), mode.clone());
        self.0.entry(ip.to_canonical()).or_insert_with(taken);
    }
}

type Socket = (IpAddr, u16);

/// Names that are taken at each place, written backwards, so that those under a domain are neighbours.
#[derive(Default)]
struct Names(BTreeMap<(Socket, String), ConsumerRef>);

fn backwards(name: &str) -> String {
    name.chars().rev().map(|c| c.to_ascii_lowercase()).collect()
}

impl Names {
    /// The consumer of another namespace that has this name.
    fn other(&self, place: Socket, name: &str, consumer: &ConsumerRef) -> Option<&ConsumerRef> {
        let owner = self.0.get(&(place, backwards(name)))?;
        (owner.namespace != consumer.namespace).then_some(owner)
    }

    /// A name that this wildcard covers, and the consumer of another namespace that has it.
    fn covered(&self, place: Socket, name: &str, consumer: &ConsumerRef) -> Option<Covered<'_>> {
        let domain = backwards(name.strip_prefix('*')?);
        let from = (place, domain.clone());
        let under = self.0.range((Bound::Excluded(from), Bound::Unbounded));
        let mut under =
            under.take_while(|((at, name), _)| *at == place && name.starts_with(&domain));
        let ((_, name), owner) = under.find(|(_, owner)| owner.namespace != consumer.namespace)?;
        Some((name.chars().rev().collect(), owner))
    }

    fn take(&mut self, place: Socket, name: &str, consumer: &ConsumerRef) {
        self.0.entry((place, backwards(name))).or_insert_with(|| consumer.clone());
    }
}

type Covered<'a> = (String, &'a ConsumerRef);

/// The entries that have their port, and what they hold.
pub(super) struct Contended {
    /// The entries that have their port and are served, in the order in which they were asked for.
    pub(super) entries: Vec<Entry>,
    /// The regular expressions of all that have their port, in the order in which namespaces got them.
    pub(super) expressions: Vec<Expression>,
    /// What all that have their port hold, served or not.
    pub(super) held: Held,
}

/// Decides which entries get their port, and which of their names. Entries with names share a port; one that takes
/// all traffic of a port has it alone. A generated name that contains its namespace belongs to the Service that it is
/// generated for, even if another Service has it as an external name: no other namespace can generate it. A generated
/// name without the namespace could come from any namespace, so the namespace that has it keeps it.
pub(super) fn contend(
    asked: Vec<Asked>,
    held: &Held,
    generated: impl Fn(&Entry) -> Vec<String>,
    told: &mut Vec<Told>,
) -> Contended {
    let mut order: Vec<usize> = (0..asked.len()).collect();
    order.sort_by_cached_key(|at| {
        asked.get(*at).map(|Asked { created, entry, .. }| {
            (!held.has_port(entry), *created, entry.consumer.clone(), *at)
        })
    });
    let made = |asked: &Asked| match is_alone(&asked.entry) {
        true => Vec::new(),
        false => generated(&asked.entry),
    };
    let made: Vec<Vec<String>> = asked.iter().map(made).collect();
    let mut names = Names::default();
    for (Asked { entry, .. }, made) in asked.iter().zip(&made) {
        let place = (entry.port.ip, entry.port.port);
        let kept = made.iter().filter(|name| held.has_name(entry, name));
        kept.for_each(|name| names.take(place, name, &entry.consumer));
    }
    for ((place, _), (name, consumer)) in kept_external(&asked, &made, held, &generated) {
        names.take(place, name, consumer);
    }
    let mut asked: Vec<Option<Asked>> = asked.into_iter().map(Some).collect();
    let mut holders: BTreeMap<(u16, Transport), Holders> = BTreeMap::new();
    let mut tell = |entry: &Entry, reason, message: String| {
        let problem = Problem::new(reason, message);
        told.push(Told { consumer: entry.consumer.clone(), problem });
    };
    for at in &order {
        let (Some(slot), Some(made)) = (asked.get_mut(*at), made.get(*at)) else { continue };
        let Some(Asked { entry, .. }) = slot.as_ref() else { continue };
        let (ip, port, mode) = (entry.port.ip, entry.port.port, &entry.port.mode);
        let holders = holders.entry((port, entry.port.transport)).or_default();
        let taken = match holders.at(ip) {
            Some((owner, has)) if has != mode || is_alone(entry) => {
                Some(format!("{ip} port {port} ({has}) belongs to {owner}, which had it first"))
            }
            Some(_) => None,
            None => holders.beside(ip).map(|(other, owner)| {
                format!(
                    "{ip} port {port} overlaps {other} port {port} of {owner}, which had it first"
                )
            }),
        };
        if let Some(message) = taken {
            tell(entry, Reason::PortTaken, message);
            *slot = None;
            continue;
        }
        let taken = made
            .iter()
            .find_map(|name| Some((name, names.other((ip, port), name, &entry.consumer)?)));
        if let Some((name, owner)) = taken {
            let message = format!("{} belongs to {owner}, which had it first", quote(name));
            tell(entry, Reason::HostTaken, message);
            *slot = None;
            continue;
        }
        holders.take(ip, &entry.consumer, mode);
        made.iter().for_each(|name| names.take((ip, port), name, &entry.consumer));
    }
    for Asked { entry, .. } in asked.iter().flatten().filter(|asked| !is_alone(&asked.entry)) {
        let place = (entry.port.ip, entry.port.port);
        let external = entry.external.iter().map(ServerName::as_str);
        let kept = external.filter(|name| held.has_name(entry, name));
        kept.for_each(|name| names.take(place, name, &entry.consumer));
    }
    let mut holding = Held::default();
    let mut expressions = Vec::new();
    let mut room = Room::new(asked.iter().flatten(), held);
    for at in order {
        let (Some(Some(Asked { entry, .. })), Some(made)) = (asked.get_mut(at), made.get(at))
        else {
            continue;
        };
        if is_alone(entry) {
            holding.add(entry, []);
            continue;
        }
        let place = (entry.port.ip, entry.port.port);
        let mut kept = Vec::new();
        let mut over = 0;
        for name in &entry.external {
            let (text, consumer) = (name.as_str(), &entry.consumer);
            let covered = || match held.has_name(entry, text) {
                // The wildcard was there before the names that it covers.
                true => None,
                false => names.covered(place, text, consumer),
            };
            let why = match names.other(place, text, consumer) {
                Some(owner) => Some(format!("belongs to {owner} and is left out here")),
                None => covered().map(|(name, owner)| {
                    format!(
                        "covers {}, which belongs to {owner}, and is left out here",
                        quote(&name)
                    )
                }),
            };
            match why {
                Some(why) => tell(entry, Reason::HostTaken, format!("{} {why}", quote(text))),
                None if !room.take(entry, held.has_name(entry, text)) => over += 1,
                None => {
                    names.take(place, text, consumer);
                    kept.push(name.clone());
                }
            }
        }
        if over > 0 {
            let (ip, port) = place;
            let message = format!(
                "{over} of its names are left out at {ip} port {port}: a namespace can have at most \
                 {MOST_NAMES} names there"
            );
            tell(entry, Reason::TooManyNames, message);
        }
        entry.external = kept;
        let external = entry.external.iter().map(ServerName::as_str);
        let all = made.iter().map(String::as_str).chain(external);
        let regexps = all.clone().filter(|name| name.starts_with('~'));
        expressions.extend(regexps.map(|name| Expression {
            consumer: entry.consumer.clone(),
            port: entry.port.clone(),
            name: name.into(),
        }));
        holding.add(entry, all);
    }
    let holding = holding.after(held);
    let ranks = holding.ranks();
    expressions.sort_by_cached_key(|it| ranks.of(&it.consumer.namespace, &it.port, &it.name));
    let served = asked.into_iter().flatten().filter(|asked| asked.served);
    Contended { entries: served.map(|asked| asked.entry).collect(), expressions, held: holding }
}

type ByName<'a> = BTreeMap<(Socket, String), (&'a str, &'a ConsumerRef)>;

/// External names that stay with the namespace that has them, although other Services generate the same: all but
/// those that contain the namespace of the Service that generates them.
fn kept_external<'a>(
    asked: &'a [Asked],
    made: &[Vec<String>],
    held: &Held,
    generated: impl Fn(&Entry) -> Vec<String>,
) -> ByName<'a> {
    let place = |entry: &Entry| (entry.port.ip, entry.port.port);
    let mut kept = ByName::new();
    for Asked { entry, .. } in asked.iter().filter(|asked| !is_alone(&asked.entry)) {
        let external = entry.external.iter().map(ServerName::as_str);
        for name in external.filter(|name| held.has_name(entry, name)) {
            kept.entry((place(entry), backwards(name))).or_insert((name, &entry.consumer));
        }
    }
    for (Asked { entry, .. }, made) in asked.iter().zip(made) {
        for name in made {
            let key = (place(entry), backwards(name));
            if kept.get(&key).is_some_and(|(_, owner)| owner.namespace != entry.consumer.namespace)
                && names_namespace(entry, name, &generated)
            {
                kept.remove(&key);
            }
        }
    }
    kept
}

/// Whether a generated name would be different if the Service were in another namespace.
fn names_namespace(entry: &Entry, name: &str, generated: impl Fn(&Entry) -> Vec<String>) -> bool {
    let mut elsewhere = entry.clone();
    let other = if *entry.consumer.namespace == *"a" { "b" } else { "a" };
    elsewhere.consumer.namespace = other.into();
    !generated(&elsewhere).iter().any(|it| it.eq_ignore_ascii_case(name))
}

/// How many more external names each namespace may have at each place. Names that it has already come first.
struct Room(BTreeMap<(Arc<str>, Socket), (usize, usize)>);

impl Room {
    fn new<'a>(asked: impl Iterator<Item = &'a Asked>, held: &Held) -> Self {
        let mut room = Self(BTreeMap::new());
        for Asked { entry, .. } in asked {
            let external = entry.external.iter();
            let had =
                external.filter(|name| held.has_name(entry, name.as_str())).count().min(MOST_NAMES);
            let (kept, fresh) = room.0.entry(Self::key(entry)).or_insert((0, MOST_NAMES));
            *kept = (*kept + had).min(MOST_NAMES);
            *fresh = MOST_NAMES - *kept;
        }
        room
    }

    fn key(entry: &Entry) -> (Arc<str>, Socket) {
        (entry.consumer.namespace.clone(), (entry.port.ip, entry.port.port))
    }

    /// Takes room for a name. False: there is none left.
    fn take(&mut self, entry: &Entry, is_held: bool) -> bool {
        let Some((kept, fresh)) = self.0.get_mut(&Self::key(entry)) else { return false };
        let left = if is_held { kept } else { fresh };
        let has = *left > 0;
        *left = left.saturating_sub(1);
        has
    }
}

/// Whether all traffic of its port goes to it: nothing but HTTP has names.
fn is_alone(entry: &Entry) -> bool {
    entry.port.transport != Transport::Tcp || *entry.port.mode != *"http"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unspecified_address_overlaps_its_family_and_that_of_version_6_all() {
        let cases = [
            ("192.0.2.1", "192.0.2.1", true),
            ("192.0.2.1", "::ffff:192.0.2.1", true),
            ("192.0.2.1", "192.0.2.2", false),
            ("0.0.0.0", "192.0.2.1", true),
            ("0.0.0.0", "2001:db8::1", false),
            ("::", "2001:db8::1", true),
            ("::", "192.0.2.1", true),
            ("::", "0.0.0.0", true),
        ];
        for (a, b, expected) in cases {
            let (a, b): (IpAddr, IpAddr) = (a.parse().unwrap(), b.parse().unwrap());
            assert_eq!((overlap(a, b), overlap(b, a)), (expected, expected), "{a} {b}");
        }
    }
}
