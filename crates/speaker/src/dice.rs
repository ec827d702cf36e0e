//! Pseudo-random numbers from a seed (SplitMix64). They spread timers and choose among equals. They are no secrets: a
//! key, a session number or a challenge comes from the shell.

/// A sequence of numbers that looks random and is the same for each seed.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// The sequence of this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `limit`, or 0.
    pub fn below(&mut self, limit: usize) -> usize {
        // The high half of the product; a modulo would prefer small numbers.
        ((u128::from(self.roll()) * limit as u128) >> 64) as usize
    }

    /// A fraction between `from` and `to`.
    pub fn between(&mut self, from: f64, to: f64) -> f64 {
        from + (to - from) * (self.roll() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Puts the items into a random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for end in (1..items.len()).rev() {
            items.swap(end, self.below(end + 1));
        }
    }
}

/// Spreads the bits of a number over all of its result.
pub(crate) fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use super::Dice;

    #[test]
    fn numbers_stay_in_their_range_and_reach_all_of_it() {
        let mut dice = Dice::new(7);
        let mut seen = [0; 5];
        for _ in 0..1000 {
            seen[dice.below(5)] += 1;
            let fraction = dice.between(0.75, 1.0);
            assert!((0.75..1.0).contains(&fraction), "{fraction}");
        }
        assert!(seen.iter().all(|count| (150..250).contains(count)), "{seen:?}");
        assert_eq!(dice.below(0), 0);
    }
}
