//! Tells members who the client is. What a client says about itself in these headers is dropped,
//! except `X-Forwarded-For`, to which its address is appended: only the last entry can be trusted.

use super::connection::Connection;
use http::HeaderValue;
use pingora_core::Result;
use pingora_http::RequestHeader;
use std::net::IpAddr;

/// Writes the headers into a request to a member.
pub(super) fn tell(request: &mut RequestHeader, connection: &Connection, host: &str) -> Result<()> {
    let client = connection.client.ip().to_canonical();
    let list = forwarded_for(
        request.headers.get_all("x-forwarded-for").iter().filter_map(|value| value.to_str().ok()),
        client,
    );
    request.insert_header("X-Forwarded-For", list)?;
    let proto = if connection.tls.is_some() { "https" } else { "http" };
    request.insert_header("X-Forwarded-Proto", proto)?;
    request.insert_header("X-Forwarded-Port", connection.local.port().to_string())?;
    request.insert_header("X-Real-IP", client.to_string())?;
    request.remove_header("Forwarded");
    match HeaderValue::from_str(host) {
        Ok(host) if !host.is_empty() => request.insert_header("X-Forwarded-Host", host)?,
        _ => drop(request.remove_header("X-Forwarded-Host")),
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
