//! Which Pods have to go because of taints, and what the conditions of rules should say: once more, from the
//! specification and straight from the objects, knowing nothing of the controllers.

use std::{collections::BTreeSet, sync::Arc};

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::history::{Slices, slices};
use dra_inhabitants::cluster::{
    Cluster, at, extended_claim, is_beside, is_deleting, items, name, namespace, text, uid,
};

/// The condition that the manager keeps on rules.
pub(crate) const CONDITION: &str = "EvictionInProgress";
const CONFIRM: &str = "dra-controller-manager.dev/confirm-all-devices";
const PAUSE: &str = "dra-controller-manager.dev/pause-eviction";
const PAUSED: &str = "Eviction is paused by the annotation dra-controller-manager.dev/pause-eviction.";
const SINCE_START: &str = " evicted since starting the controller.";

/// A taint because of which a Pod has to go.
#[derive(Clone, Debug)]
pub(crate) struct Reason {
    /// Uid of the rule; absent for a taint in a slice.
    pub(crate) rule: Option<String>,
    /// When.
    pub(crate) due: Timestamp,
    /// Not for the time being.
    pub(crate) paused: bool,
}

/// A device in an allocation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held<'a> {
    pub(crate) driver: &'a str,
    pub(crate) pool: &'a str,
    pub(crate) device: &'a str,
    pub(crate) result: &'a Value,
}

/// The devices that a claim holds.
pub(crate) fn held(claim: &Value) -> impl Iterator<Item = Held<'_>> {
    items(claim, &["status", "allocation", "devices", "results"]).iter().map(|result| Held {
        driver: text(result, &["driver"]),
        pool: text(result, &["pool"]),
        device: text(result, &["device"]),
        result,
    })
}

/// True when the rule's selector matches the device: none matches nothing, an empty one everything.
pub(crate) fn selects(rule: &Value, driver: &str, pool: &str, device: &str) -> bool {
    let selector = at(rule, &["spec", "deviceSelector"]);
    let is = |field: &str, name: &str| {
        let wanted = text(selector, &[field]);
        wanted.is_empty() || wanted == name
    };
    selector.is_object() && is("driver", driver) && is("pool", pool) && is("device", device)
}

/// True when the rule selects everything and nobody has confirmed that.
fn is_held_back(rule: &Value) -> bool {
    let selector = at(rule, &["spec", "deviceSelector"]);
    selector.as_object().is_some_and(serde_json::Map::is_empty)
        && text(rule, &["metadata", "annotations", CONFIRM]) != "true"
}

fn is_paused(rule: &Value) -> bool {
    text(rule, &["metadata", "annotations", PAUSE]) == "true"
}

pub(crate) fn effect(rule: &Value) -> &str {
    text(rule, &["spec", "taint", "effect"])
}

fn time(value: &Value) -> Option<Timestamp> {
    value.as_str()?.parse().ok()
}

/// Until when a device may be used in spite of a taint; nothing if for ever (spec §3.2 to §3.4, with the documented
/// meaning of an empty effect).
fn leave(result: &Value, taint: &Value) -> Option<Timestamp> {
    // Both kinds get their time from the API server.
    let added = time(at(taint, &["timeAdded"])).unwrap_or(Timestamp::MIN);
    let mut least: Option<i64> = None;
    for toleration in items(result, &["tolerations"]) {
        let of_key =
            matches!(text(toleration, &["key"]), key if key.is_empty() || key == text(taint, &["key"]));
        let of_effect = matches!(text(toleration, &["effect"]), "" | "NoExecute");
        let of_value = match text(toleration, &["operator"]) {
            "Exists" => true,
            "" | "Equal" => text(toleration, &["value"]) == text(taint, &["value"]),
            _ => false,
        };
        if !(of_key && of_effect && of_value) {
            continue;
        }
        let seconds = at(toleration, &["tolerationSeconds"]).as_i64()?;
        least = Some(least.map_or(seconds, |least| least.min(seconds)));
    }
    let stay = SignedDuration::from_secs(least.unwrap_or(0).max(0));
    Some(added.checked_add(stay).unwrap_or(Timestamp::MAX))
}

fn of_pool<'a>(slices: &'a Slices, driver: &str, pool: &str) -> Vec<&'a Value> {
    slices
        .values()
        .map(|slice| &**slice)
        .filter(|s| text(s, &["spec", "driver"]) == driver && text(s, &["spec", "pool", "name"]) == pool)
        .collect()
}

