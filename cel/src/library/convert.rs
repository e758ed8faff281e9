//! Conversions between the basic types.

use super::time::{Timestamp, duration_text, parse_duration};
use super::{Call, Functions, Outcome};
use crate::cost::CostRule;
use crate::error::EvalError;
use crate::types::{CIDR, IP, Type};
use crate::value::Value;

pub(super) fn declare(functions: &mut Functions) {
    use Type::{Bool, Bytes, Double, Duration, Int, String, Timestamp, Uint};
    functions.add("bool", to_bool).global([Bool], Bool).global([String], Bool);
    functions.add("bytes", to_bytes).global([Bytes], Bytes).global([String], Bytes).costs(CostRule::First);
    functions
        .add("double", to_double)
        .global([Double], Double)
        .global([Int], Double)
        .global([String], Double)
        .global([Uint], Double);
    functions.add("duration", to_duration).global([Duration], Duration).global([String], Duration);
    functions
        .add("int", to_int)
        .global([Int], Int)
        .global([Double], Int)
        .global([Duration], Int)
        .global([String], Int)
        .global([Timestamp], Int)
        .global([Uint], Int);
    functions
        .add("string", to_string)
        .global([String], String)
        .global([Bool], String)
        .global([Bytes], String)
        .costs(CostRule::First)
        .global([Double], String)
        .global([Duration], String)
        .global([Int], String)
        .global([Timestamp], String)
        .global([Uint], String)
        .global([IP], String)
        .global([CIDR], String);
    functions
        .add("timestamp", to_timestamp)
        .global([Timestamp], Timestamp)
        .global([Int], Timestamp)
        .global([String], Timestamp);
    functions
        .add("uint", to_uint)
        .global([Uint], Uint)
        .global([Double], Uint)
        .global([Int], Uint)
        .global([String], Uint);
}

fn bad(kind: &str, text: &str, problem: &str) -> EvalError {
    EvalError::text(format!("{kind}: parsing {text:?}: {problem}"))
}

fn to_bool<'a>(call: &mut Call<'_, 'a>) -> Outcome<'a> {
    match call.args {
        [value @ Value::Bool(_)] => Ok(value.clone()),
        [Value::String(text)] => match text.as_str() {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(Value::Bool(true)),
            "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(Value::Bool(false)),
            text => Err(EvalError::text(format!("type conversion error from 'string' to 'bool': {text:?}"))),
        },
        _ => Err(call.no_such_overload()),
    }
}

fn to_bytes<'a>(call: &mut Call<'_, 'a>) -> Outcome<'a> {
    match call.args {
        [value @ Value::Bytes(_)] => Ok(value.clone()),
        [Value::String(text)] => {
            call.fuel.take_bytes(text.as_str().len())?;
            Ok(Value::Bytes(text.as_str().as_bytes().into()))
        }
        _ => Err(call.no_such_overload()),
    }
}

#[allow(clippy::cast_precision_loss)]
fn to_double<'a>(call: &mut Call<'_, 'a>) -> Outcome<'a> {
    match call.args {
        [value @ Value::Double(_)] => Ok(value.clone()),
        [Value::Int(int)] => Ok(Value::Double(*int as f64)),
        [Value::Uint(uint)] => Ok(Value::Double(*uint as f64)),
        [Value::String(text)] => parse_double(text.as_str())
            .map(Value::Double)
            .ok_or_else(|| bad("strconv.ParseFloat", text.as_str(), "invalid syntax")),
        _ => Err(call.no_such_overload()),
    }
}

/// Parses a float as Go does. `None` also for what does not fit.
pub(crate) fn parse_double(text: &str) -> Option<f64> {
    let plain: std::borrow::Cow<'_, str> = if text.contains('_') {
        underscores_separate_digits(text).then(|| text.replace('_', ""))?.into()
    } else {
        text.into()
    };
    let unsigned = plain.strip_prefix(['+', '-']).unwrap_or(&plain);
    let digits = unsigned.strip_prefix("0x").or_else(|| unsigned.strip_prefix("0X"));
    let value = match digits {
        Some(digits) => {
            let magnitude = parse_hex_double(digits)?;
            if plain.starts_with('-') { -magnitude } else { magnitude }
        }
        None => plain.parse().ok()?,
    };
    let named = unsigned.starts_with(['i', 'I']);
    (named || !value.is_infinite()).then_some(value)
}

fn underscores_separate_digits(text: &str) -> bool {
    let bytes = text.as_bytes();
    let hex = bytes.iter().any(|b| b.eq_ignore_ascii_case(&b'x'));
    let is_digit =
        |b: u8| b.is_ascii_digit() || (hex && (b.is_ascii_hexdigit() || b.eq_ignore_ascii_case(&b'x')));
    bytes.iter().enumerate().filter(|(_, b)| **b == b'_').all(|(index, _)| {
        let before = index.checked_sub(1).and_then(|index| bytes.get(index));
        let after = bytes.get(index + 1);
        before.is_some_and(|b| is_digit(*b)) && after.is_some_and(|b| is_digit(*b))
    })
}

