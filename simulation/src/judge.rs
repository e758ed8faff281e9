//! Whether a write of the manager does harm: judged at that moment, by what it can have known. The request about a Pod's
//! claims is judged in [`crate::check`].

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use jiff::Timestamp;
use serde_json::Value;
use tokio::time::Instant;

use crate::{
    history::History,
    pools,
    taints::{
        self, CONDITION, Reason, by_rules, by_slices, condition, effect, is_evictable, is_used, named_claims,
    },
};
use dra_inhabitants::cluster::{Cluster, at, is_deleting, items, name, owner, text, uid};

/// A condition says that nothing happens only after so long (docs/DEVIATIONS.md).
const FIRST_FALSE_AFTER: Duration = Duration::from_secs(10);
/// How long slices that are missing are waited for, and how long slices of a driver that nobody knows.
const MISSING_FOR: Duration = Duration::from_secs(25);
const UNKNOWN_FOR: Duration = Duration::from_secs(1);
/// For how long requests are kept after and without an answer.
const ANSWERED_FOR: i64 = 3_600;
const PENDING_FOR: i64 = 24 * 3_600;
/// The condition of a Pod that is evicted: type, status, reason, message.
pub(crate) const DISRUPTED: (&str, &str, &str, &str) = (
    "DisruptionTarget",
    "True",
    "DeletionByDeviceTaintManager",
    "Device Taint manager: deleting due to NoExecute taint",
);

/// Who wrote, and what it can have seen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Writer {
    /// It may still see what was so then, or later.
    pub(crate) from: Instant,
    /// Since when it runs.
    pub(crate) started: Instant,
    /// Its clock.
    pub(crate) now: Timestamp,
    /// Nothing has gone wrong for a while: what is now is what it sees.
    pub(crate) calm: bool,
}

/// That a Pod was evicted, or was asked to be.
#[derive(Clone, Debug, Default)]
pub(crate) struct Evicted {
    /// Uid of the Pod.
    pub(crate) pod: String,
    /// Where it was asked for, unless it is sure.
    pub(crate) path: String,
    /// It was, and by this request.
    pub(crate) surely: bool,
    /// Rules because of which it may have been, as far as the writer knew; by uid.
    pub(crate) rules: BTreeSet<String>,
    /// Those of them that it must have known.
    pub(crate) known: BTreeSet<String>,
}

/// What was found.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    pub(crate) harm: Vec<String>,
    pub(crate) evicted: Vec<Evicted>,
}

/// Judges all changes of objects of a kind after a revision.
pub(crate) fn judge(cluster: &Cluster, history: &History, writer: Writer, revision: u64) -> Verdict {
    let mut verdict = Verdict::default();
    for (before, after) in cluster.server.changes_since("Pod", revision) {
        if let Some(before) = before {
            let change = (&*before, after.as_deref());
            pod(cluster, history, writer, change, &mut verdict);
        }
    }
    for (before, after) in cluster.server.changes_since("DeviceTaintRule", revision) {
        match (before, after) {
            (Some(before), Some(after)) => rule(history, writer, &before, &after, &mut verdict.harm),
            _ => verdict.harm.push("a DeviceTaintRule was created or deleted".to_owned()),
        }
    }
    for (before, after) in cluster.server.changes_since("ResourcePoolStatusRequest", revision) {
        match (before, after) {
            (Some(before), Some(after)) => request(history, writer, &before, &after, &mut verdict.harm),
            (Some(before), None) => expired(writer, &before, &mut verdict.harm),
            (None, _) => verdict.harm.push("a ResourcePoolStatusRequest was created".to_owned()),
        }
    }
    for kind in ["ResourceSlice", "ResourceClaimTemplate", "DeviceClass", "Namespace"] {
        if !cluster.server.changes_since(kind, revision).is_empty() {
            verdict.harm.push(format!("a {kind} was written"));
        }
    }
    verdict
}

// Pods

