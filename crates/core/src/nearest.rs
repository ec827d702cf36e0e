//! What a person probably meant: of the names that there are, the one that differs least from the one that was written.
//! Messages about names and annotations that do not exist call it. The caller passes only names that the person may
//! see.

use crate::outcome::quote;

/// The most names that are compared. The suggestion is an extra, so its cost is bounded however many objects exist. A
/// caller that filters names takes this many before.
pub const MOST_COMPARED: usize = 1_000;
/// The longest text for which a name is looked for.
const LONGEST: usize = 80;

/// How many slips a text of this length may have: nearly another word is no suggestion.
fn slips(length: usize) -> usize {
    match length {
        0..=2 => 0,
        3..=5 => 1,
        6..=11 => 2,
        _ => 3,
    }
}

/// The known name that differs least from a text, if the difference is a slip. Of two equally near ones the first.
pub fn nearest<'a>(text: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let wrong: Vec<char> = text.chars().take(LONGEST + 1).flat_map(char::to_lowercase).collect();
    let most = slips(wrong.len());
    if most == 0 || wrong.len() > LONGEST {
        return None;
    }
    let mut best = None;
    for name in known.into_iter().take(MOST_COMPARED) {
        let right: Vec<char> =
            name.chars().take(LONGEST + 1).flat_map(char::to_lowercase).collect();
        if right.len().abs_diff(wrong.len()) > most {
            continue;
        }
        let distance = distance(&wrong, &right);
        if distance <= most && best.is_none_or(|(least, _)| distance < least) {
            best = Some((distance, name));
        }
    }
    best.map(|(_, name)| name)
}

/// The end of a message about a name that does not exist. Empty: no known name is near.
pub fn did_you_mean<'a>(text: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let name = nearest(text, known);
    name.map_or_else(String::new, |name| format!(": did you mean {}?", quote(name)))
}

/// How many characters have to be added, left out, replaced or swapped with their neighbour.
fn distance(one: &[char], other: &[char]) -> usize {
    let first: Vec<usize> = (0..=other.len()).collect();
    let (mut before, mut last) = (first.clone(), first);
    for (i, a) in one.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, b) in other.iter().enumerate() {
            let replaced = last[j] + usize::from(a != b);
            let mut least = replaced.min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *a == other[j - 1] && one[i - 1] == *b {
                least = least.min(before[j - 1] + 1);
            }
            row.push(least);
        }
        before = std::mem::replace(&mut last, row);
    }
    last.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_slip_finds_the_name_that_was_meant_and_another_word_finds_none() {
        let known = ["edge", "edge-2", "internal", "public-v6"];
        for (text, expected) in [
            ("egde", Some("edge")),
            ("Edge", Some("edge")),
            ("edg", Some("edge")),
            ("edge2", Some("edge")),
            ("intrenal", Some("internal")),
            ("publicv6", Some("public-v6")),
            ("shop", None),
            ("e", None),
            ("", None),
            ("ed", None),
        ] {
            assert_eq!(nearest(text, known), expected, "{text}");
        }
        assert_eq!(did_you_mean("egde", known), ": did you mean \"edge\"?");
        assert_eq!(did_you_mean("shop", known), "");
    }

    #[test]
    fn the_first_of_two_that_are_as_near_is_named() {
        assert_eq!(nearest("edge-x", ["edge-1", "edge-2"]), Some("edge-1"));
    }

    #[test]
    fn very_many_names_and_very_long_ones_cost_no_more() {
        let long = "x".repeat(1 << 20);
        assert_eq!(nearest(&long, [long.as_str()]), None);
        assert_eq!(nearest("edge", [long.as_str()]), None);
        let many: Vec<String> = (0..10_000).map(|n| format!("other-{n}")).collect();
        let names = many.iter().map(String::as_str).chain(["edge"]);
        assert_eq!(nearest("egde", names), None, "it is not among those that are compared");
    }

    proptest! {
        #[test]
        fn one_slip_in_a_word_is_found(word in "[a-z]{4,20}", at in 0..20usize, letter in "[a-z]") {
            let mut wrong = word.clone();
            wrong.insert_str(at.min(word.len()), &letter);
            prop_assert_eq!(nearest(&wrong, [word.as_str()]), Some(word.as_str()));
        }
    }
}