pub(crate) fn generation(slice: &Value) -> i64 {
    at(slice, &["spec", "pool", "generation"]).as_i64().unwrap_or_default()
}

/// The NoExecute taints that slices publish for a device. The newest generation counts; as long as that is neither
/// complete nor shows the device, the one before does (docs/DEVIATIONS.md).
fn published_taints<'a>(slices: &'a Slices, held: Held<'_>) -> Vec<&'a Value> {
    let slices = of_pool(slices, held.driver, held.pool);
    let generations: BTreeSet<i64> = slices.iter().map(|slice| generation(slice)).collect();
    for newest in generations.into_iter().rev() {
        let current: Vec<&Value> = slices.iter().copied().filter(|s| generation(s) == newest).collect();
        let device = current
            .iter()
            .flat_map(|s| items(s, &["spec", "devices"]))
            .find(|device| text(device, &["name"]) == held.device);
        if let Some(device) = device {
            return items(device, &["taints"])
                .iter()
                .filter(|taint| text(taint, &["effect"]) == "NoExecute")
                .collect();
        }
        let announced = |s: &&Value| at(s, &["spec", "pool", "resourceSliceCount"]).as_u64().unwrap_or(0);
        let most = current.iter().map(announced).max().unwrap_or(0);
        if u64::try_from(current.len()).unwrap_or(u64::MAX) >= most {
            return Vec::new();
        }
    }
    Vec::new()
}

/// True while a Pod can be evicted at all: on a node, running, not ending.
pub(crate) fn is_evictable(pod: &Value) -> bool {
    !text(pod, &["spec", "nodeName"]).is_empty()
        && !is_deleting(pod)
        && !matches!(text(pod, &["status", "phase"]), "Succeeded" | "Failed")
}

/// Names of the claims that a Pod's entries and extended resources stand for, and whether the claim was generated.
pub(crate) fn named_claims(pod: &Value) -> Vec<(&str, bool)> {
    let recorded = items(pod, &["status", "resourceClaimStatuses"]);
    items(pod, &["spec", "resourceClaims"])
        .iter()
        .filter_map(|entry| {
            if let Some(claim) = at(entry, &["resourceClaimName"]).as_str() {
                return Some((claim, false));
            }
            let status = recorded.iter().find(|s| text(s, &["name"]) == text(entry, &["name"]))?;
            Some((at(status, &["resourceClaimName"]).as_str()?, true))
        })
        .chain(extended_claim(pod).map(|claim| (claim, true)))
        .collect()
}

/// How a number of namespaces is told.
fn namespaces<'a>(of: impl IntoIterator<Item = &'a Arc<Value>>) -> String {
    match of.into_iter().map(|object| namespace(object)).collect::<BTreeSet<_>>().len() {
        1 => "1 namespace".to_owned(),
        n => format!("{n} different namespaces"),
    }
}

/// True when the Pod really uses this state of a claim that it names (spec §3.5).
pub(crate) fn is_used(pod: &Value, claim: &Value, generated: bool) -> bool {
    let group = text(pod, &["spec", "schedulingGroup", "podGroupName"]);
    let of_group = |resource: &str, name: &str| resource == "podgroups" && !group.is_empty() && name == group;
    let reserved = items(claim, &["status", "reservedFor"]).iter().any(|consumer| {
        text(consumer, &["uid"]) == uid(pod)
            || of_group(text(consumer, &["resource"]), text(consumer, &["name"]))
    });
    let owned = items(claim, &["metadata", "ownerReferences"])
        .iter()
        .filter(|owner| at(owner, &["controller"]) == true)
        .any(|owner| {
            text(owner, &["uid"]) == uid(pod)
                || (text(owner, &["kind"]) == "PodGroup" && of_group("podgroups", text(owner, &["name"])))
        });
    reserved && (!generated || owned)
}

/// Because of which rules, among these, a claim's devices make its Pods go.
pub(crate) fn by_rules(claim: &Value, rules: &[&Value], reasons: &mut Vec<Reason>) {
    for held in held(claim) {
        for rule in rules {
            let is_meant = effect(rule) == "NoExecute" && !is_held_back(rule);
            if is_meant
                && selects(rule, held.driver, held.pool, held.device)
                && let Some(due) = leave(held.result, at(rule, &["spec", "taint"]))
            {
                reasons.push(Reason { rule: Some(uid(rule).to_owned()), due, paused: is_paused(rule) });
            }
        }
    }
}

