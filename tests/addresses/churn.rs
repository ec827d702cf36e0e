//! Controllers that are killed at any moment while Services come, go and ask for something else, and pools
//! are edited. What the API shows in the end is judged without asking any of our code. `BOWLINE_LONG=1`
//! plays it with 1,000 Services; `BOWLINE_SEED` plays a run again.

use crate::stage::{Site, play, start, start_only};
use bowline_testing::objects::{self, path};
use bowline_testing::{Bowline, Call, Cluster};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Two at once are to do no harm, so nobody waits to be the leader. Moves begin and end while controllers
/// come and go.
const ARGS: [&str; 2] = ["--leader-elect=false", "--address-grace=2"];
/// Those who are left alone all the while.
const BYSTANDERS: usize = 10;

struct Size {
    services: u64,
    edits: u64,
    kills: u64,
    patience: Duration,
}

fn size() -> Size {
    match std::env::var("BOWLINE_LONG").is_ok_and(|it| it == "1") {
        true => {
            Size { services: 1_000, edits: 6_000, kills: 40, patience: Duration::from_secs(300) }
        }
        false => Size { services: 80, edits: 400, kills: 5, patience: Duration::from_secs(60) },
    }
}

/// Numbers that look random, the same for one seed.
struct Dice(AtomicU64);

impl Dice {
    fn new() -> Self {
        let seed = std::env::var("BOWLINE_SEED").ok().and_then(|it| it.parse().ok());
        let clock = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let seed = seed.unwrap_or_else(|| clock.map_or(1, |it| it.as_nanos() as u64));
        println!("BOWLINE_SEED={seed}");
        Self(AtomicU64::new(seed))
    }

    /// A number below this one.
    fn below(&self, limit: u64) -> u64 {
        let mut z = self.0.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % limit
    }
}

/// What somebody may ask for: nothing, an address that others want too, a small pool, to share.
fn wish(dice: &Dice) -> Value {
    let last = dice.below(12);
    match dice.below(10) {
        0 | 1 => json!({"bowline.dev/vip": format!("10.9.1.{last}")}),
        2 => json!({"metallb.io/address-pool": "side"}),
        3 | 4 => json!({"bowline.dev/allow-shared-ip": "key"}),
        5 => json!({"bowline.dev/allow-shared-ip": "key", "bowline.dev/vip": "10.9.1.40"}),
        6 => json!({"bowline.dev/vip": format!("10.9.0.{}", 64 + last)}),
        7 => json!({"bowline.dev/vip": "nonsense"}),
        _ => json!({}),
    }
}

fn service(name: &str, port: u64, annotations: Value) -> Value {
    let mut service = objects::service(name, "", &[(8000 + port as u16, 8080)]);
    service["metadata"]["annotations"] = annotations;
    service
}

/// One edit by a user or an administrator. That somebody else was quicker is no mistake.
async fn edit(cluster: &Cluster, namespace: &str, dice: &Dice, services: u64) {
    let name = format!("s{:04}", dice.below(services));
    let at = path("Service", namespace, &name);
    let merge = "application/merge-patch+json";
    let call = match dice.below(20) {
        0..=8 => Call::new("POST", path("Service", namespace, "")).json(&service(
            &name,
            dice.below(4),
            wish(dice),
        )),
        9..=12 => Call::new("DELETE", at),
        13..=17 => {
            let mut annotations = json!({
                "bowline.dev/vip": null, "metallb.io/address-pool": null,
                "bowline.dev/allow-shared-ip": null,
            });
            let wish = wish(dice);
            wish.as_object().into_iter().flatten().for_each(|(key, value)| {
                annotations[key] = value.clone();
            });
            let patch = json!({"metadata": {"annotations": annotations}});
            Call::new("PATCH", at).body(merge, patch.to_string())
        }
        18 => {
            // A block goes and comes: who has an address of it must move.
            let addresses = match dice.below(2) {
                0 => json!(["10.9.0.0/22"]),
                _ => json!(["10.9.0.0/26", "10.9.0.128-10.9.3.255"]),
            };
            let patch = json!({"spec": {"addresses": addresses}});
            Call::new("PATCH", path("AddressPool", "", "public")).body(merge, patch.to_string())
        }
        _ => {
            let addresses = json!([format!("10.10.0.0/{}", 28 + dice.below(2))]);
            let patch = json!({"spec": {"addresses": addresses}});
            Call::new("PATCH", path("AddressPool", "", "side")).body(merge, patch.to_string())
        }
    };
    let reply = cluster.http(call).await;
    assert!(matches!(reply.status, 200 | 201 | 404 | 409), "{}: {}", reply.status, reply.text());
}

