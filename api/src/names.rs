//! Names that are part of the contract with the cluster: they equal those of the in-tree controllers, so that
//! either can take over from the other (spec resourceclaim.md, "Compatibility musts").

/// Annotation on a generated claim: the name of the Pod's (or PodGroup's) claim entry that it was made for.
pub const POD_CLAIM_NAME_ANNOTATION: &str = "resource.kubernetes.io/pod-claim-name";

/// Annotation with value `"true"` on a claim that kube-scheduler made for extended resources.
pub const EXTENDED_RESOURCE_ANNOTATION: &str = "resource.kubernetes.io/extended-resource-claim";

/// Finalizer that keeps an allocated claim; set by the scheduler before it writes an allocation.
pub const CLAIM_FINALIZER: &str = "resource.kubernetes.io/delete-protection";

/// Field manager of every server-side apply of the claim controller. Entries that the in-tree controller wrote
/// are owned by it, so another name could never remove them.
pub const CLAIM_FIELD_MANAGER: &str = "ResourceClaimController";

/// Component that claim controller events are reported by.
pub const CLAIM_EVENT_COMPONENT: &str = "resource_claim";

/// API group of claims, slices, classes and taint rules.
pub const RESOURCE_GROUP: &str = "resource.k8s.io";

/// Name of the taint eviction controller: field manager of the condition on rules, and component of its events.
/// The in-tree name, so that either can take over the other's condition.
pub const EVICTION_CONTROLLER: &str = "device-taint-eviction-controller";

/// Name of the pool status controller in-tree; names its queue here.
pub const POOL_STATUS_CONTROLLER: &str = "resourcepoolstatusrequest-controller";

/// Type of the condition that the taint eviction controller keeps on rules.
pub const EVICTION_IN_PROGRESS: &str = "EvictionInProgress";

/// Type of the condition on a Pod that is about to be deleted by a controller.
pub const DISRUPTION_TARGET: &str = "DisruptionTarget";
/// `reason` of that condition (in-tree).
pub const DISRUPTION_REASON: &str = "DeletionByDeviceTaintManager";
/// `message` of that condition (in-tree).
pub const DISRUPTION_MESSAGE: &str = "Device Taint manager: deleting due to NoExecute taint";

/// Annotation with value `"true"` on a rule: nothing is evicted because of it for the time being.
pub const PAUSE_ANNOTATION: &str = "dra-controller-manager.dev/pause-eviction";
/// Annotation with value `"true"` on a rule: `deviceSelector: {}` is meant, every device of the cluster.
pub const CONFIRM_ANNOTATION: &str = "dra-controller-manager.dev/confirm-all-devices";
/// Annotation on a rule without `deviceSelector`: the name of a DeviceClass whose devices it selects.
pub const SELECT_CLASS_ANNOTATION: &str = "dra-controller-manager.dev/select-device-class";
/// Annotation on a rule without `deviceSelector`: a CEL expression that is true of the devices that it selects.
pub const SELECT_CEL_ANNOTATION: &str = "dra-controller-manager.dev/select-cel";
/// Label of the rules that such a rule is expanded into: its name, or its uid where the name is too long for a label.
/// Without this label a rule is never changed or deleted by us.
pub const EXPANDED_FROM_LABEL: &str = "dra-controller-manager.dev/expanded-from";

/// API group of PodGroups.
pub const SCHEDULING_GROUP: &str = "scheduling.k8s.io";

/// apiVersion under which PodGroups are read and named as owners.
pub const POD_GROUP_API_VERSION: &str = "scheduling.k8s.io/v1beta1";

/// Most entries that the API server takes in `status.reservedFor` of a claim
/// (`ResourceClaimReservedForMaxSize`).
pub const RESERVED_FOR_MAX: usize = 256;

/// Whether an object can have this name: a DNS subdomain, as Pods, PodGroups and claims require
/// (`IsDNS1123Subdomain`). References to objects are often not checked by the API server; a name that fails here is
/// nobody's and must not become part of a URL.
pub fn is_object_name(name: &str) -> bool {
    let label = |label: &str| {
        let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
        edge(label.chars().next())
            && edge(label.chars().next_back())
            && label.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
    };
    name.len() <= 253 && name.split('.').all(label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_dns_subdomains_are_object_names() {
        assert!(is_object_name("a"));
        assert!(is_object_name("pod-0.example.com"));
        assert!(is_object_name(&"a".repeat(253)));
        for bad in ["", ".", "..", "../x", "a/b", "a%2fb", "A", "a_b", "-a", "a-", "a..b", "a?b", "\u{e9}"] {
            assert!(!is_object_name(bad), "{bad}");
        }
        assert!(!is_object_name(&"a".repeat(254)));
    }
}
