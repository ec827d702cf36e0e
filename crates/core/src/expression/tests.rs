//! Accepted expressions are matched by a small engine that backtracks as PCRE does and counts its
//! steps.

use super::*;
use crate::cases::cases;
use proptest::prelude::*;

#[test]
fn what_hosts_are_written_as_is_accepted() {
    for pattern in [
        r"^(test1|test2)\.example\.(com|net)$",
        r"^(?:[a-z0-9-]+\.)?shop-\d+\.example$",
        r"^[^a-z_.]*[\w\-.-]\.example$",
        r"^([a-z0-9-]+\.)+example\.com$",
        r"^([a-z0-9-]+\.)*example\.com$",
        r"^[a-z]+-[a-z]+-[a-z]+\.example$",
        r"^.*\.example\.com$",
        r".*\.example\.com$",
        r"^(a|b|c)+x$",
        r"^(www1|www2|www3|www10|api)\.(a|b)\.example$",
        r"^(www|api)$|^shop\d*$",
        r"shop\.example",
        r"^www\d{1,3}\.example$",
        r"^\d{4}-[a-z]+$",
        r"\A(?:[a-z]+-(dev|test)\.example)\z",
        r"^(?:a?b)+$",
        "",
        "^a+$",
    ] {
        assert_eq!(is_linear(pattern), Ok(()), "{pattern}");
    }
}

#[test]
fn what_takes_long_is_refused_with_the_reason() {
    for (pattern, why) in [
        ("^(a+)+$", Slow::Nested),
        ("^(a*)*$", Slow::Nested),
        ("^(a|a)+$", Slow::Nested),
        ("^(a|ab)+c$", Slow::Nested),
        ("^(a|a?)+$", Slow::Nested),
        ("^(a?)*$", Slow::Nested),
        ("^((|)a)+$", Slow::Nested),
        ("^(.*a)+$", Slow::Nested),
        ("^([a-z0-9]+[a-z]?)+$", Slow::Nested),
        ("^((a{1,9}){1,9}){1,9}$", Slow::Nested),
        ("^(a?)?$", Slow::Nested),
        ("^a*a*a*a*b$", Slow::Adjacent),
        ("^(.*)x(.*)y$", Slow::Adjacent),
        ("^[a-z]+[0-9]*[a-z]+$", Slow::Adjacent),
        ("^[a-z]*[a-z]{1,200}$", Slow::Adjacent),
        ("[a-z]+\\.example", Slow::Unanchored),
        ("^a|b+", Slow::Unanchored),
        ("(a+)+b", Slow::Nested),
        // Expressions that are slow only where case does not count.
        ("^([a-z]+A)+$", Slow::Nested),
        ("^[a-z]+[A-Z]+$", Slow::Adjacent),
        // Class operations that PCRE reads as characters.
        ("^([a-z&&b-z]+a)+$", Slow::Unreadable),
        ("^([a-z[0-9]]+\\.)+$", Slow::Unreadable),
        ("(?i)a", Slow::Unreadable),
        ("(?i:a)", Slow::Unreadable),
        ("(a)\\1", Slow::Unreadable),
        ("(?=a)", Slow::Unreadable),
    ] {
        assert_eq!(is_linear(pattern), Err(why), "{pattern}");
    }
    assert_eq!(is_linear(&"(a|ab)".repeat(7)), Err(Slow::Alternatives));
    assert_eq!(
        is_linear(&format!("{}{}", "a?".repeat(20), "a".repeat(20))),
        Err(Slow::Alternatives)
    );
    assert_eq!(is_linear(&"a".repeat(MOST_PLACES + 1)), Err(Slow::Unreadable));
}

/// Matches as PCRE does: branches in order, repetitions as long as possible first and then shorter.
struct Engine<'a> {
    text: &'a [u8],
    steps: u64,
}

const GIVEN_UP: u64 = 2_000_000;