fn pod(
    cluster: &Cluster,
    history: &History,
    writer: Writer,
    (before, after): (&Value, Option<&Value>),
    verdict: &mut Verdict,
) {
    if let Some(after) = after {
        records(history, writer, before, after, &mut verdict.harm);
    }
    let ends = after.is_none_or(is_deleting) && !is_deleting(before);
    let of_type = |pod: &Value| {
        items(pod, &["status", "conditions"]).iter().find(|c| text(c, &["type"]) == DISRUPTED.0).cloned()
    };
    let (was, is) = (of_type(before), after.and_then(of_type));
    let marks = after.is_some() && was != is;
    if !ends && !marks {
        return;
    }
    let mut reasons = possible_reasons(history, writer.from, before);
    if !ends {
        // Only the uid is certain to be the same as when that was decided.
        for version in history.pods(writer.from).filter(|version| uid(&version.object) == uid(before)) {
            reasons.extend(possible_reasons(history, writer.from, &version.object));
        }
    }
    let is_due = reasons.iter().any(|reason| !reason.paused && reason.due <= writer.now);
    let what = if ends { "evicted" } else { "marked for eviction" };
    if !is_due {
        let why = if reasons.is_empty() { "nothing asks for that" } else { "it is tolerated or paused" };
        verdict.harm.push(format!("Pod {} was {what}, but {why}: {reasons:?}", name(before)));
    }
    if marks {
        let is = is.unwrap_or_default();
        let told = ["type", "status", "reason", "message"].map(|field| text(&is, &[field]).to_owned());
        if told != [DISRUPTED.0, DISRUPTED.1, DISRUPTED.2, DISRUPTED.3] {
            verdict.harm.push(format!("Pod {} was given the condition {told:?}", name(before)));
        }
    }
    if ends {
        if !is_evictable(before) {
            verdict.harm.push(format!("Pod {} was evicted, which does not run", name(before)));
        }
        let marked = was.is_some_and(|c| text(&c, &["reason"]) == DISRUPTED.2);
        if !marked {
            verdict.harm.push(format!("Pod {} was evicted without a word in its status", name(before)));
        }
        let of_rules = |reasons: Vec<Reason>| {
            reasons.into_iter().filter(|reason| !reason.paused).filter_map(|reason| reason.rule).collect()
        };
        let known = if writer.calm { taints::State::of(cluster).reasons(before) } else { Vec::new() };
        let pod = uid(before).to_owned();
        let (rules, known) = (of_rules(reasons), of_rules(known));
        verdict.evicted.push(Evicted { pod, path: String::new(), surely: true, rules, known });
    }
}

/// What it means for a writer's count that it asks for the deletion of a Pod: should the answer be lost, it cannot tell
/// whether it was this request that did it.
pub(crate) fn asked_for(history: &History, writer: Writer, pod: &Value) -> Evicted {
    let versions = history.pods(writer.from).filter(|version| uid(&version.object) == uid(pod));
    let reasons = versions.flat_map(|version| possible_reasons(history, writer.from, &version.object));
    let rules = reasons.filter_map(|reason| reason.rule).collect();
    Evicted { pod: uid(pod).to_owned(), rules, ..Evicted::default() }
}

/// A Pod is told only of claims that were made for it or for its PodGroup.
fn records(history: &History, writer: Writer, before: &Value, after: &Value, harm: &mut Vec<String>) {
    const STATUSES: &[&str] = &["status", "resourceClaimStatuses"];
    for status in items(after, STATUSES).iter().filter(|status| !items(before, STATUSES).contains(status)) {
        let claim = text(status, &["resourceClaimName"]);
        let is_its = |claim: &Value| owner(claim, "Pod").is_none_or(|owner| owner == uid(after));
        let mut known = history.claims(after, claim, writer.from).peekable();
        // What somebody else has written into the status is kept.
        if known.peek().is_some() && !known.any(|version| is_its(&version.object)) {
            harm.push(format!("Pod {} was told to use claim {claim}, which is not its", name(after)));
        }
    }
}

/// Why a Pod may have had to go, as far as somebody could see who saw one of the states since `from` of each object.
fn possible_reasons(history: &History, from: Instant, pod: &Value) -> Vec<Reason> {
    let mut reasons = Vec::new();
    let rules: Vec<&Value> = history.rules(from).map(|version| &*version.object).collect();
    for (wanted, generated) in named_claims(pod) {
        let mut last: Option<&Value> = None;
        for version in history.claims(pod, wanted, from) {
            let claim = &*version.object;
            let holds = at(claim, &["status", "allocation"]);
            if holds.is_null() || !is_used(pod, claim, generated) || last == Some(holds) {
                continue;
            }
            last = Some(holds);
            by_rules(claim, &rules, &mut reasons);
            for slices in history.slices(from) {
                by_slices(claim, slices, &mut reasons);
            }
        }
    }
    reasons
}

