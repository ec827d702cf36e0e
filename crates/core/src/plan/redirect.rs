//! The redirect of clear-text requests for a host that is served over TLS. Every driver calls it and decides nothing
//! about redirects itself.

use super::{Listener, ListenerProtocol, Redirect, Serves};

/// The port of the redirect where no listener serves HTTPS.
const HTTPS: u16 = 443;
/// Permanent, with the same method and body.
const PERMANENT: u16 = 308;

impl Redirect {
    /// The redirect of clear-text requests in an entry for a site with [`super::SiteTls::redirect`]: to the same host
    /// and path, at the port of a listener that serves the entry over TLS. Listeners of the new configuration
    /// (`coming`) count before those in place (`there`), some of which may be about to close; of several, the one with
    /// the lowest address and port counts. Without one it is port 443: such a site is never served in clear text.
    pub fn to_https<'a>(
        entry: &str,
        coming: impl IntoIterator<Item = &'a Listener>,
        there: impl IntoIterator<Item = &'a Listener>,
    ) -> Self {
        let serves = |it: &&Listener| {
            it.protocol == ListenerProtocol::Https
                && matches!(&it.serves, Serves::Entry(name) if **name == *entry)
        };
        let at = |it: &&Listener| (it.address, it.port);
        let coming = coming.into_iter().filter(serves).min_by_key(at);
        let found = coming.or_else(|| there.into_iter().filter(serves).min_by_key(at));
        Self {
            scheme: Some("https".into()),
            host: None,
            port: Some(found.map_or(HTTPS, |listener| listener.port)),
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
        assert_eq!(Redirect::to_https(ENTRY_WEB, [], &all), to(8443));
        assert_eq!(Redirect::to_https(ENTRY_WEB, [], &all[..2]), to(443));
        let several = [9443, 8443, 7443].map(|port| listener(port, Https, ENTRY_WEB));
        let [high, middle, low] = &several;
        assert_eq!(Redirect::to_https(ENTRY_WEB, [], [high, low, middle]), to(7443));
        assert_eq!(Redirect::to_https(ENTRY_WEB, [], [low, middle, high]), to(7443));
        assert_eq!(Redirect::to_https(ENTRY_WEB, [high, middle], [low]), to(8443));
    }
}
