//! Functions on strings (version 2 of cel-go's `ext/strings.go`). Positions count code points.

use super::operators::text;
use super::{Call, Functions, Outcome};
use crate::cost::CostRule;
use crate::error::EvalError;
use crate::types::{Type, list};
use crate::value::{Value, int};

pub(super) fn declare(functions: &mut Functions) {
    use Type::{Bool, Int, String};
    functions.add("contains", search).member([String, String], Bool).costs(CostRule::Contains);
    functions.add("startsWith", search).member([String, String], Bool).costs(CostRule::Second);
    functions.add("endsWith", search).member([String, String], Bool).costs(CostRule::Second);
    functions.add("charAt", char_at).member([String, Int], String);
    functions
        .add("indexOf", super::lists::index_of)
        .member([String, String], Int)
        .member([String, String, Int], Int);
    functions
        .add("lastIndexOf", super::lists::index_of)
        .member([String, String], Int)
        .member([String, String, Int], Int);
    functions.add("lowerAscii", convert_case).all_cost(CostRule::First).member([String], String);
    functions.add("upperAscii", convert_case).all_cost(CostRule::First).member([String], String);
    functions.add("trim", trim).all_cost(CostRule::First).member([String], String);
    functions
        .add("substring", substring)
        .all_cost(CostRule::First)
        .member([String, Int], String)
        .member([String, Int, Int], String);
    functions
        .add("replace", replace)
        .all_cost(CostRule::FirstTwice)
        .member([String, String, String], String)
        .member([String, String, String, Int], String);
    functions
        .add("split", split)
        .all_cost(CostRule::FirstTwice)
        .member([String, String], list(String))
        .member([String, String, Int], list(String));
    functions
        .add("join", join)
        .all_cost(CostRule::ResultTwice)
        .member([list(String)], String)
        .member([list(String), String], String);
    functions.add("strings.quote", quote).global([String], String).costs(CostRule::First);
    functions
        .add("format", super::format::format)
        .member([String, list(Type::Dyn)], String)
        .costs(CostRule::First);
}

fn search<'a>(call: &mut Call<'_, 'a>) -> Outcome<'a> {
    let [Value::String(whole), Value::String(part)] = call.args else { return Err(call.no_such_overload()) };
    let (whole, part) = (text(whole), text(part));
    Ok(Value::Bool(match call.function {
        "contains" => whole.contains(part),
        "startsWith" => whole.starts_with(part),
        _ => whole.ends_with(part),
    }))
}

fn out_of_range(index: i64) -> EvalError {
    EvalError::text(format!("index out of range: {index}"))
}

/// A position between 0 and the length, both included.
fn position(index: i64, length: usize) -> Result<usize, EvalError> {
    usize::try_from(index).ok().filter(|index| *index <= length).ok_or_else(|| out_of_range(index))
}

fn char_at<'a>(call: &mut Call<'_, 'a>) -> Outcome<'a> {
    let [Value::String(whole), Value::Int(index)] = call.args else { return Err(call.no_such_overload()) };
    let whole = text(whole);
    let at = position(*index, whole.chars().count())?;
    Ok(Value::text(whole.chars().nth(at).map(String::from).unwrap_or_default()))
}

/// The position of a text in another, from the front or from the back, or -1. Takes time in proportion to both lengths.
pub(super) fn find_text(whole: &str, part: &str, offset: Option<i64>, last: bool) -> Result<i64, EvalError> {
    let length = whole.chars().count();
    if part.is_empty() {
        return match offset {
            Some(offset) if offset < 0 => Err(out_of_range(offset)),
            Some(offset) => Ok(offset.min(int(length))),
            None if last => Ok(int(length)),
            None => Ok(0),
        };
    }
    let start = match offset {
        Some(offset) => usize::try_from(offset).map_err(|_| out_of_range(offset))?,
        None if last => length.saturating_sub(1),
        None => 0,
    };
    let part_length = part.chars().count();
    if start >= length || part_length > length {
        return Ok(-1);
    }
    let byte_of = |index: usize| whole.char_indices().nth(index).map_or(whole.len(), |(at, _)| at);
    let found = if last {
        let end = byte_of(start.min(length - part_length) + part_length);
        whole.get(..end).and_then(|head| head.rfind(part))
    } else {
        let begin = byte_of(start);
        whole.get(begin..).and_then(|tail| tail.find(part)).map(|at| begin + at)
    };
    Ok(found.and_then(|at| whole.get(..at)).map_or(-1, |before| int(before.chars().count())))
}

fn convert_case<'a>(call: &mut Call<'_, 'a>) -> Outcome<'a> {
    let [Value::String(whole)] = call.args else { return Err(call.no_such_overload()) };
    let whole = text(whole);
    call.fuel.take_bytes(whole.len())?;
    Ok(Value::text(match call.function {
        "lowerAscii" => whole.to_ascii_lowercase(),
        _ => whole.to_ascii_uppercase(),
    }))
}

