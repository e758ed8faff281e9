//! Operators, and `size`, `in`, `type` and `dyn`.

use super::{Call, Functions, Outcome};
use crate::cost::CostRule;
use crate::error::EvalError;
use crate::library::time::Timestamp;
use crate::types::{Type, list, map, optional, param};
use crate::value::{Text, Value, int};
use std::cmp::Ordering;
use std::sync::Arc;

pub(super) fn declare(functions: &mut Functions) {
    use Type::{Bool, Bytes, Double, Duration, Int, String, Timestamp, Uint};
    let (a, b) = (|| param("A"), || param("B"));
    functions.add("_?_:_", unreachable_call).global([Bool, a(), a()], a());
    functions.add("_&&_", unreachable_call).global([Bool, Bool], Bool);
    functions.add("_||_", unreachable_call).global([Bool, Bool], Bool);
    functions.add("!_", not).global([Bool], Bool);
    functions.add("@not_strictly_false", not_strictly_false).global([Bool], Bool);
    functions.add("_==_", unreachable_call).global([a(), a()], Bool);
    functions.add("_!=_", unreachable_call).global([a(), a()], Bool);
    functions
        .add("_+_", add)
        .global([Bytes, Bytes], Bytes)
        .costs(CostRule::Sum)
        .global([Double, Double], Double)
        .global([Duration, Duration], Duration)
        .global([Duration, Timestamp], Timestamp)
        .global([Timestamp, Duration], Timestamp)
        .global([Int, Int], Int)
        .global([list(a()), list(a())], list(a()))
        .global([String, String], String)
        .costs(CostRule::Sum)
        .global([Uint, Uint], Uint);
    functions
        .add("_/_", divide)
        .global([Double, Double], Double)
        .global([Int, Int], Int)
        .global([Uint, Uint], Uint);
    functions.add("_%_", modulo).global([Int, Int], Int).global([Uint, Uint], Uint);
    functions
        .add("_*_", multiply)
        .global([Double, Double], Double)
        .global([Int, Int], Int)
        .global([Uint, Uint], Uint);
    functions.add("-_", negate).global([Double], Double).global([Int], Int);
    functions
        .add("_-_", subtract)
        .global([Double, Double], Double)
        .global([Duration, Duration], Duration)
        .global([Int, Int], Int)
        .global([Timestamp, Duration], Timestamp)
        .global([Timestamp, Timestamp], Duration)
        .global([Uint, Uint], Uint);
    for name in ["_<_", "_<=_", "_>_", "_>=_"] {
        functions
            .add(name, compare)
            .global([Bool, Bool], Bool)
            .global([Int, Int], Bool)
            .global([Int, Double], Bool)
            .global([Int, Uint], Bool)
            .global([Uint, Uint], Bool)
            .global([Uint, Double], Bool)
            .global([Uint, Int], Bool)
            .global([Double, Double], Bool)
            .global([Double, Int], Bool)
            .global([Double, Uint], Bool)
            .global([String, String], Bool)
            .costs(CostRule::Smaller)
            .global([Bytes, Bytes], Bool)
            .costs(CostRule::Smaller)
            .global([Timestamp, Timestamp], Bool)
            .global([Duration, Duration], Bool);
    }
    functions
        .add("_[_]", unreachable_call)
        .global([list(a()), Int], a())
        .global([map(a(), b()), a()], b())
        .global([optional(list(a())), Int], optional(a()))
        .global([optional(map(a(), b())), a()], optional(b()));
    functions
        .add("_[?_]", unreachable_call)
        .global([list(a()), Int], optional(a()))
        .global([optional(list(a())), Int], optional(a()))
        .global([map(a(), b()), a()], optional(b()))
        .global([optional(map(a(), b())), a()], optional(b()));
    functions
        .add("@in", is_in)
        .global([a(), list(a())], Bool)
        .costs(CostRule::InList)
        .global([a(), map(a(), b())], Bool);
    let size = functions.add("size", size);
    for of in [Bytes, list(a()), map(a(), b()), String] {
        size.global([of.clone()], Int).member([of], Int);
    }
    functions.add("type", type_of).global([a()], Type::Meta(Arc::new(a())));
    functions.add("dyn", dynamic).global([a()], Type::Dyn);
}

