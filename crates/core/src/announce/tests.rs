//! Tests of the machine: what a node announces, and that it follows from the objects alone.

mod doubt;
mod make;
mod properties;
mod routes;
mod served;
mod unreadable;
