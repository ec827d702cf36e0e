//! The certificates of a plan as files, for programs that read files: chain and key in one file, readable by its owner
//! only, in a folder that belongs to one agent. A file is named by its hash, so it never changes, and another
//! certificate has another path in the configuration. The driver writes a file before a configuration names it, and
//! removes it after all notifiers have run for a configuration without it.

use crate::desired::Desired;
use crate::program::pem;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const ENDING: &str = ".pem";
/// The file of the lock that the agent holds while it lives.
const LOCK: &str = ".lock";
/// The name of a file while it is written.
const STAGED: &str = ".new";
const MODE: u32 = 0o600;

/// A folder with certificates.
#[derive(Debug)]
pub struct Certificates {
    folder: PathBuf,
    /// The same as text, for templates.
    text: Arc<str>,
    _lock: File,
}

/// The content of the files by hash, or why a certificate cannot be a file. Never printed.
pub(super) type Bundles = BTreeMap<Arc<str>, Result<String, &'static str>>;

impl Certificates {
    /// Opens the folder, and creates it if it is missing. No other agent may use it, since each removes the files that
    /// it does not use itself.
    pub fn open(folder: &Path) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let folder = folder.canonicalize()?;
        let no_text = || io::Error::new(ErrorKind::InvalidInput, "its path is not UTF-8");
        let text = folder.to_str().ok_or_else(no_text)?.into();
        let lock =
            OpenOptions::new().create(true).append(true).mode(MODE).open(folder.join(LOCK))?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { folder, text, _lock: lock }),
            Err(std::fs::TryLockError::WouldBlock) => {
                let why = "another agent uses it, and each agent removes files that it does not use: give each \
                    agent a folder of its own";
                Err(io::Error::new(ErrorKind::ResourceBusy, why))
            }
            Err(std::fs::TryLockError::Error(error)) => Err(error),
        }
    }

    /// The path of the folder.
    pub(super) fn folder(&self) -> &Arc<str> {
        &self.text
    }

    /// The content of the files: only the PEM blocks of a Secret, and only under a hash that is a valid file name.
    pub(super) fn bundles(desired: &Desired) -> Bundles {
        let bundle = |(hash, certificate): (&Arc<str>, &Arc<_>)| {
            let certificate: &bowline_core::update::Certificate = certificate;
            let text = if is_hash(hash) {
                pem::bundle(&certificate.chain, &certificate.key)
            } else {
                Err("its hash is not valid")
            };
            (hash.clone(), text)
        };
        desired.certificates.iter().map(bundle).collect()
    }

    /// Writes the missing files. Each is complete, or not there at all.
    pub(super) fn write(&self, used: &BTreeSet<Arc<str>>, bundles: &Bundles) -> io::Result<()> {
        let mut wrote = false;
        for hash in used {
            let Some(Ok(text)) = bundles.get(hash) else { continue };
            let file = self.folder.join(format!("{hash}{ENDING}"));
            let is_private = |file: &Path| {
                let mode = std::fs::metadata(file).map(|file| file.permissions().mode() & 0o7777);
                mode.is_ok_and(|mode| mode == MODE)
            };
            if std::fs::read(&file).is_ok_and(|now| now == text.as_bytes()) && is_private(&file) {
                continue;
            }
            let staged = self.folder.join(STAGED);
            remove(&staged)?;
            let mut new =
                OpenOptions::new().write(true).create_new(true).mode(MODE).open(&staged)?;
            new.write_all(text.as_bytes())?;
            new.sync_all()?;
            std::fs::rename(&staged, &file)?;
            wrote = true;
        }
        if wrote {
            File::open(&self.folder)?.sync_all()?;
        }
        Ok(())
    }

    /// Removes certificate files that are not used. Other files stay.
    pub(super) fn tidy(&self, used: &BTreeSet<Arc<str>>) -> io::Result<()> {
        for entry in std::fs::read_dir(&self.folder)? {
            let name = entry?.file_name();
            let hash = name.to_str().and_then(|name| name.strip_suffix(ENDING));
            if hash.is_some_and(|hash| is_hash(hash) && !used.contains(hash)) {
                remove(&self.folder.join(&name))?;
            }
        }
        Ok(())
    }
}

/// The file of a certificate in a folder.
pub(super) fn file(folder: &str, hash: &str) -> String {
    format!("{}/{hash}{ENDING}", folder.trim_end_matches('/'))
}

fn is_hash(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASH: &str = "00000000000000000000000000000000000000000000000000000000000000aa";
    const OTHER: &str = "00000000000000000000000000000000000000000000000000000000000000bb";

    fn used(hashes: &[&str]) -> BTreeSet<Arc<str>> {
        hashes.iter().map(|&hash| hash.into()).collect()
    }

    fn bundles(of: &[(&str, &str)]) -> Bundles {
        of.iter().map(|&(hash, text)| (hash.into(), Ok(text.to_owned()))).collect()
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(folder).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.filter(|name| name != LOCK).collect();
        names.sort();
        names
    }

    #[test]
    fn files_are_for_their_owner_and_go_when_they_are_unused_but_others_stay() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("certs");
        let certificates = Certificates::open(&folder).unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&folder), 0o700);
        // A file left by a kill, a file of the administrator, and a certificate that others can read.
        std::fs::write(folder.join(STAGED), "half").unwrap();
        std::fs::write(folder.join("mine.pem"), "mine").unwrap();
        let file = folder.join(format!("{HASH}.pem"));
        std::fs::write(&file, "a").unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
        let both = bundles(&[(HASH, "a"), (OTHER, "b")]);
        certificates.write(&used(&[HASH, OTHER]), &both).unwrap();
        let (first, second) = (format!("{HASH}.pem"), format!("{OTHER}.pem"));
        assert_eq!(names(&folder), [first.as_str(), &second, "mine.pem"]);
        assert_eq!((mode(&file), std::fs::read_to_string(&file).unwrap()), (0o600, "a".to_owned()));
        certificates.tidy(&used(&[OTHER])).unwrap();
        assert_eq!(names(&folder), [second.as_str(), "mine.pem"]);
    }

    #[test]
    fn one_folder_is_one_agents() {
        let folder = tempfile::tempdir().unwrap();
        let first = Certificates::open(folder.path()).unwrap();
        let error = Certificates::open(folder.path()).unwrap_err().to_string();
        assert!(error.starts_with("another agent uses it"), "{error}");
        drop(first);
        Certificates::open(folder.path()).unwrap();
    }

    #[test]
    fn a_hash_that_would_be_a_path_is_no_file() {
        for bad in ["", "../../etc/x", "AA", &HASH.to_uppercase(), &format!("{HASH}/")] {
            assert!(!is_hash(bad), "{bad}");
        }
        assert!(is_hash(HASH));
    }
}
