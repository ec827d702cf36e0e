//! Addresses from DNS names: which text is a name that can be looked up, when each name is looked up,
//! and what was found. It sends no query and reads no clock: the runtime carries out [`Effect::Look`]
//! and brings the answer back. Which address a Service then gets is not decided here.

mod name;
mod schedule;
mod wants;

pub(crate) use name::is_under;
pub use name::{BadName, Domain, Name, Why};
pub use schedule::{BadLimits, Config, Effect, Event, Schedule};
pub use wants::Wants;

use crate::objects::Family;
use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// The most addresses of one family that an answer may have. A longer answer is no list to choose from, and each
/// address would be kept.
pub const MOST_ADDRESSES: usize = 512;

/// A set of address families.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Families {
    /// IPv4, which is A records.
    pub v4: bool,
    /// IPv6, which is AAAA records.
    pub v6: bool,
}

impl Families {
    /// Neither.
    pub const NONE: Self = Self { v4: false, v6: false };
    /// IPv4 alone.
    pub const V4: Self = Self { v4: true, v6: false };
    /// IPv6 alone.
    pub const V6: Self = Self { v4: false, v6: true };
    /// Both.
    pub const BOTH: Self = Self { v4: true, v6: true };

    /// Whether this family is one of them.
    pub fn has(self, family: Family) -> bool {
        match family {
            Family::V4 => self.v4,
            Family::V6 => self.v6,
        }
    }

    /// Whether the set is empty.
    pub fn is_empty(self) -> bool {
        self == Self::NONE
    }

    /// The families that are in either.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self { v4: self.v4 || other.v4, v6: self.v6 || other.v6 }
    }

    /// The families that are in both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self { v4: self.v4 && other.v4, v6: self.v6 && other.v6 }
    }

    /// Whether all of `other` are among them.
    pub fn covers(self, other: Self) -> bool {
        self.and(other) == other
    }
}

impl FromIterator<Family> for Families {
    fn from_iter<I: IntoIterator<Item = Family>>(families: I) -> Self {
        families.into_iter().fold(Self::NONE, |all, family| match family {
            Family::V4 => all.or(Self::V4),
            Family::V6 => all.or(Self::V6),
        })
    }
}

/// Addresses of one family that a name has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    addresses: Vec<IpAddr>,
    ttl: Duration,
}

impl Found {
    /// The addresses of `family` among these, each once and sorted, with the smallest TTL of the records
    /// that led to them. None at all, or too many, is a failure.
    pub fn new(
        family: Family,
        addresses: impl IntoIterator<Item = IpAddr>,
        ttl: Duration,
    ) -> Result<Self, Failure> {
        let ours = |address: &IpAddr| Family::of(*address) == family;
        let addresses: BTreeSet<IpAddr> = addresses.into_iter().filter(ours).collect();
        match addresses.len() {
            0 => Err(Failure::new(FailureKind::NoData, "")),
            many if many > MOST_ADDRESSES => {
                let text = format!("{many} addresses, at most {MOST_ADDRESSES} are read");
                Err(Failure::new(FailureKind::TooMany, text))
            }
            _ => Ok(Self { addresses: addresses.into_iter().collect(), ttl }),
        }
    }

    /// The addresses, sorted, at least one.
    pub fn addresses(&self) -> &[IpAddr] {
        &self.addresses
    }

    /// How long the records may be relied on, as the server says.
    pub fn ttl(&self) -> Duration {
        self.ttl
    }
}

/// How a look-up failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FailureKind {
    /// No server could be reached.
    Unreachable,
    /// No server answered in time.
    Timeout,
    /// The server could not find out.
    ServFail,
    /// The name does not exist.
    NxDomain,
    /// The name exists and has no address of the family.
    NoData,
    /// The server does not answer us, or not for this name.
    Refused,
    /// The server is not responsible for the name and does not ask others.
    Lame,
    /// The aliases lead round in a circle, or too far.
    CnameLoop,
    /// More addresses than are read.
    TooMany,
    /// An answer that cannot be understood.
    Unusable,
}

impl FailureKind {
    /// Whether the DNS answered that the name has no such address. Any other failure may be over the next moment.
    pub fn is_definite(self) -> bool {
        matches!(self, Self::NxDomain | Self::NoData)
    }
}

impl fmt::Display for FailureKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unreachable => "the DNS server cannot be reached",
            Self::Timeout => "the DNS server did not answer in time",
            Self::ServFail => "the DNS server failed (SERVFAIL)",
            Self::NxDomain => "the name does not exist (NXDOMAIN)",
            Self::NoData => "the name has no such address (NODATA)",
            Self::Refused => "the DNS server refused to answer (REFUSED)",
            Self::Lame => {
                "the DNS server does not serve the domain and asks no other server (lame)"
            }
            Self::CnameLoop => "the aliases of the name lead nowhere (CNAME loop)",
            Self::TooMany => "the name has too many addresses",
            Self::Unusable => "the answer of the DNS server cannot be used",
        })
    }
}

/// A look-up that failed. Its kind is one word for programs, as `Debug` prints it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// How it failed.
    pub kind: FailureKind,
    /// What else is known, such as which server it was; may be empty.
    pub text: Arc<str>,
}

impl Failure {
    /// A failure.
    pub fn new(kind: FailureKind, text: impl Into<Arc<str>>) -> Self {
        Self { kind, text: text.into() }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.text {
            "" => write!(f, "{}", self.kind),
            text => write!(f, "{}: {text}", self.kind),
        }
    }
}

/// The answer for one family.
pub type Answer = Result<Found, Failure>;

/// The answers of a look-up, one for each family that was asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answers {
    /// A records.
    pub v4: Option<Answer>,
    /// AAAA records.
    pub v6: Option<Answer>,
}

impl Answers {
    /// The answers that there are, by family.
    pub fn iter(&self) -> impl Iterator<Item = (Family, &Answer)> {
        let both = [(Family::V4, &self.v4), (Family::V6, &self.v6)];
        both.into_iter().filter_map(|(family, answer)| Some((family, answer.as_ref()?)))
    }

    /// Whether these say the same, whatever the TTLs and whichever server failed.
    pub fn says_as(&self, other: &Self) -> bool {
        let same = |one: &Option<Answer>, other: &Option<Answer>| match (one, other) {
            (Some(Ok(one)), Some(Ok(other))) => one.addresses == other.addresses,
            (Some(Err(one)), Some(Err(other))) => one.kind == other.kind,
            (one, other) => one.is_none() && other.is_none(),
        };
        same(&self.v4, &other.v4) && same(&self.v6, &other.v6)
    }

    /// One answer for each of `families`, and none for others.
    fn only(self, families: Families) -> Self {
        let of = |asked: bool, answer: Option<Answer>| {
            let missing =
                || Err(Failure::new(FailureKind::Unusable, "no answer for this IP family"));
            asked.then(|| answer.unwrap_or_else(missing))
        };
        Self { v4: of(families.v4, self.v4), v6: of(families.v6, self.v6) }
    }
}

/// What is known of a name after a look-up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// What was found or failed, for each family that is wanted and was asked for.
    pub answers: Answers,
    /// How long after this report the name is looked up again, at the earliest.
    pub next_check: Duration,
    /// While it fails it is looked up again within this time, however often it has failed.
    pub retried_within: Duration,
}
