//! Tests of the machine as its callers use it.

mod causes;
mod cloud;
mod cost;
mod late;
mod leader;
pub(super) mod make;
mod moves;
mod names;
mod order;
mod places;
mod pools;
mod properties;
mod record;
mod sharing;
mod steps;
mod uses;
mod words;
