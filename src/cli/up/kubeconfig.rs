//! The kubeconfig that `bowline up` writes: a file of its own, or a context in one that has others (`--merge-kubeconfig`).
//! It replaces and removes nothing but what this very server wrote; `entries` decides. `up` calls it before it starts
//! anything, when the API is there, and at the end.

mod entries;

use anyhow::{Context as _, bail};
use bowline_apiserver::yaml;
use entries::Found;
use serde_json::Value;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long another program may be changing a kubeconfig that is shared.
const PATIENCE: Duration = Duration::from_secs(5);

/// Where the kubeconfig goes.
#[derive(Clone, Debug)]
pub(super) struct Kubeconfig {
    /// The file.
    pub(super) path: PathBuf,
    /// Whether it keeps what else is in it.
    pub(super) merges: bool,
    /// The folder of the data. None: in memory.
    data: Option<PathBuf>,
}

/// A kubeconfig that was written.
pub(super) struct Written {
    file: Kubeconfig,
    authority: String,
    /// Its lock says that the process that wrote it runs. None: the file is shared.
    _held: Option<File>,
}

impl Kubeconfig {
    /// The file that these flags name.
    pub(super) fn new(
        given: Option<&Path>,
        merges: bool,
        data: Option<&Path>,
    ) -> anyhow::Result<Self> {
        let path = match (given, merges, data) {
            (Some(file), _, _) => file.to_owned(),
            (None, true, _) => usual().context(
                "--merge-kubeconfig: there is no KUBECONFIG and no HOME: name the file with --kubeconfig",
            )?,
            (None, false, Some(data)) => data.join("kubeconfig"),
            (None, false, None) => PathBuf::from("bowline.kubeconfig"),
        };
        let data = data.map(|data| std::path::absolute(data).unwrap_or_else(|_| data.to_owned()));
        Ok(Self { path, merges, data })
    }

    /// Refuses a file that may not be replaced, before anything is started.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        if self.merges {
            return self.shared().map(drop);
        }
        let Some(mut found) = self.open()? else { return Ok(()) };
        let credentials = self.data.as_ref().map(|data| data.join("credentials.json"));
        let authority = credentials.and_then(|file| bowline_apiserver::pki::authority_in(&file));
        self.judge(&mut found, authority.as_deref())
    }

    /// Writes the kubeconfig of the server.
    pub(super) fn write(&self, text: &str) -> anyhow::Result<Written> {
        let ours = yaml::from_yaml(text.as_bytes()).map_err(anyhow::Error::msg)?;
        let ours = entries::marked(ours, self.data.as_deref());
        let authority = entries::authority(&ours);
        if let Some(folder) = self.path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            std::fs::create_dir_all(folder)
                .with_context(|| format!("cannot make {}", folder.display()))?;
        }
        let held = if self.merges {
            self.change(|all| entries::merged(all, &ours).map_err(|why| self.refused(&why)))?;
            None
        } else {
            Some(self.replace(&ours, &authority)?)
        };
        Ok(Written { file: self.clone(), authority, _held: held })
    }

    /// Puts a file of ours in the place of what is there, if that may be replaced. Returns the file, locked.
    fn replace(&self, ours: &Value, authority: &str) -> anyhow::Result<File> {
        let beside = Beside::new(&self.path, 0o600)?;
        beside.fill(ours)?;
        loop {
            let Some(mut found) = self.open()? else {
                // An empty file is ours to replace, also if this process ends now.
                let mut new = OpenOptions::new();
                match new.write(true).create_new(true).mode(0o600).open(&self.path) {
                    Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                        return Err(error).with_context(|| self.doing("create"));
                    }
                    _ => continue,
                }
            };
            // Held until the new file is there: of two processes one gets it.
            self.judge(&mut found, Some(authority))?;
            let same = |a: std::fs::Metadata, b: std::fs::Metadata| {
                (a.dev(), a.ino()) == (b.dev(), b.ino())
            };
            let there = std::fs::metadata(&self.path);
            if there.is_ok_and(|there| found.metadata().is_ok_and(|found| same(found, there))) {
                return beside.rename(&self.path);
            }
        }
    }

    /// Whether what is there may be replaced; locks it, if no other process has.
    fn judge(&self, found: &mut File, authority: Option<&str>) -> anyhow::Result<()> {
        let held = found.try_lock().is_err();
        let mut text = Vec::new();
        found.read_to_end(&mut text).with_context(|| self.doing("read"))?;
        Found::read(&text)
            .replaceable(authority, self.data.as_deref(), held)
            .map_err(|why| self.refused(&why))
    }

    /// The file that is there.
    fn open(&self) -> anyhow::Result<Option<File>> {
        match std::fs::metadata(&self.path) {
            Ok(found) if !found.is_file() => bail!(self.refused("is no file")),
            _ => {}
        }
        match File::open(&self.path) {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| self.doing("read")),
        }
    }

    /// Changes a kubeconfig with entries of others, as kubectl does: under its lock, and at once.
    fn change(&self, change: impl FnOnce(&Value) -> anyhow::Result<Value>) -> anyhow::Result<()> {
        // The lock and the file are where a symbolic link leads.
        let path = self.path.canonicalize().unwrap_or_else(|_| self.path.clone());
        let _lock = Lock::take(&path)?;
        let before = self.shared()?;
        let after = change(&before)?;
        if after == before {
            return Ok(());
        }
        let mode =
            std::fs::metadata(&path).map_or(0o600, |found| found.permissions().mode() & 0o777);
        let beside = Beside::new(&path, mode)?;
        beside.fill(&after)?;
        beside.rename(&path).map(drop)
    }

    /// What is in a kubeconfig with entries of others. Null: nothing.
    fn shared(&self) -> anyhow::Result<Value> {
        let Some(mut found) = self.open()? else { return Ok(Value::Null) };
        let mut text = Vec::new();
        found.read_to_end(&mut text).with_context(|| self.doing("read"))?;
        let read = yaml::from_yaml(&text)
            .map_err(|why| self.refused(&format!("cannot be read ({why})")))?;
        match read {
            Value::Null | Value::Object(_) => Ok(read),
            _ => Err(self.refused("is no kubeconfig")),
        }
    }

    fn refused(&self, why: &str) -> anyhow::Error {
        let advice = match self.merges {
            true => "or name another file with --kubeconfig",
            false => {
                "name another file with --kubeconfig, or add to a file with --merge-kubeconfig"
            }
        };
        anyhow::anyhow!("{} {why}; {advice}", self.path.display())
    }

    fn doing(&self, what: &str) -> String {
        format!("cannot {what} {}", self.path.display())
    }
}

