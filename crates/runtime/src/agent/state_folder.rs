//! The files of an agent's state folder (`--state`): all that its driver was given last, so that the agent can serve it
//! after a restart while the API is away. They hold private keys: only their owner can read the folder and its files. A
//! new file is written in full beside the old one and then replaces it; an incomplete file is ignored and logged.
//! [`bowline_core::kept_state`] decides whether a complete one is used. The folder also holds the agent's name, so that an
//! agent that comes back replaces its own report.
//!
//! ```text
//!  state      one line of JSON, then "sha256:…"; its modification time: when it was last known to be true
//!  identity   the agent's name in the Lease
//!  lock       held while an agent uses the folder
//! ```

use bowline_core::hash::PlanHash;
use bowline_core::kept_state::Origin;
use bowline_core::key::ConsumerRef;
use bowline_core::plan::{Host, Listener, Pool, Rule, SiteTls};
use bowline_core::update::{
    Certificate, Change, CookieSecret, ListenerKey, Member, MemberChange, MemberState,
    ResolvedListener, ResolvedSite, SiteKey, Update,
};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, BufWriter, ErrorKind, Read as _, Write};
use std::net::SocketAddr;
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

/// The version of the file. A file of another version is ignored.
const VERSION: u32 = 3;
/// A file that is longer is not read: 10,000 Services with ten members each take about 10 MB.
const LONGEST: u64 = 512 * 1024 * 1024;
const STATE: &str = "state";
const SUM: &str = "sha256:";

/// Why kept state is not used.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unusable {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("it is cut off or was changed: its checksum does not match")]
    Checksum,
    #[error("it is of version {0}, and this program reads version {VERSION}")]
    Version(u32),
    #[error("it cannot be read: {0}")]
    Text(#[from] serde_json::Error),
}

/// A member: its address, its weight, and whether it drains.
type KeptMember = (SocketAddr, u16, bool);

/// All that a driver was given, as it is stored.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct StateFile {
    version: u32,
    origin: Origin,
    hash: PlanHash,
    cookie_secret: Option<[u8; 32]>,
    certificates: Vec<KeptCertificate>,
    pools: Vec<Arc<Pool>>,
    members: Vec<(Arc<str>, Vec<KeptMember>)>,
    sites: Vec<KeptSite>,
    listeners: Vec<(ConsumerRef, Listener)>,
}

#[derive(Serialize, Deserialize)]
struct KeptCertificate {
    hash: Arc<str>,
    chain: Arc<str>,
    key: Arc<str>,
}

#[derive(Serialize, Deserialize)]
struct KeptSite {
    entry: Arc<str>,
    host: Host,
    owner: Arc<str>,
    tls: Option<SiteTls>,
    rules: Vec<(Rule, ConsumerRef)>,
}

/// The part of the file that decides whether the rest is read.
#[derive(Deserialize)]
struct About {
    version: u32,
}

/// The content of the file.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) update: Update,
    /// The load balancer that the state belongs to.
    pub(super) origin: Origin,
    /// When the state was last known to be true.
    pub(super) at: SystemTime,
}

impl StateFile {
    /// A complete update removes nothing, so only `Put` is stored.
    fn of(update: &Update, origin: &Origin) -> Self {
        let certificates = puts(&update.certificates).map(|(hash, it)| KeptCertificate {
            hash: Arc::clone(hash),
            chain: Arc::clone(&it.chain),
            key: Arc::clone(&it.key),
        });
        let members = update.members.iter().map(|change| {
            let members = change.members.iter();
            let members =
                members.map(|it| (it.address, it.weight, it.state == MemberState::Draining));
            (Arc::clone(&change.pool), members.collect())
        });
        let sites = puts(&update.sites).map(|(key, site)| KeptSite {
            entry: Arc::clone(&key.entry),
            host: key.host.clone(),
            owner: Arc::clone(&site.owner),
            tls: site.tls.clone(),
            rules: site.rules.clone(),
        });
        let listeners =
            puts(&update.listeners).map(|(_, it)| (it.consumer.clone(), it.listener.clone()));
        Self {
            version: VERSION,
            origin: origin.clone(),
            hash: update.hash,
            cookie_secret: update.cookie_secret.as_ref().map(|secret| secret.0),
            certificates: certificates.collect(),
            pools: puts(&update.pools).map(|(_, pool)| Arc::clone(pool)).collect(),
            members: members.collect(),
            sites: sites.collect(),
            listeners: listeners.collect(),
        }
    }

