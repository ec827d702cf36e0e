//! Where the embedded server differs from a real one on purpose, each with its reason. Differences in
//! single answers stand in the transcripts, beside the answer; these are the ones that a test of
//! behaviour has to know.

use bowline_testing::{Cluster, Flavour};

/// Part of the Kubernetes API that a real server has and the embedded one refuses by name.
pub(crate) struct Refused {
    /// HTTP status of the refusal.
    pub(crate) code: u16,
    /// Why it is not there.
    pub(crate) reason: &'static str,
}

/// Field ownership needs a merge by schema over managedFields; nothing of Bowline needs it yet.
pub(crate) const SERVER_SIDE_APPLY: Refused =
    Refused { code: 415, reason: "server-side apply comes later; until then it is no patch type" };

/// A write that is checked and thrown away must pass the same road as a real one; not built yet.
pub(crate) const DRY_RUN: Refused =
    Refused { code: 501, reason: "dry-run comes later; it must never write by mistake" };

/// Waiting for dependents before the owner goes needs blockOwnerDeletion in the collector.
pub(crate) const FOREGROUND_DELETION: Refused =
    Refused { code: 501, reason: "foreground deletion comes later" };

impl Refused {
    /// Whether this cluster has it.
    pub(crate) fn applies(&self, cluster: &Cluster) -> bool {
        cluster.flavour() == Flavour::Embedded
    }

    /// Asserts the status: the refusal on the embedded server, success on a real one.
    #[track_caller]
    pub(crate) fn check(&self, cluster: &Cluster, status: u16) {
        if self.applies(cluster) {
            assert_eq!(status, self.code, "refused by name: {}", self.reason);
        } else {
            assert!((200..300).contains(&status), "a real server does it: {status}");
        }
    }
}
