//! `make bench`: the throughput of the built-in proxy beside HAProxy, nginx and pingora alone, how soon a
//! change is live, and the cost of a cold start. Everything runs on this machine in a network of its own,
//! one after another, in one run, each proxy with one thread per core; the ratios are what counts. Prints
//! tables with the numbers to hold beside them; asserts nothing about time.
#![allow(clippy::expect_used, clippy::panic, reason = "a benchmark fails by panicking")]

mod bare;

use bowline_testing::objects::{self, Endpoint};
use bowline_testing::{Backend, Bowline, Cluster, Dial, Scratch, Service, Stack, net};
use futures::StreamExt as _;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// The program uses this allocator too, so pingora alone must.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const PROGRAM: &str = env!("CARGO_BIN_EXE_bowline");
/// Seconds of each measurement.
const SECONDS: u64 = 3;
/// How often each proxy is measured, in turns, so that other load on the machine meets all alike.
const ROUNDS: usize = 5;
const CHANGES: usize = 400;

fn main() {
    let args: Vec<_> = std::env::args().skip(1).collect();
    if let [argument, listen, backend] = &args[..]
        && argument == bare::ARGUMENT
    {
        bare::serve(listen, backend, threads());
    }
    let only = args.into_iter().find(|arg| !arg.starts_with('-'));
    let wanted = |name: &str| only.as_deref().is_none_or(|only| name.contains(only));
    if wanted("throughput") {
        net::in_namespace(throughput);
    }
    for services in [1_000, 10_000] {
        let cold_start = wanted(&format!("cold-start-{services}-services"));
        let latency = wanted(&format!("latency-{services}-services"));
        if cold_start || latency {
            net::in_namespace(|| world(services, cold_start, latency));
        }
    }
}

/// The number of threads of every proxy.
fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// A cluster with a load balancer, and its controller and agent.
struct Stage {
    cluster: Cluster,
    lb: String,
    vip: IpAddr,
    _roles: [Bowline; 2],
}

async fn stage() -> Stage {
    let cluster = Cluster::own(Stack::Single).await;
    cluster.install(Path::new("deploy")).await;
    let (lb, vip) = ("edge".to_owned(), net::vip4());
    cluster.apply("", &objects::load_balancer(&lb, &[vip])).await;
    cluster.apply("", &objects::ingress_class(&lb, &lb)).await;
    let mut controller = start(&cluster, "controller", &[]);
    controller.ready().await;
    let mut agent = start(&cluster, "agent", &["--load-balancer", &lb]);
    agent.ready().await;
    Stage { cluster, lb, vip, _roles: [controller, agent] }
}

fn start(cluster: &Cluster, role: &str, args: &[&str]) -> Bowline {
    Bowline::start(cluster, Path::new(PROGRAM), cluster.kubeconfig(), role, args)
}

fn tool(name: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    places.map(|dir| dir.join(name)).find(|file| file.is_file()).unwrap_or_else(|| {
        panic!("{name} is missing; install it with\n  sudo apt-get install -y wrk haproxy nginx libnginx-mod-stream")
    })
}

/// The results of wrk.
struct Measured {
    per_second: f64,
    median: Duration,
    failed: bool,
}

fn wrk(at: SocketAddr, connections: u32) -> Measured {
    let output = Command::new(tool("wrk"))
        .args(["-t1", "--latency", "-H", "Host: web.example"])
        .args([format!("-c{connections}"), format!("-d{SECONDS}s"), format!("http://{at}/")])
        .output()
        .expect("run wrk");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let value = |label: &str| {
        let line = text.lines().find_map(|line| line.trim().strip_prefix(label));
        line.unwrap_or_else(|| panic!("wrk said {text}")).trim().to_owned()
    };
    Measured {
        per_second: value("Requests/sec:").parse().expect("a number"),
        median: duration(&value("50%")),
        failed: text.contains("Non-2xx") || text.contains("Socket errors"),
    }
}

/// Parses `1.23ms`, `45.00us` or `1.02s`.
fn duration(text: &str) -> Duration {
    let split = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let number: f64 = text[..split].parse().expect("a number");
    let unit = match &text[split..] {
        "us" => 1e-6,
        "ms" => 1e-3,
        _ => 1.0,
    };
    Duration::from_secs_f64(number * unit)
}

