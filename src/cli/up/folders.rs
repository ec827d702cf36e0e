//! The folders in which the agents of `bowline up` keep what they serve: one for each LoadBalancer object, by its uid,
//! so that an object that is created again under the same name has its own. The folder of an object that is gone holds
//! private keys, and is removed. `agents` uses it.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::path::PathBuf;

/// The folder that contains the folders of all agents.
#[derive(Clone, Debug)]
pub(super) struct Folders(PathBuf);

impl Folders {
    pub(super) fn in_data(data: &std::path::Path) -> Self {
        Self(data.join("state"))
    }

    /// The folder for the LoadBalancer object with this uid.
    pub(super) fn of(&self, uid: &str) -> PathBuf {
        self.0.join(uid)
    }

    /// Removes the folders of all objects but these. A failure is logged; the next call tries again.
    pub(super) async fn sweep(self, uids: BTreeSet<String>) {
        let path = self.0.clone();
        let swept = tokio::task::spawn_blocking(move || self.remove_others(&uids)).await;
        let swept = swept.unwrap_or_else(|error| Err(io::Error::other(error)));
        if let Err(error) = swept {
            let folder = path.display();
            tracing::warn!(%folder, %error, "cannot remove state of load balancers that are gone");
        }
    }

    fn remove_others(&self, uids: &BTreeSet<String>) -> io::Result<()> {
        let all = match std::fs::read_dir(&self.0) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            all => all?,
        };
        let mut result = Ok(());
        for one in all {
            let one = one?;
            let known = one.file_name().to_str().is_some_and(|name| uids.contains(name));
            if !known && one.file_type()?.is_dir() {
                // A folder that cannot be removed does not keep the others.
                result = std::fs::remove_dir_all(one.path()).and(result);
            }
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn folders_of_objects_that_are_gone_are_removed_and_no_others() {
        let data = tempfile::tempdir().expect("a folder");
        let folders = Folders::in_data(data.path());
        folders.clone().sweep(BTreeSet::new()).await;
        for name in ["u1", "u2", "edge"] {
            std::fs::create_dir_all(folders.of(name)).expect("made");
            std::fs::write(folders.of(name).join("state"), "a key").expect("written");
        }
        folders.clone().sweep(["u2".to_owned()].into()).await;
        let left = ["u1", "u2", "edge"].map(|name| folders.of(name).join("state").exists());
        assert_eq!(left, [false, true, false], "u1 is gone, edge is of a version before");
    }
}