    fn update(self) -> Update {
        let certificates = self
            .certificates
            .into_iter()
            .map(|it| Change::Put(it.hash, Arc::new(Certificate { chain: it.chain, key: it.key })));
        let members = self.members.into_iter().map(|(pool, members)| {
            let member = |(address, weight, drains)| Member {
                address,
                weight,
                state: if drains { MemberState::Draining } else { MemberState::Ready },
            };
            let mut members: Vec<_> = members.into_iter().map(member).collect();
            members.sort_unstable();
            let (changed, removed) = (Vec::new(), Vec::new());
            MemberChange { pool, added: members.clone(), members: members.into(), changed, removed }
        });
        let sites = self.sites.into_iter().map(|it| {
            let key = SiteKey { entry: it.entry, host: it.host };
            let site = ResolvedSite { owner: it.owner, tls: it.tls, rules: it.rules };
            Change::Put(key, Arc::new(site))
        });
        let listeners = self.listeners.into_iter().map(|(consumer, listener)| {
            let key = ListenerKey::of(&listener);
            Change::Put(key, Arc::new(ResolvedListener { consumer, listener }))
        });
        Update {
            complete: true,
            certificates: certificates.collect(),
            cookie_secret: self.cookie_secret.map(CookieSecret),
            pools: self.pools.into_iter().map(|it| Change::Put(Arc::clone(&it.name), it)).collect(),
            members: members.collect(),
            sites: sites.collect(),
            listeners: listeners.collect(),
            hash: self.hash,
        }
    }
}

fn puts<K, V>(changes: &[Change<K, V>]) -> impl Iterator<Item = (&K, &V)> {
    changes.iter().filter_map(|change| match change {
        Change::Put(key, value) => Some((key, value)),
        Change::Remove(_) => None,
    })
}

/// The folder of one agent.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    /// Locks the folder while it is open.
    _lock: File,
}

impl Folder {
    /// Creates the folder, or opens it if it belongs to this user and no other agent uses it.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let made = DirBuilder::new().mode(0o700).recursive(true).create(path);
        made.map_err(|error| io::Error::new(error.kind(), format!("cannot create it: {error}")))?;
        let (found, us) = (path.symlink_metadata()?, std::fs::metadata("/proc/self")?);
        if !found.is_dir() || found.uid() != us.uid() {
            let why = "it would hold private keys, and it is not a folder of the user that runs this process";
            return Err(io::Error::new(ErrorKind::PermissionDenied, why));
        }
        if found.mode() & 0o077 != 0 {
            std::fs::set_permissions(path, Permissions::from_mode(0o700))?;
        }
        let lock = private().open(path.join("lock"))?;
        lock.try_lock().map_err(|_| {
            io::Error::new(
                ErrorKind::AddrInUse,
                "another agent uses it: give each agent a folder of its own",
            )
        })?;
        // Left by an agent that was killed while it wrote.
        forget(&path.join(new_of(STATE)))?;
        Ok(Self { path: path.to_owned(), _lock: lock })
    }

    /// The name that the agent had before, if that was on this machine; otherwise the new name, which is stored. The
    /// folder may have come with the copy of a machine.
    pub(super) fn identity(&self, new: &str) -> String {
        let file = self.path.join("identity");
        let host = |name: &str| name.rsplit_once('_').map(|(host, _)| host.to_owned());
        let known = std::fs::read_to_string(&file).unwrap_or_default();
        let known = known.trim();
        if !known.is_empty() && known.len() < 512 && host(known) == host(new) {
            return known.to_owned();
        }
        if let Err(error) = self.put("identity", |file| file.write_all(new.as_bytes())) {
            tracing::debug!(%error, "cannot keep the name of the agent");
        }
        new.to_owned()
    }

    /// Reads the kept state; None if there is none.
    pub(super) fn load(&self) -> Result<Option<Loaded>, Unusable> {
        let mut file = match File::open(self.path.join(STATE)) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        let about = file.metadata()?;
        if about.len() > LONGEST {
            return Err(Unusable::Checksum);
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let at = bytes.len().checked_sub(SUM.len() + 64 + 1).ok_or(Unusable::Checksum)?;
        let (text, sum) = bytes.split_at(at);
        if sum != sum_of(Sha256::digest(text).as_slice()).as_bytes() {
            return Err(Unusable::Checksum);
        }
        let About { version } = serde_json::from_slice(text)?;
        if version != VERSION {
            return Err(Unusable::Version(version));
        }
        let kept: StateFile = serde_json::from_slice(text)?;
        let (origin, at) = (kept.origin.clone(), about.modified()?);
        Ok(Some(Loaded { update: kept.update(), origin, at }))
    }

    /// Replaces the kept state with a complete update of this load balancer.
    pub(super) fn save(&self, update: &Update, origin: &Origin) -> io::Result<()> {
        let kept = StateFile::of(update, origin);
        self.put(STATE, |file| {
            let mut summed = Summed { digest: Sha256::new(), file: BufWriter::new(file) };
            serde_json::to_writer(&mut summed, &kept)?;
            let Summed { digest, mut file } = summed;
            file.write_all(sum_of(digest.finalize().as_slice()).as_bytes())?;
            file.flush()
        })
    }

    /// Deletes the kept state.
    pub(super) fn forget(&self) -> io::Result<()> {
        forget(&self.path.join(STATE))
    }

    /// Records that the kept state is still true.
    pub(super) fn confirm(&self) -> io::Result<()> {
        let file = OpenOptions::new().append(true).open(self.path.join(STATE))?;
        file.set_modified(SystemTime::now())
    }

    /// Replaces a file in full, or leaves the old one.
    fn put(&self, name: &str, write: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
        let new = self.path.join(new_of(name));
        let mut file = private().truncate(true).open(&new)?;
        let written = write(&mut file).and_then(|()| file.sync_all());
        if let Err(error) = written.and_then(|()| std::fs::rename(&new, self.path.join(name))) {
            // On a full disk a partial file would take the space of the next one, and it holds keys.
            let _ = forget(&new);
            return Err(error);
        }
        File::open(&self.path)?.sync_all()
    }
}