// Rules

fn rule(history: &History, writer: Writer, before: &Value, after: &Value, harm: &mut Vec<String>) {
    let what = format!("DeviceTaintRule {}", name(after));
    let others = |rule: &Value| -> Vec<Value> {
        items(rule, &["status", "conditions"])
            .iter()
            .filter(|c| text(c, &["type"]) != CONDITION)
            .cloned()
            .collect()
    };
    if at(before, &["spec"]) != at(after, &["spec"]) {
        harm.push(format!("{what}: the spec was changed"));
    }
    if others(before) != others(after) {
        harm.push(format!("{what}: conditions of others were changed"));
    }
    let Some(is) = condition(after) else {
        harm.push(format!("{what}: the condition was removed"));
        return;
    };
    let about = at(is, &["observedGeneration"]);
    let was = condition(before);
    let (status, reason) = (text(is, &["status"]), text(is, &["reason"]));
    if let Some(was) = was {
        let same = text(was, &["status"]) == status;
        if same && text(was, &["lastTransitionTime"]) != text(is, &["lastTransitionTime"]) {
            harm.push(format!("{what}: the transition time changed while the status stayed {status}"));
        }
        let again = at(was, &["observedGeneration"]) == about && text(was, &["reason"]) == "Completed";
        if again && reason == "NotStarted" {
            harm.push(format!("{what}: had completed and is said not to have started"));
        }
        if at(was, &["observedGeneration"]).as_i64() > about.as_i64() {
            harm.push(format!("{what}: went back to generation {about}"));
        }
    }
    // The generation that it is about.
    let mut versions = history
        .rules(writer.from)
        .filter(|v| uid(&v.object) == uid(after) && at(&v.object, &["metadata", "generation"]) == about);
    let Some(seen) = versions.next() else {
        harm.push(format!("{what}: there was no generation {about}"));
        return;
    };
    let of = &*seen.object;
    if effect(of) == "NoExecute" && status == "False" {
        let least = seen.since.max(writer.started);
        if least.elapsed() < FIRST_FALSE_AFTER {
            harm.push(format!("{what}: says {reason} {:?} after it was to be seen", least.elapsed()));
        }
    }
    if status == "True" && !anybody_goes(history, writer.from, uid(of)) {
        harm.push(format!("{what}: says that Pods have to go, but none ever had to"));
    }
}

/// True when some Pod may have had to go because of the rule.
fn anybody_goes(history: &History, from: Instant, rule: &str) -> bool {
    let rules: Vec<&Value> = history.rules(from).map(|v| &*v.object).filter(|r| uid(r) == rule).collect();
    let mut judged = BTreeSet::new();
    history.pods(from).any(|version| {
        let pod = &*version.object;
        if !is_evictable(pod) || !judged.insert((uid(pod), at(pod, &["status"]).to_string())) {
            return false;
        }
        named_claims(pod).into_iter().any(|(wanted, generated)| {
            history.claims(pod, wanted, from).any(|version| {
                let mut reasons = Vec::new();
                if is_used(pod, &version.object, generated) {
                    by_rules(&version.object, &rules, &mut reasons);
                }
                !reasons.is_empty()
            })
        })
    })
}

// Requests about pools

