//! What the planner makes of whole worlds of objects.

mod admitted;
mod claims;
mod cost;
mod holders;
mod ingresses;
mod leaders;
mod make;
mod moves;
mod placements;
mod properties;
mod recorded;
mod services;
mod world;
