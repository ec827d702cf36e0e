//! Parses HAProxy's answers about what it has. Foreign text: it skips what it cannot parse, and the caller's comparison
//! finds that missing. Pure; the HAProxy driver calls it.

use super::diff::{Check, Closed, Line, Running};
use super::text::{Word, unnamed};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

/// The answer to `show info`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Info {
    /// Its pid.
    pub pid: u32,
    /// Its version.
    pub version: String,
    /// The hash of the loaded configuration.
    pub mark: String,
}

/// Parses `show info`.
pub fn info(answer: &str) -> Info {
    let mut info = Info::default();
    for (name, value) in answer.lines().filter_map(|line| line.split_once(": ")) {
        match name {
            "Pid" => info.pid = value.trim().parse().unwrap_or_default(),
            "Version" => info.version = value.trim().to_owned(),
            "description" => info.mark = value.trim().to_owned(),
            _ => {}
        }
    }
    info
}

/// Parses a master's answer to `show info` for a worker: whether the worker accepts no connections, because it stops or
/// is gone.
pub fn takes_nothing(answer: &str) -> bool {
    let answer = answer.trim();
    !answer.is_empty() && !answer.lines().any(|line| line == "Stopping: 0")
}

/// Parses `show sess` of a worker: the sessions of clients, without those of admin sockets.
pub fn sessions(answer: &str) -> Vec<&str> {
    let own = |line: &&str| !line.contains(" fe=GLOBAL ");
    let id = |line| str::split_once(line, ": proto=").map(|(id, _)| id);
    let ids = answer.lines().filter(own).filter_map(id);
    ids.filter(|id| id.starts_with("0x")).collect()
}

/// Parses `show servers state`: servers with our names, by backend.
pub fn servers(answer: &str) -> BTreeMap<Word, BTreeMap<SocketAddr, Running>> {
    /// The server is in maintenance, by command or by file.
    const MAINTENANCE: u32 = 0x01 | 0x04 | 0x20;
    /// The server was asked to drain. We drain by weight instead.
    const DRAIN: u32 = 0x08 | 0x10;
    /// The state of a server that takes no traffic.
    const STOPPED: &str = "0";
    /// The health check exists, and is turned on.
    const CONFIGURED: u32 = 0x02;
    const ENABLED: u32 = 0x04;
    let mut all: BTreeMap<Word, BTreeMap<SocketAddr, Running>> = BTreeMap::new();
    for line in answer.lines().filter(|line| !line.starts_with('#')) {
        let fields: Vec<_> = line.split(' ').collect();
        let [_, backend, _, name, ip, state, admin, weight, ..] = *fields else { continue };
        let (Ok(backend), Some(address)) = (Word::key(backend), unnamed(name)) else { continue };
        let (Ok(admin), Ok(weight)) = (admin.parse::<u32>(), weight.parse()) else { continue };
        let port = fields.get(18).copied().unwrap_or_default();
        let at = ip.parse::<IpAddr>().ok().zip(port.parse::<u16>().ok()).map(SocketAddr::from);
        let check = fields.get(13).and_then(|state| state.parse().ok()).unwrap_or(0_u32);
        let check = match (check & CONFIGURED != 0, check & ENABLED != 0) {
            (false, _) => Check::Absent,
            (true, false) => Check::Off,
            (true, true) => Check::On,
        };
        let running = Running {
            down: state == STOPPED && admin & MAINTENANCE == 0,
            check,
            weight,
            retired: admin & MAINTENANCE != 0,
            drains: admin & DRAIN != 0,
            elsewhere: at != Some(address),
        };
        all.entry(backend).or_default().insert(address, running);
    }
    all
}

/// Parses `show map FILE`.
pub fn map(answer: &str) -> BTreeMap<Word, Word> {
    let entry = |line: &str| {
        let (_, entry) = line.split_once(' ').filter(|(id, _)| id.starts_with("0x"))?;
        let (key, value) = entry.split_once(' ')?;
        Some((Word::key(key).ok()?, Word::key(value.trim_end()).ok()?))
    };
    answer.lines().filter_map(entry).collect()
}