/// The part after `0x`: digits, perhaps with a point, and a binary exponent.
fn parse_hex_double(digits: &str) -> Option<f64> {
    let (mantissa, exponent) = digits.split_once(['p', 'P'])?;
    let mut exponent: i32 = exponent.parse().ok()?;
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let mut value = 0.0_f64;
    for digit in whole.chars().chain(fraction.chars()) {
        value = value * 16.0 + f64::from(digit.to_digit(16)?);
    }
    exponent = exponent.saturating_sub(i32::try_from(fraction.len()).ok()?.saturating_mul(4));
    Some(value * 2.0_f64.powi(exponent))
}

fn to_duration<'a>(call: &mut Call<'_, 'a>) -> Outcome<'a> {
    match call.args {
        [value @ Value::Duration(_)] => Ok(value.clone()),
        [Value::String(text)] => parse_duration(text.as_str())
            .map(Value::Duration)
            .ok_or_else(|| EvalError::text(format!("time: invalid duration {:?}", text.as_str()))),
        _ => Err(call.no_such_overload()),
    }
}

/// 2⁶³ and 2⁶⁴ as floats.
const TWO_63: f64 = 9_223_372_036_854_775_808.0;
const TWO_64: f64 = 18_446_744_073_709_551_616.0;

#[allow(clippy::cast_possible_truncation)]
fn to_int<'a>(call: &mut Call<'_, 'a>) -> Outcome<'a> {
    match call.args {
        [value @ Value::Int(_)] => Ok(value.clone()),
        [Value::Uint(uint)] => i64::try_from(*uint).map(Value::Int).map_err(|_| EvalError::IntegerOverflow),
        [Value::Double(double)] => {
            let fits = *double > -TWO_63 && *double < TWO_63;
            fits.then_some(Value::Int(*double as i64)).ok_or(EvalError::IntegerOverflow)
        }
        [Value::Duration(nanos)] => Ok(Value::Int(*nanos)),
        [Value::Timestamp(at)] => Ok(Value::Int(at.seconds())),
        [Value::String(text)] => text
            .as_str()
            .parse()
            .map(Value::Int)
            .map_err(|_| bad("strconv.ParseInt", text.as_str(), "invalid syntax or out of range")),
        _ => Err(call.no_such_overload()),
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn to_uint<'a>(call: &mut Call<'_, 'a>) -> Outcome<'a> {
    match call.args {
        [value @ Value::Uint(_)] => Ok(value.clone()),
        [Value::Int(int)] => u64::try_from(*int).map(Value::Uint).map_err(|_| EvalError::IntegerOverflow),
        [Value::Double(double)] => {
            let fits = *double >= 0.0 && *double < TWO_64;
            fits.then_some(Value::Uint(*double as u64)).ok_or(EvalError::IntegerOverflow)
        }
        // Go's ParseUint takes no sign.
        [Value::String(text)] if !text.as_str().starts_with('+') => text
            .as_str()
            .parse()
            .map(Value::Uint)
            .map_err(|_| bad("strconv.ParseUint", text.as_str(), "invalid syntax or out of range")),
        [Value::String(text)] => Err(bad("strconv.ParseUint", text.as_str(), "invalid syntax")),
        _ => Err(call.no_such_overload()),
    }
}

fn to_timestamp<'a>(call: &mut Call<'_, 'a>) -> Outcome<'a> {
    match call.args {
        [value @ Value::Timestamp(_)] => Ok(value.clone()),
        [Value::Int(seconds)] => {
            Timestamp::from_seconds(*seconds).map(Value::Timestamp).ok_or_else(Timestamp::overflow)
        }
        [Value::String(text)] => Timestamp::parse(text.as_str())
            .map(Value::Timestamp)
            .ok_or_else(|| bad("time", text.as_str(), "not an RFC 3339 time between the years 1 and 9999")),
        _ => Err(call.no_such_overload()),
    }
}

fn to_string<'a>(call: &mut Call<'_, 'a>) -> Outcome<'a> {
    let [value] = call.args else { return Err(call.no_such_overload()) };
    if let Value::String(_) = value {
        return Ok(value.clone());
    }
    call.fuel.take(value.size())?;
    match basic_text(value) {
        Some(text) => Ok(Value::text(text?)),
        None => Err(call.no_such_overload()),
    }
}

/// The text of a value of a basic type.
pub(crate) fn basic_text(value: &Value<'_>) -> Option<Result<String, EvalError>> {
    Some(Ok(match value {
        Value::String(text) => text.as_str().to_owned(),
        Value::Bool(bool) => bool.to_string(),
        Value::Int(int) => int.to_string(),
        Value::Uint(uint) => uint.to_string(),
        Value::Double(double) => double_text(*double),
        Value::Bytes(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => text.to_owned(),
            Err(_) => return Some(Err("invalid UTF-8 in bytes, cannot convert to string".into())),
        },
        Value::Duration(nanos) => duration_text(*nanos),
        Value::Timestamp(at) => at.to_string(),
        Value::Ip(ip) => ip.to_string(),
        Value::Cidr(cidr) => cidr.to_string(),
        _ => return None,
    }))
}

/// A float as Go's `%g` writes it: the fewest digits that give it back, with an exponent below -4 and from 6 on.
pub(crate) fn double_text(double: f64) -> String {
    if double.is_nan() {
        return "NaN".to_owned();
    }
    if double.is_infinite() {
        return if double > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let scientific = format!("{double:e}");
    let Some((mantissa, exponent)) = scientific.split_once('e') else { return scientific };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..6).contains(&exponent) {
        return double.to_string();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.unsigned_abs())
}
