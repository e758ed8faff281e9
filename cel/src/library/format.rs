//! `string.format(list)`, version 2 of cel-go's strings library (`ext/formatting.go`), locale `en_US`.

use super::convert::{basic_text, double_text};
use super::operators::text;
use super::{Call, Outcome};
use crate::error::EvalError;
use crate::types::Type;
use crate::value::{Fuel, Map, Value};
use std::fmt::Write;

/// The most digits after the point that are written. Kubernetes has no limit.
const MAX_PRECISION: usize = 1000;
const DEFAULT_PRECISION: usize = 6;

/// A placeholder of a format string.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Clause {
    String,
    Decimal,
    Fixed(usize),
    Scientific(usize),
    Binary,
    Hex { upper: bool },
    Octal,
}

/// A format string: its texts and placeholders.
#[derive(Debug)]
pub(crate) enum Part<'t> {
    Text(&'t str),
    Clause(Clause),
}

/// Takes a format string apart.
pub(crate) fn parse(format: &str) -> Result<Vec<Part<'_>>, String> {
    let mut parts = Vec::new();
    let mut rest = format;
    while let Some(at) = rest.find('%') {
        let (before, after) = rest.split_at(at);
        parts.push(Part::Text(before));
        let after = after.strip_prefix('%').unwrap_or(after);
        if let Some(next) = after.strip_prefix('%') {
            parts.push(Part::Text("%"));
            rest = next;
            continue;
        }
        let (clause, next) = parse_clause(after)?;
        parts.push(Part::Clause(clause));
        rest = next;
    }
    parts.push(Part::Text(rest));
    Ok(parts)
}

fn parse_clause(text: &str) -> Result<(Clause, &str), String> {
    if text.is_empty() {
        return Err("unexpected end of string".to_owned());
    }
    let mut precision = DEFAULT_PRECISION;
    let mut rest = text;
    if let Some(after) = text.strip_prefix('.') {
        let end = after.bytes().position(|b| !b.is_ascii_digit()).ok_or_else(|| {
            "could not parse formatting clause: error while parsing precision: could not find end of precision specifier".to_owned()
        })?;
        let (digits, next) = after.split_at(end);
        precision = digits.parse().ok().filter(|precision| *precision <= MAX_PRECISION).ok_or_else(|| {
            "could not parse formatting clause: error while parsing precision: not a usable number".to_owned()
        })?;
        rest = next;
    }
    let mut chars = rest.chars();
    let clause = match chars.next() {
        Some('s') => Clause::String,
        Some('d') => Clause::Decimal,
        Some('f') => Clause::Fixed(precision),
        Some('e') => Clause::Scientific(precision),
        Some('b') => Clause::Binary,
        Some('x') => Clause::Hex { upper: false },
        Some('X') => Clause::Hex { upper: true },
        Some('o') => Clause::Octal,
        other => {
            let other = other.map(String::from).unwrap_or_default();
            return Err(format!(
                "could not parse formatting clause: unrecognized formatting clause \"{other}\""
            ));
        }
    };
    Ok((clause, chars.as_str()))
}

impl Clause {
    /// What is wrong with an argument of this type, if anything.
    fn problem(self, type_name: &str) -> String {
        let what = match self {
            Self::String => {
                "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, \
                 and timestamps"
            }
            Self::Decimal => "decimal clause can only be used on integers",
            Self::Fixed(_) => "fixed-point clause can only be used on doubles",
            Self::Scientific(_) => "scientific clause can only be used on doubles",
            Self::Binary => "only integers and bools can be formatted as binary",
            Self::Hex { .. } => "only integers, byte buffers, and strings can be formatted as hex",
            Self::Octal => "octal clause can only be used on integers",
        };
        format!("error during formatting: {what}, was given {type_name}")
    }

    /// Whether a literal format string takes an argument of this type.
    pub(crate) fn check(self, of: &Type) -> Result<(), String> {
        let fits = match self {
            _ if *of == Type::Dyn => true,
            Self::String => !matches!(
                of,
                Type::Any | Type::Optional(_) | Type::Opaque(_) | Type::Object(_) | Type::Param(_)
            ),
            Self::Decimal | Self::Octal => matches!(of, Type::Int | Type::Uint),
            Self::Fixed(_) | Self::Scientific(_) => matches!(of, Type::Double | Type::String),
            Self::Binary => matches!(of, Type::Int | Type::Uint | Type::Bool),
            Self::Hex { .. } => matches!(of, Type::Int | Type::Uint | Type::String | Type::Bytes),
        };
        if fits { Ok(()) } else { Err(self.problem(&of.to_string())) }
    }

