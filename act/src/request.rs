//! How lookups and actions look on the wire.
//!
//! Every write is a patch or a server-side apply that names only what it changes, under the uid and, where the
//! decision depended on the state, the resourceVersion that it was planned for. Nothing is ever put back whole.

use std::sync::Arc;

use dra_api::{
    Claim, Consumer, DeviceTaintRule, Kind, Object, ObjectKey, Pod, PodGroup, ResourcePoolStatusRequest, Uid,
    names, taint::RuleVersion,
};
use dra_controllers::plan::{
    NewClaim, NewRule, PoolAnswer, Precondition, RuleCorrection, RuleReport, Subject, SubjectKind,
};
use http::{Request, header::CONTENT_TYPE};
use jiff::Timestamp;
use serde_json::{Value, json};

/// A request that [`kube::Client`] sends.
pub(crate) type HttpRequest = Request<Vec<u8>>;

const JSON: &str = "application/json";
const APPLY: &str = "application/apply-patch+yaml";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";

fn build(method: http::Method, path: &str, content: &str, body: String) -> Result<HttpRequest, http::Error> {
    Request::builder().method(method).uri(path).header(CONTENT_TYPE, content).body(body.into_bytes())
}

/// GET of one object.
pub(crate) fn get(kind: &Kind, key: &ObjectKey) -> Result<HttpRequest, http::Error> {
    Request::get(kind.path(&key.namespace, &key.name)).body(Vec::new())
}

/// One page of the claims in a namespace, consistent with all writes so far.
pub(crate) fn list_claims(namespace: &str, continue_: &str) -> Result<HttpRequest, http::Error> {
    let mut path = format!("{}?limit=500", Claim::KIND.path(namespace, ""));
    if !continue_.is_empty() {
        path.push_str("&continue=");
        path.push_str(continue_);
    }
    Request::get(path).body(Vec::new())
}

/// POST of a new claim.
pub(crate) fn create(new: &NewClaim) -> Result<HttpRequest, http::Error> {
    build(http::Method::POST, &Claim::KIND.path(&new.owner.key.namespace, ""), JSON, new.body.clone())
}

fn kind_of(subject: SubjectKind) -> Kind {
    match subject {
        SubjectKind::Pod => Pod::KIND,
        SubjectKind::PodGroup => PodGroup::KIND,
        SubjectKind::DeviceTaintRule => DeviceTaintRule::KIND,
    }
}

/// Server-side apply of `status.resourceClaimStatuses`. The uid keeps it off another object of that name.
pub(crate) fn record(owner: &Subject, statuses: &[(Arc<str>, Arc<str>)]) -> Result<HttpRequest, http::Error> {
    let kind = kind_of(owner.kind);
    let path = format!(
        "{}/status?fieldManager={}&force=true",
        kind.path(&owner.key.namespace, &owner.key.name),
        names::CLAIM_FIELD_MANAGER
    );
    let entries: Vec<Value> = statuses
        .iter()
        .map(|(entry, claim)| json!({"name": **entry, "resourceClaimName": **claim}))
        .collect();
    let body = json!({
        "apiVersion": kind.api_version(),
        "kind": kind.kind,
        "metadata": {"name": *owner.key.name, "namespace": *owner.key.namespace, "uid": *owner.uid},
        "status": {"resourceClaimStatuses": entries},
    });
    build(http::Method::PATCH, &path, APPLY, body.to_string())
}

fn locked(claim: &Precondition) -> Value {
    json!({"uid": *claim.uid, "resourceVersion": claim.resource_version.to_string()})
}

fn claim_path(claim: &Precondition, subresource: &str) -> String {
    format!("{}{subresource}", Claim::KIND.path(&claim.key.namespace, &claim.key.name))
}

/// Adds a consumer behind those that are there. `reservedFor` is merged by uid, and without an order a strategic
/// merge would put the new one in front.
pub(crate) fn reserve(
    claim: &Precondition,
    after: &[Uid],
    consumer: &Consumer,
) -> Result<HttpRequest, http::Error> {
    let mut entry = json!({"resource": *consumer.resource, "name": *consumer.name, "uid": *consumer.uid});
    if !consumer.api_group.is_empty()
        && let Some(fields) = entry.as_object_mut()
    {
        fields.insert("apiGroup".to_owned(), json!(*consumer.api_group));
    }
    let order: Vec<Value> = after.iter().chain([&consumer.uid]).map(|uid| json!({"uid": **uid})).collect();
    let body = json!({
        "metadata": locked(claim),
        "status": {"reservedFor": [entry], "$setElementOrder/reservedFor": order},
    });
    build(http::Method::PATCH, &claim_path(claim, "/status"), STRATEGIC, body.to_string())
}

