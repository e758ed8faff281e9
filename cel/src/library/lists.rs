//! Functions on lists and sets: cel-go's `ext/lists.go` (version 3), `ext/sets.go` and the API server's `lists.go`.

use super::operators::text;
use super::{Call, Functions, Outcome};
use crate::cost::CostRule;
use crate::error::EvalError;
use crate::map::MapKey;
use crate::types::{Type, list, map, param};
use crate::value::{Map, Value, int};
use std::cmp::Ordering;
use std::sync::Arc;

/// Types with an order, in the order in which the checker tries them.
const COMPARABLE: [Type; 8] = [
    Type::Int,
    Type::Uint,
    Type::Double,
    Type::Bool,
    Type::Duration,
    Type::Timestamp,
    Type::String,
    Type::Bytes,
];

pub(super) fn declare(functions: &mut Functions, with_includes: bool) {
    use Type::{Bool, Dyn, Int};
    let t = || list(param("T"));
    let (key, value) = (|| param("K"), || param("V"));
    functions.add("slice", slice).member([t(), Int, Int], t()).costs(CostRule::NewList);
    functions
        .add("flatten", flatten)
        .member([list(t())], t())
        .costs(CostRule::Flatten)
        .member([list(Dyn), Int], list(Dyn))
        .costs(CostRule::Flatten);
    functions.add("lists.range", range).global([Int], list(Int)).costs(CostRule::NewList);
    functions.add("reverse", reverse).member([t()], t()).costs(CostRule::NewList);
    functions.add("distinct", distinct).member([t()], t()).costs(CostRule::SelfCompare(0));
    for of in COMPARABLE {
        let of_list = || list(of.clone());
        functions.add("sort", sort).member([of_list()], of_list()).costs(CostRule::SelfCompare(0));
        functions
            .add("@sortByAssociatedKeys", sort)
            .member([t(), of_list()], t())
            .costs(CostRule::SelfCompare(1));
        functions.add("isSorted", is_sorted).all_cost(CostRule::Traversal).member([of_list()], Bool);
        functions.add("max", extreme).all_cost(CostRule::Traversal).member([of_list()], of.clone());
        functions.add("min", extreme).all_cost(CostRule::Traversal).member([of_list()], of.clone());
    }
    for of in [Type::Int, Type::Uint, Type::Double, Type::Duration] {
        functions.add("sum", sum).all_cost(CostRule::Traversal).member([list(of.clone())], of);
    }
    for name in ["indexOf", "lastIndexOf"] {
        functions
            .add(name, index_of)
            .all_cost(CostRule::Traversal)
            .member([list(param("A")), param("A")], Int);
    }
    if with_includes {
        functions.add("includes", includes).all_cost(CostRule::Traversal).member([Dyn, Dyn], Bool);
    }
    functions.add("sets.contains", sets).global([t(), t()], Bool).costs(CostRule::Sets(1));
    functions.add("sets.equivalent", sets).global([t(), t()], Bool).costs(CostRule::Sets(2));
    functions.add("sets.intersects", sets).global([t(), t()], Bool).costs(CostRule::Sets(1));
    let of_map = || map(key(), value());
    functions
        .add("cel.@mapInsert", map_insert)
        .global([of_map(), key(), value()], of_map())
        .global([of_map(), of_map()], of_map());
}

fn slice<'a>(call: &mut Call<'_, 'a>) -> Outcome<'a> {
    let [Value::List(items), Value::Int(start), Value::Int(end)] = call.args else {
        return Err(call.no_such_overload());
    };
    if *start < 0 || *end < 0 {
        return Err(EvalError::text(format!("cannot slice({start}, {end}), negative indexes not supported")));
    }
    if start > end {
        return Err(EvalError::text(format!(
            "cannot slice({start}, {end}), start index must be less than or equal to end index"
        )));
    }
    let range = usize::try_from(*start).ok().zip(usize::try_from(*end).ok());
    let part = range.and_then(|(start, end)| items.get(start..end)).ok_or_else(|| {
        EvalError::text(format!("cannot slice({start}, {end}), list is length {}", items.len()))
    })?;
    call.fuel.take_values(part.len())?;
    Ok(Value::list(part.to_vec()))
}

fn flatten<'a>(call: &mut Call<'_, 'a>) -> Outcome<'a> {
    let (items, depth) = match call.args {
        [Value::List(items)] => (items, 1),
        [Value::List(items), Value::Int(depth)] => (items, *depth),
        _ => return Err(call.no_such_overload()),
    };
    let depth = u64::try_from(depth).map_err(|_| EvalError::from("level must be non-negative"))?;
    let mut flat = Vec::new();
    flatten_into(&mut flat, items, depth, call.fuel)?;
    Ok(Value::list(flat))
}

