//! Finds the words in the expressions and statements of a Jinja template, without comments. A template without the word
//! for a setting cannot serve consumers that need it. Pure; the parent module calls it.

use std::collections::BTreeSet;

/// The words of all expressions and statements.
pub(super) fn of_jinja(source: &str) -> BTreeSet<String> {
    let mut words = BTreeSet::new();
    let mut rest = source;
    while let Some(begin) = rest.find('{') {
        rest = &rest[begin + 1..];
        let Some(kind) = rest.chars().next() else { break };
        let end = match kind {
            '#' => "#}",
            '{' => "}}",
            '%' => "%}",
            _ => continue,
        };
        let inner = &rest[1..];
        let length = inner.find(end).unwrap_or(inner.len());
        if kind != '#' {
            words.extend(inner[..length].split(|c: char| !is_word(c)).map(str::to_owned));
        }
        rest = &inner[length..];
    }
    words.remove("");
    words
}

fn is_word(char: char) -> bool {
    char.is_alphanumeric() || char == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_between_braces_without_comments() {
        let source = "SourceRanges {# snat #} {{ s.tls }}{% for x in plan['pools'] %}{ y }{{";
        let words: Vec<_> = of_jinja(source).into_iter().collect();
        assert_eq!(words, ["for", "in", "plan", "pools", "s", "tls", "x"]);
    }
}
