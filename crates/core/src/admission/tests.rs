//! Tests of the machine as its callers use it.

pub(super) mod make;
mod properties;
mod seats;
