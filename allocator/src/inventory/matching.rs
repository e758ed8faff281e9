//! Which devices a class and an expression select, wherever they are and whoever holds them.
//!
//! The selectors are evaluated as an allocation evaluates them. Devices count as they do for taints, see
//! [`Inventory::slice_taints`]: those of the newest generation, and while that is not complete, those of the ones before
//! that it does not have yet.

use std::collections::{BTreeSet, HashSet};
use std::hash::{BuildHasherDefault, DefaultHasher};

use super::Inventory;
use crate::ids::DeviceId;
use crate::objects::{CelDeviceSelector, DeviceSelector};
use crate::selector::Selector;

/// Most bytes of an expression (`CELSelectorExpressionMaxLength`).
const LONGEST_EXPRESSION: usize = 10 * 1024;

/// The devices that were selected.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Matching {
    /// Devices of which all selectors are true.
    pub devices: BTreeSet<DeviceId>,
    /// How many devices could not be judged, because a selector failed on them; they are not selected.
    pub failed: usize,
    /// The failure of the first of them, in the order of pools, slices and devices.
    pub first_failure: Option<String>,
}

/// Why no device can be selected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unmatched {
    /// There is no such class.
    #[error("DeviceClass \"{0}\" does not exist")]
    NoClass(String),
    /// A selector is not valid.
    #[error("{0}")]
    Invalid(String),
    /// The selectors would cost more than they may.
    #[error("the selectors cost more than {limit} to evaluate on all devices: make them simpler")]
    TooCostly {
        /// The most that they may cost, in the units of the CEL cost limit.
        limit: u64,
    },
}

impl Inventory {
    /// The published devices of which all selectors of the class and the expression are true; without either, all of
    /// them. `budget` limits the cost of all evaluations together, in the units of the limit of 1,000,000 that
    /// Kubernetes sets for one evaluation.
    ///
    /// # Errors
    ///
    /// The class does not exist, a selector is not valid, or the budget is used up.
    pub fn matching(
        &self,
        class: Option<&str>,
        expression: Option<&str>,
        budget: u64,
    ) -> Result<Matching, Unmatched> {
        let selectors = self.selectors(class, expression)?;
        let mut evaluation = self.programs().evaluation();
        let mut found = Matching::default();
        let mut left = budget;
        for (id, pool) in &self.pools {
            let mut seen: HashSet<&str, BuildHasherDefault<DefaultHasher>> = HashSet::default();
            let slices = pool.visible_generations().flat_map(|generation| pool.slices_of(generation));
            for slice in slices {
                for (position, device) in slice.devices().enumerate() {
                    if !seen.insert(device.name()) {
                        continue;
                    }
                    let mut selected = true;
                    for (owner, at, selector) in &selectors {
                        let (matched, cost) = evaluation.matches_at_cost(selector, slice, position);
                        left = left.checked_sub(cost).ok_or(Unmatched::TooCostly { limit: budget })?;
                        selected = matched.unwrap_or_else(|failure| {
                            found.failed += 1;
                            found.first_failure.get_or_insert_with(|| {
                                failure.describe(owner, *at, &format!("{id}/{}", device.name()))
                            });
                            false
                        });
                        if !selected {
                            break;
                        }
                    }
                    if selected {
                        found.devices.insert(DeviceId { pool: id.clone(), device: device.name().into() });
                    }
                }
            }
        }
        Ok(found)
    }

