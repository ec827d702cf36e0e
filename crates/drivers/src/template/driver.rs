//! Templates as the driver of one load balancer: they render its plan instead of everything that is exposed. The first
//! plan is written at once, later ones when a burst of changes is over. A task writes and notifies, so the agent can do
//! other work meanwhile; what fails is tried again with the newest plan.

use super::certificates::Certificates;
use super::publish::{Done, Publisher, blocking};
use super::subject::Subject;
use crate::desired::Desired;
use crate::{Driver, Error};
use bowline_core::backoff::Backoff;
use bowline_core::burst::Burst;
use bowline_core::exposed::view::Told;
use bowline_core::update::{Extent, Refusal, Report, Update};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// Keeps files in step with the plan of a load balancer.
#[derive(Debug)]
pub struct Templates {
    /// None: the task has it.
    publisher: Option<Publisher>,
    certificates: Option<Arc<Certificates>>,
    domain: Arc<str>,
    settle: Duration,
    desired: Desired,
    /// Whether a plan has been written.
    begun: bool,
    burst: Option<Burst<Instant>>,
    /// When to write again, because something failed or a refused consumer is due.
    again: Option<Instant>,
    failed: bool,
    backoff: Backoff,
    refused: Vec<Refusal>,
    working: Option<JoinHandle<(Publisher, Result<Written, Error>)>>,
}

/// The result of a write: the consumers that are left out, and when to write again.
#[derive(Debug)]
struct Written {
    told: Vec<Told>,
    again: Option<Instant>,
}

impl Templates {
    /// Renders these templates once nothing has changed for `settle`.
    pub fn new(publisher: Publisher, domain: &str, settle: Duration) -> Self {
        Self {
            publisher: Some(publisher),
            certificates: None,
            domain: domain.into(),
            settle,
            desired: Desired::default(),
            begun: false,
            burst: None,
            again: None,
            failed: false,
            backoff: Backoff::new(Duration::from_millis(500), Duration::from_secs(30)),
            refused: Vec::new(),
            working: None,
        }
    }

    /// Writes the certificates of the plan to this folder, too.
    pub fn with_certificates(self, certificates: Option<Certificates>) -> Self {
        Self { certificates: certificates.map(Arc::new), ..self }
    }

    /// Writes and notifies once. Returns the refusals.
    pub async fn once(&mut self, update: &Update) -> Result<Vec<Refusal>, Error> {
        self.desired.apply(update);
        loop {
            self.begin();
            self.ended().await?;
            // Finding refused consumers may take several rounds.
            if self.again.is_none_or(|again| again > Instant::now()) {
                return Ok(self.refused.clone());
            }
        }
    }

    fn report(&self) -> Report {
        let waiting = self.burst.is_some() || self.failed || self.working.is_some();
        Report { refused: self.refused.clone(), waiting, ..Report::default() }
    }

    /// When the next write is due.
    fn next(&self) -> Option<Instant> {
        let over = self.burst.map(|burst| burst.over(self.settle));
        over.into_iter().chain(self.again).min()
    }

    fn begin(&mut self) {
        let Some(publisher) = self.publisher.take() else { return };
        let (desired, domain) = (self.desired.clone(), self.domain.clone());
        let certificates = self.certificates.clone();
        (self.burst, self.again) = (None, None);
        self.working = Some(tokio::spawn(work(publisher, certificates, desired, domain)));
    }

    /// Waits until the task has ended. Cancel-safe.
    async fn ended(&mut self) -> Result<(), Error> {
        let Some(working) = &mut self.working else { return Ok(()) };
        let ended = working.await;
        self.working = None;
        let (publisher, came) = ended.map_err(|error| Error {
            doing: "filling templates".to_owned(),
            cause: error.to_string(),
            retry: false,
        })?;
        self.publisher = Some(publisher);
        self.failed = came.is_err();
        match came {
            Ok(written) => {
                self.begun = true;
                self.backoff.worked();
                self.again = written.again;
                let refused =
                    |Told { consumer, problem }| Refusal { consumer, problem, extent: Extent::All };
                self.refused = written.told.into_iter().map(refused).collect();
                Ok(())
            }
            Err(error) => {
                // The random part of a backoff keeps clients apart; agents that write files of their own do not need
                // it.
                self.again = Some(Instant::now() + self.backoff.failed(u32::MAX));
                Err(error)
            }
        }
    }
}

