//! The fields of every protobuf message that this server reads, parsed once from `fields.txt`, which
//! `examples/proto_fields.rs` writes. The table has the JSON name and shape of each field. It has no code
//! for single kinds; `message` uses it.

use std::collections::HashMap;
use std::sync::LazyLock;

/// Kinds and messages.
#[derive(Debug, Default)]
pub(super) struct Table {
    kinds: HashMap<(&'static str, &'static str), usize>,
    messages: Vec<Message>,
}

/// One protobuf message.
#[derive(Debug)]
pub(super) struct Message {
    /// The name, such as `core/v1.Pod`.
    pub(super) name: &'static str,
    fields: HashMap<u32, Field>,
}

/// One field of a message.
#[derive(Debug)]
pub(super) struct Field {
    /// The JSON name; `-` for a message whose fields belong to its parent.
    pub(super) name: &'static str,
    /// Whether Go's JSON leaves out the zero value (`omitempty`, not a pointer).
    pub(super) omit_zero: bool,
    /// How often the value may occur.
    pub(super) shape: Shape,
    /// The type of one value.
    pub(super) type_: Type,
}

/// How often a value may occur in its field.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Shape {
    /// Once.
    One,
    /// Any number of times.
    List,
    /// Any number of times, each with a key.
    Map,
}

/// The type of a value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Type {
    /// A string.
    Text,
    /// A boolean.
    Bool,
    /// A signed 32-bit integer.
    Int32,
    /// A signed 64-bit integer.
    Int64,
    /// Bytes, base64 in JSON.
    Bytes,
    /// A time in whole seconds, RFC 3339 in JSON.
    Time,
    /// A time in microseconds, RFC 3339 in JSON.
    MicroTime,
    /// A message that holds an integer or a string.
    IntOrString,
    /// A message that holds a quantity as text.
    Quantity,
    /// A message that holds JSON.
    Json,
    /// An ordinary message, by its index in the table.
    Message(usize),
}

static TABLE: LazyLock<Result<Table, String>> = LazyLock::new(|| parse(include_str!("fields.txt")));

/// The table. An error only if the generated file is broken; a test checks it.
pub(super) fn table() -> Result<&'static Table, &'static str> {
    TABLE.as_ref().map_err(String::as_str)
}

impl Table {
    /// The message of a kind.
    pub(super) fn kind(&self, api_version: &str, kind: &str) -> Option<&Message> {
        let at = [api_version, "*"].iter().find_map(|version| self.kinds.get(&(*version, kind)));
        at.and_then(|at| self.message(*at))
    }

    /// A message by its index.
    pub(super) fn message(&self, at: usize) -> Option<&Message> {
        self.messages.get(at)
    }
}

impl Message {
    /// A field by its number.
    pub(super) fn field(&self, number: u32) -> Option<&Field> {
        self.fields.get(&number)
    }
}

fn parse(text: &'static str) -> Result<Table, String> {
    let names: HashMap<_, _> = text
        .lines()
        .filter_map(|line| line.strip_prefix("message "))
        .enumerate()
        .map(|(at, name)| (name, at))
        .collect();
    let mut table = Table::default();
    for line in text.lines() {
        let words: Vec<&'static str> = line.split(' ').collect();
        let bad = || format!("cannot read {line:?}");
        match words[..] {
            ["#", ..] => {}
            ["kind", version, kind, message] => {
                let at = names.get(message).ok_or_else(bad)?;
                table.kinds.insert((version, kind), *at);
            }
            ["message", name] => table.messages.push(Message { name, fields: HashMap::new() }),
            [number, name, type_] => {
                let number = number.parse().map_err(|_| bad())?;
                let field = parse_field(name, type_, &names).ok_or_else(bad)?;
                let message = table.messages.last_mut().ok_or_else(bad)?;
                message.fields.insert(number, field);
            }
            _ => return Err(bad()),
        }
    }
    Ok(table)
}

