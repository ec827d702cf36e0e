//! Limits what one client may use of HAProxy, so that it leaves connections for others. A client is an IPv4 address or
//! the /64 of an IPv6 address; its connections and requests are counted over all listeners. Every frontend includes
//! these lines. They do not depend on the plan, so no change of the plan causes a reload because of them. Pure; the
//! renderer calls it.

use super::super::text::{BadText, Word};
use super::super::wanted::Section;
use super::Render;

/// The table that counts the connections of clients. No pool has this name.
const CONNECTIONS: &str = ":clients";
/// The table that counts their requests.
const REQUESTS: &str = ":requests";

/// How many connections, and how many concurrent requests, one client may have. A connection needs two file
/// descriptors, so this is a quarter of all connections; half if listeners and health checks use all the descriptors
/// that they may.
pub(super) fn most(descriptors: usize) -> usize {
    (descriptors / 8).max(1)
}

/// The first lines of a frontend: a connection beyond the limit is reset before anything is read from it.
pub(super) fn connections(most: usize) -> Vec<String> {
    let track = "tcp-request connection track-sc1";
    vec![
        // A listener for both families sees IPv4 clients as IPv6 addresses with this prefix, which would share one /64.
        format!("{track} src table {CONNECTIONS} if {{ src ::ffff:0:0/96 }}"),
        // A connection that is counted is not counted again.
        format!("{track} src,ipmask(32,64) table {CONNECTIONS}"),
        format!("tcp-request connection reject if {{ sc1_conn_cur gt {most} }}"),
    ]
}

/// More lines for an HTTP frontend: an HTTP/2 connection has many requests, and each needs a file descriptor towards a
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
    /// Adds the tables. An entry that counts something has a descriptor open, so with as many entries as descriptors
    /// there is always room for one more client: HAProxy drops entries that count nothing.
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
