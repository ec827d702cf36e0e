//! Which member a client address is tied to, for as long after its last visit as the pool says.
//!
//! Two generations bound it: the young one fills up or grows old, then it becomes the old one and the
//! one before is forgotten. An entry that is used moves to the young, so what is forgotten for lack
//! of room is what was not used for longest.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use tokio::time::Instant;

/// So many clients per pool are remembered.
const LIMIT: usize = 65_536;

#[derive(Debug)]
pub(super) struct Sticky {
    young: HashMap<IpAddr, Tie>,
    old: HashMap<IpAddr, Tie>,
    since: Option<Instant>,
    limit: usize,
}

#[derive(Clone, Copy, Debug)]
struct Tie {
    member: SocketAddr,
    used: Instant,
}

impl Default for Sticky {
    fn default() -> Self {
        Self::with_limit(LIMIT)
    }
}

impl Sticky {
    fn with_limit(limit: usize) -> Self {
        Self { young: HashMap::new(), old: HashMap::new(), since: None, limit }
    }

    /// The client's member, unless it was away for too long.
    pub(super) fn get(
        &self,
        client: IpAddr,
        timeout: Duration,
        now: Instant,
    ) -> Option<SocketAddr> {
        let tie = self.young.get(&client).or_else(|| self.old.get(&client))?;
        (now.saturating_duration_since(tie.used) < timeout).then_some(tie.member)
    }

    /// The client visits this member now.
    pub(super) fn put(
        &mut self,
        client: IpAddr,
        member: SocketAddr,
        timeout: Duration,
        now: Instant,
    ) {
        let since = *self.since.get_or_insert(now);
        let new = !self.young.contains_key(&client);
        // What is in the old generation then was last used a whole timeout ago.
        let aged = now.saturating_duration_since(since) >= timeout;
        if new && (self.young.len() >= self.limit.div_ceil(2) || aged) {
            self.old = std::mem::take(&mut self.young);
            self.since = Some(now);
        }
        self.young.insert(client, Tie { member, used: now });
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TIMEOUT: Duration = Duration::from_secs(60);

    fn client(i: u32) -> IpAddr {
        IpAddr::from(i.to_be_bytes())
    }

    fn member(i: u16) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, 1], i))
    }

    #[test]
    fn a_tie_lasts_for_the_timeout_after_the_last_visit() {
        let (mut sticky, start) = (Sticky::default(), Instant::now());
        sticky.put(client(1), member(1), TIMEOUT, start);
        let later = start + TIMEOUT / 2;
        sticky.put(client(1), member(1), TIMEOUT, later);
        let at = |sticky: &Sticky, t| sticky.get(client(1), TIMEOUT, later + t);
        assert_eq!(at(&sticky, TIMEOUT - Duration::from_millis(1)), Some(member(1)));
        assert_eq!(at(&sticky, TIMEOUT), None);
    }

    #[test]
    fn a_flood_of_clients_takes_bounded_room_and_spares_those_that_come_often() {
        let (mut sticky, now) = (Sticky::with_limit(100), Instant::now());
        for i in 0..10_000 {
            sticky.put(client(i), member(1), TIMEOUT, now);
            sticky.put(client(u32::MAX), member(2), TIMEOUT, now);
            assert!(sticky.len() <= 100, "{}", sticky.len());
        }
        assert_eq!(sticky.get(client(u32::MAX), TIMEOUT, now), Some(member(2)));
        assert_eq!(sticky.get(client(1), TIMEOUT, now), None);
    }

    proptest! {
        #[test]
        fn with_room_it_answers_as_an_unbounded_table_would(
            visits in prop::collection::vec((0u32..6, 0u16..3, 0u64..40), 0..60),
        ) {
            let (mut sticky, mut now) = (Sticky::default(), Instant::now());
            let mut naive: HashMap<u32, (u16, Instant)> = HashMap::new();
            for (who, to, passes) in visits {
                now += Duration::from_secs(passes);
                let expected = naive.get(&who).filter(|(_, used)| now - *used < TIMEOUT);
                let got = sticky.get(client(who), TIMEOUT, now);
                prop_assert_eq!(got, expected.map(|(to, _)| member(*to)));
                sticky.put(client(who), member(to), TIMEOUT, now);
                naive.insert(who, (to, now));
            }
        }
    }
}
