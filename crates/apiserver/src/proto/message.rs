//! Converts one protobuf message into one JSON object by the table. It does no I/O. It recurses only
//! as deep as messages contain each other, which the table bounds.

use super::table::{Field, Message, Shape, Table, Type};
use super::wire::{Fault, Reader, Wire};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Map, Value};

/// The place (`message.field`), and what is wrong there.
pub(super) type Failure = (String, Fault);

/// The most JSON objects that a body may become. An object costs some hundred bytes of memory and may
/// take only four bytes of the body; no kind comes near this number.
const MOST_OBJECTS: usize = 100_000;

/// The JSON object of one body.
pub(super) fn read(
    table: &Table,
    message: &Message,
    bytes: &[u8],
) -> Result<Map<String, Value>, Failure> {
    let mut object = Map::new();
    Decoder { table, left: MOST_OBJECTS }.read(message, bytes, &mut object)?;
    Ok(object)
}

struct Decoder<'t> {
    table: &'t Table,
    left: usize,
}

impl<'t> Decoder<'t> {
    /// Reads the fields of `bytes` into `out`. If a field occurs again, it replaces or continues the
    /// earlier one, as protobuf defines.
    fn read(
        &mut self,
        message: &Message,
        bytes: &[u8],
        out: &mut Map<String, Value>,
    ) -> Result<(), Failure> {
        let failed = |fault| (message.name.to_owned(), fault);
        self.left = self.left.checked_sub(1).ok_or_else(|| failed(Fault::TooMany))?;
        let mut fields = Reader::new(bytes);
        while let Some((number, wire)) = fields.field().map_err(failed)? {
            let Some(field) = message.field(number) else { continue };
            let here = |fault| (format!("{}.{}", message.name, field.name), fault);
            match field.shape {
                Shape::One => self.one(field, wire, out, &here)?,
                Shape::List => {
                    let slot = out.entry(field.name).or_insert_with(|| Value::Array(Vec::new()));
                    let Value::Array(list) = slot else { continue };
                    if let (Type::Int32 | Type::Int64, Wire::Bytes(packed)) = (field.type_, wire) {
                        let mut numbers = Reader::new(packed);
                        while let Some(number) = numbers.packed().map_err(here)? {
                            list.push(integer(field.type_, number));
                        }
                    } else {
                        list.push(self.item(field.type_, wire, &here)?);
                    }
                }
                Shape::Map => {
                    let (key, wire) = entry(field.type_, wire).map_err(here)?;
                    let value = self.item(field.type_, wire, &here)?;
                    let slot = out.entry(field.name).or_insert_with(|| Value::Object(Map::new()));
                    if let Value::Object(map) = slot {
                        map.insert(key.to_owned(), value);
                    }
                }
            }
        }
        Ok(())
    }

    fn one(
        &mut self,
        field: &Field,
        wire: Wire<'_>,
        out: &mut Map<String, Value>,
        here: &dyn Fn(Fault) -> Failure,
    ) -> Result<(), Failure> {
        let value = match self.message_of(field.type_) {
            Some(inner) if field.name == "-" => {
                return self.read(inner, wire.bytes().map_err(here)?, out);
            }
            Some(inner) => {
                let mut object = match out.remove(field.name) {
                    Some(Value::Object(former)) => former,
                    _ => Map::new(),
                };
                self.read(inner, wire.bytes().map_err(here)?, &mut object)?;
                Value::Object(object)
            }
            None => scalar(field.type_, wire).map_err(here)?,
        };
        if value.is_null() || (field.omit_zero && is_zero(&value)) {
            out.remove(field.name);
        } else {
            out.insert(field.name.to_owned(), value);
        }
        Ok(())
    }

    /// A value in a list or map. Here even a zero is kept.
    fn item(
        &mut self,
        type_: Type,
        wire: Wire<'_>,
        here: &dyn Fn(Fault) -> Failure,
    ) -> Result<Value, Failure> {
        match self.message_of(type_) {
            Some(inner) => {
                let mut object = Map::new();
                self.read(inner, wire.bytes().map_err(here)?, &mut object)?;
                Ok(Value::Object(object))
            }
            None => scalar(type_, wire).map_err(here),
        }
    }

