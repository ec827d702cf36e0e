//! What one client may have of HAProxy, so that it leaves connections for others: a client is an IPv4 address or the /64
//! of an IPv6 address, and its connections and requests are counted over all listeners. Every frontend asks for
//! these lines. They depend on nothing in the plan, so no change of it needs a reload because of them. Pure.

use super::super::text::{BadText, Word};
use super::super::wanted::Section;
use super::Render;

/// Where connections of clients are counted. No pool has such a name.
const CONNECTIONS: &str = ":clients";
/// Where their requests are.
const REQUESTS: &str = ":requests";

/// How many connections one client may have, and how many requests at a time. HAProxy counts two files for a
/// connection, so this is a quarter of its connections; half where listeners and checks have all the files that they
/// may have.
pub(super) fn most(descriptors: usize) -> usize {
    (descriptors / 8).max(1)
}

/// What a frontend says first: a connection beyond the limit is reset before anything is read from it.
pub(super) fn connections(most: usize) -> Vec<String> {
    let track = "tcp-request connection track-sc1";
    vec![
        // A listener for both families sees an IPv4 client so; the /64 would be that of all of them.
        format!("{track} src table {CONNECTIONS} if {{ src ::ffff:0:0/96 }}"),
        // No second entry for a connection that has one.
        format!("{track} src,ipmask(32,64) table {CONNECTIONS}"),
        format!("tcp-request connection reject if {{ sc1_conn_cur gt {most} }}"),
    ]
}

/// What a frontend for HTTP says, too: on HTTP/2 one connection has many requests, and each takes a file towards a
/// member.
pub(super) fn requests(most: usize) -> Vec<String> {
    let track = "http-request track-sc2";
    vec![
        format!("{track} src table {REQUESTS} if {{ src ::ffff:0:0/96 }}"),
        format!("{track} src,ipmask(32,64) table {REQUESTS}"),
        format!(
            "http-request return status 503 content-type text/plain hdr Cache-Control no-store hdr \
             Retry-After 1 string 'This client has too many requests under way.' if {{ sc2_conn_cur gt \
             {most} }}"
        ),
    ]
}

impl Render<'_> {
    /// The tables. An entry that counts something has a file open, so with as many entries as files there is always
    /// room for one more client: HAProxy drops entries that count nothing.
    pub(super) fn tables_of_clients(&mut self) -> Result<(), BadText> {
        let size = self.settings.descriptors.max(1);
        let table = format!("    stick-table type ipv6 size {size} expire 1s store conn_cur\n");
        for name in [CONNECTIONS, REQUESTS] {
            self.insert_proxy(Section::Backend(Word::section(name)?), table.clone().into())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_has_an_eighth_of_the_files_in_connections() {
        assert_eq!(most(8_000), 1_000);
        assert_eq!(most(3), 1, "one that may have none could not be served");
    }
}
