//! Several selectors of MetalLB, of which one must match, as selectors of Bowline, of which an object has one. It is pure;
//! [`super::announce`] makes an object for each selector that is left.

use crate::convert::label_selector;
use crate::selector::LabelSelector;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelectorRequirement;

/// More than this many selectors are not taken over: each becomes an object.
pub(super) const MOST: usize = 32;

/// The most values of one requirement in Bowline's kinds.
const MOST_VALUES: usize = 64;

/// Conditions that must all hold, as `matchExpressions`, in the order of keys.
type Conditions = Vec<LabelSelectorRequirement>;

/// Selectors that match what any of these matches, as few as is easily found: `a=1` or `a=2` is `a in (1, 2)`. None: one
/// of them cannot be read. Empty: everything is matched.
pub(super) fn any_of(selectors: &[LabelSelector]) -> Option<Vec<LabelSelector>> {
    Some(merged(selectors)?.into_iter().map(written).collect())
}

/// The same, and no two of them match the same labels. None: one cannot be read, or there would be too many.
pub(super) fn one_of(selectors: &[LabelSelector]) -> Option<Vec<LabelSelector>> {
    let all = merged(selectors)?;
    let mut apart: Vec<Conditions> = Vec::new();
    for (index, selector) in all.iter().enumerate() {
        let mut pieces = vec![selector.clone()];
        for earlier in &all[..index] {
            pieces = pieces.iter().flat_map(|piece| without(piece, earlier)).collect();
            if pieces.len() > MOST {
                return None;
            }
        }
        apart.extend(pieces);
    }
    (apart.len() <= MOST).then(|| apart.into_iter().map(written).collect())
}

fn merged(selectors: &[LabelSelector]) -> Option<Vec<Conditions>> {
    let mut out: Vec<Conditions> = Vec::new();
    for selector in selectors {
        let read = conditions(selector)?;
        if read.is_empty() {
            return Some(Vec::new());
        }
        if out.contains(&read) || out.iter_mut().any(|known| join(known, &read)) {
            continue;
        }
        out.push(read);
    }
    Some(out)
}

fn conditions(selector: &LabelSelector) -> Option<Conditions> {
    label_selector(selector)?;
    let labels = selector.match_labels.iter().flatten();
    let labels = labels.map(|(key, value)| condition(key, "In", std::slice::from_ref(value)));
    let mut all: Conditions =
        labels.chain(selector.match_expressions.iter().flatten().cloned()).collect();
    for condition in &mut all {
        match condition.values.as_mut() {
            Some(values) if !values.is_empty() => {
                values.sort();
                values.dedup();
            }
            _ => condition.values = None,
        }
    }
    all.sort_by(|a, b| (&a.key, &a.operator, &a.values).cmp(&(&b.key, &b.operator, &b.values)));
    all.dedup();
    Some(all)
}

fn condition(key: &str, operator: &str, values: &[String]) -> LabelSelectorRequirement {
    let values = (!values.is_empty()).then(|| values.to_vec());
    LabelSelectorRequirement { key: key.to_owned(), operator: operator.to_owned(), values }
}

/// Adds the values of another selector, if that is the only difference.
fn join(known: &mut Conditions, other: &Conditions) -> bool {
    if known.len() != other.len() {
        return false;
    }
    let mut differ = known.iter().zip(other).enumerate().filter(|(_, (a, b))| a != b);
    let (Some((at, (a, b))), None) = (differ.next(), differ.next()) else { return false };
    if a.key != b.key || a.operator != "In" || b.operator != "In" {
        return false;
    }
    let mut values: Vec<_> = a.values.iter().chain(&b.values).flatten().cloned().collect();
    values.sort();
    values.dedup();
    if values.len() > MOST_VALUES {
        return false;
    }
    known[at].values = Some(values);
    true
}

/// What one selector matches and the other does not, as selectors that have nothing in common.
fn without(selector: &Conditions, other: &Conditions) -> Vec<Conditions> {
    let piece = |index: usize| {
        let mut piece = selector.clone();
        piece.extend(other[..index].iter().cloned());
        piece.push(opposite(&other[index]));
        piece.sort_by(|a, b| {
            (&a.key, &a.operator, &a.values).cmp(&(&b.key, &b.operator, &b.values))
        });
        piece.dedup();
        piece
    };
    (0..other.len()).map(piece).filter(is_possible).collect()
}

fn opposite(of: &LabelSelectorRequirement) -> LabelSelectorRequirement {
    let operator = match of.operator.as_str() {
        "In" => "NotIn",
        "NotIn" => "In",
        "Exists" => "DoesNotExist",
        _ => "Exists",
    };
    condition(&of.key, operator, of.values.as_deref().unwrap_or_default())
}

/// Whether some labels fulfil all conditions.
fn is_possible(conditions: &Conditions) -> bool {
    let of = |key: &str, operator: &str| {
        let (key, operator) = (key.to_owned(), operator.to_owned());
        conditions.iter().filter(move |it| it.key == key && it.operator == operator)
    };
    conditions.iter().all(|it| match it.operator.as_str() {
        "In" => it.values.iter().flatten().any(|value| {
            let allowed =
                of(&it.key, "In").all(|it| it.values.iter().flatten().any(|v| v == value));
            let denied =
                of(&it.key, "NotIn").any(|it| it.values.iter().flatten().any(|v| v == value));
            allowed && !denied && of(&it.key, "DoesNotExist").next().is_none()
        }),
        "Exists" => of(&it.key, "DoesNotExist").next().is_none(),
        _ => true,
    })
}

