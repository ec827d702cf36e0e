//! Whether an engine that backtracks (PCRE in nginx and HAProxy) matches a tenant's regular expression in time linear
//! in the text. It reads the expression as written, since engines try its branches as written, and is conservative:
//! what it accepts is linear, and some of what it refuses would be, too. Template names and the HAProxy driver call
//! it; the built-in proxy has an engine that is always linear.
//!
//! An engine backtracks where the next character allows two ways on. So:
//! - inside a repetition, the next character must decide which way to go (else the work is exponential);
//! - a repetition that may end before a character that it could also take is tried at every such end, so behind it
//!   there may be no other repetition (else the work is quadratic or worse);
//! - alternatives that begin alike are tried one after the other, and multiply only so far;
//! - an expression with a repetition must be tried at one place only, the beginning.

use regex_syntax::ast::parse::Parser;
use regex_syntax::ast::{
    AssertionKind, Ast, ClassSet, ClassSetItem, GroupKind, RepetitionKind, RepetitionRange,
};
use regex_syntax::hir::translate::Translator;
use regex_syntax::hir::{Class, HirKind};

/// Why an expression is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Slow {
    /// It has something that is not judged here, or is too large.
    #[error("is not a regular expression that can be used")]
    Unreadable,
    /// A repetition can take the same text in two ways.
    #[error(
        "may take too long to match: a repeated part can match one text in two ways; repeat only what the \
         next character decides, such as ([a-z0-9-]+\\.)+"
    )]
    Nested,
    /// Two repetitions can share a text between them in many ways.
    #[error(
        "may take too long to match: put between two repetitions a character that the first cannot match, \
         such as the dot in [a-z0-9-]+\\.[a-z]+"
    )]
    Adjacent,
    /// It is tried at every place of a text.
    #[error("may take too long to match: begin it with ^, since it has a repetition")]
    Unanchored,
    /// Too many alternatives that begin alike.
    #[error("may take too long to match: too many alternatives begin with the same character")]
    Alternatives,
}

/// The most ways that alternatives outside of repetitions may multiply to.
const MOST_WAYS: u64 = 64;
/// The most characters and classes of one expression.
const MOST_PLACES: usize = 1024;
/// The most places of one repetition.
const MOST_REPEATED: usize = 128;

/// Whether a backtracking engine matches this expression in time linear in the text.
pub fn is_linear(pattern: &str) -> Result<(), Slow> {
    let ast = Parser::new().parse(pattern).map_err(|_| Slow::Unreadable)?;
    let mut places = 0;
    let node = read(pattern, &ast, &mut places)?;
    let Cost { ways, degree } = cost(&node, Set::NONE, 0)?;
    match degree {
        2.. => Err(Slow::Adjacent),
        1 if !begins(&node) => Err(Slow::Unanchored),
        _ if ways > MOST_WAYS => Err(Slow::Alternatives),
        _ => Ok(()),
    }
}

/// A set of characters: each of ASCII, and whether there are others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Set {
    ascii: u128,
    others: bool,
}

impl Set {
    const NONE: Self = Self { ascii: 0, others: false };

    fn meets(self, other: Self) -> bool {
        self.ascii & other.ascii != 0 || self.others && other.others
    }

    fn and(self, other: Self) -> Self {
        Self { ascii: self.ascii | other.ascii, others: self.others || other.others }
    }

    /// Adds a range, each letter in both cases: nginx compares some expressions without regard to case.
    fn add(&mut self, first: char, last: char) {
        let (first, last) = (u32::from(first), u32::from(last));
        for char in (first..=last.min(127)).filter_map(char::from_u32) {
            let (upper, lower) = (char.to_ascii_uppercase(), char.to_ascii_lowercase());
            self.ascii |= 1 << u32::from(upper) | 1 << u32::from(lower);
        }
        self.others |= last > 127;
    }
}

/// An expression as it is written.
#[derive(Debug)]
enum Node {
    /// Nothing, or an assertion; true: the beginning of the text.
    Empty(bool),
    Place(Set),
    All(Vec<Node>),
    Any(Vec<Node>),
    Optional(Box<Node>),
    /// A repetition without a fixed number; true: it may also be left out.
    Repeat(Box<Node>, bool),
    /// A fixed number of times.
    Times(Box<Node>),
}

