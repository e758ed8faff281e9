//! Taints as an eviction sees them: of devices in use, whether published or not, and which claims a taint concerns.
//!
//! The allocation has its own, stricter view of a pool: a generation that is not complete is not used at all. Here a
//! generation counts as soon as one slice of it is there, because taints must work at once; see
//! [`Inventory::slice_taints`] for what happens meanwhile to devices that it has not published yet.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Inventory;
use super::pool::Pool;
use super::slice::Slice;
use crate::ids::{DeviceId, PoolId};
use crate::objects::DeviceTaint;

/// A taint that a driver has published for a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SliceTaint {
    /// Name of the slice.
    pub slice: Arc<str>,
    /// Position in the device's list of taints.
    pub index: usize,
    /// The taint.
    pub taint: DeviceTaint,
}

/// Devices by name: parts that are absent match every name.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeviceFilter<'a> {
    /// Driver.
    pub driver: Option<&'a str>,
    /// Pool.
    pub pool: Option<&'a str>,
    /// Device.
    pub device: Option<&'a str>,
}

impl DeviceFilter<'_> {
    fn is_of(&self, id: &PoolId) -> bool {
        self.driver.is_none_or(|driver| *driver == *id.driver)
            && self.pool.is_none_or(|pool| *pool == *id.pool)
    }
}

impl Pool {
    fn newest(&self) -> Option<i64> {
        self.slots().iter().map(|slot| slot.slice.generation).max()
    }

    pub(super) fn slices_of(&self, generation: i64) -> impl Iterator<Item = &Arc<Slice>> {
        self.slots().iter().map(|slot| &slot.slice).filter(move |slice| slice.generation == generation)
    }

    /// Generations in which devices are looked for, the newest first: up to the first one that is complete.
    pub(super) fn visible_generations(&self) -> impl Iterator<Item = i64> {
        let mut next = self.newest();
        std::iter::from_fn(move || {
            let generation = next?;
            let older = self.slots().iter().map(|slot| slot.slice.generation);
            next = if self.is_complete(generation) {
                None
            } else {
                older.filter(|older| *older < generation).max()
            };
            Some(generation)
        })
    }

    /// All slices that the generation announces are there.
    fn is_complete(&self, generation: i64) -> bool {
        let announced = self.slices_of(generation).map(|slice| slice.announced).max().unwrap_or_default();
        i64::try_from(self.slices_of(generation).count()).is_ok_and(|count| count >= announced)
    }
}

impl Inventory {
    /// The taints that slices publish for a device.
    ///
    /// The newest generation counts. While a driver replaces one generation by the next, slice after slice, a device
    /// that the new one does not have yet keeps the taints of the one before, until the new one is complete:
    /// otherwise each republication would cancel evictions and begin them again.
    pub fn slice_taints(&self, device: &DeviceId) -> Vec<SliceTaint> {
        let Some(pool) = self.pool(&device.pool) else { return Vec::new() };
        for generation in pool.visible_generations() {
            for slice in pool.slices_of(generation) {
                let Some(found) = slice.find(&device.device).next().and_then(|at| slice.device(at)) else {
                    continue;
                };
                return found
                    .dated_taints()
                    .enumerate()
                    .map(|(index, taint)| SliceTaint { slice: Arc::clone(&slice.name), index, taint })
                    .collect();
            }
        }
        Vec::new()
    }

    /// Whether any slice of the pool, of whatever generation, publishes a taint with this effect.
    pub fn pool_has_taint(&self, pool: &PoolId, effect: &str) -> bool {
        self.pool(pool).is_some_and(|pool| pool.slots().iter().any(|slot| slot.slice.has_taint(effect)))
    }

    /// Names of the taint rules that select a device, published or not; sorted.
    pub fn rules_selecting(&self, device: &DeviceId) -> Vec<Arc<str>> {
        let mut names: Vec<Arc<str>> = self.taint_rules(&device.pool, None).iter().map(name_of).collect();
        if self.has_device_rules() {
            names.extend(self.taint_rules(&device.pool, Some(&device.device)).iter().map(name_of));
            names.sort();
        }
        names
    }

