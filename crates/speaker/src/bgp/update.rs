//! UPDATE: routes that are announced and withdrawn.

use super::attributes::{Attributes, Unreach, prefixes};
use super::family::Family;
use super::notification::{Kind, Refusal};
use super::wire::{Reader, put_prefix, put_with_length};
use ipnet::IpNet;

/// An UPDATE. IPv4 routes are in the message itself or in an attribute, IPv6 routes always in an attribute.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Update {
    /// Withdrawn IPv4 routes.
    pub withdrawn: Vec<IpNet>,
    /// What the announced routes have in common, and routes of any family.
    pub attributes: Attributes,
    /// Announced IPv4 routes.
    pub announced: Vec<IpNet>,
    /// Why the announced routes count as withdrawn (RFC 7606). Only in a message that was read.
    pub fault: Option<String>,
}

impl Update {
    /// Says that all routes of a family have been sent (RFC 4724).
    pub fn end_of_rib(family: Family) -> Self {
        let unreach = match family {
            Family::V4 => None,
            Family::V6 => Some(Unreach { family, prefixes: Vec::new() }),
        };
        Self { attributes: Attributes { unreach, ..Attributes::default() }, ..Self::default() }
    }

    /// The family whose routes have all been sent, if the message says that.
    pub fn ends_rib(&self) -> Option<Family> {
        Family::ALL.into_iter().find(|family| *self == Self::end_of_rib(*family))
    }

    /// How many routes it announces, in any form.
    pub fn announced_count(&self) -> usize {
        self.announced.len()
            + self.attributes.reach.as_ref().map_or(0, |reach| reach.prefixes.len())
    }

    /// How many routes it withdraws, in any form.
    pub fn withdrawn_count(&self) -> usize {
        let unreach = self.attributes.unreach.as_ref();
        self.withdrawn.len() + unreach.map_or(0, |unreach| unreach.prefixes.len())
    }

    pub(super) fn decode(body: &[u8], four_octet: bool) -> Result<Self, Refusal> {
        let mut reader = Reader::new(body);
        let (Some(withdrawn), Some(attributes)) = (part(&mut reader), part(&mut reader)) else {
            let why = "the lengths inside an UPDATE of the peer contradict each other";
            return Err(Refusal::new(Kind::ATTRIBUTE_LIST, why));
        };
        let withdrawn = prefixes(Reader::new(withdrawn), Family::V4)?;
        let announced = prefixes(reader, Family::V4)?;
        let (attributes, fault) = Attributes::decode(attributes, four_octet)?;
        let mut update = Self { withdrawn, attributes, announced, fault };
        if update.fault.is_none() && update.announced_count() > 0 {
            let missing = update.attributes.missing(!update.announced.is_empty());
            update.fault = missing.map(str::to_owned);
        }
        Ok(update)
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>, four_octet: bool) {
        put_with_length(out, |out| self.withdrawn.iter().for_each(|it| put_prefix(out, it)));
        put_with_length(out, |out| self.attributes.encode(out, four_octet));
        self.announced.iter().for_each(|prefix| put_prefix(out, prefix));
    }
}

/// A part behind its length.
fn part<'a>(reader: &mut Reader<'a>) -> Option<&'a [u8]> {
    let length = reader.u16()?;
    reader.bytes(length.into())
}
