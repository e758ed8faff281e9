//! What a request takes of a device's capacities.
//!
//! Rules: `consumable_capacity.go`; spec §6. The answer depends only on the request and on the device's list of
//! capacities, so it is worked out once for each pair of them and then compared with what is left of the device.

use std::collections::BTreeMap;

use dra_api::quantity::{Format, Quantity};

use crate::amount::{self, Nanos};
use crate::inventory::details::Capacity;
use crate::objects::{CapacityRequestPolicy, CapacityRequestPolicyRange};

/// What a request takes of each capacity of a device.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Need {
    /// The request cannot be computed with; this ends the allocation.
    Fatal(String),
    /// The request names a capacity that the device does not have.
    Missing {
        /// The capacity.
        name: Box<str>,
    },
    /// The amounts, and the first capacity whose policy forbids its amount.
    Amounts {
        /// One per capacity of the device, in the order of their names.
        amounts: Vec<Taken>,
        /// Position of the capacity whose policy is violated.
        violated: Option<usize>,
    },
}

/// What is taken of one capacity.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Taken {
    pub(crate) name: Box<str>,
    pub(crate) quantity: Quantity,
    pub(crate) nanos: Nanos,
    /// What the device has.
    pub(crate) value: Nanos,
    pub(crate) format: Format,
}

const NOT_REPRESENTABLE: &str = "capacity request cannot be represented in the device's range arithmetic";

/// What `requests` take of a device with the given capacities.
pub(crate) fn need(
    requests: Option<&BTreeMap<String, Quantity>>,
    capacities: &[Capacity],
    fractional_ranges: bool,
) -> Need {
    let missing = requests
        .into_iter()
        .flat_map(BTreeMap::keys)
        .find(|name| capacities.binary_search_by(|capacity| (*capacity.name).cmp(name.as_str())).is_err());
    if let Some(name) = missing {
        return Need::Missing { name: name.as_str().into() };
    }
    let mut amounts = Vec::with_capacity(capacities.len());
    for capacity in capacities {
        let requested = requests.and_then(|requests| requests.get(&*capacity.name));
        let fatal = |error: String| Need::Fatal(format!("capacity {:?}: {error}", capacity.name));
        let quantity = match consumed(requested, capacity, fractional_ranges) {
            Ok(quantity) => quantity,
            Err(error) => return fatal(error),
        };
        let Some(nanos) = amount::nanos(&quantity) else {
            return fatal(format!("{NOT_REPRESENTABLE}: request {quantity} is out of range"));
        };
        if nanos < 0 {
            return fatal("capacity value is negative".to_owned());
        }
        amounts.push(Taken {
            name: capacity.name.clone(),
            quantity,
            nanos,
            value: capacity.nanos,
            format: capacity.value.format(),
        });
    }
    let violated = amounts.iter().zip(capacities).position(|(taken, capacity)| {
        capacity.policy.as_ref().is_some_and(|policy| violates(&taken.quantity, policy, fractional_ranges))
    });
    Need::Amounts { amounts, violated }
}

fn consumed(requested: Option<&Quantity>, capacity: &Capacity, fractional: bool) -> Result<Quantity, String> {
    let policy = capacity.policy.as_deref();
    let Some(requested) = requested else {
        let default = policy.and_then(|policy| policy.default.as_ref());
        return Ok(default.unwrap_or(&capacity.value).clone());
    };
    match policy {
        Some(CapacityRequestPolicy { valid_range: Some(range), .. }) if range.min.is_some() => {
            round_up(requested, range, fractional)
        }
        Some(CapacityRequestPolicy { valid_values: Some(values), .. }) => {
            Ok(values.iter().find(|value| requested <= value).unwrap_or(requested).clone())
        }
        _ => Ok(requested.clone()),
    }
}

fn not_representable(requested: &Quantity, why: &str) -> String {
    format!("{NOT_REPRESENTABLE}: request {requested} {why}")
}

