//! HAProxy's standard error goes into a file of its folder, which works also while no agent runs to read it. The
//! HAProxy driver copies it to the agent's standard error, and finds in it why a load has failed.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// The file is emptied once this much has been copied.
const MOST: u64 = 1 << 20;

/// The file, and how much of it was copied.
#[derive(Debug)]
pub(super) struct Log {
    path: PathBuf,
    passed: u64,
    /// Where the output of the current load begins.
    load: u64,
}

impl Log {
    /// The file's present content belongs to an earlier agent.
    pub(super) fn new(folder: &Path) -> Self {
        let path = folder.join("stderr.log");
        let passed = fs::metadata(&path).map_or(0, |it| it.len());
        Self { path, passed, load: passed }
    }

    /// The standard error for HAProxy. If the file cannot be opened, our own.
    pub(super) fn stdio(&self) -> Stdio {
        let file = File::options().append(true).create(true).mode(0o600).open(&self.path);
        file.map_or_else(|_| Stdio::inherit(), Stdio::from)
    }

    /// Copies new output.
    pub(super) fn pass_on(&mut self) {
        let Ok(new) = self.since(self.passed) else { return };
        // A failed copy is no reason to stop.
        let _ = io::stderr().write_all(&new);
        self.passed += new.len() as u64;
        let emptied = || File::options().write(true).open(&self.path)?.set_len(0);
        if self.passed > MOST && emptied().is_ok() {
            (self.passed, self.load) = (0, 0);
        }
    }

    /// Notes that HAProxy is about to load files.
    pub(super) fn begin(&mut self) {
        self.pass_on();
        self.load = self.passed;
    }

    /// The output since then.
    pub(super) fn of_load(&self) -> String {
        String::from_utf8_lossy(&self.since(self.load).unwrap_or_default()).into_owned()
    }

    fn since(&self, start: u64) -> io::Result<Vec<u8>> {
        let mut file = File::open(&self.path)?;
        file.seek(SeekFrom::Start(start))?;
        let mut bytes = Vec::new();
        file.take(MOST).read_to_end(&mut bytes)?;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_printed_since_a_load_began_is_told_and_the_file_stays_small() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("stderr.log");
        let print = |text: &str| {
            let mut file = File::options().append(true).create(true).open(&path).expect("a file");
            file.write_all(text.as_bytes()).expect("written");
        };
        print("of before\n");
        let mut log = Log::new(folder.path());
        print("earlier\n");
        log.begin();
        print("now\n");
        assert_eq!(log.of_load(), "now\n");
        log.begin();
        assert_eq!(log.of_load(), "");
        fs::write(&path, vec![b'\n'; usize::try_from(MOST).expect("small") + 64]).expect("written");
        log.pass_on();
        assert_eq!(fs::metadata(&path).expect("a file").len(), 0);
        print("after\n");
        assert_eq!(log.of_load(), "after\n");
    }
}
