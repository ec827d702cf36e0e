//! How a kubeconfig comes to its place: in one step, from a temporary file, while no other process changes it. It knows
//! nothing of what is in the files; `kubeconfig` does.

use anyhow::{Context as _, ensure};
use bowline_apiserver::yaml;
use serde_json::Value;
use std::fs::{File, Metadata, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, fchown};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long another process may be changing a kubeconfig, and how often this one looks whether it still does.
const PATIENCE: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(20);

/// A file in the folder of the kubeconfig that takes its place when it is complete, or is removed.
pub(super) struct TemporaryFile {
    file: File,
    path: PathBuf,
}

impl TemporaryFile {
    /// A new file that its owner only can read.
    pub(super) fn new(kubeconfig: &Path) -> anyhow::Result<Self> {
        let path = beside(kubeconfig, &format!(".{}.new", std::process::id()));
        // What an ended process with this id left.
        let _ = std::fs::remove_file(&path);
        let mut options = OpenOptions::new();
        let file = options.write(true).create_new(true).mode(0o600).open(&path);
        let file = file.with_context(|| format!("cannot create {}", path.display()))?;
        Ok(Self { file, path })
    }

    /// Writes a kubeconfig into it, and locks it, where the file system has locks.
    pub(super) fn fill(&self, config: &Value) -> anyhow::Result<()> {
        let text = yaml::to_yaml(config).map_err(anyhow::Error::msg)?;
        let _ = self.file.try_lock();
        (&self.file)
            .write_all(text.as_bytes())
            .and_then(|()| self.file.sync_all())
            .with_context(|| format!("cannot write {}", self.path.display()))
    }

    /// Gives it the owner, the group and the mode of another file.
    pub(super) fn resemble(&self, other: &Metadata) -> io::Result<()> {
        let own = self.file.metadata()?;
        if (own.uid(), own.gid()) != (other.uid(), other.gid()) {
            fchown(&self.file, Some(other.uid()), Some(other.gid()))?;
        }
        self.file.set_permissions(other.permissions())
    }

    /// Puts it where no file is. None: there is one now.
    pub(super) fn create(&self, kubeconfig: &Path) -> anyhow::Result<Option<File>> {
        match std::fs::hard_link(&self.path, kubeconfig) {
            Ok(()) => self.file.try_clone().map(Some).map_err(Into::into),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(None),
            // A file system without hard links.
            Err(_) => self.replace(kubeconfig).map(Some),
        }
    }

    /// Puts it in the place of what is there.
    pub(super) fn replace(&self, kubeconfig: &Path) -> anyhow::Result<File> {
        let doing = || format!("cannot write {}", kubeconfig.display());
        std::fs::rename(&self.path, kubeconfig).with_context(doing)?;
        self.file.try_clone().with_context(doing)
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        // It is not there any more if it was renamed.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// The lock by which processes of Bowline that write a kubeconfig in one folder take turns. The kernel releases it when
/// the process ends. Where the file system has no locks, it locks nothing.
pub(super) struct FolderLock(
    #[expect(dead_code, reason = "it is locked while it is open")] Option<File>,
);

impl FolderLock {
    pub(super) fn take(kubeconfig: &Path) -> anyhow::Result<Self> {
        let folder = kubeconfig.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new("."));
        let Ok(file) = File::open(folder) else { return Ok(Self(None)) };
        let taken = patiently(|| match file.try_lock() {
            Ok(()) => Ok(Some(true)),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(_)) => Ok(Some(false)),
        })?;
        let free = || format!("another process has locked the folder {}", folder.display());
        Ok(Self(taken.with_context(free)?.then_some(file)))
    }
}

/// The lock by which kubectl and other clients take turns at a kubeconfig.
pub(super) struct LockFile(PathBuf);

impl LockFile {
    pub(super) fn take(kubeconfig: &Path) -> anyhow::Result<Self> {
        let lock = beside(kubeconfig, ".lock");
        let created =
            patiently(|| match OpenOptions::new().write(true).create_new(true).open(&lock) {
                Ok(_) => Ok(Some(())),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(None),
                Err(error) => Err(error),
            });
        let created = created.with_context(|| format!("cannot create {}", lock.display()))?;
        ensure!(
            created.is_some(),
            "{} exists: another program changes the kubeconfig. If none does, remove that file",
            lock.display()
        );
        Ok(Self(lock))
    }
}

impl Drop for LockFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn beside(kubeconfig: &Path, suffix: &str) -> PathBuf {
    let mut path = kubeconfig.as_os_str().to_owned();
    path.push(suffix);
    PathBuf::from(path)
}

/// Tries until there is a result, for as long as another process may take. None: there was none.
#[expect(
    clippy::disallowed_methods,
    reason = "nothing else waits for this thread: the end or the start of a process"
)]
fn patiently<T>(mut take: impl FnMut() -> io::Result<Option<T>>) -> io::Result<Option<T>> {
    let until = Instant::now() + PATIENCE;
    loop {
        let taken = take()?;
        if taken.is_some() || Instant::now() >= until {
            return Ok(taken);
        }
        std::thread::sleep(POLL);
    }
}
