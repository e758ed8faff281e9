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
    let whole = text(whole);
    if let Some(pattern) = call.pattern {
        call.fuel.take(pattern.steps(whole))?;
        return Ok(Value::Bool(pattern.is_match(whole)));
    }
    let pattern = call.fuel.pattern(text(source))?;
    call.fuel.take(pattern.steps(whole))?;
    Ok(Value::Bool(pattern.is_match(whole)))
}

fn find<'a>(call: &mut Call<'_, 'a>) -> Outcome<'a> {
    let [Value::String(whole), Value::String(source)] = call.args else {
        return Err(call.no_such_overload());
    };
    call.fuel.take_bytes(text(whole).len())?;
    let found = find_in(call, text(whole), text(source), 1)?;
    Ok(Value::text(found.into_iter().next().unwrap_or_default()))
}

fn find_all<'a>(call: &mut Call<'_, 'a>) -> Outcome<'a> {
    let (whole, source, limit) = match call.args {
        [Value::String(whole), Value::String(source)] => (whole, source, -1),
        [Value::String(whole), Value::String(source), Value::Int(limit)] => (whole, source, *limit),
        _ => return Err(call.no_such_overload()),
    };
    call.fuel.take_values(text(whole).len() / 4)?;
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    find_in(call, text(whole), text(source), limit).map(Value::texts)
}

/// The first matches of the call's pattern: a constant was compiled with the program.
fn find_in(
    call: &mut Call<'_, '_>,
    whole: &str,
    source: &str,
    limit: usize,
) -> Result<Vec<String>, EvalError> {
    let computed;
    let pattern = if let Some(pattern) = call.pattern {
        pattern
    } else {
        computed = call.fuel.pattern(source)?;
        &computed
    };
    // Each search after a match may go to the end again.
    let searches = if limit == 1 { 1 } else { 4 };
    call.fuel.take(pattern.steps(whole).saturating_mul(searches))?;
    Ok(pattern.find_all(whole, limit))
}