async fn churn(cluster: &Cluster, namespace: &str, dice: &Dice, size: &Size) {
    for _ in 0..size.edits / 16 {
        let edits = (0..16).map(|_| edit(cluster, namespace, dice, size.services));
        futures::future::join_all(edits).await;
    }
}

/// Kills the controller again and again, at any moment of its life; sometimes the next one is there
/// before. At the end one is left.
async fn kill(
    cluster: &Cluster,
    mut controller: Bowline,
    dice: &Dice,
    kills: u64,
    over: &AtomicBool,
) -> Bowline {
    let mut turn = 0;
    // On a slow machine the edits last longer than the kills, and then there are more of them.
    while turn < kills || !over.load(Ordering::Relaxed) {
        turn += 1;
        tokio::time::sleep(Duration::from_millis(dice.below(1_500))).await;
        match dice.below(3) {
            0 => {
                let next = start(cluster, &ARGS).await;
                controller.process.kill();
                controller = next;
            }
            1 => {
                controller.process.kill();
                controller = start(cluster, &ARGS).await;
            }
            _ => {
                controller.process.kill();
                controller = start_only(cluster, &ARGS).await;
            }
        }
    }
    controller.process.kill();
    println!("killed {} times", turn + 1);
    start(cluster, &ARGS).await
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

async fn items(cluster: &Cluster, kind: &str, namespace: &str) -> Vec<Value> {
    let (_, list) = cluster.get(&path(kind, namespace, "")).await;
    list["items"].as_array().cloned().unwrap_or_default()
}

fn range(entry: &str) -> (Ipv4Addr, Ipv4Addr) {
    let ip = |text: &str| text.parse::<Ipv4Addr>().expect("an address");
    match entry.split_once('-') {
        Some((first, last)) => (ip(first), ip(last)),
        None => {
            let (first, length) = entry.split_once('/').expect("a network");
            let size = 1u32 << (32 - length.parse::<u32>().expect("a length"));
            (ip(first), Ipv4Addr::from(u32::from(ip(first)) + size - 1))
        }
    }
}

/// The pool that an address lies in.
fn pool_of<'a>(pools: &'a [Value], address: &str) -> Option<&'a Value> {
    let address: Ipv4Addr = address.parse().expect("an address");
    pools.iter().find(|pool| {
        let entries = pool["spec"]["addresses"].as_array().into_iter().flatten();
        entries.map(|it| range(text(it))).any(|(first, last)| (first..=last).contains(&address))
    })
}

/// Whether two who hold one address may do so.
fn may_share(one: &Value, other: &Value) -> bool {
    let ports = |it: &Value| -> BTreeSet<String> {
        it["ports"].as_array().into_iter().flatten().map(Value::to_string).collect()
    };
    !text(&one["key"]).is_empty()
        && one["key"] == other["key"]
        && one["namespace"] == other["namespace"]
        && ports(one).is_disjoint(&ports(other))
        && !ports(one).is_empty()
        && !ports(other).is_empty()
}

/// Those of one Address who may not hold it together.
fn clashes(record: &Value) -> Vec<String> {
    let holders = record["spec"]["holders"].as_array().cloned().unwrap_or_default();
    let mut clashes = Vec::new();
    for (at, one) in holders.iter().enumerate() {
        for other in holders[at + 1..].iter().filter(|other| !may_share(one, other)) {
            clashes.push(format!("{} has {one} and {other}", record["metadata"]["name"]));
        }
    }
    clashes
}

