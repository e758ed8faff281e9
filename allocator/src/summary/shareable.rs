//! What is left of devices that can be shared (spec pool-status §6).

use std::collections::{BTreeMap, BTreeSet};

use dra_api::quantity::Quantity;

use super::status::{MOST_ITEMS, Member, ShareableCapacity, ShareableSummary};
use crate::amount::{self, Nanos};
use crate::inventory::pool::Pool;
use crate::inventory::slice::DeviceRef;
use crate::inventory::usage::DeviceUse;

fn add(sum: &mut Quantity, amount: &Quantity) {
    // A sum of more digits than anything real has is left as it is.
    if let Some(more) = sum.checked_add(amount) {
        *sum = more;
    }
}

fn nanos(quantity: &Quantity) -> Nanos {
    amount::nanos(quantity).unwrap_or(amount::LIMIT)
}

/// Nothing is left of any of the device's capacities.
fn is_used_up(device: DeviceRef<'_>, used: &DeviceUse) -> bool {
    let taken = |capacity: &str| -> Nanos {
        used.recorded().filter_map(|amounts| amounts.get(capacity)).map(nanos).fold(0, Nanos::saturating_add)
    };
    let capacities = device.capacities();
    used.is_whole()
        || (!capacities.is_empty()
            && capacities.iter().all(|capacity| taken(&capacity.name) >= nanos(&capacity.value)))
}

pub(super) fn shareable(pool: &Pool, devices: &[Member<'_>]) -> Result<Option<ShareableSummary>, String> {
    let mut summary = ShareableSummary::default();
    let mut totals: BTreeMap<&str, Quantity> = BTreeMap::new();
    let mut consumed: BTreeMap<&str, Quantity> = BTreeMap::new();
    // A device that is published twice has its shares once.
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    let mut any = false;
    for member in devices.iter().filter(|member| member.device.allow_multiple()) {
        any = true;
        let device = member.device;
        for capacity in device.capacities() {
            add(totals.entry(&capacity.name).or_insert(Quantity::ZERO), &capacity.value);
        }
        let used = pool.device_use(device.name()).filter(|used| used.is_allocated());
        let Some(used) = used else {
            summary.fully_available_devices = summary.fully_available_devices.saturating_add(1);
            continue;
        };
        if !is_used_up(device, used) {
            summary.partially_available_devices = summary.partially_available_devices.saturating_add(1);
        }
        if !seen.insert(device.name()) {
            continue;
        }
        if used.is_whole() {
            // Shares from when it could not be had whole take nothing of the other devices.
            for capacity in device.capacities() {
                add(consumed.entry(&capacity.name).or_insert(Quantity::ZERO), &capacity.value);
            }
            continue;
        }
        for (name, amount) in used.recorded().flatten() {
            add(consumed.entry(name).or_insert(Quantity::ZERO), amount);
        }
    }
    if !any {
        return Ok(None);
    }
    if totals.len() > MOST_ITEMS {
        return Err(format!(
            "ShareableSummaryOverCap: pool {} has {} shareable capacity keys, exceeding the maximum of {MOST_ITEMS}",
            pool.id,
            totals.len()
        ));
    }
    summary.capacity = totals
        .into_iter()
        .map(|(name, total)| {
            let consumed = consumed.remove(name).unwrap_or(Quantity::ZERO);
            let available = total
                .checked_sub(&consumed)
                .filter(|available| *available >= Quantity::ZERO)
                .unwrap_or(Quantity::ZERO);
            ShareableCapacity { name: name.to_owned(), total, consumed, available }
        })
        .collect();
    Ok(Some(summary))
}
