//! The rules of one host, arranged so that finding one hardly depends on their number: exact paths
//! and prefixes in hash maps, regular expressions in one automaton. The order of the rules alone
//! decides which one wins, so the arrangement cannot change the outcome.

use super::Request;
use super::pattern::{BadPattern, Patterns, whole};
use bowline_core::plan::{PathKind, Rule, ValueKind, ValueMatch};
use bowline_core::update::ResolvedSite;
use regex::Regex;
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

#[derive(Debug)]
pub(super) struct Compiled {
    pub(super) site: Arc<ResolvedSite>,
    pub(super) bad: Vec<(u32, BadPattern)>,
    exact: HashMap<Arc<str>, Vec<u32>>,
    /// By prefix without its trailing slash.
    prefix: HashMap<Box<str>, Vec<u32>>,
    longest_prefix: usize,
    regex: Patterns<u32>,
    first_regex: u32,
    /// Expressions of headers and query parameters, by text.
    values: HashMap<Arc<str>, Regex>,
}

impl Compiled {
    pub(super) fn new(site: Arc<ResolvedSite>) -> Self {
        let mut exact: HashMap<Arc<str>, Vec<u32>> = HashMap::new();
        let mut prefix: HashMap<Box<str>, Vec<u32>> = HashMap::new();
        let (mut values, mut bad, mut expressions) = (HashMap::new(), Vec::new(), Vec::new());
        for ((rule, _), index) in site.rules.iter().zip(0u32..) {
            if let Err(problem) = compile_values(rule, &mut values) {
                bad.push((index, problem));
                continue;
            }
            let path = &rule.path.value;
            match rule.path.kind {
                PathKind::Exact => exact.entry(path.clone()).or_default().push(index),
                PathKind::Prefix => {
                    let path = path.strip_suffix('/').unwrap_or(path);
                    prefix.entry(path.into()).or_default().push(index);
                }
                PathKind::Regex => expressions.push((&**path, index)),
            }
        }
        let first_regex = expressions.first().map_or(u32::MAX, |(_, index)| *index);
        let (regex, unused) = Patterns::new(expressions.into_iter());
        bad.extend(unused);
        bad.sort_unstable_by_key(|(index, _)| *index);
        let longest_prefix = prefix.keys().map(|path| path.len()).max().unwrap_or(0);
        Self { bad, exact, longest_prefix, prefix, regex, first_regex, values, site }
    }

    /// The first rule that matches.
    pub(super) fn route(&self, request: &Request<'_>) -> Option<usize> {
        let mut best: Option<u32> = None;
        for rules in self.candidates(request) {
            let better = rules.iter().take_while(|index| best.is_none_or(|best| **index < best));
            best = better.copied().find(|index| self.meets(*index, request)).or(best);
        }
        // Exact paths precede expressions in the order of rules: then no expression is tried.
        if best.is_none_or(|best| self.first_regex < best) {
            let matches = self.regex.matches(request.path).copied();
            let mut better = matches.take_while(|index| best.is_none_or(|best| *index < best));
            best = better.find(|index| self.meets(*index, request)).or(best);
        }
        best.map(|index| index as usize)
    }

    /// Rules whose exact path or prefix matches the request's path.
    pub(super) fn candidates(&self, request: &Request<'_>) -> impl Iterator<Item = &[u32]> {
        let exact = self.exact.get(request.path).into_iter();
        let prefix = self.prefixes(request.path).filter_map(|path| self.prefix.get(path));
        exact.chain(prefix).map(Vec::as_slice)
    }

    /// The prefixes of a path that end where an element ends, the longest first.
    fn prefixes<'a>(&self, path: &'a str) -> impl Iterator<Item = &'a str> + use<'a> {
        let bytes = path.as_bytes();
        // No longer prefix is in the map, however many elements a client sends.
        let end = bytes.len().min(self.longest_prefix);
        let slashes = (0..=end).rev().filter(move |i| *i == bytes.len() || bytes[*i] == b'/');
        slashes.map(|i| &path[..i])
    }

    fn meets(&self, index: u32, request: &Request<'_>) -> bool {
        let Some((rule, _)) = self.site.rules.get(index as usize) else { return false };
        rule.method.as_ref().is_none_or(|method| **method == *request.method)
            && rule.headers.iter().all(|wanted| self.header(wanted, request))
            && rule.query.iter().all(|wanted| self.parameter(wanted, request))
    }

    /// Whether some value of the header matches.
    fn header(&self, wanted: &ValueMatch, request: &Request<'_>) -> bool {
        let mut values = request.headers.get_all(&*wanted.name).iter();
        values.any(|value| value.to_str().is_ok_and(|value| self.value(wanted, value)))
    }

    /// Whether the first parameter with the name matches: Gateway API says that the others are
    /// ignored.
    fn parameter(&self, wanted: &ValueMatch, request: &Request<'_>) -> bool {
        let pairs = request.query.unwrap_or_default().split('&');
        let mut pairs = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        let found = pairs.find(|(name, _)| unescape(name) == *wanted.name);
        found.is_some_and(|(_, value)| self.value(wanted, &unescape(value)))
    }

    fn value(&self, wanted: &ValueMatch, value: &str) -> bool {
        match wanted.kind {
            ValueKind::Exact => *wanted.value == *value,
            ValueKind::Regex => {
                self.values.get(&wanted.value).is_some_and(|regex| regex.is_match(value))
            }
        }
    }
}

fn compile_values(rule: &Rule, into: &mut HashMap<Arc<str>, Regex>) -> Result<(), BadPattern> {
    let wanted = rule.headers.iter().chain(&rule.query);
    for wanted in wanted.filter(|wanted| wanted.kind == ValueKind::Regex) {
        if !into.contains_key(&wanted.value) {
            into.insert(wanted.value.clone(), whole(&wanted.value)?);
        }
    }
    Ok(())
}

/// Decodes a name or value of a query: `+` is a space, `%41` an A.
fn unescape(text: &str) -> Cow<'_, str> {
    if !text.bytes().any(|byte| matches!(byte, b'+' | b'%')) {
        return Cow::Borrowed(text);
    }
    let bytes = text.as_bytes();
    let hex = |at: usize| bytes.get(at).and_then(|byte| char::from(*byte).to_digit(16));
    let (mut out, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while let Some(byte) = bytes.get(at) {
        match (byte, hex(at + 1), hex(at + 2)) {
            (b'%', Some(high), Some(low)) => {
                out.push((high * 16 + low) as u8);
                at += 2;
            }
            (b'+', ..) => out.push(b' '),
            (other, ..) => out.push(*other),
        }
        at += 1;
    }
    Cow::Owned(String::from_utf8_lossy(&out).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_compared_as_it_was_meant() {
        assert_eq!(unescape("a+b%20c%2Bd"), "a b c+d");
        assert_eq!(unescape("100%"), "100%");
        assert_eq!(unescape("%zz%4"), "%zz%4");
    }
}
