//! Slices, taint rules and allocations on their way into the allocator's inventory, which keeps them for all
//! controllers. The one place where objects of the API become the allocator's input.

use std::sync::Arc;

use dra_allocator::{DeviceId, Holding, HoldingKind, PoolId, objects};
use dra_api::{
    AllocatedDevice, Claim, DeviceTaintRule, Meta, names,
    object::{DecodeError, Kind, Object, decode_spec},
};

/// A ResourceSlice. Its devices are kept by the inventory alone: what stays here tells which pool it belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceSlice {
    /// Identity; the namespace is empty.
    pub meta: Meta,
    /// The pool.
    pub pool: PoolId,
    /// Some device has a NoExecute taint.
    pub no_execute: bool,
    /// The whole slice, between decoding and the inventory.
    content: Option<Box<objects::ResourceSlice>>,
}

impl ResourceSlice {
    /// The whole slice, once.
    pub(super) fn take_content(&mut self) -> Option<Box<objects::ResourceSlice>> {
        self.content.take()
    }
}

impl Object for ResourceSlice {
    const KIND: Kind =
        Kind { group: names::RESOURCE_GROUP, version: "v1", kind: "ResourceSlice", plural: "resourceslices" };

    fn decode(json: &str) -> Result<Self, DecodeError> {
        let (meta, spec): (Meta, objects::ResourceSliceSpec) = decode_spec(json)?;
        let metadata =
            objects::ObjectMeta { name: meta.key.name.to_string(), ..objects::ObjectMeta::default() };
        Ok(Self {
            pool: PoolId::new(&spec.driver, &spec.pool.name),
            no_execute: spec.devices.iter().flat_map(|d| &d.taints).any(|t| t.effect == "NoExecute"),
            content: Some(Box::new(objects::ResourceSlice { metadata, spec })),
            meta,
        })
    }

    fn meta(&self) -> &Meta {
        &self.meta
    }
}

/// A DeviceClass. Its selectors are kept by the inventory alone.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceClass {
    /// Identity; the namespace is empty.
    pub meta: Meta,
    /// The whole class, between decoding and the inventory.
    content: Option<Box<objects::DeviceClass>>,
}

impl DeviceClass {
    /// The whole class, once.
    pub(super) fn take_content(&mut self) -> Option<Box<objects::DeviceClass>> {
        self.content.take()
    }
}

impl Object for DeviceClass {
    const KIND: Kind =
        Kind { group: names::RESOURCE_GROUP, version: "v1", kind: "DeviceClass", plural: "deviceclasses" };

    fn decode(json: &str) -> Result<Self, DecodeError> {
        let (meta, spec): (Meta, objects::DeviceClassSpec) = decode_spec(json)?;
        let metadata =
            objects::ObjectMeta { name: meta.key.name.to_string(), ..objects::ObjectMeta::default() };
        Ok(Self { content: Some(Box::new(objects::DeviceClass { metadata, spec })), meta })
    }

    fn meta(&self) -> &Meta {
        &self.meta
    }
}

/// The name of an allocated device.
pub fn device_id(device: &AllocatedDevice) -> DeviceId {
    DeviceId {
        pool: PoolId { driver: Arc::clone(&device.driver), pool: Arc::clone(&device.pool) },
        device: Arc::clone(&device.device),
    }
}

/// What a claim holds, as `dra_allocator::holdings` derives it from the whole object.
pub(super) fn holdings(claim: &Claim, consumable_capacity: bool) -> Vec<Holding> {
    let mut holdings = Vec::new();
    for result in claim.allocation.iter().flat_map(|a| &a.devices) {
        let device = device_id(result);
        let mut hold = |kind| holdings.push(Holding { device: device.clone(), kind });
        if result.admin_access {
            hold(HoldingKind::Admin);
            continue;
        }
        match &result.share_id {
            Some(id) if consumable_capacity => {
                hold(HoldingKind::Share { id: Arc::clone(id) });
                if let Some(capacity) = &result.consumed {
                    hold(HoldingKind::Consumed { capacity: (**capacity).clone() });
                }
            }
            _ => {
                hold(HoldingKind::Dedicated);
                if let Some(capacity) = &result.consumed {
                    hold(HoldingKind::Recorded { capacity: (**capacity).clone() });
                }
            }
        }
    }
    holdings
}

/// A taint rule as the inventory keeps it.
pub(super) fn taint_rule(rule: &DeviceTaintRule) -> objects::DeviceTaintRule {
    let text = |part: &Option<Arc<str>>| part.as_deref().map(str::to_owned);
    objects::DeviceTaintRule {
        metadata: objects::ObjectMeta { name: rule.meta.key.name.to_string(), ..Default::default() },
        spec: objects::DeviceTaintRuleSpec {
            device_selector: rule.selector.as_ref().map(|s| objects::DeviceTaintSelector {
                driver: text(&s.driver),
                pool: text(&s.pool),
                device: text(&s.device),
            }),
            taint: objects::DeviceTaint {
                key: rule.taint.key.to_string(),
                value: rule.taint.value.to_string(),
                effect: rule.taint.effect.name().to_owned(),
                time_added: rule.taint.time_added,
            },
        },
    }
}
