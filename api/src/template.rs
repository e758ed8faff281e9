//! ResourceClaimTemplates: what a claim is generated from.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{
    Meta,
    claim::WireDevices,
    meta::{Text, WireMeta},
    object::{DecodeError, Kind, Object, decode},
};

/// A ResourceClaimTemplate.
#[derive(Clone, Debug)]
pub struct ClaimTemplate {
    /// Identity.
    pub meta: Meta,
    /// `spec.metadata.labels`, copied to each claim.
    pub labels: BTreeMap<String, String>,
    /// `spec.metadata.annotations`, copied to each claim.
    pub annotations: BTreeMap<String, String>,
    /// `spec.spec` as it was received, so that a claim gets it verbatim, fields unknown to us included.
    pub spec: Box<RawValue>,
    /// True when a request asks for admin access (`exactly.adminAccess`).
    pub admin_access: bool,
    /// True when a request has a prioritized list (`firstAvailable`).
    pub prioritized: bool,
}

#[derive(Deserialize)]
struct Wire<'a> {
    #[serde(borrow)]
    metadata: WireMeta<'a>,
    #[serde(borrow)]
    spec: WireTemplateSpec<'a>,
}

#[derive(Deserialize)]
struct WireTemplateSpec<'a> {
    #[serde(borrow, default)]
    metadata: Option<WireTemplateMeta<'a>>,
    #[serde(borrow)]
    spec: &'a RawValue,
}

#[derive(Deserialize, Default)]
struct WireTemplateMeta<'a> {
    #[serde(borrow, default)]
    labels: Option<BTreeMap<Text<'a>, Text<'a>>>,
    #[serde(borrow, default)]
    annotations: Option<BTreeMap<Text<'a>, Text<'a>>>,
}

#[derive(Deserialize)]
struct WireClaimSpec<'a> {
    #[serde(borrow, default)]
    devices: WireDevices<'a>,
}

fn owned(map: Option<BTreeMap<Text<'_>, Text<'_>>>) -> BTreeMap<String, String> {
    map.unwrap_or_default().into_iter().map(|(k, v)| (k.owned(), v.owned())).collect()
}

impl Object for ClaimTemplate {
    const KIND: Kind = Kind {
        group: "resource.k8s.io",
        version: "v1",
        kind: "ResourceClaimTemplate",
        plural: "resourceclaimtemplates",
    };

    fn decode(json: &str) -> Result<Self, DecodeError> {
        let wire: Wire<'_> = decode(json)?;
        let inner: WireClaimSpec<'_> =
            decode(wire.spec.spec.get()).map_err(|e| DecodeError(format!("spec.spec.{e}")))?;
        let metadata = wire.spec.metadata.unwrap_or_default();
        Ok(Self {
            meta: wire.metadata.compact().map_err(DecodeError)?,
            labels: owned(metadata.labels),
            annotations: owned(metadata.annotations),
            spec: wire.spec.spec.to_owned(),
            admin_access: inner.devices.admin_access(),
            prioritized: inner.devices.prioritized(),
        })
    }

    fn meta(&self) -> &Meta {
        &self.meta
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template(requests: &str) -> ClaimTemplate {
        ClaimTemplate::decode(&format!(
            r#"{{"metadata":{{"name":"t","namespace":"ns","uid":"u","resourceVersion":"1","labels":{{"own":"x"}}}},
            "spec":{{"metadata":{{"labels":{{"a":"b"}},"annotations":{{"c":"d"}}}},
            "spec":{{"devices":{{"requests":[{requests}]}},"futureField":{{"x":1}}}}}}}}"#
        ))
        .unwrap()
    }

    #[test]
    fn the_claim_spec_is_kept_verbatim_with_fields_we_do_not_know() {
        let t = template(r#"{"name":"r","exactly":{"deviceClassName":"gpu"}}"#);
        assert!(t.spec.get().contains(r#""futureField":{"x":1}"#));
        assert_eq!(t.labels, BTreeMap::from([("a".to_owned(), "b".to_owned())]));
        assert_eq!(t.annotations.get("c").map(String::as_str), Some("d"));
        assert!(!t.admin_access && !t.prioritized);
    }

    #[test]
    fn admin_access_counts_only_on_exact_requests_that_ask_for_it() {
        assert!(
            template(r#"{"name":"r","exactly":{"deviceClassName":"g","adminAccess":true}}"#).admin_access
        );
        assert!(
            !template(r#"{"name":"r","exactly":{"deviceClassName":"g","adminAccess":false}}"#).admin_access
        );
        let list = template(r#"{"name":"r","firstAvailable":[{"name":"s","deviceClassName":"g"}]}"#);
        assert!(!list.admin_access && list.prioritized);
        assert!(!template(r#"{"name":"r","firstAvailable":[]}"#).prioritized);
    }
}
