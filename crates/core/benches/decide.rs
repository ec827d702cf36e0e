//! `make bench`: what it costs to decide. Planner and resolver with 1,000 and 10,000 Services of ten
//! endpoints each, every one in a process of its own, so that memory is that of one thing. Prints
//! numbers; asserts nothing about time. Reading JSON is measured apart from deciding.

#![allow(clippy::disallowed_methods, reason = "a benchmark measures time")]

use bowline_core::objects::{
    AllowedNamespaces, Backend, BackendPort, ClassParameters, Endpoint, Exposure, Family, Ingress,
    IngressClass, IngressPath, IngressRule, LoadBalancer, Placement, Service, ServiceClass,
    ServicePort, Slice, SlicePort, Tuning,
};
use bowline_core::plan::{
    Algorithm, Fragment, Host, Listener, ListenerProtocol, PathKind, PathMatch, Pool, Serves,
    ServicePortRef, Transport, service_pool,
};
use bowline_core::{ConsumerKind, ConsumerRef, ObjectKey, planner, resolver};
use std::collections::BTreeMap;
use std::env;
use std::error::Error;
use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const SIZES: [usize; 2] = [1_000, 10_000];
const ENDPOINTS: usize = 10;
const CHANGES: usize = 5_000;
/// Set in the processes that measure: what, and how many Services.
const TASK: &str = "BOWLINE_BENCH_DECIDE";

fn main() -> Result<()> {
    match env::var(TASK) {
        Ok(task) => {
            let (what, services) = task.split_once(' ').ok_or("what and how many")?;
            let numbers = match what {
                "planner" => measure_planner(services.parse()?)?,
                _ => measure_resolver(services.parse()?)?,
            };
            println!("{}", serde_json::to_string(&numbers)?);
            Ok(())
        }
        Err(_) => print_all(),
    }
}

/// What was measured: a name, its unit, the value.
type Numbers = Vec<(String, String, f64)>;

fn print_all() -> Result<()> {
    println!("deciding, {ENDPOINTS} endpoints per Service; per size a process of its own");
    println!("to hold with 10,000: 2 s of CPU to plan all, 150 MB, 100 µs for an endpoint change");
    println!("{:42}{:>12}{:>12}{:>8}", "", "1,000", "10,000", "ratio");
    for what in ["planner", "resolver"] {
        let runs = SIZES.map(|services| run(what, services));
        let [small, large] = runs;
        for ((name, unit, small), (_, _, large)) in small?.into_iter().zip(large?) {
            let small_text = format!("{small:.1} {unit}");
            let large_text = format!("{large:.1} {unit}");
            let ratio = large / small;
            println!(
                "{:42}{small_text:>12}{large_text:>12}{ratio:>8.1}",
                format!("{what}: {name}")
            );
        }
    }
    Ok(())
}