impl Written {
    /// The server ends: what leads to it is removed. A file of our own is kept with the data, whose credentials stay good.
    pub(super) fn end(&self) {
        let done = if self.file.merges {
            self.file.change(|all| Ok(entries::without(all, &self.authority)))
        } else if self.file.data.is_none() {
            self.remove()
        } else {
            Ok(())
        };
        if let Err(error) = done {
            tracing::warn!(
                error = format!("{error:#}"),
                "the kubeconfig leads to a server that has ended"
            );
        }
    }

    /// Removes the file, unless another has taken its place.
    fn remove(&self) -> anyhow::Result<()> {
        let Ok(text) = std::fs::read(&self.file.path) else { return Ok(()) };
        if Found::read(&text).is_of(Some(&self.authority)) {
            std::fs::remove_file(&self.file.path).with_context(|| self.file.doing("remove"))?;
        }
        Ok(())
    }
}

/// The kubeconfig that kubectl writes to: the first of KUBECONFIG that exists, or the last; or the one in the home.
fn usual() -> Option<PathBuf> {
    let listed: Vec<_> = std::env::var_os("KUBECONFIG")
        .map(|all| std::env::split_paths(&all).filter(|it| !it.as_os_str().is_empty()).collect())
        .unwrap_or_default();
    let there = listed.iter().find(|file| file.exists());
    let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".kube/config"));
    there.or(listed.last()).cloned().or_else(home)
}

/// A file that is written beside another one, and takes its place.
struct Beside {
    file: File,
    path: PathBuf,
}

impl Beside {
    fn new(path: &Path, mode: u32) -> anyhow::Result<Self> {
        let mut beside = path.as_os_str().to_owned();
        beside.push(format!(".{}.new", std::process::id()));
        let beside = PathBuf::from(beside);
        // What a process with this id left.
        let _ = std::fs::remove_file(&beside);
        let mut options = OpenOptions::new();
        let file = options.write(true).create_new(true).mode(mode).open(&beside);
        let file = file.with_context(|| format!("cannot create {}", beside.display()))?;
        Ok(Self { file, path: beside })
    }

    fn fill(&self, config: &Value) -> anyhow::Result<()> {
        let text = yaml::to_yaml(config).map_err(anyhow::Error::msg)?;
        let doing = || format!("cannot write {}", self.path.display());
        self.file.lock().with_context(doing)?;
        (&self.file)
            .write_all(text.as_bytes())
            .and_then(|()| self.file.sync_all())
            .with_context(doing)
    }

    fn rename(self, path: &Path) -> anyhow::Result<File> {
        let doing = || format!("cannot write {}", path.display());
        std::fs::rename(&self.path, path).with_context(doing)?;
        self.file.try_clone().with_context(doing)
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        // It is not there if it has taken the other's place.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// The lock by which kubectl and other clients take turns at a kubeconfig.
struct Lock(PathBuf);

impl Lock {
    #[expect(
        clippy::disallowed_methods,
        reason = "nothing else waits for this thread: the end or the start of a process"
    )]
    fn take(path: &Path) -> anyhow::Result<Self> {
        let mut lock = path.as_os_str().to_owned();
        lock.push(".lock");
        let lock = PathBuf::from(lock);
        let until = Instant::now() + PATIENCE;
        loop {
            match OpenOptions::new().write(true).create_new(true).open(&lock) {
                Ok(_) => return Ok(Self(lock)),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                    anyhow::ensure!(
                        Instant::now() < until,
                        "{} exists: another program changes the kubeconfig. If none does, remove that file",
                        lock.display()
                    );
                    std::thread::sleep(Duration::from_millis(20));
                }
                Err(error) => {
                    return Err(error).with_context(|| format!("cannot create {}", lock.display()));
                }
            }
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
