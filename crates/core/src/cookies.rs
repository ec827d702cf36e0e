//! Decides which load balancers get a secret to sign persistence cookies with, and what to do with a recorded one. It
//! knows properties of a recorded secret and never sees one; the leader carries the step out.

/// What is known of a recorded secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recorded<'a> {
    /// The uid of its owner, if the owner is a load balancer of this name.
    pub owner: Option<&'a str>,
    /// Whether agents can use it.
    pub readable: bool,
}

/// What to do with the secret of a load balancer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing.
    Keep,
    /// Record a new one, unless another leader has done so by then.
    Make,
    /// Make the load balancer the owner of the recorded one: clients keep their cookies.
    Adopt,
    /// Record another one in its place, with the load balancer as its owner.
    Renew,
}

impl Step {
    /// Whether the step needs a new secret.
    pub fn is_anew(self) -> bool {
        matches!(self, Self::Make | Self::Renew)
    }
}

/// The step for a load balancer of this uid. `driven`: whether it has a driver here. `uid` is None if no load
/// balancer has this name; a recorded secret is deleted with its owner.
pub fn step(uid: Option<&str>, driven: bool, recorded: Option<Recorded<'_>>) -> Step {
    let Some(uid) = uid.filter(|_| driven) else { return Step::Keep };
    match recorded {
        None => Step::Make,
        Some(Recorded { readable: false, .. }) => Step::Renew,
        Some(Recorded { owner, .. }) if owner == Some(uid) => Step::Keep,
        Some(_) => Step::Adopt,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded(owner: Option<&str>, readable: bool) -> Option<Recorded<'_>> {
        Some(Recorded { owner, readable })
    }

    #[test]
    fn a_load_balancer_that_is_driven_gets_a_secret_and_keeps_it() {
        assert_eq!(step(Some("u"), true, None), Step::Make);
        assert_eq!(step(Some("u"), true, recorded(Some("u"), true)), Step::Keep);
    }

    #[test]
    fn one_that_belongs_to_nobody_or_to_another_of_this_name_is_adopted_as_it_is() {
        for owner in [None, Some("before")] {
            assert_eq!(step(Some("u"), true, recorded(owner, true)), Step::Adopt);
        }
        assert!(!Step::Adopt.is_anew());
    }

    #[test]
    fn one_that_cannot_be_read_is_renewed_whoever_owns_it() {
        for owner in [None, Some("before"), Some("u")] {
            assert_eq!(step(Some("u"), true, recorded(owner, false)), Step::Renew);
        }
        assert!(Step::Renew.is_anew() && Step::Make.is_anew());
    }

    #[test]
    fn who_is_gone_or_not_driven_gets_none_and_what_is_recorded_stays() {
        let all = [None, recorded(Some("u"), true), recorded(None, false)];
        assert_eq!(all.map(|recorded| step(Some("u"), false, recorded)), [Step::Keep; 3]);
        assert_eq!(all.map(|recorded| step(None, true, recorded)), [Step::Keep; 3]);
    }
}
