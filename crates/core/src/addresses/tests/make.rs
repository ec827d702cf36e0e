//! Builders of small objects, and a world: a machine with an API behind it that carries out its
//! changes.

use crate::addresses::*;
use crate::key::ObjectKey;
use crate::objects::{Family, Timestamp};
use crate::outcome::{Problem, Reason};
use crate::plan::Transport;
use std::collections::BTreeMap;

pub(in crate::addresses) fn pool(name: &str, entries: &[&str]) -> Pool {
    let (ranges, refused) = Range::parse_all(entries);
    Pool {
        name: name.into(),
        created: 0,
        deleting: false,
        ranges,
        refused,
        scope: None,
        auto_assign: true,
        avoid_buggy: false,
        allocate_to: AllocateTo::default(),
        per_namespace_quota: None,
        sharing_across_namespaces: false,
        allowed_domains: Vec::new(),
        reuse_after: 0,
    }
}

fn request(kind: HolderKind, namespace: &str, name: &str) -> AddressRequest {
    let key = ObjectKey::new(namespace, name);
    let uid = format!("uid-{kind}-{key}").into();
    AddressRequest {
        holder: HolderRef { key, kind, uid },
        created: 0,
        labels: Labels::new(),
        scope: None,
        ask: Ok(Ask::Any),
        door: false,
        load_balancer: None,
        families: Families::One(Family::V4),
        sharing: None,
        status: Vec::new(),
        uses: Vec::new(),
    }
}

/// A Service that asks for any IPv4 address.
pub(in crate::addresses) fn service(key: &str) -> AddressRequest {
    let (namespace, name) = key.split_once('/').unwrap();
    request(HolderKind::Service, namespace, name)
}

/// A load balancer that asks for addresses of a pool.
pub(super) fn load_balancer(name: &str, pool: &str) -> AddressRequest {
    AddressRequest {
        ask: Ok(Ask::Pool(pool.into())),
        families: Families::OfPool,
        ..request(HolderKind::LoadBalancer, "", name)
    }
}

pub(super) fn external_ip(key: &str) -> AddressRequest {
    let (namespace, name) = key.split_once('/').unwrap();
    request(HolderKind::ExternalIp, namespace, name)
}

pub(super) fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

pub(super) fn ips(texts: &[&str]) -> Vec<IpAddr> {
    texts.iter().map(|it| ip(it)).collect()
}

/// The places of a load balancer that serves an address.
pub(super) fn served(load_balancer: &str, address: &str) -> Vec<(IpAddr, Arc<str>)> {
    vec![(ip(address), load_balancer.into())]
}

pub(super) fn addresses(texts: &[&str]) -> Result<Ask, Problem> {
    Ok(Ask::Addresses { addresses: ips(texts), pool: None })
}

pub(super) fn named(name: &str) -> Result<Ask, Problem> {
    Ok(Ask::Name { name: name.into(), pool: None })
}

pub(super) fn sharing(key: &str, ports: &[u16]) -> Option<Sharing> {
    let port = |number: &u16| Port { transport: Transport::Tcp, number: *number };
    Some(Sharing {
        key: key.into(),
        ports: ports.iter().map(port).collect(),
        local_only: false,
        selector: Labels::new(),
    })
}

/// What the API has, and a machine that works on it.
pub(super) struct World {
    pub(super) machine: Addresses,
    pub(super) now: Timestamp,
    pub(super) records: BTreeMap<IpAddr, Record>,
    pub(super) pools: BTreeMap<Arc<str>, Pool>,
    pub(super) requests: BTreeMap<(HolderKind, ObjectKey), AddressRequest>,
    pub(super) decisions: BTreeMap<HolderRef, Arc<Decision>>,
    pub(super) reports: BTreeMap<Arc<str>, PoolReport>,
    pub(super) notices: Vec<String>,
    version: u64,
}

pub(super) const GRACE: Timestamp = 60;

