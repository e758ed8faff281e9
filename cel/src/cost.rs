//! What calls cost, as cel-go and Kubernetes charge for them after they are done.
//!
//! Sources: `interpreter/runtimecost.go`, `ext/lists.go`, `ext/sets.go` of cel-go and `pkg/cel/library/cost.go` of the
//! API server. Sizes of strings are in code points.

use crate::error::EvalError;
use crate::value::{Fuel, Map, Value, len};

/// The most that one evaluation may cost (`CELSelectorExpressionMaxCost`).
pub const COST_LIMIT: u64 = 1_000_000;
/// What it costs to make a list that is not constant.
pub(crate) const LIST: u64 = 10;
/// What it costs to make a map that is not constant.
pub(crate) const MAP: u64 = 30;

/// How the cost of a call follows from its arguments and its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CostRule {
    One,
    /// A tenth of the first argument's size.
    First,
    /// Two tenths of the first argument's size.
    FirstTwice,
    /// A tenth of the second argument's size.
    Second,
    /// Two tenths of the result's size.
    ResultTwice,
    /// The size of the list that is searched.
    InList,
    /// A tenth of the smaller argument's size.
    Smaller,
    /// As `Smaller`, but 1 for the types of Kubernetes.
    Equals,
    /// A tenth of both arguments' sizes.
    Sum,
    /// A tenth of the one times a tenth of the other.
    Contains,
    /// A tenth of the text's size times a quarter of the pattern's.
    Regex,
    /// All elements, also those of nested lists.
    Traversal,
    /// Product of both sizes, this many times.
    Sets(u8),
    /// A new list of the result's size.
    NewList,
    Flatten,
    /// Each element of this argument with each other.
    SelfCompare(u8),
    ContainsIp {
        parse: bool,
    },
    ContainsCidr {
        parse: bool,
    },
    Validate,
}

const STRING: f64 = 0.1;
const REGEX: f64 = 0.25;

/// `uint64(math.Ceil(size * factor))`
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn part(size: f64, factor: f64) -> u64 {
    let product = size * factor;
    let whole = product as u64;
    if (whole as f64) < product { whole + 1 } else { whole }
}

#[allow(clippy::cast_precision_loss)]
fn float(size: u64) -> f64 {
    size as f64
}

/// `uint64(size * factor)`
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn times(size: u64, factor: f64) -> u64 {
    (float(size) * factor) as u64
}

/// The cost of comparing two values of these sizes.
pub(crate) fn smaller(a: u64, b: u64) -> u64 {
    part(float(a.min(b)), STRING)
}

/// An argument as far as costs depend on it: an error counts as a value of size 1.
pub(crate) type Argument<'v, 'a> = Option<&'v Value<'a>>;

fn size(argument: Argument<'_, '_>) -> u64 {
    argument.map_or(1, Value::size)
}

/// The size that also looks into optional values.
fn inner_size(argument: Argument<'_, '_>) -> u64 {
    match argument {
        Some(Value::Optional(Some(value))) => inner_size(Some(value)),
        other => size(other),
    }
}

impl CostRule {
    /// The cost of a call, which depends on no more than two arguments. `None` stands for what failed.
    pub(crate) fn cost(
        self,
        first: Argument<'_, '_>,
        second: Argument<'_, '_>,
        result: Argument<'_, '_>,
        fuel: &mut Fuel,
    ) -> Result<u64, EvalError> {
        Ok(match self {
            Self::One => 1,
            Self::First => part(float(size(first)), STRING),
            Self::FirstTwice => part(float(size(first)) * 2.0, STRING),
            Self::Second => part(float(inner_size(second)), STRING),
            Self::ResultTwice => part(float(size(result)) * 2.0, STRING),
            Self::InList => inner_size(second),
            Self::Smaller => smaller(inner_size(first), inner_size(second)),
            Self::Equals => match first {
                Some(
                    Value::Quantity(_)
                    | Value::Semver(_)
                    | Value::Ip(_)
                    | Value::Cidr(_)
                    | Value::Url(_)
                    | Value::Format(_),
                ) => 1,
                _ => return Self::Smaller.cost(first, second, result, fuel),
            },
            Self::Sum => part(float(inner_size(first).saturating_add(inner_size(second))), STRING),
            Self::Contains => {
                part(float(inner_size(first)), STRING).saturating_mul(part(float(inner_size(second)), STRING))
            }
            Self::Regex => part(1.0 + float(inner_size(first)), STRING)
                .saturating_mul(part(float(inner_size(second)), REGEX)),
            Self::Traversal => match first {
                Some(value) => traversal(value, fuel)?,
                None => 1,
            },
            Self::Sets(factor) => {
                times(size(first).saturating_mul(size(second)), f64::from(factor)).saturating_add(1)
            }
            Self::NewList => size(result).saturating_add(1 + LIST),
            Self::Flatten => {
                let depth = match second {
                    Some(Value::Int(depth)) if *depth >= 0 => float(depth.unsigned_abs()),
                    _ => 1.0,
                };
                times(size(first), depth).saturating_add(1 + LIST)
            }
            Self::SelfCompare(index) => {
                let list = if index == 0 { first } else { second };
                let factor = match list {
                    Some(Value::List(items)) => match items.first() {
                        Some(Value::String(_) | Value::Bytes(_)) => 2.0 + STRING,
                        _ => 2.0,
                    },
                    _ => 2.0,
                };
                let size = size(list);
                times(size.saturating_mul(size), factor).saturating_add(1 + LIST)
            }
            Self::ContainsIp { parse } => {
                let own = size(first);
                let parsing = if parse { part(float(size(second)), STRING) } else { 0 };
                part(float(own.saturating_mul(2)), STRING) + parsing
            }
            Self::ContainsCidr { parse } => {
                let own = size(first);
                let parsing = if parse { part(float(size(second)), STRING) } else { 0 };
                part(float(own.saturating_mul(2)), STRING) + part(float(own), STRING) + 1 + parsing
            }
            Self::Validate => match first {
                Some(Value::Format(format)) => part(1.0 + float(size(second)), STRING)
                    .saturating_mul(part(float(len(format.max_regex_size)), REGEX)),
                _ => 1,
            },
        })
    }
}

/// The cost of looking at every part of a value (`traversalCost`). Strings count in bytes here.
fn traversal(value: &Value<'_>, fuel: &mut Fuel) -> Result<u64, EvalError> {
    Ok(match value {
        Value::String(text) => times(len(text.as_str().len()), STRING),
        Value::Bytes(bytes) => times(len(bytes.len()), STRING),
        Value::List(items) => {
            fuel.take_len(items.len())?;
            let mut sum = 0_u64;
            for item in items.iter() {
                sum = sum.saturating_add(traversal(item, fuel)?);
            }
            sum
        }
        Value::Map(map) => map_traversal(map, fuel)?,
        _ => 1,
    })
}

fn map_traversal(map: &Map<'_>, fuel: &mut Fuel) -> Result<u64, EvalError> {
    fuel.take(map.len())?;
    let mut sum = 0_u64;
    for (key, value) in map.entries() {
        sum = sum.saturating_add(traversal(&key, fuel)?).saturating_add(traversal(&value, fuel)?);
    }
    Ok(sum)
}
