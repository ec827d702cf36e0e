//! What stands behind a load balancer that a class made, and what comes next: of its parts, in the order in
//! which they are made, and of how each was found, one step. It does no I/O and knows no kind of part; whoever
//! makes them (`drivers::provision`) observes, takes the step and observes again. So it does not matter where
//! somebody before was killed.

use crate::objects::Version;
use crate::plan::BY_NAME;
use std::net::IpAddr;
use std::sync::Arc;

/// Which one of its name a part is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Its uid.
    pub uid: Arc<str>,
    /// Its version.
    pub version: Version,
}

/// How a part was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// There is none.
    Missing,
    /// It is as it should be.
    Same(Mark),
    /// It is ours, and somebody made it different, or it should be different now.
    Different(Mark),
    /// It is being removed.
    Leaving,
    /// Something of this name is not ours.
    Foreign,
}

/// What comes next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step<P> {
    /// Make this; that there is one means that somebody else was faster.
    Create(P),
    /// Change this one to what it should be.
    Update(P, Mark),
    /// Remove this one.
    Delete(P, Mark),
    /// Until this is gone nothing can be done.
    Wait(P),
    /// Something that is not ours has the name of this.
    Blocked(P),
    /// Nothing: all is as it should be.
    Done,
}

/// The next step towards all parts, given in the order of making.
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

/// The next step towards none of them: the last that was made goes first. What is not ours stays.
pub fn to_lose<P: Copy>(found: &[(P, Found)]) -> Step<P> {
    let step = |(part, found): &(P, Found)| match found {
        Found::Same(mark) | Found::Different(mark) => Some(Step::Delete(*part, mark.clone())),
        Found::Leaving => Some(Step::Wait(*part)),
        Found::Missing | Found::Foreign => None,
    };
    found.iter().rev().find_map(step).unwrap_or(Step::Done)
}

/// How far the copies of a proxy are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rollout {
    /// How many there should be.
    pub wanted: u32,
    /// How many of them, as they should be, take traffic.
    pub ready: u32,
    /// Why no more will be, as far as is known.
    pub stuck: Option<Arc<str>>,
}

/// Where clients reach what stands in front of a load balancer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reach {
    /// At these addresses.
    pub addresses: Vec<IpAddr>,
    /// Under these names, whose addresses are their owner's business.
    pub hostnames: Vec<Arc<str>>,
}

impl Reach {
    /// Where listeners are planned.
    pub fn listeners(&self) -> Vec<IpAddr> {
        let named = (!self.hostnames.is_empty()).then_some(BY_NAME);
        named.into_iter().chain(self.addresses.iter().copied()).collect()
    }
}

/// Whether what was made for a load balancer is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It is.
    Ready,
    /// It is on its way.
    Coming(Arc<str>),
    /// It is not, and somebody has to do something.
    Failed(Arc<str>),
}

impl Standing {
    /// What a rollout says, once every part is as it should be.
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
