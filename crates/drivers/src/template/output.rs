//! The output file: written beside its place, synced, renamed. A reader sees the old or the new file, complete, even if
//! the process is killed at any time. A mark beside it says that notifiers must still run, so a restart does not forget
//! them; another file beside it has the holders of ports and names. The publisher calls it.

use std::ffi::OsString;
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// All users may read a new file, as with kube2lb; an existing file keeps its mode.
const MODE: u32 = 0o644;

/// The place of a configuration.
#[derive(Clone, Debug)]
pub(super) struct Output {
    /// The file itself, never a link to it.
    path: PathBuf,
}

impl Output {
    /// The place of this file; if it is a link, of its target.
    pub(super) fn new(path: &Path) -> io::Result<Self> {
        let path = match path.canonicalize() {
            Ok(real) => real,
            Err(error) if error.kind() == ErrorKind::NotFound => path.to_owned(),
            Err(error) => return Err(error),
        };
        if path.file_name().is_none() || path.exists() && !path.is_file() {
            let what = "is not a regular file, and only a file can be replaced";
            return Err(io::Error::new(ErrorKind::InvalidInput, what));
        }
        Ok(Self { path })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the file has this content.
    pub(super) fn has(&self, text: &str) -> bool {
        std::fs::read(&self.path).is_ok_and(|now| now == text.as_bytes())
    }

    /// The content of the file. None: it cannot be read.
    pub(super) fn text(&self) -> Option<String> {
        std::fs::read_to_string(&self.path).ok()
    }

    /// Writes the text beside the file. Returns the path.
    pub(super) fn stage(&self, text: &str) -> io::Result<PathBuf> {
        let staged = self.staged();
        remove(&staged)?;
        let now = std::fs::metadata(&self.path).ok();
        let mode = now.as_ref().map_or(MODE, |now| now.permissions().mode());
        let mut file =
            OpenOptions::new().write(true).create_new(true).mode(mode & 0o700).open(&staged)?;
        if let Some(now) = now
            && now.gid() != file.metadata()?.gid()
        {
            // Programs that read the file by its group can read the next one too, if this user may set the group.
            if let Err(error) = std::os::unix::fs::fchown(&file, None, Some(now.gid())) {
                tracing::warn!(output = %self.path.display(), group = now.gid(), %error, "cannot keep its group");
            }
        }
        file.set_permissions(Permissions::from_mode(mode & 0o7777))?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        Ok(staged)
    }

    /// Removes the text beside the file.
    pub(super) fn discard(&self) {
        let _ = remove(&self.staged());
    }

    /// Replaces the file by the text beside it.
    pub(super) fn promote(&self) -> io::Result<()> {
        std::fs::rename(self.staged(), &self.path)?;
        self.sync_folder()
    }

    /// Notes on disk that notifiers must run after the next change.
    pub(super) fn owe(&self) -> io::Result<()> {
        File::create(self.mark())?.sync_all()?;
        self.sync_folder()
    }

    /// Whether notifiers must still run.
    pub(super) fn owes(&self) -> bool {
        self.mark().exists()
    }

    /// Removes the mark: all notifiers have run.
    pub(super) fn settle(&self) -> io::Result<()> {
        remove(&self.mark())
    }

    /// The stored holders. None: there is no such file.
    pub(super) fn holders(&self) -> io::Result<Option<String>> {
        match std::fs::read_to_string(self.holders_file()) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Stores holders beside the file, atomically.
    pub(super) fn keep_holders(&self, text: &str) -> io::Result<()> {
        let (file, new) = (self.holders_file(), self.beside(".new.", ".holders"));
        remove(&new)?;
        let mut staged = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        staged.write_all(text.as_bytes())?;
        staged.sync_all()?;
        std::fs::rename(&new, &file)?;
        self.sync_folder()
    }

    fn holders_file(&self) -> PathBuf {
        self.beside(".", ".holders")
    }

    /// It has the file's extension, since some programs need that.
    fn staged(&self) -> PathBuf {
        self.beside(".new.", "")
    }

    fn mark(&self) -> PathBuf {
        self.beside(".", ".unnotified")
    }

    fn beside(&self, before: &str, after: &str) -> PathBuf {
        let mut name = OsString::from(before);
        name.push(self.path.file_name().unwrap_or_default());
        name.push(after);
        self.path.with_file_name(name)
    }

    fn sync_folder(&self) -> io::Result<()> {
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
    }
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

    #[test]
    fn a_file_is_replaced_whole_with_its_mode_and_a_link_leads_to_it() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("a.cfg"), folder.path().join("link"));
        std::fs::write(&file, "old").unwrap();
        std::fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let output = Output::new(&link).unwrap();
        assert!(output.has("old"));
        output.stage("new").unwrap();
        assert!(output.has("old"));
        output.promote().unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "new");
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(link.is_symlink());
    }

    #[test]
    fn the_file_beside_ends_as_the_file_does_and_has_its_group() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.yaml");
        std::fs::write(&file, "old").unwrap();
        // Only root may set any group.
        let another = std::os::unix::fs::chown(&file, None, Some(12_345)).is_ok();
        let staged = Output::new(&file).unwrap().stage("new").unwrap();
        assert_eq!(staged, folder.path().join(".new.a.yaml"));
        let gid = |file: &Path| std::fs::metadata(file).unwrap().gid();
        assert_eq!((gid(&staged), another && gid(&file) != 12_345), (gid(&file), false));
    }

    #[test]
    fn what_is_left_of_a_kill_does_not_hinder_and_a_debt_outlives_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.cfg");
        let output = Output::new(&file).unwrap();
        output.stage("half").unwrap();
        output.owe().unwrap();
        let again = Output::new(&file).unwrap();
        assert!(again.owes());
        again.stage("whole").unwrap();
        again.promote().unwrap();
        again.settle().unwrap();
        assert!(again.has("whole") && !again.owes());
        let names: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
        assert_eq!(names.len(), 1, "{names:?}");
    }

    #[test]
    fn what_is_no_file_is_never_replaced() {
        assert!(Output::new(Path::new("/dev/null")).is_err());
        assert!(Output::new(Path::new("/")).is_err());
    }
}
