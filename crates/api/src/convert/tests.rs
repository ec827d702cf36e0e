//! Tests of all readers at once; those of one kind stand beside it.

mod properties;