impl World {
    pub(super) fn new(pools: impl IntoIterator<Item = Pool>) -> Self {
        let mut world = Self {
            machine: Addresses::new(Config { grace: GRACE }),
            now: 1_000,
            records: BTreeMap::new(),
            pools: pools.into_iter().map(|it| (it.name.clone(), it)).collect(),
            requests: BTreeMap::new(),
            decisions: BTreeMap::new(),
            reports: BTreeMap::new(),
            notices: Vec::new(),
            version: 0,
        };
        world.restart();
        world
    }

    /// A new machine reads everything from the API.
    pub(super) fn restart(&mut self) {
        self.machine = Addresses::new(Config { grace: GRACE });
        self.decisions.clear();
        self.relist();
    }

    pub(super) fn relist(&mut self) {
        for kind in Kind::ALL {
            self.tell(Event::Begin(kind));
        }
        for pool in self.pools.clone().into_values() {
            self.tell(Event::Apply(Box::new(Object::Pool(pool))));
        }
        for request in self.requests.clone().into_values() {
            self.tell(Event::Apply(Box::new(Object::Request(request))));
        }
        for record in self.records.clone().into_values() {
            self.tell(Event::Recorded(record));
        }
        for kind in Kind::ALL {
            self.tell(Event::Done(kind));
        }
    }

    pub(super) fn tell(&mut self, event: Event) {
        self.machine.handle(event, self.now);
    }

    pub(super) fn put(&mut self, request: AddressRequest) {
        let kind = request.holder.kind;
        self.requests.insert((kind, request.holder.key.clone()), request.clone());
        self.tell(Event::Apply(Box::new(Object::Request(request))));
    }

    /// Puts requests and lets everything come to rest.
    pub(super) fn with(&mut self, requests: impl IntoIterator<Item = AddressRequest>) {
        requests.into_iter().for_each(|request| self.put(request));
        self.run();
    }

    pub(super) fn edit(&mut self, key: &str, edit: impl FnOnce(&mut AddressRequest)) {
        let mut request = self.request(key).clone();
        edit(&mut request);
        self.put(request);
        self.run();
    }

    pub(super) fn request(&self, key: &str) -> &AddressRequest {
        let (namespace, name) = key.split_once('/').unwrap_or(("", key));
        let key = ObjectKey::new(namespace, name);
        self.requests.iter().find(|((_, it), _)| *it == key).map(|(_, request)| request).unwrap()
    }

    pub(super) fn remove(&mut self, key: &str) {
        let HolderRef { key, kind, .. } = self.request(key).holder.clone();
        self.requests.remove(&(kind, key.clone()));
        let kind = match kind {
            HolderKind::Service => Kind::Service,
            HolderKind::LoadBalancer => Kind::LoadBalancer,
            HolderKind::ExternalIp => Kind::ExternalIp,
        };
        self.tell(Event::Delete(kind, key));
    }

    pub(super) fn put_pool(&mut self, pool: Pool) {
        self.pools.insert(pool.name.clone(), pool.clone());
        self.tell(Event::Apply(Box::new(Object::Pool(pool))));
        self.run();
    }

    pub(super) fn remove_pool(&mut self, name: &str) {
        self.pools.remove(name);
        self.tell(Event::Delete(Kind::Pool, ObjectKey::new("", name)));
        self.run();
    }

    pub(super) fn resolve(&mut self, name: &str, addresses: &[&str]) {
        let answer = Answer::Addresses(ips(addresses));
        self.tell(Event::Resolved { name: name.into(), answer });
        self.run();
    }

    pub(super) fn pass(&mut self, seconds: Timestamp) {
        self.now += seconds;
        self.run();
    }

    /// Carries out changes until the machine returns no more.
    pub(super) fn run(&mut self) {
        for _ in 0..50 {
            let changes = self.machine.take(self.now);
            if self.carry_out(changes) {
                return;
            }
        }
        panic!("the machine does not come to rest");
    }

