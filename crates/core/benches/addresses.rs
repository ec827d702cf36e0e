//! `make bench`: what it costs to give addresses, in CPU time. Prints numbers; asserts nothing about
//! time. Each assignment is whole: the Service is told, the address chosen, its write answered and echoed by the
//! watch, the decision taken.

use bowline_core::ObjectKey;
use bowline_core::addresses::{
    AddressRequest, Addresses, AllocateTo, Answer, Ask, Changes, Config, Event, Families,
    HolderKind, HolderRef, Kind, Labels, Object, Op, Pool, Range, Record, Write, Written,
};
use bowline_core::objects::{Family, Version};
use std::error::Error;
use std::fs;
use std::time::Duration;

/// As the program has.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const NOW: i64 = 1_000_000;
const FREED: usize = 1_000;

fn main() -> Result<()> {
    println!("{:48}{:>14}{:>14}", "addresses", "took", "per second");
    for (services, batch) in [(100_000, 100_000), (100_000, 100), (100_000, 1), (1_000_000, 1_000)]
    {
        let (took, _) = assign(services, batch, Ask::Any)?;
        print(&format!("{services} assigned in batches of {batch}"), took, services);
    }
    let (took, mut api) = assign(100_000, 1_000, Ask::Any)?;
    print("100000 assigned in batches of 1000", took, 100_000);
    let took = restart(&mut api)?;
    print("restart: 100000 found again", took, 100_000);
    for waiters in [1_000, 10_000, 100_000] {
        let took = freed(waiters)?;
        print(&format!("an address freed, {waiters} wait"), took, FREED);
    }
    let took = moved(10_000)?;
    print("10000 follow a name each to another address", took, 10_000);
    Ok(())
}

fn print(what: &str, took: Duration, count: usize) {
    let milliseconds = took.as_secs_f64() * 1e3;
    let rate = count as f64 / took.as_secs_f64();
    println!("{what:48}{milliseconds:>11.1} ms{rate:>14.0}");
}

/// How long this process has been on a CPU: a busy machine does not count.
struct Cpu(Duration);

impl Cpu {
    fn now() -> Result<Self> {
        let schedule = fs::read_to_string("/proc/self/schedstat")?;
        let nanoseconds = schedule.split_whitespace().next().ok_or("time on a CPU")?.parse()?;
        Ok(Self(Duration::from_nanos(nanoseconds)))
    }

    fn elapsed(&self) -> Result<Duration> {
        Ok(Self::now()?.0 - self.0)
    }
}

/// A machine, and an API that says yes to everything.
struct Api {
    machine: Addresses,
    requests: Vec<AddressRequest>,
    records: Vec<Record>,
    version: u64,
}

impl Api {
    fn new(pool: Pool) -> Self {
        let mut api = Self {
            machine: Addresses::new(Config { grace: 60 }),
            requests: Vec::new(),
            records: Vec::new(),
            version: 0,
        };
        api.tell(Event::Apply(Box::new(Object::Pool(pool))));
        Kind::ALL.into_iter().for_each(|kind| api.tell(Event::Done(kind)));
        api
    }

    fn tell(&mut self, event: Event) {
        self.machine.handle(event, NOW);
    }

    fn put(&mut self, request: AddressRequest) {
        self.tell(Event::Apply(Box::new(Object::Request(request))));
    }

    /// Takes, answers and echoes until nothing is left to do. Says how many addresses were granted.
    fn run(&mut self) -> usize {
        let mut granted = 0;
        loop {
            let Changes { writes, decisions, .. } = self.machine.take(NOW);
            if writes.is_empty() && decisions.is_empty() {
                return granted;
            }
            writes.into_iter().for_each(|write| self.answer(write));
            for (holder, decision) in decisions {
                let addresses: Vec<_> =
                    decision.iter().flat_map(|it| &it.addresses).map(|it| it.address).collect();
                granted += addresses.len();
                self.tell(Event::Shown { holder, addresses });
            }
        }
    }

    fn answer(&mut self, Write { id, address, op }: Write) {
        self.version += 1;
        let version = Version(self.version.to_string().into());
        self.tell(Event::Written { id, result: Written::Ok(version.clone()) });
        match op {
            Op::Create(content) | Op::Update { content, .. } => {
                let record = Record { address, version, content };
                self.records.push(record.clone());
                self.tell(Event::Recorded(record));
            }
            Op::Delete { .. } => {
                self.tell(Event::Unrecorded { address, version: Some(version) });
            }
        }
    }
}

