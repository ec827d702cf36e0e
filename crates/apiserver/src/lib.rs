//! A small Kubernetes API server that fits into one process and one file.
//!
//! ```text
//!  kubectl, kube ──▶ http ──▶ verbs ──▶ store ──▶ redb
//!                     │         │                 (or memory)
//!                     │         ├── kind: schema, builtins, crd      (pure)
//!                     │         └── decode, patch, selector, proto   (pure)
//!                     └── discovery, openapi, table                  (pure)
//!  controllers ──▶ (the same API, as ordinary clients)
//! ```
//!
//! For the kinds and verbs it serves it answers as kube-apiserver does; what it does not implement it
//! refuses, and never accepts and ignores. It knows no kind of any product: custom kinds arrive as
//! CustomResourceDefinitions, rewrites of built-in kinds as a translation hook.
//!
//! ```
//! # tokio::runtime::Runtime::new()?.block_on(async {
//! use bowline_apiserver::server::{Options, Server};
//! use bowline_apiserver::store::{Limits, Store};
//! use k8s_openapi::api::core::v1::Namespace;
//! use std::sync::Arc;
//!
//! let server = Arc::new(Server::new(Store::memory(Limits::default()), Options::default())?);
//! server.bootstrap().await?; // the namespaces that every cluster has
//! let client = server.client(); // no socket, no TLS, no port
//! let namespaces = kube::Api::<Namespace>::all(client).list(&Default::default()).await?;
//! assert_eq!(namespaces.items.len(), 4);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod bootstrap;
pub mod builtins;
pub mod cluster;
pub mod controllers;
pub mod crd;
pub mod decode;
pub mod discovery;
pub mod error;
pub mod http;
pub mod jsonpath;
pub mod kind;
pub mod meta;
pub mod names;
pub mod openapi;
pub mod patch;
pub mod pki;
pub mod proto;
pub mod registry;
pub mod schema;
pub mod selector;
pub mod server;
pub mod store;
pub mod table;
pub mod verbs;
pub mod yaml;

/// The Kubernetes version whose kinds and schemas are served.
pub const VERSION: &str = "v1.37.0";
