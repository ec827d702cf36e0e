//! Limits how long an answer from the API may take. Without the limit, a server that accepts a request
//! and stays silent would block a writer for ever. The election, the agent's reports, Events and the
//! controller's writers use it; watches, imports and manifests do not.

use kube::Error;
use std::time::Duration;

/// Long enough for a server that is busy, short enough that a Lease does not run out meanwhile.
const PATIENCE: Duration = Duration::from_secs(10);

/// The answer to a request, or an error if none comes in time.
pub(crate) async fn answer<T>(request: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    within(PATIENCE, request).await
}

async fn within<T>(
    patience: Duration,
    request: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    match tokio::time::timeout(patience, request).await {
        Ok(answer) => answer,
        Err(_) => Err(Error::Service(format!("no answer within {patience:?}").into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_request_without_an_answer_ends_as_an_error() {
        let request = std::future::pending::<Result<(), _>>();
        let error = within(Duration::from_millis(1), request).await.unwrap_err();
        assert_eq!(error.to_string(), "ServiceError: no answer within 1ms");
    }
}