    /// Carries out changes. True: none of them needed an answer.
    pub(super) fn carry_out(&mut self, changes: Changes) -> bool {
        let quiet =
            changes.writes.is_empty() && changes.decisions.is_empty() && changes.confirm.is_empty();
        self.notices.extend(
            changes
                .notices
                .iter()
                .map(|it| format!("{} {:?}: {}", it.holder.key, it.kind, it.message)),
        );
        for (name, report) in changes.pools {
            match report {
                Some(report) => _ = self.reports.insert(name, report),
                None => _ = self.reports.remove(&name),
            }
        }
        for write in changes.writes {
            let result = self.perform(&write);
            self.tell(Event::Written { id: write.id, result });
            self.echo(write.address);
        }
        for holder in changes.confirm {
            let exists = self.requests.values().any(|it| it.holder == holder);
            self.tell(Event::Confirmed { holder, exists });
        }
        for (holder, decision) in changes.decisions {
            self.show(holder, decision);
        }
        quiet
    }

    /// Writes a status and sends `Shown`.
    pub(super) fn show(&mut self, holder: HolderRef, decision: Option<Arc<Decision>>) {
        let shown: Vec<IpAddr> = decision.as_deref().map(shown_by).unwrap_or_default();
        match decision {
            Some(decision) => _ = self.decisions.insert(holder.clone(), decision),
            None => _ = self.decisions.remove(&holder),
        }
        let key = (holder.kind, holder.key.clone());
        if let Some(request) = self.requests.get_mut(&key).filter(|it| it.holder == holder) {
            request.status = shown.clone();
            let request = request.clone();
            self.put(request);
        }
        self.tell(Event::Shown { holder, addresses: shown });
    }

    /// The API carries out a write, or answers with a conflict.
    pub(super) fn perform(&mut self, write: &Write) -> Written {
        let address = write.address;
        let there = self.records.get(&address).cloned();
        let new = match (&write.op, &there) {
            (Op::Create(content), None) => Some(content.clone()),
            (Op::Update { version, content }, Some(there)) if *version == there.version => {
                Some(content.clone())
            }
            (Op::Delete { version }, Some(there)) if *version == there.version => None,
            _ => return Written::Conflict(there),
        };
        self.version += 1;
        let version = Version(self.version.to_string().into());
        match new {
            Some(content) => {
                let record = Record { address, version: version.clone(), content };
                self.records.insert(address, record);
            }
            None => _ = self.records.remove(&address),
        }
        Written::Ok(version)
    }

    /// The watch delivers what the API has for an address.
    pub(super) fn echo(&mut self, address: IpAddr) {
        let version = Some(Version(self.version.to_string().into()));
        match self.records.get(&address).cloned() {
            Some(record) => self.tell(Event::Recorded(record)),
            None => self.tell(Event::Unrecorded { address, version }),
        }
    }

    pub(super) fn decision(&self, key: &str) -> &Decision {
        &self.decisions[&self.request(key).holder]
    }

    /// The addresses that a requester has, as decided.
    pub(super) fn has(&self, key: &str) -> Vec<IpAddr> {
        let decision = self.decisions.get(&self.request(key).holder);
        decision.iter().flat_map(|it| &it.addresses).map(|it| it.address).collect()
    }

    pub(super) fn reason(&self, key: &str) -> Reason {
        self.decision(key).verdict.reason
    }

    pub(super) fn message(&self, key: &str) -> &str {
        &self.decision(key).verdict.message
    }

    /// The holders of each address, as recorded.
    pub(super) fn held(&self) -> Vec<(String, Vec<String>)> {
        let names = |record: &Record| {
            record.content.holders.iter().map(|it| it.holder.key.to_string()).collect()
        };
        self.records.iter().map(|(address, it)| (address.to_string(), names(it))).collect()
    }

    /// The notices since the last call.
    pub(super) fn told(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notices)
    }
}

/// What a status shows if no load balancer serves it: draining addresses, too.
pub(super) fn shown_by(decision: &Decision) -> Vec<IpAddr> {
    let granted = decision.addresses.iter().map(|it| it.address);
    granted.chain(decision.draining.iter().map(|it| it.address)).collect()
}
