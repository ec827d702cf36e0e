//! The key of the speakers while it changes. All speakers learn of another key within moments of each other, but not at
//! the same one: for some time both open datagrams, and the old one seals until each speaker had time to learn the new one.

use super::seal::{Header, Sealer};
use bowline_core::clock::Uptime;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

/// How long after a change the old key seals, but for speakers that are heard with the new one.
pub(super) const LEARN: Duration = Duration::from_secs(30);
/// How long after a change the old key opens.
pub(super) const OVERLAP: Duration = Duration::from_secs(300);

#[derive(Debug)]
struct Old {
    sealer: Sealer,
    seals_until: Uptime,
    opens_until: Uptime,
    /// The speakers that were heard with the new key.
    changed: BTreeSet<SocketAddr>,
}

/// The present key, and the one before.
#[derive(Debug)]
pub(super) struct Keys {
    present: Sealer,
    old: Option<Old>,
}

impl Keys {
    pub(super) fn new(present: Sealer) -> Self {
        Self { present, old: None }
    }

    /// Another key counts from now on.
    pub(super) fn change(&mut self, present: Sealer, now: Uptime) {
        let sealer = std::mem::replace(&mut self.present, present);
        let (seals_until, opens_until) = (now + LEARN, now + OVERLAP);
        self.old = Some(Old { sealer, seals_until, opens_until, changed: BTreeSet::new() });
    }

    /// Forgets the old key when its time is over.
    pub(super) fn tick(&mut self, now: Uptime) {
        self.old.take_if(|it| now >= it.opens_until);
    }

    /// Seals what is sent to a speaker.
    pub(super) fn seal(
        &self,
        to: SocketAddr,
        header: &Header,
        body: &[u8],
        now: Uptime,
    ) -> Vec<u8> {
        let old = self.old.as_ref().filter(|it| now < it.seals_until && !it.changed.contains(&to));
        old.map_or(&self.present, |it| &it.sealer).seal(header, body)
    }

    /// The header and the body. Nothing if it is no datagram of a holder of one of the keys.
    pub(super) fn open<'a>(
        &mut self,
        from: SocketAddr,
        bytes: &'a [u8],
    ) -> Option<(Header, &'a [u8])> {
        let Some(opened) = self.present.open(bytes) else {
            return self.old.as_ref()?.sealer.open(bytes);
        };
        if let Some(old) = &mut self.old {
            old.changed.insert(from);
        }
        Some(opened)
    }
}
