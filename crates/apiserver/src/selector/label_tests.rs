//! Tests of label selectors.

use super::*;
use proptest::prelude::*;
use serde_json::json;
use std::collections::BTreeMap;

fn parsed(text: &str) -> String {
    LabelSelector::parse(text).unwrap().to_string()
}

fn refused(text: &str) -> String {
    LabelSelector::parse(text).unwrap_err()
}

#[test]
fn every_form_of_requirement_is_read() {
    for (text, expected) in [
        ("", ""),
        ("  ", ""),
        ("a", "a"),
        ("!a", "!a"),
        ("! a", "!a"),
        ("a=b", "a=b"),
        (" a = b ", "a=b"),
        ("a==b", "a==b"),
        ("a!=b", "a!=b"),
        ("a=", "a="),
        ("a=,b", "a=,b"),
        ("a in (x,y)", "a in (x,y)"),
        ("a in(y ,x,x)", "a in (x,y)"),
        ("a notin (x)", "a notin (x)"),
        ("a in ()", "a in ()"),
        ("a in (,x)", "a in (,x)"),
        ("a in (x,,y)", "a in (,x,y)"),
        ("a in (x,)", "a in (,x)"),
        ("a in (,)", "a in ()"),
        ("a>1", "a>1"),
        ("a<2", "a<2"),
        ("z,y=1,x!=2", "x!=2,y=1,z"),
        ("in in (in,notin)", "in in (in,notin)"),
        ("notin", "notin"),
        ("in=notin", "in=notin"),
        ("example.com/a_b.c=D-e", "example.com/a_b.c=D-e"),
        ("a\t\n=\rb", "a=b"),
    ] {
        assert_eq!(parsed(text), expected, "{text:?}");
    }
}

#[test]
fn refusals_are_in_the_words_of_the_real_server() {
    for (text, expected) in [
        (",", "found ',', expected: !, identifier, or 'end of string'"),
        ("=a", "found '=', expected: !, identifier, or 'end of string'"),
        ("a,", "found '', expected: identifier after ','"),
        ("a,,b", "found ',', expected: identifier after ','"),
        ("a=b c", "found 'c', expected: ',' or 'end of string'"),
        ("!a=b", "found '=', expected: ',' or 'end of string'"),
        ("!", "unable to parse requirement: found '', expected: identifier"),
        ("!!a", "unable to parse requirement: found '!', expected: identifier"),
        ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        ("a=(", "unable to parse requirement: found '(', expected: identifier"),
        ("a in b", "unable to parse requirement: found 'b' expected: '('"),
        ("a in (", "unable to parse requirement: found '', expected: ',', ')' or identifier"),
        ("a in (x", "unable to parse requirement: found '', expected: ',' or ')'"),
        ("a in (x=", "unable to parse requirement: found '=', expected: ',' or ')'"),
        ("a in (,", "unable to parse requirement: found '', expected: ',', or identifier"),
        ("a===b", "unable to parse requirement: found '=', expected: identifier"),
        (
            "a>x",
            "unable to parse requirement: values[0]: Invalid value: \"x\": for 'Gt', 'Lt' \
             operators, the value must be an integer",
        ),
    ] {
        assert_eq!(refused(text), expected, "{text:?}");
    }
}

#[test]
fn keys_and_values_must_be_those_of_labels() {
    let long = "x".repeat(64);
    for (text, start) in [
        (
            "-a",
            "unable to parse requirement: <nil>: Invalid value: \"-a\": name part must consist of",
        ),
        (
            "/a",
            "unable to parse requirement: <nil>: Invalid value: \"/a\": prefix part must be non-empty",
        ),
        (
            "a/",
            "unable to parse requirement: <nil>: Invalid value: \"a/\": name part must be non-empty; name",
        ),
        (
            "A/b",
            "unable to parse requirement: <nil>: Invalid value: \"A/b\": prefix part a lowercase RFC",
        ),
        (
            "a/b/c",
            "unable to parse requirement: <nil>: Invalid value: \"a/b/c\": a valid label key must",
        ),
        (
            "a=-",
            "unable to parse requirement: values[0][a]: Invalid value: \"-\": a valid label must be",
        ),
        ("a in (x,-)", "unable to parse requirement: values[0][a]: Invalid value: \"-\": a valid"),
        ("a=é", "unable to parse requirement: values[0][a]: Invalid value: \"é\": a valid label"),
        ("a\0b", "unable to parse requirement: <nil>: Invalid value: \"a\\0b\": name part must"),
    ] {
        assert!(refused(text).starts_with(start), "{text:?}: {}", refused(text));
    }
    assert!(refused(&long).contains("name part must be no more than 63 bytes"));
    assert!(refused(&format!("a={long}")).contains("must be no more than 63 bytes"));
    assert!(refused(&format!("{}/b", "a.".repeat(127))).contains("no more than 253 bytes"));
}

#[test]
fn absence_satisfies_only_the_negative_requirements() {
    let object = json!({"metadata": {"labels": {"a": "1", "b": "x"}}});
    for (text, expected) in [
        ("", true),
        ("a", true),
        ("c", false),
        ("!c", true),
        ("!a", false),
        ("a=1", true),
        ("a==2", false),
        ("a!=1", false),
        ("c!=1", true),
        ("b in (x,y)", true),
        ("c in (x)", false),
        ("b notin (x)", false),
        ("c notin (x)", true),
        ("a>0", true),
        ("a>1", false),
        ("a<2", true),
        ("b>0", false),
        ("c<5", false),
        ("a=1,b=y", false),
    ] {
        let selector = LabelSelector::parse(text).unwrap();
        assert_eq!(selector.matches_object(&object), expected, "{text}");
        assert_eq!(selector.matches_bytes(object.to_string().as_bytes()), expected, "{text}");
    }
}

