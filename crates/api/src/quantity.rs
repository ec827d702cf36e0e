//! Amounts of network resources as Kubernetes quantities, and their exact value. The schema only
//! lets whole, bounded amounts through, so [`whole`] fails on none that a server took; it never rounds.

pub use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use bowline_core::resources;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// Whole amounts below 2^63: a plain number, or one with a decimal (k M G T P) or binary
/// (Ki Mi Gi Ti Pi) suffix. Fractions only where three digits still leave a whole amount.
const PATTERN: &str = r"^([0-9]{1,18}|[0-9]{1,12}(\.[0-9]{1,3})?[kM]|[0-9]{1,6}(\.[0-9]{1,3})?[GT]|[0-9]{1,3}(\.[0-9]{1,3})?P|[0-9]{1,12}[KM]i|[0-9]{1,6}[GT]i|[0-9]{1,3}Pi)$";

/// Whole sums of amounts, of any size.
const SUM: &str = r"^[0-9]{1,39}([kMGTP]|[KMGTP]i)?$";

/// Amounts of network resources.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct ResourceList {
    /// Bits per second, as a Kubernetes quantity. Example: 10G.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "quantity")]
    pub network_bandwidth: Option<Quantity>,
    /// Operations (requests or new connections) per second, as a Kubernetes quantity. Example: 100k.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "quantity")]
    pub network_iops: Option<Quantity>,
}

fn quantity(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "x-kubernetes-int-or-string": true,
        "minimum": 0,
        "maxLength": 18,
        "pattern": PATTERN,
    })
}

/// The texts that [`PATTERN`] accepts are those that this accepts and [`TOO_LARGE`] does not. Servers estimate the cost of a
/// rule by the length of its expression, for values of 3 MB (older ones do not heed `maxLength` here), so neither may be
/// much longer.
const SHAPE: &str = "^[0-9]+([KMGTP]i|([.][0-9]{1,3})?[kMGTP])?$";

/// Amounts with more digits than [`PATTERN`] allows. Without a suffix, `maxLength` limits them.
const TOO_LARGE: &str = "[0-9]{4}.*P|[0-9]{7}.*[GT]|[0-9]{13}.*[kKM]";

/// An amount that a user writes. Rules say in words what a pattern would say as a regular expression. Of a number,
/// `string(self)` is another value than `self`.
fn written_quantity() -> Schema {
    let of_text = |rule: String| format!("string(self) != self || {rule}");
    json_schema!({
        "x-kubernetes-int-or-string": true,
        "minimum": 0,
        "maxLength": 18,
        "x-kubernetes-validations": [
            {
                "rule": of_text(format!("self.matches('{SHAPE}')")),
                "message": "must be a whole amount without a unit, such as 2G, 500M or 1500; the suffixes are k, M, G, T, P, \
                            Ki, Mi, Gi, Ti and Pi",
            },
            {
                "rule": of_text(format!("!self.matches('{TOO_LARGE}')")),
                "message": "has too many digits for its suffix: write it with a larger one; the largest amount is 999P",
            },
        ],
    })
}

/// The schema of amounts that users write, by resource. Unknown resources are refused; otherwise a misspelled field
/// would be dropped silently.
pub(crate) fn countable(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 2,
        "additionalProperties": written_quantity(),
        "x-kubernetes-validations": [{
            "rule": "self.all(name, name in ['network-bandwidth', 'network-iops'])",
            "message": "network-bandwidth and network-iops are counted, and nothing else",
        }],
    })
}

/// The schema of sums of amounts, which the leader writes. Consumers of a load balancer without a capacity may together
/// request more than any one amount.
pub(crate) fn sums(_: &mut SchemaGenerator) -> Schema {
    let sum = |what: &str| {
        json_schema!({
            "description": what,
            "x-kubernetes-int-or-string": true,
            "minimum": 0,
            "maxLength": 41,
            "pattern": SUM,
        })
    };
    json_schema!({
        "type": "object",
        "properties": {
            "network-bandwidth": sum("Bits per second, as a Kubernetes quantity. Example: 10G."),
            "network-iops": sum(
                "Operations (requests or new connections) per second, as a Kubernetes quantity. Example: 100k.",
            ),
        },
    })
}