/// Looks at every version of every Address until all is over: one moment in which two hold what they may
/// not share is one too many. Returns how many it has seen.
async fn watch(cluster: &Cluster, over: &AtomicBool) -> usize {
    let (_, list) = cluster.get(&path("Address", "", "")).await;
    let mut version = text(&list["metadata"]["resourceVersion"]).to_owned();
    let mut seen = 0;
    // What happened before it was over is told by the watch that begins after it.
    let mut last = false;
    while !last {
        last = over.load(Ordering::Relaxed);
        let all = path("Address", "", "");
        let watch = format!("{all}?watch=1&timeoutSeconds=2&resourceVersion={version}");
        for event in cluster.http(Call::new("GET", watch)).await.json_lines() {
            assert!(event["type"] != "ERROR", "the watch is not whole: {event}");
            let clashes = clashes(&event["object"]);
            assert!(clashes.is_empty(), "at {}: {clashes:#?}", event["object"]["metadata"]);
            version = text(&event["object"]["metadata"]["resourceVersion"]).to_owned();
            seen += 1;
        }
    }
    seen
}

/// What is wrong with what the API shows.
async fn faults(cluster: &Cluster, namespace: &str) -> Vec<String> {
    let services = items(cluster, "Service", namespace).await;
    let records = items(cluster, "Address", "").await;
    let record = |address: &&str| {
        let record = records.iter().find(|it| text(&it["metadata"]["name"]) == *address);
        record.map(|it| format!("{address}: {} {}", it["spec"], it["status"]))
    };
    let pools = items(cluster, "AddressPool", "").await;
    let mut faults = Vec::new();
    let live: BTreeSet<&str> = services.iter().map(|it| text(&it["metadata"]["uid"])).collect();
    let mut held: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for record in &records {
        let address = text(&record["metadata"]["name"]);
        match pool_of(&pools, address) {
            Some(pool) => *counts.entry(text(&pool["metadata"]["name"])).or_default() += 1,
            None => faults.push(format!("{address} is in no pool")),
        }
        if record["spec"]["holders"].as_array().is_none_or(Vec::is_empty) {
            faults.push(format!("{address} has no holder"));
        }
        faults.extend(clashes(record));
        for holder in record["spec"]["holders"].as_array().into_iter().flatten() {
            let uid = text(&holder["uid"]);
            if !live.contains(uid) {
                faults.push(format!("{address} is held by {}, which is gone", holder["name"]));
            }
            held.entry(uid).or_default().push(address);
        }
    }
    for service in &services {
        let (name, annotations) =
            (&service["metadata"]["name"], &service["metadata"]["annotations"]);
        let mine = held.get(text(&service["metadata"]["uid"])).cloned().unwrap_or_default();
        let points = service["status"]["loadBalancer"]["ingress"].as_array();
        let shown: Vec<&str> = points.into_iter().flatten().map(|it| text(&it["ip"])).collect();
        if shown != mine {
            let records: Vec<_> = mine.iter().filter_map(record).collect();
            faults.push(format!("{name} shows {shown:?} and has {mine:?}: {records:?}"));
        }
        let conditions = service["status"]["conditions"].as_array().into_iter().flatten();
        let told: Vec<&str> = conditions
            .filter(|it| it["type"] == "bowline.dev/Programmed")
            .map(|it| text(&it["reason"]))
            .collect();
        let asked = text(&annotations["bowline.dev/vip"]);
        let served = match (asked, annotations["metallb.io/address-pool"].is_string()) {
            ("", true) => mine.iter().all(|it| it.starts_with("10.10.")),
            ("", false) | ("nonsense", _) => true,
            (asked, _) => mine == [asked],
        };
        match told[..] {
            ["Assigned"] if mine.len() == 1 && served && asked != "nonsense" => {}
            ["BadValue"] if asked == "nonsense" => {}
            ["AddressTaken" | "NotInPool"] if !served => {}
            ["PoolsExhausted"] if annotations["metallb.io/address-pool"].is_string() => {}
            _ => faults.push(format!("{name} asks for {annotations}, has {mine:?}: {told:?}")),
        }
    }
    for pool in &pools {
        let name = text(&pool["metadata"]["name"]);
        let counted = pool["status"]["ipv4"]["assigned"].as_u64();
        if counted != Some(counts.get(name).copied().unwrap_or(0)) {
            faults.push(format!("pool {name} counts {counted:?} of {counts:?}"));
        }
    }
    faults
}

