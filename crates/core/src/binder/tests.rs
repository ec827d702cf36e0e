//! Tests of the machine as its callers use it.

mod binding;
mod cloud;
mod explain;
pub(super) mod make;
mod matching;
mod properties;
mod provisioning;
mod reclaiming;
mod rest;
mod steps;
mod waiting;
