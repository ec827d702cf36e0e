//! An object that may ask for addresses, with its request and what was decided for it. Data only:
//! [`super::machine`] owns it, [`super::settle`] and [`super::publish`] fill it in.

use super::request::{AddressRequest, Labels};
use super::verdict::{Decision, Verdict};
use super::waiters::Wait;
use crate::objects::Family;
use crate::relist::Epoch;
use std::net::IpAddr;
use std::sync::Arc;

/// An object that may ask for addresses.
#[derive(Debug)]
pub(super) struct Requester {
    pub(super) request: Arc<AddressRequest>,
    /// The last list that delivered it.
    pub(super) epoch: Epoch,
    /// The addresses that it should have, by family.
    pub(super) targets: [Option<IpAddr>; 2],
    /// The families it wants, the first one first.
    pub(super) families: &'static [Family],
    /// Why it does not have all that it asks for.
    pub(super) problem: Option<Verdict>,
    /// Why it lacks an address that it can do without.
    pub(super) note: Option<String>,
    pub(super) waits: Vec<Wait>,
    /// The traffic policy and selector with which it was last allowed to share.
    pub(super) accepted: Option<(bool, Labels)>,
    pub(super) published: Option<Arc<Decision>>,
    /// Addresses of earlier decisions that its status may still come to show.
    pub(super) unacked: Vec<IpAddr>,
    /// Ignored uses that it was last told of; sorted.
    pub(super) ignored: Vec<IpAddr>,
}

impl Requester {
    pub(super) fn new(request: Arc<AddressRequest>, epoch: Epoch) -> Self {
        Self {
            request,
            epoch,
            targets: [None; 2],
            families: &[],
            problem: None,
            note: None,
            waits: Vec::new(),
            accepted: None,
            published: None,
            unacked: Vec::new(),
            ignored: Vec::new(),
        }
    }

    pub(super) fn uid(&self) -> &Arc<str> {
        &self.request.holder.uid
    }

    /// Whether its status shows an address, or may come to show it.
    pub(super) fn shows(&self, address: IpAddr) -> bool {
        self.request.status.contains(&address)
            || self.unacked.contains(&address)
            || self.published.as_ref().is_some_and(|decision| decision.shows(address))
    }
}
