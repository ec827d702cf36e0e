//! Go templates, by `gotmpl`. That crate has maps instead of Go's structs, so methods without arguments
//! (`$port.String`, `$name.IsRegexp`) are fields of the map. It would print such a map field by field, so the parsed
//! template is rewritten before it runs: each value that is printed, compared or formatted passes through `__show`,
//! which replaces an object by its `String`. The rewriting also inserts a mark before each action: `gotmpl` does not
//! report where it failed, the last mark does. The parent module calls it.

use super::data::{Data, STRING};
use super::names::ServerNames;
use super::{TemplateError, blocks};
use gotmpl::parse::{CommandNode, Expr, ListNode, Node, Number, Parser, PipeNode, Pos};
use gotmpl::{MissingKey, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Go's functions that print, compare or format their arguments.
const SHOWN: [&str; 12] =
    ["print", "printf", "println", "eq", "ne", "lt", "le", "gt", "ge", "html", "js", "urlquery"];
/// Go's other functions.
const OTHERS: [&str; 7] = ["and", "or", "not", "len", "index", "slice", "call"];
/// kube2lb's functions.
const OURS: [&str; 7] =
    ["EscapeNode", "IntRange", "ServerNames", "ToLower", "ToUpper", "Add", "ToJson"];
/// Go's functions that look into a text: kube2lb's names are texts.
const READ: [&str; 3] = ["len", "index", "slice"];
/// The most iterations of all loops of a template: kube2lb's templates go through all Services for each port.
const MOST_TURNS: u64 = 1_000_000_000;
/// The longest result of `IntRange`.
const LONGEST_RANGE: i64 = 100_000;

const SHOW: &str = "__show";
const MARK: &str = "__mark";
const TEXT: &str = "__text";

/// A Go template.
pub(super) struct Go {
    file: PathBuf,
    template: gotmpl::Template,
    /// The line and the action of each mark.
    places: Vec<(usize, String)>,
    /// The last mark that was passed.
    passed: Arc<AtomicUsize>,
    /// The names of fields and the string constants in it.
    pub(super) words: BTreeSet<String>,
}

impl std::fmt::Debug for Go {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Go").field("file", &self.file).finish_non_exhaustive()
    }
}

const ROOT: &str = "root";

impl Go {
    /// Parses a template. Without `names` it has only Go's functions.
    pub(super) fn new(
        file: &Path,
        source: &str,
        names: Option<&Arc<ServerNames>>,
    ) -> Result<Self, TemplateError> {
        let unreadable = |error: gotmpl::TemplateError| {
            use gotmpl::TemplateError::{Lex, Parse};
            let (line, cause) = match error {
                Parse { line, message, .. } | Lex { line, message, .. } => (Some(line), message),
                other => (None, other.to_string()),
            };
            TemplateError { file: file.to_owned(), line, evaluating: String::new(), cause }
        };
        let parser = Parser::new(source, "{{", "}}").map_err(unreadable)?;
        let (tree, defines) = parser.parse().map_err(unreadable)?;
        blocks::check(source).map_err(|(line, cause)| TemplateError {
            file: file.to_owned(),
            line: Some(line),
            evaluating: String::new(),
            cause,
        })?;
        let ours = names.is_some();
        let mut rewrite = Rewrite { source, ours, places: Vec::new(), words: BTreeSet::new() };
        let unknown = |(pos, name): (Pos, String)| TemplateError {
            file: file.to_owned(),
            line: Some(pos.line),
            evaluating: action(source, pos),
            cause: format!("there is no function {name}"),
        };
        let tree = rewrite.list(tree).map_err(unknown)?;
        let passed = Arc::new(AtomicUsize::new(0));
        let mut template = gotmpl::Template::new(ROOT)
            .missing_key(MissingKey::Error)
            .max_range_iters(MOST_TURNS)
            .func(SHOW, |args| Ok(args.first().map_or(Value::Nil, show)))
            .func(TEXT, |args| Ok(args.first().map_or(Value::Nil, as_text)))
            .func(MARK, {
                let passed = passed.clone();
                move |args| {
                    let mark = args.first().and_then(Value::as_int).unwrap_or_default();
                    passed.store(usize::try_from(mark).unwrap_or_default(), Ordering::Relaxed);
                    Ok(Value::String("".into()))
                }
            });
        if let Some(names) = names {
            template = with_functions(template, names.clone());
        }
        for define in defines {
            let body = rewrite.list(define.body).map_err(unknown)?;
            template = template.add_parse_tree(&define.name, body);
        }
        template = template.add_parse_tree(ROOT, tree);
        let Rewrite { places, words, .. } = rewrite;
        Ok(Self { file: file.to_owned(), template, places, passed, words })
    }