fn flatten_into<'a>(
    flat: &mut Vec<Value<'a>>,
    items: &[Value<'a>],
    depth: u64,
    fuel: &mut crate::value::Fuel,
) -> Result<(), EvalError> {
    fuel.take_values(items.len())?;
    for item in items {
        match item {
            Value::List(nested) if depth > 0 => flatten_into(flat, nested, depth - 1, fuel)?,
            other => flat.push(other.clone()),
        }
    }
    Ok(())
}

fn range<'a>(call: &mut Call<'_, 'a>) -> Outcome<'a> {
    const LARGEST: i64 = 10_000_000;
    let [Value::Int(size)] = call.args else { return Err(call.no_such_overload()) };
    if *size < 0 {
        return Err(EvalError::text(format!("lists.range: size must be non-negative, got {size}")));
    }
    if *size > LARGEST {
        return Err(EvalError::text(format!("lists.range: size {size} exceeds maximum allowed ({LARGEST})")));
    }
    // The list costs its size, so a longer one never outlives the call; do not make it first.
    if size.unsigned_abs() > crate::cost::COST_LIMIT {
        return Err(EvalError::CostLimitExceeded);
    }
    call.fuel.take_values(usize::try_from(*size).unwrap_or(usize::MAX))?;
    Ok(Value::list((0..*size).map(Value::Int).collect()))
}

fn reverse<'a>(call: &mut Call<'_, 'a>) -> Outcome<'a> {
    let [Value::List(items)] = call.args else { return Err(call.no_such_overload()) };
    call.fuel.take_values(items.len())?;
    Ok(Value::list(items.iter().rev().cloned().collect()))
}

fn distinct<'a>(call: &mut Call<'_, 'a>) -> Outcome<'a> {
    let [Value::List(items)] = call.args else { return Err(call.no_such_overload()) };
    call.fuel.take_values(items.len())?;
    let mut unique: Vec<Value<'a>> = Vec::new();
    for item in items.iter() {
        call.fuel.take_len(unique.len() + 1)?;
        let mut seen = false;
        for other in &unique {
            seen |= item.equals(other, call.fuel)?;
        }
        if !seen {
            unique.push(item.clone());
        }
    }
    Ok(Value::list(unique))
}

/// `list.sort()`, and `list.@sortByAssociatedKeys(keys)`.
fn sort<'a>(call: &mut Call<'_, 'a>) -> Outcome<'a> {
    let (items, keys) = match call.args {
        [Value::List(items)] => (items, items),
        [Value::List(items), Value::List(keys)] => (items, keys),
        _ => return Err(EvalError::NoSuchOverload),
    };
    if items.len() != keys.len() {
        return Err(EvalError::text(format!(
            "@sortByAssociatedKeys() expected a list of the same size as the associated keys list, \
             but got {} and {} elements respectively",
            items.len(),
            keys.len()
        )));
    }
    let Some(first) = keys.first() else { return Ok(Value::List(Arc::clone(items))) };
    if !first.is_comparable() {
        return Err("list elements must be comparable".into());
    }
    if keys.iter().any(|key| key.type_name() != first.type_name()) {
        return Err("list elements must have the same type".into());
    }
    // Each comparison costs two at the end, so this is far less than what the call costs.
    call.fuel.take_values(items.len())?;
    call.fuel.take_len(items.len().saturating_mul(16))?;
    let mut order: Vec<(&Value<'a>, &Value<'a>)> = keys.iter().zip(items.iter()).collect();
    order.sort_by(|(a, _), (b, _)| a.compare(b).unwrap_or(Ordering::Equal));
    Ok(Value::list(order.into_iter().map(|(_, item)| item.clone()).collect()))
}

/// The list, if its first element has an order: the types are guarded by the first element only.
fn comparable<'v, 'a>(call: &Call<'v, 'a>) -> Result<&'v [Value<'a>], EvalError> {
    match call.args {
        [Value::List(items)] if items.first().is_none_or(Value::is_comparable) => Ok(items),
        _ => Err(call.no_such_overload()),
    }
}

fn is_sorted<'a>(call: &mut Call<'_, 'a>) -> Outcome<'a> {
    let items = comparable(call)?;
    call.fuel.take_len(items.len())?;
    for pair in items.windows(2) {
        if let [a, b] = pair {
            if !b.is_comparable() {
                return Err(EvalError::NoSuchOverload);
            }
            // An order that is undefined is not "greater", as in Kubernetes.
            if a.compare(b) == Ok(Ordering::Greater) {
                return Ok(Value::Bool(false));
            }
        }
    }
    Ok(Value::Bool(true))
}

fn extreme<'a>(call: &mut Call<'_, 'a>) -> Outcome<'a> {
    let items = comparable(call)?;
    call.fuel.take_len(items.len())?;
    let replaces = if call.function == "min" { Ordering::Greater } else { Ordering::Less };
    let mut best: Option<&Value<'a>> = None;
    for item in items {
        if !item.is_comparable() {
            return Err(EvalError::NoSuchOverload);
        }
        // An order that is undefined keeps what there is, as in Kubernetes.
        if best.is_none_or(|best| best.compare(item) == Ok(replaces)) {
            best = Some(item);
        }
    }
    best.cloned().ok_or_else(|| EvalError::text(format!("{} called on empty list", call.function)))
}