/// Waits until nothing is wrong.
async fn converge(cluster: &Cluster, namespace: &str, patience: Duration) -> Duration {
    let begun = Instant::now();
    loop {
        let faults = faults(cluster, namespace).await;
        if faults.is_empty() {
            return begun.elapsed();
        }
        let first = &faults[..faults.len().min(20)];
        assert!(begun.elapsed() < patience, "{} faults, such as {first:#?}", faults.len());
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Objects with their versions: equal when nobody has written any of them.
async fn versions(site: &Site, kind: &str, names: &[String]) -> Vec<(String, String, String)> {
    let mut versions = Vec::new();
    for name in names {
        let namespace = if kind == "Service" { &site.namespace } else { "" };
        let metadata = site.cluster.read(kind, namespace, name).await["metadata"].clone();
        let [uid, version] = ["uid", "resourceVersion"].map(|key| text(&metadata[key]).to_owned());
        versions.push((name.clone(), uid, version));
    }
    versions
}

#[test]
fn killed_at_any_moment_of_churn_controllers_give_nothing_twice_move_nobody_and_leak_nothing() {
    play(async || {
        let (size, dice) = (size(), Dice::new());
        let mut site = Site::new(&ARGS).await;
        site.pool("public", json!({"addresses": ["10.9.0.0/22"]})).await;
        let side = json!({"addresses": ["10.10.0.0/28"], "autoAssign": false});
        site.pool("side", side).await;
        let bystanders: Vec<String> = (0..BYSTANDERS).map(|at| format!("bystander-{at}")).collect();
        for name in &bystanders {
            site.service(name, json!({})).await;
        }
        converge(&site.cluster, &site.namespace, size.patience).await;
        let theirs: Vec<String> = (0..BYSTANDERS).map(|at| format!("10.9.0.{at}")).collect();
        let services = versions(&site, "Service", &bystanders).await;
        let records = versions(&site, "Address", &theirs).await;

        let Site { cluster, namespace, controller } = site;
        let over = AtomicBool::new(false);
        let edits = async {
            churn(&cluster, &namespace, &dice, &size).await;
            over.store(true, Ordering::Relaxed);
        };
        let kills = kill(&cluster, controller, &dice, size.kills, &over);
        let quiet = AtomicBool::new(false);
        let all = async {
            let ((), controller) = futures::join!(edits, kills);
            let took = converge(&cluster, &namespace, size.patience).await;
            println!("all is well {took:?} after the last start");
            quiet.store(true, Ordering::Relaxed);
            controller
        };
        let (controller, seen) = futures::join!(all, watch(&cluster, &quiet));
        println!("saw {seen} versions of Addresses");
        assert!(seen > 0, "the watch has told nothing");
        site = Site { cluster, namespace, controller };
        // Whom nothing concerned nobody has written to.
        assert_eq!(versions(&site, "Service", &bystanders).await, services);
        assert_eq!(versions(&site, "Address", &theirs).await, records);

        for service in items(&site.cluster, "Service", &site.namespace).await {
            let name = text(&service["metadata"]["name"]);
            site.cluster.delete("Service", &site.namespace, name).await;
        }
        converge(&site.cluster, &site.namespace, size.patience).await;
        assert_eq!(items(&site.cluster, "Address", "").await, Vec::<Value>::new());
    });
}
