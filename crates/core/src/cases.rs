//! What the property tests of state machines share: which random cases they draw, the fate of a write that a leader
//! sends, and how far the watch of a leader is.

use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config, RngSeed};

/// This many cases, and the same ones in each run, so that no change fails by chance. `PROPTEST_CASES` asks for that
/// many new ones instead: `make soak` does.
pub(crate) fn cases(usual: u32) -> Config {
    let asked = std::env::var("PROPTEST_CASES").ok().and_then(|it| it.parse().ok());
    let rng_seed = if asked.is_some() { RngSeed::Random } else { RngSeed::Fixed(4) };
    Config { cases: asked.unwrap_or(usual), rng_seed, ..Config::default() }
}

/// The fate of a write.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fate {
    /// The API carries it out and answers.
    Answered,
    /// The API carries it out, and the answer is lost.
    AnswerLost,
    /// It never reaches the API.
    Lost,
}

/// A random fate, mostly answered.
pub(crate) fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        6 => Just(Fate::Answered),
        1 => Just(Fate::AnswerLost),
        1 => Just(Fate::Lost)
    ]
}

/// Takes one of the pending items, in any order.
pub(crate) fn pick<T>(pending: &mut Vec<T>, which: Index) -> Option<T> {
    (!pending.is_empty()).then(|| pending.swap_remove(which.index(pending.len())))
}

/// The next events of a log that a leader has observed up to `observed`, which moves on by at most `count`.
pub(crate) fn next_events<'a, E>(log: &'a [E], observed: &mut usize, count: usize) -> &'a [E] {
    let from = std::mem::replace(observed, (*observed + count).min(log.len()));
    &log[from..*observed]
}
