//! What all proxies have in common that are programs of their own: a folder with the files they read,
//! certificates as they read them, and the search for what they refuse. It knows none of their languages.

pub(crate) mod folder;
pub mod pem;
pub(crate) mod suspects;

pub use suspects::Excluded;
