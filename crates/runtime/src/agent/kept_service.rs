//! The agent's part in serving kept state: gives it to the driver while the API has not delivered everything, and
//! withdraws it when it belongs to a load balancer that is gone. `core::kept_state` decides when.

use super::Agent;
use crate::clock;
use crate::observe::Change;
use crate::random;
use crate::roles::RoleError;
use bowline_core::clock::in_words;
use bowline_core::kept_state;
use bowline_core::pool_health;
use bowline_core::replicas::Said;
use bowline_core::resolver;
use bowline_core::update::Update;
use bowline_drivers::Driver;
use k8s_openapi::jiff::Timestamp;
use std::time::Duration;

impl<D: Driver> Agent<D> {
    /// The API has not delivered everything in time: serves the kept state until it has.
    pub(super) async fn serve_kept(&mut self) -> Result<(), RoleError> {
        let Some(kept) = self.memory.kept() else { return Ok(()) };
        let (mut update, since) = (kept.update.clone(), kept.since);
        let refused = resolver::leave_out(&mut update, &self.rules);
        if refused > 0 {
            tracing::warn!(
                members = refused,
                "members of the kept state that the rules refuse get no traffic"
            );
        }
        match self.driver.apply(&update).await {
            Ok(report) => {
                let at = Timestamp::from_second(since).unwrap_or_default();
                let text = format!(
                    "load balancer {} is served from the kept state of {at}: the API has not delivered \
                     everything since the start",
                    self.load_balancer
                );
                tracing::warn!("{text}");
                self.context.changes.tell(Change::Trouble(text.clone()));
                self.context.readiness.note(&self.load_balancer, Some(text));
                self.context.metrics.kept_since(&self.load_balancer, Some(since));
                self.memory.tell(kept_state::Event::Serves);
                self.failed = None;
                self.backoff.worked();
                self.applied(&update, report);
                Ok(())
            }
            Err(error) => {
                let wait = self.driver_failed(error)?;
                self.memory.tell(kept_state::Event::ServeFailed(wait));
                Ok(())
            }
        }
    }

    /// The kept state is of a load balancer that is gone: serves nothing until the API has delivered everything.
    pub(super) async fn withdraw_kept(&mut self) -> Result<(), RoleError> {
        let nothing = Update { complete: true, ..Update::default() };
        match self.driver.apply(&nothing).await {
            Ok(report) => {
                tracing::warn!(
                    "the kept state is withdrawn: another load balancer has this name now"
                );
                self.context.readiness.awaits(self.first_plan.as_str());
                self.memory.tell(kept_state::Event::Withdrawn);
                self.forget_kept();
                self.failed = None;
                self.backoff.worked();
                for change in self.tally.count(&nothing, &report) {
                    self.context.changes.tell(change);
                }
                self.context.metrics.members(&self.load_balancer, self.tally.members());
                self.health
                    .handle(pool_health::Event::Failing(report.failing.clone()), clock::now());
                (self.said, self.given) = (report, None);
                let error = self.error();
                self.report.send_modify(|said| {
                    *said = Said {
                        addresses: std::mem::take(&mut said.addresses),
                        version: said.version.take(),
                        admin: said.admin,
                        error,
                        ..Said::default()
                    };
                });
                Ok(())
            }
            Err(error) => {
                let wait = self.driver_failed(error)?;
                self.memory.tell(kept_state::Event::WithdrawFailed(wait));
                Ok(())
            }
        }
    }

    /// The driver failed to apply or to withdraw kept state: how long to wait. An error: a retry does not help.
    fn driver_failed(&mut self, error: bowline_drivers::Error) -> Result<Duration, RoleError> {
        if !error.retry {
            return Err(RoleError::Driver(error));
        }
        self.context.metrics.error("Apply");
        let wait = self.backoff.failed(random::number());
        tracing::warn!(%error, wait = %in_words(wait), "the driver failed; it is tried again");
        // A driver that failed may have lost anything.
        (self.failed, self.owes_all) = (Some(error.to_string()), true);
        self.tell_error();
        Ok(wait)
    }

    /// Withdraws the notes that kept state is served.
    pub(super) fn forget_kept(&self) {
        self.context.readiness.note(&self.load_balancer, None);
        self.context.metrics.kept_since(&self.load_balancer, None);
    }
}
