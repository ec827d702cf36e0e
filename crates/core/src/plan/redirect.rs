//! Where clients are sent that ask in clear text for what is served over TLS. Every driver asks here and
//! decides nothing about it itself.

use super::{Listener, ListenerProtocol, Redirect, Serves};

/// The port of HTTPS where no listener says another.
const HTTPS: u16 = 443;
/// For good, and with the same method and body.
const PERMANENT: u16 = 308;

impl Redirect {
    /// What a client is told that asks an entry in clear text for a site with [`super::SiteTls::redirect`]: the
    /// same on the port where one of these listeners serves the entry over TLS. Where none does, on the
    /// usual one: such a site is not served in clear text all the same.
    pub fn to_https<'a>(entry: &str, listeners: impl IntoIterator<Item = &'a Listener>) -> Self {
        let serves = |it: &&Listener| {
            it.protocol == ListenerProtocol::Https
                && matches!(&it.serves, Serves::Entry(name) if **name == *entry)
        };
        let port = listeners.into_iter().find(serves).map_or(HTTPS, |listener| listener.port);
        Self {
            scheme: Some("https".into()),
            host: None,
            port: Some(port),
            path: None,
            status: PERMANENT,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::ENTRY_WEB;

    fn listener(port: u16, protocol: ListenerProtocol, entry: &str) -> Listener {
        let serves = Serves::Entry(entry.into());
        Listener { address: [192, 0, 2, 1].into(), port, protocol, serves }
    }

    #[test]
    fn clear_text_is_sent_to_where_the_same_entry_is_served_over_tls() {
        use ListenerProtocol::{Http, Https};
        let all = [
            listener(8080, Http, ENTRY_WEB),
            listener(9443, Https, "other"),
            listener(8443, Https, ENTRY_WEB),
        ];
        let to = |port| Redirect {
            scheme: Some("https".into()),
            host: None,
            port: Some(port),
            path: None,
            status: 308,
        };
        assert_eq!(Redirect::to_https(ENTRY_WEB, &all), to(8443));
        assert_eq!(Redirect::to_https(ENTRY_WEB, &all[..2]), to(443));
    }
}
