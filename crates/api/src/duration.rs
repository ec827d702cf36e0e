//! Durations as people write them: `30s`, `5m`, `1h30m`. The schema accepts exactly what
//! [`Duration`] can read, so an object that a server accepted never fails to decode. [`Interval`] is for milliseconds.

use crate::schema;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

/// Hours, minutes and seconds, each at most once and in this order; at least one of them. Six digits
/// at most, so that no sum overflows.
const PATTERN: &str =
    "^([0-9]{1,6}h([0-9]{1,6}m)?([0-9]{1,6}s)?|[0-9]{1,6}m([0-9]{1,6}s)?|[0-9]{1,6}s)$";

/// A length of time in whole seconds.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(try_from = "String", into = "String")]
pub struct Duration(std::time::Duration);

/// A text that is not a duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a duration: write hours, minutes and seconds, such as 30s, 5m or 1h30m")]
pub struct DurationError(String);

impl Duration {
    /// A duration of whole seconds.
    pub const fn from_secs(seconds: u64) -> Self {
        Self(std::time::Duration::from_secs(seconds))
    }
}

impl From<Duration> for std::time::Duration {
    fn from(value: Duration) -> Self {
        value.0
    }
}

impl FromStr for Duration {
    type Err = DurationError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        seconds(text).map(Self::from_secs).ok_or_else(|| DurationError(text.to_owned()))
    }
}

fn seconds(text: &str) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    let mut rest = text;
    let mut total = 0;
    for (unit, seconds) in [('h', 3600), ('m', 60), ('s', 1)] {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let Some(after) = rest[digits..].strip_prefix(unit) else { continue };
        if !(1..=6).contains(&digits) {
            return None;
        }
        total += rest[..digits].parse::<u64>().ok()? * seconds;
        rest = after;
    }
    rest.is_empty().then_some(total)
}

impl TryFrom<String> for Duration {
    type Error = DurationError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Duration> for String {
    fn from(value: Duration) -> Self {
        value.to_string()
    }
}

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        let parts = [(seconds / 3600, 'h'), (seconds / 60 % 60, 'm'), (seconds % 60, 's')];
        for (count, unit) in parts.into_iter().filter(|(count, _)| *count > 0) {
            write!(f, "{count}{unit}")?;
        }
        if seconds == 0 { f.write_str("0s") } else { Ok(()) }
    }
}

impl JsonSchema for Duration {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Duration".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "maxLength": 21, "pattern": PATTERN })
    }
}

/// A [`Duration`] that a user writes into a field without other rules. Its rule says in words what the pattern would say as a
/// regular expression.
pub(crate) fn written_duration(_: &mut SchemaGenerator) -> Schema {
    let message = "must be hours, minutes and seconds in this order, such as 30s, 5m or 1h30m";
    schema::written((0, 21), PATTERN.trim_matches(['^', '$']), message)
}

/// The same within bounds: `bounds` is an expression over `duration(self)`, and `message` says it in words.
pub(crate) fn bounded_duration(
    generator: &mut SchemaGenerator,
    bounds: &str,
    message: &str,
) -> Schema {
    bounded(written_duration(generator), PATTERN, bounds, message)
}

/// An [`Interval`] that a user writes, within bounds.
pub(crate) fn bounded_interval(bounds: &str, message: &str) -> Schema {
    let shape = "must be milliseconds or seconds, such as 300ms or 1s";
    let pattern = INTERVAL_PATTERN.trim_matches(['^', '$']);
    bounded(schema::written((0, 8), pattern, shape), pattern, bounds, message)
}

/// What is no duration is only told that.
fn bounded(mut schema: Schema, pattern: &str, bounds: &str, message: &str) -> Schema {
    let is_duration = schema::matches(pattern.trim_matches(['^', '$']));
    schema::rule(&mut schema, &format!("!{is_duration} || ({bounds})"), message);
    schema
}

