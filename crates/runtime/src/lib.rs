//! Wires Bowline's parts together. Today that is the embedded cluster: the API server with Bowline's own
//! kinds, its translations of older spellings, and the manifests that a user gave. Rules live in
//! `bowline-api` and below; here things are started, asked and stopped.

pub mod apply;
pub mod embedded;
pub mod manifests;
