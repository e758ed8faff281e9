//! A client-side rate limit for API requests, as `--kube-api-qps` and `--kube-api-burst` ask for it.

use std::{
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use futures::future::BoxFuture;
use tokio::time::Instant;
use tower::{Layer, Service};

/// Lets `burst` requests pass at once and `qps` per second in the long run; the others wait their turn.
#[derive(Clone, Debug)]
pub struct RateLimit {
    interval: Duration,
    tolerance: Duration,
    /// When the next request would be due if all came evenly spaced (the "theoretical arrival time" of GCRA).
    due: Arc<Mutex<Option<Instant>>>,
}

impl RateLimit {
    /// A limit of `qps` requests per second (more than 0) with bursts of `burst`.
    #[must_use]
    pub fn new(qps: f64, burst: u32) -> Self {
        let interval = Duration::try_from_secs_f64(1.0 / qps).unwrap_or(Duration::MAX / 2);
        Self {
            interval,
            tolerance: interval.saturating_mul(burst.saturating_sub(1)),
            due: Arc::new(Mutex::new(None)),
        }
    }

    /// When a request that asks now may be sent.
    fn admit(&self, now: Instant) -> Instant {
        let mut due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
        let theoretical = due.map_or(now, |due| due.max(now));
        *due = theoretical.checked_add(self.interval);
        theoretical.checked_sub(self.tolerance).map_or(now, |earliest| earliest.max(now))
    }
}

impl<S> Layer<S> for RateLimit {
    type Service = RateLimited<S>;

    fn layer(&self, inner: S) -> Self::Service {
        RateLimited { inner, limit: self.clone() }
    }
}

/// A service whose calls wait for the limit.
#[derive(Clone, Debug)]
pub struct RateLimited<S> {
    inner: S,
    limit: RateLimit,
}

impl<S, R> Service<R> for RateLimited<S>
where
    S: Service<R>,
    S::Future: Send + 'static,
    S::Response: 'static,
    S::Error: 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<S::Response, S::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: R) -> Self::Future {
        let at = self.limit.admit(Instant::now());
        // The call is made now, because that is what readiness was promised for; a hyper call does nothing
        // before it is polled.
        let answer = self.inner.call(request);
        Box::pin(async move {
            tokio::time::sleep_until(at).await;
            answer.await
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_passes_and_the_rest_is_spaced() {
        let limit = RateLimit::new(10.0, 3);
        let now = Instant::now();
        let waits: Vec<_> = (0..6).map(|_| (limit.admit(now) - now).as_millis()).collect();
        assert_eq!(waits, [0, 0, 0, 100, 200, 300]);
    }

    #[tokio::test(start_paused = true)]
    async fn idle_time_earns_no_more_than_one_burst() {
        let limit = RateLimit::new(10.0, 2);
        let later = Instant::now() + Duration::from_secs(100);
        limit.admit(Instant::now());
        let waits: Vec<_> = (0..3).map(|_| (limit.admit(later) - later).as_millis()).collect();
        assert_eq!(waits, [0, 0, 100]);
    }

    #[test]
    fn a_tiny_rate_is_slow_and_not_a_panic() {
        let limit = RateLimit::new(1e-300, u32::MAX);
        let now = Instant::now();
        limit.admit(now);
        limit.admit(now);
    }
}