/// As people write it: one value of a key as a label.
fn written(conditions: Conditions) -> LabelSelector {
    let mut selector = LabelSelector::default();
    for condition in conditions {
        let value = match (condition.operator.as_str(), condition.values.as_deref()) {
            ("In", Some([value])) => Some(value.clone()),
            _ => None,
        };
        let labels = selector.match_labels.get_or_insert_default();
        match value {
            Some(value) if !labels.contains_key(&condition.key) => {
                labels.insert(condition.key, value);
            }
            _ => selector.match_expressions.get_or_insert_default().push(condition),
        }
    }
    selector.match_labels = selector.match_labels.filter(|labels| !labels.is_empty());
    selector
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use proptest::sample::{select, subsequence};
    use serde_json::{Value, json};
    use std::collections::BTreeMap;
    use std::sync::Arc;

    fn read(all: Value) -> Vec<LabelSelector> {
        serde_json::from_value(all).unwrap()
    }

    fn json_of(all: Option<Vec<LabelSelector>>) -> Value {
        serde_json::to_value(all).unwrap()
    }

    #[test]
    fn values_of_one_key_become_one_selector() {
        let hosts = read(json!([
            {"matchLabels": {"host": "b", "zone": "x"}},
            {"matchExpressions": [{"key": "host", "operator": "In", "values": ["a", "b"]}],
             "matchLabels": {"zone": "x"}},
        ]));
        let expected = json!([{
            "matchLabels": {"zone": "x"},
            "matchExpressions": [{"key": "host", "operator": "In", "values": ["a", "b"]}],
        }]);
        assert_eq!(json_of(any_of(&hosts)), expected);
        assert_eq!(json_of(one_of(&hosts)), expected);
    }

    #[test]
    fn selectors_that_overlap_are_told_apart_where_that_matters() {
        let all = read(json!([{"matchLabels": {"a": "1"}}, {"matchLabels": {"b": "1"}}]));
        assert_eq!(
            json_of(any_of(&all)),
            json!([{"matchLabels": {"a": "1"}}, {"matchLabels": {"b": "1"}}])
        );
        let apart = json!([
            {"matchLabels": {"a": "1"}},
            {"matchLabels": {"b": "1"},
             "matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["1"]}]},
        ]);
        assert_eq!(json_of(one_of(&all)), apart);
    }

    #[test]
    fn a_selector_of_everything_leaves_no_selector() {
        let all = read(json!([{"matchLabels": {"a": "1"}}, {}]));
        assert_eq!((any_of(&all), one_of(&all)), (Some(vec![]), Some(vec![])));
    }

    #[test]
    fn an_operator_that_does_not_exist_is_not_guessed() {
        let all =
            read(json!([{"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]}]));
        assert_eq!((any_of(&all), one_of(&all)), (None, None));
    }

    #[test]
    fn too_many_are_not_taken_over() {
        let two = |n: usize| json!({"matchLabels": {format!("a{n}"): "1", format!("b{n}"): "1"}});
        let all = read((0..12).map(two).collect());
        assert_eq!(one_of(&all), None);
    }

    fn requirement() -> impl Strategy<Value = Value> {
        let values = subsequence(vec!["1", "2", "3"], 1..3);
        (select(vec!["a", "b"]), select(vec!["In", "NotIn", "Exists", "DoesNotExist"]), values)
            .prop_map(|(key, operator, values)| match operator {
                "In" | "NotIn" => json!({"key": key, "operator": operator, "values": values}),
                _ => json!({"key": key, "operator": operator}),
            })
    }

    proptest! {
        #[test]
        fn they_match_what_the_originals_match_and_only_one_does_where_asked(
            all in prop::collection::vec(prop::collection::vec(requirement(), 0..3), 1..4)
        ) {
            let all = all.into_iter().map(|it| json!({"matchExpressions": it})).collect();
            let all = read(all);
            let matches = |selectors: &[LabelSelector], labels: &BTreeMap<Arc<str>, Arc<str>>| {
                let read = selectors.iter().map(|it| label_selector(it).unwrap());
                read.filter(|it| it.matches(labels)).count()
            };
            let (any, one_of) = (any_of(&all).unwrap(), one_of(&all).unwrap());
            for a in [None, Some("1"), Some("2"), Some("3"), Some("4")] {
                for b in [None, Some("1"), Some("2"), Some("3"), Some("4")] {
                    let labels = [("a", a), ("b", b)];
                    let labels = labels.iter().filter_map(|(key, value)| Some(((*key).into(), (*value)?.into())));
                    let labels: BTreeMap<Arc<str>, Arc<str>> = labels.collect();
                    let expected = matches(&all, &labels) > 0;
                    let found = any.is_empty() || matches(&any, &labels) > 0;
                    prop_assert_eq!(found, expected, "{:?} {:?}", &labels, &any);
                    let found = if one_of.is_empty() { 1 } else { matches(&one_of, &labels) };
                    prop_assert_eq!(found, usize::from(expected), "{:?} {:?}", &labels, &one_of);
                }
            }
        }
    }
}