/// Takes consumers off by uid, so that entries and fields of others stay as they are, and clears the allocation
/// in the same write if asked to.
pub(crate) fn release<'a>(
    claim: &Precondition,
    consumers: impl Iterator<Item = &'a str>,
    deallocate: bool,
) -> Result<HttpRequest, http::Error> {
    let removed: Vec<Value> = consumers.map(|uid| json!({"$patch": "delete", "uid": uid})).collect();
    let mut status = serde_json::Map::new();
    if !removed.is_empty() {
        status.insert("reservedFor".to_owned(), removed.into());
    }
    if deallocate {
        status.insert("allocation".to_owned(), Value::Null);
    }
    let body = json!({"metadata": locked(claim), "status": status});
    build(http::Method::PATCH, &claim_path(claim, "/status"), STRATEGIC, body.to_string())
}

/// Sets the condition `DisruptionTarget` of this very Pod; other conditions stay as they are.
pub(crate) fn disrupt(pod: &Subject, since: Timestamp) -> Result<HttpRequest, http::Error> {
    let path = format!("{}/status", Pod::KIND.path(&pod.key.namespace, &pod.key.name));
    let body = json!({
        "metadata": {"uid": *pod.uid},
        "status": {"conditions": [{
            "type": names::DISRUPTION_TARGET,
            "status": "True",
            "reason": names::DISRUPTION_REASON,
            "message": names::DISRUPTION_MESSAGE,
            "lastTransitionTime": seconds(since),
        }]},
    });
    build(http::Method::PATCH, &path, STRATEGIC, body.to_string())
}

/// As the API writes times.
fn seconds(time: Timestamp) -> String {
    format!("{time:.0}")
}

/// DELETE of a Pod as it was seen. No grace period: that is the Pod's own.
pub(crate) fn delete_pod(pod: &Precondition) -> Result<HttpRequest, http::Error> {
    let body = json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": locked(pod)});
    let path = Pod::KIND.path(&pod.key.namespace, &pod.key.name);
    build(http::Method::DELETE, &path, JSON, body.to_string())
}

/// Asks for the eviction of a Pod as it was seen, which PodDisruptionBudgets may forbid.
pub(crate) fn evict_pod(pod: &Precondition) -> Result<HttpRequest, http::Error> {
    let body = json!({
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": *pod.key.name, "namespace": *pod.key.namespace},
        "deleteOptions": {"preconditions": locked(pod)},
    });
    let path = format!("{}/eviction", Pod::KIND.path(&pod.key.namespace, &pod.key.name));
    build(http::Method::POST, &path, JSON, body.to_string())
}

/// Server-side apply of the condition of a rule, as in-tree writes it: conditions of others stay.
pub(crate) fn report(report: &RuleReport) -> Result<HttpRequest, http::Error> {
    let kind = report.version.kind();
    let path = format!(
        "{}/status?fieldManager={}&force=true",
        kind.path("", &report.rule.key.name),
        names::EVICTION_CONTROLLER
    );
    let condition = &report.condition;
    let body = json!({
        "apiVersion": kind.api_version(),
        "kind": kind.kind,
        "metadata": {
            "name": *report.rule.key.name,
            "uid": *report.rule.uid,
            "resourceVersion": report.resource_version.to_string(),
        },
        "status": {"conditions": [{
            "type": names::EVICTION_IN_PROGRESS,
            "status": condition.status.name(),
            "reason": *condition.reason,
            "message": *condition.message,
            "observedGeneration": condition.observed_generation,
            "lastTransitionTime": seconds(condition.last_transition.unwrap_or_default()),
        }]},
    });
    build(http::Method::PATCH, &path, APPLY, body.to_string())
}

/// POST of a rule that another one is expanded into.
pub(crate) fn create_rule(new: &NewRule) -> Result<HttpRequest, http::Error> {
    let path = format!("{}?fieldManager={}", new.version.kind().path("", ""), names::EVICTION_CONTROLLER);
    build(http::Method::POST, &path, JSON, new.body.clone())
}

