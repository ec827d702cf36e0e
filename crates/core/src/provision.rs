//! The next step of provisioning a load balancer: from its parts, in the order in which they are made, and the state in
//! which each was found. It does no I/O and knows no kind of part. The shell (`drivers::provision`) observes, takes the
//! step and observes again, so it does not matter where a leader was killed before.

use crate::objects::Version;
use crate::plan::BY_NAME;
use std::net::IpAddr;
use std::sync::Arc;

/// Identifies one object among those that had the same name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Its uid.
    pub uid: Arc<str>,
    /// Its version.
    pub version: Version,
}

/// The state in which a part was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// It does not exist.
    Missing,
    /// It is as it should be.
    Same(Mark),
    /// It is ours, and differs from what it should be.
    Different(Mark),
    /// It is being deleted.
    Leaving,
    /// An object of this name is not ours.
    Foreign,
}

/// The next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step<P> {
    /// Create this part. If it exists by now, another writer was faster.
    Create(P),
    /// Change this part to what it should be.
    Update(P, Mark),
    /// Delete this part.
    Delete(P, Mark),
    /// Wait until this part is gone; nothing can be done before.
    Wait(P),
    /// An object that is not ours has the name of this part.
    Blocked(P),
    /// Nothing: every part is as it should be.
    Done,
}

/// The next step towards having all parts, given in the order in which they are made.
pub fn to_have<P: Copy>(found: &[(P, Found)]) -> Step<P> {
    let step = |(part, found): &(P, Found)| match found {
        Found::Missing => Some(Step::Create(*part)),
        Found::Different(mark) => Some(Step::Update(*part, mark.clone())),
        Found::Leaving => Some(Step::Wait(*part)),
        Found::Foreign => Some(Step::Blocked(*part)),
        Found::Same(_) => None,
    };
    found.iter().find_map(step).unwrap_or(Step::Done)
}

/// The next step towards having none of them: the last one made goes first. An object that is not ours stays.
pub fn to_lose<P: Copy>(found: &[(P, Found)]) -> Step<P> {
    let step = |(part, found): &(P, Found)| match found {
        Found::Same(mark) | Found::Different(mark) => Some(Step::Delete(*part, mark.clone())),
        Found::Leaving => Some(Step::Wait(*part)),
        Found::Missing | Found::Foreign => None,
    };
    found.iter().rev().find_map(step).unwrap_or(Step::Done)
}

/// The progress of the copies of a proxy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rollout {
    /// How many copies there should be.
    pub wanted: u32,
    /// How many up-to-date copies take traffic.
    pub ready: u32,
    /// Why no more copies become ready, as far as is known.
    pub stuck: Option<Arc<str>>,
}

/// Where clients reach the door of a load balancer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reach {
    /// At these addresses.
    pub addresses: Vec<IpAddr>,
    /// By these host names; another party manages their addresses.
    pub hostnames: Vec<Arc<str>>,
}

impl Reach {
    /// The addresses of listeners in the plan.
    pub fn listeners(&self) -> Vec<IpAddr> {
        let named = (!self.hostnames.is_empty()).then_some(BY_NAME);
        named.into_iter().chain(self.addresses.iter().copied()).collect()
    }
}

/// Whether the parts of a load balancer are in place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// They are.
    Ready,
    /// They will be.
    Coming(Arc<str>),
    /// They are not, and an administrator has to act.
    Failed(Arc<str>),
}

impl Standing {
    /// What a rollout means, once every part is as it should be.
    pub fn of(rollout: &Rollout) -> Self {
        let Rollout { wanted, ready, stuck } = rollout;
        let count = format!("{ready} of {wanted} proxies are ready");
        match stuck {
            _ if ready >= wanted => Self::Ready,
            Some(why) => Self::Failed(format!("{count}: {why}").into()),
            None => Self::Coming(count.into()),
        }
    }

    /// One word for programs.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Ready => "Ready",
            Self::Coming(_) => "Progressing",
            Self::Failed(_) => "Failed",
        }
    }

    /// A sentence for people.
    pub fn message(&self) -> Arc<str> {
        match self {
            Self::Ready => "all its proxies are ready".into(),
            Self::Coming(message) | Self::Failed(message) => message.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark() -> Mark {
        Mark { uid: "u".into(), version: Version("1".into()) }
    }

    #[test]
    fn parts_are_made_and_mended_in_their_order() {
        let (same, different) = (Found::Same(mark()), Found::Different(mark()));
        let next = |second: &Found, third: &Found| {
            to_have(&[('a', same.clone()), ('b', second.clone()), ('c', third.clone())])
        };
        assert_eq!(next(&Found::Missing, &Found::Missing), Step::Create('b'));
        assert_eq!(next(&different, &Found::Missing), Step::Update('b', mark()));
        assert_eq!(next(&same, &Found::Missing), Step::Create('c'));
        assert_eq!(next(&Found::Leaving, &Found::Missing), Step::Wait('b'));
        assert_eq!(next(&Found::Foreign, &Found::Missing), Step::Blocked('b'));
        assert_eq!(next(&same, &same), Step::Done);
    }

    #[test]
    fn parts_go_in_the_reverse_order_and_what_is_not_ours_stays() {
        let (same, different) = (Found::Same(mark()), Found::Different(mark()));
        let next = |second: &Found, third: &Found| {
            to_lose(&[('a', same.clone()), ('b', second.clone()), ('c', third.clone())])
        };
        assert_eq!(next(&same, &different), Step::Delete('c', mark()));
        assert_eq!(next(&same, &Found::Leaving), Step::Wait('c'));
        assert_eq!(next(&same, &Found::Missing), Step::Delete('b', mark()));
        assert_eq!(next(&Found::Foreign, &Found::Foreign), Step::Delete('a', mark()));
        assert_eq!(to_lose(&[('a', Found::Missing), ('b', Found::Foreign)]), Step::Done);
    }

    #[test]
    fn it_is_ready_when_all_copies_are_and_has_failed_when_they_are_stuck() {
        let standing = |ready, stuck: Option<&str>| {
            Standing::of(&Rollout { wanted: 2, ready, stuck: stuck.map(Into::into) })
        };
        assert_eq!(standing(2, None), Standing::Ready);
        assert_eq!(standing(1, None), Standing::Coming("1 of 2 proxies are ready".into()));
        let failed = Standing::Failed("0 of 2 proxies are ready: no image".into());
        assert_eq!(standing(0, Some("no image")), failed);
    }
}
