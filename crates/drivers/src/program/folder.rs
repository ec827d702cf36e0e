//! The files of a program. Each set of files has a folder of its own, written and synced in full; the link `current`
//! leads to one set and is replaced atomically. So a reader sees one set, never parts of two.
//! [`Common`](super::common::Common) calls it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, symlink};
use std::path::{Path, PathBuf};

/// The folder with the sets of files.
#[derive(Debug)]
pub(crate) struct Folder {
    root: PathBuf,
    /// The name of the main file.
    main: &'static str,
    next: u64,
}

const PREFIX: &str = "set-";

impl Folder {
    /// Opens the folder, and creates it if it is missing. Removes sets other than the current one.
    pub(crate) fn open(root: &Path, main: &'static str) -> io::Result<Self> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(root)?;
        let current = fs::read_link(root.join("current")).ok();
        let mut next = 1;
        for entry in fs::read_dir(root)? {
            let entry = entry?;
            let name = entry.file_name();
            let number = name.to_str().and_then(|it| it.strip_prefix(PREFIX)?.parse::<u64>().ok());
            let Some(number) = number else { continue };
            next = next.max(number + 1);
            if current.as_deref() != Some(Path::new(&name)) {
                fs::remove_dir_all(entry.path())?;
            }
        }
        Ok(Self { root: root.to_owned(), main, next })
    }

    /// The main file of the current set.
    pub(crate) fn config(&self) -> PathBuf {
        self.root.join("current").join(self.main)
    }

    /// Writes a new set of files, not current yet, and returns its folder.
    pub(crate) fn write(&mut self, files: &BTreeMap<String, Vec<u8>>) -> io::Result<PathBuf> {
        let set = self.root.join(format!("{PREFIX}{}", self.next));
        self.next += 1;
        let written = self.write_to(&set, files);
        if written.is_err() {
            // The disk may be full: a partial set would stay in the way.
            let _ = fs::remove_dir_all(&set);
        }
        written.map(|()| set)
    }

    fn write_to(&self, set: &Path, files: &BTreeMap<String, Vec<u8>>) -> io::Result<()> {
        let mut folders = vec![set.to_owned()];
        fs::DirBuilder::new().mode(0o700).create(set)?;
        for (name, bytes) in files {
            let path = set.join(name);
            if let Some(folder) = path.parent().filter(|it| !it.exists()) {
                fs::DirBuilder::new().mode(0o700).create(folder)?;
                folders.push(folder.to_owned());
            }
            // A certificate file never changes under its name, so a hard link is enough.
            let old = self.root.join("current").join(name);
            if name.ends_with(".pem") && fs::hard_link(&old, &path).is_ok() {
                continue;
            }
            let mut file = File::options().write(true).create_new(true).mode(0o600).open(&path)?;
            file.write_all(bytes)?;
            file.sync_all()?;
        }
        folders.iter().try_for_each(|folder| File::open(folder)?.sync_all())
    }

    /// Makes this set the current one. If that fails, removes the set.
    pub(crate) fn install(&self, set: &Path) -> io::Result<()> {
        let before = fs::read_link(self.root.join("current")).ok();
        if let Err(error) = self.lead_to(set) {
            let now = fs::read_link(self.root.join("current")).ok();
            if now.is_none_or(|now| Some(now.as_os_str()) != set.file_name()) {
                self.discard(set);
            }
            return Err(error);
        }
        if let Some(before) = before.filter(|before| Some(before.as_os_str()) != set.file_name()) {
            // A process that is being loaded may still read it. What cannot be removed now goes at the next start.
            let _ = fs::remove_dir_all(self.root.join(before));
        }
        Ok(())
    }

    fn lead_to(&self, set: &Path) -> io::Result<()> {
        let link = self.root.join("next");
        match fs::remove_file(&link) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => symlink(set.file_name().unwrap_or_default(), &link)?,
        }
        fs::rename(&link, self.root.join("current"))?;
        File::open(&self.root)?.sync_all()
    }

    /// Removes a set that was only checked.
    pub(crate) fn discard(&self, set: &Path) {
        let _ = fs::remove_dir_all(set);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(config: &str) -> BTreeMap<String, Vec<u8>> {
        let pem = ("certs/a.pem".to_owned(), b"pem".to_vec());
        BTreeMap::from([("haproxy.cfg".to_owned(), config.as_bytes().to_vec()), pem])
    }

    #[test]
    fn a_set_is_in_force_when_it_is_installed_and_whole() {
        let root = tempfile::tempdir().expect("a folder");
        let mut folder = Folder::open(root.path(), "haproxy.cfg").expect("open");
        let first = folder.write(&files("one")).expect("written");
        assert!(!folder.config().exists());
        folder.install(&first).expect("installed");
        assert_eq!(fs::read_to_string(folder.config()).expect("read"), "one");

        // Killed between write and install: the old set stays current, and the new one is removed.
        let second = folder.write(&files("two")).expect("written");
        let mut folder = Folder::open(root.path(), "haproxy.cfg").expect("open");
        assert_eq!(fs::read_to_string(folder.config()).expect("read"), "one");
        assert!(!second.exists());

        let third = folder.write(&files("three")).expect("written");
        folder.install(&third).expect("installed");
        assert_eq!(fs::read_to_string(folder.config()).expect("read"), "three");
        assert!(!first.exists());
    }
}
