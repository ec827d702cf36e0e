//! How long an answer from the API is waited for. A server that accepts and stays silent would else hold
//! a writer up for good. Everybody who sends single requests asks through here; watches do not.

use kube::Error;
use std::time::Duration;

/// Long enough for a server that is busy, short enough that a Lease does not run out meanwhile.
const PATIENCE: Duration = Duration::from_secs(10);

/// The answer to a request, or an error when there is none in time.
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