    pub(super) fn render(&self, data: &Value) -> Result<String, TemplateError> {
        self.passed.store(0, Ordering::Relaxed);
        self.template.execute_template_to_string(ROOT, data).map_err(|error| {
            let place = self.places.get(self.passed.load(Ordering::Relaxed)).cloned();
            let (line, evaluating) = place.map_or((None, String::new()), |(l, e)| (Some(l), e));
            TemplateError { file: self.file.clone(), line, evaluating, cause: error.to_string() }
        })
    }
}

/// The action at this position.
fn action(source: &str, pos: Pos) -> String {
    let offset = source.floor_char_boundary(pos.offset.saturating_add(2).min(source.len()));
    let begin = source[..offset].rfind("{{").unwrap_or(offset);
    let end = source[begin..].find("}}").map_or(source.len(), |end| begin + end + 2);
    source[begin..end].to_owned()
}

struct Rewrite<'a> {
    source: &'a str,
    ours: bool,
    places: Vec<(usize, String)>,
    words: BTreeSet<String>,
}

type Unknown = (Pos, String);

impl Rewrite<'_> {
    fn list(&mut self, list: ListNode) -> Result<ListNode, Unknown> {
        let mut nodes = Vec::new();
        for node in list.nodes {
            if let Some(pos) = evaluates(&node) {
                nodes.push(self.mark(pos));
            }
            nodes.push(self.node(node)?);
        }
        Ok(ListNode { pos: list.pos, nodes })
    }

    fn mark(&mut self, pos: Pos) -> Node {
        let number = i64::try_from(self.places.len()).unwrap_or_default();
        self.places.push((pos.line, action(self.source, pos)));
        let args = vec![Expr::Identifier(pos, MARK.into()), Expr::Number(pos, Number::Int(number))];
        Node::Action(gotmpl::parse::ActionNode { pos, pipe: pipe(pos, args) })
    }

    fn node(&mut self, node: Node) -> Result<Node, Unknown> {
        let mut branch = |mut branch: gotmpl::parse::BranchNode| {
            branch.pipe = self.pipe(branch.pipe)?;
            branch.body = self.list(branch.body)?;
            branch.else_body = branch.else_body.map(|body| self.list(body)).transpose()?;
            Ok(branch)
        };
        Ok(match node {
            Node::If(node) => Node::If(branch(node)?),
            Node::Range(node) => Node::Range(branch(node)?),
            Node::With(node) => Node::With(branch(node)?),
            Node::List(list) => Node::List(self.list(list)?),
            Node::Template(mut node) => {
                node.pipe = node.pipe.map(|pipe| self.pipe(pipe)).transpose()?;
                Node::Template(node)
            }
            Node::Action(mut node) => {
                node.pipe = self.pipe(node.pipe)?;
                if node.pipe.decl.is_empty() {
                    let args = vec![Expr::Identifier(node.pos, SHOW.into())];
                    node.pipe.commands.push(CommandNode { pos: node.pos, args });
                }
                Node::Action(node)
            }
            other @ (Node::Text(_) | Node::Define(_) | Node::Break(_) | Node::Continue(_)) => other,
        })
    }

    fn pipe(&mut self, mut pipe: PipeNode) -> Result<PipeNode, Unknown> {
        let mut commands = Vec::new();
        for command in pipe.commands {
            let (shown, read) = match command.args.first() {
                Some(Expr::Identifier(_, name)) => {
                    (SHOWN.contains(&name.as_str()), READ.contains(&name.as_str()))
                }
                _ => (false, false),
            };
            let pos = command.pos;
            // The value of a pipe is the last argument; for `len` with no other argument, the only one.
            let through = if shown { SHOW } else { TEXT };
            if (shown || read && command.args.len() == 1) && !commands.is_empty() {
                let args = vec![Expr::Identifier(pos, through.into())];
                commands.push(CommandNode { pos, args });
            }
            let mut args = Vec::new();
            for (at, arg) in command.args.into_iter().enumerate() {
                let arg = self.expr(arg)?;
                let passes = shown && at > 0 || read && at == 1;
                args.push(if passes { passing(arg, through) } else { arg });
            }
            commands.push(CommandNode { pos, args });
        }
        pipe.commands = commands;
        Ok(pipe)
    }

    fn expr(&mut self, expr: Expr) -> Result<Expr, Unknown> {
        match &expr {
            Expr::Field(_, names) | Expr::Variable(_, _, names) | Expr::Chain(_, _, names) => {
                self.words.extend(names.iter().map(ToString::to_string));
            }
            Expr::String(_, text) => drop(self.words.insert(text.to_string())),
            _ => {}
        }
        Ok(match expr {
            Expr::Identifier(pos, name) if !self.knows(&name) => {
                return Err((pos, name.to_string()));
            }
            Expr::Pipe(pos, pipe) => Expr::Pipe(pos, self.pipe(pipe)?),
            Expr::Chain(pos, inner, names) => Expr::Chain(pos, Box::new(self.expr(*inner)?), names),
            other => other,
        })
    }

    fn knows(&self, name: &str) -> bool {
        SHOWN.contains(&name) || OTHERS.contains(&name) || self.ours && OURS.contains(&name)
    }
}