/// Sets selector and taint of such a rule in the state in which it was seen.
pub(crate) fn correct_rule(to: &RuleCorrection) -> Result<HttpRequest, http::Error> {
    let path = format!(
        "{}?fieldManager={}",
        to.version.kind().path("", &to.rule.key.name),
        names::EVICTION_CONTROLLER
    );
    // An absent value is removed; an absent time is the API server's to give.
    let mut taint = json!({
        "key": *to.taint.key,
        "value": Some(&*to.taint.value).filter(|value| !value.is_empty()),
        "effect": to.taint.effect.name(),
    });
    if let (Some(fields), Some(time)) = (taint.as_object_mut(), to.taint.time_added) {
        fields.insert("timeAdded".to_owned(), json!(seconds(time)));
    }
    let selector = &to.selector;
    let body = json!({
        "metadata": locked(&to.rule),
        "spec": {
            "deviceSelector": {
                "driver": selector.driver.as_deref(),
                "pool": selector.pool.as_deref(),
                "device": selector.device.as_deref(),
            },
            "taint": taint,
        },
    });
    build(http::Method::PATCH, &path, MERGE, body.to_string())
}

/// DELETE of such a rule as it was seen.
pub(crate) fn delete_rule(version: RuleVersion, rule: &Precondition) -> Result<HttpRequest, http::Error> {
    let body = json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": locked(rule)});
    build(http::Method::DELETE, &version.kind().path("", &rule.key.name), JSON, body.to_string())
}

/// Sets the status of a request about pools in the state in which it was seen: whoever writes first has answered it. A
/// PUT, because the API server takes twice as long for a patch of 500 pools, and there is nothing that it could undo: of
/// a PUT to this subresource nothing counts but the status (and the driver must be there), and a status is written once.
/// Without `fieldValidation=Ignore` the API server reads the large body twice to warn about fields that it does not know.
pub(crate) fn answer(answer: &PoolAnswer) -> Result<HttpRequest, http::Error> {
    let request = &answer.request;
    let kind = ResourcePoolStatusRequest::KIND;
    let path = format!("{}/status?fieldValidation=Ignore", kind.path("", &request.key.name));
    let metadata = json!({"name": *request.key.name, "uid": *request.uid,
        "resourceVersion": request.resource_version.to_string()});
    // The status is text already, and large.
    let body = format!(
        r#"{{"apiVersion":{},"kind":{},"metadata":{metadata},"spec":{},"status":{}}}"#,
        json!(kind.api_version()),
        json!(kind.kind),
        json!({"driver": *answer.driver}),
        answer.status
    );
    build(http::Method::PUT, &path, JSON, body)
}

/// DELETE of this very request, in whatever state it is.
pub(crate) fn expire(request: &Precondition) -> Result<HttpRequest, http::Error> {
    let body = json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": *request.uid}});
    let path = ResourcePoolStatusRequest::KIND.path("", &request.key.name);
    build(http::Method::DELETE, &path, JSON, body.to_string())
}

/// Removes our finalizer and no other.
pub(crate) fn remove_finalizer(claim: &Precondition) -> Result<HttpRequest, http::Error> {
    let mut metadata = locked(claim);
    if let Some(fields) = metadata.as_object_mut() {
        fields.insert("$deleteFromPrimitiveList/finalizers".to_owned(), json!([names::CLAIM_FINALIZER]));
    }
    let body = json!({"metadata": metadata});
    build(http::Method::PATCH, &claim_path(claim, ""), STRATEGIC, body.to_string())
}

