//! Limits what one client may use of nginx, so that it leaves connections for others. A client is an IPv4 address or
//! the /64 of an IPv6 address. Each process counts for itself, because each has connections of its own, and the kernel
//! may send all connections of a client to one process. nginx counts HTTP requests from the end of their headers, and
//! TCP connections and UDP sessions from their beginning. Pure; the renderer calls it.

use super::super::text::{BadText, Word};
use super::{CONNECTIONS, Settings};

/// The bytes of a binary IPv6 address, and of its /64.
const IPV6: &str = r"~(?s)\A(?<bowline_network>.{8}).{8}\z";

/// Memory for 262,144 clients. nginx keeps only the present ones, and refuses clients beyond that.
const ROOM: &str = "16m";

/// The limits on clients, for all servers of nginx.
pub(super) struct Clients {
    /// How many connections one client may have in a process.
    most: u64,
    /// A hash in the names of the zones, so that each file has zones of its own. nginx keeps a zone over a reload,
    /// including the counts of killed processes: their connections would count forever.
    file: String,
}

impl Clients {
    /// The limits beside this number of listeners, for the file with this hash. Each connection of a client needs a
    /// second one to a member, so an eighth of all connections of a process is a quarter of those that clients can
    /// have.
    pub(super) fn new(settings: &Settings, listeners: usize, file: String) -> Self {
        let listeners = u64::try_from(listeners).unwrap_or(u64::MAX);
        let all = CONNECTIONS.min(settings.files).saturating_sub(listeners);
        Self { most: (all / 8).max(1), file }
    }

    /// Limits on requests. The agent's own requests, at the status socket, are not counted.
    pub(super) fn http(&self) -> Result<String, BadText> {
        let Self { most, file } = self;
        let key = key("$pid", "        \"unix:\" \"\";\n")?;
        Ok(format!(
            "{key}    limit_conn_zone $bowline_client zone=requests-{file}:{ROOM};\n    \
             limit_conn requests-{file} {most};\n    limit_conn_log_level info;\n"
        ))
    }

    /// Limits on connections and on UDP sessions. A datagram may have any source address, so sessions count apart from
    /// connections, and all sessions together get a quarter of a process's connections.
    pub(super) fn stream(&self) -> Result<String, BadText> {
        let Self { most, file } = self;
        let key = key("$protocol $pid", "")?;
        Ok(format!(
            "{key}    map $protocol $bowline_datagrams {{\n        default \"\";\n        UDP $pid;\n    }}\n    \
             limit_conn_zone $bowline_client zone=clients-{file}:{ROOM};\n    \
             limit_conn_zone $bowline_datagrams zone=datagrams-{file}:64k;\n    \
             limit_conn clients-{file} {most};\n    limit_conn datagrams-{file} {};\n    \
             limit_conn_log_level info;\n",
            2 * most
        ))
    }
}

/// The map with the key that a client is counted by.
fn key(before: &str, others: &str) -> Result<String, BadText> {
    let six = Word::quoted(IPV6)?;
    Ok(format!(
        "    map $binary_remote_addr $bowline_client {{\n        default \"{before} \
         $binary_remote_addr\";\n{others}        {six} \"{before} $bowline_network\";\n    }}\n"
    ))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{rendered, sample, settings};
    use super::*;
    use crate::samples::member;
    use std::collections::BTreeSet;
    use std::path::Path;

    fn most(files: u64, listeners: usize) -> u64 {
        let settings = Settings { files, ..settings(Path::new("/run/bowline")) };
        Clients::new(&settings, listeners, String::new()).most
    }

    #[test]
    fn a_client_has_an_eighth_of_what_a_process_has_beside_its_listeners() {
        assert_eq!(most(20_000, 0), 1_024);
        assert_eq!(most(20_000, 4_096), 512);
        assert_eq!(most(512, 32), 60);
        assert_eq!(most(4, 8), 1, "one that may have none could not be served");
    }

    /// The names of the zones that count clients.
    fn zones(config: &str) -> BTreeSet<String> {
        let names = config.split("zone=").skip(1).filter_map(|it| it.split(':').next());
        names.filter(|it| !it.starts_with("limit-")).map(str::to_owned).collect()
    }

    #[test]
    fn a_file_counts_nothing_that_processes_with_another_file_left() {
        let before = sample();
        let mut after = before.clone();
        after.put_pool(before.pools["service/shop/dns/"].as_ref().clone(), &[member(8)]);
        let of = |desired| zones(&rendered(desired).wanted.config());
        assert_eq!(of(&before).len(), 3, "{:?}", of(&before));
        assert_eq!(of(&before), of(&before));
        assert!(of(&before).is_disjoint(&of(&after)));
    }
}
