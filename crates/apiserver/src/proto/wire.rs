//! The protobuf wire format: tags, varints and lengths, read one field at a time from a slice. It
//! copies nothing and allocates nothing. The message decoder calls it and knows the meaning of the
//! fields.

/// The value of one field on the wire.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Wire<'a> {
    /// Integers, booleans.
    Varint(u64),
    /// Strings, bytes, messages, map entries, packed lists.
    Bytes(&'a [u8]),
    /// Fixed-width numbers and groups. No Kubernetes message that is read here has them, so they are
    /// skipped.
    Skipped,
}

/// Why bytes are not protobuf, or not the expected message.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(super) enum Fault {
    /// The bytes end inside a field.
    #[error("the data ends in the middle of a value")]
    Truncated,
    /// A varint that does not fit into 64 bits.
    #[error("a number is longer than 64 bits")]
    Varint,
    /// A tag without a valid field number and wire type.
    #[error("{0} is not a valid tag")]
    Tag(u64),
    /// The end of a group without its begin, or a begin without its end.
    #[error("a group is not closed")]
    Group,
    /// A string that is not UTF-8.
    #[error("a string is not valid UTF-8")]
    Utf8,
    /// Bytes in place of a number, or a number in place of bytes.
    #[error("the wire type is not that of the field")]
    WireType,
    /// A time outside the years that RFC 3339 can express.
    #[error("the time is out of range")]
    Time,
    /// More than `MOST_OBJECTS` objects.
    #[error("there are too many objects in the body")]
    TooMany,
    /// Embedded JSON that cannot be parsed.
    #[error("the embedded JSON is invalid: {0}")]
    Json(String),
}

impl<'a> Wire<'a> {
    /// The number. An error if the value is not a number.
    pub(super) fn number(self) -> Result<u64, Fault> {
        match self {
            Self::Varint(number) => Ok(number),
            _ => Err(Fault::WireType),
        }
    }

    /// The bytes. An error if the value is not bytes.
    pub(super) fn bytes(self) -> Result<&'a [u8], Fault> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            _ => Err(Fault::WireType),
        }
    }

    /// The text. An error if the value is not UTF-8 text.
    pub(super) fn text(self) -> Result<&'a str, Fault> {
        std::str::from_utf8(self.bytes()?).map_err(|_| Fault::Utf8)
    }
}

/// The fields of a message that are not read yet.
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// A reader of the fields in `bytes`.
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The number and value of the next field. None: the end.
    pub(super) fn field(&mut self) -> Result<Option<(u32, Wire<'a>)>, Fault> {
        // A hostile body may nest groups to any depth, so they are counted, without recursion.
        let mut outermost = 0;
        let mut depth = 0u32;
        while !self.rest.is_empty() {
            let (number, kind) = self.tag()?;
            if depth == 0 {
                outermost = number;
            }
            let value = match kind {
                0 => Wire::Varint(self.varint()?),
                1 => self.take(8).map(|_| Wire::Skipped)?,
                2 => {
                    let length = usize::try_from(self.varint()?).map_err(|_| Fault::Truncated)?;
                    Wire::Bytes(self.take(length)?)
                }
                3 => {
                    depth = depth.checked_add(1).ok_or(Fault::Group)?;
                    Wire::Skipped
                }
                4 => {
                    depth = depth.checked_sub(1).ok_or(Fault::Group)?;
                    Wire::Skipped
                }
                _ => self.take(4).map(|_| Wire::Skipped)?,
            };
            if depth == 0 {
                return Ok(Some((outermost, value)));
            }
        }
        if depth == 0 { Ok(None) } else { Err(Fault::Group) }
    }

    /// A bare varint of a packed list. None: the end.
    pub(super) fn packed(&mut self) -> Result<Option<u64>, Fault> {
        if self.rest.is_empty() { Ok(None) } else { self.varint().map(Some) }
    }

    fn tag(&mut self) -> Result<(u32, u64), Fault> {
        let tag = self.varint()?;
        match (u32::try_from(tag >> 3), tag & 7) {
            (Ok(number @ 1..=0x1fff_ffff), kind @ 0..=5) => Ok((number, kind)),
            _ => Err(Fault::Tag(tag)),
        }
    }

    fn varint(&mut self) -> Result<u64, Fault> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.rest.split_first().ok_or(Fault::Truncated)?;
            self.rest = rest;
            if shift == 63 && byte > 1 {
                return Err(Fault::Varint);
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(Fault::Varint)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Fault> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(Fault::Truncated)?;
        self.rest = rest;
        Ok(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(bytes: &[u8]) -> Result<Vec<(u32, Wire<'_>)>, Fault> {
        let mut reader = Reader::new(bytes);
        std::iter::from_fn(|| reader.field().transpose()).collect()
    }

    #[test]
    fn fields_of_every_wire_type_are_read_or_passed_over() {
        let bytes = [
            &[0x08, 0x96, 0x01][..],
            &[0x12, 0x02, b'h', b'i'],
            &[0x19, 1, 2, 3, 4, 5, 6, 7, 8],
            &[0x25, 1, 2, 3, 4],
            &[0x2b, 0x33, 0x08, 0x01, 0x34, 0x2c],
        ]
        .concat();
        assert_eq!(
            fields(&bytes),
            Ok(vec![
                (1, Wire::Varint(150)),
                (2, Wire::Bytes(b"hi")),
                (3, Wire::Skipped),
                (4, Wire::Skipped),
                (5, Wire::Skipped),
            ])
        );
    }

    #[test]
    fn the_largest_varint_is_read_and_a_larger_one_refused() {
        let mut bytes = vec![0x08];
        bytes.extend([0xff; 9]);
        bytes.push(0x01);
        assert_eq!(fields(&bytes), Ok(vec![(1, Wire::Varint(u64::MAX))]));
        bytes[10] = 0x02;
        assert_eq!(fields(&bytes), Err(Fault::Varint));
        bytes[10] = 0x81;
        bytes.push(0x00);
        assert_eq!(fields(&bytes), Err(Fault::Varint));
    }

    #[test]
    fn broken_framing_is_named() {
        assert_eq!(fields(&[0x08]), Err(Fault::Truncated));
        assert_eq!(fields(&[0x12, 0x05, b'x']), Err(Fault::Truncated));
        assert_eq!(fields(&[0x12, 0xff, 0xff, 0xff, 0xff, 0x7f]), Err(Fault::Truncated));
        assert_eq!(fields(&[0x00]), Err(Fault::Tag(0)));
        assert_eq!(fields(&[0x0f]), Err(Fault::Tag(15)));
        assert_eq!(fields(&[0x0b]), Err(Fault::Group));
        assert_eq!(fields(&[0x0c]), Err(Fault::Group));
    }

    #[test]
    fn a_million_open_groups_do_not_exhaust_the_stack() {
        assert_eq!(fields(&vec![0x0b; 1_000_000]), Err(Fault::Group));
    }
}
