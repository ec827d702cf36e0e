//! Plan objects that the agent refuses as a whole, since their load balancer needs another proxy than the agent runs.
//! The agent serves nothing of them. The resolver asks for the reason.

use crate::relist::{Epoch, Relist};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The refused Plans, by name, each with the reason.
#[derive(Debug, Default)]
pub(super) struct RefusedShards(BTreeMap<Arc<str>, (Epoch, Box<str>)>);

impl RefusedShards {
    /// A Plan is refused.
    pub(super) fn refuse(&mut self, name: Arc<str>, why: Box<str>, epoch: Epoch) {
        self.0.insert(name, (epoch, why));
    }

    /// A Plan is accepted or deleted.
    pub(super) fn forget(&mut self, name: &str) {
        self.0.remove(name);
    }

    /// Forgets Plans that the last list did not deliver.
    pub(super) fn sweep(&mut self, relist: Relist) {
        self.0.retain(|_, (epoch, _)| !relist.has_missed(*epoch));
    }

    /// Why the first refused Plan is refused. None: no Plan is refused.
    pub(super) fn why(&self) -> Option<&str> {
        self.0.values().next().map(|(_, why)| &**why)
    }
}