/// Because of which published taints a claim's devices make its Pods go.
pub(crate) fn by_slices(claim: &Value, slices: &Slices, reasons: &mut Vec<Reason>) {
    for held in held(claim) {
        for taint in published_taints(slices, held) {
            if let Some(due) = leave(held.result, taint) {
                reasons.push(Reason { rule: None, due, paused: false });
            }
        }
    }
}

/// Everything that decides, at one moment.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) pods: Vec<Arc<Value>>,
    pub(crate) claims: Vec<Arc<Value>>,
    pub(crate) rules: Vec<Arc<Value>>,
    pub(crate) slices: Slices,
}

impl State {
    /// As everything is now.
    pub(crate) fn of(cluster: &Cluster) -> Self {
        Self {
            pods: cluster.all("Pod"),
            claims: cluster.all("ResourceClaim"),
            rules: cluster.all("DeviceTaintRule"),
            slices: slices(cluster),
        }
    }

    /// Why a Pod has to go.
    pub(crate) fn reasons(&self, pod: &Value) -> Vec<Reason> {
        let mut reasons = Vec::new();
        if !is_evictable(pod) {
            return reasons;
        }
        let rules: Vec<&Value> = self.rules.iter().map(|rule| &**rule).collect();
        for claim in self.claims_of(pod) {
            by_rules(claim, &rules, &mut reasons);
            by_slices(claim, &self.slices, &mut reasons);
        }
        reasons
    }

    fn claims_of<'a>(&'a self, pod: &'a Value) -> impl Iterator<Item = &'a Value> {
        named_claims(pod).into_iter().filter_map(move |(wanted, generated)| {
            self.claims.iter().map(|c| &**c).find(|c| is_beside(c, wanted, pod) && is_used(pod, c, generated))
        })
    }

    /// Pods that outstayed their welcome: their time was over before `before`.
    pub(crate) fn survivors(&self, before: Timestamp, wrong: &mut Vec<String>) {
        for pod in &self.pods {
            if let Some(due) = self.due(pod).filter(|due| *due <= before) {
                wrong.push(format!("Pod {} should have been evicted at {due} and is still there", name(pod)));
            }
        }
    }

    /// When a Pod has to go.
    pub(crate) fn due(&self, pod: &Value) -> Option<Timestamp> {
        self.reasons(pod).iter().filter(|reason| !reason.paused).map(|reason| reason.due).min()
    }

    /// What the conditions of rules tell that is not so. `evicted` tells how many Pods the manager has evicted
    /// because of a rule since its start, at least and at most.
    pub(crate) fn conditions(&self, evicted: impl Fn(&str) -> (u64, u64), wrong: &mut Vec<String>) {
        for rule in &self.rules {
            let what = format!("DeviceTaintRule {}", name(rule));
            let Some(condition) = condition(rule) else {
                wrong.push(format!("{what} has no condition"));
                continue;
            };
            let generation = at(rule, &["metadata", "generation"]);
            if at(condition, &["observedGeneration"]) != generation {
                wrong.push(format!("{what}: the condition is not about generation {generation}"));
                continue;
            }
            let message = text(condition, &["message"]);
            let (message, noted) = match message.strip_suffix(PAUSED) {
                Some(rest) => (rest.trim_end(), true),
                None => (message, false),
            };
            let (message, count) = without_count(message);
            let meant = is_paused(rule) && text(condition, &["status"]) == "True";
            if noted != meant {
                wrong.push(format!("{what}: says that eviction is paused: {noted}, should: {meant}"));
            }
            let (least, most) = evicted(uid(rule));
            // What a rule without effect would do is told once, by whichever manager.
            if effect(rule) != "None" && (count < least || count > most) {
                wrong.push(format!("{what}: {count} Pods evicted, but it is {least} to {most}"));
            }
            let told = (text(condition, &["status"]), text(condition, &["reason"]), message);
            if let Some(right) = self.verdict(rule, count, told) {
                wrong.push(format!("{what} says {told:?}, but {right}"));
            }
        }
    }