fn read(pattern: &str, ast: &Ast, places: &mut usize) -> Result<Node, Slow> {
    Ok(match ast {
        Ast::Empty(_) => Node::Empty(false),
        Ast::Flags(_) => return Err(Slow::Unreadable),
        Ast::Assertion(it) => {
            Node::Empty(matches!(it.kind, AssertionKind::StartLine | AssertionKind::StartText))
        }
        Ast::Group(group) => match &group.kind {
            GroupKind::NonCapturing(flags) if !flags.items.is_empty() => {
                return Err(Slow::Unreadable);
            }
            _ => read(pattern, &group.ast, places)?,
        },
        Ast::Concat(all) => {
            let all = all.asts.iter().map(|it| read(pattern, it, places));
            Node::All(all.collect::<Result<_, _>>()?)
        }
        Ast::Alternation(any) => {
            let any = any.asts.iter().map(|it| read(pattern, it, places));
            Node::Any(any.collect::<Result<_, _>>()?)
        }
        Ast::Repetition(it) => {
            let inner = Box::new(read(pattern, &it.ast, places)?);
            let (min, max) = match &it.op.kind {
                RepetitionKind::ZeroOrOne => (0, Some(1)),
                RepetitionKind::ZeroOrMore => (0, None),
                RepetitionKind::OneOrMore => (1, None),
                RepetitionKind::Range(RepetitionRange::Exactly(times)) => (*times, Some(*times)),
                RepetitionKind::Range(RepetitionRange::AtLeast(min)) => (*min, None),
                RepetitionKind::Range(RepetitionRange::Bounded(min, max)) => (*min, Some(*max)),
            };
            match (min, max) {
                (_, Some(0)) => Node::Empty(false),
                (1, Some(1)) => *inner,
                (0, Some(1)) => Node::Optional(inner),
                (min, Some(max)) if min == max => Node::Times(inner),
                (min, _) => Node::Repeat(inner, min == 0),
            }
        }
        Ast::Literal(_)
        | Ast::Dot(_)
        | Ast::ClassUnicode(_)
        | Ast::ClassPerl(_)
        | Ast::ClassBracketed(_) => {
            *places += 1;
            if *places > MOST_PLACES {
                return Err(Slow::Unreadable);
            }
            Node::Place(set(pattern, ast)?)
        }
    })
}

/// Whether both engines read a class alike: it has no classes inside of it and no operations on classes, which PCRE
/// takes for characters.
fn is_plain(set: &ClassSet) -> bool {
    let plain = |item: &ClassSetItem| match item {
        ClassSetItem::Bracketed(_) => false,
        ClassSetItem::Union(union) => {
            !union.items.iter().any(|it| matches!(it, ClassSetItem::Bracketed(_)))
        }
        _ => true,
    };
    matches!(set, ClassSet::Item(item) if plain(item))
}

fn set(pattern: &str, ast: &Ast) -> Result<Set, Slow> {
    if let Ast::ClassBracketed(class) = ast
        && !is_plain(&class.kind)
    {
        return Err(Slow::Unreadable);
    }
    let hir = Translator::new().translate(pattern, ast).map_err(|_| Slow::Unreadable)?;
    let mut set = Set::NONE;
    match hir.kind() {
        HirKind::Literal(literal) => {
            let text = std::str::from_utf8(&literal.0).map_err(|_| Slow::Unreadable)?;
            text.chars().for_each(|char| set.add(char, char));
        }
        HirKind::Class(Class::Unicode(class)) => {
            class.ranges().iter().for_each(|range| set.add(range.start(), range.end()));
        }
        _ => return Err(Slow::Unreadable),
    }
    Ok(set)
}

