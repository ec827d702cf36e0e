//! Rooms: which certificate has the room of which user's Secret, and how many bytes. A certificate has one room, and a
//! Secret has one room, so no bytes are counted or handed on twice. `CertificateRooms` keeps them; this module does no I/O.

use crate::key::ObjectKey;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// A user's Secret, by a digest of its name. Tenants choose names, and a record of one has to be short.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SecretHash(u64);

impl SecretHash {
    /// The hash of this Secret's namespace and name.
    pub fn of(secret: &ObjectKey) -> Self {
        let mut digest = Sha256::new();
        digest.update(secret.namespace.as_bytes());
        digest.update(b"/");
        digest.update(secret.name.as_bytes());
        let bytes = digest.finalize();
        Self(bytes.iter().take(8).fold(0, |all, byte| (all << 8) | u64::from(*byte)))
    }
}

/// The room of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// The user's Secret.
    pub place: SecretHash,
    /// The size that was first recorded.
    pub size: usize,
}

/// The recorded form: `PLACE:SIZE`.
impl fmt::Display for Room {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}:{}", self.place.0, self.size)
    }
}

/// A recorded text is not a room.
#[derive(Debug, PartialEq, Eq)]
pub struct NoRoom;

impl FromStr for Room {
    type Err = NoRoom;

    fn from_str(text: &str) -> Result<Self, NoRoom> {
        let (place, size) = text.split_once(':').ok_or(NoRoom)?;
        let place = u64::from_str_radix(place, 16).map_err(|_| NoRoom)?;
        let size = size.parse().ok().filter(|size| *size <= super::SECRET).ok_or(NoRoom)?;
        Ok(Self { place: SecretHash(place), size })
    }
}

/// A certificate with room.
#[derive(Clone, Debug)]
pub(super) struct Holder {
    pub(super) hash: Arc<str>,
    pub(super) size: usize,
}

/// All certificates with room.
#[derive(Clone, Debug, Default)]
pub(super) struct Rooms {
    at: BTreeMap<SecretHash, Holder>,
    of: BTreeMap<Arc<str>, SecretHash>,
}

impl Rooms {
    pub(super) fn at(&self, place: SecretHash) -> Option<&Holder> {
        self.at.get(&place)
    }

    pub(super) fn of(&self, hash: &str) -> Option<Room> {
        let place = *self.of.get(hash)?;
        Some(Room { place, size: self.at.get(&place)?.size })
    }

    /// Takes recorded rooms of certificates and Secrets of which nothing is known yet. Of two certificates in one
    /// Secret the larger counts.
    pub(super) fn learn(&mut self, recorded: impl IntoIterator<Item = (Arc<str>, Room)>) {
        let mut new = BTreeMap::<SecretHash, Holder>::new();
        for (hash, Room { place, size }) in recorded {
            let known = self.of.contains_key(&hash) || self.at.contains_key(&place);
            if !known && new.get(&place).is_none_or(|other| other.size < size) {
                new.insert(place, Holder { hash, size });
            }
        }
        for (place, Holder { hash, size }) in new {
            self.put(place, hash, size);
        }
    }

    pub(super) fn put(&mut self, place: SecretHash, hash: Arc<str>, size: usize) {
        self.remove(place);
        if let Some(before) = self.of.insert(Arc::clone(&hash), place) {
            self.at.remove(&before);
        }
        self.at.insert(place, Holder { hash, size });
    }

    pub(super) fn remove(&mut self, place: SecretHash) {
        if let Some(holder) = self.at.remove(&place) {
            self.of.remove(&holder.hash);
        }
    }
}