fn parse_field(name: &'static str, type_: &str, messages: &HashMap<&str, usize>) -> Option<Field> {
    let (shape, item) = if let Some(item) = type_.strip_prefix("[]") {
        (Shape::List, item)
    } else if let Some(item) = type_.strip_prefix("map:") {
        (Shape::Map, item)
    } else {
        (Shape::One, type_)
    };
    let type_ = match item {
        "string" => Type::Text,
        "bool" => Type::Bool,
        "int32" => Type::Int32,
        "int64" => Type::Int64,
        "bytes" => Type::Bytes,
        "time" => Type::Time,
        "microtime" => Type::MicroTime,
        "intorstring" => Type::IntOrString,
        "quantity" => Type::Quantity,
        "json" => Type::Json,
        message => Type::Message(*messages.get(message)?),
    };
    let plain = name.strip_prefix('?');
    Some(Field { name: plain.unwrap_or(name), omit_zero: plain.is_some(), shape, type_ })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generated_table_parses() {
        let table = table().expect("fields.txt");
        assert_eq!(table.kind("v1", "Pod").map(|m| m.name), Some("core/v1.Pod"));
        assert_eq!(
            table.kind("apps/v1", "DeleteOptions").map(|m| m.name),
            Some("meta/v1.DeleteOptions")
        );
        assert!(table.kind("apps/v1", "Pod").is_none());
    }

    /// The decoder needs no depth limit: a body cannot nest deeper than the table.
    #[test]
    fn no_message_contains_itself() {
        fn depth(table: &Table, at: usize, above: &mut Vec<usize>) -> usize {
            assert!(!above.contains(&at), "{} contains itself", table.messages[at].name);
            above.push(at);
            let below = table.messages[at].fields.values().map(|field| match field.type_ {
                Type::Message(inner) => depth(table, inner, above),
                _ => 0,
            });
            let deepest = below.max().unwrap_or(0);
            above.pop();
            deepest + 1
        }
        let table = table().expect("fields.txt");
        let deepest = (0..table.messages.len()).map(|at| depth(table, at, &mut Vec::new())).max();
        assert!(deepest.is_some_and(|levels| levels < 20), "{deepest:?}");
    }

    /// The schemas are those of the next release. They may have fields that the table lacks, but must have
    /// all of the table's.
    #[test]
    fn every_name_is_a_field_of_the_published_schemas() {
        /// An alpha field that the next release removed.
        const GONE: (&str, &str) = ("core/v1.NodeAllocatableResourceClaimStatus", "resources");
        fn names(table: &Table, message: &Message) -> Vec<&'static str> {
            let inner = |field: &Field| match field.type_ {
                Type::Message(at) if field.name == "-" => names(table, &table.messages[at]),
                _ => vec![field.name],
            };
            message.fields.values().flat_map(inner).collect()
        }
        let table = table().expect("fields.txt");
        let definitions = crate::builtins::definitions::definitions();
        let mut compared = 0;
        for message in &table.messages {
            let end = format!(".{}", message.name.replace('/', "."));
            let mut found = definitions.iter().filter(|(name, _)| name.ends_with(&end));
            // Messages that are always inlined have no schema.
            let Some((_, schema)) = found.next() else { continue };
            compared += 1;
            for name in names(table, message) {
                let known = schema["properties"][name].is_object();
                assert_eq!(known, (message.name, name) != GONE, "{}: {name}", message.name);
            }
        }
        assert!(compared > 200, "{compared} of {}", table.messages.len());
    }

    #[test]
    fn only_messages_are_inlined() {
        let table = table().expect("fields.txt");
        for message in &table.messages {
            for field in message.fields.values().filter(|field| field.name == "-") {
                assert!(
                    field.shape == Shape::One && matches!(field.type_, Type::Message(_)),
                    "{}: {field:?}",
                    message.name
                );
            }
        }
    }

    #[test]
    fn a_line_that_means_nothing_is_an_error() {
        for text in
            ["1 name string", "message a\n1 name strong", "message a\nx y string", "kind v1"]
        {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
