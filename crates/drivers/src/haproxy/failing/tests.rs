//! Which servers are read, and what is told of them.

use super::*;

const DOWN: &str = "<1>2026-11-19T14:01:38.040131+00:00 Server pool:p/127.0.0.1:80 is DOWN, reason: Health analyze, \
                    info: \"Detected 3 consecutive errors\". 0 active and 0 backup servers left.";

fn line(second: u32, backend: &str, what: &str) -> String {
    format!(
        "<5>2026-11-19T14:01:{second:02}.5+00:00 Server {backend}/10.0.0.1:80 is {what}, reason: …\n"
    )
}

fn word(name: &str) -> Word {
    Word::key(name).unwrap()
}

fn of(names: &[&str]) -> Read {
    Read::Of(names.iter().map(|name| word(name)).collect())
}

fn at(last: u8) -> SocketAddr {
    ([10, 0, 0, last], 80).into()
}

fn servers(down: &[bool]) -> (BTreeMap<SocketAddr, Running>, Servers) {
    let running = |(n, down): (u8, &bool)| (at(n), Running { down: *down, ..Running::of(1) });
    let running: BTreeMap<_, _> = (1..).zip(down).map(running).collect();
    let weights = running.keys().map(|at| (*at, 1)).collect();
    (running, Servers { weights, ..Servers::default() })
}

fn failing(down: &[bool]) -> FailingServers {
    let mut failing = FailingServers::default();
    look(&mut failing, down);
    failing
}

fn look(failing: &mut FailingServers, down: &[bool]) {
    let (running, wanted) = servers(down);
    failing.look(&word("pool:p"), &running, Some(&wanted));
}

#[test]
fn only_backends_of_which_the_ring_says_something_new_are_read() {
    let now = Instant::now();
    let mut failing = FailingServers::default();
    let mut ring = line(1, "pool:old", "DOWN");
    failing.begin(&ring);
    failing.hear(&ring);
    assert_eq!(failing.take(now), of(&[]));
    ring += &line(2, "pool:a", "DOWN");
    ring += &line(2, "pool:b", "UP");
    ring += "<0>2026-11-19T14:01:33.4+00:00 backend pool:t has no server available!\n";
    ring += "<5>2026-11-19T14:01:33.5+00:00 Server pool:c/10.0.0.1:80 was DOWN and now enters maintenance.\n\n";
    failing.hear(&ring);
    failing.hear(&ring);
    assert_eq!(failing.take(now), of(&["pool:a", "pool:b"]));
    assert_eq!(failing.take(now), of(&[]));
    assert_eq!(changed(DOWN), Some(word("pool:p")));
}

#[test]
fn what_an_empty_ring_says_later_is_new() {
    let mut failing = FailingServers::default();
    failing.begin("\n");
    failing.hear("No such event sink\n");
    failing.hear(&line(1, "pool:a", "DOWN"));
    assert_eq!(failing.take(Instant::now()), of(&["pool:a"]));
}

#[test]
fn lines_that_were_overwritten_or_are_many_have_all_servers_read_but_not_all_the_time() {
    let now = Instant::now();
    let mut failing = FailingServers::default();
    failing.begin(&line(1, "pool:a", "DOWN"));
    failing.hear(&line(9, "pool:b", "DOWN"));
    assert_eq!(failing.take(now), Read::All);
    failing.has_read_all(now, Duration::from_secs(1));
    failing.hear(&(0..20).map(|n| line(10, &format!("pool:{n}"), "UP")).collect::<String>());
    assert_eq!(failing.take(now + Duration::from_secs(9)), of(&[]));
    assert_eq!(failing.take(now + Duration::from_secs(10)), Read::All);
    assert_eq!(failing.take(now + Duration::from_secs(10)), of(&[]));
}

#[test]
fn servers_that_shall_have_traffic_and_are_down_are_told() {
    let mut failing = failing(&[true, false, true, true, true]);
    let told = FailingPool { pool: "pool/p".into(), count: 4, named: vec![at(1), at(3), at(4)] };
    assert_eq!(failing.pools(), [told]);
    let (mut running, mut wanted) = servers(&[true, true, true]);
    running.get_mut(&at(1)).unwrap().retired = true;
    wanted.weights.insert(at(2), 0);
    wanted.weights.remove(&at(3));
    failing.look(&word("pool:p"), &running, Some(&wanted));
    assert_eq!(failing.pools(), []);
}

#[test]
fn a_pool_that_fails_stays_failing_over_a_load_until_its_servers_were_checked() {
    let now = Instant::now();
    let mut failing = failing(&[true]);
    failing.has_loaded(now);
    look(&mut failing, &[false]);
    assert!(failing.has(&word("pool:p")));
    assert_eq!(failing.take(now + SETTLES / 2), of(&[]));
    // A second load before the end.
    failing.has_loaded(now + SETTLES / 2);
    assert_eq!(failing.take(now + SETTLES), of(&[]));
    assert_eq!(failing.take(now + SETTLES * 2), of(&["pool:p"]));
    look(&mut failing, &[false]);
    assert_eq!(failing.pools(), []);
}

#[test]
fn of_equal_lines_each_is_taken_in() {
    let now = Instant::now();
    let (down, up) = (line(1, "pool:a", "DOWN"), line(1, "pool:a", "UP"));
    let mut failing = FailingServers::default();
    failing.hear(&down);
    assert_eq!(failing.take(now), of(&["pool:a"]));
    let ring = [&*down, &line(1, "pool:b", "DOWN"), &up, &down].concat();
    failing.hear(&ring);
    assert_eq!(
        failing.take(now),
        of(&["pool:a", "pool:b"]),
        "the first line is known, not the last"
    );
    // The oldest line is overwritten.
    let rest = &ring[down.len()..];
    failing.hear(&format!("{rest}{up}"));
    assert_eq!(failing.take(now), of(&["pool:a"]));
    failing.hear(&line(9, "pool:c", "DOWN"));
    assert_eq!(failing.take(now), Read::All, "nothing is left of what is known");
}
