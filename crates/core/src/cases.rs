//! Which random cases the tests of a state machine draw.

use proptest::test_runner::{Config, RngSeed};

/// So many, and the same ones each time, as a change must not wait for bad luck. `PROPTEST_CASES` asks for so
/// many new ones instead.
pub(crate) fn cases(usual: u32) -> Config {
    let asked = std::env::var("PROPTEST_CASES").ok().and_then(|it| it.parse().ok());
    let rng_seed = if asked.is_some() { RngSeed::Random } else { RngSeed::Fixed(4) };
    Config { cases: asked.unwrap_or(usual), rng_seed, ..Config::default() }
}