fn run(what: &str, services: usize) -> Result<Numbers> {
    let output =
        Command::new(env::current_exe()?).env(TASK, format!("{what} {services}")).output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

fn measure_planner(services: usize) -> Result<Numbers> {
    use planner::{Config, Event, Kind, Object, Planner};
    let before = Usage::now()?;
    let config = Config { default_class: true, default_load_balancer: Some("edge".into()) };
    let mut planner = Planner::new(config);
    planner.handle(Event::Apply(Box::new(Object::LoadBalancer(load_balancer()))));
    for i in 0..services {
        planner.handle(Event::Apply(Box::new(Object::Service(service(i)))));
    }
    for kind in [
        Kind::Service,
        Kind::Ingress,
        Kind::IngressClass,
        Kind::TlsSecret,
        Kind::Namespace,
        Kind::LoadBalancer,
    ] {
        planner.handle(Event::Done(kind));
    }
    let planned = planner.take().fragments.len();
    let cold = Usage::now()?.since(&before);
    if planned != services {
        return Err(format!("{planned} fragments of {services}").into());
    }
    let visited = planner.visited();
    let changes = each_change(|turn| {
        let mut service = service(turn * 7919 % services);
        let algorithms = [Algorithm::LeastConnections, Algorithm::SourceIp];
        service.tuning.algorithm = Some(algorithms[turn / services % 2]);
        let event = Event::Apply(Box::new(Object::Service(service)));
        let started = Instant::now();
        planner.handle(event);
        let changes = planner.take();
        (started.elapsed(), changes.fragments.len())
    })?;
    let visited = planner.visited() - visited;
    for object in [Object::IngressClass(ingress_class()), Object::Ingress(ingress(services))] {
        planner.handle(Event::Apply(Box::new(object)));
    }
    let started = Instant::now();
    let planned = planner.take().fragments;
    let took = started.elapsed();
    let rules: usize = planned.iter().flat_map(|it| &it.parts).map(|it| rules(it)).sum();
    if rules != services {
        return Err(format!("{rules} rules of {services}").into());
    }
    let mut all = numbers(&cold, "one Service changed", &changes, visited);
    all.push(("one Ingress of so many rules".into(), "ms".into(), took.as_secs_f64() * 1e3));
    Ok(all)
}

fn measure_resolver(services: usize) -> Result<Numbers> {
    use resolver::{Event, Kind, Object, Resolver};
    let before = Usage::now()?;
    let mut resolver = Resolver::new();
    let mut reading = Duration::ZERO;
    for (number, shard) in (0..services).collect::<Vec<_>>().chunks(500).enumerate() {
        // As it comes from the API: nothing in it shared.
        let text = serde_json::to_string(&shard.iter().map(|i| fragment(*i)).collect::<Vec<_>>())?;
        let started = Instant::now();
        let fragments: Vec<Fragment> = serde_json::from_str(&text)?;
        reading += started.elapsed();
        let name = format!("edge-{number}").into();
        resolver.handle(Event::Apply(Object::Shard(name, number as u32, fragments.into())));
    }
    for i in 0..services {
        resolver.handle(Event::Apply(Object::Slice(slice(i, 0))));
    }
    for kind in [Kind::Shard, Kind::Slice, Kind::Certificates] {
        resolver.handle(Event::Done(kind));
    }
    let update = resolver.take().ok_or("nothing to apply")?;
    let members: usize = update.members.iter().map(|change| change.members.len()).sum();
    if (update.listeners.len(), members) != (services, services * ENDPOINTS) || !resolver.synced() {
        return Err(format!("{} listeners, {members} members", update.listeners.len()).into());
    }
    drop(update);
    let cold = Usage::now()?.since(&before);
    let visited = resolver.visited();
    let changes = each_change(|turn| {
        let slice = slice(turn * 7919 % services, turn + 1);
        let started = Instant::now();
        resolver.handle(Event::Apply(Object::Slice(slice)));
        let update = resolver.take();
        (started.elapsed(), update.map_or(0, |update| update.members.len()))
    })?;
    let mut all = numbers(&cold, "one endpoint changed", &changes, resolver.visited() - visited);
    all.insert(1, ("of it reading JSON".into(), "ms".into(), reading.as_secs_f64() * 1e3));
    Ok(all)
}

/// How long single changes take, sorted. Each must change exactly one thing.
fn each_change(mut change: impl FnMut(usize) -> (Duration, usize)) -> Result<Vec<Duration>> {
    let mut times = Vec::with_capacity(CHANGES);
    for turn in 0..CHANGES {
        let (took, changed) = change(turn);
        if changed != 1 {
            return Err(format!("change {turn} changed {changed} things").into());
        }
        times.push(took);
    }
    times.sort_unstable();
    Ok(times)
}

fn numbers(cold: &Usage, change: &str, times: &[Duration], visited: u64) -> Numbers {
    let at = |share: usize| times[times.len() * share / 100].as_secs_f64() * 1e6;
    vec![
        ("cold start, CPU time".into(), "ms".into(), cold.cpu.as_secs_f64() * 1e3),
        ("resident memory".into(), "MB".into(), cold.resident as f64 / 1e6),
        (format!("{change}, median"), "µs".into(), at(50)),
        (format!("{change}, p99"), "µs".into(), at(99)),
        (format!("{change}, looked at"), "".into(), visited as f64 / CHANGES as f64),
    ]
}

/// CPU time and resident bytes of this process.
struct Usage {
    cpu: Duration,
    resident: u64,
}

impl Usage {
    fn now() -> Result<Self> {
        let status = fs::read_to_string("/proc/self/status")?;
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).ok_or("VmRSS")?;
        let kilobytes: u64 = line.split_whitespace().nth(1).ok_or("a value")?.parse()?;
        let schedule = fs::read_to_string("/proc/self/schedstat")?;
        let nanoseconds = schedule.split_whitespace().next().ok_or("time on a CPU")?.parse()?;
        Ok(Self { cpu: Duration::from_nanos(nanoseconds), resident: kilobytes * 1024 })
    }

    fn since(&self, before: &Self) -> Self {
        Self { cpu: self.cpu - before.cpu, resident: self.resident - before.resident }
    }
}

const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

fn namespace(i: usize) -> String {
    format!("team-{:02}", i % 100)
}

