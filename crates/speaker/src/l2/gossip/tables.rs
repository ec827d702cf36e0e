//! What every member says, as a table of words with versions, and how the tables of all members become equal: a member
//! tells up to which version it has each table, and gets what is missing from whoever has more, in order. Every change is
//! sent to all members at once; what is lost is found out by the next comparison.

use super::seal::BODY_LIMIT;
use super::wire::{Delta, Digest, Mark, Word, size};
use crate::dice::Dice;
use crate::l2::member::{MemberId, Profile, Stance};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;

/// How many datagrams answer one digest.
const ANSWER_LIMIT: usize = 16;
/// How many marks fit into a datagram.
const MARKS_LIMIT: usize = (BODY_LIMIT - 1) / Mark::SIZE;
/// With more words than this, and more than as many that say nothing, a table begins anew.
const NOTHING_LIMIT: usize = 1000;

/// The words of one member. A later word about the same thing takes the place of the earlier one.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    number: u64,
    version: u64,
    /// The number and the version that are known to exist.
    newest: (u64, u64),
    profile: Option<(u64, Profile)>,
    stances: HashMap<IpAddr, (u64, Stance)>,
    /// What each version is about: an address, or the profile.
    order: BTreeMap<u64, Option<IpAddr>>,
    /// Addresses of an earlier table that were not mentioned in this one yet.
    stale: BTreeSet<IpAddr>,
}

impl Table {
    pub(super) fn profile(&self) -> Option<&Profile> {
        self.profile.as_ref().map(|it| &it.1)
    }

    /// Whether all is known that the member is known to have said.
    pub(super) fn is_current(&self) -> bool {
        self.profile.is_some() && !self.is_behind()
    }

    fn is_behind(&self) -> bool {
        (self.number, self.version) < self.newest
    }

    pub(super) fn stances(&self) -> impl Iterator<Item = (IpAddr, Stance)> {
        self.stances.iter().map(|(address, (_, stance))| (*address, *stance))
    }

    /// Puts a word in. Whether it is new.
    fn put(&mut self, version: u64, word: &Word) -> bool {
        self.version = version;
        self.newest = self.newest.max((self.number, version));
        let (before, about, new) = match word {
            Word::Profile(profile) => {
                let before = self.profile.replace((version, profile.clone()));
                let new = before.as_ref().is_none_or(|it| it.1 != *profile);
                (before.map(|it| it.0), None, new)
            }
            Word::Stance(address, stance) => {
                let before = self.stances.insert(*address, (version, *stance));
                let was = before.map_or(Stance::NOTHING, |it| it.1);
                self.stale.remove(address);
                (before.map(|it| it.0), Some(*address), was != *stance)
            }
        };
        if let Some(before) = before {
            self.order.remove(&before);
        }
        self.order.insert(version, about);
        new
    }

    fn word(&self, about: Option<IpAddr>) -> Option<Word> {
        match about {
            None => self.profile().cloned().map(Word::Profile),
            Some(address) => Some(Word::Stance(address, self.stances.get(&address)?.1)),
        }
    }
}

/// What this member says, and what it knows of the others.
#[derive(Debug)]
pub(super) struct Tables {
    me: MemberId,
    own: Table,
    /// Up to where the own words were sent to all members.
    sent: u64,
    others: HashMap<MemberId, Table>,
}

/// What came of a delta.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Applied {
    /// Words that are new.
    pub(super) words: Vec<Word>,
    /// Something is missing: a digest should ask for it.
    pub(super) behind: bool,
}

impl Tables {
    /// With an empty table of this number, which is higher than that of any earlier start.
    pub(super) fn new(me: MemberId, number: u64) -> Self {
        let own = Table { number, ..Table::default() };
        Self { me, own, sent: 0, others: HashMap::new() }
    }

    pub(super) fn get(&self, member: &MemberId) -> Option<&Table> {
        self.others.get(member)
    }

    /// The members whose tables are kept.
    pub(super) fn members(&self) -> impl Iterator<Item = MemberId> {
        self.others.keys().copied()
    }

    pub(super) fn forget(&mut self, member: &MemberId) -> Option<Table> {
        self.others.remove(member)
    }

    /// Adds a word of this member.
    pub(super) fn say(&mut self, word: &Word) {
        let known = match word {
            Word::Profile(profile) => self.own.profile() == Some(profile),
            Word::Stance(address, stance) => {
                let said = self.own.stances.get(address).map_or(Stance::NOTHING, |it| it.1);
                said == *stance
            }
        };
        if known {
            return;
        }
        self.own.put(self.own.version + 1, word);
        let nothing =
            |table: &Table| table.stances.values().filter(|it| it.1 == Stance::NOTHING).count();
        let all = self.own.stances.len();
        if all > NOTHING_LIMIT
            && self.own.version.is_multiple_of(NOTHING_LIMIT as u64)
            && nothing(&self.own) * 2 > all
        {
            self.renew();
        }
    }

    /// Begins a new table, with at least this number.
    pub(super) fn raise(&mut self, number: u64) {
        self.own.number = self.own.number.max(number.saturating_sub(1));
        self.renew();
    }

    /// Begins a new table, without the words that say nothing.
    fn renew(&mut self) {
        let mut table = Table { number: self.own.number + 1, ..Table::default() };
        let mut version = 0;
        let words = self.own.order.values().filter_map(|about| self.own.word(*about));
        let says = |it: &Word| !matches!(it, Word::Stance(_, stance) if *stance == Stance::NOTHING);
        for word in words.filter(says) {
            version += 1;
            table.put(version, &word);
        }
        (self.own, self.sent) = (table, 0);
    }

