//! Kubernetes quantities (`500m`, `1.5Gi`, `0.5`) in the canonical form in which a typed server writes
//! them. Only exact integers are used. A text that cannot be read stays unchanged. The rules of Pods and
//! their resources call it.

use super::fields::items;
use serde_json::{Value, json};

/// A quantity in billionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Quantity {
    nanos: i128,
    binary: bool,
}

const BILLION: i128 = 1_000_000_000;
const DECIMAL: &[(&str, i128)] = &[
    ("E", 1_000_000_000_000_000_000_000_000_000),
    ("P", 1_000_000_000_000_000_000_000_000),
    ("T", 1_000_000_000_000_000_000_000),
    ("G", 1_000_000_000_000_000_000),
    ("M", 1_000_000_000_000_000),
    ("k", 1_000_000_000_000),
    ("", BILLION),
    ("m", 1_000_000),
    ("u", 1_000),
    ("n", 1),
];
const BINARY: &[(&str, u32)] =
    &[("Ei", 60), ("Pi", 50), ("Ti", 40), ("Gi", 30), ("Mi", 20), ("Ki", 10)];

impl Quantity {
    /// Reads a quantity, from a string or from a number.
    pub(super) fn read(value: &Value) -> Option<Self> {
        match value {
            Value::String(text) => Self::parse(text),
            Value::Number(number) => Self::parse(&number.to_string()),
            _ => None,
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let digits = text.find(|c: char| !(c.is_ascii_digit() || "+-.".contains(c)));
        let (number, suffix) = text.split_at(digits.unwrap_or(text.len()));
        let (negative, number) = match number.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, number.strip_prefix('+').unwrap_or(number)),
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let plain = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
        if (whole.is_empty() && fraction.is_empty()) || !plain(whole) || !plain(fraction) {
            return None;
        }
        let binary = BINARY.iter().find(|(name, _)| *name == suffix);
        let unit = match binary {
            Some((_, bits)) => BILLION.checked_mul(1i128 << bits)?,
            None => match DECIMAL.iter().find(|(name, _)| *name == suffix) {
                Some((_, unit)) => *unit,
                None => exponent(suffix)?,
            },
        };
        let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
        // A quantity keeps nine fractional digits; the rest is rounded up.
        let kept = &fraction[..fraction.len().min(9)];
        let lost = fraction[kept.len()..].bytes().any(|b| b != b'0');
        let scaled: i128 = if kept.is_empty() { 0 } else { kept.parse().ok()? };
        let divisor = 10i128.checked_pow(u32::try_from(kept.len()).ok()?)?;
        let part = scaled.checked_mul(unit)?;
        let up = i128::from(part % divisor != 0 || lost);
        let nanos = whole.checked_mul(unit)?.checked_add(part / divisor)?.checked_add(up)?;
        Some(Self { nanos: if negative { -nanos } else { nanos }, binary: binary.is_some() })
    }

    /// Whether it is above zero.
    pub(super) fn positive(self) -> bool {
        self.nanos > 0
    }

    /// The amount in billionths, independent of the suffix.
    pub(super) fn amount(self) -> i128 {
        self.nanos
    }

    /// The amount rounded up to thousandths, as resources are.
    fn milli(self) -> Self {
        let rest = self.nanos.rem_euclid(1_000_000);
        let up = if rest == 0 { 0 } else { 1_000_000 - rest };
        Self { nanos: self.nanos + up, ..self }
    }

    fn canonical(self) -> String {
        if self.nanos == 0 {
            return "0".to_owned();
        }
        let whole = self.nanos / BILLION;
        if self.binary && self.nanos % BILLION == 0 && whole.abs() >= 1024 {
            for (name, bits) in BINARY {
                if whole % (1i128 << bits) == 0 {
                    return format!("{}{name}", whole >> bits);
                }
            }
            return whole.to_string();
        }
        for (name, unit) in DECIMAL {
            if self.nanos % unit == 0 {
                return format!("{}{name}", self.nanos / unit);
            }
        }
        format!("{}n", self.nanos)
    }
}

fn exponent(suffix: &str) -> Option<i128> {
    let power: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
    let power = u32::try_from(power.checked_add(9)?).ok()?;
    10i128.checked_pow(power)
}

/// Writes the resource amounts of a map in their canonical form.
pub(super) fn canonical_list(resources: &mut Value) {
    for value in resources.as_object_mut().into_iter().flatten().map(|(_, value)| value) {
        if let Some(quantity) = Quantity::read(value) {
            *value = json!(quantity.milli().canonical());
        }
    }
}

/// Writes the limits and requests of containers in their canonical form.
pub(super) fn canonical_containers(spec: &mut Value) {
    for field in ["containers", "initContainers"] {
        for container in items(spec, field) {
            for list in ["limits", "requests"] {
                let resources = container.get_mut("resources").and_then(|r| r.get_mut(list));
                if let Some(resources) = resources {
                    canonical_list(resources);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_have_one_spelling() {
        for (given, canonical) in [
            (json!("0.5"), "500m"),
            (json!(0.5), "500m"),
            (json!(1), "1"),
            (json!("1000m"), "1"),
            (json!("1500m"), "1500m"),
            (json!("1.5Gi"), "1536Mi"),
            (json!("1024Mi"), "1Gi"),
            (json!("0.5Ki"), "512"),
            (json!("10G"), "10G"),
            (json!("1000k"), "1M"),
            (json!("1e3"), "1k"),
            (json!("0"), "0"),
            (json!("0Gi"), "0"),
            (json!("-1.5"), "-1500m"),
            (json!("0.0001"), "1m"),
            (json!("100k"), "100k"),
        ] {
            let mut map = json!({"x": given});
            canonical_list(&mut map);
            assert_eq!(map["x"], canonical, "{given}");
        }
    }

    #[test]
    fn what_is_no_quantity_is_left_alone() {
        for bad in [
            json!(""),
            json!("m"),
            json!("1.2.3"),
            json!("1 Gi"),
            json!("1gi"),
            json!("--1"),
            json!("1e"),
            json!("1e999999999"),
            json!("99999999999999999999999999999999999999999999"),
            json!("ä"),
            json!(true),
            json!({}),
        ] {
            let mut map = json!({"x": bad});
            canonical_list(&mut map);
            assert_eq!(map["x"], bad);
        }
        canonical_list(&mut json!("not a map"));
        canonical_containers(&mut json!({"containers": [1, {"resources": {"limits": 3}}]}));
    }
}
