//! The texts of conditions and events. Those of spec §5.2 are in-tree's, to the letter.

use std::fmt::Write;

use dra_api::names;

use crate::view::{Reason, Refusal, Selected, TaintSource};

fn pods(count: usize) -> String {
    if count == 1 { "1 pod".to_owned() } else { format!("{count} pods") }
}

fn namespaces(count: usize) -> String {
    if count == 1 { "1 namespace".to_owned() } else { format!("{count} different namespaces") }
}

/// Pods that are still to be evicted, in how many namespaces.
pub fn pending(count: usize, spaces: usize) -> String {
    let need = if count == 1 { "needs" } else { "need" };
    format!("{} {need} to be evicted in {}.", pods(count), namespaces(spaces))
}

/// What a rule would do: devices that it selects, published and allocated, and Pods that would go.
pub fn dry_run(published: usize, allocated: usize, count: usize, spaces: usize) -> String {
    let devices = |count: usize, what: &str| {
        let plural = if count == 1 { "" } else { "s" };
        format!("{count} {what} device{plural} selected. ")
    };
    format!(
        "{}{}{} would be evicted in {} if the effect was NoExecute. This information will not be updated again. \
         Recreate the DeviceTaintRule to trigger an update.",
        devices(published, "published"),
        devices(allocated, "allocated"),
        pods(count),
        namespaces(spaces)
    )
}

/// Effects that are not about eviction.
pub const OTHER_EFFECT: &str = "Eviction only happens for the NoExecute effect.";

/// `text`, followed by how many Pods were evicted if any were.
pub fn with_evicted(mut text: String, evicted: u64) -> String {
    if evicted > 0 {
        if !text.is_empty() {
            text.push(' ');
        }
        let pods = if evicted == 1 { "1 pod".to_owned() } else { format!("{evicted} pods") };
        let _ = write!(text, "{pods} evicted since starting the controller.");
    }
    text
}

/// What holds evictions up; follows what in-tree would say.
pub fn with_obstacles(mut text: String, paused: bool, blocked: usize) -> String {
    if blocked > 0 {
        let (are, their) = if blocked == 1 { ("is", "its") } else { ("are", "their") };
        let _ = write!(
            text,
            " {} {are} protected by {their} PodDisruptionBudget at present; eviction is tried again.",
            pods(blocked)
        );
    }
    if paused {
        let _ = write!(text, " Eviction is paused by the annotation {}.", names::PAUSE_ANNOTATION);
    }
    text.trim_start().to_owned()
}

fn devices(count: usize) -> String {
    if count == 1 { "1 device".to_owned() } else { format!("{count} devices") }
}

/// Selectors by annotation do not count beside others.
pub const NOT_EXPANDED: &str = "The annotations dra-controller-manager.dev/select-device-class and \
                                dra-controller-manager.dev/select-cel do not count where there is a deviceSelector: \
                                leave it out.";

/// How many devices a rule is expanded for.
pub fn expanded(selected: &Selected) -> String {
    let text =
        format!("Selects {}; there is one DeviceTaintRule for each.", devices(selected.children.len()));
    with_failures(text, selected)
}

/// Why it is not known what a rule selects.
pub fn refused(refusal: &Refusal) -> String {
    format!("It is not known which devices are selected: {}. Nothing is changed.", refusal.text())
}

/// Why a rule is not expanded.
pub fn too_many(selected: usize, most: usize) -> String {
    format!(
        "{} are selected, above the limit of {most} (--max-expanded-rules): no DeviceTaintRule is created for them.",
        devices(selected)
    )
}

/// Why one rule is missing.
pub fn name_taken(name: &str) -> String {
    format!(
        "DeviceTaintRule \"{name}\" is not one that this rule is expanded into: it is left alone, and its name is needed."
    )
}

/// How many of the rules exist that a rule is expanded into.
pub fn progress(there: usize, wanted: usize, taken: usize) -> String {
    let mut text = format!("{there} of {wanted} DeviceTaintRules are in place.");
    if taken > 0 {
        let _ = write!(text, " The names of {taken} are taken by others.");
    }
    text
}

