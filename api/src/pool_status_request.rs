//! A question about the pools of a driver, and whether it is answered (`k8s.io/api/resource/v1alpha3`).

use std::sync::Arc;

use jiff::Timestamp;
use serde::Deserialize;

use crate::{
    Meta, ObjectKey,
    meta::{Text, compact},
    names,
    object::{DecodeError, Kind, Object, decode},
};

/// A `ResourcePoolStatusRequest`. The answer itself is not kept: it never changes and concerns only who asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourcePoolStatusRequest {
    /// Identity; the namespace is empty.
    pub meta: Meta,
    /// `metadata.creationTimestamp`.
    pub created: Option<Timestamp>,
    /// `spec.driver`, compared byte by byte with that of slices.
    pub driver: Arc<str>,
    /// `spec.poolName`; without it, or if it is empty, all pools of the driver are asked for.
    pub pool: Option<Arc<str>>,
    /// `spec.limit`: at most so many pools are listed; the API server fills in 100.
    pub limit: Option<i32>,
    /// `spec.defaultPartitionTypeAttribute`.
    pub default_attribute: Option<Arc<str>>,
    /// `status`, however little there is in it: the request has been answered.
    pub answer: Option<Answered>,
}

/// What matters of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answered {
    /// `lastTransitionTime` of the first condition of type `Complete` or `Failed`, whatever its status.
    pub at: Option<Timestamp>,
}

impl ResourcePoolStatusRequest {
    /// Key of the request of that name.
    pub fn key(name: &str) -> ObjectKey {
        ObjectKey::new("", name)
    }

    /// True while nobody has answered.
    pub fn is_pending(&self) -> bool {
        self.answer.is_none()
    }
}

#[derive(Deserialize)]
struct Wire<'a> {
    #[serde(borrow)]
    metadata: WireRequestMeta<'a>,
    #[serde(borrow)]
    spec: WireSpec<'a>,
    #[serde(borrow, default)]
    status: Option<WireStatus<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireRequestMeta<'a> {
    #[serde(borrow)]
    name: Text<'a>,
    #[serde(borrow, default)]
    uid: Text<'a>,
    #[serde(borrow, default)]
    resource_version: Text<'a>,
    #[serde(default)]
    creation_timestamp: Option<Timestamp>,
    #[serde(borrow, default)]
    deletion_timestamp: Option<Text<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireSpec<'a> {
    #[serde(borrow)]
    driver: Text<'a>,
    #[serde(borrow, default)]
    pool_name: Option<Text<'a>>,
    #[serde(default)]
    limit: Option<i32>,
    #[serde(borrow, default)]
    default_partition_type_attribute: Option<Text<'a>>,
}

#[derive(Deserialize)]
struct WireStatus<'a> {
    #[serde(borrow, default)]
    conditions: Option<Vec<WireCondition<'a>>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireCondition<'a> {
    #[serde(borrow, default, rename = "type")]
    of_type: Text<'a>,
    #[serde(default)]
    last_transition_time: Option<Timestamp>,
}

impl Object for ResourcePoolStatusRequest {
    const KIND: Kind = Kind {
        group: names::RESOURCE_GROUP,
        version: "v1alpha3",
        kind: "ResourcePoolStatusRequest",
        plural: "resourcepoolstatusrequests",
    };

    fn decode(json: &str) -> Result<Self, DecodeError> {
        let Wire { metadata, spec, status } = decode(json)?;
        let deleting = metadata.deletion_timestamp.is_some();
        let meta = compact("", &metadata.name, &metadata.uid, &metadata.resource_version, deleting)
            .map_err(DecodeError)?;
        let text = |text: Option<Text<'_>>| text.filter(|text| !text.is_empty()).map(|text| text.shared());
        Ok(Self {
            meta,
            created: metadata.creation_timestamp,
            driver: spec.driver.shared(),
            pool: text(spec.pool_name),
            limit: spec.limit,
            default_attribute: text(spec.default_partition_type_attribute),
            answer: status.map(|status| {
                let conditions = status.conditions.unwrap_or_default();
                let is_end = |c: &&WireCondition<'_>| matches!(&*c.of_type, "Complete" | "Failed");
                Answered { at: conditions.iter().find(is_end).and_then(|c| c.last_transition_time) }
            }),
        })
    }

    fn meta(&self) -> &Meta {
        &self.meta
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(more: &str) -> ResourcePoolStatusRequest {
        ResourcePoolStatusRequest::decode(&format!(
            r#"{{"metadata":{{"name":"r","uid":"u","resourceVersion":"3","creationTimestamp":"2026-01-01T00:00:00Z",
            "managedFields":[{{"x":1}}]}},"spec":{{"driver":"gpu.dev"{more}"#
        ))
        .unwrap()
    }

    #[test]
    fn a_new_request_is_pending() {
        let found = request("}}");
        assert!(found.is_pending() && found.pool.is_none() && found.limit.is_none());
        assert_eq!(found.created, Some("2026-01-01T00:00:00Z".parse().unwrap()));
        assert!(request(r#"},"status":null}"#).is_pending());
        let full = request(r#","poolName":"a/b","limit":7,"defaultPartitionTypeAttribute":"gpu.dev/p"}}"#);
        assert_eq!((full.pool.as_deref(), full.limit), (Some("a/b"), Some(7)));
        assert_eq!(full.default_attribute.as_deref(), Some("gpu.dev/p"));
    }

    #[test]
    fn any_status_is_an_answer_and_its_time_is_that_of_the_first_final_condition() {
        assert_eq!(request(r#"},"status":{}}"#).answer, Some(Answered { at: None }));
        let with = |conditions: &str| request(&format!(r#"}},"status":{{"conditions":[{conditions}]}}}}"#));
        let condition = |of_type: &str, day: u8| {
            format!(
                r#"{{"type":"{of_type}","status":"False","lastTransitionTime":"2026-01-0{day}T00:00:00Z"}}"#
            )
        };
        let list = [condition("Other", 1), condition("Failed", 2), condition("Complete", 3)].join(",");
        let at = with(&list).answer.unwrap().at.unwrap();
        assert_eq!(at.to_string(), "2026-01-02T00:00:00Z");
        assert_eq!(with(&condition("Other", 1)).answer, Some(Answered { at: None }));
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let error = ResourcePoolStatusRequest::decode(r#"{"metadata":{"name":"r"},"spec":{"driver":7}}"#);
        assert!(error.unwrap_err().to_string().starts_with("spec.driver"));
    }
}
