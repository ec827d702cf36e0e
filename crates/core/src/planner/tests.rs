//! What the planner makes of whole worlds of objects.

mod ingresses;
mod make;
mod placements;
mod services;
