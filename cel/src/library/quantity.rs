//! Functions on quantities (`pkg/cel/library/quantity.go` of the API server), and those that versions share with them.

use super::operators::text;
use super::{Call, Functions, Outcome};
use crate::cost::CostRule;
use crate::error::EvalError;
use crate::types::{QUANTITY, SEMVER, Type};
use crate::value::{QuantityValue, Value};
use dra_api::quantity::{Format, Quantity};
use std::cmp::Ordering;
use std::sync::Arc;

pub(super) fn declare(functions: &mut Functions) {
    use Type::{Bool, Double, Int, String};
    functions.add("quantity", quantity).all_cost(CostRule::First).global([String], QUANTITY);
    functions.add("isQuantity", is_quantity).all_cost(CostRule::First).global([String], Bool);
    functions.add("sign", sign).global([QUANTITY], Int);
    functions.add("isGreaterThan", compare).member([QUANTITY, QUANTITY], Bool).member([SEMVER, SEMVER], Bool);
    functions.add("isLessThan", compare).member([QUANTITY, QUANTITY], Bool).member([SEMVER, SEMVER], Bool);
    functions.add("compareTo", compare).member([QUANTITY, QUANTITY], Int).member([SEMVER, SEMVER], Int);
    functions.add("asApproximateFloat", as_float).member([QUANTITY], Double);
    functions.add("asInteger", as_integer).member([QUANTITY], Int);
    functions.add("isInteger", as_integer).member([QUANTITY], Bool);
    functions.add("add", add).member([QUANTITY, QUANTITY], QUANTITY).member([QUANTITY, Int], QUANTITY);
    functions.add("sub", add).member([QUANTITY, QUANTITY], QUANTITY).member([QUANTITY, Int], QUANTITY);
}

fn quantity<'a>(call: &mut Call<'_, 'a>) -> Outcome<'a> {
    let [Value::String(value)] = call.args else { return Err(call.no_such_overload()) };
    call.fuel.take_bytes(text(value).len())?;
    let quantity = Quantity::parse(text(value)).map_err(|error| EvalError::text(error.to_string()))?;
    Ok(Value::Quantity(QuantityValue::Owned(Arc::new(quantity))))
}

fn is_quantity<'a>(call: &mut Call<'_, 'a>) -> Outcome<'a> {
    let [Value::String(value)] = call.args else { return Err(call.no_such_overload()) };
    call.fuel.take_bytes(text(value).len())?;
    Ok(Value::Bool(Quantity::parse(text(value)).is_ok()))
}

fn order(order: Ordering) -> i64 {
    match order {
        Ordering::Less => -1,
        Ordering::Equal => 0,
        Ordering::Greater => 1,
    }
}

fn sign<'a>(call: &mut Call<'_, 'a>) -> Outcome<'a> {
    let [Value::Quantity(value)] = call.args else { return Err(call.no_such_overload()) };
    Ok(Value::Int(order(value.get().sign())))
}

fn compare<'a>(call: &mut Call<'_, 'a>) -> Outcome<'a> {
    let found = match call.args {
        [Value::Quantity(a), Value::Quantity(b)] => a.get().cmp(b.get()),
        [Value::Semver(a), Value::Semver(b)] => a.get().cmp(b.get()),
        _ => return Err(call.no_such_overload()),
    };
    Ok(match call.function {
        "isGreaterThan" => Value::Bool(found == Ordering::Greater),
        "isLessThan" => Value::Bool(found == Ordering::Less),
        _ => Value::Int(order(found)),
    })
}

fn as_float<'a>(call: &mut Call<'_, 'a>) -> Outcome<'a> {
    let [Value::Quantity(value)] = call.args else { return Err(call.no_such_overload()) };
    Ok(Value::Double(value.get().as_approximate_f64()))
}

fn as_integer<'a>(call: &mut Call<'_, 'a>) -> Outcome<'a> {
    let [Value::Quantity(value)] = call.args else { return Err(call.no_such_overload()) };
    let integer = value.get().as_i64();
    if call.function == "isInteger" {
        return Ok(Value::Bool(integer.is_some()));
    }
    integer.map(Value::Int).ok_or_else(|| "cannot convert value to integer".into())
}

fn add<'a>(call: &mut Call<'_, 'a>) -> Outcome<'a> {
    let (a, b) = match call.args {
        [Value::Quantity(a), Value::Quantity(b)] => (a.get(), b.get().clone()),
        [Value::Quantity(a), Value::Int(b)] => (a.get(), Quantity::from_i64(*b, Format::DecimalExponent)),
        _ => return Err(call.no_such_overload()),
    };
    // Sums of numbers with huge exponents have thousands of digits.
    call.fuel.take(64)?;
    let sum = if call.function == "add" { a.checked_add(&b) } else { a.checked_sub(&b) };
    let sum = sum.ok_or_else(|| EvalError::from("quantities differ too much to be added exactly"))?;
    Ok(Value::Quantity(QuantityValue::Sum(Arc::new(sum))))
}