/// The least amount of the range that is not below the request; may lie above `max`.
fn round_up(
    requested: &Quantity,
    range: &CapacityRequestPolicyRange,
    fractional: bool,
) -> Result<Quantity, String> {
    let Some(min) = &range.min else { return Ok(requested.clone()) };
    if requested < min {
        return Ok(min.clone());
    }
    let Some(step) = &range.step else { return Ok(requested.clone()) };
    let format = step.format();
    if let Some(grid) = Grid::milli(range, fractional) {
        let value = exact_milli(requested)
            .ok_or_else(|| not_representable(requested, "is not a representable milli value"))?;
        let value = grid.round_up(value).ok_or_else(|| {
            not_representable(requested, "rounded up to the next step passes the milli-value range")
        })?;
        return Ok(if value % 1000 == 0 {
            Quantity::from_i64(value / 1000, format)
        } else {
            Quantity::from_milli(value, format)
        });
    }
    if *requested > Quantity::from_i64(i64::MAX, Format::DecimalSi) {
        return Err(not_representable(requested, "exceeds MaxInt64"));
    }
    // Below the minimum was ruled out, so the request is above the least 64-bit number unless the minimum is as well.
    let value = requested.value().ok_or_else(|| not_representable(requested, "exceeds MinInt64"))?;
    let grid =
        Grid::whole(range).ok_or_else(|| not_representable(requested, "meets a range beyond 64 bits"))?;
    let value = grid
        .round_up(value)
        .ok_or_else(|| not_representable(requested, "rounded up to the next step passes MaxInt64"))?;
    Ok(Quantity::from_i64(value, format))
}

/// The amounts `min`, `min + step`, … in 64-bit numbers.
struct Grid {
    min: i64,
    step: i64,
}

impl Grid {
    /// In thousandths, if the gate is on and all bounds are whole thousandths of 64 bits (`useMilli`).
    fn milli(range: &CapacityRequestPolicyRange, fractional: bool) -> Option<Self> {
        if !fractional {
            return None;
        }
        if let Some(max) = &range.max {
            exact_milli(max)?;
        }
        let step = exact_milli(range.step.as_ref()?)?;
        let min = exact_milli(range.min.as_ref()?)?;
        (step >= 1).then_some(Self { min, step })
    }

    /// In whole units, fractions rounded up.
    fn whole(range: &CapacityRequestPolicyRange) -> Option<Self> {
        Some(Self { min: range.min.as_ref()?.value()?, step: range.step.as_ref()?.value()? })
    }

    /// `None` beyond 64 bits, and for a step of zero.
    fn round_up(&self, value: i64) -> Option<i64> {
        let added = value.checked_sub(self.min)?;
        let steps = added.checked_div(self.step)? + i64::from(added.checked_rem(self.step)? != 0);
        self.min.checked_add(self.step.checked_mul(steps)?)
    }

    /// Whether the value is one of the amounts, regardless of bounds.
    fn contains(&self, value: i64) -> bool {
        value.checked_sub(self.min).and_then(|added| added.checked_rem(self.step)) == Some(0)
    }
}

/// The quantity in thousandths if it is a whole number of them (`safeMilliValue`).
fn exact_milli(quantity: &Quantity) -> Option<i64> {
    let milli = quantity.milli_value()?;
    (Quantity::from_milli(milli, Format::DecimalSi) == *quantity).then_some(milli)
}

