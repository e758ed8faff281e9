//! Settles one key: plan, fetch what the plan misses, do what it says, and plan again, until nothing is left.

use std::{fmt::Display, sync::Arc, time::Duration};

use dra_api::{
    Claim, DeviceTaintRule, Object, ObjectKey, Pod, PodGroup, ResourcePoolStatusRequest, Uid,
    taint::RuleVersion,
};
use dra_controllers::{
    devicetainteviction::expand::REASON_EXPANSION_FAILED,
    plan::{
        Action, EvictionMode, Lookup, NewClaim, Notice, Pass, Plan, PoolAnswer, Precondition, RuleReport,
        Subject, SubjectKind,
    },
    resourceclaim::{REASON_CREATION, REASON_RESERVATION, note},
    view::{Source, Tracked, View},
};
use dra_runtime::{
    events::{Occurrence, Recorder, Regarding, Severity},
    queue::Next,
};
use futures::{StreamExt, stream};
use jiff::Timestamp;
use kube::Client;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{
    EvictionMetrics, Journal, Metrics, PoolMetrics, Shared,
    failure::Failure,
    journal::Happening,
    request::{self, HttpRequest},
};

/// Lookups at once for all keys together: each takes a connection.
const LOOKUPS: usize = 64;
/// When a key that waits for somebody is looked at again, so that the event that says so is renewed before the
/// API server drops it (after an hour by default).
const TELL_AGAIN: Duration = Duration::from_mins(30);
/// Longest wait for a time of the wall clock, which may jump.
const LONGEST_WAIT: Duration = Duration::from_mins(10);
/// Plans for one key in a row. A claim needs five at most; more means that another writer works against us.
const ROUNDS: usize = 12;
/// Lookups at once for one key: a claim has up to 256 consumers.
const LOOKUPS_AT_ONCE: usize = 16;

/// What became of an action.
pub(crate) enum Done {
    /// The API server has accepted it.
    Accepted,
    /// The object has changed since; the view has its new state.
    Outdated,
}

/// Carries out plans.
pub struct Executor {
    client: Client,
    shared: Arc<Shared>,
    recorder: Recorder,
    metrics: Metrics,
    evictions: Option<EvictionMetrics>,
    pools: Option<PoolMetrics>,
    journal: Option<Journal>,
    /// One namespace is listed once for all keys that wait for it.
    listing: tokio::sync::Mutex<()>,
    lookups: tokio::sync::Semaphore,
}

impl std::fmt::Debug for Executor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Executor").finish_non_exhaustive()
    }
}

impl Executor {
    /// An executor that acts through `client` and keeps `shared` informed.
    pub fn new(client: Client, shared: Arc<Shared>, recorder: Recorder, metrics: Metrics) -> Self {
        Self {
            client,
            shared,
            recorder,
            metrics,
            evictions: None,
            pools: None,
            journal: None,
            listing: tokio::sync::Mutex::new(()),
            lookups: tokio::sync::Semaphore::new(LOOKUPS),
        }
    }

    /// The same executor, which counts evictions.
    #[must_use]
    pub fn counting_evictions(self, metrics: EvictionMetrics) -> Self {
        Self { evictions: Some(metrics), ..self }
    }

    /// The same executor, counting answers to requests about pools.
    #[must_use]
    pub fn counting_answers(self, metrics: PoolMetrics) -> Self {
        Self { pools: Some(metrics), ..self }
    }

    /// The same executor, which writes down what it does, under the name of its controller. What it would tell by events
    /// stands there, too, and is told by no others.
    #[must_use]
    pub fn journaling(self, journal: Option<&Journal>, by: &'static str) -> Self {
        Self { journal: journal.map(|journal| journal.of(by)), ..self }
    }

    fn note(&self, key: &(dyn Display + Sync), what: impl FnOnce() -> Happening) {
        if let Some(journal) = &self.journal {
            journal.note(self.shared.clock().now(), key.to_string(), what());
        }
    }

