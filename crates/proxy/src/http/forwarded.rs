//! The headers that tell members about the client. The proxy drops these headers from the client's
//! request, except `X-Forwarded-For`, to which it appends the client's address: only the last entry
//! can be trusted. Names with underscores are dropped too, since many members read both spellings
//! as one.

use http::HeaderValue;
use pingora_core::Result;
use pingora_http::RequestHeader;
use std::net::IpAddr;

/// Headers that only a proxy may set.
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

/// What members are told about all requests of one connection.
#[derive(Debug)]
pub(super) struct Told {
    client: HeaderValue,
    port: HeaderValue,
    proto: HeaderValue,
}

impl Told {
    /// For a client that connected to this port, with TLS or without.
    pub(super) fn new(client: IpAddr, port: u16, secure: bool) -> Self {
        let client = HeaderValue::try_from(client.to_canonical().to_string());
        Self {
            // Digits, dots and colons are always valid.
            client: client.unwrap_or(HeaderValue::from_static("unknown")),
            port: port.into(),
            proto: HeaderValue::from_static(if secure { "https" } else { "http" }),
        }
    }

    /// Writes the headers into a request to a member.
    pub(super) fn tell(
        &self,
        request: &mut RequestHeader,
        host: Option<&HeaderValue>,
    ) -> Result<()> {
        let list = self.forwarded_for(request.headers.get_all("x-forwarded-for").iter());
        let said: Vec<_> =
            request.headers.keys().filter(|name| is_ours(name.as_str())).cloned().collect();
        for name in said {
            request.remove_header(&name);
        }
        request.insert_header("X-Forwarded-For", list)?;
        request.insert_header("X-Forwarded-Proto", self.proto.clone())?;
        request.insert_header("X-Forwarded-Port", self.port.clone())?;
        request.insert_header("X-Real-IP", self.client.clone())?;
        if let Some(host) = host {
            request.insert_header("X-Forwarded-Host", host)?;
        }
        Ok(())
    }

    /// The list with the client at its end. Values that are no text are left out.
    fn forwarded_for<'a>(&self, before: impl Iterator<Item = &'a HeaderValue>) -> HeaderValue {
        let mut list = Vec::new();
        let before = before.filter_map(|value| value.to_str().ok());
        for entry in before.flat_map(|value| value.split(',')).map(str::trim) {
            if !entry.is_empty() {
                list.extend_from_slice(entry.as_bytes());
                list.extend_from_slice(b", ");
            }
        }
        if list.is_empty() {
            return self.client.clone();
        }
        list.extend_from_slice(self.client.as_bytes());
        HeaderValue::try_from(list).unwrap_or_else(|_| self.client.clone())
    }
}

/// Whether only a proxy may set this header.
fn is_ours(name: &str) -> bool {
    let alike = |a: u8, b: u8| a == b || (a == b'_' && b == b'-');
    let same = |ours: &str| {
        ours.len() == name.len() && name.bytes().zip(ours.bytes()).all(|(a, b)| alike(a, b))
    };
    name.starts_with(['f', 'x']) && OURS.iter().any(|ours| same(ours))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_client_is_the_last_entry_whatever_was_there() {
        let told = Told::new("::ffff:192.0.2.1".parse().unwrap(), 80, false);
        let list = |before: &[&'static str]| {
            let before: Vec<_> = before.iter().map(|it| HeaderValue::from_static(it)).collect();
            told.forwarded_for(before.iter())
        };
        assert_eq!(list(&[]), "192.0.2.1");
        assert_eq!(
            list(&["10.0.0.1, 10.0.0.2", "", "10.0.0.3"]),
            "10.0.0.1, 10.0.0.2, 10.0.0.3, 192.0.2.1"
        );
    }

    #[test]
    fn what_a_client_says_of_itself_is_dropped_however_it_is_written() {
        let mut request = RequestHeader::build("GET", b"/", None).unwrap();
        for name in
            ["X_Forwarded-Proto", "x-real_ip", "Forwarded", "X-Forwarded-Server", "X-Forward"]
        {
            request.insert_header(name, "said").unwrap();
        }
        let told = Told::new("2001:db8::1".parse().unwrap(), 8443, true);
        told.tell(&mut request, Some(&HeaderValue::from_static("shop.example"))).unwrap();
        let mut headers: Vec<_> = request
            .headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.to_str().unwrap()))
            .collect();
        headers.sort_unstable();
        assert_eq!(
            headers,
            [
                ("x-forward", "said"),
                ("x-forwarded-for", "2001:db8::1"),
                ("x-forwarded-host", "shop.example"),
                ("x-forwarded-port", "8443"),
                ("x-forwarded-proto", "https"),
                ("x-real-ip", "2001:db8::1"),
            ]
        );
    }
}
