//! Templates as the driver of one load balancer: its plan instead of all that is exposed. A file that
//! cannot be made, or a notifier that fails, is an error, and the agent comes again with everything.

use super::publish::Publisher;
use super::subject::Subject;
use crate::desired::Desired;
use crate::{Driver, Error};
use bowline_core::exposed::view::Told;
use bowline_core::update::{Extent, Refusal, Report, Update};
use std::sync::Arc;
use std::time::Duration;

/// Keeps files in step with the plan of a load balancer.
#[derive(Debug)]
pub struct Templates {
    publisher: Publisher,
    domain: Arc<str>,
    desired: Desired,
}

impl Templates {
    /// Fills these templates.
    pub fn new(publisher: Publisher, domain: &str) -> Self {
        Self { publisher, domain: domain.into(), desired: Desired::default() }
    }
}

impl Driver for Templates {
    async fn apply(&mut self, update: &Update) -> Result<Report, Error> {
        self.desired.apply(update);
        self.publisher.reread()?;
        let ranges = self.publisher.knows_source_ranges();
        let (subject, mut told) = Subject::planned(&self.desired, &self.domain, ranges);
        told.extend(self.publisher.write(&subject).await?.refused);
        let mut failures = Vec::new();
        for (notifier, came) in self.publisher.notify().await {
            match came {
                Ok(said) => tracing::info!(%notifier, said, "notified"),
                Err(why) => failures.push(format!("{notifier}: {why}")),
            }
        }
        if !failures.is_empty() {
            let cause = failures.join("; ");
            return Err(Error { doing: "--notify".to_owned(), cause, retry: true });
        }
        let refused =
            |Told { consumer, problem }| Refusal { consumer, problem, extent: Extent::All };
        Ok(Report { refused: told.into_iter().map(refused).collect(), waiting: false })
    }

    /// The files stay: whoever reads them serves on.
    async fn drain(&mut self, _grace: Duration) {}
}