    /// Plans and acts until the key is settled or something failed that only time can mend.
    pub async fn settle(&self, key: &(dyn Display + Sync), plan: impl Fn(&View, &Pass) -> Plan) -> Next {
        let mut pass = Pass { wall: self.shared.clock().now(), ..Pass::default() };
        let mut failed: Vec<Action> = Vec::new();
        let mut accepted: Vec<Action> = Vec::new();
        let mut told: Vec<Notice> = Vec::new();
        let mut retry: Option<Duration> = None;
        for _ in 0..ROUNDS {
            pass.now = self.shared.clock().elapsed();
            let plan = self.shared.read(|view| plan(view, &pass));
            if !plan.why.is_empty() && tracing::enabled!(tracing::Level::DEBUG) {
                let why: Vec<String> = plan.why.iter().map(ToString::to_string).collect();
                tracing::debug!(%key, ?why, "not settled");
            }
            if plan.lookups.is_empty() {
                self.note(key, || Happening::Waiting(plan.why.clone()));
            }
            if !plan.lookups.is_empty() {
                let failures = self.look_up_all(key, plan.lookups).await;
                for (lookup, failure) in failures {
                    retry = Some(retry.unwrap_or_default().max(failure.retry_after()));
                    pass.failed_lookups.push(lookup);
                }
                continue;
            }
            let mut progress = false;
            let telling = plan.actions.iter().any(|action| matches!(action, Action::Notify(_)));
            for action in plan.actions {
                if let Action::Notify(notice) = action {
                    if !told.contains(&notice) {
                        self.note(key, || Happening::Done(Action::Notify(notice.clone())));
                        self.tell(&notice);
                        told.push(notice);
                    }
                    continue;
                }
                if failed.contains(&action) {
                    continue;
                }
                progress = true;
                if accepted.contains(&action) {
                    tracing::warn!(%key, %action, "was accepted and had no effect; will be tried again later");
                    retry.get_or_insert_default();
                    failed.push(action);
                    continue;
                }
                let done = self.carry_out(key, &action).await;
                if let Some(metrics) = &self.pools {
                    let took = self.shared.clock().elapsed().saturating_sub(pass.now);
                    metrics.done(&action, done.as_ref().ok(), took);
                }
                match done {
                    Ok(Done::Accepted) => accepted.push(action),
                    Ok(Done::Outdated) => {}
                    Err(failure) => {
                        retry = Some(retry.unwrap_or_default().max(failure.retry_after()));
                        if let Action::Create(new) = &action {
                            pass.failed_creates.push(Arc::clone(&new.entry));
                        }
                        failed.push(action);
                    }
                }
            }
            if !progress {
                return match (retry, plan.wake_at) {
                    (Some(after), _) => Next::Retry(after),
                    (None, Some(at)) => Next::Wake(at.saturating_sub(pass.now).min(LONGEST_WAIT)),
                    (None, None) if telling => Next::Again(TELL_AGAIN),
                    (None, None) => Next::Settled,
                };
            }
        }
        tracing::warn!(%key, rounds = ROUNDS, "still not settled; another writer may be working against us");
        Next::Retry(retry.unwrap_or_default())
    }

    async fn send(&self, request: Result<HttpRequest, http::Error>) -> Result<String, Failure> {
        // Names come from the API server, which has validated them; a path that is none still is no panic.
        let request = request.map_err(|e| Failure::NotSent(format!("not a valid request: {e}")))?;
        self.client.request_text(request).await.map_err(Failure::from)
    }

    // Lookups

