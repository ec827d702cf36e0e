//! Folders in memory: their size, and whether they are deleted with the Pod. The agent and the memory limit use
//! it.

use nix::sys::statfs::{TMPFS_MAGIC, statfs};
use std::path::Path;

/// Whether a folder is deleted with the Pod of this process: an emptyDir in memory, as the chart and classes use.
/// Outside a cluster a folder in memory outlives a restart of the process.
pub(super) fn ends_with_pod(folder: &Path) -> bool {
    std::env::var_os("KUBERNETES_SERVICE_HOST").is_some() && size(folder).is_some()
}

/// The size of the file system of a folder, which need not exist yet; None if it is not in memory.
pub(super) fn size(folder: &Path) -> Option<u64> {
    let on = folder.ancestors().find_map(|folder| statfs(folder).ok())?;
    let blocks = match on.blocks() {
        // 0 means no limit.
        0 => u64::MAX,
        blocks => blocks,
    };
    let size = u64::try_from(on.block_size()).unwrap_or(1);
    (on.filesystem_type() == TMPFS_MAGIC).then(|| blocks.saturating_mul(size))
}
