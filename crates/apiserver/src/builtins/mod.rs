//! The kinds that every Kubernetes API has: their names, OpenAPI definitions and rules. Everything here
//! is a function of values; the store, the clock and the network are elsewhere.

pub mod definitions;
mod fields;
mod ip;
mod merge_keys;
pub mod metadata;
pub mod service;