/// The name of a file before it replaces the old one.
fn new_of(name: &str) -> String {
    format!("{name}.new")
}

/// Removes a file, if it exists.
fn forget(file: &Path) -> io::Result<()> {
    match std::fs::remove_file(file) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// A file that only its owner can read and write.
fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).create(true).mode(0o600);
    options
}

fn sum_of(digest: &[u8]) -> String {
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{SUM}{hex}\n")
}

struct Summed<W> {
    digest: Sha256,
    file: W,
}

impl<W: Write> Write for Summed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.digest.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bowline_core::plan::Fragment;
    use bowline_core::resolver::{Event, Kind, Object, Resolver};
    use serde_json::json;

    /// An update with everything that an update can have.
    fn everything() -> Update {
        let fragment: Fragment = serde_json::from_value(json!({
            "consumer": {"kind": "Ingress", "namespace": "shop", "name": "web", "uid": "u"},
            "listeners": [{"address": "127.0.0.1", "port": 443, "protocol": "HTTPS",
                "serves": {"entry": "web"}}],
            "sites": [{"entry": "web", "host": "*.a.example",
                "tls": {"certificate": {"hash": "abc"}, "redirect": true},
                "rules": [{"path": {"kind": "Prefix", "value": "/"},
                    "action": {"respond": 204}}]}],
        }))
        .unwrap();
        let mut resolver = Resolver::new();
        resolver.handle(Event::Apply(Object::Shard("edge-0".into(), 0, vec![fragment].into())));
        let certificate = Certificate { chain: "chain".into(), key: "key".into() };
        let certificates = vec![("abc".into(), Arc::new(certificate))];
        resolver.handle(Event::Apply(Object::Certificates("s".into(), certificates)));
        resolver.handle(Event::Apply(Object::CookieSecret(CookieSecret([7; 32]))));
        for kind in [Kind::Shard, Kind::Slice, Kind::Certificates] {
            resolver.handle(Event::Begin(kind));
            if kind == Kind::Slice {
                resolver.handle(Event::Done(kind));
            }
        }
        drop(resolver.take());
        let mut update = resolver.snapshot();
        let ready = Member {
            address: "[2001:db8::1]:80".parse().unwrap(),
            weight: 3,
            state: MemberState::Ready,
        };
        let drains = Member {
            address: "10.0.0.1:80".parse().unwrap(),
            state: MemberState::Draining,
            ..ready
        };
        update.members.push(MemberChange {
            pool: "p".into(),
            members: [drains, ready].into(),
            added: vec![drains, ready],
            changed: Vec::new(),
            removed: Vec::new(),
        });
        assert!(!update.certificates.is_empty() && !update.sites.is_empty());
        update
    }

    fn folder(path: &Path) -> Folder {
        Folder::open(path).unwrap()
    }

    fn origin() -> Origin {
        let (cluster, uid) = (["c".to_owned()].into(), Some("u".into()));
        Origin { load_balancer: "edge".into(), namespace: "bowline-system".into(), cluster, uid }
    }

    #[test]
    fn what_was_kept_is_given_back_whole_and_is_its_owners_alone() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("state");
        let (folder, update) = (folder(&path), everything());
        assert!(folder.load().unwrap().is_none());
        folder.save(&Update { complete: true, ..Update::default() }, &origin()).unwrap();
        folder.save(&update, &origin()).unwrap();
        let loaded = folder.load().unwrap().map(|it| (it.update, it.origin));
        assert_eq!(loaded, Some((update, origin())));
        let mode = |path: &Path| std::fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!((mode(&path), mode(&path.join("state"))), (0o700, 0o600));
        let names = std::fs::read_dir(&path).unwrap().count();
        assert_eq!(names, 2, "the lock and the state");
    }

    #[test]
    fn what_is_cut_off_or_changed_or_of_another_version_is_not_used() {
        let place = tempfile::tempdir().unwrap();
        let (kept, file) = (folder(place.path()), place.path().join("state"));
        kept.save(&everything(), &origin()).unwrap();
        let whole = std::fs::read(&file).unwrap();
        let said = |bytes: &[u8]| {
            std::fs::write(&file, bytes).unwrap();
            kept.load().unwrap_err().to_string()
        };
        for length in [0, 1, 70, whole.len() / 2, whole.len() - 1] {
            assert!(said(&whole[..length]).contains("checksum"), "{length}");
        }
        let mut flipped = whole.clone();
        flipped[20] ^= 1;
        assert!(said(&flipped).contains("checksum"));
        let with_sum =
            |text: &str| [text, &sum_of(Sha256::digest(text).as_slice())].concat().into_bytes();
        assert!(said(&with_sum("{")).contains("cannot be read"));
        let about = json!({"version": 1, "loadBalancer": "edge", "namespace": "bowline-system"});
        assert!(said(&with_sum(&about.to_string())).contains("version 1"));
        std::fs::write(&file, &whole).unwrap();
        assert!(kept.load().unwrap().is_some());
    }

    #[test]
    fn no_half_copy_is_left_by_a_write_that_fails_or_an_agent_that_is_killed() {
        let place = tempfile::tempdir().unwrap();
        let new = place.path().join("state.new");
        std::fs::write(&new, "half of a key").unwrap();
        let kept = folder(place.path());
        assert!(!new.exists(), "what a killed agent left");
        // Nothing can replace a folder that is not empty.
        std::fs::create_dir_all(place.path().join("state/full")).unwrap();
        kept.save(&everything(), &origin()).unwrap_err();
        assert!(!new.exists(), "what failed");
    }

    #[test]
    fn a_folder_is_of_one_agent_which_has_its_name_again() {
        let place = tempfile::tempdir().unwrap();
        let first = folder(place.path());
        let error = Folder::open(place.path()).unwrap_err();
        assert!(error.to_string().contains("another agent"), "{error}");
        assert_eq!(first.identity("vm_1"), "vm_1");
        drop(first);
        let again = folder(place.path());
        assert_eq!(again.identity("vm_2"), "vm_1");
        assert_eq!(again.identity("copy_3"), "copy_3", "the copy of a machine is another one");
    }

    #[test]
    fn a_folder_that_all_may_enter_is_closed_and_a_link_is_not_followed() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("open");
        std::fs::create_dir(&path).unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o777)).unwrap();
        drop(folder(&path));
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o700);
        let link = place.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(Folder::open(&link).is_err());
    }
}
