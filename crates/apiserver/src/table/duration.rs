//! The durations in tables.

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

/// The largest two or three units of a duration: `45s`, `5m30s`, `3d4h`, `2y10d`, as apimachinery's
/// HumanDuration. A difference of one second into the future counts as zero; a larger one is
/// `<invalid>`.
pub fn human_duration(duration: SignedDuration) -> String {
    let seconds = duration.as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    let two = |big: i64, unit: &str, small: i64, small_unit: &str| {
        if small == 0 { format!("{big}{unit}") } else { format!("{big}{unit}{small}{small_unit}") }
    };
    match () {
        () if seconds < -1 => "<invalid>".to_owned(),
        () if seconds < 0 => "0s".to_owned(),
        () if seconds < 120 => format!("{seconds}s"),
        () if minutes < 10 => two(minutes, "m", seconds % 60, "s"),
        () if minutes < 180 => format!("{minutes}m"),
        () if hours < 8 => two(hours, "h", minutes % 60, "m"),
        () if hours < 48 => format!("{hours}h"),
        () if hours < 192 => two(days, "d", hours % 24, "h"),
        () if hours < 24 * 365 * 2 => format!("{days}d"),
        () if hours < 24 * 365 * 8 => two(days / 365, "y", days % 365, "d"),
        () => format!("{}y", days / 365),
    }
}

/// The time since this timestamp. `<unknown>`: it is absent.
pub(super) fn since(timestamp: &Value, now: Timestamp) -> String {
    match timestamp.as_str() {
        None | Some("") => "<unknown>".to_owned(),
        Some(text) => match text.parse::<Timestamp>() {
            Ok(moment) => human_duration(now.duration_since(moment)),
            Err(_) => "<invalid>".to_owned(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn durations_are_rounded_as_kubectl_rounds_them() {
        const HOUR: i64 = 3600;
        const DAY: i64 = 24 * HOUR;
        const YEAR: i64 = 365 * DAY;
        for (seconds, expected) in [
            (-2, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (1, "1s"),
            (70, "70s"),
            (119, "119s"),
            (120, "2m"),
            (121, "2m1s"),
            (599, "9m59s"),
            (600, "10m"),
            (630, "10m"),
            (3 * HOUR - 1, "179m"),
            (3 * HOUR, "3h"),
            (3 * HOUR + 60, "3h1m"),
            (8 * HOUR - 1, "7h59m"),
            (8 * HOUR, "8h"),
            (2 * DAY - 1, "47h"),
            (2 * DAY, "2d"),
            (3 * DAY + 4 * HOUR, "3d4h"),
            (8 * DAY, "8d"),
            (8 * DAY + HOUR, "8d"),
            (2 * YEAR - 1, "729d"),
            (2 * YEAR, "2y"),
            (2 * YEAR + DAY, "2y1d"),
            (8 * YEAR - 1, "7y364d"),
            (8 * YEAR, "8y"),
            (100 * YEAR, "100y"),
        ] {
            assert_eq!(human_duration(SignedDuration::from_secs(seconds)), expected, "{seconds}");
        }
        assert_eq!(human_duration(SignedDuration::from_millis(-1999)), "0s");
        assert_eq!(human_duration(SignedDuration::from_millis(-999)), "0s");
        assert_eq!(human_duration(SignedDuration::MAX), format!("{}y", i64::MAX / YEAR));
        assert_eq!(human_duration(SignedDuration::MIN), "<invalid>");
    }

    #[test]
    fn ages_are_counted_from_the_timestamp() {
        let now = "2024-01-02T00:00:00Z".parse().unwrap();
        for (timestamp, expected) in [
            (json!("2024-01-01T23:59:00Z"), "60s"),
            (json!("2024-01-01T23:59:59.5Z"), "0s"),
            (json!("2023-12-25T00:00:00+01:00"), "8d"),
            (json!("2025-01-01T00:00:00Z"), "<invalid>"),
            (json!("yesterday"), "<invalid>"),
            (json!(null), "<unknown>"),
            (json!(""), "<unknown>"),
        ] {
            assert_eq!(since(&timestamp, now), expected, "{timestamp}");
        }
    }
}