    async fn look_up_all(&self, key: &(dyn Display + Sync), lookups: Vec<Lookup>) -> Vec<(Lookup, Failure)> {
        stream::iter(lookups)
            .map(|lookup| async move {
                let _permit = self.lookups.acquire().await;
                let result = match &lookup {
                    Lookup::Claim(object) => self.read_claim(object).await,
                    Lookup::Pod { key, uid } => self.ascertain::<Pod>(key, uid).await,
                    Lookup::PodGroup { key, uid } => self.ascertain::<PodGroup>(key, uid).await,
                    Lookup::ClaimsIn(namespace) => self.list_claims(namespace).await,
                };
                result.err().map(|failure| {
                    tracing::info!(%key, %lookup, error = %failure, "could not be read; will be tried again");
                    (lookup, failure)
                })
            })
            .buffer_unordered(LOOKUPS_AT_ONCE)
            .filter_map(|failure| async { failure })
            .collect()
            .await
    }

    /// Reads a claim, so that the view can be relied upon.
    async fn read_claim(&self, key: &ObjectKey) -> Result<(), Failure> {
        let asked = self.shared.clock().elapsed();
        let uid = self.fetch::<Claim>(key).await?;
        let mut shown = false;
        self.shared.update(|view, _| {
            shown = view.note_read(key, uid.as_ref(), asked);
            None
        });
        match uid {
            Some(uid) if !shown => Err(Failure::Refused {
                text: format!(
                    "ResourceClaim {key} with uid {uid} is there, but the watch has shown that it was deleted"
                ),
                name: String::new(),
                code: 200,
            }),
            _ => Ok(()),
        }
    }

    /// Finds out whether the object with this very uid exists.
    async fn ascertain<T: Tracked>(&self, key: &ObjectKey, uid: &Uid) -> Result<(), Failure> {
        if self.fetch::<T>(key).await?.as_ref() != Some(uid) {
            self.shared.update(|view, _| {
                view.note_gone::<T>(uid.clone());
                None
            });
        }
        Ok(())
    }

    /// Reads one object and tells the view what came of it; the uid that stands under the key.
    async fn fetch<T: Tracked>(&self, key: &ObjectKey) -> Result<Option<Uid>, Failure> {
        let known = self.shared.read(|view| T::store(view).get(key).map(|o| o.meta().uid.clone()));
        let answer = match self.send(request::get(&T::KIND, key)).await {
            Ok(text) => T::decode(&text).map(Some).map_err(|error| Failure::Refused {
                text: format!("{} {key} cannot be read: {error}", T::KIND.kind),
                name: String::new(),
                code: 200,
            }),
            Err(Failure::Gone(_)) => Ok(None),
            Err(failure) => Err(failure),
        };
        let outcome = match &answer {
            Ok(Some(_)) => "found",
            Ok(None) => "absent",
            Err(_) => "failed",
        };
        self.metrics.looked_up(T::KIND.plural, outcome);
        let Some(object) = answer? else {
            self.shared.update(|view, now| view.not_found::<T>(key, known.as_ref(), now));
            return Ok(None);
        };
        let uid = object.meta().uid.clone();
        self.shared.update(|view, now| view.found(object, now));
        Ok(Some(uid))
    }

    async fn list_claims(&self, namespace: &Arc<str>) -> Result<(), Failure> {
        let _one = self.listing.lock().await;
        if !self.shared.read(|view| view.has_doubts(namespace)) {
            return Ok(());
        }
        let began = self.shared.clock().elapsed();
        let mut token = String::new();
        loop {
            let answer = self.send(request::list_claims(namespace, &token)).await;
            self.metrics.looked_up("claims_in_namespace", if answer.is_ok() { "found" } else { "failed" });
            let text = answer?;
            let page: Page<'_> = serde_json::from_str(&text)
                .map_err(|e| unreadable(format!("the list of claims in {namespace} cannot be read: {e}")))?;
            for item in page.items.iter().flatten() {
                // Any of them might be the one that is looked for.
                let claim = Claim::decode(item.get())
                    .map_err(|e| unreadable(format!("a claim in {namespace} cannot be read: {e}")))?;
                self.shared.update(|view, now| view.found(claim, now));
            }
            match page.metadata.continue_ {
                Some(next) if !next.is_empty() => token = next,
                _ => break,
            }
        }
        self.shared.update(|view, _| {
            view.settle_doubts(namespace, began);
            None
        });
        Ok(())
    }

