//! Finds the end of a chunked body. It follows the framing byte by byte and refuses nothing: pingora
//! reads the same bytes and refuses malformed ones. [`super::stream`] calls it, so that a body never
//! reads into the next request.

/// The position in a chunked body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Chunks {
    /// In a line with a chunk size.
    Size { size: u64, extension: bool },
    /// In the data of a chunk and the line end after it.
    Data { left: u64 },
    /// In the lines after the last chunk.
    Trailer { empty: bool },
    /// At the end.
    Done,
}

impl Default for Chunks {
    fn default() -> Self {
        Self::Size { size: 0, extension: false }
    }
}

impl Chunks {
    /// Whether the body is over.
    pub(super) fn is_done(self) -> bool {
        self == Self::Done
    }

    /// Reads these bytes; returns how many of them belong to the body.
    pub(super) fn pass(&mut self, bytes: &[u8]) -> usize {
        let mut at = 0;
        while at < bytes.len() && !self.is_done() {
            if let Self::Data { left } = self {
                let here = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len() - at);
                at += here;
                *left -= here as u64;
                if *left == 0 {
                    *self = Self::default();
                }
                continue;
            }
            *self = self.after(bytes[at]);
            at += 1;
        }
        at
    }

    fn after(self, byte: u8) -> Self {
        match (self, byte) {
            (Self::Size { size: 0, .. }, b'\n') => Self::Trailer { empty: true },
            // The data is followed by a line end.
            (Self::Size { size, .. }, b'\n') => Self::Data { left: size.saturating_add(2) },
            (Self::Size { size, extension: false }, _) => match char::from(byte).to_digit(16) {
                Some(digit) => Self::Size {
                    size: size.saturating_mul(16).saturating_add(u64::from(digit)),
                    extension: false,
                },
                None => Self::Size { size, extension: true },
            },
            (Self::Trailer { empty: true }, b'\n') => Self::Done,
            (Self::Trailer { .. }, b'\n') => Self::Trailer { empty: true },
            (Self::Trailer { empty }, b'\r') => Self::Trailer { empty },
            (Self::Trailer { .. }, _) => Self::Trailer { empty: false },
            (same, _) => same,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn passed(bytes: &[u8]) -> (usize, bool) {
        let mut chunks = Chunks::default();
        let passed = chunks.pass(bytes);
        (passed, chunks.is_done())
    }

    #[test]
    fn a_body_is_over_after_its_last_chunk_and_trailers() {
        for (body, next) in [
            ("0\r\n\r\n", ""),
            ("5\r\nhello\r\n0\r\n\r\n", "GET / HTTP/1.1"),
            ("a;name=\"1\"\r\n\r\n\r\n0\r\n\r\n\r\n000\r\n\r\n", "0\r\n\r\n"),
            ("1\r\nx\r\n0\r\nTrailer: 1\r\nOther: 2\r\n\r\n", "\r\n"),
        ] {
            assert_eq!(passed(format!("{body}{next}").as_bytes()), (body.len(), true), "{body:?}");
        }
        for part in ["", "5", "5\r\nhel", "0\r\n", "0\r\nTrailer: 1\r\n"] {
            assert_eq!(passed(part.as_bytes()), (part.len(), false), "{part:?}");
        }
    }

    proptest! {
        #[test]
        fn it_ends_at_the_same_place_however_the_bytes_are_cut(
            sizes in proptest::collection::vec(1usize..40, 0..5),
            cuts in proptest::collection::vec(1usize..9, 1..40),
        ) {
            let mut body = String::new();
            for size in sizes {
                body.push_str(&format!("{size:x}\r\n{}\r\n", "0".repeat(size)));
            }
            body.push_str("0\r\n\r\n");
            let bytes = format!("{body}GET").into_bytes();
            let (mut chunks, mut total, mut rest) = (Chunks::default(), 0, &bytes[..]);
            for cut in cuts.iter().cycle() {
                let (piece, later) = rest.split_at((*cut).min(rest.len()));
                total += chunks.pass(piece);
                rest = later;
                if rest.is_empty() {
                    break;
                }
            }
            prop_assert_eq!((total, chunks), (body.len(), Chunks::Done));
        }

        #[test]
        fn no_bytes_make_it_fail(bytes in "[0-9a-fA-F\r\n;x]{0,60}") {
            let mut chunks = Chunks::default();
            prop_assert!(chunks.pass(bytes.as_bytes()) <= bytes.len());
        }
    }
}
