//! Which DNS servers to ask: the configured ones, or those of this machine. Search domains and other
//! settings of this machine are ignored, so that a name means the same wherever it is looked up. The
//! command line uses it.

use hickory_resolver::system_conf::parse_resolv_conf;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

const PORT: u16 = 53;

/// Why a text is not the address of a DNS server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not the address of a DNS server, such as 192.0.2.53:53 or [2001:db8::53]:53")]
pub struct BadServer(String);

/// Parses `ADDR:PORT`, or an address alone with the usual port.
pub fn parse_server(text: &str) -> Result<SocketAddr, BadServer> {
    let server = text
        .parse::<SocketAddr>()
        .or_else(|_| text.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, PORT)))
        .ok();
    server.filter(|server| server.port() != 0).ok_or_else(|| BadServer(text.to_owned()))
}

/// The servers of a `resolv.conf`. Empty if it has none or cannot be read, which is logged.
pub fn system_servers(resolv_conf: &Path) -> Vec<SocketAddr> {
    let read = std::fs::read(resolv_conf).map_err(|error| error.to_string());
    let parsed = read.and_then(|text| parse_resolv_conf(text).map_err(|error| error.to_string()));
    match parsed {
        Ok((config, _)) => {
            let servers = config.name_servers().iter();
            servers.map(|server| SocketAddr::new(server.ip, PORT)).collect()
        }
        Err(error) => {
            let file = resolv_conf.display();
            tracing::warn!("{file} names no DNS server: {error}");
            Vec::new()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_an_address_with_or_without_a_port() {
        let read = |text| parse_server(text).map(|server| server.to_string());
        assert_eq!(read("127.0.0.1:5353"), Ok("127.0.0.1:5353".into()));
        assert_eq!(read("127.0.0.1"), Ok("127.0.0.1:53".into()));
        assert_eq!(read("2001:db8::53"), Ok("[2001:db8::53]:53".into()));
        assert_eq!(read("[2001:db8::53]:5353"), Ok("[2001:db8::53]:5353".into()));
        for bad in ["", "dns.example", "127.0.0.1:0", "127.0.0.1:65536", "1.1.1.1,8.8.8.8"] {
            assert_eq!(read(bad), Err(BadServer(bad.to_owned())));
        }
    }

    #[test]
    fn of_resolv_conf_the_servers_count_in_their_order() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let text = "search a.test b.test\nnameserver 192.0.2.2\nnameserver 2001:db8::1\n\
                    options ndots:5\nnameserver 192.0.2.1\n";
        std::fs::write(file.path(), text).unwrap();
        let servers: Vec<_> =
            system_servers(file.path()).iter().map(SocketAddr::to_string).collect();
        assert_eq!(servers, ["192.0.2.2:53", "[2001:db8::1]:53", "192.0.2.1:53"]);
    }

    #[test]
    fn without_a_readable_resolv_conf_there_is_no_server() {
        assert_eq!(system_servers(Path::new("/nonexistent/resolv.conf")), []);
        let file = tempfile::NamedTempFile::new().unwrap();
        assert_eq!(system_servers(file.path()), []);
    }
}
