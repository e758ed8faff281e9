//! Waiting on conditions.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

const INTERVAL: Duration = Duration::from_millis(50);

/// Calls `check` until it succeeds and returns what it found. An error of `check` says what is still missing, so it
/// should show the state that was seen.
///
/// # Errors
/// `limit` has passed; the error carries `what` was waited for and the last thing that was missing.
pub async fn wait_until<T, F>(what: &str, limit: Duration, mut check: F) -> Result<T>
where
    F: AsyncFnMut() -> Result<T>,
{
    let begun = Instant::now();
    loop {
        // A check that hangs (a connection to a server that is being stopped) must not outlast the limit.
        let left = limit.saturating_sub(begun.elapsed()).max(Duration::from_millis(500));
        let missing = match tokio::time::timeout(left, check()).await {
            Ok(Ok(found)) => return Ok(found),
            Ok(Err(missing)) => missing,
            Err(_) => anyhow::anyhow!("the check did not answer"),
        };
        if begun.elapsed() >= limit {
            return Err(missing).with_context(|| format!("not within {limit:?}: {what}"));
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

/// Calls `check` again and again for `span`: something must *not* happen in that time.
///
/// # Errors
/// The first error of `check`, with `what` should have held.
pub async fn holds_for<F>(what: &str, span: Duration, mut check: F) -> Result<()>
where
    F: AsyncFnMut() -> Result<()>,
{
    let begun = Instant::now();
    while begun.elapsed() < span {
        check().await.with_context(|| format!("after {:?} no longer true: {what}", begun.elapsed()))?;
        tokio::time::sleep(INTERVAL).await;
    }
    Ok(())
}