/// Why a quantity has no exact whole value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// It is not a number with a known suffix.
    #[error("{0:?} is not a quantity: write a whole amount such as 10G, 500M or 1500")]
    Unreadable(String),
    /// It has a fraction that its suffix does not make whole.
    #[error("{0:?} is not a whole amount")]
    Fraction(String),
    /// It is larger than the largest amount.
    #[error("{0:?} is too large")]
    TooLarge(String),
}

/// The exact value of a quantity that is a whole number, such as 1500 for `1.5k`.
pub fn whole(quantity: &Quantity) -> Result<u64, QuantityError> {
    let text = quantity.0.as_str();
    let amount = sum(text)?;
    let too_large = || QuantityError::TooLarge(text.to_owned());
    // An amount that the schema does not accept could not be recorded.
    if !resources::Quantity(amount).is_accepted() {
        return Err(too_large());
    }
    u64::try_from(amount).map_err(|_| too_large())
}

/// The exact value, of any size.
fn sum(text: &str) -> Result<u128, QuantityError> {
    let unreadable = || QuantityError::Unreadable(text.to_owned());
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let unit: u128 = match suffix {
        "" => 1,
        "k" => 1_000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        "T" => 1_000_000_000_000,
        "P" => 1_000_000_000_000_000,
        "E" => 1_000_000_000_000_000_000,
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        "Ti" => 1 << 40,
        "Pi" => 1 << 50,
        "Ei" => 1 << 60,
        _ => return Err(unreadable()),
    };
    let (integer, fraction) = number.split_once('.').unwrap_or((number, ""));
    if integer.is_empty() || fraction.contains('.') || number.ends_with('.') {
        return Err(unreadable());
    }
    let fraction = fraction.trim_end_matches('0');
    // A fraction of up to eighteen digits times the largest unit fits into 128 bits. A longer one is refused.
    if fraction.len() > 18 {
        return Err(QuantityError::Fraction(text.to_owned()));
    }
    let integer: Option<u128> = integer.parse().ok();
    let decimals = 10u128.pow(fraction.len() as u32);
    let parts =
        if fraction.is_empty() { 0 } else { fraction.parse::<u128>().map_err(|_| unreadable())? };
    let parts = parts * unit;
    if !parts.is_multiple_of(decimals) {
        return Err(QuantityError::Fraction(text.to_owned()));
    }
    let whole = integer.and_then(|it| it.checked_mul(unit)?.checked_add(parts / decimals));
    whole.ok_or_else(|| QuantityError::TooLarge(text.to_owned()))
}

