//! What must hold for any request; requests come from the generator of the comparison with the Go allocator.

use std::collections::{BTreeMap, BTreeSet};

use dra_api::quantity::Quantity;
use dra_conformance::generate;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::amount::{self, Nanos};
use crate::inventory::Inventory;
use crate::inventory::usage::{Holding, HoldingKind};
use crate::objects::{AllocationResult, Device, Node, ResourceClaim, ResourceSlice};
use crate::search::Search;
use crate::{Answer, DeviceId, Features, Limits, Outcome};

/// A generated request in this crate's types.
struct Case {
    features: Features,
    classes: Vec<crate::objects::DeviceClass>,
    slices: Vec<ResourceSlice>,
    holdings: Vec<Holding>,
    node: Node,
    claims: Vec<ResourceClaim>,
}

impl Case {
    fn new(seed: u64) -> Self {
        let request = generate::request(seed);
        let mut features = serde_json::to_value(Features::NONE).unwrap();
        for (gate, on) in request["features"].as_object().unwrap() {
            features[gate] = on.clone();
        }
        let decode = |field: &str| request[field].clone();
        Self {
            features: serde_json::from_value(features).unwrap(),
            classes: serde_json::from_value(decode("classes")).unwrap(),
            slices: serde_json::from_value(decode("slices")).unwrap(),
            holdings: holdings(&request["allocatedState"]),
            node: serde_json::from_value(decode("node")).unwrap(),
            claims: serde_json::from_value(decode("claims")).unwrap(),
        }
    }

    fn inventory(&self) -> Inventory {
        let mut inventory = Inventory::new(self.features);
        for class in &self.classes {
            inventory.apply_class(class);
        }
        for slice in &self.slices {
            inventory.apply_slice(slice);
        }
        for (position, holding) in self.holdings.iter().enumerate() {
            inventory.apply_holdings(&format!("before-{position}"), vec![holding.clone()]);
        }
        inventory
    }

    fn ask(&self, inventory: &Inventory) -> Outcome {
        inventory.allocate(&self.node, &self.claims, Limits::NONE, &mut || "share".to_owned())
    }

    fn results(&self) -> Option<Vec<AllocationResult>> {
        match self.ask(&self.inventory()).answer {
            Ok(Answer::Allocated(results)) => Some(results),
            _ => None,
        }
    }

    /// Published devices of a pool's newest generation.
    fn devices(&self, driver: &str, pool: &str) -> Vec<&Device> {
        let of_pool: Vec<_> = self
            .slices
            .iter()
            .filter(|slice| slice.spec.driver == driver && slice.spec.pool.name == pool)
            .collect();
        let newest = of_pool.iter().map(|slice| slice.spec.pool.generation).max();
        of_pool
            .into_iter()
            .filter(|slice| {
                Some(slice.spec.pool.generation) == newest && slice.spec.shared_counters.is_empty()
            })
            .flat_map(|slice| &slice.spec.devices)
            .collect()
    }

    fn device(&self, driver: &str, pool: &str, name: &str) -> &Device {
        self.devices(driver, pool).into_iter().find(|device| device.name == name).unwrap()
    }

    fn held(&self, id: &DeviceId) -> impl Iterator<Item = &HoldingKind> {
        self.holdings.iter().filter(move |holding| holding.device == *id).map(|holding| &holding.kind)
    }

    /// Devices in use before and after, each once: name and whether it was in use before.
    fn in_use(&self, results: &[AllocationResult], driver: &str, pool: &str) -> BTreeMap<String, bool> {
        let mut found = BTreeMap::new();
        for result in results.iter().flat_map(|result| &result.devices.results) {
            if result.driver == driver && result.pool == pool {
                found.insert(result.device.clone(), false);
            }
        }
        for device in self.devices(driver, pool) {
            if self.held(&DeviceId::new(driver, pool, &device.name)).next().is_some() {
                found.insert(device.name.clone(), true);
            }
        }
        found
    }
}

