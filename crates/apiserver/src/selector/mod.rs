//! Label and field selectors: parsed once from the query string, then asked of many objects. They hold
//! no object and know no kind; which fields a kind offers is told to them. Called by list, watch and
//! deletecollection, and by the small controllers.

mod field;
mod label;
mod lexer;

pub use field::{FieldRequirement, FieldSelector};
pub use label::{LabelRequirement, LabelSelector, Operator};
