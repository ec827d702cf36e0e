//! Which random cases the property tests draw.

use proptest::test_runner::{Config, RngSeed};

/// This many cases, and the same ones in each run, so that no change fails by chance. `PROPTEST_CASES` asks for that
/// many new ones instead.
pub(crate) fn cases(usual: u32) -> Config {
    let asked = std::env::var("PROPTEST_CASES").ok().and_then(|it| it.parse().ok());
    let rng_seed = if asked.is_some() { RngSeed::Random } else { RngSeed::Fixed(4) };
    Config { cases: asked.unwrap_or(usual), rng_seed, ..Config::default() }
}