/// Requests per second and added latency, over HTTP and over TCP.
async fn throughput() {
    let stage = stage().await;
    let scratch = Scratch::new();
    let (backend, peers) = (net::pod4(), net::vip4());
    let _nginx = nginx(&scratch, backend, peers);
    let _haproxy = haproxy(&scratch, backend, peers);
    let _bare = pingora(&scratch, backend, peers);
    let namespace = stage.cluster.namespace().await;
    let cluster = &stage.cluster;
    let endpoint = [Endpoint::ready(backend)];
    cluster.apply(&namespace, &objects::cluster_service("web", 80, 8080)).await;
    cluster.apply(&namespace, &objects::slice("web", ("", 8080, "TCP"), &endpoint)).await;
    let rules = [("web.example", "/", "Prefix", "web")];
    cluster.apply(&namespace, &objects::ingress("web", &stage.lb, &rules)).await;
    cluster.apply(&namespace, &objects::service("plain", &stage.lb, &[(8081, 8080)])).await;
    cluster.apply(&namespace, &objects::slice("plain", ("", 8080, "TCP"), &endpoint)).await;

    let at = |address, port| SocketAddr::new(address, port);
    let direct = at(backend, 8080);
    let http = vec![
        ("bowline", at(stage.vip, 80)),
        ("haproxy", at(peers, 80)),
        ("nginx", at(peers, 8000)),
        ("pingora", at(peers, 8002)),
    ];
    let tcp = vec![
        ("bowline", at(stage.vip, 8081)),
        ("haproxy", at(peers, 8081)),
        ("nginx", at(peers, 8001)),
    ];
    for (_, address) in http.iter().chain(&tcp).chain([&("direct", direct)]) {
        answers(*address).await;
    }
    for (title, rows) in [("HTTP/1.1, kept connections", http), ("TCP, passed through", tcp)] {
        let threads = threads();
        println!("\n{title}: wrk -t1 -c64 -d{SECONDS}s; latency with one connection");
        println!("the median of {ROUNDS} rounds, in turn; {threads} threads each");
        println!("to hold: 0.70 of haproxy and of nginx");
        println!(
            "{:<10}{:>12}{:>20}{:>14}{:>12}{:>12}",
            "", "requests/s", "(least to most)", "added median", "of haproxy", "of nginx"
        );
        let all = [("direct", direct)].into_iter().chain(rows);
        let mut measured: Vec<_> = all.map(|(name, at)| (name, at, Rounds::default())).collect();
        for _ in 0..ROUNDS {
            for (_, at, rounds) in &mut measured {
                rounds.add(&wrk(*at, 64), &wrk(*at, 1));
            }
        }
        let figures: Vec<_> = measured
            .into_iter()
            .map(|(name, _, rounds)| (name, rounds.failed, rounds.figures()))
            .collect();
        let [(_, _, direct), _, (_, _, haproxy), (_, _, nginx), ..] = &figures[..] else {
            unreachable!("none, and three proxies or more");
        };
        for (name, failed, it) in &figures {
            let spread = format!("({:.0} to {:.0})", it.least, it.most);
            let added = it.median.saturating_sub(direct.median).as_micros();
            println!(
                "{name:<10}{:>12.0}{spread:>20}{added:>11} µs{:>12.2}{:>12.2}{}",
                it.per_second,
                it.per_second / haproxy.per_second,
                it.per_second / nginx.per_second,
                if *failed { "  with failed requests" } else { "" }
            );
        }
    }
}

/// The results of wrk for one address, round by round.
#[derive(Default)]
struct Rounds {
    per_second: Vec<f64>,
    medians: Vec<Duration>,
    failed: bool,
}

/// A summary of the rounds.
struct Figures {
    per_second: f64,
    least: f64,
    most: f64,
    median: Duration,
}

impl Rounds {
    fn add(&mut self, load: &Measured, single: &Measured) {
        self.per_second.push(load.per_second);
        self.medians.push(single.median);
        self.failed |= load.failed || single.failed;
    }

    fn figures(mut self) -> Figures {
        self.per_second.sort_by(f64::total_cmp);
        self.medians.sort();
        let (least, most) = (self.per_second[0], self.per_second[ROUNDS - 1]);
        let (per_second, median) = (self.per_second[ROUNDS / 2], self.medians[ROUNDS / 2]);
        Figures { per_second, least, most, median }
    }
}

async fn answers(at: SocketAddr) {
    bowline_testing::eventually(&format!("{at} answers"), || async {
        let answer = Dial::to(at.ip(), at.port()).get("web.example", "/").await?;
        if answer.status == 200 { Ok(()) } else { Err(answer.text()) }
    })
    .await;
}