fn sum<'a>(call: &mut Call<'_, 'a>) -> Outcome<'a> {
    let [Value::List(items)] = call.args else { return Err(call.no_such_overload()) };
    let mut total = match items.first() {
        None | Some(Value::Int(_)) => Value::Int(0),
        Some(Value::Uint(_)) => Value::Uint(0),
        Some(Value::Double(_)) => Value::Double(0.0),
        Some(Value::Duration(_)) => Value::Duration(0),
        Some(_) => return Err(call.no_such_overload()),
    };
    call.fuel.take_len(items.len())?;
    for item in items.iter() {
        let args = [total, item.clone()];
        total = super::operators::add(&mut Call {
            function: call.function,
            args: &args,
            pattern: None,
            fuel: call.fuel,
        })?;
    }
    Ok(total)
}

/// `indexOf` and `lastIndexOf`, of strings and of lists.
pub(super) fn index_of<'a>(call: &mut Call<'_, 'a>) -> Outcome<'a> {
    let last = call.function == "lastIndexOf";
    let found = match call.args {
        [Value::String(whole), Value::String(part)] => {
            call.fuel.take_bytes(text(whole).len() + text(part).len())?;
            super::strings::find_text(text(whole), text(part), None, last)?
        }
        [Value::String(whole), Value::String(part), Value::Int(offset)] => {
            call.fuel.take_bytes(text(whole).len() + text(part).len())?;
            super::strings::find_text(text(whole), text(part), Some(*offset), last)?
        }
        [Value::List(items), element] => {
            call.fuel.take_len(items.len())?;
            let mut found = -1;
            for (index, item) in items.iter().enumerate() {
                if item.equals(element, call.fuel)? {
                    found = int(index);
                    if !last {
                        break;
                    }
                }
            }
            found
        }
        _ => return Err(call.no_such_overload()),
    };
    Ok(Value::Int(found))
}

fn includes<'a>(call: &mut Call<'_, 'a>) -> Outcome<'a> {
    let [target, element] = call.args else { return Err(call.no_such_overload()) };
    let items = match target {
        Value::List(items) => items.as_slice(),
        other => std::slice::from_ref(other),
    };
    call.fuel.take_len(items.len())?;
    for item in items {
        if item.equals(element, call.fuel)? {
            return Ok(Value::Bool(true));
        }
    }
    Ok(Value::Bool(false))
}

fn sets<'a>(call: &mut Call<'_, 'a>) -> Outcome<'a> {
    let [Value::List(a), Value::List(b)] = call.args else { return Err(call.no_such_overload()) };
    call.fuel.take_len(a.len().saturating_mul(b.len()))?;
    let mut contains = |whole: &[Value<'a>], element: &Value<'a>| -> Result<bool, EvalError> {
        for item in whole {
            if element.equals(item, call.fuel)? {
                return Ok(true);
            }
        }
        Ok(false)
    };
    let mut contains_all = |whole: &[Value<'a>], part: &[Value<'a>]| -> Result<bool, EvalError> {
        for element in part {
            if !contains(whole, element)? {
                return Ok(false);
            }
        }
        Ok(true)
    };
    Ok(Value::Bool(match call.function {
        "sets.contains" => contains_all(a, b)?,
        "sets.equivalent" => contains_all(a, b)? && contains_all(b, a)?,
        _ => {
            let mut found = false;
            for element in a.iter() {
                found |= contains(b, element)?;
            }
            found
        }
    }))
}

/// The step of `transformMap` and `transformMapEntry`; the evaluator mostly takes [`insert`].
fn map_insert<'a>(call: &mut Call<'_, 'a>) -> Outcome<'a> {
    match call.args {
        [Value::Map(map), key, value] => insert(map.clone(), vec![(key.clone(), value.clone())], call.fuel),
        [Value::Map(map), Value::Map(more)] => insert(map.clone(), more.entries(), call.fuel),
        _ => Err(call.no_such_overload()),
    }
}

/// Adds entries to a map, in place if nothing else holds it.
pub(crate) fn insert<'a>(
    map: Map<'a>,
    more: Vec<(Value<'a>, Value<'a>)>,
    fuel: &mut crate::value::Fuel,
) -> Outcome<'a> {
    let Map::Entries(mut entries) = map else { return Err(EvalError::NoSuchOverload) };
    if Arc::get_mut(&mut entries).is_none() {
        fuel.take_values(entries.len())?;
    }
    let changed = Arc::make_mut(&mut entries);
    for (key, value) in more {
        fuel.take_values(2)?;
        if MapKey::lookup(&key).any(|key| changed.get(&key).is_some()) {
            return Err(EvalError::text("insert failed: key already exists"));
        }
        changed.insert(MapKey::new(&key)?, value);
    }
    Ok(Value::Map(Map::Entries(entries)))
}
