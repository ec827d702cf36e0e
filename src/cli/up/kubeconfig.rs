//! The kubeconfig that `bowline up` writes: a file of its own, or a context in one that has others (`--merge-kubeconfig`).
//! It replaces and removes nothing but what this very server wrote; `entries` decides, `files` writes. `up` calls it before
//! it starts anything, when the API is there, and at the end.

mod entries;
mod files;

use crate::cli::quoted::quoted;
use anyhow::{Context as _, bail};
use bowline_apiserver::{cluster, yaml};
use entries::{Found, Held, Own, Taken};
use files::{FolderLock, LockFile, TemporaryFile};
use serde_json::Value;
use std::fs::{File, TryLockError};
use std::io::{ErrorKind, Read as _};
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// How often a file may appear and vanish while it is being created.
const TRIES: usize = 10;

/// Where the kubeconfig goes.
#[derive(Clone, Debug)]
pub(super) struct Kubeconfig {
    /// The file.
    pub(super) path: PathBuf,
    /// Whether it keeps what else is in it.
    pub(super) merges: bool,
    /// The folder of the data. None: in memory.
    data: Option<PathBuf>,
    /// Where the API is to listen.
    listen: SocketAddr,
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
        listen: SocketAddr,
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
        Ok(Self { path, merges, data, listen })
    }

    /// Refuses a file that may not be replaced, before anything is started.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        let credentials = self.data.as_ref().map(|data| data.join("credentials.json"));
        let authority = credentials.and_then(|file| bowline_apiserver::pki::authority_in(&file));
        // A port that the system chooses is no earlier server's, but for a rare chance.
        let url = (self.listen.port() != 0).then(|| cluster::url_of(self.listen));
        let own = Own {
            authority: authority.as_deref(),
            url: url.as_deref(),
            data: self.data.as_deref(),
        };
        if self.merges {
            let all = self.shared()?;
            return entries::cleared(&all, &own).map(drop).map_err(|taken| self.taken(&taken));
        }
        let _turn = FolderLock::take(&self.path)?;
        let Some(mut found) = self.open()? else { return Ok(()) };
        self.judge(&mut found, &own)
    }

    /// Writes the kubeconfig of the server.
    pub(super) fn write(&self, text: &str) -> anyhow::Result<Written> {
        let ours = yaml::from_yaml(text.as_bytes()).map_err(anyhow::Error::msg)?;
        let ours = entries::marked(ours, self.data.as_deref());
        let (authority, url) = entries::authority_and_url(&ours);
        let own = Own { authority: Some(&authority), url: Some(&url), data: self.data.as_deref() };
        if let Some(folder) = self.path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            std::fs::create_dir_all(folder)
                .with_context(|| format!("cannot make {}", folder.display()))?;
        }
        let held = if self.merges {
            self.change(|all| {
                let others = entries::cleared(all, &own).map_err(|taken| self.taken(&taken))?;
                Ok(entries::merged(others, ours))
            })?;
            None
        } else {
            Some(self.replace(&ours, &own)?)
        };
        Ok(Written { file: self.clone(), authority, _held: held })
    }

    /// Puts a file of ours in the place of what is there, if that may be replaced. Returns the file, locked.
    fn replace(&self, ours: &Value, own: &Own<'_>) -> anyhow::Result<File> {
        // Of processes that start at once, each next one finds what the one before it wrote.
        let _turn = FolderLock::take(&self.path)?;
        let new = TemporaryFile::new(&self.path)?;
        new.fill(ours)?;
        for _ in 0..TRIES {
            match self.open()? {
                Some(mut found) => {
                    self.judge(&mut found, own)?;
                    return new.replace(&self.path);
                }
                None => {
                    if let Some(file) = new.create(&self.path)? {
                        return Ok(file);
                    }
                }
            }
        }
        Err(self.refused("appears and vanishes all the time"))
    }

    /// Whether what is there may be replaced; locks it, if no other process has.
    fn judge(&self, found: &mut File, own: &Own<'_>) -> anyhow::Result<()> {
        let held = match found.try_lock() {
            Ok(()) => Held::No,
            Err(TryLockError::WouldBlock) => Held::Yes,
            Err(TryLockError::Error(_)) => Held::Unknown,
        };
        let text = self.text(found)?;
        Found::read(&text).replaceable(own, held).map_err(|why| self.refused(&why))
    }

    /// The file that is there.
    fn open(&self) -> anyhow::Result<Option<File>> {
        if let Ok(to) = std::fs::read_link(&self.path) {
            let to = to.display();
            if !self.merges {
                bail!(self.refused(&format!("is a symbolic link to {to}, which is not replaced")));
            }
            // kubectl, too, writes where a link leads; a link that leads nowhere is probably a mistake.
            if !self.path.exists() {
                bail!(self.refused(&format!("is a symbolic link to {to}, which does not exist")));
            }
        }
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

    fn text(&self, found: &mut File) -> anyhow::Result<Vec<u8>> {
        let mut text = Vec::new();
        found.read_to_end(&mut text).with_context(|| self.doing("read"))?;
        Ok(text)
    }

    /// Changes a kubeconfig with entries of others, as kubectl does: under its lock, and at once.
    fn change(&self, change: impl FnOnce(&Value) -> anyhow::Result<Value>) -> anyhow::Result<()> {
        // The lock and the file are where a symbolic link leads.
        let path = self.path.canonicalize().unwrap_or_else(|_| self.path.clone());
        let _lock = LockFile::take(&path)?;
        let before = self.shared()?;
        let after = change(&before)?;
        if after == before {
            return Ok(());
        }
        let new = TemporaryFile::new(&path)?;
        new.fill(&after)?;
        if let Ok(old) = std::fs::metadata(&path) {
            new.resemble(&old).with_context(|| {
                let (path, owner) = (path.display(), old.uid());
                format!(
                    "{path} is of the user {owner}, and would not be after a change by this process: run \
                     `bowline up` as that user, or name another file with --kubeconfig"
                )
            })?;
        }
        new.replace(&path).map(drop)
    }

    /// What is in a kubeconfig with entries of others. Null: nothing.
    fn shared(&self) -> anyhow::Result<Value> {
        let Some(mut found) = self.open()? else { return Ok(Value::Null) };
        let read = yaml::from_yaml(&self.text(&mut found)?)
            .map_err(|why| self.refused(&format!("cannot be read ({why})")))?;
        match read {
            Value::Null | Value::Object(_) => Ok(read),
            _ => Err(self.refused("is no kubeconfig")),
        }
    }

    /// The error about entries that stand in the way of ours, with what removes all of them.
    fn taken(&self, taken: &Taken) -> anyhow::Error {
        let file = quoted(&self.path.display().to_string());
        let commands = taken
            .entries
            .iter()
            .map(|(kind, name)| format!("kubectl config delete-{kind} {name} --kubeconfig {file}"));
        let commands = commands.collect::<Vec<_>>().join(" && ");
        let of = &taken.of;
        self.refused(&format!("has entries {of}; to remove them: `{commands}`"))
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

#[cfg(test)]
mod tests;
