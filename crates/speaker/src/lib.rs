//! Announces addresses to the network. The machines here decide without I/O, clock or randomness; the shells beside
//! them own the sockets. This crate knows no Kubernetes.

pub mod bfd;
pub mod bgp;
#[cfg(test)]
mod cases;
mod datagram;
pub mod dice;
pub mod l2;
mod netlink;
pub mod served;
