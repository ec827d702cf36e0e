//! What the planner makes of whole worlds of objects.

mod make;
mod services;
