//! How namespaces share a bounded quantity: the listeners that an agent can open, and the bytes of certificates in its
//! Secrets. It does no I/O. `certificate_rooms` and `resolver::shares` count what each namespace has, and ask whether it may have
//! more. They also decide which waiting item comes first.
//!
//! ```text
//! all that there is ─┬─ half: every namespace has a part of it to itself
//!                    └─ half: what namespaces have beyond that, at most a quarter of all for each
//! ```
//!
//! A namespace that has claimed the load balancer, and so is alone on it, may have everything.

/// The limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// All that there is.
    pub most: usize,
    /// What every namespace has to itself.
    pub own: usize,
    /// The most that one namespace may have.
    pub each: usize,
    /// The most that all namespaces together may have beyond their own.
    pub common: usize,
}

/// No bound.
impl Default for Quota {
    fn default() -> Self {
        Self::of(usize::MAX, usize::MAX)
    }
}

/// The amounts in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// By all, including what belongs to no namespace.
    all: usize,
    /// By namespaces, beyond their own.
    common: usize,
}

/// Why a namespace may not have more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// All of it is in use: this much.
    All(usize),
    /// The namespace has the most that one may have: this much.
    Namespace(usize),
    /// The namespace has its own part, which is this much, and the common part is used up.
    Common(usize),
}

impl Quota {
    /// Limits for a quantity of `most`, of which every namespace has `own` to itself.
    pub const fn of(most: usize, own: usize) -> Self {
        let each = if most < 4 { 1 } else { most / 4 };
        Self { most, own, each, common: most / 2 }
    }

    /// The part of an amount of one namespace that is beyond its own.
    const fn beyond(&self, has: usize) -> usize {
        has.saturating_sub(self.own)
    }

    /// Why a namespace that has `has` may not have `more` on top. `alone`: no other namespace may come.
    pub fn refuse(&self, taken: &Taken, has: usize, more: usize, alone: bool) -> Option<Full> {
        let then = has + more;
        if taken.all + more > self.most {
            Some(Full::All(self.most))
        } else if alone || then <= self.own {
            None
        } else if then > self.each {
            Some(Full::Namespace(self.each))
        } else {
            let common = taken.common + self.beyond(then) - self.beyond(has);
            (common > self.common).then_some(Full::Common(self.own))
        }
    }
}

impl Taken {
    /// The amount in use by all.
    pub fn all(&self) -> usize {
        self.all
    }

    /// The amount of a namespace changes.
    pub fn change(&mut self, quota: &Quota, before: usize, now: usize) {
        self.change_of_none(before, now);
        self.common = self.common + quota.beyond(now) - quota.beyond(before);
    }

    /// The amount that belongs to no namespace changes.
    pub fn change_of_none(&mut self, before: usize, now: usize) {
        self.all = self.all + now - before;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The amounts in use when namespaces have these.
    fn taken(quota: &Quota, all: &[usize]) -> Taken {
        let mut taken = Taken::default();
        all.iter().for_each(|has| taken.change(quota, 0, *has));
        taken
    }

    #[test]
    fn a_namespace_has_its_own_then_what_is_common_up_to_a_quarter() {
        let quota = Quota::of(100, 5);
        let with = |all: &[usize], has, more| quota.refuse(&taken(&quota, all), has, more, false);
        assert_eq!(with(&[], 0, 25), None);
        assert_eq!(with(&[], 0, 26), Some(Full::Namespace(25)));
        assert_eq!(with(&[25, 25], 0, 15), None);
        assert_eq!(with(&[25, 25], 0, 16), Some(Full::Common(5)));
        assert_eq!(with(&[25, 25, 15], 0, 5), None);
        // Where all is too little for the own part of every namespace, the first to come gets the rest.
        assert_eq!(with(&[5; 20], 0, 1), Some(Full::All(100)));
    }

    #[test]
    fn what_belongs_to_no_namespace_leaves_what_is_common_as_it_is() {
        let quota = Quota::of(100, 5);
        let mut taken = taken(&quota, &[25, 25]);
        taken.change_of_none(0, 30);
        assert_eq!((taken.all(), quota.refuse(&taken, 0, 15, false)), (80, None));
        assert_eq!(quota.refuse(&taken, 0, 21, false), Some(Full::All(100)));
    }

    #[test]
    fn a_namespace_that_is_alone_has_everything_and_without_a_bound_all_have() {
        let quota = Quota::of(100, 5);
        assert_eq!(quota.refuse(&taken(&quota, &[60]), 60, 40, true), None);
        assert_eq!(quota.refuse(&taken(&quota, &[60]), 60, 41, true), Some(Full::All(100)));
        let none = Quota::default();
        assert_eq!(none.refuse(&taken(&none, &[1 << 40]), 1 << 40, 1 << 40, false), None);
    }

    proptest! {
        /// Namespaces take and release amounts at random. A namespace that has nothing always gets its own part, as
        /// long as there are no more namespaces than half of the quantity is enough for.
        #[test]
        fn every_namespace_finds_its_own_whatever_others_have(
            steps in prop::collection::vec((0..9usize, 0..40usize, prop::bool::ANY), 0..60),
        ) {
            let quota = Quota::of(100, 5);
            let (mut all, mut taken) = ([0; 9], Taken::default());
            for (namespace, amount, more) in steps {
                let has = all[namespace];
                let now = match more {
                    true if quota.refuse(&taken, has, amount, false).is_none() => has + amount,
                    true => has,
                    false => has - amount.min(has),
                };
                taken.change(&quota, has, now);
                all[namespace] = now;
                prop_assert_eq!(taken, self::taken(&quota, &all));
                prop_assert!(now <= quota.each && taken.common <= quota.common, "{:?}", all);
                prop_assert_eq!(quota.refuse(&taken, 0, quota.own, false), None, "{:?}", all);
            }
        }
    }
}
