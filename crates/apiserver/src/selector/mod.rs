//! Label and field selectors: parsed once from the query string, then matched with many objects. They
//! hold no object and know no kind; the caller says which fields a kind supports. List, watch,
//! deletecollection and the small controllers call them.

mod field;
mod label;
mod lexer;

pub use field::{FieldRequirement, FieldSelector};
pub use label::{LabelRequirement, LabelSelector, Operator};