    fn write(self, out: &mut String, value: &Value<'_>, fuel: &mut Fuel) -> Result<(), EvalError> {
        let problem = || EvalError::text(self.problem(value.type_name()));
        let written = match (self, value) {
            (Self::String, value) => return write_value(out, value, fuel),
            (Self::Decimal, Value::Int(int)) => write!(out, "{int}"),
            (Self::Decimal, Value::Uint(uint)) => write!(out, "{uint}"),
            (Self::Fixed(precision), value) => {
                out.push_str(&grouped(&fixed(float(value).ok_or_else(problem)?, precision)));
                Ok(())
            }
            (Self::Scientific(precision), value) => {
                out.push_str(&scientific(float(value).ok_or_else(problem)?, precision));
                Ok(())
            }
            (Self::Binary, Value::Int(int)) => write!(out, "{}{:b}", sign(*int), int.unsigned_abs()),
            (Self::Binary, Value::Uint(uint)) => write!(out, "{uint:b}"),
            (Self::Binary, Value::Bool(bool)) => write!(out, "{}", u8::from(*bool)),
            (Self::Octal, Value::Int(int)) => write!(out, "{}{:o}", sign(*int), int.unsigned_abs()),
            (Self::Octal, Value::Uint(uint)) => write!(out, "{uint:o}"),
            (Self::Hex { upper }, value) => {
                let hex = match value {
                    Value::Int(int) => format!("{}{:x}", sign(*int), int.unsigned_abs()),
                    Value::Uint(uint) => format!("{uint:x}"),
                    Value::String(value) => hex(text(value).as_bytes()),
                    Value::Bytes(bytes) => hex(bytes),
                    _ => return Err(problem()),
                };
                out.push_str(&if upper { hex.to_ascii_uppercase() } else { hex });
                Ok(())
            }
            _ => return Err(problem()),
        };
        written.map_err(|_| "could not format".into())
    }
}

fn sign(int: i64) -> &'static str {
    if int < 0 { "-" } else { "" }
}

fn hex(bytes: &[u8]) -> String {
    let digit = |value: u8| char::from_digit(u32::from(value), 16).unwrap_or_default();
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 0xf)]).collect()
}

/// The number of a fixed-point clause: also the texts for what is not a number.
fn float(value: &Value<'_>) -> Option<f64> {
    match value {
        Value::Double(double) => Some(*double),
        Value::String(value) => match text(value) {
            "NaN" => Some(f64::NAN),
            "Infinity" => Some(f64::INFINITY),
            "-Infinity" => Some(f64::NEG_INFINITY),
            _ => None,
        },
        _ => None,
    }
}

fn fixed(double: f64, precision: usize) -> String {
    if double.is_nan() {
        return "NaN".to_owned();
    }
    if double.is_infinite() {
        return if double > 0.0 { "∞" } else { "-∞" }.to_owned();
    }
    format!("{double:.precision$}")
}

/// Thousands apart, as English writes them.
fn grouped(number: &str) -> String {
    let (sign, unsigned) = match number.strip_prefix('-') {
        Some(unsigned) => ("-", unsigned),
        None => ("", number),
    };
    let end = unsigned.find('.').unwrap_or(unsigned.len());
    let (whole, fraction) = unsigned.split_at(end);
    let mut text = sign.to_owned();
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.chars().count() - index).is_multiple_of(3) && digit.is_ascii_digit() {
            text.push(',');
        }
        text.push(digit);
    }
    text + fraction
}

/// `1.234500×10⁰³`. Kubernetes takes the precision for the least width.
fn scientific(double: f64, width: usize) -> String {
    let text = scientific_text(double);
    format!("{text:>width$}")
}

fn scientific_text(double: f64) -> String {
    if double.is_nan() || double.is_infinite() {
        return fixed(double, DEFAULT_PRECISION);
    }
    let text = format!("{double:.DEFAULT_PRECISION$e}");
    let Some((mantissa, exponent)) = text.split_once('e') else { return text };
    let (sign, exponent) = match exponent.strip_prefix('-') {
        Some(exponent) => ("⁻", exponent),
        None => ("", exponent),
    };
    let raised: String = format!("{exponent:0>2}")
        .chars()
        .map(|digit| match digit {
            '0' => '⁰',
            '1' => '¹',
            '2' => '²',
            '3' => '³',
            '4' => '⁴',
            '5' => '⁵',
            '6' => '⁶',
            '7' => '⁷',
            '8' => '⁸',
            _ => '⁹',
        })
        .collect();
    format!("{mantissa}×10{sign}{raised}")
}

