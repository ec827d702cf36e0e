//! A small Kubernetes API server that fits into one process and one file.
//!
//! ```text
//!  kubectl, kube ──▶ http ──▶ write / read ──▶ store ──▶ redb
//!                     │         │    │                    (or memory)
//!                     │         │    └── kind: schema, builtins, crd  (pure)
//!                     │         └─────── patch, selector, proto      (pure)
//!                     └── discovery, openapi, table                  (pure)
//!  controllers ──▶ (the same API, as ordinary clients)
//! ```
//!
//! For the kinds and verbs it serves it answers as kube-apiserver does; what it does not implement it
//! refuses, and never accepts and ignores. It knows no kind of any product: custom kinds arrive as
//! CustomResourceDefinitions, rewrites of built-in kinds as translation hooks.

pub mod controllers;
pub mod error;
pub mod kind;
pub mod meta;
pub mod names;
pub mod patch;
pub mod proto;
pub mod schema;
pub mod selector;
pub mod store;