fn pool(entry: &str) -> Result<Pool> {
    Ok(Pool {
        name: "public".into(),
        created: 0,
        deleting: false,
        ranges: vec![Range::parse(entry)?],
        refused: Vec::new(),
        scope: None,
        auto_assign: true,
        avoid_buggy: true,
        allocate_to: AllocateTo::default(),
        per_namespace_quota: None,
        sharing_across_namespaces: false,
        allowed_domains: Vec::new(),
        reuse_after: 0,
    })
}

fn request(at: usize, ask: Ask) -> AddressRequest {
    AddressRequest {
        holder: HolderRef {
            key: ObjectKey::new(format!("team-{:02}", at % 100), format!("service-{at:06}")),
            kind: HolderKind::Service,
            uid: format!("0000-{at:032}").into(),
        },
        created: at as i64,
        labels: Labels::new(),
        scope: None,
        ask: Ok(ask),
        door: false,
        load_balancer: None,
        families: Families::One(Family::V4),
        sharing: None,
        status: Vec::new(),
        uses: Vec::new(),
    }
}

fn assign(services: usize, batch: usize, ask: Ask) -> Result<(Duration, Api)> {
    let mut api = Api::new(pool("10.0.0.0/8")?);
    let requests: Vec<AddressRequest> = (0..services).map(|at| request(at, ask.clone())).collect();
    api.requests.clone_from(&requests);
    let started = Cpu::now()?;
    let mut granted = 0;
    let mut requests = requests.into_iter().peekable();
    while requests.peek().is_some() {
        requests.by_ref().take(batch).for_each(|request| api.put(request));
        granted += api.run();
    }
    let took = started.elapsed()?;
    if granted != services {
        return Err(format!("{granted} of {services} granted").into());
    }
    Ok((took, api))
}

fn restart(old: &mut Api) -> Result<Duration> {
    let started = Cpu::now()?;
    let mut api = Api::new(pool("10.0.0.0/8")?);
    let (requests, records) = (std::mem::take(&mut old.requests), std::mem::take(&mut old.records));
    let services = requests.len();
    requests.into_iter().for_each(|request| api.put(request));
    records.into_iter().for_each(|record| api.tell(Event::Recorded(record)));
    let granted = api.run();
    if granted != services || !api.records.is_empty() {
        return Err(format!("{granted} of {services} found").into());
    }
    started.elapsed()
}

/// One after the other leaves a full pool, and another one gets the address.
fn freed(waiters: usize) -> Result<Duration> {
    let mut api = Api::new(pool("10.0.0.0-10.0.7.255")?);
    (0..2_000 + waiters).for_each(|at| api.put(request(at, Ask::Any)));
    api.run();
    let started = Cpu::now()?;
    for at in 0..FREED {
        let key = request(at, Ask::Any).holder.key;
        api.tell(Event::Delete(Kind::Service, key));
        let granted = api.run();
        if granted != 1 && granted != 0 {
            return Err(format!("{granted} served by one address").into());
        }
    }
    started.elapsed()
}

fn moved(services: usize) -> Result<Duration> {
    let mut api = Api::new(pool("10.0.0.0/8")?);
    let name = |at: usize| format!("service-{at}.example.com");
    let answer = |at: u32| Answer::Addresses(vec![std::net::Ipv4Addr::from_bits(at).into()]);
    let base = 0x0a00_0000_u32;
    // Every other address: each moves to the one beside it. None of them ends in 0 or 255.
    let first = |at: usize| base + (at as u32 / 120) * 256 + 1 + (at as u32 % 120) * 2;
    for at in 0..services {
        api.put(request(at, Ask::Name { name: name(at).into(), pool: None }));
        api.tell(Event::Resolved { name: name(at).into(), answer: answer(first(at)) });
    }
    let before = api.run();
    let started = Cpu::now()?;
    for at in 0..services {
        api.tell(Event::Resolved { name: name(at).into(), answer: answer(first(at) + 1) });
        api.run();
    }
    if before != services {
        return Err(format!("{before} of {services} resolved").into());
    }
    started.elapsed()
}
