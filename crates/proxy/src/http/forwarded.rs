//! Tells members who the client is. What a client says about itself in these headers is dropped,
//! except `X-Forwarded-For`, to which its address is appended: only the last entry can be trusted.
//! Names with underscores count as well, since many members read both as one.

use super::connection::Connection;
use http::{HeaderName, HeaderValue};
use pingora_core::Result;
use pingora_http::RequestHeader;
use std::net::IpAddr;

/// What only a proxy says.
const OURS: [&str; 10] = [
    "forwarded",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-port",
    "x-forwarded-prefix",
    "x-forwarded-proto",
    "x-forwarded-scheme",
    "x-forwarded-server",
    "x-forwarded-ssl",
    "x-real-ip",
];

/// Writes the headers into a request to a member.
pub(super) fn tell(
    request: &mut RequestHeader,
    connection: &Connection,
    host: Option<&HeaderValue>,
) -> Result<()> {
    let client = connection.client.ip().to_canonical();
    let list = forwarded_for(
        request.headers.get_all("x-forwarded-for").iter().filter_map(|value| value.to_str().ok()),
        client,
    );
    let said = |name: &&HeaderName| OURS.contains(&&*name.as_str().replace('_', "-"));
    let said: Vec<_> = request.headers.keys().filter(said).cloned().collect();
    for name in said {
        request.remove_header(&name);
    }
    request.insert_header("X-Forwarded-For", list)?;
    let proto = if connection.tls.is_some() { "https" } else { "http" };
    request.insert_header("X-Forwarded-Proto", proto)?;
    request.insert_header("X-Forwarded-Port", connection.local.port().to_string())?;
    request.insert_header("X-Real-IP", client.to_string())?;
    if let Some(host) = host {
        request.insert_header("X-Forwarded-Host", host)?;
    }
    Ok(())
}

fn forwarded_for<'a>(before: impl Iterator<Item = &'a str>, client: IpAddr) -> String {
    let mut list = String::new();
    for entry in before.flat_map(|value| value.split(',')).map(str::trim) {
        if !entry.is_empty() {
            list.push_str(entry);
            list.push_str(", ");
        }
    }
    list.push_str(&client.to_string());
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_client_is_the_last_entry_whatever_was_there() {
        let client = "192.0.2.1".parse().unwrap();
        assert_eq!(forwarded_for([].into_iter(), client), "192.0.2.1");
        assert_eq!(
            forwarded_for(["10.0.0.1, 10.0.0.2", "", "10.0.0.3"].into_iter(), client),
            "10.0.0.1, 10.0.0.2, 10.0.0.3, 192.0.2.1"
        );
    }
}