fn trim<'a>(call: &mut Call<'_, 'a>) -> Outcome<'a> {
    let [Value::String(whole)] = call.args else { return Err(call.no_such_overload()) };
    call.fuel.take_bytes(text(whole).len())?;
    Ok(Value::text(text(whole).trim()))
}

fn substring<'a>(call: &mut Call<'_, 'a>) -> Outcome<'a> {
    let (whole, start, end) = match call.args {
        [Value::String(whole), Value::Int(start)] => (text(whole), *start, None),
        [Value::String(whole), Value::Int(start), Value::Int(end)] => (text(whole), *start, Some(*end)),
        _ => return Err(call.no_such_overload()),
    };
    call.fuel.take_bytes(whole.len())?;
    let length = whole.chars().count();
    if let Some(end) = end
        && start > end
    {
        return Err(EvalError::text(format!("invalid substring range. start: {start}, end: {end}")));
    }
    let start = position(start, length)?;
    let end = end.map_or(Ok(length), |end| position(end, length))?;
    Ok(Value::text(whole.chars().skip(start).take(end - start).collect::<String>()))
}

/// Go's `strings.Replace`: an empty pattern matches before each code point and at the end.
fn replace<'a>(call: &mut Call<'_, 'a>) -> Outcome<'a> {
    let (whole, old, new, limit) = match call.args {
        [Value::String(whole), Value::String(old), Value::String(new)] => (whole, old, new, -1),
        [Value::String(whole), Value::String(old), Value::String(new), Value::Int(limit)] => {
            (whole, old, new, *limit)
        }
        _ => return Err(call.no_such_overload()),
    };
    let (whole, old, new) = (text(whole), text(old), text(new));
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    call.fuel.take_bytes(whole.len())?;
    let found = if old.is_empty() { whole.chars().count() + 1 } else { whole.matches(old).count() };
    call.fuel.take_bytes(found.min(limit).saturating_mul(new.len()))?;
    Ok(Value::text(whole.replacen(old, new, limit)))
}

/// Go's `strings.SplitN`: an empty separator splits into code points.
fn split<'a>(call: &mut Call<'_, 'a>) -> Outcome<'a> {
    let (whole, separator, limit) = match call.args {
        [Value::String(whole), Value::String(separator)] => (whole, separator, -1),
        [Value::String(whole), Value::String(separator), Value::Int(limit)] => (whole, separator, *limit),
        _ => return Err(call.no_such_overload()),
    };
    let (whole, separator) = (text(whole), text(separator));
    call.fuel.take_values(whole.len() / 4)?;
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    if limit == 0 {
        return Ok(Value::list(Vec::new()));
    }
    if !separator.is_empty() {
        return Ok(Value::texts(whole.splitn(limit, separator)));
    }
    let mut parts = Vec::new();
    let mut rest = whole;
    while let Some(first) = rest.chars().next() {
        let cut = if parts.len() + 1 == limit { rest.len() } else { first.len_utf8() };
        let (part, after) = rest.split_at(cut);
        parts.push(part);
        rest = after;
    }
    Ok(Value::texts(parts))
}

fn join<'a>(call: &mut Call<'_, 'a>) -> Outcome<'a> {
    let (items, separator) = match call.args {
        [Value::List(items)] => (items, ""),
        [Value::List(items), Value::String(separator)] => (items, text(separator)),
        _ => return Err(call.no_such_overload()),
    };
    if items.first().is_some_and(|first| !matches!(first, Value::String(_))) {
        return Err(call.no_such_overload());
    }
    let mut joined = String::new();
    for (index, item) in items.iter().enumerate() {
        let Value::String(part) = item else {
            return Err(EvalError::text(format!("join: invalid input: {}", item.type_name())));
        };
        let separator = if index == 0 { "" } else { separator };
        call.fuel.take_bytes(separator.len() + text(part).len())?;
        joined.push_str(separator);
        joined.push_str(text(part));
    }
    Ok(Value::text(joined))
}

fn quote<'a>(call: &mut Call<'_, 'a>) -> Outcome<'a> {
    let [Value::String(whole)] = call.args else { return Err(call.no_such_overload()) };
    let whole = text(whole);
    call.fuel.take_bytes(whole.len() * 2)?;
    let mut quoted = String::with_capacity(whole.len() + 2);
    quoted.push('"');
    for c in whole.chars() {
        match c {
            '\x07' => quoted.push_str("\\a"),
            '\x08' => quoted.push_str("\\b"),
            '\x0c' => quoted.push_str("\\f"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\x0b' => quoted.push_str("\\v"),
            '\\' => quoted.push_str("\\\\"),
            '"' => quoted.push_str("\\\""),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    Ok(Value::text(quoted))
}
