//! The verbs of the Kubernetes API over the store. Each takes a kind and decoded values, and returns a
//! value or an [`crate::error::ApiError`]. They know nothing of HTTP; rules of a kind are in its
//! [`crate::kind::Kind`].

mod admit;
mod create;
mod delete;
mod establish;
mod list;
mod review;
mod scale;
mod sweep;
mod update;
mod watch;

pub use create::Input;
pub use delete::{DeleteOptions, Deleted, Propagation};
pub(crate) use establish::{Definitions, Establishing};
pub use list::{ListOptions, Listed};
pub use review::{Identity, Review};
pub use scale::Scaled;
pub use update::Part;
pub use watch::{Notice, WatchOptions, WatchStream};

use bytes::Bytes;

/// A completed write.
#[derive(Clone, Debug, PartialEq)]
pub struct Written {
    /// The canonical bytes of the object in the stored version.
    pub bytes: Bytes,
    /// Texts for `Warning` headers.
    pub warnings: Vec<String>,
}