    /// Reads again what we wrote and the watches have not shown for too long.
    pub async fn confirm_overdue(&self) {
        self.confirm::<Claim>().await;
        self.confirm::<Pod>().await;
        self.confirm::<PodGroup>().await;
        self.confirm::<ResourcePoolStatusRequest>().await;
        self.confirm_rules().await;
        self.shared.update(|view, now| {
            view.tidy(now);
            None
        });
    }

    async fn confirm<T: Tracked>(&self) {
        let now = self.shared.clock().elapsed();
        let overdue = self.shared.read(|view| T::store(view).overdue(now));
        stream::iter(overdue)
            .for_each_concurrent(LOOKUPS_AT_ONCE, |key| async move {
                if let Err(error) = self.fetch::<T>(&key).await {
                    tracing::debug!(kind = T::KIND.kind, %key, %error, "not confirmed yet");
                }
            })
            .await;
    }

    /// Rules are read through the version that the API server was found to serve.
    async fn confirm_rules(&self) {
        let now = self.shared.clock().elapsed();
        let overdue: Vec<(RuleVersion, ObjectKey)> = self.shared.read(|view| {
            let overdue = view.taint_rules.overdue(now).into_iter();
            overdue.filter_map(|key| Some((view.taint_rules.get(&key)?.version, key))).collect()
        });
        stream::iter(overdue)
            .for_each_concurrent(LOOKUPS_AT_ONCE, |(version, key)| async move {
                self.refresh_rule(version, &key).await;
            })
            .await;
    }

    // Actions

    /// Carries out one action. A conflict is no failure: the state is read again, and the next plan starts from
    /// it.
    async fn carry_out(&self, key: &(dyn Display + Sync), action: &Action) -> Result<Done, Failure> {
        let result = self.attempt(action).await;
        self.metrics.acted(action, result.as_ref().err());
        let failure = match result {
            Ok(()) => {
                tracing::debug!(%key, %action, "done");
                self.note(key, || Happening::Done(action.clone()));
                return Ok(Done::Accepted);
            }
            Err(failure) => failure,
        };
        if self.refresh(action, &failure).await {
            tracing::debug!(%key, %action, error = %failure, "the state has changed; planning again");
            return Ok(Done::Outdated);
        }
        tracing::warn!(%key, %action, error = %failure, "failed; will be tried again");
        self.note(key, || Happening::Failed { action: action.clone(), error: failure.to_string() });
        self.tell_failure(action, &failure);
        Err(failure)
    }

