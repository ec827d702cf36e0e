//! Where the statuses of Address objects say that these are announced, and at which version. It decides nothing.

use super::observed::AddressSeen;
use bowline_api::address::AnnouncedBy;
use bowline_core::objects::Version;
use bowline_core::relist::Missing;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// The Address objects, as far as their announcement is concerned.
#[derive(Debug, Default)]
pub(super) struct AnnouncedBoard {
    shown: BTreeMap<IpAddr, (Version, Option<Box<AnnouncedBy>>)>,
    missing: Missing<IpAddr>,
    /// Whether a speaker ran when Services were enqueued last.
    runs: bool,
}

impl AnnouncedBoard {
    /// A list begins.
    pub(super) fn begin(&mut self) {
        self.missing.begin(self.shown.keys().copied());
    }

    /// An Address as it is now.
    pub(super) fn put(&mut self, seen: &AddressSeen) {
        let AddressSeen { record, announced_by } = seen;
        self.missing.observe(&record.address);
        let shown = (record.version.clone(), announced_by.clone().map(Box::new));
        self.shown.insert(record.address, shown);
    }

    /// An Address is deleted.
    pub(super) fn remove(&mut self, address: IpAddr) {
        self.shown.remove(&address);
    }

    /// The list has ended.
    pub(super) fn done(&mut self) {
        for address in self.missing.done() {
            self.shown.remove(&address);
        }
    }

    /// The version of an Address. None: there is no such object.
    pub(super) fn version(&self, address: IpAddr) -> Option<&str> {
        self.shown.get(&address).map(|(version, _)| &*version.0)
    }

    /// Where its status says that it is announced.
    pub(super) fn shown(&self, address: IpAddr) -> Option<&AnnouncedBy> {
        self.shown.get(&address)?.1.as_deref()
    }

    /// All of them.
    pub(super) fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.shown.keys().copied()
    }

    /// Sets whether a speaker runs. Returns whether that is news.
    pub(super) fn run(&mut self, runs: bool) -> bool {
        std::mem::replace(&mut self.runs, runs) != runs
    }
}