/// DELETE under preconditions.
pub(crate) fn delete(claim: &Precondition) -> Result<HttpRequest, http::Error> {
    let body = json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": locked(claim)});
    build(http::Method::DELETE, &claim_path(claim, ""), JSON, body.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use dra_api::{
        ResourceVersion, TaintEffect,
        taint::{DeviceTaintSelector, Taint},
    };

    fn claim() -> Precondition {
        Precondition { key: ObjectKey::new("ns", "c"), uid: "u".into(), resource_version: ResourceVersion(7) }
    }

    fn body(request: &HttpRequest) -> Value {
        serde_json::from_slice(request.body()).unwrap()
    }

    #[test]
    fn a_record_is_applied_as_the_in_tree_controller_does_and_names_the_uid() {
        let owner = Subject { kind: SubjectKind::Pod, key: ObjectKey::new("ns", "p"), uid: "u".into() };
        let request = record(&owner, &[("a".into(), "p-a-1".into())]).unwrap();
        assert_eq!(
            request.uri(),
            "/api/v1/namespaces/ns/pods/p/status?fieldManager=ResourceClaimController&force=true"
        );
        assert_eq!(
            body(&request),
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "ns", "uid": "u"},
                "status": {"resourceClaimStatuses": [{"name": "a", "resourceClaimName": "p-a-1"}]}})
        );
        let group = Subject { kind: SubjectKind::PodGroup, ..owner };
        let uri = record(&group, &[]).unwrap().uri().to_string();
        assert!(
            uri.starts_with("/apis/scheduling.k8s.io/v1beta1/namespaces/ns/podgroups/p/status?"),
            "{uri}"
        );
    }

    #[test]
    fn a_release_touches_only_the_consumers_it_names() {
        let request = release(&claim(), ["a", "b"].into_iter(), true).unwrap();
        assert_eq!(request.uri(), "/apis/resource.k8s.io/v1/namespaces/ns/resourceclaims/c/status");
        assert_eq!(
            body(&request),
            json!({"metadata": {"uid": "u", "resourceVersion": "7"}, "status": {"allocation": null,
                "reservedFor": [{"$patch": "delete", "uid": "a"}, {"$patch": "delete", "uid": "b"}]}})
        );
        let only_allocation = release(&claim(), std::iter::empty(), true).unwrap();
        assert_eq!(body(&only_allocation)["status"], json!({"allocation": null}));
    }

    #[test]
    fn a_pod_is_reserved_without_api_group_and_a_pod_group_with_it() {
        let mut consumer =
            Consumer { api_group: "".into(), resource: "pods".into(), name: "p".into(), uid: "pu".into() };
        let request = reserve(&claim(), &["first".into()], &consumer).unwrap();
        let status = body(&request)["status"].clone();
        assert_eq!(status["reservedFor"], json!([{"resource": "pods", "name": "p", "uid": "pu"}]));
        assert_eq!(status["$setElementOrder/reservedFor"], json!([{"uid": "first"}, {"uid": "pu"}]));
        consumer.api_group = names::SCHEDULING_GROUP.into();
        let request = reserve(&claim(), &[], &consumer).unwrap();
        assert_eq!(body(&request)["status"]["reservedFor"][0]["apiGroup"], names::SCHEDULING_GROUP);
    }

    #[test]
    fn a_delete_carries_uid_and_version() {
        let request = delete(&claim()).unwrap();
        assert_eq!(body(&request)["preconditions"], json!({"uid": "u", "resourceVersion": "7"}));
    }

    #[test]
    fn an_answer_is_for_the_state_that_was_seen_and_an_end_for_the_object() {
        let request = Precondition { key: ObjectKey::new("", "r"), ..claim() };
        let answered = answer(&PoolAnswer {
            request: request.clone(),
            driver: "d".into(),
            status: r#"{"poolCount":0}"#.to_owned(),
            failed: false,
        })
        .unwrap();
        assert_eq!(
            answered.uri(),
            "/apis/resource.k8s.io/v1alpha3/resourcepoolstatusrequests/r/status?fieldValidation=Ignore"
        );
        assert_eq!(
            body(&answered),
            json!({"apiVersion": "resource.k8s.io/v1alpha3", "kind": "ResourcePoolStatusRequest",
                "metadata": {"name": "r", "uid": "u", "resourceVersion": "7"}, "spec": {"driver": "d"},
                "status": {"poolCount": 0}})
        );
        let ended = expire(&request).unwrap();
        assert_eq!(ended.uri(), "/apis/resource.k8s.io/v1alpha3/resourcepoolstatusrequests/r");
        assert_eq!(body(&ended)["preconditions"], json!({"uid": "u"}));
    }

    #[test]
    fn an_eviction_marks_and_deletes_this_very_pod() {
        let pod = Subject { kind: SubjectKind::Pod, key: ObjectKey::new("ns", "p"), uid: "pu".into() };
        let request = disrupt(&pod, Timestamp::UNIX_EPOCH).unwrap();
        assert_eq!(request.uri(), "/api/v1/namespaces/ns/pods/p/status");
        assert_eq!(
            body(&request),
            json!({"metadata": {"uid": "pu"}, "status": {"conditions": [{
                "type": "DisruptionTarget", "status": "True", "reason": "DeletionByDeviceTaintManager",
                "message": "Device Taint manager: deleting due to NoExecute taint",
                "lastTransitionTime": "1970-01-01T00:00:00Z"}]}})
        );
        let request = delete_pod(&claim()).unwrap();
        assert_eq!(
            (request.method().as_str(), request.uri().path()),
            ("DELETE", "/api/v1/namespaces/ns/pods/c")
        );
        let wanted = json!({"uid": "u", "resourceVersion": "7"});
        assert_eq!(body(&request)["preconditions"], wanted);
        assert!(body(&request).get("gracePeriodSeconds").is_none(), "that is the Pod's own");
        let request = evict_pod(&claim()).unwrap();
        assert_eq!(request.uri(), "/api/v1/namespaces/ns/pods/c/eviction");
        assert_eq!(body(&request)["deleteOptions"]["preconditions"], wanted);
    }

    #[test]
    fn rules_are_created_corrected_and_deleted_through_the_version_that_is_served() {
        let parent =
            Subject { kind: SubjectKind::DeviceTaintRule, key: ObjectKey::new("", "r"), uid: "ru".into() };
        let new = NewRule {
            key: ObjectKey::new("", "r-1"),
            version: RuleVersion::V1beta2,
            parent: parent.clone(),
            body: r#"{"a":1}"#.to_owned(),
        };
        let request = create_rule(&new).unwrap();
        assert_eq!(
            request.uri(),
            "/apis/resource.k8s.io/v1beta2/devicetaintrules?fieldManager=device-taint-eviction-controller"
        );
        assert_eq!(body(&request), json!({"a": 1}));
        let rule = Precondition { key: ObjectKey::new("", "r-1"), ..claim() };
        let to = RuleCorrection {
            rule: rule.clone(),
            version: RuleVersion::V1,
            parent,
            selector: DeviceTaintSelector {
                driver: Some("d".into()),
                pool: Some("p".into()),
                device: Some("x".into()),
            },
            taint: Taint {
                key: "k".into(),
                value: "".into(),
                effect: TaintEffect::NoSchedule,
                time_added: Some(Timestamp::UNIX_EPOCH),
            },
        };
        let request = correct_rule(&to).unwrap();
        assert!(request.uri().path().ends_with("/v1/devicetaintrules/r-1"), "{}", request.uri());
        assert_eq!(
            body(&request),
            json!({"metadata": {"uid": "u", "resourceVersion": "7"}, "spec": {
                "deviceSelector": {"driver": "d", "pool": "p", "device": "x"},
                "taint": {"key": "k", "value": null, "effect": "NoSchedule", "timeAdded": "1970-01-01T00:00:00Z"}}})
        );
        let request = delete_rule(RuleVersion::V1alpha3, &rule).unwrap();
        assert_eq!(request.uri(), "/apis/resource.k8s.io/v1alpha3/devicetaintrules/r-1");
        assert_eq!(body(&request)["preconditions"], json!({"uid": "u", "resourceVersion": "7"}));
    }

    #[test]
    fn a_condition_is_applied_as_in_tree_does_it_through_the_version_that_is_served() {
        let what = RuleReport {
            rule: Subject {
                kind: SubjectKind::DeviceTaintRule,
                key: ObjectKey::new("", "r"),
                uid: "ru".into(),
            },
            resource_version: ResourceVersion(7),
            version: dra_api::taint::RuleVersion::V1beta2,
            effect: TaintEffect::NoExecute,
            condition: dra_api::taint::Condition {
                status: dra_api::taint::ConditionStatus::False,
                reason: "NotStarted".into(),
                message: "".into(),
                observed_generation: 3,
                last_transition: Some(Timestamp::UNIX_EPOCH),
            },
            changed: std::time::Duration::ZERO,
        };
        let request = report(&what).unwrap();
        assert_eq!(
            request.uri(),
            "/apis/resource.k8s.io/v1beta2/devicetaintrules/r/status?fieldManager=device-taint-eviction-controller\
             &force=true"
        );
        assert_eq!(
            body(&request),
            json!({"apiVersion": "resource.k8s.io/v1beta2", "kind": "DeviceTaintRule",
                "metadata": {"name": "r", "uid": "ru", "resourceVersion": "7"}, "status": {"conditions": [{
                "type": "EvictionInProgress", "status": "False", "reason": "NotStarted", "message": "",
                "observedGeneration": 3, "lastTransitionTime": "1970-01-01T00:00:00Z"}]}})
        );
    }

    #[test]
    fn only_our_finalizer_is_removed() {
        let request = remove_finalizer(&claim()).unwrap();
        assert_eq!(
            body(&request)["metadata"]["$deleteFromPrimitiveList/finalizers"],
            json!([names::CLAIM_FINALIZER])
        );
    }
}