async fn work(
    mut publisher: Publisher,
    certificates: Option<Arc<Certificates>>,
    desired: Desired,
    domain: Arc<str>,
) -> (Publisher, Result<Written, Error>) {
    let came = publish(&mut publisher, certificates.as_ref(), &desired, &domain).await;
    (publisher, came)
}

/// Writes and notifies. A failed write does not delay notifiers that must run for an earlier one.
async fn publish(
    publisher: &mut Publisher,
    certificates: Option<&Arc<Certificates>>,
    desired: &Desired,
    domain: &str,
) -> Result<Written, Error> {
    let written = write(publisher, certificates, desired, domain).await;
    let mut failures = Vec::new();
    for (notifier, came) in publisher.notify().await {
        match came {
            Ok(said) => tracing::info!(%notifier, said, "notified"),
            Err(why) => failures.push(format!("{notifier}: {why}")),
        }
    }
    let (written, used) = written?;
    if !failures.is_empty() {
        return Err(Error {
            doing: "--notify".to_owned(),
            cause: failures.join("; "),
            retry: true,
        });
    }
    if let Some(certificates) = certificates.cloned() {
        // No program reads a configuration with other certificates any more.
        if let Err(error) = blocking(move || certificates.tidy(&used)).await? {
            tracing::warn!(%error, "cannot remove certificates that are no longer used");
        }
    }
    Ok(written)
}

/// Writes certificates, and then the files that name them. Returns the hashes of the certificates in use.
async fn write(
    publisher: &mut Publisher,
    certificates: Option<&Arc<Certificates>>,
    desired: &Desired,
    domain: &str,
) -> Result<(Written, BTreeSet<Arc<str>>), Error> {
    publisher.reread()?;
    let bundles = certificates.map(|_| Certificates::bundles(desired)).unwrap_or_default();
    let folder = certificates.map(|certificates| (certificates.folder(), &bundles));
    let (subject, mut told) = Subject::planned_with(desired, domain, &publisher.knows(), folder);
    let used = subject.uses();
    if let Some(certificates) = certificates.cloned() {
        let used = used.clone();
        let written = blocking(move || certificates.write(&used, &bundles)).await?;
        written.map_err(|error| Error {
            doing: "writing certificates".to_owned(),
            cause: error.to_string(),
            retry: true,
        })?;
    }
    let Done { changed, refused, again } = publisher.write(&subject, Instant::now()).await?;
    told.extend(refused);
    for file in changed {
        tracing::info!(output = %file.display(), "written");
    }
    Ok((Written { told, again }, used))
}

impl Driver for Templates {
    async fn apply(&mut self, update: &Update) -> Result<Report, Error> {
        self.desired.apply(update);
        if self.begun {
            self.burst = Some(Burst::heard(self.burst, Instant::now()));
        } else {
            self.begin();
            self.ended().await?;
        }
        Ok(self.report())
    }

    async fn changed(&mut self) -> Result<Report, Error> {
        if self.working.is_none() {
            let next = self.next().filter(|_| self.publisher.is_some());
            match next {
                Some(at) => tokio::time::sleep_until(at.into()).await,
                None => std::future::pending().await,
            }
            self.begin();
        }
        match self.ended().await {
            Err(error) if !error.retry => return Err(error),
            Err(error) => {
                tracing::warn!(%error, "the files are not in step with the plan; the write is tried again");
            }
            Ok(()) => {}
        }
        Ok(self.report())
    }

    /// The files stay: programs that read them go on serving.
    async fn drain(&mut self, grace: Duration) {
        let _ = tokio::time::timeout(grace, self.ended()).await;
    }
}