    /// What a rule should say, if it does not; `evicted` is how many Pods are evicted.
    fn verdict(&self, rule: &Value, evicted: u64, told: (&str, &str, &str)) -> Option<String> {
        let differs = |status: &str, reason: &str, message: &str| {
            let right = (status, reason, message);
            (told != right).then(|| format!("should say {right:?}"))
        };
        match effect(rule) {
            "None" => {
                // What would happen is told once; it is compared when it is told.
                let same = told.0 == "False" && told.1 == "NoEffect";
                (!same).then(|| "should say NoEffect".to_owned())
            }
            "NoExecute" if is_held_back(rule) => {
                let same = told.0 == "Unknown" && told.1 == "NotConfirmed";
                (!same).then(|| "should say NotConfirmed".to_owned())
            }
            "NoExecute" => {
                let pending = self.pending(rule);
                if !pending.is_empty() {
                    let spaces = namespaces(pending.iter().copied());
                    let message = match pending.len() {
                        1 => format!("1 pod needs to be evicted in {spaces}."),
                        n => format!("{n} pods need to be evicted in {spaces}."),
                    };
                    return differs("True", "PodsPendingEviction", &message);
                }
                // Completed also when an earlier manager evicted Pods.
                let done = evicted > 0 || told.1 == "Completed";
                differs("False", if done { "Completed" } else { "NotStarted" }, "")
            }
            _ => differs("False", "OtherEffect", "Eviction only happens for the NoExecute effect."),
        }
    }

    /// The Pods that have to go because of a rule, now or later.
    fn pending(&self, rule: &Value) -> Vec<&Arc<Value>> {
        let is_by = |reason: &Reason| reason.rule.as_deref() == Some(uid(rule));
        self.pods.iter().filter(|pod| self.reasons(pod).iter().any(is_by)).collect()
    }

    /// What the condition of a rule with effect None should say.
    pub(crate) fn dry_run(&self, rule: &Value) -> String {
        let published = published(&self.slices, rule);
        let is_selected = |held: &Held<'_>| selects(rule, held.driver, held.pool, held.device);
        let allocated: usize = self.claims.iter().map(|c| held(c).filter(is_selected).count()).sum();
        let taint = at(rule, &["spec", "taint"]);
        let goes =
            |claim: &Value| held(claim).any(|held| is_selected(&held) && leave(held.result, taint).is_some());
        let pods: Vec<&Arc<Value>> =
            self.pods.iter().filter(|pod| is_evictable(pod) && self.claims_of(pod).any(goes)).collect();
        let devices = |count: usize, what: &str| match count {
            1 => format!("1 {what} device selected. "),
            n => format!("{n} {what} devices selected. "),
        };
        let spaces = namespaces(pods.iter().copied());
        let would = match pods.len() {
            1 => format!("1 pod would be evicted in {spaces}"),
            n => format!("{n} pods would be evicted in {spaces}"),
        };
        format!(
            "{}{}{would} if the effect was NoExecute. This information will not be updated again. Recreate the \
             DeviceTaintRule to trigger an update.",
            devices(published, "published"),
            devices(allocated, "allocated")
        )
    }
}

/// Devices in the newest generations that a rule selects.
fn published(slices: &Slices, rule: &Value) -> usize {
    let newest = |slice: &Value| {
        let pool = of_pool(slices, text(slice, &["spec", "driver"]), text(slice, &["spec", "pool", "name"]));
        pool.iter().map(|slice| generation(slice)).max()
    };
    slices
        .values()
        .filter(|slice| newest(slice) == Some(generation(slice)))
        .flat_map(|slice| items(slice, &["spec", "devices"]).iter().map(move |device| (slice, device)))
        .filter(|(slice, device)| {
            let (driver, pool) = (text(slice, &["spec", "driver"]), text(slice, &["spec", "pool", "name"]));
            selects(rule, driver, pool, text(device, &["name"]))
        })
        .count()
}

/// The condition that the manager keeps on a rule.
pub(crate) fn condition(rule: &Value) -> Option<&Value> {
    items(rule, &["status", "conditions"]).iter().find(|c| text(c, &["type"]) == CONDITION)
}

/// The message of a condition without the number of evicted Pods, and that number.
pub(crate) fn without_count(message: &str) -> (&str, u64) {
    let counted = |text: &'_ str| {
        let text = text.strip_suffix(" pods").or_else(|| text.strip_suffix(" pod"))?;
        let digits = text.len() - text.bytes().rev().take_while(u8::is_ascii_digit).count();
        let (before, number) = text.split_at_checked(digits)?;
        Some((before.len(), number.parse().ok()?))
    };
    match message.strip_suffix(SINCE_START).and_then(counted) {
        Some((before, count)) => (message.get(..before).unwrap_or_default().trim_end(), count),
        None => (message, 0),
    }
}
