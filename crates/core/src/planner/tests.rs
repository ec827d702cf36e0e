//! Tests of the planner with whole worlds of objects.

mod admitted;
mod cost;
mod holders;
mod ingresses;
mod leaders;
mod make;
mod moves;
mod placements;
mod properties;
mod recorded;
mod requests;
mod services;
mod world;