/// The backend of all proxies, and nginx as a proxy: `peers:8000` for HTTP and `peers:8001` for TCP.
fn nginx(scratch: &Scratch, backend: IpAddr, peers: IpAddr) -> [Service; 2] {
    let dir = scratch.path().display().to_string();
    let common = |name: &str| {
        format!(
            "daemon off; pid {dir}/{name}.nginx; error_log stderr crit; worker_rlimit_nofile 4096;
             events {{ worker_connections 2048; }}"
        )
    };
    let paths = format!(
        "access_log off; keepalive_requests 100000000;
         client_body_temp_path {dir}/b; proxy_temp_path {dir}/p; fastcgi_temp_path {dir}/f;
         uwsgi_temp_path {dir}/u; scgi_temp_path {dir}/s;"
    );
    let serve = format!(
        "{} worker_processes 1; http {{ {paths}
           server {{ listen {backend}:8080; location / {{ return 200 'ok'; }} }} }}",
        common("backend")
    );
    let proxy = format!(
        "{}{} worker_processes {};
         http {{ {paths}
           upstream web {{ server {backend}:8080; keepalive 64; keepalive_requests 100000000; }}
           server {{ listen {peers}:8000; location / {{
             proxy_pass http://web; proxy_http_version 1.1; proxy_set_header Connection ''; }} }} }}
         stream {{ server {{ listen {peers}:8001; proxy_pass {backend}:8080; }} }}",
        "load_module /usr/lib/nginx/modules/ngx_stream_module.so; ",
        common("proxy"),
        threads()
    );
    [("backend", serve), ("proxy", proxy)].map(|(name, text)| {
        let file = scratch.write(&format!("{name}.conf"), &text);
        let args = ["-c".to_owned(), file.display().to_string(), "-e".into(), "stderr".into()];
        scratch.spawn(&format!("nginx-{name}"), &tool("nginx"), &args)
    })
}

/// HAProxy as a proxy: `peers:80` for HTTP and `peers:8081` for TCP.
fn haproxy(scratch: &Scratch, backend: IpAddr, peers: IpAddr) -> Service {
    let text = format!(
        "global\n  maxconn 4000\n  nbthread {}\n\
         defaults\n  timeout connect 5s\n  timeout client 1m\n  timeout server 1m\n\
         listen web\n  mode http\n  bind {peers}:80\n  http-reuse always\n  server a {backend}:8080\n\
         listen plain\n  mode tcp\n  bind {peers}:8081\n  server a {backend}:8080\n",
        threads()
    );
    let file = scratch.write("haproxy.cfg", &text);
    let args = ["-db".to_owned(), "-f".into(), file.display().to_string()];
    scratch.spawn("haproxy", &tool("haproxy"), &args)
}

/// Pingora alone as a proxy: `peers:8002`.
fn pingora(scratch: &Scratch, backend: IpAddr, peers: IpAddr) -> Service {
    let this = std::env::current_exe().expect("this program");
    let args = [bare::ARGUMENT.to_owned(), format!("{peers}:8002"), format!("{backend}:8080")];
    scratch.spawn("pingora", &this, &args)
}

/// A cluster with this many Services of 10 endpoints each: the cost of a cold start in it, and how soon a
/// change is live.
async fn world(services: usize, cold_start: bool, latency: bool) {
    let cluster = Cluster::own(Stack::Single).await;
    cluster.install(Path::new("deploy")).await;
    let (lb, vip) = ("edge", net::vip4());
    cluster.apply("", &objects::load_balancer(lb, &[vip])).await;
    // A namespace may have at most 20,000 members where several share a load balancer.
    let mut namespaces = Vec::new();
    for _ in 0..10 {
        namespaces.push(cluster.namespace().await);
    }
    futures::stream::iter(0..services)
        .for_each_concurrent(32, |number| {
            let (cluster, namespace) = (&cluster, &namespaces[number % namespaces.len()]);
            async move {
                let name = format!("service-{number:05}");
                let port = 10_000 + u16::try_from(number).expect("a port for each");
                let mut service = objects::service(&name, lb, &[(port, 8080)]);
                // There are fewer node ports than Services.
                service["spec"]["allocateLoadBalancerNodePorts"] = false.into();
                cluster.apply(namespace, &service).await;
                let endpoints: Vec<_> = (0..10)
                    .map(|pod| {
                        let [_, a, b, c] = (number as u32 * 10 + pod).to_be_bytes();
                        Endpoint::ready([10, a, b, c].into())
                    })
                    .collect();
                cluster
                    .apply(namespace, &objects::slice(&name, ("", 8080, "TCP"), &endpoints))
                    .await;
            }
        })
        .await;
    if cold_start {
        println!("\nCold start: {services} Services with 10 endpoints each, until ready");
        println!("to hold with 10000: 2 s of CPU time, 150 MB resident");
        println!("{:<22}{:>12}{:>12}{:>12}", "", "CPU time", "wall clock", "resident");
        let mut controller = measured(&cluster, "controller, first", "controller", &[]).await;
        is_planned(&cluster, services).await;
        println!("{:<22}{:>12.2?}  when the plan was written", "", cpu(&controller));
        measured(&cluster, "agent", "agent", &["--load-balancer", lb]).await;
        controller.stop();
        measured(&cluster, "controller, again", "controller", &[]).await;
    }
    if latency {
        let mut controller = start(&cluster, "controller", &[]);
        controller.ready().await;
        is_planned(&cluster, services).await;
        let mut agent = start(&cluster, "agent", &["--load-balancer", lb]);
        agent.ready().await;
        are_told(&cluster, services).await;
        event_to_live(&cluster, &namespaces[0], lb, vip, services).await;
    }
}

/// Waits until the plan has all Services.
async fn is_planned(cluster: &Cluster, services: usize) {
    bowline_testing::eventually("the plan is written", || async {
        let (_, plans) = cluster.get(&objects::path("Plan", bowline_testing::SYSTEM, "")).await;
        let fragments = plans["items"].as_array().into_iter().flatten();
        let count: usize =
            fragments.map(|plan| plan["spec"]["fragments"].as_array().map_or(0, Vec::len)).sum();
        if count == services { Ok(()) } else { Err(format!("{count} fragments")) }
    })
    .await;
}

/// Waits until the status of all Services says that they are served: later those writes would be measured.
async fn are_told(cluster: &Cluster, services: usize) {
    bowline_testing::eventually("all Services are told", || async {
        // The list is long, and reading it takes time from the writers.
        tokio::time::sleep(Duration::from_millis(500)).await;
        let (_, list) = cluster.get("/api/v1/services").await;
        let told = |service: &serde_json::Value| {
            service["status"]["conditions"].as_array().into_iter().flatten().any(|condition| {
                condition["type"] == "bowline.dev/Programmed" && condition["status"] == "True"
            })
        };
        let all = list["items"].as_array().into_iter().flatten();
        let count = all.filter(|service| told(service)).count();
        if count == services { Ok(()) } else { Err(format!("{count} of {services}")) }
    })
    .await;
}

/// The time from the write of an EndpointSlice to the first connection to the new member, over the API,
/// beside this many other Services.
async fn event_to_live(cluster: &Cluster, namespace: &str, lb: &str, vip: IpAddr, services: usize) {
    let (a, b) = (net::pod4(), net::pod4());
    let _a = Backend::tcp("a", a, 8080).await;
    let _b = Backend::tcp("b", b, 8080).await;
    cluster.apply(namespace, &objects::service("web", lb, &[(5000, 8080)])).await;
    let to = |address| objects::slice("web", ("", 8080, "TCP"), &[Endpoint::ready(address)]);
    cluster.apply(namespace, &to(a)).await;
    let dial = Dial::to(vip, 5000);
    bowline_testing::eventually("the first connection", || async { dial.line().await.map(|_| ()) })
        .await;
    let mut taken = Vec::new();
    for number in 0..CHANGES {
        let (address, name) = if number % 2 == 0 { (b, "b") } else { (a, "a") };
        let slice = to(address);
        let started = Instant::now();
        cluster.patch("EndpointSlice", namespace, "web-ipv4", &slice).await;
        while dial.line().await.expect("a connection").name != name {}
        taken.push(started.elapsed());
    }
    taken.sort();
    let at = |share: f64| taken[((taken.len() - 1) as f64 * share) as usize];
    println!("\nEvent to live: {CHANGES} endpoint changes, from before the write to a connection");
    println!("beside {services} Services with 10 endpoints each; to hold: the same for any number");
    println!("{:<10}{:>12}{:>12}{:>12}", "", "p50", "p99", "worst");
    println!("{:<10}{:>12.2?}{:>12.2?}{:>12.2?}", "bowline", at(0.5), at(0.99), at(1.0));
}

async fn measured(cluster: &Cluster, label: &str, role: &str, args: &[&str]) -> Bowline {
    let started = Instant::now();
    let mut process = start(cluster, role, args);
    process.ready().await;
    let wall = started.elapsed();
    let (cpu, resident) = (cpu(&process), resident(&process));
    println!("{label:<22}{cpu:>12.2?}{wall:>12.2?}{:>9.1} MB", resident as f64 / 1e6);
    process
}

/// User and system time so far.
fn cpu(process: &Bowline) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", process.process.id()));
    let stat = stat.expect("it runs");
    // The name in parentheses may contain anything; only numbers follow it.
    let fields: Vec<_> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks: u64 = fields[11..13].iter().map(|it| it.parse::<u64>().expect("ticks")).sum();
    Duration::from_millis(ticks * 10)
}

/// Resident memory in bytes.
fn resident(process: &Bowline) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.process.id()));
    let status = status.expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|it| it.split_whitespace().next()?.parse::<u64>().ok());
    number.expect("VmRSS") * 1024
}