impl Engine<'_> {
    fn run(
        &mut self,
        node: &Node,
        at: usize,
        then: &mut dyn FnMut(&mut Self, usize) -> bool,
    ) -> bool {
        self.steps += 1;
        if self.steps > GIVEN_UP {
            return true;
        }
        match node {
            Node::Empty(start) => !(*start && at > 0) && then(self, at),
            Node::Place(set) => {
                let fits = self.text.get(at).is_some_and(|byte| set.ascii >> byte & 1 == 1);
                fits && then(self, at + 1)
            }
            Node::All(all) => self.all(all, at, then),
            Node::Any(any) => any.iter().any(|it| self.run(it, at, then)),
            Node::Optional(it) => self.run(it, at, then) || then(self, at),
            Node::Repeat(it, empty) => self.more(it, at, then) || *empty && then(self, at),
            Node::Times(it) => self.run(it, at, then),
        }
    }

    fn all(
        &mut self,
        all: &[Node],
        at: usize,
        then: &mut dyn FnMut(&mut Self, usize) -> bool,
    ) -> bool {
        match all {
            [] => then(self, at),
            [first, rest @ ..] => self.run(first, at, &mut |engine, at| engine.all(rest, at, then)),
        }
    }

    fn more(
        &mut self,
        it: &Node,
        at: usize,
        then: &mut dyn FnMut(&mut Self, usize) -> bool,
    ) -> bool {
        self.run(it, at, &mut |engine, to| to > at && engine.more(it, to, then) || then(engine, to))
    }
}

/// The steps until everything is tried and nothing matches: behind the pattern is a character that
/// no text has.
fn steps(pattern: &str, text: &[u8]) -> u64 {
    let ast = Parser::new().parse(pattern).unwrap();
    let node = read(pattern, &ast, &mut 0).unwrap();
    let starts = if begins(&node) { 0..=0 } else { 0..=text.len() };
    let mut engine = Engine { text, steps: 0 };
    for start in starts {
        engine.run(&node, start, &mut |_, _| false);
    }
    engine.steps
}

#[test]
fn the_small_engine_sees_what_is_slow() {
    let a = |count: usize| vec![b'a'; count];
    assert_eq!(steps("^(a+)+$", &a(30)), GIVEN_UP + 1);
    assert!(steps("^a*a*a*a*b$", &a(100)) > 1_000_000);
    assert!(steps("^[a-z]+[0-9]*[a-z]+$", &a(400)) > 80_000);
    assert!(steps("^([a-z0-9-]+\\.)+example$", &a(1000)) < 10_000);
}

fn pattern() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        4 => Just("a"), 2 => Just("b"), 2 => Just("[ab]"), 2 => Just("\\."), 1 => Just("."), 1 => Just("[^a]"),
        1 => Just("ab"), 1 => Just("x"),
    ];
    let leaf = leaf.prop_map(str::to_owned);
    let inner = leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            3 => prop::collection::vec(inner.clone(), 2..4).prop_map(|it| it.concat()),
            2 => prop::collection::vec(inner.clone(), 2..4).prop_map(|it| format!("({})", it.join("|"))),
            2 => inner.clone().prop_map(|it| format!("({it})+")),
            2 => inner.clone().prop_map(|it| format!("({it})*")),
            1 => inner.clone().prop_map(|it| format!("({it})?")),
            1 => inner.prop_map(|it| format!("({it}){{1,3}}")),
        ]
    });
    (any::<bool>(), inner).prop_map(|(anchored, it)| if anchored { format!("^{it}") } else { it })
}

proptest! {
    #![proptest_config(cases(2000))]

    #[test]
    fn what_is_accepted_takes_steps_linear_in_the_text(
        pattern in pattern(),
        word in "[ab.x]{1,4}",
        end in "[ab.x]{0,3}",
    ) {
        if is_linear(&pattern).is_ok() {
            let text = |times: usize| format!("{}{end}", word.repeat(times)).into_bytes();
            let (few, many) = (text(50), text(200));
            let (few, many) = (steps(&pattern, &few), steps(&pattern, &many));
            // Four times the text: a quadratic expression takes sixteen times as long.
            prop_assert!(many <= 6 * few + 1000, "{pattern} {few} {many}");
            let bound = MOST_WAYS * pattern.len() as u64 * 900;
            prop_assert!(many <= bound, "{pattern} {many} > {bound}");
        }
    }
}
