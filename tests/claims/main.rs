//! LoadBalancerClaims with the real binary on an API of the test's own: who is bound to what, who waits and
//! why, what holds what, and what becomes of what is let go. Only what the API shows counts as proof.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    reason = "tests fail by panicking"
)]

mod bad;
mod binding;
mod killed;
mod leaders;
mod letting_go;
mod moving;
mod on_up;
mod proxies;
mod seats;
mod stage;
mod storm;
mod tenants;
mod traffic;
mod tutorial;