fn name(i: usize) -> String {
    format!("service-{i:05}")
}

fn port(i: usize) -> u16 {
    10_000 + i as u16
}

fn load_balancer() -> LoadBalancer {
    LoadBalancer {
        name: "edge".into(),
        uid: "edge-uid".into(),
        deleting: false,
        addresses: vec![ADDRESS],
        http_port: 80,
        https_port: 443,
        allowed: AllowedNamespaces::All,
        claim: None,
        counted: false,
        regex_hosts: false,
        carrier: None,
        enforce_limits: false,
        nodes: false,
        external: false,
        source: "{}".into(),
        door: None,
        created: 0,
        address_pool: None,
        scope: None,
    }
}

fn service(i: usize) -> Service {
    Service {
        key: ObjectKey::new(namespace(i), name(i)),
        uid: format!("0000-{i:032}").into(),
        created: i as i64,
        deleting: false,
        exposure: Exposure::LoadBalancer,
        class: ServiceClass::Unset,
        ports: vec![ServicePort {
            name: "http".into(),
            number: port(i),
            transport: Transport::Tcp,
            node_port: Some(30_000),
            h2c: false,
        }],
        families: vec![Family::V4],
        local_only: false,
        source_ranges: Ok(Vec::new()),
        placement: Ok(Placement::Default),
        vips: Ok(Vec::new()),
        tuning: Tuning::default(),
        affinity: None,
        timeouts: BTreeMap::new(),
        requests: Ok(<_>::default()),
        problems: Vec::new(),
        address: Default::default(),
    }
}

fn ingress_class() -> IngressClass {
    IngressClass { name: "web".into(), ours: true, parameters: Ok(ClassParameters::None) }
}

/// An Ingress with so many paths of one host.
fn ingress(paths: usize) -> Ingress {
    let backend = Backend { service: Some(name(0).into()), port: BackendPort::Name("http".into()) };
    let path = |i: usize| IngressPath {
        path: PathMatch { kind: PathKind::Prefix, value: format!("/{i}").into() },
        backend: backend.clone(),
    };
    Ingress {
        key: ObjectKey::new(namespace(0), "large"),
        uid: "large-uid".into(),
        created: 0,
        deleting: false,
        class: Some("web".into()),
        placement: Ok(Placement::Default),
        tuning: Tuning::default(),
        redirect: true,
        default_backend: None,
        rules: vec![IngressRule { host: Host::Any, paths: (0..paths).map(path).collect() }],
        tls: Vec::new(),
        requests: Ok(<_>::default()),
        problems: Vec::new(),
    }
}

fn rules(fragment: &Fragment) -> usize {
    fragment.sites.iter().map(|site| site.rules.len()).sum()
}

fn fragment(i: usize) -> Fragment {
    let (namespace, name): (Arc<str>, Arc<str>) = (namespace(i).into(), name(i).into());
    let pool = service_pool(&namespace, &name, "http");
    Fragment {
        consumer: ConsumerRef {
            kind: ConsumerKind::Service,
            namespace: namespace.clone(),
            name: name.clone(),
            uid: format!("0000-{i:032}").into(),
        },
        part: 0,
        claimed: false,
        listeners: vec![Listener {
            address: ADDRESS,
            port: port(i),
            protocol: ListenerProtocol::Tcp,
            serves: Serves::Pool(pool.clone()),
        }],
        sites: Vec::new(),
        pools: vec![Pool::new(
            pool,
            ServicePortRef { namespace, name, port: "http".into(), protocol: Transport::Tcp },
        )],
    }
}

/// The slice of a Service; another `turn` has another Pod in place of one.
fn slice(i: usize, turn: usize) -> Slice {
    let endpoint = |n: usize| {
        let number = (i * ENDPOINTS + n) as u32;
        let subnet = if turn > 0 && n == turn % ENDPOINTS { turn as u32 % 199 + 1 } else { 0 };
        Endpoint {
            address: Ipv4Addr::from(0x0a00_0000 + (subnet << 17) + number).into(),
            ready: true,
            serving: true,
            terminating: false,
            node: Some(format!("node-{:03}", number % 100).into()),
            target: Some(format!("{}-{n:05}", name(i)).into()),
        }
    };
    Slice {
        key: ObjectKey::new(namespace(i), format!("{}-abcde", name(i))),
        service: Some(name(i).into()),
        ports: vec![SlicePort { name: "http".into(), number: 8080, transport: Transport::Tcp }],
        endpoints: (0..ENDPOINTS).map(endpoint).collect(),
    }
}