/// `text`, followed by how many devices could not be judged.
pub fn with_failures(mut text: String, selected: &Selected) -> String {
    if let Some(first) = &selected.first_failure {
        let are = if selected.failed == 1 { "is" } else { "are" };
        let _ = write!(
            text,
            " {} {are} not selected because a selector fails on them, the first: {first}",
            devices(selected.failed)
        );
    }
    text.trim_start().to_owned()
}

/// Why a rule that selects everything evicts nothing, and how to go on.
pub fn held(dropped: &[std::sync::Arc<str>], is_annotated: bool) -> String {
    let mut text = format!(
        "The rule selects every device of the cluster. No pod is evicted because of it until the annotation {}: \
         \"true\" confirms that this is meant, or deviceSelector names a driver, pool or device. The scheduler \
         honours the rule meanwhile.",
        names::CONFIRM_ANNOTATION
    );
    if !dropped.is_empty() {
        let fields: Vec<String> = dropped.iter().map(|field| format!("deviceSelector.{field}")).collect();
        let _ = write!(
            text,
            " Asked for was {}, which this API version does not have: the API server has dropped it.",
            fields.join(", ")
        );
    }
    if is_annotated {
        let _ = write!(text, " {NOT_EXPANDED}");
    }
    text
}

/// A reason in words: which object taints which device, and how the claim stands to that.
pub fn reason(reason: &Reason) -> String {
    let by = match &reason.source {
        TaintSource::Rule { name, .. } => match &reason.parent {
            Some(parent) => format!("DeviceTaintRule \"{name}\", expanded from \"{}\",", parent.name),
            None => format!("DeviceTaintRule \"{name}\""),
        },
        TaintSource::Slice { slice, .. } => format!("ResourceSlice \"{slice}\""),
    };
    let stand = match reason.tolerated {
        None => "does not tolerate it".to_owned(),
        Some(seconds) => format!("tolerates it for {seconds} s"),
    };
    format!(
        "{by} taints device {} with {}, ResourceClaim \"{}\" {stand}",
        reason.device, reason.taint, reason.claim
    )
}

/// A reason in words, and how many others there are.
pub fn reasons(all: &[Reason]) -> String {
    // The one that comes first in time is why it happens now.
    let Some(first) = all.iter().filter(|r| !r.paused).min_by_key(|r| r.at).or(all.first()) else {
        return String::new();
    };
    match all.len().saturating_sub(1) {
        0 => reason(first),
        more => format!("{} (and {more} more)", reason(first)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_those_of_the_in_tree_controller() {
        assert_eq!(pending(1, 1), "1 pod needs to be evicted in 1 namespace.");
        assert_eq!(pending(2, 1), "2 pods need to be evicted in 1 namespace.");
        assert_eq!(
            with_evicted(pending(2, 2), 1),
            "2 pods need to be evicted in 2 different namespaces. 1 pod evicted since starting the controller."
        );
        assert_eq!(with_evicted(String::new(), 7), "7 pods evicted since starting the controller.");
        assert_eq!(with_evicted(String::new(), 0), "");
        assert_eq!(
            dry_run(3, 1, 1, 1),
            "3 published devices selected. 1 allocated device selected. 1 pod would be evicted in 1 namespace if the \
             effect was NoExecute. This information will not be updated again. Recreate the DeviceTaintRule to trigger \
             an update."
        );
        assert!(dry_run(1, 0, 0, 0).starts_with(
            "1 published device selected. 0 allocated devices selected. 0 pods would be evicted in 0 different \
             namespaces if the effect was NoExecute."
        ));
    }

    #[test]
    fn obstacles_follow_what_in_tree_would_say() {
        assert_eq!(with_obstacles(String::new(), false, 0), "");
        assert_eq!(
            with_obstacles("1 pod.".to_owned(), true, 1),
            "1 pod. 1 pod is protected by its PodDisruptionBudget at present; eviction is tried again. Eviction is \
             paused by the annotation dra-controller-manager.dev/pause-eviction."
        );
    }

    #[test]
    fn dropped_selectors_are_named() {
        assert!(held(&["deviceClassName".into()], false).ends_with(
            "Asked for was deviceSelector.deviceClassName, which this API version does not have: the API server has \
             dropped it."
        ));
    }
}