fn request(history: &History, writer: Writer, before: &Value, after: &Value, harm: &mut Vec<String>) {
    let what = format!("ResourcePoolStatusRequest {}", name(after));
    if at(before, &["spec"]) != at(after, &["spec"]) {
        harm.push(format!("{what}: the spec was changed"));
    }
    if !at(before, &["status"]).is_null() {
        harm.push(format!("{what}: answered twice"));
    }
    let conditions = items(after, &["status", "conditions"]);
    let [condition] = conditions else {
        harm.push(format!("{what}: {} conditions", conditions.len()));
        return;
    };
    let since: Option<Timestamp> = text(condition, &["lastTransitionTime"]).parse().ok();
    // A pass may take as long as a few slow requests.
    if since.is_none_or(|since| writer.now.duration_since(since).as_secs() > 300 || since > writer.now) {
        harm.push(format!("{what}: answered at {since:?}, which is not now ({})", writer.now));
    }
    let told = (text(condition, &["type"]), text(condition, &["status"]), text(condition, &["reason"]));
    if told == ("Failed", "True", "CalculationFailed") {
        // Only injected faults refuse answers here.
        if !text(condition, &["message"]).contains("an injected fault") {
            harm.push(format!("{what} failed: {}", text(condition, &["message"])));
        }
        return;
    }
    let listed = items(after, &["status", "pools"]);
    let incomplete = listed.iter().filter(|pool| pools::is_incomplete(pool)).count();
    let wrong = listed.iter().filter(|p| !text(p, &["validationError"]).is_empty()).count() - incomplete;
    let remark = match (incomplete, wrong) {
        (0, 0) => String::new(),
        (n, 0) => format!(" ({n} incomplete)"),
        (0, n) => format!(" ({n} with errors)"),
        (n, m) => format!(" ({n} incomplete, {m} with errors)"),
    };
    let message = format!("Calculated status for {} pools{remark}", listed.len());
    if told != ("Complete", "True", "CalculationComplete") || text(condition, &["message"]) != message {
        harm.push(format!("{what}: {condition} instead of Complete with {message:?}"));
    }
    let created = history.since_of_request(uid(after)).unwrap_or(writer.started).max(writer.started);
    let waited = created.elapsed();
    if incomplete > 0 && waited < MISSING_FOR {
        harm.push(format!("{what}: missing slices were waited for only {waited:?}"));
    }
    if at(after, &["status", "poolCount"]) == 0 && waited < UNKNOWN_FOR {
        harm.push(format!("{what}: slices of an unknown driver were waited for only {waited:?}"));
    }
    harm.extend(pools::impossible(history, writer.from, after).map(|why| format!("{what}: {why}")));
}

fn expired(writer: Writer, before: &Value, harm: &mut Vec<String>) {
    let time = |path: &[&str]| text(before, path).parse::<Timestamp>().ok();
    let end = items(before, &["status", "conditions"])
        .iter()
        .find(|c| matches!(text(c, &["type"]), "Complete" | "Failed"))
        .and_then(|c| text(c, &["lastTransitionTime"]).parse::<Timestamp>().ok());
    let (since, keep) = if at(before, &["status"]).is_null() {
        (time(&["metadata", "creationTimestamp"]), PENDING_FOR)
    } else {
        (end.or_else(|| time(&["metadata", "creationTimestamp"])), ANSWERED_FOR)
    };
    let age = since.map(|since| writer.now.duration_since(since).as_secs());
    if age.is_none_or(|age| age < keep) {
        harm.push(format!("ResourcePoolStatusRequest {} was deleted at the age of {age:?} s", name(before)));
    }
}

/// When a request is to be deleted; nothing if it has no answer.
pub(crate) fn expiry(request: &Arc<Value>) -> Option<Timestamp> {
    items(request, &["status", "conditions"])
        .iter()
        .find(|c| matches!(text(c, &["type"]), "Complete" | "Failed"))
        .and_then(|c| text(c, &["lastTransitionTime"]).parse::<Timestamp>().ok())
        .and_then(|since| since.checked_add(jiff::SignedDuration::from_secs(ANSWERED_FOR)).ok())
}

/// Rules that were taken for a reason by somebody who evicted Pods: how many Pods at least, and at most.
pub(crate) fn counted(evicted: &[Evicted], rule: &str) -> (u64, u64) {
    let count = |of: fn(&Evicted) -> &BTreeSet<String>| {
        let pods: BTreeSet<&str> =
            evicted.iter().filter(|e| of(e).contains(rule)).map(|e| e.pod.as_str()).collect();
        u64::try_from(pods.len()).unwrap_or(u64::MAX)
    };
    (count(|e| &e.known), count(|e| &e.rules))
}

/// Whether what a rule with effect None says is what it should say at this moment.
pub(crate) fn dry_run(state: &taints::State, rule: &Value) -> Option<String> {
    let condition = condition(rule)?;
    let (message, _) = taints::without_count(text(condition, &["message"]));
    let right = state.dry_run(rule);
    (message != right)
        .then(|| format!("DeviceTaintRule {} says {message:?}, but should say {right:?}", name(rule)))
}