    async fn attempt(&self, action: &Action) -> Result<(), Failure> {
        match action {
            Action::Create(new) => self.create(new).await,
            Action::Record { owner, statuses } => {
                let text = self.send(request::record(owner, statuses)).await?;
                match owner.kind {
                    SubjectKind::PodGroup => self.answered::<PodGroup>(&text),
                    SubjectKind::Pod | SubjectKind::DeviceTaintRule => self.answered::<Pod>(&text),
                }
            }
            Action::Reserve { claim, after, consumer } => {
                let text = self.send(request::reserve(claim, after, consumer)).await?;
                self.answered::<Claim>(&text)
            }
            Action::Release { claim, consumers, deallocate } => {
                let uids = consumers.iter().map(|(uid, _)| &**uid);
                let text = self.send(request::release(claim, uids, *deallocate)).await?;
                if *deallocate && let Ok(after) = Claim::decode(&text) {
                    self.shared.update(|view, _| {
                        view.note_deallocated(&after.meta);
                        None
                    });
                }
                self.answered::<Claim>(&text)
            }
            Action::RemoveFinalizer { claim } => {
                let text = self.send(request::remove_finalizer(claim)).await?;
                if is_finished(&text) {
                    // The answer shows its last state under the version that it had before.
                    self.shared.update(|view, now| view.gone::<Claim>(&claim.key, &claim.uid, now));
                    return Ok(());
                }
                self.answered::<Claim>(&text)
            }
            Action::Delete { claim, .. } => {
                let answered = |text: &str| self.answered::<Claim>(text);
                self.delete::<Claim>(claim, request::delete(claim), answered).await
            }
            Action::Notify(notice) => {
                self.tell(notice);
                Ok(())
            }
            Action::Schedule { pod, eviction } => {
                let eviction = eviction.as_deref().cloned();
                self.shared.update(|view, now| view.schedule_eviction(&pod.key, &pod.uid, eviction, now));
                Ok(())
            }
            Action::Disrupt { pod, since } => {
                let text = self.send(request::disrupt(pod, *since)).await?;
                self.answered::<Pod>(&text)
            }
            Action::Expand { rule, expansion } => {
                let expansion = expansion.as_deref().cloned();
                self.shared.update(|view, _| view.note_expanded(&rule.key, &rule.uid, expansion));
                Ok(())
            }
            Action::CreateRule(new) => {
                let text = self.send(request::create_rule(new)).await?;
                self.rule_answered(new.version, &text)
            }
            Action::CorrectRule(to) => {
                let text = self.send(request::correct_rule(to)).await?;
                self.rule_answered(to.version, &text)
            }
            Action::DeleteRule { rule, version } => {
                let answered = |text: &str| self.rule_answered(*version, text);
                self.delete::<DeviceTaintRule>(rule, request::delete_rule(*version, rule), answered).await
            }
            Action::Evict { pod, mode, rules, at } => self.evict(pod, *mode, rules, *at).await,
            Action::Report(report) => self.report(report).await,
            Action::Answer(answer) => {
                let text = self.send(request::answer(answer)).await?;
                self.answered::<ResourcePoolStatusRequest>(&text)
            }
            Action::Expire { request, .. } => {
                let answered = |text: &str| self.answered::<ResourcePoolStatusRequest>(text);
                self.delete::<ResourcePoolStatusRequest>(request, request::expire(request), answered).await
            }
        }
    }

    async fn evict(
        &self,
        pod: &Precondition,
        mode: EvictionMode,
        rules: &[Uid],
        at: Timestamp,
    ) -> Result<(), Failure> {
        let request = match mode {
            EvictionMode::Delete => request::delete_pod(pod),
            EvictionMode::Evict => request::evict_pod(pod),
        };
        let answer = self.send(request).await;
        let forbidden = matches!(&answer, Err(Failure::Busy { budget: true, .. }));
        if forbidden && let Some(metrics) = &self.evictions {
            metrics.blocked();
        }
        self.shared.update(|view, _| view.note_blocked(&pod.key, forbidden));
        let text = match answer {
            Ok(text) => text,
            Err(Failure::Gone(_)) => {
                // Somebody else was faster: it is not counted.
                self.shared.update(|view, now| view.gone::<Pod>(&pod.key, &pod.uid, now));
                return Ok(());
            }
            Err(failure) => {
                if failure.is_in_doubt() {
                    self.shared
                        .update(|view, now| view.note_eviction_in_doubt(&pod.key, &pod.uid, rules, now));
                }
                return Err(failure);
            }
        };
        let clock = self.shared.clock();
        if let Some(metrics) = &self.evictions {
            let late = clock.now().duration_since(at).try_into().unwrap_or_default();
            let detected = self.shared.read(|view| view.evictions.detected(&pod.key));
            let known = detected.map_or(late, |detected| clock.elapsed().saturating_sub(detected));
            metrics.evicted(late, known.min(late));
        }
        // In one step: at no time is the Pod both pending and evicted, or neither.
        self.shared.update(|view, now| {
            let counted = view.note_evicted(&pod.key, &pod.uid, rules, now);
            let seen = match Pod::decode(&text) {
                Ok(answer) if answer.meta.deleting && !is_finished(&text) => {
                    view.observe(answer, Source::Answer, now)
                }
                // The eviction subresource answers with a status, whether the Pod is gone or on its way.
                _ if mode == EvictionMode::Evict => None,
                _ => view.gone::<Pod>(&pod.key, &pod.uid, now),
            };
            [Some(counted), seen].into_iter().flatten()
        });
        if mode == EvictionMode::Evict {
            // Shows when it was asked to end, so that it is not asked again.
            self.fetch::<Pod>(&pod.key).await?;
        }
        Ok(())
    }

