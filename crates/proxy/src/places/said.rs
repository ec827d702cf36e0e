//! Logs that clients are refused or displaced, at most once in ten seconds. It decides nothing;
//! places and heads report to it.

use super::client::Client;
use parking_lot::Mutex;
use std::time::{Duration, Instant};

const EVERY: Duration = Duration::from_secs(10);

/// What was not logged yet.
#[derive(Debug, Default)]
pub(super) struct Said(Mutex<Since>);

#[derive(Debug, Default)]
struct Since {
    refused: u64,
    displaced: u64,
    last: Option<Instant>,
}

/// What to log.
#[derive(Debug, PartialEq, Eq)]
struct Line {
    refused: u64,
    displaced: u64,
}

impl Said {
    /// A client was refused because it has its share.
    pub(super) fn refused(&self, what: &'static str, client: Client) {
        self.tell(what, client, |since| since.refused += 1);
    }

    /// A place of the client with the most was given to another client.
    pub(super) fn displaced(&self, what: &'static str, client: Client) {
        self.tell(what, client, |since| since.displaced += 1);
    }

    fn tell(&self, what: &'static str, client: Client, count: impl FnOnce(&mut Since)) {
        let line = {
            let mut since = self.0.lock();
            count(&mut since);
            since.due(Instant::now())
        };
        if let Some(Line { refused, displaced }) = line {
            tracing::warn!(
                what, %client, refused, displaced,
                "places run short: clients with their share are refused, or give way to others"
            );
        }
    }
}

impl Since {
    fn due(&mut self, now: Instant) -> Option<Line> {
        if self.last.is_some_and(|last| now.saturating_duration_since(last) < EVERY) {
            return None;
        }
        self.last = Some(now);
        let line = Line { refused: self.refused, displaced: self.displaced };
        (self.refused, self.displaced) = (0, 0);
        Some(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_told_once_in_ten_seconds_with_how_many_it_was() {
        let (mut since, start) = (Since { refused: 1, ..Since::default() }, Instant::now());
        assert_eq!(since.due(start), Some(Line { refused: 1, displaced: 0 }));
        for _ in 0..1000 {
            since.refused += 1;
            since.displaced += 2;
            assert_eq!(since.due(start + EVERY / 2), None);
        }
        assert_eq!(since.due(start + EVERY), Some(Line { refused: 1000, displaced: 2000 }));
    }
}
