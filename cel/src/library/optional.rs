//! Optional values (`cel/library.go` of cel-go). `or`, `orValue` and the selections are the evaluator's own.

use super::{Call, Functions, Outcome};
use crate::error::EvalError;
use crate::types::{Type, list, optional, param};
use crate::value::Value;

pub(super) fn declare(functions: &mut Functions) {
    let v = || param("V");
    let option = || optional(v());
    functions.add("optional.of", of).global([v()], option());
    functions.add("optional.ofNonZeroValue", of).global([v()], option());
    functions.add("optional.none", none).global([], option());
    functions.add("value", value).member([option()], v());
    functions.add("hasValue", has_value).member([option()], Type::Bool);
    functions.add("or", chain).member([option(), option()], option());
    functions.add("orValue", chain).member([option(), v()], v());
    functions.add("_?._", chain).global([Type::Dyn, Type::String], option());
    functions.add("first", end).member([list(v())], option());
    functions.add("last", end).member([list(v())], option());
    functions.add("optional.unwrap", unwrap).global([list(option())], list(v()));
    functions.add("unwrapOpt", unwrap).member([list(option())], list(v()));
}

/// For what the evaluator carries out itself.
fn chain<'a>(call: &mut Call<'_, 'a>) -> Outcome<'a> {
    Err(call.no_such_overload())
}

fn of<'a>(call: &mut Call<'_, 'a>) -> Outcome<'a> {
    let [value] = call.args else { return Err(call.no_such_overload()) };
    if call.function == "optional.ofNonZeroValue" && value.is_zero() {
        return Ok(Value::NONE);
    }
    Ok(Value::some(value.clone()))
}

fn none<'a>(call: &mut Call<'_, 'a>) -> Outcome<'a> {
    if call.args.is_empty() { Ok(Value::NONE) } else { Err(call.no_such_overload()) }
}

fn value<'a>(call: &mut Call<'_, 'a>) -> Outcome<'a> {
    match call.args {
        [Value::Optional(Some(value))] => Ok(value.as_ref().clone()),
        [Value::Optional(None)] => Err("optional.none() dereference".into()),
        _ => Err(call.no_such_overload()),
    }
}

fn has_value<'a>(call: &mut Call<'_, 'a>) -> Outcome<'a> {
    let [Value::Optional(value)] = call.args else { return Err(call.no_such_overload()) };
    Ok(Value::Bool(value.is_some()))
}

fn end<'a>(call: &mut Call<'_, 'a>) -> Outcome<'a> {
    let [Value::List(items)] = call.args else { return Err(call.no_such_overload()) };
    let item = if call.function == "first" { items.first() } else { items.last() };
    Ok(item.map_or(Value::NONE, |item| Value::some(item.clone())))
}

fn unwrap<'a>(call: &mut Call<'_, 'a>) -> Outcome<'a> {
    let [Value::List(items)] = call.args else { return Err(call.no_such_overload()) };
    if items.first().is_some_and(|first| !matches!(first, Value::Optional(_))) {
        return Err(call.no_such_overload());
    }
    call.fuel.take_values(items.len())?;
    let mut present = Vec::new();
    for item in items.iter() {
        match item {
            Value::Optional(value) => present.extend(value.iter().map(|value| value.as_ref().clone())),
            other => return Err(EvalError::text(format!("value {} is not optional", other.type_name()))),
        }
    }
    Ok(Value::list(present))
}
