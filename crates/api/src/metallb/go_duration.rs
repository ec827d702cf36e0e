//! Durations as Go writes them (`1m30s`, `1.5h`, `300ms`), which MetalLB's kinds have. It only reads; what a duration may
//! be is decided where it is used.

use std::time::Duration;

/// None: not a duration, or a negative one.
pub(super) fn parse(text: &str) -> Option<Duration> {
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest == "0" {
        return Some(Duration::ZERO);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total = Duration::ZERO;
    while !rest.is_empty() {
        let (whole, after) = digits(rest);
        let (part, after) = after.strip_prefix('.').map_or(("", after), digits);
        let end = after.find(|it: char| it.is_ascii_digit() || it == '.').unwrap_or(after.len());
        let nanos: u64 = match &after[..end] {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return None,
        };
        if whole.is_empty() && part.is_empty() {
            return None;
        }
        let number: u64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
        let mut sum = number.checked_mul(nanos)?;
        let mut scale = nanos;
        for digit in part.bytes() {
            scale /= 10;
            sum = sum.checked_add(u64::from(digit - b'0') * scale)?;
        }
        total = total.checked_add(Duration::from_nanos(sum))?;
        rest = &after[end..];
    }
    Some(total)
}

fn digits(text: &str) -> (&str, &str) {
    text.split_at(text.bytes().take_while(u8::is_ascii_digit).count())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_of_go_are_read_and_nothing_else_is() {
        for (text, millis) in [
            ("90s", Some(90_000)),
            ("1m30s", Some(90_000)),
            ("1m30.5s", Some(90_500)),
            ("1.5h", Some(5_400_000)),
            (".5s", Some(500)),
            ("1.s", Some(1_000)),
            ("300ms", Some(300)),
            ("1000000ns", Some(1)),
            ("1000µs", Some(1)),
            ("0", Some(0)),
            ("0s", Some(0)),
            ("+3s", Some(3_000)),
            ("", None),
            ("+", None),
            ("s", None),
            (".s", None),
            ("90", None),
            ("-90s", None),
            ("90 s", None),
            ("90d", None),
            ("99999999999999999999s", None),
            ("9999999999h", None),
            ("٣s", None),
        ] {
            assert_eq!(parse(text), millis.map(Duration::from_millis), "{text:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_the_reader_panic(text in "[0-9.smhnuµ+-]{0,12}|\\PC{0,12}") {
            let _ = parse(&text);
        }
    }
}