    /// The own words that no member was sent yet.
    pub(super) fn news(&mut self) -> Vec<Delta> {
        let after = std::mem::replace(&mut self.sent, self.own.version);
        deltas(self.me, &self.own, after, usize::MAX)
    }

    fn mark(&self, of: MemberId) -> Mark {
        let table = if of == self.me { Some(&self.own) } else { self.others.get(&of) };
        let (table, version) = table.map_or((0, 0), |it| (it.number, it.version));
        Mark { of, table, version }
    }

    /// What this member has of the tables of these members, or of as many as fit in.
    pub(super) fn digest(&self, members: &[MemberId], dice: &mut Dice) -> Digest {
        let mut members = members.to_vec();
        let complete = members.len() < MARKS_LIMIT;
        if !complete {
            dice.shuffle(&mut members);
            members.truncate(MARKS_LIMIT - 1);
        }
        members.push(self.me);
        Digest { complete, marks: members.into_iter().map(|it| self.mark(it)).collect() }
    }

    /// What this member has of one table.
    pub(super) fn question(&self, of: MemberId) -> Digest {
        Digest { complete: false, marks: vec![self.mark(of)] }
    }

    /// Whether there is more of a table than this member has.
    pub(super) fn is_behind(&self, of: &MemberId) -> bool {
        self.others.get(of).is_none_or(Table::is_behind)
    }

    /// Up to where the own table goes, without any of it.
    pub(super) fn end(&self) -> Delta {
        let to = self.mark(self.me);
        Delta { to, after: to.version, latest: to.version, words: Vec::new() }
    }

    /// What the sender of a digest lacks of the tables of these members. What this member lacks is noted.
    pub(super) fn answer(&mut self, digest: &Digest, live: &[MemberId]) -> Vec<Delta> {
        let mut out = Vec::new();
        let mut room = ANSWER_LIMIT;
        let unmentioned = live
            .iter()
            .copied()
            .chain([self.me])
            .filter(|it| digest.complete && digest.marks.iter().all(|mark| mark.of != *it));
        let unmentioned = unmentioned.map(|of| Mark { of, table: 0, version: 0 });
        for mark in digest.marks.iter().copied().chain(unmentioned) {
            if mark.of != self.me && !live.contains(&mark.of) {
                continue;
            }
            let theirs = (mark.table, mark.version);
            let table = if mark.of == self.me {
                &self.own
            } else {
                let table = self.others.entry(mark.of).or_default();
                table.newest = table.newest.max(theirs);
                table
            };
            if (table.number, table.version) <= theirs {
                continue;
            }
            let after = if table.number == mark.table { mark.version } else { 0 };
            let deltas = deltas(mark.of, table, after, room);
            room -= deltas.len();
            out.extend(deltas);
        }
        out
    }

    /// Takes the words of a member.
    pub(super) fn apply(&mut self, delta: &Delta) -> Applied {
        let Mark { of, table: number, version } = delta.to;
        if of == self.me {
            return Applied::default();
        }
        let table = self.others.entry(of).or_default();
        if number < table.number {
            return Applied::default();
        }
        if number > table.number {
            let stale = table.stances.keys().copied().chain(std::mem::take(&mut table.stale));
            let stale = stale.collect();
            *table = Table { number, stale, newest: table.newest, ..Table::default() };
        }
        table.newest = table.newest.max((number, delta.latest));
        if delta.after > table.version {
            return Applied { words: Vec::new(), behind: true };
        }
        if version <= table.version {
            return Applied { words: Vec::new(), behind: table.is_behind() };
        }
        let mut words = Vec::new();
        let known = table.version;
        for (version, word) in delta.words.iter().filter(|it| it.0 > known) {
            if table.put(*version, word) {
                words.push(word.clone());
            }
        }
        table.version = version;
        if table.is_current() {
            let stale = std::mem::take(&mut table.stale);
            words.extend(stale.into_iter().map(|it| Word::Stance(it, Stance::NOTHING)));
        }
        Applied { words, behind: table.is_behind() }
    }
}

/// The words of a table after a version, in so many datagrams.
fn deltas(of: MemberId, table: &Table, after: u64, limit: usize) -> Vec<Delta> {
    let mut out: Vec<Delta> = Vec::new();
    if limit == 0 || table.version <= after {
        return out;
    }
    let delta = |after: u64| {
        let to = Mark { of, table: table.number, version: after };
        Delta { to, after, latest: table.newest.1, words: Vec::new() }
    };
    let mut next = delta(after);
    let mut bytes = Delta::HEAD;
    for (version, about) in table.order.range(after + 1..) {
        let Some(word) = table.word(*about) else { continue };
        let more = size(version - next.to.version, &word);
        if bytes + more > BODY_LIMIT {
            let full = std::mem::replace(&mut next, delta(0));
            next = delta(full.to.version);
            bytes = Delta::HEAD;
            out.push(full);
            if out.len() == limit {
                return out;
            }
        }
        bytes += more;
        next.to.version = *version;
        next.words.push((*version, word));
    }
    // The words of the last versions may be replaced by none.
    next.to.version = table.version;
    out.push(next);
    out
}

#[cfg(test)]
mod tests;