    /// The selectors, each with its owner and position.
    fn selectors(
        &self,
        class: Option<&str>,
        expression: Option<&str>,
    ) -> Result<Vec<(String, usize, Selector)>, Unmatched> {
        let mut selectors = Vec::new();
        if let Some(name) = class {
            let class = self.class(name).ok_or_else(|| Unmatched::NoClass(name.to_owned()))?;
            let owner = format!("class {name}");
            let own = class.selectors.iter().enumerate();
            selectors.extend(own.map(|(position, selector)| (owner.clone(), position, selector.clone())));
        }
        if let Some(expression) = expression {
            if expression.len() > LONGEST_EXPRESSION {
                let text = format!("the expression is longer than {LONGEST_EXPRESSION} bytes");
                return Err(Unmatched::Invalid(text));
            }
            let cel = Some(CelDeviceSelector { expression: expression.to_owned() });
            selectors.push(("rule".to_owned(), 0, self.programs().selector(&DeviceSelector { cel })));
        }
        for (owner, position, selector) in &selectors {
            if let Some(fault) = selector.fault() {
                return Err(Unmatched::Invalid(fault.describe(owner, *position, "")));
            }
        }
        Ok(selectors)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::features::Features;
    use crate::objects::{Device, DeviceAttribute, DeviceClass, ResourceSlice};

    const BUDGET: u64 = 1_000_000;

    /// A slice of `driver`; each device has the attribute `model` if it is not empty.
    fn slice(
        driver: &str,
        name: &str,
        (generation, count): (i64, i64),
        devices: &[(&str, &str)],
    ) -> ResourceSlice {
        let mut slice = ResourceSlice::default();
        slice.metadata.name = name.to_owned();
        slice.spec.driver = driver.to_owned();
        slice.spec.pool.name = "p".to_owned();
        slice.spec.pool.generation = generation;
        slice.spec.pool.resource_slice_count = count;
        slice.spec.devices = devices
            .iter()
            .map(|(name, model)| {
                let mut device = Device { name: (*name).to_owned(), ..Device::default() };
                if !model.is_empty() {
                    let model = DeviceAttribute { string: Some((*model).to_owned()), ..Default::default() };
                    device.attributes.insert("model".to_owned(), model);
                }
                device
            })
            .collect();
        slice
    }

    fn inventory(slices: &[ResourceSlice]) -> Inventory {
        let mut inventory = Inventory::new(Features::default());
        for slice in slices {
            inventory.apply_slice(slice);
        }
        inventory
    }

    fn names(matching: &Matching) -> Vec<String> {
        matching.devices.iter().map(ToString::to_string).collect()
    }

    fn selected(inventory: &Inventory, expression: &str) -> Vec<String> {
        names(&inventory.matching(None, Some(expression), BUDGET).unwrap())
    }

    #[test]
    fn class_and_expression_must_both_be_true() {
        let mut inventory = inventory(&[
            slice("d", "a", (1, 1), &[("x", "A"), ("y", "B")]),
            slice("e", "b", (1, 1), &[("x", "A")]),
        ]);
        let mut class = DeviceClass::default();
        class.metadata.name = "c".to_owned();
        let cel = Some(CelDeviceSelector { expression: "device.driver == 'd'".to_owned() });
        class.spec.selectors = vec![DeviceSelector { cel }];
        inventory.apply_class(&class);
        let of = |class, expression| names(&inventory.matching(class, expression, BUDGET).unwrap());
        assert_eq!(of(Some("c"), None), ["d/p/x", "d/p/y"]);
        assert_eq!(of(Some("c"), Some("device.attributes['d'].model == 'B'")), ["d/p/y"]);
        assert_eq!(of(None, Some("true")), ["d/p/x", "d/p/y", "e/p/x"]);
        let missing = inventory.matching(Some("none"), None, BUDGET).unwrap_err();
        assert_eq!(missing, Unmatched::NoClass("none".to_owned()));
    }

    #[test]
    fn devices_that_cannot_be_judged_are_not_selected_but_counted() {
        let inventory = inventory(&[slice("d", "a", (1, 1), &[("x", "A"), ("y", ""), ("z", "")])]);
        let found = inventory.matching(None, Some("device.attributes['d'].model == 'A'"), BUDGET).unwrap();
        assert_eq!(names(&found), ["d/p/x"]);
        assert_eq!(found.failed, 2);
        let failure = found.first_failure.unwrap();
        assert!(
            failure.starts_with("rule: selector #0 on device d/p/y: CEL runtime error: no such key"),
            "{failure}"
        );
    }

    #[test]
    fn what_does_not_compile_selects_nothing_and_says_why() {
        let inventory = inventory(&[slice("d", "a", (1, 1), &[("x", "A")])]);
        let error =
            |expression: &str| inventory.matching(None, Some(expression), BUDGET).unwrap_err().to_string();
        assert!(error("device.nonsense").contains("CEL compile error"), "{}", error("device.nonsense"));
        assert!(error("1 + 1").contains("must evaluate to bool"), "{}", error("1 + 1"));
        assert!(error(&"x".repeat(20_000)).contains("longer than 10240 bytes"));
    }

    #[test]
    fn the_expression_of_the_readme_selects_old_firmware() {
        let mut old = slice("gpu.example.com", "a", (1, 1), &[("x", ""), ("y", ""), ("z", "")]);
        for (device, version) in old.spec.devices.iter_mut().zip(["2.0.9", "2.1.0"]) {
            let version = DeviceAttribute { version: Some(version.to_owned()), ..Default::default() };
            device.attributes.insert("firmware".to_owned(), version);
        }
        let expression = r#"device.attributes["gpu.example.com"].?firmware.orValue(semver("0.0.0")).isLessThan(semver("2.1.0"))
"#;
        assert_eq!(selected(&inventory(&[old]), expression), ["gpu.example.com/p/x", "gpu.example.com/p/z"]);
    }

    #[test]
    fn a_republication_slice_by_slice_loses_no_device_on_the_way() {
        let mut inventory =
            inventory(&[slice("d", "a", (1, 2), &[("x", "A")]), slice("d", "b", (1, 2), &[("y", "A")])]);
        let expression = "device.attributes['d'].model == 'A'";
        inventory.apply_slice(&slice("d", "a", (2, 2), &[("x", "B")]));
        assert_eq!(selected(&inventory, expression), ["d/p/y"], "x is another now, y has not been said yet");
        inventory.apply_slice(&slice("d", "b", (2, 2), &[("z", "A")]));
        assert_eq!(selected(&inventory, expression), ["d/p/z"]);
    }

    #[test]
    fn a_budget_bounds_the_work() {
        let inventory = inventory(&[slice("d", "a", (1, 1), &[("x", "A"), ("y", "A")])]);
        let error = inventory.matching(None, Some("device.driver == 'd'"), 3).unwrap_err();
        assert_eq!(error, Unmatched::TooCostly { limit: 3 });
    }
}