    /// How many devices the newest generations of all pools publish that the filter matches, whether complete or not.
    pub fn published(&self, filter: DeviceFilter<'_>) -> usize {
        let mut count: usize = 0;
        for pool in self.pools_matching(filter) {
            let Some(newest) = pool.newest() else { continue };
            for slice in pool.slices_of(newest) {
                count = count.saturating_add(match filter.device {
                    Some(device) => slice.find(device).count(),
                    None => slice.len(),
                });
            }
        }
        count
    }

    /// The claims that hold devices that the filter matches, for administration too; sorted.
    pub fn claims_holding(&self, filter: DeviceFilter<'_>) -> BTreeSet<Arc<str>> {
        let mut claims = BTreeSet::new();
        for pool in self.pools_matching(filter) {
            match filter.device {
                Some(device) => {
                    claims
                        .extend(pool.device_use(device).into_iter().flat_map(|used| used.holders().cloned()));
                }
                None => claims.extend(pool.uses().flat_map(|(_, used)| used.holders().cloned())),
            }
        }
        claims
    }

    pub(super) fn pools_matching<'a>(
        &'a self,
        filter: DeviceFilter<'a>,
    ) -> impl Iterator<Item = &'a Arc<Pool>> {
        // Pools are sorted by driver and name.
        let first = PoolId::new(filter.driver.unwrap_or_default(), filter.pool.unwrap_or_default());
        let first = if filter.driver.is_some() { first } else { PoolId::new("", "") };
        self.pools_from(&first)
            .take_while(move |(id, _)| match (filter.driver, filter.pool) {
                (Some(driver), Some(pool)) => *id.driver == *driver && *id.pool == *pool,
                (Some(driver), None) => *id.driver == *driver,
                (None, _) => true,
            })
            .filter(move |(id, _)| filter.is_of(id))
            .map(|(_, pool)| pool)
    }
}