/// The position of a node that evaluates something.
fn evaluates(node: &Node) -> Option<Pos> {
    match node {
        Node::Action(node) => Some(node.pos),
        Node::If(node) | Node::Range(node) | Node::With(node) => Some(node.pos),
        Node::Template(node) => Some(node.pos),
        Node::List(_) | Node::Text(_) | Node::Define(_) | Node::Break(_) | Node::Continue(_) => {
            None
        }
    }
}

fn pipe(pos: Pos, args: Vec<Expr>) -> PipeNode {
    let commands = vec![CommandNode { pos, args }];
    PipeNode { pos, decl: Vec::new(), commands, is_assign: false }
}

/// Passes an argument through one of our functions.
fn passing(arg: Expr, function: &str) -> Expr {
    match arg {
        Expr::Dot(_) | Expr::Field(..) | Expr::Variable(..) | Expr::Pipe(..) | Expr::Chain(..) => {
            let pos = arg.pos();
            Expr::Pipe(pos, pipe(pos, vec![Expr::Identifier(pos, function.into()), arg]))
        }
        other => other,
    }
}

/// Replaces an object by its `String`, also in a list.
fn show(value: &Value) -> Value {
    match value {
        Value::Map(map) => map.get(STRING).unwrap_or(value).clone(),
        Value::List(list) if list.iter().any(|value| matches!(value, Value::Map(_))) => {
            Value::List(list.iter().map(show).collect())
        }
        other => other.clone(),
    }
}

/// Replaces an object that stands for a text by that text.
fn as_text(value: &Value) -> Value {
    match value {
        Value::Map(map) => map.get(STRING).unwrap_or(value).clone(),
        other => other.clone(),
    }
}

/// A value as JSON. Values that JSON does not have become null.
fn to_json(value: &Value) -> serde_json::Value {
    match value {
        Value::Bool(flag) => (*flag).into(),
        Value::Int(number) => (*number).into(),
        Value::Uint(number) => (*number).into(),
        Value::Float(number) => (*number).into(),
        Value::String(text) => (&**text).into(),
        Value::List(list) => list.iter().map(to_json).collect(),
        Value::Map(map) => {
            map.iter().map(|(name, value)| (name.to_string(), to_json(value))).collect()
        }
        _ => serde_json::Value::Null,
    }
}

