//! Regular expressions from users, many matched at once. Matching takes time linear in the text. An
//! expression that would need much memory is left out and reported.

use regex::{Regex, RegexBuilder, RegexSet, RegexSetBuilder};

/// The largest compiled size of one expression.
const ONE: usize = 64 * 1024;
/// The largest compiled size of all expressions that are matched together.
const ALL: usize = 1024 * 1024;
/// At most this many are matched together.
const COUNT: usize = 1000;

/// Why an expression is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BadPattern {
    /// Its syntax is wrong.
    Unreadable,
    /// It is too large.
    TooLarge,
    /// There are too many expressions.
    TooMany,
}

/// An expression that must match the whole of a text.
pub(super) fn whole(pattern: &str) -> Result<Regex, BadPattern> {
    let build = |pattern: &str| {
        RegexBuilder::new(pattern).size_limit(ONE).dfa_size_limit(ONE).build().map_err(|error| {
            match error {
                regex::Error::CompiledTooBig(_) => BadPattern::TooLarge,
                _ => BadPattern::Unreadable,
            }
        })
    };
    // By itself first: `a)|(b` is valid only inside the group that is put around it.
    build(pattern)?;
    build(&anchored(pattern))
}

fn anchored(pattern: &str) -> String {
    format!(r"\A(?:{pattern})\z")
}

/// Expressions in the order of their numbers.
#[derive(Debug)]
pub(super) struct Patterns<T> {
    /// None if there are no expressions: even an empty automaton takes memory, in every site.
    set: Option<RegexSet>,
    values: Box<[T]>,
}

impl<T> Default for Patterns<T> {
    fn default() -> Self {
        Self { set: None, values: Box::default() }
    }
}

impl<T> Patterns<T> {
    /// Expressions with their values, and those that are left out.
    pub(super) fn new<'a>(
        patterns: impl Iterator<Item = (&'a str, T)>,
    ) -> (Self, Vec<(T, BadPattern)>) {
        let (mut texts, mut values, mut bad) = (Vec::new(), Vec::new(), Vec::new());
        for (pattern, value) in patterns {
            let problem =
                if texts.len() == COUNT { Some(BadPattern::TooMany) } else { whole(pattern).err() };
            match problem {
                Some(problem) => bad.push((value, problem)),
                None => {
                    texts.push(anchored(pattern));
                    values.push(value);
                }
            }
        }
        loop {
            if texts.is_empty() {
                return (Self { set: None, values: Box::default() }, bad);
            }
            let set = RegexSetBuilder::new(&texts).size_limit(ALL).dfa_size_limit(ALL).build();
            match set {
                Ok(set) => return (Self { set: Some(set), values: values.into() }, bad),
                Err(_) => {
                    let keep = texts.len() / 2;
                    texts.truncate(keep);
                    let cut = values.split_off(keep);
                    bad.extend(cut.into_iter().map(|value| (value, BadPattern::TooMany)));
                }
            }
        }
    }

    /// The values of the expressions that match, in order.
    pub(super) fn matches<'a>(&'a self, text: &str) -> impl Iterator<Item = &'a T> + use<'a, T> {
        let indices = self.set.as_ref().map(|set| set.matches(text).into_iter());
        indices.into_iter().flatten().filter_map(|index| self.values.get(index))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_match_whole_texts_in_their_order() {
        let (patterns, bad) = Patterns::new([("b|ab", 1), ("a.*", 2), ("c", 3)].into_iter());
        assert_eq!((patterns.matches("ab").collect::<Vec<_>>(), bad), (vec![&1, &2], vec![]));
        assert_eq!(patterns.matches("abc").collect::<Vec<_>>(), [&2]);
        assert_eq!(patterns.matches("xab").count(), 0);
    }

    #[test]
    fn what_cannot_be_used_is_named_and_the_others_work() {
        let list = [("(", 1), ("((a{100}){100}){100}", 2), ("a)|(b", 3), ("ok", 4)];
        let (patterns, bad) = Patterns::new(list.into_iter());
        use BadPattern::{TooLarge, Unreadable};
        assert_eq!(bad, [(1, Unreadable), (2, TooLarge), (3, Unreadable)]);
        assert_eq!(patterns.matches("ok").collect::<Vec<_>>(), [&4]);
    }

    #[test]
    fn expressions_that_are_too_large_together_are_cut_from_the_end() {
        let list: Vec<_> =
            (0..200).map(|i| (format!("(?:x{{{}}}y?){{20}}", 20 + i % 3), i)).collect();
        let (patterns, bad) = Patterns::new(list.iter().map(|(p, i)| (p.as_str(), *i)));
        assert!(!bad.is_empty() && bad.len() < 200, "{}", bad.len());
        assert_eq!(patterns.matches(&"x".repeat(400)).next(), Some(&0));
    }
}
