//! Who holds the devices of a pool.

use std::collections::BTreeMap;
use std::sync::Arc;

use dra_api::quantity::Quantity;

use crate::amount::{self, Nanos};
use crate::ids::DeviceId;
use crate::objects::AllocationResult;

/// One thing that a claim holds on a device.
#[derive(Clone, Debug, PartialEq)]
pub struct Holding {
    /// The device.
    pub device: DeviceId,
    /// In which way.
    pub kind: HoldingKind,
}

/// In which way a device is held.
#[derive(Clone, Debug, PartialEq)]
pub enum HoldingKind {
    /// The whole device.
    Dedicated,
    /// A share of the device.
    Share {
        /// The share's identifier.
        id: Arc<str>,
    },
    /// Capacity of the device; goes with a share.
    Consumed {
        /// Amounts by capacity name.
        capacity: BTreeMap<String, Quantity>,
    },
    /// Capacity that was written down for a device without a share: the whole device is taken all the same, and only
    /// summaries tell the amounts.
    Recorded {
        /// Amounts by capacity name.
        capacity: BTreeMap<String, Quantity>,
    },
    /// For administration; takes nothing away from others.
    Admin,
}

/// What the allocation of a claim holds, as the scheduler derives it from claims (`allocateddevices.go`).
///
/// With `consumable_capacity` off, a share counts as the whole device.
pub fn holdings(allocation: &AllocationResult, consumable_capacity: bool) -> Vec<Holding> {
    let mut holdings = Vec::new();
    for result in &allocation.devices.results {
        let device = DeviceId::new(&result.driver, &result.pool, &result.device);
        let mut hold = |kind| holdings.push(Holding { device: device.clone(), kind });
        if result.admin_access == Some(true) {
            hold(HoldingKind::Admin);
            continue;
        }
        match &result.share_id {
            Some(id) if consumable_capacity => {
                hold(HoldingKind::Share { id: id.as_str().into() });
                if !result.consumed_capacity.is_empty() {
                    hold(HoldingKind::Consumed { capacity: result.consumed_capacity.clone() });
                }
            }
            _ => {
                hold(HoldingKind::Dedicated);
                if !result.consumed_capacity.is_empty() {
                    hold(HoldingKind::Recorded { capacity: result.consumed_capacity.clone() });
                }
            }
        }
    }
    holdings
}

/// What claims hold on one device.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeviceUse {
    /// In the order of the claims' names, so that nothing depends on the order in which they came.
    holders: Vec<Holder>,
    /// How many of them hold the whole device.
    dedicated: usize,
    /// How many of them write down amounts for a whole device.
    recorded: usize,
    /// How many of them hold it for administration.
    admin: usize,
}

#[derive(Clone, Debug)]
struct Holder {
    claim: Arc<str>,
    kind: HoldingKind,
}

impl DeviceUse {
    /// How many holders of this kind there are, if that is counted.
    fn counted(&mut self, kind: &HoldingKind) -> Option<&mut usize> {
        match kind {
            HoldingKind::Dedicated => Some(&mut self.dedicated),
            HoldingKind::Recorded { .. } => Some(&mut self.recorded),
            HoldingKind::Admin => Some(&mut self.admin),
            HoldingKind::Share { .. } | HoldingKind::Consumed { .. } => None,
        }
    }

    pub(crate) fn add(&mut self, claim: &Arc<str>, kind: &HoldingKind) {
        let position = self.holders.partition_point(|holder| *holder.claim <= **claim);
        self.holders.insert(position, Holder { claim: claim.clone(), kind: kind.clone() });
        if let Some(count) = self.counted(kind) {
            *count = count.saturating_add(1);
        }
    }