/// Milliseconds or seconds; no hours, because nobody waits that long between two packets.
const INTERVAL_PATTERN: &str = "^([0-9]{1,6}ms|[0-9]{1,3}s)$";

/// A short length of time in milliseconds, such as the interval of packets: `300ms`, `1s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Interval(std::time::Duration);

/// A text that is not an interval.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an interval: write milliseconds or seconds, such as 300ms or 1s")]
pub struct IntervalError(String);

impl Interval {
    /// An interval of whole milliseconds.
    pub const fn from_millis(millis: u64) -> Self {
        Self(std::time::Duration::from_millis(millis))
    }
}

impl From<Interval> for std::time::Duration {
    fn from(value: Interval) -> Self {
        value.0
    }
}

impl FromStr for Interval {
    type Err = IntervalError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let digits = |longest: usize| {
            move |it: &&str| {
                (1..=longest).contains(&it.len()) && it.bytes().all(|b| b.is_ascii_digit())
            }
        };
        let millis = text.strip_suffix("ms").filter(digits(6)).and_then(|it| it.parse().ok());
        let seconds = || {
            let seconds: u64 = text.strip_suffix('s').filter(digits(3))?.parse().ok()?;
            Some(seconds * 1000)
        };
        let millis = millis.or_else(seconds);
        millis.map(Self::from_millis).ok_or_else(|| IntervalError(text.to_owned()))
    }
}

impl TryFrom<String> for Interval {
    type Error = IntervalError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Interval> for String {
    fn from(value: Interval) -> Self {
        value.to_string()
    }
}

impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_millis() {
            millis if millis % 1000 == 0 => write!(f, "{}s", millis / 1000),
            millis => write!(f, "{millis}ms"),
        }
    }
}

impl JsonSchema for Interval {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Interval".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "maxLength": 8, "pattern": INTERVAL_PATTERN })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn hours_minutes_and_seconds_are_read_in_this_order_and_nothing_else_is() {
        let cases = [
            ("30s", Some(30)),
            ("5m", Some(300)),
            ("1h30m", Some(5400)),
            ("1h30s", Some(3630)),
            ("90m", Some(5400)),
            ("0s", Some(0)),
            ("999999h999999m999999s", Some(999_999 * 3661)),
            ("", None),
            ("5", None),
            ("m", None),
            ("-5m", None),
            ("1.5h", None),
            ("30s1m", None),
            ("1m1m", None),
            ("5m ", None),
            ("5M", None),
            ("1000000s", None),
            ("5ms", None),
            ("٥m", None),
        ];
        for (text, expected) in cases {
            let read = text.parse::<Duration>().ok();
            assert_eq!(read, expected.map(Duration::from_secs), "{text:?}");
        }
    }

    #[test]
    fn an_interval_is_milliseconds_or_seconds() {
        for (text, millis) in [
            ("300ms", Some(300)),
            ("0ms", Some(0)),
            ("1s", Some(1000)),
            ("999999ms", Some(999_999)),
            ("1000000ms", None),
            ("1000s", None),
            ("1m", None),
            ("", None),
            ("ms", None),
            ("s", None),
            ("300", None),
            ("+1s", None),
            ("-1ms", None),
            ("1.5s", None),
            (" 1s", None),
            ("٥s", None),
        ] {
            let read = text.parse::<Interval>().ok();
            assert_eq!(read, millis.map(Interval::from_millis), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn an_interval_that_is_printed_is_read_back(millis in 0u64..1_000_000) {
            let interval = Interval::from_millis(millis);
            prop_assert_eq!(interval.to_string().parse::<Interval>(), Ok(interval));
        }

        #[test]
        fn what_is_printed_is_read_back(seconds in 0u64..3_000_000_000) {
            let duration = Duration::from_secs(seconds);
            prop_assert_eq!(duration.to_string().parse::<Duration>(), Ok(duration));
        }

        #[test]
        fn no_text_makes_the_reader_fail_otherwise_than_by_an_error(text in "\\PC{0,24}") {
            let _ = text.parse::<Duration>();
        }
    }
}