/// Parses `show ssl crt-list -n FILE`.
pub fn crt_list(answer: &str) -> Vec<Line> {
    let line = |line: &str| {
        let mut words = line.split(' ').filter(|word| !word.is_empty());
        let (file, number) = words.next()?.rsplit_once(':')?;
        let hosts = words.filter(|word| !word.starts_with('[') && !word.ends_with(']'));
        Some(Line {
            file: file.to_owned(),
            number: number.parse().ok()?,
            hosts: hosts.map(str::to_owned).collect(),
        })
    };
    answer.lines().filter(|text| !text.starts_with('#')).filter_map(line).collect()
}

/// Parses `show ssl cert`: files of certificates of ours.
pub fn certificates(answer: &str) -> BTreeSet<String> {
    let ours = |line: &&str| line.starts_with("certs/") && line.ends_with(".pem");
    answer.lines().map(str::trim).filter(ours).map(str::to_owned).collect()
}

/// Parses `show backend`.
pub fn backends(answer: &str) -> BTreeSet<Word> {
    let names = answer.lines().map(str::trim).filter(|line| !line.starts_with('#'));
    names.filter_map(|name| Word::key(name).ok()).collect()
}

/// Parses `show stat` of frontends: those that accept no connections, and whether they can resume.
pub fn closed(answer: &str) -> BTreeMap<Word, Closed> {
    let mut lines = answer.lines();
    let columns = lines.next().unwrap_or_default().trim_start_matches("# ");
    let column = columns.split(',').position(|name| name == "status").unwrap_or(usize::MAX);
    let frontend = |line: &str| {
        let name = Word::key(line.split(',').next()?).ok()?;
        match line.split(',').nth(column)? {
            "PAUSED" => Some((name, Closed::Paused)),
            "STOP" => Some((name, Closed::Stopped)),
            _ => None,
        }
    };
    lines.filter_map(frontend).collect()
}

/// The answer to `show proc` of a master.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Processes {
    /// The master's pid.
    pub master: u32,
    /// The workers' pids, newest first, without old ones.
    pub workers: Vec<u32>,
    /// The pids of old workers, newest first.
    pub old: Vec<u32>,
    /// Failed reloads since the last successful one.
    pub failed: u32,
}