fn not_a_string(value: &Value<'_>) -> EvalError {
    EvalError::text(Clause::String.problem(value.type_name()))
}

/// The text of a value on its own.
fn write_value(out: &mut String, value: &Value<'_>, fuel: &mut Fuel) -> Result<(), EvalError> {
    match value {
        Value::List(_) | Value::Map(_) => write_nested(out, value, fuel),
        Value::Null => {
            out.push_str("null");
            Ok(())
        }
        Value::Type(name) => {
            out.push_str(name);
            Ok(())
        }
        Value::Ip(_) | Value::Cidr(_) => Err(not_a_string(value)),
        other => {
            fuel.take(other.size())?;
            let text = basic_text(other).ok_or_else(|| not_a_string(other))??;
            out.push_str(&text);
            Ok(())
        }
    }
}

/// The text of a value in a list or a map, as CEL would write it.
fn write_nested(out: &mut String, value: &Value<'_>, fuel: &mut Fuel) -> Result<(), EvalError> {
    fuel.take(1)?;
    match value {
        Value::List(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push_str(", ");
                }
                write_nested(out, item, fuel)?;
            }
            out.push(']');
            Ok(())
        }
        Value::Map(map) => write_map(out, map, fuel),
        Value::Double(double) if double.is_finite() => {
            write!(out, "{double:.6}").map_err(|_| "could not format".into())
        }
        Value::Double(double) => {
            write!(out, "{:?}", double_text(*double)).map_err(|_| "could not format".into())
        }
        Value::String(value) => {
            fuel.take_bytes(text(value).len())?;
            write!(out, "{:?}", text(value)).map_err(|_| "could not format".into())
        }
        Value::Bytes(bytes) => {
            fuel.take_bytes(bytes.len())?;
            write!(out, "b{:?}", String::from_utf8_lossy(bytes)).map_err(|_| "could not format".into())
        }
        Value::Timestamp(_) | Value::Duration(_) => {
            let kind = if matches!(value, Value::Duration(_)) { "duration" } else { "timestamp" };
            let text = basic_text(value).ok_or_else(|| not_a_string(value))??;
            write!(out, "{kind}({text:?})").map_err(|_| "could not format".into())
        }
        Value::Null | Value::Bool(_) | Value::Int(_) | Value::Uint(_) | Value::Type(_) => {
            write_value(out, value, fuel)
        }
        other => Err(EvalError::text(format!(
            "error during formatting: no formatting function for {}",
            other.type_name()
        ))),
    }
}

fn write_map(out: &mut String, map: &Map<'_>, fuel: &mut Fuel) -> Result<(), EvalError> {
    fuel.take(map.len())?;
    let mut pairs = Vec::new();
    for (key, value) in map.entries() {
        if !matches!(key, Value::String(_) | Value::Bool(_) | Value::Int(_) | Value::Uint(_)) {
            return Err(EvalError::text(format!(
                "error during formatting: no formatting function for map key of type {}",
                key.type_name()
            )));
        }
        let (mut key_text, mut value_text) = (String::new(), String::new());
        write_nested(&mut key_text, &key, fuel)?;
        write_nested(&mut value_text, &value, fuel)?;
        pairs.push((key_text, value_text));
    }
    pairs.sort_by(|(a, _), (b, _)| a.cmp(b));
    let pairs: Vec<String> = pairs.into_iter().map(|(key, value)| format!("{key}:{value}")).collect();
    out.push('{');
    out.push_str(&pairs.join(", "));
    out.push('}');
    Ok(())
}

pub(super) fn format<'a>(call: &mut Call<'_, 'a>) -> Outcome<'a> {
    let [Value::String(format), Value::List(args)] = call.args else { return Err(call.no_such_overload()) };
    let mut out = String::new();
    let mut index = 0;
    for part in parse(text(format)).map_err(EvalError::text)? {
        match part {
            Part::Text(plain) => out.push_str(plain),
            Part::Clause(clause) => {
                let value =
                    args.get(index).ok_or_else(|| EvalError::text(format!("index {index} out of range")))?;
                clause.write(&mut out, value, call.fuel)?;
                index += 1;
            }
        }
        call.fuel.take_bytes(out.len() / 64)?;
    }
    call.fuel.take_bytes(out.len())?;
    Ok(Value::text(out))
}