    async fn report(&self, report: &RuleReport) -> Result<(), Failure> {
        let text = self.send(request::report(report)).await?;
        let now = self.shared.clock().elapsed();
        if let Some(metrics) = &self.evictions {
            metrics.reported(&report.effect, now.saturating_sub(report.changed));
        }
        if report.condition.status != dra_api::taint::ConditionStatus::False {
            tracing::info!(rule = %report.rule.key, reason = %report.condition.reason,
                message = %report.condition.message, "rule");
        }
        self.shared.update(|view, now| {
            view.note_reported(&report.rule.uid, now);
            None
        });
        self.rule_answered(report.version, &text)
    }

    /// Rules are read through the version that they were written through.
    fn rule_answered(&self, version: RuleVersion, text: &str) -> Result<(), Failure> {
        let rule = DeviceTaintRule::decode_as(version, text).map_err(|error| {
            unreadable(format!("the answer about a DeviceTaintRule cannot be read: {error}"))
        })?;
        self.shared.update(|view, now| view.observe(rule, Source::Answer, now));
        Ok(())
    }

    async fn create(&self, new: &NewClaim) -> Result<(), Failure> {
        let result = self.send(request::create(new)).await;
        self.metrics.created(new, result.is_ok());
        match result {
            // An answer that cannot be read leaves the same doubt as none.
            Ok(text) => self.answered::<Claim>(&text),
            Err(failure) => Err(failure),
        }
        .inspect_err(|failure| {
            if failure.is_in_doubt() {
                self.doubt(new);
            }
        })
    }

    fn doubt(&self, new: &NewClaim) {
        self.shared.update(|view, now| {
            view.note_doubtful_create(&new.owner.key.namespace, new.owner.uid.clone(), now);
            None
        });
    }

    /// `answered` takes an answer that shows the object, which is still there.
    async fn delete<T: Tracked>(
        &self,
        object: &Precondition,
        request: Result<HttpRequest, http::Error>,
        answered: impl FnOnce(&str) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        match self.send(request).await {
            Ok(text) if awaits_finalizers(T::KIND.kind, &text) => return answered(&text),
            Ok(_) | Err(Failure::Gone(_)) => {}
            Err(failure) => return Err(failure),
        }
        self.shared.update(|view, now| view.gone::<T>(&object.key, &object.uid, now));
        Ok(())
    }

    /// The API server answered a write with the object's new state.
    fn answered<T: Tracked>(&self, text: &str) -> Result<(), Failure> {
        let object = T::decode(text).map_err(|error| {
            unreadable(format!("the answer about a {} cannot be read: {error}", T::KIND.kind))
        })?;
        self.shared.update(|view, now| view.observe(object, Source::Answer, now));
        Ok(())
    }