/// Whether it can match only from the beginning of a text. An engine tries an expression that begins with `.*` only
/// there, since it would fail elsewhere, too.
fn begins(node: &Node) -> bool {
    match node {
        Node::Empty(start) => *start,
        Node::All(all) => {
            let mut all = all.iter();
            all.next().is_some_and(|first| {
                let dots = |set: &Set| set.others && set.ascii.count_ones() >= 127;
                begins(first)
                    || matches!(first, Node::Repeat(it, true)
                        if matches!(&**it, Node::Place(set) if dots(set)))
            })
        }
        Node::Any(any) => any.iter().all(begins),
        _ => false,
    }
}

/// Whether it matches the empty text. An expression that does so in two ways is refused.
fn is_nullable(node: &Node) -> Result<bool, Slow> {
    match node {
        Node::Empty(_) => Ok(true),
        Node::Place(_) => Ok(false),
        Node::All(all) => all.iter().try_fold(true, |empty, it| Ok(is_nullable(it)? && empty)),
        Node::Any(any) => {
            let mut empty = 0;
            for it in any {
                empty += u32::from(is_nullable(it)?);
            }
            if empty > 1 { Err(Slow::Nested) } else { Ok(empty == 1) }
        }
        Node::Optional(it) | Node::Repeat(it, _) | Node::Times(it) if is_nullable(it)? => {
            Err(Slow::Nested)
        }
        Node::Optional(_) => Ok(true),
        Node::Repeat(_, empty) => Ok(*empty),
        Node::Times(_) => Ok(false),
    }
}

/// The characters that it can begin with.
fn first(node: &Node) -> Result<Set, Slow> {
    Ok(match node {
        Node::Empty(_) => Set::NONE,
        Node::Place(set) => *set,
        Node::All(all) => {
            let mut begin = Set::NONE;
            for it in all {
                begin = begin.and(first(it)?);
                if !is_nullable(it)? {
                    break;
                }
            }
            begin
        }
        Node::Any(any) => any.iter().try_fold(Set::NONE, |all, it| Ok(all.and(first(it)?)))?,
        Node::Optional(it) | Node::Repeat(it, _) | Node::Times(it) => first(it)?,
    })
}

/// What matching costs: ways that multiply, and the power of the text's length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cost {
    ways: u64,
    degree: u32,
}

/// The cost of a part that is followed by one of the characters `next`; `behind` is the degree of what follows, and
/// is included.
fn cost(node: &Node, next: Set, behind: u32) -> Result<Cost, Slow> {
    match node {
        Node::Empty(_) | Node::Place(_) => Ok(Cost { ways: 1, degree: behind }),
        Node::All(all) => {
            let mut total = Cost { ways: 1, degree: behind };
            let mut next = next;
            for it in all.iter().rev() {
                let Cost { ways, degree } = cost(it, next, total.degree)?;
                total = Cost { ways: total.ways.saturating_mul(ways), degree };
                let begin = first(it)?;
                next = if is_nullable(it)? { begin.and(next) } else { begin };
            }
            Ok(total)
        }
        Node::Any(any) => {
            is_nullable(node)?;
            branches(&any.iter().collect::<Vec<_>>(), next, behind)
        }
        Node::Optional(it) => {
            is_nullable(node)?;
            branches(&[it, &Node::Empty(false)], next, behind)
        }
        Node::Times(it) => match &**it {
            Node::Place(_) => Ok(Cost { ways: 1, degree: behind }),
            it => repeat(it, false, next, behind),
        },
        Node::Repeat(it, empty) => repeat(it, *empty, next, behind),
    }
}

fn branches(any: &[&Node], next: Set, behind: u32) -> Result<Cost, Slow> {
    let mut begins: Vec<Set> = Vec::new();
    let (mut alike, mut sum, mut most, mut degree) = (false, 0_u64, 1, behind);
    for it in any {
        let one = cost(it, next, behind)?;
        let begin = first(it)?;
        let begin = if is_nullable(it)? { begin.and(next) } else { begin };
        alike |= begins.iter().any(|other| other.meets(begin));
        begins.push(begin);
        sum = sum.saturating_add(one.ways);
        (most, degree) = (one.ways.max(most), one.degree.max(degree));
    }
    // Of words of which none is the beginning of another, at most one matches.
    let words: Option<Vec<Vec<Set>>> = any.iter().map(|it| word(it)).collect();
    let apart = words.is_some_and(|words| {
        let begins = |one: &[Set], other: &[Set]| {
            one.iter().zip(other).all(|(one, other)| one.meets(*other))
        };
        words
            .iter()
            .enumerate()
            .all(|(at, one)| words[at + 1..].iter().all(|other| !begins(one, other)))
    });
    Ok(Cost { ways: if alike && !apart { sum } else { most }, degree })
}