fn name_of(rule: &Arc<crate::objects::DeviceTaintRule>) -> Arc<str> {
    rule.metadata.name.as_str().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::features::Features;
    use crate::objects::{
        AllocationResult, Device, DeviceRequestAllocationResult, DeviceTaintRule, DeviceTaintSelector,
        ResourceSlice,
    };

    fn slice(
        name: &str,
        pool: &str,
        (generation, count): (i64, i64),
        devices: &[(&str, &str)],
    ) -> ResourceSlice {
        let mut slice = ResourceSlice::default();
        slice.metadata.name = name.to_owned();
        slice.spec.driver = "d".to_owned();
        slice.spec.pool.name = pool.to_owned();
        slice.spec.pool.generation = generation;
        slice.spec.pool.resource_slice_count = count;
        for (name, taint) in devices {
            let taints = if taint.is_empty() {
                Vec::new()
            } else {
                vec![DeviceTaint {
                    key: (*taint).to_owned(),
                    effect: "NoExecute".to_owned(),
                    ..Default::default()
                }]
            };
            slice.spec.devices.push(Device { name: (*name).to_owned(), taints, ..Default::default() });
        }
        slice
    }

    fn keys(inventory: &Inventory, device: &str) -> Vec<String> {
        let device = DeviceId::new("d", "p", device);
        inventory.slice_taints(&device).into_iter().map(|t| format!("{}:{}", t.slice, t.taint.key)).collect()
    }

    #[test]
    fn the_newest_generation_counts_as_soon_as_it_shows_the_device() {
        let mut inventory = Inventory::new(Features::default());
        inventory.apply_slice(&slice("a", "p", (1, 1), &[("x", "old")]));
        assert_eq!(keys(&inventory, "x"), ["a:old"]);
        inventory.apply_slice(&slice("b", "p", (2, 2), &[("x", "")]));
        assert!(keys(&inventory, "x").is_empty());
        inventory.remove_slice("b");
        assert_eq!(keys(&inventory, "x"), ["a:old"], "an older generation is visible again");
    }

    /// An allocation looks at each different taint once; a driver dates them all differently.
    #[test]
    fn taints_that_differ_in_time_only_are_one_and_keep_their_times() {
        let mut inventory = Inventory::new(Features::default());
        let mut published = slice("a", "p", (1, 1), &[("x", "t"), ("y", "t")]);
        let times = ["2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"].map(|time| time.parse().ok());
        for (device, time) in published.spec.devices.iter_mut().zip(times) {
            device.taints[0].time_added = time;
        }
        inventory.apply_slice(&published);
        let slots = inventory.pool(&PoolId::new("d", "p")).unwrap().slots();
        assert_eq!(slots[0].slice.taint_count(), 1);
        for (device, time) in ["x", "y"].into_iter().zip(times) {
            let taints = inventory.slice_taints(&DeviceId::new("d", "p", device));
            assert_eq!((taints[0].taint.key.as_str(), taints[0].taint.time_added), ("t", time));
        }
    }

    #[test]
    fn a_device_keeps_its_taints_until_the_new_generation_has_published_it_or_is_complete() {
        let mut inventory = Inventory::new(Features::default());
        inventory.apply_slice(&slice("a", "p", (1, 2), &[("x", "t")]));
        inventory.apply_slice(&slice("b", "p", (1, 2), &[("y", "t")]));
        inventory.apply_slice(&slice("a", "p", (2, 2), &[("x", "t")]));
        assert_eq!(keys(&inventory, "y"), ["b:t"], "slice b has not been republished yet");
        inventory.apply_slice(&slice("b", "p", (2, 2), &[("z", "")]));
        assert!(keys(&inventory, "y").is_empty(), "the new generation is complete and lacks the device");
    }

    #[test]
    fn rules_and_claims_are_found_by_any_part_of_a_devices_name() {
        let mut inventory = Inventory::new(Features::default());
        let rule = |name: &str, driver: Option<&str>, pool: Option<&str>, device: Option<&str>| {
            let mut rule = DeviceTaintRule::default();
            rule.metadata.name = name.to_owned();
            let text = |part: Option<&str>| part.map(str::to_owned);
            rule.spec.device_selector =
                Some(DeviceTaintSelector { driver: text(driver), pool: text(pool), device: text(device) });
            rule
        };
        inventory.apply_taint_rule(&rule("all", None, None, None));
        inventory.apply_taint_rule(&rule("device", None, None, Some("x")));
        inventory.apply_taint_rule(&rule("exact", Some("d"), Some("p"), Some("x")));
        inventory.apply_taint_rule(&rule("other", Some("d"), Some("q"), None));
        let names = inventory.rules_selecting(&DeviceId::new("d", "p", "x"));
        assert_eq!(names.iter().map(|n| &**n).collect::<Vec<_>>(), ["all", "device", "exact"]);

        for (claim, pool, device, admin) in [("ns/a", "p", "x", None), ("ns/b", "q", "x", Some(true))] {
            let mut allocation = AllocationResult::default();
            allocation.devices.results.push(DeviceRequestAllocationResult {
                driver: "d".to_owned(),
                pool: pool.to_owned(),
                device: device.to_owned(),
                admin_access: admin,
                ..Default::default()
            });
            inventory.apply_allocation(claim, &allocation);
        }
        let claims =
            |filter| inventory.claims_holding(filter).iter().map(ToString::to_string).collect::<Vec<_>>();
        let all = DeviceFilter::default();
        assert_eq!(claims(all), ["ns/a", "ns/b"]);
        assert_eq!(claims(DeviceFilter { pool: Some("q"), ..all }), ["ns/b"], "admin access is no exemption");
        assert_eq!(claims(DeviceFilter { driver: Some("d"), pool: Some("p"), ..all }), ["ns/a"]);
        assert_eq!(claims(DeviceFilter { device: Some("x"), ..all }), ["ns/a", "ns/b"]);
        assert!(claims(DeviceFilter { driver: Some("e"), ..all }).is_empty());
    }

    #[test]
    fn published_devices_are_counted_in_the_newest_generations_only() {
        let mut inventory = Inventory::new(Features::default());
        inventory.apply_slice(&slice("a", "p", (1, 1), &[("x", ""), ("y", "")]));
        inventory.apply_slice(&slice("b", "p", (2, 5), &[("x", "")]));
        inventory.apply_slice(&slice("c", "q", (7, 1), &[("x", "t"), ("x", "t")]));
        assert_eq!(inventory.published(DeviceFilter::default()), 3);
        assert_eq!(inventory.published(DeviceFilter { pool: Some("p"), ..DeviceFilter::default() }), 1);
        assert_eq!(inventory.published(DeviceFilter { device: Some("x"), ..DeviceFilter::default() }), 3);
        assert!(inventory.pool_has_taint(&PoolId::new("d", "q"), "NoExecute"));
        assert!(!inventory.pool_has_taint(&PoolId::new("d", "p"), "NoExecute"));
    }
}