fn violates(taken: &Quantity, policy: &CapacityRequestPolicy, fractional: bool) -> bool {
    if policy.default.as_ref() == Some(taken) {
        return false;
    }
    if let Some(range) = &policy.valid_range {
        if range.max.as_ref().is_some_and(|max| taken > max) {
            return true;
        }
        if range.step.is_none() {
            return false;
        }
        return match Grid::milli(range, fractional) {
            Some(grid) => !exact_milli(taken).is_some_and(|value| grid.contains(value)),
            None => match (Grid::whole(range), taken.value()) {
                (Some(grid), Some(value)) => !grid.contains(value),
                _ => true,
            },
        };
    }
    match policy.valid_values.as_deref() {
        Some(values) if !values.is_empty() => !values.contains(taken),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn q(text: &str) -> Quantity {
        Quantity::parse(text).unwrap()
    }

    fn range(min: &str, step: &str, max: &str) -> CapacityRequestPolicy {
        let part = |text: &str| (!text.is_empty()).then(|| q(text));
        CapacityRequestPolicy {
            valid_range: Some(CapacityRequestPolicyRange {
                min: part(min),
                step: part(step),
                max: part(max),
            }),
            ..Default::default()
        }
    }

    fn values(values: &[&str]) -> CapacityRequestPolicy {
        CapacityRequestPolicy {
            valid_values: Some(values.iter().map(|value| q(value)).collect()),
            ..Default::default()
        }
    }

    /// What a request takes of one capacity of value 100; `None` if the policy forbids it.
    fn take(
        request: Option<&str>,
        policy: CapacityRequestPolicy,
        fractional: bool,
    ) -> Result<Option<String>, String> {
        let capacity = Capacity::for_tests("c", q("100"), policy);
        let requests = request.map(|request| BTreeMap::from([("c".to_owned(), q(request))]));
        match need(requests.as_ref(), &[capacity], fractional) {
            Need::Fatal(error) => Err(error),
            Need::Missing { .. } => panic!("the capacity is there"),
            Need::Amounts { amounts, violated } => {
                Ok(violated.is_none().then(|| amounts[0].quantity.to_string()))
            }
        }
    }

    #[test]
    fn a_request_is_rounded_up_to_the_range() {
        assert_eq!(take(Some("1"), range("2", "2", "4"), false), Ok(Some("2".to_owned())));
        assert_eq!(take(Some("3"), range("2", "2", "4"), false), Ok(Some("4".to_owned())));
        assert_eq!(take(Some("5"), range("2", "2", "4"), false), Ok(None));
        assert_eq!(take(Some("3"), range("2", "", "4"), false), Ok(Some("3".to_owned())));
        assert_eq!(take(None, range("2", "2", ""), false), Ok(Some("100".to_owned())));
    }

    #[test]
    fn fractions_need_the_gate() {
        assert_eq!(take(Some("250m"), range("200m", "100m", "1"), false), Ok(Some("1".to_owned())));
        assert_eq!(take(Some("250m"), range("200m", "100m", "1"), true), Ok(Some("300m".to_owned())));
    }

    #[test]
    fn requests_beyond_64_bits_are_fatal() {
        for (request, policy, fractional) in [
            ("18446744073709551616", range("2", "2", ""), false),
            ("9223372036854775807", range("2", "2", ""), false),
            ("9223372036854775807", range("2", "2", ""), true),
        ] {
            let error = take(Some(request), policy, fractional).unwrap_err();
            assert!(error.contains("cannot be represented"), "{error}");
        }
        assert!(take(Some("-5"), values(&[]), false).unwrap_err().contains("negative"));
    }

    #[test]
    fn a_step_of_zero_is_an_error_and_not_a_division() {
        assert!(take(Some("5"), range("2", "0", ""), false).unwrap_err().contains("cannot be represented"));
        assert!(take(Some("5"), range("2", "0", ""), true).unwrap_err().contains("cannot be represented"));
    }

    #[test]
    fn a_request_takes_the_next_valid_value() {
        assert_eq!(take(Some("2"), values(&["1", "3"]), false), Ok(Some("3".to_owned())));
        assert_eq!(take(Some("4"), values(&["1", "3"]), false), Ok(None));
        assert_eq!(take(Some("1"), values(&["0"]), false), Ok(None));
        assert_eq!(take(Some("1"), values(&[]), false), Ok(Some("1".to_owned())));
    }

    #[test]
    fn the_default_is_always_valid() {
        let policy = CapacityRequestPolicy { default: Some(q("7")), ..values(&["1"]) };
        assert_eq!(take(None, policy.clone(), false), Ok(Some("7".to_owned())));
        assert_eq!(take(Some("7"), policy, false), Ok(Some("7".to_owned())));
    }
}