    fn message_of(&self, type_: Type) -> Option<&'t Message> {
        match type_ {
            Type::Message(at) => self.table.message(at),
            _ => None,
        }
    }
}

/// Key and value of a map entry. Either may be absent, which means zero.
fn entry<'a>(type_: Type, wire: Wire<'a>) -> Result<(&'a str, Wire<'a>), Fault> {
    let mut key = "";
    let mut value = match type_ {
        Type::Bool | Type::Int32 | Type::Int64 => Wire::Varint(0),
        _ => Wire::Bytes(&[]),
    };
    let mut fields = Reader::new(wire.bytes()?);
    while let Some((number, wire)) = fields.field()? {
        match number {
            1 => key = wire.text()?,
            2 => value = wire,
            _ => {}
        }
    }
    Ok((key, value))
}

/// The JSON of a value that is not an ordinary message. Null: a time that is not set.
fn scalar(type_: Type, wire: Wire<'_>) -> Result<Value, Fault> {
    Ok(match type_ {
        Type::Text => wire.text()?.into(),
        Type::Bool => (wire.number()? != 0).into(),
        Type::Int32 | Type::Int64 => integer(type_, wire.number()?),
        Type::Bytes => STANDARD.encode(wire.bytes()?).into(),
        Type::Time => time(wire.bytes()?, 0)?,
        Type::MicroTime => time(wire.bytes()?, 6)?,
        Type::IntOrString => int_or_string(wire.bytes()?)?,
        Type::Quantity => member(wire.bytes()?)?.text()?.into(),
        Type::Json => match member(wire.bytes()?)?.bytes()? {
            [] => Value::Null,
            json => serde_json::from_slice(json).map_err(|e| Fault::Json(e.to_string()))?,
        },
        Type::Message(_) => return Err(Fault::WireType),
    })
}

fn integer(type_: Type, number: u64) -> Value {
    // Negative numbers are sent as 64 bits even in 32-bit fields; the upper half only repeats the
    // sign.
    match type_ {
        Type::Int32 => (number as i32).into(),
        _ => number.cast_signed().into(),
    }
}

/// The value of a message with a single field.
fn member(bytes: &[u8]) -> Result<Wire<'_>, Fault> {
    let mut only = Wire::Bytes(&[]);
    let mut fields = Reader::new(bytes);
    while let Some((number, wire)) = fields.field()? {
        if number == 1 {
            only = wire;
        }
    }
    Ok(only)
}

fn int_or_string(bytes: &[u8]) -> Result<Value, Fault> {
    let (mut is_text, mut number, mut text) = (false, 0, "");
    let mut fields = Reader::new(bytes);
    while let Some((field, wire)) = fields.field()? {
        match field {
            1 => is_text = wire.number()? != 0,
            2 => number = wire.number()?,
            3 => text = wire.text()?,
            _ => {}
        }
    }
    Ok(if is_text { text.into() } else { integer(Type::Int32, number) })
}

/// A time with this many fractional digits. An empty message is a time that is not set; the epoch is
/// an ordinary time.
fn time(bytes: &[u8], digits: usize) -> Result<Value, Fault> {
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    let (mut seconds, mut nanos) = (0, 0);
    let mut fields = Reader::new(bytes);
    while let Some((number, wire)) = fields.field()? {
        match number {
            1 => seconds = wire.number()?.cast_signed(),
            2 if digits > 0 => nanos = wire.number()? as i32,
            _ => {}
        }
    }
    let at = Timestamp::new(seconds, nanos).map_err(|_| Fault::Time)?;
    let text = if digits == 0 { format!("{at:.0}") } else { format!("{at:.6}") };
    // RFC 3339 has no sign and four-digit years.
    if text.starts_with('-') { Err(Fault::Time) } else { Ok(text.into()) }
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Bool(set) => !set,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Object(members) => members.is_empty(),
        Value::Null | Value::Array(_) => false,
    }
}