fn with_functions(template: gotmpl::Template, names: Arc<ServerNames>) -> gotmpl::Template {
    template
        .func("EscapeNode", |args| {
            text("EscapeNode", args).map(|t| t.replace(['.', ':'], "_").into_value())
        })
        .func("ToLower", |args| text("ToLower", args).map(|t| t.to_lowercase().into_value()))
        .func("ToUpper", |args| text("ToUpper", args).map(|t| t.to_uppercase().into_value()))
        .func("ToJson", |args| match args {
            [one] => Ok(to_json(one).to_string().into_value()),
            _ => Err(bad("ToJson", "it takes one value")),
        })
        .func("Add", |args| {
            let mut sum = 0i64;
            for number in whole("Add", args)? {
                sum = sum.checked_add(number).ok_or_else(|| bad("Add", "the sum is too large"))?;
            }
            Ok(Value::Int(sum))
        })
        .func("IntRange", |args| {
            let [n, initial, step] = whole("IntRange", args)?[..] else {
                return Err(bad(
                    "IntRange",
                    "it takes three numbers: how many, the first and the step",
                ));
            };
            int_range(n, initial, step)
                .map(|numbers| Value::List(numbers.into_iter().map(Value::Int).collect()))
                .ok_or_else(|| bad("IntRange", "it is too long"))
        })
        .func("ServerNames", move |args| {
            let [service @ Value::Map(_), domain] = args else {
                return Err(bad("ServerNames", "it takes a Service and a domain"));
            };
            let domain = text("ServerNames", std::slice::from_ref(domain))?;
            let made = names.of(service, &domain);
            let made = made.map_err(|error| bad("ServerNames", &error.to_string()))?;
            Ok(Value::List(made.iter().map(value).collect()))
        })
}

/// The numbers of an `IntRange`. None: too many, or too large.
pub(super) fn int_range(n: i64, initial: i64, step: i64) -> Option<Vec<i64>> {
    if n > LONGEST_RANGE {
        return None;
    }
    (0..n).map(|i| i.checked_mul(step)?.checked_add(initial)).collect()
}

trait IntoValue {
    fn into_value(self) -> Value;
}

impl IntoValue for String {
    fn into_value(self) -> Value {
        Value::String(self.into())
    }
}

fn bad(function: &str, why: &str) -> gotmpl::TemplateError {
    gotmpl::TemplateError::Exec(format!("{function}: {why}"))
}

fn text(function: &str, args: &[Value]) -> gotmpl::Result<String> {
    match args {
        [one] => match show(one) {
            Value::String(text) => Ok(text.to_string()),
            other => Err(bad(function, &format!("{} is not a text", other.type_name()))),
        },
        _ => Err(bad(function, "it takes one text")),
    }
}

fn whole(function: &str, args: &[Value]) -> gotmpl::Result<Vec<i64>> {
    args.iter()
        .map(|arg| match arg {
            Value::Int(number) => Ok(*number),
            other => Err(bad(function, &format!("{} is not a whole number", other.type_name()))),
        })
        .collect()
}

/// Data as a value of this engine.
pub(super) fn value(data: &Data) -> Value {
    match data {
        Data::Null => Value::Nil,
        Data::Flag(flag) => Value::Bool(*flag),
        Data::Number(number) => Value::Int(*number),
        Data::Text(text) => Value::String(text.clone()),
        Data::Address(text) => {
            let text = Value::String(text.clone());
            Value::Map(Arc::new(BTreeMap::from([(STRING.into(), text)])))
        }
        Data::List(list) => Value::List(list.iter().map(value).collect()),
        Data::Fields(fields) => {
            let fields: BTreeMap<Arc<str>, Value> =
                fields.iter().map(|(name, data)| (name.clone(), value(data))).collect();
            Value::Map(Arc::new(fields))
        }
    }
}