    /// After a failure that may come from an outdated view: reads the object again. True if that showed
    /// something new, so that a new plan may succeed at once.
    async fn refresh(&self, action: &Action, failure: &Failure) -> bool {
        if let Action::Answer(answer) = action {
            return self.refresh_request(answer, failure).await;
        }
        // Validation errors too: the API server answers some outdated writes with 422.
        let outdated =
            matches!(failure, Failure::Conflict(_) | Failure::Gone(_) | Failure::Refused { code: 422, .. });
        if !outdated {
            return false;
        }
        match action {
            Action::Record { owner, .. } => match owner.kind {
                SubjectKind::PodGroup => self.refresh_object::<PodGroup>(&owner.key).await,
                SubjectKind::Pod | SubjectKind::DeviceTaintRule => {
                    self.refresh_object::<Pod>(&owner.key).await
                }
            },
            Action::Reserve { claim, .. }
            | Action::Release { claim, .. }
            | Action::RemoveFinalizer { claim }
            | Action::Delete { claim, .. } => self.refresh_object::<Claim>(&claim.key).await,
            Action::Disrupt { pod, .. } => self.refresh_object::<Pod>(&pod.key).await,
            Action::Evict { pod, .. } => self.refresh_object::<Pod>(&pod.key).await,
            Action::Report(report) => self.refresh_rule(report.version, &report.rule.key).await,
            Action::CreateRule(new) => self.refresh_rule(new.version, &new.key).await,
            Action::CorrectRule(to) => self.refresh_rule(to.version, &to.rule.key).await,
            Action::DeleteRule { rule, version } => self.refresh_rule(*version, &rule.key).await,
            Action::Expire { request, .. } => self.refresh_seen::<ResourcePoolStatusRequest>(request).await,
            Action::Create(_)
            | Action::Notify(_)
            | Action::Schedule { .. }
            | Action::Expand { .. }
            | Action::Answer(_) => false,
        }
    }

    /// A request may have been answered by somebody else, or have an answer that the API server never takes: then the
    /// next plan says so, because nobody should wait for it.
    async fn refresh_request(&self, answer: &PoolAnswer, failure: &Failure) -> bool {
        let refused = failure.is_about_content();
        if !refused && !matches!(failure, Failure::Conflict(_) | Failure::Gone(_)) {
            return false;
        }
        let request = &answer.request;
        if self.refresh_seen::<ResourcePoolStatusRequest>(request).await {
            return true;
        }
        if refused && !answer.failed {
            let text = failure.to_string();
            self.shared.update(|view, _| view.note_answer_refused(&request.uid, &text));
        }
        refused && !answer.failed
    }

    /// True if the object now is another one, or in another state, than the action was planned for; the watch may have
    /// shown that before.
    async fn refresh_seen<T: Tracked>(&self, seen: &Precondition) -> bool {
        if self.fetch::<T>(&seen.key).await.is_err() {
            return false;
        }
        self.shared.read(|view| {
            let now = T::store(view).get(&seen.key).map(Object::meta);
            now.is_none_or(|now| (&now.uid, now.resource_version) != (&seen.uid, seen.resource_version))
        })
    }

    async fn refresh_object<T: Tracked>(&self, key: &ObjectKey) -> bool {
        let state =
            |view: &View| T::store(view).get(key).map(|o| (o.meta().uid.clone(), o.meta().resource_version));
        let before = self.shared.read(state);
        self.fetch::<T>(key).await.is_ok() && self.shared.read(state) != before
    }

    /// Rules are read through the version that the API server was found to serve.
    async fn refresh_rule(&self, version: RuleVersion, key: &ObjectKey) -> bool {
        let state = |view: &View| {
            view.taint_rules.get(key).map(|rule| (Arc::clone(&rule.meta.uid), rule.meta.resource_version))
        };
        let before = self.shared.read(state);
        let known = before.as_ref().map(|(uid, _)| Arc::clone(uid));
        match self.send(request::get(&version.kind(), key)).await {
            Ok(text) => {
                let Ok(rule) = DeviceTaintRule::decode_as(version, &text) else { return false };
                self.shared.update(|view, now| view.found(rule, now));
            }
            Err(Failure::Gone(_)) => {
                self.shared.update(|view, now| view.not_found::<DeviceTaintRule>(key, known.as_ref(), now));
            }
            Err(_) => return false,
        }
        self.shared.read(state) != before
    }