/// The characters of a part that matches only texts of one length.
fn word(node: &Node) -> Option<Vec<Set>> {
    match node {
        Node::Place(set) => Some(vec![*set]),
        Node::All(all) => Some(all.iter().map(word).collect::<Option<Vec<_>>>()?.concat()),
        _ => None,
    }
}

/// The cost of a repetition: the next character must decide which way to go.
fn repeat(body: &Node, empty: bool, next: Set, behind: u32) -> Result<Cost, Slow> {
    if is_nullable(body)? {
        return Err(Slow::Nested);
    }
    let mut ways = Ways::default();
    let ends = ways.walk(body)?;
    ways.join(&ends.last, &ends.first);
    let sets = |to: &[usize]| -> Vec<Set> { to.iter().map(|it| ways.places[*it]).collect() };
    let decided = |to: &[usize]| {
        let mut seen = Set::NONE;
        sets(to).into_iter().all(|set| {
            let new = !seen.meets(set);
            seen = seen.and(set);
            new
        })
    };
    if !decided(&ends.first) || !ways.follow.iter().all(|to| decided(to)) {
        return Err(Slow::Nested);
    }
    let meets = |to: &[usize]| sets(to).into_iter().any(|set| set.meets(next));
    let open =
        ends.last.iter().any(|last| meets(&ways.follow[*last])) || empty && meets(&ends.first);
    let degree = if open { behind + 1 } else { behind.max(1) };
    Ok(Cost { ways: 1, degree })
}

/// Which places of a repetition may follow which. A place is listed twice if there are two ways to it.
#[derive(Debug, Default)]
struct Ways {
    places: Vec<Set>,
    follow: Vec<Vec<usize>>,
}

#[derive(Debug, Default)]
struct Ends {
    first: Vec<usize>,
    last: Vec<usize>,
    empty: bool,
}

impl Ways {
    fn join(&mut self, from: &[usize], to: &[usize]) {
        from.iter().for_each(|it| self.follow[*it].extend(to));
    }

    fn walk(&mut self, node: &Node) -> Result<Ends, Slow> {
        Ok(match node {
            Node::Empty(_) => Ends { empty: true, ..Ends::default() },
            Node::Place(set) => {
                let at = self.places.len();
                if at == MOST_REPEATED {
                    return Err(Slow::Nested);
                }
                self.places.push(*set);
                self.follow.push(Vec::new());
                Ends { first: vec![at], last: vec![at], empty: false }
            }
            Node::All(all) => {
                let mut ends = Ends { empty: true, ..Ends::default() };
                for it in all {
                    let more = self.walk(it)?;
                    self.join(&ends.last, &more.first);
                    if ends.empty {
                        ends.first.extend(&more.first);
                    }
                    if !more.empty {
                        ends.last.clear();
                    }
                    ends.last.extend(&more.last);
                    ends.empty &= more.empty;
                }
                ends
            }
            Node::Any(any) => {
                is_nullable(node)?;
                let mut ends = Ends::default();
                for it in any {
                    let more = self.walk(it)?;
                    ends.first.extend(&more.first);
                    ends.last.extend(&more.last);
                    ends.empty |= more.empty;
                }
                ends
            }
            Node::Optional(it) => {
                is_nullable(node)?;
                Ends { empty: true, ..self.walk(it)? }
            }
            Node::Repeat(it, _) | Node::Times(it) => {
                let empty = is_nullable(node)?;
                let ends = self.walk(it)?;
                self.join(&ends.last, &ends.first);
                Ends { empty, ..ends }
            }
        })
    }
}

#[cfg(test)]
mod tests;
