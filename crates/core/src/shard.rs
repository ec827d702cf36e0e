//! Packs items into few objects of bounded size: fragments into Plan objects, certificates into
//! Secrets. It decides which object is written when, and writes nothing itself.

use serde::Serialize;
use std::io;

/// How many bytes a value takes as JSON.
pub fn json_size<T: Serialize + ?Sized>(value: &T) -> usize {
    let mut counter = Counter(0);
    // Counting cannot fail, and what is measured here has no map with other keys than strings.
    let written = serde_json::to_writer(&mut counter, value);
    debug_assert!(written.is_ok());
    counter.0
}

struct Counter(usize);

impl io::Write for Counter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
