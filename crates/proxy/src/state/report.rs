//! What cannot be done, as a refusal of each object concerned. It changes nothing; `state` calls it
//! after each update.

use super::State;
use crate::listen::Failed;
use crate::router::BadPattern;
use bowline_core::outcome::{Problem, Reason, quote};
use bowline_core::plan::Serves;
use bowline_core::update::{Extent, ListenerKey, Refusal, Report};

impl State {
    /// All current refusals.
    pub(super) fn refusals(&self) -> Report {
        let mut refused: Vec<Refusal> = self
            .listeners
            .iter()
            .filter_map(|(key, wanted)| {
                let problem = problem(key, wanted.outcome.as_ref().err()?);
                let consumer = wanted.resolved.consumer.clone();
                Some(Refusal { consumer, problem, extent: Extent::Listener(*key) })
            })
            .collect();
        self.refuse_client_addresses(&mut refused);
        self.refuse_certificates(&mut refused);
        refused.extend(self.shared.router.load().unused().into_iter().map(|unused| {
            let why = match unused.why {
                BadPattern::Unreadable => "it cannot be read",
                BadPattern::TooLarge => "it is too large",
                BadPattern::TooMany => "there are too many",
            };
            let (pattern, host) = (quote(&unused.pattern), unused.host);
            let message = format!("the expression {pattern} on host {host} is not used: {why}");
            let problem = Problem::new(Reason::BadValue, message);
            Refusal { consumer: unused.consumer, problem, extent: Extent::Part }
        }));
        refused.sort();
        refused.dedup();
        Report { refused, ..Report::default() }
    }

    /// Members see the address of this machine: a pool that asks for the client's address is
    /// served, with a refusal.
    fn refuse_client_addresses(&self, refused: &mut Vec<Refusal>) {
        for (key, wanted) in &self.listeners {
            let Serves::Pool(pool) = &wanted.resolved.listener.serves else { continue };
            if self.shared.backend(pool).is_none_or(|backend| backend.pool.config().snat) {
                continue;
            }
            let at = key.socket();
            let message = format!(
                "{at}: the built-in proxy cannot show members the client's address (snat \"false\"); \
                 members see this machine's address, and proxy-protocol \"v2\" tells them the client's"
            );
            let problem = Problem::new(Reason::NotSupported, message);
            let consumer = wanted.resolved.consumer.clone();
            refused.push(Refusal { consumer, problem, extent: Extent::Part });
        }
    }

    fn refuse_certificates(&self, refused: &mut Vec<Refusal>) {
        if self.bad_certificates.is_empty() {
            return;
        }
        for (key, site) in &self.sites {
            let certificate = site.tls.as_ref().and_then(|tls| tls.certificate.as_ref());
            let Some(why) = certificate.and_then(|it| self.bad_certificates.get(&it.hash)) else {
                continue;
            };
            for (_, consumer) in &site.rules {
                let message = format!("the certificate of {} cannot be served: {why}", key.host);
                let problem = Problem::new(Reason::BadCertificate, message);
                let consumer = consumer.clone();
                refused.push(Refusal { consumer, problem, extent: Extent::Part });
            }
        }
    }
}

fn problem(key: &ListenerKey, failed: &Failed) -> Problem {
    let at = key.socket();
    match failed {
        Failed::Bind(error) => {
            Problem::new(Reason::BindFailed, format!("{at} cannot be bound: {error}"))
        }
        Failed::NotSupported(protocol) => {
            let protocol = format!("{protocol:?}").to_uppercase();
            Problem::new(
                Reason::NotSupported,
                format!("{at}: the built-in proxy does not carry {protocol}"),
            )
        }
        Failed::NoPool => Problem::new(Reason::BackendNotFound, format!("{at} has no pool")),
    }
}
