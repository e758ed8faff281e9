//! When requests are sent and how long answers are waited for: the limits that `--kube-api-qps` and
//! `--kube-api-burst` ask for, and a time-out that their wait does not count against.

use std::{
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use futures::future::BoxFuture;
use tokio::time::Instant;
use tower::{BoxError, Layer, Service};

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

    /// Waits until it is this caller's turn. Whoever gives up waiting loses the turn, and nobody else has it.
    pub async fn turn(&self) {
        tokio::time::sleep_until(self.admit(Instant::now())).await;
    }

    /// When a request that asks now may be sent.
    fn admit(&self, now: Instant) -> Instant {
        let mut due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
        let theoretical = due.map_or(now, |due| due.max(now));
        *due = theoretical.checked_add(self.interval);
        theoretical.checked_sub(self.tolerance).map_or(now, |earliest| earliest.max(now))
    }
}

/// Sends each request when its turn has come and gives it up when the answer does not begin in time. The wait for
/// the turn does not count: it is no sign of a dead server.
#[derive(Clone, Debug)]
pub struct Pacing {
    /// The limit, if there is one.
    pub limit: Option<RateLimit>,
    /// How long the beginning of an answer is waited for.
    pub answer_within: Duration,
}

impl<S> Layer<S> for Pacing {
    type Service = Paced<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Paced { inner, pacing: self.clone() }
    }
}

/// A service whose calls are paced.
#[derive(Clone, Debug)]
pub struct Paced<S> {
    inner: S,
    pacing: Pacing,
}

impl<S, R> Service<R> for Paced<S>
where
    S: Service<R, Error = BoxError>,
    S::Future: Send + 'static,
    S::Response: 'static,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<S::Response, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: R) -> Self::Future {
        let turn = self.pacing.limit.as_ref().map(|limit| limit.admit(Instant::now()));
        let within = self.pacing.answer_within;
        // The call is made now, because that is what readiness was promised for; a hyper call does nothing
        // before it is polled.
        let answer = self.inner.call(request);
        Box::pin(async move {
            if let Some(turn) = turn {
                tokio::time::sleep_until(turn).await;
            }
            match tokio::time::timeout(within, answer).await {
                Ok(answer) => answer,
                Err(_) => Err(format!("no answer within {} s", within.as_secs()).into()),
            }
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

    #[tokio::test(start_paused = true)]
    async fn waiting_for_ones_turn_does_not_count_as_a_missing_answer() {
        let server = tower::service_fn(|n: u32| async move { Ok::<_, BoxError>(n) });
        let pacing = Pacing { limit: Some(RateLimit::new(0.1, 1)), answer_within: Duration::from_secs(1) };
        let mut paced = pacing.layer(server);
        let answers = [paced.call(1), paced.call(2), paced.call(3)];
        for (n, answer) in (1..).zip(answers) {
            assert_eq!(answer.await.unwrap(), n);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_does_not_begin_is_given_up() {
        let server = tower::service_fn(|(): ()| std::future::pending::<Result<(), BoxError>>());
        let mut paced = Pacing { limit: None, answer_within: Duration::from_secs(30) }.layer(server);
        assert_eq!(paced.call(()).await.unwrap_err().to_string(), "no answer within 30 s");
    }

    #[test]
    fn a_tiny_rate_is_slow_and_not_a_panic() {
        let limit = RateLimit::new(1e-300, u32::MAX);
        let now = Instant::now();
        limit.admit(now);
        limit.admit(now);
    }
}
