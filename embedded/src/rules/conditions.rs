//! `metav1validation.ValidateConditions`.

use std::collections::BTreeSet;

use serde_json::Value;

use super::limited;
use crate::{
    formats::{is_condition_reason, is_label_key},
    object::{at, items, text},
    refusal::Cause,
};

/// Longest reason and longest message, in bytes.
const REASON_MAX: usize = 1024;
const MESSAGE_MAX: usize = 32 * 1024;
const STATUSES: &[&str] = &["False", "True", "Unknown"];

/// Checks the conditions of `holder`, whose path is `path`, and that there are at most `most`.
pub(super) fn conditions(holder: &Value, path: &str, most: usize, causes: &mut Vec<Cause>) {
    let all = items(holder, &["conditions"]);
    limited(all, most, &format!("{path}.conditions"), causes);
    let mut seen = BTreeSet::new();
    for (index, condition) in all.iter().enumerate() {
        let field = format!("{path}.conditions[{index}]");
        let named = |name: &str| format!("{field}.{name}");
        if !seen.insert(text(condition, &["type"])) {
            causes.push(Cause::duplicate(field.clone(), at(condition, &["type"])));
        }
        for required in ["type", "status", "lastTransitionTime", "reason"] {
            if text(condition, &[required]).is_empty() {
                causes.push(Cause::required(named(required), ""));
            }
        }
        let (kind, status) = (text(condition, &["type"]), text(condition, &["status"]));
        if !(kind.is_empty() || is_label_key(kind)) {
            causes.push(Cause::invalid(named("type"), at(condition, &["type"]), "a qualified name"));
        }
        if !(status.is_empty() || STATUSES.contains(&status)) {
            causes.push(Cause::not_supported(named("status"), at(condition, &["status"]), STATUSES));
        }
        let observed = at(condition, &["observedGeneration"]);
        if observed.as_i64().is_some_and(|o| o < 0) {
            let why = "must be greater than or equal to zero";
            causes.push(Cause::invalid(named("observedGeneration"), observed, why));
        }
        let reason = text(condition, &["reason"]);
        if !(reason.is_empty() || is_condition_reason(reason)) {
            let why = "a condition reason must start with alphabetic character";
            causes.push(Cause::invalid(named("reason"), at(condition, &["reason"]), why));
        }
        if reason.len() > REASON_MAX {
            causes.push(Cause::too_long(named("reason"), REASON_MAX));
        }
        if text(condition, &["message"]).len() > MESSAGE_MAX {
            causes.push(Cause::too_long(named("message"), MESSAGE_MAX));
        }
    }
}
