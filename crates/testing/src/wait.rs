//! Waits for a condition by polling it, never by sleeping for a guessed time.

use std::future::Future;
use std::time::{Duration, Instant};

/// How long a condition may take. Only a failing test reaches this limit.
const LIMIT: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(50);

/// Polls `probe` until it returns `Ok`, and returns the value. After a minute it panics with `what`
/// and the last reason.
pub async fn eventually<T, F, Fut>(what: &str, mut probe: F) -> T
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<T, String>>,
{
    let start = Instant::now();
    loop {
        let why = match probe().await {
            Ok(value) => return value,
            Err(why) => why,
        };
        assert!(start.elapsed() < LIMIT, "{what}: not within {LIMIT:?}; last: {why}");
        tokio::time::sleep(PAUSE).await;
    }
}

/// The same for code outside of a tokio runtime.
#[allow(clippy::disallowed_methods, reason = "what everything else waits with")]
pub fn until<T>(what: &str, mut probe: impl FnMut() -> Result<T, String>) -> T {
    let start = Instant::now();
    loop {
        let why = match probe() {
            Ok(value) => return value,
            Err(why) => why,
        };
        assert!(start.elapsed() < LIMIT, "{what}: not within {LIMIT:?}; last: {why}");
        std::thread::sleep(PAUSE);
    }
}