    // Events

    fn tell(&self, notice: &Notice) {
        tracing::debug!(kind = notice.subject.kind.name(), object = %notice.subject.key, reason = notice.reason,
            note = notice.note, "event");
        // Who reads the journal reads no events.
        if self.journal.is_some() {
            return;
        }
        self.recorder.record(Occurrence {
            regarding: regarding(&notice.subject),
            severity: if notice.warning { Severity::Warning } else { Severity::Normal },
            reason: notice.reason,
            action: notice.action,
            note: notice.note.clone(),
        });
    }

    /// Failures that the owner's user can do something about go to the owner as events.
    fn tell_failure(&self, action: &Action, failure: &Failure) {
        if !failure.is_explained() {
            return;
        }
        match action {
            Action::Create(new) => {
                let text = format!("create ResourceClaim {}*: {}", new.generate_name, failure.stable_text());
                self.tell(&Notice {
                    subject: new.owner.clone(),
                    reason: REASON_CREATION,
                    action: "GenerateClaim",
                    note: note(new.owner.kind, &new.entry, &text),
                    warning: true,
                });
            }
            Action::Reserve { claim, consumer, .. } if consumer.is_pod() => self.tell(&Notice {
                subject: Subject {
                    kind: SubjectKind::Pod,
                    key: claim.key.sibling(&consumer.name),
                    uid: consumer.uid.clone(),
                },
                reason: REASON_RESERVATION,
                action: "ReserveClaim",
                note: format!("ResourceClaim \"{}\": {failure}", claim.key.name),
                warning: true,
            }),
            Action::CreateRule(new) => self.tell_not_expanded(&new.parent, action, failure),
            Action::CorrectRule(to) => self.tell_not_expanded(&to.parent, action, failure),
            _ => {}
        }
    }

    fn tell_not_expanded(&self, rule: &Subject, action: &Action, failure: &Failure) {
        self.tell(&Notice {
            subject: rule.clone(),
            reason: REASON_EXPANSION_FAILED,
            action: "ExpandRule",
            note: format!("{action}: {failure}"),
            warning: true,
        });
    }
}

/// The object that a DELETE returns is still there, because somebody else has to do something first.
fn awaits_finalizers(kind: &str, text: &str) -> bool {
    serde_json::from_str::<Deleted>(text)
        .is_ok_and(|d| d.kind == kind && d.metadata.finalizers.is_some_and(|f| !f.is_empty()))
}

/// What a DELETE or a write returns is being deleted, has no time left, and nothing holds it: it is gone.
fn is_finished(text: &str) -> bool {
    serde_json::from_str::<Deleted>(text).is_ok_and(|d| {
        d.metadata.deletion_grace_period_seconds == Some(0)
            && d.metadata.finalizers.is_none_or(|finalizers| finalizers.is_empty())
    })
}

fn unreadable(text: String) -> Failure {
    Failure::Unknown { text, answered: false, after: Duration::ZERO }
}

fn regarding(subject: &Subject) -> Regarding {
    Regarding {
        api_version: subject.kind.api_version(),
        kind: subject.kind.name(),
        namespace: Arc::clone(&subject.key.namespace),
        name: Arc::clone(&subject.key.name),
        uid: subject.uid.clone(),
    }
}

#[derive(Deserialize)]
struct Page<'a> {
    #[serde(default)]
    metadata: PageMeta,
    #[serde(borrow, default)]
    items: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize, Default)]
struct PageMeta {
    #[serde(default, rename = "continue")]
    continue_: Option<String>,
}

#[derive(Deserialize)]
struct Deleted {
    #[serde(default)]
    kind: String,
    #[serde(default)]
    metadata: DeletedMeta,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct DeletedMeta {
    #[serde(default)]
    deletion_grace_period_seconds: Option<i64>,
    #[serde(default)]
    finalizers: Option<Vec<String>>,
}
