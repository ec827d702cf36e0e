//! The keys that a controller has to work on, and when each is due. It coalesces, delays and backs
//! off, and never gives out a key that is being worked on. It does no I/O: time is an argument, and
//! the shell owns the clock.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

const FIRST_DELAY: Duration = Duration::from_millis(100);

/// Keys, each with the time at which it is due.
#[derive(Debug)]
pub(super) struct Queue<K> {
    waiting: BTreeMap<K, Instant>,
    order: BTreeSet<(Instant, K)>,
    running: BTreeMap<K, Option<Instant>>,
    failures: BTreeMap<K, u32>,
}

impl<K> Default for Queue<K> {
    fn default() -> Self {
        Self {
            waiting: BTreeMap::new(),
            order: BTreeSet::new(),
            running: BTreeMap::new(),
            failures: BTreeMap::new(),
        }
    }
}

impl<K: Ord + Clone> Queue<K> {
    /// Enqueues a key for `due`; an earlier due time wins. While the key is being worked on, it is
    /// enqueued when that ends.
    pub(super) fn add(&mut self, key: K, due: Instant) {
        if let Some(again) = self.running.get_mut(&key) {
            *again = Some(again.map_or(due, |known| known.min(due)));
            return;
        }
        match self.waiting.get_mut(&key) {
            Some(known) if *known <= due => {}
            Some(known) => {
                self.order.remove(&(*known, key.clone()));
                *known = due;
                self.order.insert((due, key));
            }
            None => {
                self.waiting.insert(key.clone(), due);
                self.order.insert((due, key));
            }
        }
    }

    /// Takes a key that is due. The key is being worked on until [`Queue::finish`] or [`Queue::fail`].
    pub(super) fn take(&mut self, now: Instant) -> Option<K> {
        let (due, _) = self.order.first()?;
        if *due > now {
            return None;
        }
        let (_, key) = self.order.pop_first()?;
        self.waiting.remove(&key);
        self.running.insert(key.clone(), None);
        Some(key)
    }

    /// When the next key is due.
    pub(super) fn next(&self) -> Option<Instant> {
        self.order.first().map(|(due, _)| *due)
    }

    /// Work on a key has succeeded.
    pub(super) fn finish(&mut self, key: &K) {
        self.failures.remove(key);
        self.release(key);
    }

    /// Work on a key has failed or is not finished. The key is due again after a delay that doubles
    /// each time, up to `longest`. Returns the delay.
    pub(super) fn fail(&mut self, key: K, now: Instant, longest: Duration) -> Duration {
        let failures = self.failures.entry(key.clone()).or_default();
        let delay = FIRST_DELAY.saturating_mul(1 << (*failures).min(16)).min(longest);
        *failures += 1;
        self.release(&key);
        self.add(key, now + delay);
        delay
    }

    fn release(&mut self, key: &K) {
        if let Some(Some(due)) = self.running.remove(key) {
            self.add(key.clone(), due);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONGEST: Duration = Duration::from_secs(30);

    fn ms(base: Instant, ms: u64) -> Instant {
        base + Duration::from_millis(ms)
    }

    #[test]
    fn a_key_asked_for_many_times_is_given_out_once_at_the_earliest_time() {
        let base = Instant::now();
        let mut queue = Queue::default();
        queue.add("a", ms(base, 30));
        queue.add("a", ms(base, 10));
        queue.add("a", ms(base, 20));
        assert_eq!(queue.take(ms(base, 9)), None);
        assert_eq!(queue.next(), Some(ms(base, 10)));
        assert_eq!(queue.take(ms(base, 10)), Some("a"));
        assert_eq!(queue.take(ms(base, 100)), None);
    }

    #[test]
    fn a_key_asked_for_while_it_is_worked_on_comes_again_afterwards() {
        let base = Instant::now();
        let mut queue = Queue::default();
        queue.add("a", base);
        assert_eq!(queue.take(base), Some("a"));
        queue.add("a", ms(base, 1));
        assert_eq!(queue.take(ms(base, 5)), None);
        queue.finish(&"a");
        assert_eq!(queue.take(ms(base, 5)), Some("a"));
        queue.finish(&"a");
        assert_eq!(queue.take(ms(base, 500)), None);
    }

    #[test]
    fn failures_delay_a_key_longer_each_time_until_it_succeeds() {
        let base = Instant::now();
        let mut queue = Queue::default();
        let mut delays = Vec::new();
        let mut now = base;
        queue.add("a", now);
        for _ in 0..12 {
            assert_eq!(queue.take(now), Some("a"));
            let delay = queue.fail("a", now, LONGEST);
            delays.push(delay.as_millis());
            now += delay;
        }
        assert_eq!(delays[..4], [100, 200, 400, 800]);
        assert_eq!(delays[11], 30_000);
        assert_eq!(queue.take(now), Some("a"));
        queue.finish(&"a");
        queue.add("a", now);
        queue.take(now);
        assert_eq!(queue.fail("a", now, LONGEST).as_millis(), 100);
    }

    #[test]
    fn news_of_a_key_ends_its_delay_but_not_its_count_of_failures() {
        let base = Instant::now();
        let mut queue = Queue::default();
        queue.add("a", base);
        queue.take(base);
        queue.add("a", ms(base, 20));
        queue.fail("a", base, LONGEST);
        assert_eq!(queue.take(ms(base, 20)), Some("a"));
        assert_eq!(queue.fail("a", base, LONGEST).as_millis(), 200);
    }
}