/// For operators that the evaluator carries out itself.
fn unreachable_call<'a>(call: &mut Call<'_, 'a>) -> Outcome<'a> {
    Err(call.no_such_overload())
}

fn not<'a>(call: &mut Call<'_, 'a>) -> Outcome<'a> {
    match call.args {
        [Value::Bool(value)] => Ok(Value::Bool(!value)),
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn not_strictly_false<'a>(call: &mut Call<'_, 'a>) -> Outcome<'a> {
    let [value] = call.args else { return Err(EvalError::NoSuchOverload) };
    Ok(Value::Bool(!matches!(value, Value::Bool(false))))
}

fn number<'a, T>(result: Option<T>, wrap: impl FnOnce(T) -> Value<'a>) -> Outcome<'a> {
    result.map(wrap).ok_or(EvalError::IntegerOverflow)
}

/// The sum of two values, also for `sum()`.
pub(super) fn add<'a>(call: &mut Call<'_, 'a>) -> Outcome<'a> {
    match call.args {
        [Value::Int(a), Value::Int(b)] => number(a.checked_add(*b), Value::Int),
        [Value::Uint(a), Value::Uint(b)] => number(a.checked_add(*b), Value::Uint),
        [Value::Double(a), Value::Double(b)] => Ok(Value::Double(a + b)),
        [Value::String(a), Value::String(b)] => {
            let (a, b) = (a.as_str(), b.as_str());
            call.fuel.take_bytes(a.len() + b.len())?;
            Ok(Value::text([a, b].concat()))
        }
        [Value::Bytes(a), Value::Bytes(b)] => {
            call.fuel.take_bytes(a.len() + b.len())?;
            Ok(Value::Bytes([&**a, &**b].concat().into()))
        }
        [Value::List(a), Value::List(b)] => {
            call.fuel.take_values(a.len() + b.len())?;
            let mut items = Vec::with_capacity(a.len() + b.len());
            items.extend(a.iter().cloned());
            items.extend(b.iter().cloned());
            Ok(Value::list(items))
        }
        [Value::Duration(a), Value::Duration(b)] => number(a.checked_add(*b), Value::Duration),
        [Value::Duration(nanos), Value::Timestamp(at)] | [Value::Timestamp(at), Value::Duration(nanos)] => {
            at.add(*nanos).map(Value::Timestamp).ok_or_else(Timestamp::overflow)
        }
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn subtract<'a>(call: &mut Call<'_, 'a>) -> Outcome<'a> {
    match call.args {
        [Value::Int(a), Value::Int(b)] => number(a.checked_sub(*b), Value::Int),
        [Value::Uint(a), Value::Uint(b)] => number(a.checked_sub(*b), Value::Uint),
        [Value::Double(a), Value::Double(b)] => Ok(Value::Double(a - b)),
        [Value::Duration(a), Value::Duration(b)] => number(a.checked_sub(*b), Value::Duration),
        [Value::Timestamp(at), Value::Duration(nanos)] => nanos
            .checked_neg()
            .and_then(|nanos| at.add(nanos))
            .map(Value::Timestamp)
            .ok_or_else(Timestamp::overflow),
        [Value::Timestamp(a), Value::Timestamp(b)] => number(a.since(*b), Value::Duration),
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn multiply<'a>(call: &mut Call<'_, 'a>) -> Outcome<'a> {
    match call.args {
        [Value::Int(a), Value::Int(b)] => number(a.checked_mul(*b), Value::Int),
        [Value::Uint(a), Value::Uint(b)] => number(a.checked_mul(*b), Value::Uint),
        [Value::Double(a), Value::Double(b)] => Ok(Value::Double(a * b)),
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn divide<'a>(call: &mut Call<'_, 'a>) -> Outcome<'a> {
    match call.args {
        [Value::Int(_), Value::Int(0)] | [Value::Uint(_), Value::Uint(0)] => Err(EvalError::DivisionByZero),
        [Value::Int(a), Value::Int(b)] => number(a.checked_div(*b), Value::Int),
        [Value::Uint(a), Value::Uint(b)] => number(a.checked_div(*b), Value::Uint),
        [Value::Double(a), Value::Double(b)] => Ok(Value::Double(a / b)),
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn modulo<'a>(call: &mut Call<'_, 'a>) -> Outcome<'a> {
    match call.args {
        [Value::Int(_), Value::Int(0)] | [Value::Uint(_), Value::Uint(0)] => Err(EvalError::ModulusByZero),
        [Value::Int(a), Value::Int(b)] => number(a.checked_rem(*b), Value::Int),
        [Value::Uint(a), Value::Uint(b)] => number(a.checked_rem(*b), Value::Uint),
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn negate<'a>(call: &mut Call<'_, 'a>) -> Outcome<'a> {
    match call.args {
        [Value::Int(value)] => number(value.checked_neg(), Value::Int),
        [Value::Double(value)] => Ok(Value::Double(-value)),
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn compare<'a>(call: &mut Call<'_, 'a>) -> Outcome<'a> {
    let [a, b] = call.args else { return Err(EvalError::NoSuchOverload) };
    let order = a.compare(b)?;
    Ok(Value::Bool(match call.function {
        "_<_" => order == Ordering::Less,
        "_<=_" => order != Ordering::Greater,
        "_>_" => order == Ordering::Greater,
        _ => order != Ordering::Less,
    }))
}

fn is_in<'a>(call: &mut Call<'_, 'a>) -> Outcome<'a> {
    match call.args {
        [element, Value::List(items)] => {
            call.fuel.take_len(items.len())?;
            for item in items.iter() {
                if element.equals(item, call.fuel)? {
                    return Ok(Value::Bool(true));
                }
            }
            Ok(Value::Bool(false))
        }
        [key, Value::Map(map)] => Ok(Value::Bool(map.contains(key))),
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn size<'a>(call: &mut Call<'_, 'a>) -> Outcome<'a> {
    match call.args {
        [Value::String(text)] => Ok(Value::Int(int(text.as_str().chars().count()))),
        [Value::Bytes(bytes)] => Ok(Value::Int(int(bytes.len()))),
        [Value::List(items)] => Ok(Value::Int(int(items.len()))),
        [Value::Map(map)] => Ok(Value::Int(i64::try_from(map.len()).unwrap_or(i64::MAX))),
        [value @ (Value::Ip(_) | Value::Cidr(_))] => {
            Ok(Value::Int(i64::try_from(value.size()).unwrap_or(i64::MAX)))
        }
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn type_of<'a>(call: &mut Call<'_, 'a>) -> Outcome<'a> {
    match call.args {
        [value] => Ok(Value::Type(value.type_name())),
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn dynamic<'a>(call: &mut Call<'_, 'a>) -> Outcome<'a> {
    match call.args {
        [value] => Ok(value.clone()),
        _ => Err(EvalError::NoSuchOverload),
    }
}

/// Adds an element to the list that a loop collects, in place if nothing else holds the list.
pub(crate) fn append<'a>(
    mut list: Arc<Vec<Value<'a>>>,
    element: Value<'a>,
    fuel: &mut crate::value::Fuel,
) -> Outcome<'a> {
    if Arc::get_mut(&mut list).is_none() {
        fuel.take_values(list.len())?;
    }
    fuel.take_values(1)?;
    Arc::make_mut(&mut list).push(element);
    Ok(Value::List(list))
}

/// The text of a string value.
pub(super) fn text<'v>(value: &'v Text<'_>) -> &'v str {
    value.as_str()
}