/// Parses `show proc`.
pub fn processes(answer: &str) -> Processes {
    let mut found = Processes::default();
    let mut old = false;
    for line in answer.lines() {
        old |= line.starts_with("# old");
        let words: Vec<_> = line.split_whitespace().collect();
        let [pid, kind, ..] = *words else { continue };
        let Ok(pid) = pid.parse() else { continue };
        match kind {
            "master" => {
                found.master = pid;
                let failed =
                    line.split("failed: ").nth(1).map(|it| it.trim_end_matches([']', ' ']));
                found.failed =
                    failed.and_then(|it| it.split(']').next()?.parse().ok()).unwrap_or(0);
            }
            "worker" if old => found.old.push(pid),
            "worker" => found.workers.push(pid),
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_takes_nothing_when_it_stops_or_is_gone() {
        assert!(takes_nothing("Name: HAProxy\nPid: 7\nStopping: 1\nJobs: 2\n"));
        assert!(takes_nothing("Can't find the target PID matching the prefix '@!7'\n"));
        assert!(!takes_nothing("Name: HAProxy\nPid: 7\nStopping: 0\nJobs: 2\n"));
        assert!(!takes_nothing("\n"), "it ends just now");
    }

    #[test]
    fn answers_of_a_real_haproxy_are_read() {
        let state = "1\n# be_id be_name …\n4 pool:a 2 10.0.0.2:80 10.0.0.2 2 0 7 5 1 1 0 0 6 0 0 0 - 80 - 0 0 - - 0\n\
                     4 pool:a 3 fd00::1:80 fd00::1 0 1 1 1 1 1 0 0 2 0 0 0 - 80 - 0 0 - - 0\n\
                     4 pool:a 4 10.0.0.3:80 10.0.0.9 2 8 1 1 1 1 0 0 0 0 0 0 - 80 - 0 0 - - 0\n\
                     5 other 1 theirs 10.0.0.2 2 0 7 5\n\n";
        let running = |weight, retired, check| Running { retired, check, ..Running::of(weight) };
        let expected = BTreeMap::from([(
            Word::key("pool:a").expect("a word"),
            BTreeMap::from([
                ("10.0.0.2:80".parse().expect("an address"), running(7, false, Check::On)),
                ("[fd00::1]:80".parse().expect("an address"), running(1, true, Check::Off)),
                (
                    "10.0.0.3:80".parse().expect("an address"),
                    Running {
                        drains: true,
                        elsewhere: true,
                        check: Check::Absent,
                        ..Running::of(1)
                    },
                ),
            ]),
        )]);
        assert_eq!(servers(state), expected);
        let map = map("0x559ee08298c0 a.example/api/ pool:a\n0x55 b/x;y\\z/ p\n\n");
        let map: Vec<_> = map.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        assert_eq!(map, [("a.example/api/", "pool:a"), ("b/x;y\\z/", "p")]);
        let list = crt_list(
            "# web.crt-list\ncerts/a.pem:1 [alpn h2,http/1.1\0] a.example *.b.example\n\n",
        );
        let hosts = vec!["a.example".to_owned(), "*.b.example".to_owned()];
        assert_eq!(list, [Line { file: "certs/a.pem".into(), number: 1, hosts }]);
        assert_eq!(
            certificates("# filename\ncerts/a.pem\n*certs/b.pem\n\n"),
            ["certs/a.pem".to_owned()].into()
        );
        let closed = closed(
            "# pxname,svname,qcur,status,weight\nhttp:a,FRONTEND,,OPEN,\nhttp:b,FRONTEND,,PAUSED,\ntcp:c,FRONTEND,,STOP,\n\n",
        );
        let closed: Vec<_> = closed.iter().map(|(name, how)| (name.as_str(), *how)).collect();
        assert_eq!(closed, [("http:b", Closed::Paused), ("tcp:c", Closed::Stopped)]);
        let backends = backends("# name\npool:a\n:nobody\n\n");
        assert_eq!(backends.iter().map(Word::as_str).collect::<Vec<_>>(), [":nobody", "pool:a"]);
        let info = info("Name: HAProxy\nVersion: 2.6.12\nPid: 42\ndescription: bowline-ab\n");
        assert_eq!(info, Info { pid: 42, version: "2.6.12".into(), mark: "bowline-ab".into() });
    }

    #[test]
    fn the_sessions_of_clients_are_told_from_our_own() {
        let answer = "0x55f0997d69a0: proto=tcpv4 src=127.0.0.1:43738 fe=f be=b srv=s ts=00 age=1s\n\
                      0x7f0238039e60: proto=sockpair src=unix:2 fe=GLOBAL be=<NONE> srv=<none> ts=00\n\n";
        assert_eq!(sessions(answer), ["0x55f0997d69a0"]);
    }

    #[test]
    fn workers_that_leave_are_told_from_the_others() {
        let answer = "#<PID>          <type>          <reloads>       <uptime>        <version>      \n\
                      1162            master          5 [failed: 2]   0d00h02m07s     2.6.12\n# workers\n\
                      1271            worker          1               0d00h00m00s     2.6.12\n# old workers\n\
                      1233            worker          3               0d00h00m43s     2.6.12\n# programs\n\n";
        let found = Processes { master: 1162, workers: vec![1271], old: vec![1233], failed: 2 };
        assert_eq!(processes(answer), found);
    }
}
