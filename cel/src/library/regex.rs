//! `matches`, `find` and `findAll`.

use super::operators::text;
use super::{Call, Functions, Outcome};
use crate::cost::CostRule;
use crate::error::EvalError;
use crate::types::{Type, list};
use crate::value::Value;

pub(super) fn declare(functions: &mut Functions) {
    use Type::{Bool, Int, String};
    functions
        .add("matches", matches)
        .global([String, String], Bool)
        .costs(CostRule::Regex)
        .member([String, String], Bool)
        .costs(CostRule::Regex);
    functions.add("find", find).all_cost(CostRule::Regex).member([String, String], String);
    functions
        .add("findAll", find_all)
        .all_cost(CostRule::Regex)
        .member([String, String], list(String))
        .member([String, String, Int], list(String));
}

fn matches<'a>(call: &mut Call<'_, 'a>) -> Outcome<'a> {
    let [Value::String(whole), Value::String(source)] = call.args else {
        return Err(EvalError::NoSuchOverload);
    };
    call.fuel.take_bytes(text(whole).len())?;
    if let Some(pattern) = call.pattern {
        return Ok(Value::Bool(pattern.is_match(text(whole))));
    }
    Ok(Value::Bool(call.fuel.pattern(text(source))?.is_match(text(whole))))
}

fn find<'a>(call: &mut Call<'_, 'a>) -> Outcome<'a> {
    let [Value::String(whole), Value::String(source)] = call.args else {
        return Err(call.no_such_overload());
    };
    call.fuel.take_bytes(text(whole).len())?;
    let found = match call.pattern {
        Some(pattern) => pattern.find_all(text(whole), 1),
        None => call.fuel.pattern(text(source))?.find_all(text(whole), 1),
    };
    Ok(Value::text(found.into_iter().next().unwrap_or_default()))
}

fn find_all<'a>(call: &mut Call<'_, 'a>) -> Outcome<'a> {
    let (whole, source, limit) = match call.args {
        [Value::String(whole), Value::String(source)] => (whole, source, -1),
        [Value::String(whole), Value::String(source), Value::Int(limit)] => (whole, source, *limit),
        _ => return Err(call.no_such_overload()),
    };
    call.fuel.take_len(text(whole).len())?;
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    Ok(Value::texts(match call.pattern {
        Some(pattern) => pattern.find_all(text(whole), limit),
        None => call.fuel.pattern(text(source))?.find_all(text(whole), limit),
    }))
}
