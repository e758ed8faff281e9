//! PodGroups (`scheduling.k8s.io/v1beta1`), reduced to their claims.

use serde::Deserialize;

use crate::{
    ClaimEntry, ClaimStatus, Meta,
    meta::WireMeta,
    names,
    object::{DecodeError, Kind, Object, decode},
    pod::{WireClaimStatus, WireEntry, entries, statuses},
};

/// A PodGroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodGroup {
    /// Identity.
    pub meta: Meta,
    /// `spec.resourceClaims`, in order; immutable, at most four.
    pub claims: Box<[ClaimEntry]>,
    /// `status.resourceClaimStatuses`, in order.
    pub claim_statuses: Box<[ClaimStatus]>,
}

#[derive(Deserialize)]
struct Wire<'a> {
    #[serde(borrow)]
    metadata: WireMeta<'a>,
    #[serde(borrow, default)]
    spec: WireSpec<'a>,
    #[serde(borrow, default)]
    status: Option<WireStatus<'a>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct WireSpec<'a> {
    #[serde(borrow, default)]
    resource_claims: Option<Vec<WireEntry<'a>>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireStatus<'a> {
    #[serde(borrow, default)]
    resource_claim_statuses: Option<Vec<WireClaimStatus<'a>>>,
}

impl Object for PodGroup {
    const KIND: Kind =
        Kind { group: names::SCHEDULING_GROUP, version: "v1beta1", kind: "PodGroup", plural: "podgroups" };

    fn decode(json: &str) -> Result<Self, DecodeError> {
        let wire: Wire<'_> = decode(json)?;
        Ok(Self {
            meta: wire.metadata.compact().map_err(DecodeError)?,
            claims: entries(wire.spec.resource_claims),
            claim_statuses: statuses(wire.status.and_then(|s| s.resource_claim_statuses)),
        })
    }

    fn meta(&self) -> &Meta {
        &self.meta
    }
}