    pub(crate) fn remove(&mut self, claim: &str, kind: &HoldingKind) {
        let first = self.holders.partition_point(|holder| *holder.claim < *claim);
        let mut same = self.holders.iter().skip(first).take_while(|holder| *holder.claim == *claim);
        let Some(position) = same.position(|holder| holder.kind == *kind) else { return };
        self.holders.remove(first.saturating_add(position));
        if let Some(count) = self.counted(kind) {
            *count = count.saturating_sub(1);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.holders.is_empty()
    }

    /// The device is not available to anybody else.
    pub(crate) fn is_dedicated(&self) -> bool {
        self.dedicated > 0
    }

    /// Somebody has the whole device and no amounts are written down for it.
    pub(crate) fn is_whole(&self) -> bool {
        self.dedicated > self.recorded
    }

    /// The device has a share, or capacity taken from it; a further share is free of counters and groups.
    pub(crate) fn is_shared(&self) -> bool {
        self.holders
            .iter()
            .any(|holder| matches!(holder.kind, HoldingKind::Share { .. } | HoldingKind::Consumed { .. }))
    }

    /// The device counts as allocated where counters and compatibility groups are summed up.
    pub(crate) fn is_allocated(&self) -> bool {
        self.holders.len() > self.admin
    }

    /// What is taken of a capacity, in nano-units.
    pub(crate) fn consumed(&self, capacity: &str) -> Nanos {
        self.consumptions()
            .filter_map(|consumed| consumed.get(capacity))
            // An amount beyond all bounds leaves nothing.
            .map(|quantity| amount::nanos(quantity).unwrap_or(amount::LIMIT))
            .fold(0, Nanos::saturating_add)
    }

    /// Capacities that allocations tell, with a share or without.
    pub(crate) fn recorded(&self) -> impl Iterator<Item = &BTreeMap<String, Quantity>> {
        self.holders.iter().filter_map(|holder| match &holder.kind {
            HoldingKind::Consumed { capacity } | HoldingKind::Recorded { capacity } => Some(capacity),
            _ => None,
        })
    }

    /// What each share takes of the device's capacities.
    pub(crate) fn consumptions(&self) -> impl Iterator<Item = &BTreeMap<String, Quantity>> {
        self.holders.iter().filter_map(|holder| match &holder.kind {
            HoldingKind::Consumed { capacity } => Some(capacity),
            _ => None,
        })
    }

    /// Claims that hold the device in whatever way, one entry for each holding.
    pub(crate) fn holders(&self) -> impl Iterator<Item = &Arc<str>> {
        self.holders.iter().map(|holder| &holder.claim)
    }

    /// Claims that hold the device other than for administration, sorted, each once.
    pub(crate) fn claims(&self) -> Vec<Arc<str>> {
        let mut claims: Vec<_> = self
            .holders
            .iter()
            .filter(|holder| holder.kind != HoldingKind::Admin)
            .map(|holder| holder.claim.clone())
            .collect();
        claims.sort();
        claims.dedup();
        claims
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::DeviceRequestAllocationResult;

    fn allocation(result: DeviceRequestAllocationResult) -> AllocationResult {
        let mut allocation = AllocationResult::default();
        allocation.devices.results.push(DeviceRequestAllocationResult {
            driver: "d".to_owned(),
            pool: "p".to_owned(),
            device: "x".to_owned(),
            ..result
        });
        allocation
    }

    fn kinds(result: DeviceRequestAllocationResult, consumable_capacity: bool) -> Vec<HoldingKind> {
        holdings(&allocation(result), consumable_capacity).into_iter().map(|holding| holding.kind).collect()
    }

    #[test]
    fn a_claim_holds_whole_devices_shares_and_capacity() {
        let one = Quantity::parse("1").unwrap();
        let share = DeviceRequestAllocationResult {
            share_id: Some("s".to_owned()),
            consumed_capacity: [("memory".to_owned(), one.clone())].into(),
            ..Default::default()
        };
        let id: Arc<str> = "s".into();
        assert_eq!(
            kinds(share.clone(), true),
            [
                HoldingKind::Share { id: id.clone() },
                HoldingKind::Consumed { capacity: [("memory".to_owned(), one)].into() }
            ]
        );
        assert_eq!(kinds(share.clone(), false)[0], HoldingKind::Dedicated);
        let without_share = DeviceRequestAllocationResult { share_id: None, ..share };
        let one = Quantity::parse("1").unwrap();
        assert_eq!(
            kinds(without_share, true),
            [HoldingKind::Dedicated, HoldingKind::Recorded { capacity: [("memory".to_owned(), one)].into() }]
        );
        assert_eq!(kinds(DeviceRequestAllocationResult::default(), true), [HoldingKind::Dedicated]);
        let admin = DeviceRequestAllocationResult { admin_access: Some(true), ..Default::default() };
        assert_eq!(kinds(admin, true), [HoldingKind::Admin]);
    }
}