fn holdings(state: &Value) -> Vec<Holding> {
    let mut found = Vec::new();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut add = |list: &str, kind: &dyn Fn(&Value) -> HoldingKind| {
        for entry in state[list].as_array().unwrap() {
            let device =
                DeviceId::new(&text(&entry["driver"]), &text(&entry["pool"]), &text(&entry["device"]));
            found.push(Holding { device, kind: kind(entry) });
        }
    };
    add("allocatedDevices", &|_| HoldingKind::Dedicated);
    add("allocatedSharedDeviceIDs", &|entry| HoldingKind::Share { id: text(&entry["shareID"]).into() });
    add("aggregatedCapacity", &|entry| HoldingKind::Consumed {
        capacity: serde_json::from_value(entry["consumed"].clone()).unwrap(),
    });
    found
}

fn nanos(quantity: &Quantity) -> Nanos {
    amount::nanos(quantity).unwrap()
}

fn pools(results: &[AllocationResult]) -> BTreeSet<(String, String)> {
    results
        .iter()
        .flat_map(|result| &result.devices.results)
        .map(|result| (result.driver.clone(), result.pool.clone()))
        .collect()
}

/// Requests that find something are rarer than others, so there are many.
fn seeds() -> impl Strategy<Value = u64> {
    1_000_000_u64..2_000_000
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_device_is_given_twice(seed in seeds()) {
        let case = Case::new(seed);
        let mut given = BTreeSet::new();
        for (claim, result) in case.results().unwrap_or_default().iter().enumerate() {
            for device in &result.devices.results {
                let id = DeviceId::new(&device.driver, &device.pool, &device.device);
                if device.admin_access == Some(true) {
                    if device.share_id.is_none() {
                        prop_assert!(given.insert((id, Some(claim))), "{device:?}");
                    }
                    continue;
                }
                prop_assert!(!case.held(&id).any(|kind| *kind == HoldingKind::Dedicated), "{device:?}");
                if device.share_id.is_none() {
                    prop_assert!(given.insert((id, None)), "{device:?}");
                }
            }
        }
    }

    #[test]
    fn counters_are_never_overdrawn(seed in seeds()) {
        let case = Case::new(seed);
        let results = case.results().unwrap_or_default();
        for (driver, pool) in pools(&results) {
            let mut left: BTreeMap<(String, String), Nanos> = BTreeMap::new();
            for slice in &case.slices {
                if slice.spec.driver != driver || slice.spec.pool.name != pool {
                    continue;
                }
                for set in &slice.spec.shared_counters {
                    for (name, counter) in &set.counters {
                        left.insert((set.name.clone(), name.clone()), nanos(&counter.value));
                    }
                }
            }
            let mut draws_more = false;
            for (name, before) in case.in_use(&results, &driver, &pool) {
                let device = case.device(&driver, &pool, &name);
                draws_more = draws_more || !before && !device.consumes_counters.is_empty();
                for consumption in &device.consumes_counters {
                    for (counter, amount) in &consumption.counters {
                        let key = (consumption.counter_set.clone(), counter.clone());
                        *left.get_mut(&key).unwrap() -= nanos(&amount.value);
                    }
                }
            }
            prop_assert!(!draws_more || left.values().all(|left| *left >= 0), "{driver}/{pool}: {left:?}");
        }
    }

    #[test]
    fn capacity_is_never_exceeded(seed in seeds()) {
        let case = Case::new(seed);
        let results = case.results().unwrap_or_default();
        let mut taken: BTreeMap<(DeviceId, String), Nanos> = BTreeMap::new();
        for device in results.iter().flat_map(|result| &result.devices.results) {
            let id = DeviceId::new(&device.driver, &device.pool, &device.device);
            for (name, amount) in &device.consumed_capacity {
                *taken.entry((id.clone(), name.clone())).or_default() += nanos(amount);
            }
        }
        for ((id, name), mut taken) in taken {
            for kind in case.held(&id) {
                if let HoldingKind::Consumed { capacity } = kind {
                    taken += capacity.get(&name).map_or(0, nanos);
                }
            }
            let device = case.device(&id.pool.driver, &id.pool.pool, &id.device);
            prop_assert!(taken <= nanos(&device.capacity[&name].value), "{id} {name}");
        }
    }

    #[test]
    fn taints_and_groups_are_respected(seed in seeds()) {
        let case = Case::new(seed);
        let results = case.results().unwrap_or_default();
        for result in results.iter().flat_map(|result| &result.devices.results) {
            let device = case.device(&result.driver, &result.pool, &result.device);
            if case.features.device_taints {
                for taint in device.taints.iter().filter(|taint| taint.effect.starts_with("NoS") || taint.effect.starts_with("NoE")) {
                    let tolerated = result.tolerations.iter().any(|toleration| {
                        let same = |a: &str, b: &str| a.is_empty() || a == b;
                        same(&toleration.effect, &taint.effect)
                            && same(&toleration.key, &taint.key)
                            && (toleration.operator == "Exists"
                                || toleration.operator == "Equal" && toleration.value == taint.value)
                    });
                    prop_assert!(tolerated, "{result:?} {taint:?}");
                }
            }
        }
        if !case.features.compatibility_groups {
            return Ok(());
        }
        for (driver, pool) in pools(&results) {
            let mut sets: BTreeMap<&str, Vec<BTreeSet<&str>>> = BTreeMap::new();
            for (name, before) in case.in_use(&results, &driver, &pool) {
                // Devices allocated before may contradict each other, and nothing joins them then.
                if before {
                    continue;
                }
                for consumption in &case.device(&driver, &pool, &name).consumes_counters {
                    let groups = consumption.compatibility_groups.iter().map(String::as_str).collect();
                    sets.entry(&consumption.counter_set).or_default().push(groups);
                }
            }
            for (set, members) in sets {
                let common = members.iter().cloned().reduce(|a, b| &a & &b).unwrap_or_default();
                let all_without = members.iter().all(BTreeSet::is_empty);
                prop_assert!(all_without || !common.is_empty(), "{driver}/{pool} {set}: {members:?}");
            }
        }
    }

    #[test]
    fn pruning_changes_neither_results_nor_errors(seed in seeds()) {
        let case = Case::new(seed);
        let inventory = case.inventory();
        let run = |pruned: bool| {
            let mut state = inventory.prepare(&case.node, &case.claims, Limits::NONE)?;
            let mut search = Search::new(&mut state, Limits { steps: 200_000, ..Limits::NONE });
            if !pruned {
                search = search.without_pruning();
            }
            let end = search.run()?;
            let steps = search.steps;
            let placed: Vec<_> = state
                .placed
                .iter()
                .map(|placed| placed.iter().map(|one| (one.request, one.location)).collect::<Vec<_>>())
                .collect();
            Ok::<_, crate::search::Stop>((format!("{end:?}"), placed, steps))
        };
        match (run(true), run(false)) {
            (Ok(pruned), Ok(full)) => {
                if !full.0.contains("GaveUp") {
                    prop_assert_eq!(&pruned.0, &full.0);
                    prop_assert_eq!(pruned.1, full.1);
                }
                prop_assert!(pruned.2 <= full.2);
            }
            (pruned, full) => prop_assert_eq!(pruned.err(), full.err()),
        }
    }

    #[test]
    fn undo_restores_the_state_exactly(seed in seeds()) {
        let case = Case::new(seed);
        let inventory = case.inventory();
        let Ok(mut state) = inventory.prepare(&case.node, &case.claims, Limits::NONE) else { return Ok(()) };
        let before = state.fingerprint();
        let end = Search::new(&mut state, Limits::NONE).run();
        match end {
            Ok(crate::search::End::DoesNotFit) => {}
            // Take everything back, last first.
            Ok(crate::search::End::Found(_)) => {
                for claim in (0..state.placed.len()).rev() {
                    while !state.placed[claim].is_empty() {
                        state.undo(claim);
                    }
                }
            }
            _ => return Ok(()),
        }
        prop_assert_eq!(before, state.fingerprint());
    }

    #[test]
    fn the_order_in_which_slices_arrive_does_not_matter(seed in seeds(), by in 1_usize..7) {
        let mut case = Case::new(seed);
        let answer = case.ask(&case.inventory());
        let middle = by % case.slices.len().max(1);
        case.slices.rotate_left(middle);
        case.slices.reverse();
        prop_assert_eq!(answer, case.ask(&case.inventory()));
    }

    #[test]
    fn a_snapshot_leaves_the_original_untouched(seed in seeds()) {
        let case = Case::new(seed);
        let original = case.inventory();
        let answer = case.ask(&original);
        let mut snapshot = original.snapshot();
        if let Ok(Answer::Allocated(results)) = &answer.answer {
            for (position, result) in results.iter().enumerate() {
                snapshot.apply_allocation(&format!("new-{position}"), result);
            }
            prop_assert_eq!(&answer, &case.ask(&original));
            // What was allocated can be given back.
            for position in 0..results.len() {
                snapshot.remove_allocation(&format!("new-{position}"));
            }
            prop_assert_eq!(&answer, &case.ask(&snapshot));
        }
        for slice in &case.slices {
            snapshot.remove_slice(&slice.metadata.name);
        }
        for position in 0..case.holdings.len() {
            snapshot.remove_allocation(&format!("before-{position}"));
        }
        for class in &case.classes {
            snapshot.remove_class(&class.metadata.name);
        }
        prop_assert_eq!(snapshot.pools().count(), 0);
        prop_assert_eq!(&answer, &case.ask(&original));
    }

    #[test]
    fn an_inventory_kept_up_to_date_equals_a_new_one(seed in seeds(), other in seeds()) {
        let case = Case::new(seed);
        let stale = Case::new(other);
        let mut inventory = Inventory::new(case.features);
        for (position, holding) in stale.holdings.iter().enumerate() {
            inventory.apply_holdings(&format!("stale-{position}"), vec![holding.clone()]);
        }
        for slice in &stale.slices {
            inventory.apply_slice(slice);
        }
        for class in &case.classes {
            inventory.apply_class(class);
        }
        for (position, holding) in case.holdings.iter().enumerate() {
            inventory.apply_holdings(&format!("before-{position}"), vec![holding.clone()]);
        }
        for slice in &case.slices {
            // First as something else, under the same name.
            let mut earlier = slice.clone();
            earlier.spec.pool.name = "elsewhere".to_owned();
            earlier.spec.devices.reverse();
            inventory.apply_slice(&earlier);
            inventory.apply_slice(slice);
        }
        for slice in &stale.slices {
            if !case.slices.iter().any(|one| one.metadata.name == slice.metadata.name) {
                inventory.remove_slice(&slice.metadata.name);
            }
        }
        for position in 0..stale.holdings.len() {
            inventory.remove_allocation(&format!("stale-{position}"));
        }
        prop_assert_eq!(case.ask(&inventory), case.ask(&case.inventory()));
    }

    #[test]
    fn an_explanation_agrees_with_the_answer_and_keeps_its_limits(seed in seeds(), limit in 0_usize..2000) {
        let case = Case::new(seed);
        let inventory = case.inventory();
        let explanation = inventory.explain(&case.node, &case.claims, Limits::NONE, 5);
        match case.ask(&inventory).answer {
            Ok(Answer::Allocated(_)) => prop_assert_eq!(&explanation.verdict, &crate::Verdict::Fits),
            Ok(_) => {
                prop_assert_eq!(&explanation.verdict, &crate::Verdict::DoesNotFit);
                prop_assert!(!explanation.failed.is_empty());
            }
            Err(error) => prop_assert_eq!(&explanation.verdict, &crate::Verdict::Error(error.to_string())),
        }
        prop_assert!(explanation.failed.iter().all(|failed| failed.devices.len() <= 5));
        prop_assert!(explanation.text(limit).len() <= limit);
        if let Some(text) = explanation.json(limit) {
            prop_assert!(text.len() <= limit);
            prop_assert_eq!(&serde_json::from_str::<Value>(&text).unwrap()["node"], &json!("node-1"));
        }
    }

    #[test]
    fn a_search_that_may_not_take_long_enough_gives_up(seed in seeds()) {
        let case = Case::new(seed);
        let inventory = case.inventory();
        let full = case.ask(&inventory);
        let ask = |limits| inventory.allocate(&case.node, &case.claims, limits, &mut || "share".to_owned());
        prop_assert_eq!(&ask(Limits { steps: full.steps, ..Limits::NONE }), &full);
        if full.steps > 0 {
            let short = ask(Limits { steps: full.steps - 1, ..Limits::NONE });
            prop_assert_eq!(short.answer, Ok(Answer::GaveUp(crate::GaveUp::Steps)));
        }
    }
}