#[test]
fn bytes_are_read_only_up_to_the_labels() {
    let selector = LabelSelector::parse("a=1").unwrap();
    assert!(
        selector
            .matches_bytes(br#"{"x":[1,{"metadata":2}],"metadata":{"labels":{"a":"1"}, rubbish"#)
    );
    assert!(selector.matches_bytes(br#"{"metadata":{"labels":{"\u0061":"\u0031"}}}"#));
    for none in [
        &b""[..],
        b"{}",
        b"null",
        b"[]",
        b"{\"metadata\":null}",
        b"\xff",
        b"{\"metadata\":{\"labels\":[]}}",
    ] {
        assert!(!selector.matches_bytes(none), "{none:?}");
        assert!(LabelSelector::parse("!a").unwrap().matches_bytes(none), "{none:?}");
    }
}

#[test]
fn the_selector_of_an_object_becomes_the_same_requirements() {
    let selector = json!({
        "matchLabels": {"b": "2", "a": "1"},
        "matchExpressions": [
            {"key": "c", "operator": "In", "values": ["y", "x"]},
            {"key": "d", "operator": "NotIn", "values": ["z"]},
            {"key": "e", "operator": "Exists"},
            {"key": "f", "operator": "DoesNotExist", "values": []},
        ],
    });
    assert_eq!(
        LabelSelector::from_label_selector(&selector).unwrap().to_string(),
        "a=1,b=2,c in (x,y),d notin (z),e,!f"
    );
    assert!(LabelSelector::from_label_selector(&json!({})).unwrap().matches_object(&json!({})));
    assert!(!LabelSelector::from_label_selector(&Value::Null).unwrap().matches_object(&json!({})));
    for (wrong, expected) in [
        (
            json!({"matchExpressions": [{"key": "a", "operator": "Equals"}]}),
            "\"Equals\" is not a valid label selector operator",
        ),
        (
            json!({"matchExpressions": [{"key": "a", "operator": "In"}]}),
            "values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty",
        ),
        (
            json!({"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]}),
            "values: Invalid value: [\"b\"]: values set must be empty for exists and does not exist",
        ),
    ] {
        assert_eq!(LabelSelector::from_label_selector(&wrong), Err(expected.to_owned()));
    }
}

fn requirement_text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[ab]",
        "![ab]",
        "[ab] ?(=|==|!=) ?[xy12]?",
        "[ab] (in|notin) \\([xy12]?(, ?[xy12]?){0,2}\\)",
        "[ab][<>][12]",
    ]
}

/// A second implementation of the rules, as the documentation describes them.
fn naive(requirement: &LabelRequirement, labels: &BTreeMap<String, String>) -> bool {
    let has = |value: &String| requirement.values.contains(value);
    match (requirement.operator, labels.get(&requirement.key)) {
        (Operator::Exists, label) => label.is_some(),
        (Operator::DoesNotExist, label) => label.is_none(),
        (Operator::NotIn | Operator::NotEquals, None) => true,
        (_, None) => false,
        (Operator::NotIn | Operator::NotEquals, Some(label)) => !has(label),
        (Operator::In | Operator::Equals | Operator::DoubleEquals, Some(label)) => has(label),
        (comparison, Some(label)) => match label.parse::<i64>() {
            Err(_) => false,
            Ok(label) => {
                let limit = requirement.values[0].parse().unwrap();
                if comparison == Operator::GreaterThan { label > limit } else { label < limit }
            }
        },
    }
}

proptest! {
    #[test]
    fn no_text_makes_the_parser_panic(text in any::<String>()) {
        let _ = LabelSelector::parse(&text);
    }

    #[test]
    fn no_mixture_of_tokens_makes_the_parser_panic(text in "([ab]|in|notin|[=!(),<> ]){0,12}") {
        let _ = LabelSelector::parse(&text);
    }

    #[test]
    fn what_was_read_reads_the_same_again(terms in prop::collection::vec(requirement_text(), 0..4)) {
        let selector = LabelSelector::parse(&terms.join(",")).unwrap();
        prop_assert_eq!(LabelSelector::parse(&selector.to_string()), Ok(selector));
    }

    #[test]
    fn all_matchers_agree(
        terms in prop::collection::vec(requirement_text(), 0..4),
        labels in prop::collection::btree_map("[ab]", "[xy12]?", 0..3),
    ) {
        let selector = LabelSelector::parse(&terms.join(", ")).unwrap();
        let expected = selector.requirements().iter().all(|r| naive(r, &labels));
        let object = json!({"kind": "A", "metadata": {"labels": labels, "name": "n"}, "spec": {}});
        prop_assert_eq!(selector.matches_object(&object), expected);
        prop_assert_eq!(selector.matches_bytes(object.to_string().as_bytes()), expected);
    }

    #[test]
    fn no_bytes_make_the_matcher_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        let _ = LabelSelector::parse("a=1").unwrap().matches_bytes(&bytes);
    }
}