/// An amount or a sum as a quantity, exact and as people write it.
pub fn written(amount: u128) -> Quantity {
    Quantity(resources::Quantity(amount).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> Result<u64, QuantityError> {
        whole(&Quantity(text.to_owned()))
    }

    #[test]
    fn the_value_is_exact_or_there_is_none() {
        let text = |t: &str| t.to_owned();
        let cases = [
            ("0", Ok(0)),
            ("1500", Ok(1500)),
            ("10G", Ok(10_000_000_000)),
            ("100k", Ok(100_000)),
            ("1.5k", Ok(1500)),
            ("1.50k", Ok(1500)),
            ("1Ki", Ok(1024)),
            ("1.5Ki", Ok(1536)),
            ("999999999999999999", Ok(999_999_999_999_999_999)),
            ("1099Ti", Ok(1099 << 40)),
            ("999Pi", Ok(999 << 50)),
            ("1E", Err(QuantityError::TooLarge(text("1E")))),
            ("1000000000000000001", Err(QuantityError::TooLarge(text("1000000000000000001")))),
            ("18446744073709551615", Err(QuantityError::TooLarge(text("18446744073709551615")))),
            ("1.1Ki", Err(QuantityError::Fraction(text("1.1Ki")))),
            ("1.5", Err(QuantityError::Fraction(text("1.5")))),
            ("19E", Err(QuantityError::TooLarge(text("19E")))),
            ("99999999999999999999", Err(QuantityError::TooLarge(text("99999999999999999999")))),
            ("", Err(QuantityError::Unreadable(text("")))),
            ("k", Err(QuantityError::Unreadable(text("k")))),
            (".5k", Err(QuantityError::Unreadable(text(".5k")))),
            ("1.k", Err(QuantityError::Unreadable(text("1.k")))),
            ("1.2.3k", Err(QuantityError::Unreadable(text("1.2.3k")))),
            ("-1", Err(QuantityError::Unreadable(text("-1")))),
            ("500m", Err(QuantityError::Unreadable(text("500m")))),
            ("10 G", Err(QuantityError::Unreadable(text("10 G")))),
            ("1e3", Err(QuantityError::Unreadable(text("1e3")))),
        ];
        for (text, expected) in cases {
            assert_eq!(read(text), expected, "{text:?}");
        }
    }

    #[test]
    fn amounts_are_written_in_the_largest_unit_that_says_them() {
        let cases = [
            (0, "0"),
            (1, "1"),
            (1_500, "1500"),
            (2_000, "2k"),
            (10_000_000_000, "10G"),
            (1_048_576, "1Mi"),
            (999_999 << 40, "999999Ti"),
            // Beyond what one amount may be.
            (1_000_000 << 40, "1000000Ti"),
            (3 * 999 * 10u128.pow(15), "2997P"),
            (1_000_000_000_000_000_001, "1000000000000000001"),
            (u128::MAX, "340282366920938463463374607431768211455"),
        ];
        for (amount, text) in cases {
            assert_eq!(written(amount).0, text);
            assert_eq!(sum(text), Ok(amount));
        }
        assert_eq!(
            sum("340282366920938463463374607431768211456Ki"),
            Err(QuantityError::TooLarge("340282366920938463463374607431768211456Ki".to_owned()))
        );
    }

    proptest! {
        #[test]
        fn an_amount_that_was_read_is_written_so_that_it_is_read_again(
            text in PATTERN.trim_matches(['^', '$']),
        ) {
            let amount = read(&text).unwrap();
            prop_assert_eq!(whole(&written(amount.into())), Ok(amount), "{}", text);
        }

        #[test]
        fn an_amount_of_whatever_size_is_written_as_it_was_read_or_refused(
            text in "[0-9]{1,20}([kMGTPE]i?)?",
        ) {
            if let Ok(amount) = read(&text) {
                prop_assert_eq!(whole(&written(amount.into())), Ok(amount), "{}", text);
            }
        }

        #[test]
        fn a_sum_of_any_size_is_written_so_that_it_is_read_again_and_the_schema_of_sums_takes_it(
            few in 0u128..1 << 20, unit in 0u32..100, any: u128,
        ) {
            let schema = regex::Regex::new(SUM).unwrap();
            for amount in [few << unit, any, few * 10u128.pow(unit % 30)] {
                let text = written(amount).0;
                prop_assert_eq!(sum(&text), Ok(amount), "{}", &text);
                prop_assert!(schema.is_match(&text), "{}", &text);
                prop_assert_eq!(&written(sum(&text).unwrap()).0, &text);
            }
        }

        #[test]
        fn what_the_schema_accepts_has_an_exact_value(text in PATTERN.trim_matches(['^', '$'])) {
            prop_assert!(read(&text).is_ok(), "{}", text);
            prop_assert!(text.len() <= 18, "{} is longer than maxLength", text);
        }

        #[test]
        fn the_rules_accept_what_the_pattern_accepts(
            text in "[0-9]{1,19}(\\.[0-9]{0,4})?[kKMGTPEib]{0,3}",
            like in PATTERN.trim_matches(['^', '$']),
        ) {
            let matches = |pattern: &str, text: &str| regex::Regex::new(pattern).unwrap().is_match(text);
            for text in [text, like] {
                let rules = matches(SHAPE, &text) && !matches(TOO_LARGE, &text);
                let bounded = rules && text.len() <= 18;
                prop_assert_eq!(bounded, matches(PATTERN, &text) && text.len() <= 18, "{}", text);
            }
        }

        #[test]
        fn no_text_makes_the_reader_fail_otherwise_than_by_an_error(text in "[0-9.]{0,60}\\PC{0,4}") {
            let _ = read(&text);
        }
    }
}
