//! `resource.Quantity` of Kubernetes: an exact decimal number with a suffix family.
//!
//! Source of the rules: `k8s.io/apimachinery/pkg/api/resource` (`quantity.go`, `amount.go`, `suffix.go`).
//! A quantity has one of two inner forms, as there: a 64-bit mantissa with a decimal exponent, or an
//! arbitrarily long decimal. The form is observable ([`Quantity::as_i64`] answers only for the short one),
//! so both are kept apart here too.
//!
//! Two things are different on purpose. Nothing takes time or memory in proportion to an exponent: numbers
//! are compared by magnitude first, and sums which would need more than [`MAX_DIGITS`] digits are refused.
//! And text is always rendered from the number, in canonical form, where Go repeats some inputs verbatim
//! (`1.500`, `+5`) and drops suffixes beyond `E`.

mod decimal;
mod json;

use self::decimal::Decimal;
use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

/// The most decimal digits that the sum of two quantities may need.
pub const MAX_DIGITS: u32 = 20_000;

/// The decimal exponent to which parsing rounds, away from zero: 10⁻⁹, the `n` suffix.
const NANO: i32 = -9;
/// Mantissas up to this many digits are held in 64 bits (`maxInt64Factors`).
const MAX_SMALL_DIGITS: usize = 18;
/// `2^63 - 1`, the cap on quantities with a binary suffix.
const MAX_BINARY: i64 = i64::MAX;

/// Which family of suffixes a quantity is written with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// `12e6`
    DecimalExponent,
    /// `12Mi`, powers of 1024
    BinarySi,
    /// `12M`, powers of 1000
    DecimalSi,
}

/// Why a text is not a quantity. The messages are those of Kubernetes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParseQuantityError {
    /// The text is not a number followed by a suffix.
    Format,
    /// The part before the suffix is not a number.
    Numeric,
    /// The suffix is unknown, or its exponent does not fit 32 bits.
    Suffix,
}

impl fmt::Display for ParseQuantityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Format => {
                "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
            }
            Self::Numeric => "unable to parse numeric part of quantity",
            Self::Suffix => "unable to parse quantity's suffix",
        })
    }
}

impl std::error::Error for ParseQuantityError {}

/// A Kubernetes quantity. Equality and order are those of the number: `1000m == 1`.
#[derive(Clone, Debug)]
pub struct Quantity {
    amount: Amount,
    format: Format,
}

#[derive(Clone, Debug)]
enum Amount {
    /// `mantissa * 10^exponent`
    Small { mantissa: i64, exponent: i32 },
    /// Everything else, and all that Go computes with `inf.Dec`.
    Big(Box<Decimal>),
}

impl Quantity {
    /// Zero, without a suffix.
    pub const ZERO: Self =
        Self { amount: Amount::Small { mantissa: 0, exponent: 0 }, format: Format::DecimalSi };

    /// The integer `value`.
    pub const fn from_i64(value: i64, format: Format) -> Self {
        Self { amount: Amount::Small { mantissa: value, exponent: 0 }, format }
    }

    /// `value / 1000`.
    pub const fn from_milli(value: i64, format: Format) -> Self {
        Self { amount: Amount::Small { mantissa: value, exponent: -3 }, format }
    }

    /// Parses the text form (`ParseQuantity`). Values finer than `1n` are rounded away from zero to a multiple
    /// of it; values with a binary suffix are capped at ±(2⁶³-1) once they do not fit the short form.
    ///
    /// # Errors
    ///
    /// See [`ParseQuantityError`]. An exponent beyond 32 bits is an error here; Go cuts it to 32 bits.
    pub fn parse(text: &str) -> Result<Self, ParseQuantityError> {
        let parts = Parts::split(text)?;
        let (suffix, format) = Suffix::interpret(parts.suffix)?;
        if let Some(small) = parts.small(suffix, format) {
            return Ok(small);
        }
        parts.big(suffix, format)
    }

    /// The suffix family it was written with, or took over in a sum.
    pub const fn format(&self) -> Format {
        self.format
    }

    /// `Less`, `Equal` or `Greater` than zero.
    pub fn sign(&self) -> Ordering {
        match &self.amount {
            Amount::Small { mantissa, .. } => mantissa.cmp(&0),
            Amount::Big(decimal) => decimal.sign(),
        }
    }

    /// Whether the number is zero.
    pub fn is_zero(&self) -> bool {
        self.sign() == Ordering::Equal
    }

    /// The number as `AsInt64` gives it: `None` if it has a fraction or does not fit 64 bits, and also for integers
    /// which are held in another form (`1000m`, or more than 18 digits).
    pub fn as_i64(&self) -> Option<i64> {
        match self.amount {
            Amount::Small { mantissa, exponent: 0 } => Some(mantissa),
            Amount::Small { mantissa, exponent } => scale_up(mantissa, u32::try_from(exponent).ok()?),
            Amount::Big(_) => None,
        }
    }

    /// The number divided by 10^`exponent` and rounded away from zero, `None` if that exceeds 64 bits
    /// (`ScaledValue`, which overflows silently).
    pub fn scaled_value(&self, exponent: i32) -> Option<i64> {
        match &self.amount {
            Amount::Small { mantissa: 0, .. } => Some(0),
            Amount::Small { mantissa, exponent: own } => {
                let shift = i64::from(*own) - i64::from(exponent);
                match u32::try_from(shift) {
                    Ok(up) => scale_up(*mantissa, up),
                    Err(_) => Some(scale_down(*mantissa, shift.unsigned_abs())),
                }
            }
            Amount::Big(decimal) => decimal.scaled_value(exponent),
        }
    }

    /// The number rounded up to an integer (away from zero), `None` beyond 64 bits.
    pub fn value(&self) -> Option<i64> {
        self.scaled_value(0)
    }

    /// A thousand times the number rounded up to an integer (away from zero), `None` beyond 64 bits.
    pub fn milli_value(&self) -> Option<i64> {
        self.scaled_value(-3)
    }

    /// A float close to the number (`AsApproximateFloat64`), ±infinity beyond its range.
    pub fn as_approximate_f64(&self) -> f64 {
        let (base, exponent) = match &self.amount {
            // Rounding to the nearest float is what is asked for.
            #[allow(clippy::cast_precision_loss)]
            Amount::Small { mantissa, exponent } => (*mantissa as f64, *exponent),
            Amount::Big(decimal) => (decimal.mantissa_f64(), decimal.exponent),
        };
        if self.is_zero() {
            return 0.0;
        }
        if exponent == 0 { base } else { base * pow10_f64(exponent) }
    }

    /// The sum. A zero left side takes over the right side's suffix family. `None` if the exact sum has more than
    /// [`MAX_DIGITS`] digits, which takes exponents that no real quantity has.
    pub fn checked_add(&self, other: &Self) -> Option<Self> {
        let format = if self.is_zero() { other.format } else { self.format };
        if let (Amount::Small { mantissa: a, exponent: ea }, Amount::Small { mantissa: b, exponent: eb }) =
            (&self.amount, &other.amount)
            && let Some(amount) = add_small((*a, *ea), (*b, *eb))
        {
            return Some(Self { amount, format });
        }
        let sum = self.to_decimal().checked_add(&other.to_decimal())?;
        Some(Self { amount: Amount::Big(Box::new(sum)), format })
    }

    /// The difference, with the rules of [`Quantity::checked_add`].
    pub fn checked_sub(&self, other: &Self) -> Option<Self> {
        self.checked_add(&other.negated())
    }

    /// The number with the opposite sign.
    #[must_use]
    pub fn negated(&self) -> Self {
        let amount = match &self.amount {
            Amount::Small { mantissa, exponent } => match mantissa.checked_neg() {
                Some(mantissa) => Amount::Small { mantissa, exponent: *exponent },
                None => Amount::Big(Box::new(self.to_decimal().negated())),
            },
            Amount::Big(decimal) => Amount::Big(Box::new(decimal.as_ref().clone().negated())),
        };
        Self { amount, format: self.format }
    }

    fn to_decimal(&self) -> Decimal {
        match &self.amount {
            Amount::Small { mantissa, exponent } => Decimal::new(*mantissa, *exponent),
            Amount::Big(decimal) => decimal.as_ref().clone(),
        }
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        match (&self.amount, &other.amount) {
            (Amount::Small { mantissa: a, exponent: ea }, Amount::Small { mantissa: b, exponent: eb }) => {
                compare_small((*a, *ea), (*b, *eb))
            }
            (Amount::Big(a), Amount::Big(b)) => a.compare(b),
            (Amount::Big(a), Amount::Small { .. }) => a.compare(&other.to_decimal()),
            (Amount::Small { .. }, Amount::Big(b)) => self.to_decimal().compare(b),
        }
    }
}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Quantity {}

impl FromStr for Quantity {
    type Err = ParseQuantityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

/// Canonical form: no fraction, the largest suffix that loses nothing.
impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_zero() {
            return f.write_str("0");
        }
        let decimal = self.to_decimal();
        if self.format == Format::BinarySi
            && let Some(text) = decimal.binary_text()
        {
            return f.write_str(&text);
        }
        f.write_str(&decimal.decimal_text(self.format == Format::DecimalExponent))
    }
}

/// `mantissa * 10^places`, `None` beyond 64 bits.
fn scale_up(mantissa: i64, places: u32) -> Option<i64> {
    if mantissa == 0 { Some(0) } else { mantissa.checked_mul(10_i64.checked_pow(places)?) }
}

/// `mantissa / 10^places`, rounded away from zero.
fn scale_down(mantissa: i64, places: u64) -> i64 {
    let divisor = u32::try_from(places).ok().and_then(|places| 10_i64.checked_pow(places));
    let (quotient, exact) = match divisor {
        Some(divisor) => (mantissa / divisor, mantissa % divisor == 0),
        None => (0, mantissa == 0),
    };
    if exact { quotient } else { quotient.saturating_add(mantissa.signum()) }
}

/// The sum in short form, at the smaller exponent (`int64Amount.Add`).
fn add_small((a, ea): (i64, i32), (b, eb): (i64, i32)) -> Option<Amount> {
    if b == 0 {
        return Some(Amount::Small { mantissa: a, exponent: ea });
    }
    if a == 0 {
        return Some(Amount::Small { mantissa: b, exponent: eb });
    }
    let exponent = ea.min(eb);
    let raise =
        |mantissa, from: i32| scale_up(mantissa, u32::try_from(i64::from(from) - i64::from(exponent)).ok()?);
    let mantissa = raise(a, ea)?.checked_add(raise(b, eb)?)?;
    Some(Amount::Small { mantissa, exponent })
}

fn compare_small((a, ea): (i64, i32), (b, eb): (i64, i32)) -> Ordering {
    if ea == eb || a.signum() != b.signum() || a == 0 {
        return a.cmp(&b);
    }
    // 38 digits fit an i128, and 19 of them are the mantissa's. Farther apart, the larger exponent decides.
    let shift = i64::from(ea).abs_diff(i64::from(eb));
    match u32::try_from(shift).ok().filter(|shift| *shift <= 19) {
        Some(shift) => {
            let factor = 10_i128.pow(shift);
            if ea > eb {
                (i128::from(a) * factor).cmp(&i128::from(b))
            } else {
                i128::from(a).cmp(&(i128::from(b) * factor))
            }
        }
        None if (ea > eb) == (a > 0) => Ordering::Greater,
        None => Ordering::Less,
    }
}

/// `math.Pow10` of Go: 0 and infinity outside the range, and built of the same two factors within it.
fn pow10_f64(exponent: i32) -> f64 {
    const TENS: [f64; 32] = [
        1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17,
        1e18, 1e19, 1e20, 1e21, 1e22, 1e23, 1e24, 1e25, 1e26, 1e27, 1e28, 1e29, 1e30, 1e31,
    ];
    const UP: [f64; 10] = [1e0, 1e32, 1e64, 1e96, 1e128, 1e160, 1e192, 1e224, 1e256, 1e288];
    const DOWN: [f64; 11] =
        [1e0, 1e-32, 1e-64, 1e-96, 1e-128, 1e-160, 1e-192, 1e-224, 1e-256, 1e-288, 1e-320];
    let places = exponent.unsigned_abs() as usize;
    let tens = TENS.get(places % 32).copied().unwrap_or(1.0);
    match (exponent >= 0, places) {
        (true, 0..=308) => UP.get(places / 32).map_or(f64::INFINITY, |up| up * tens),
        (true, _) => f64::INFINITY,
        (false, 0..=323) => DOWN.get(places / 32).map_or(0.0, |down| down / tens),
        (false, _) => 0.0,
    }
}

/// What a suffix multiplies by: `base^exponent`.
#[derive(Clone, Copy)]
enum Suffix {
    Ten(i32),
    Two(u32),
}

impl Suffix {
    fn interpret(suffix: &str) -> Result<(Self, Format), ParseQuantityError> {
        let si = |exponent| Ok((Self::Ten(exponent), Format::DecimalSi));
        let binary = |exponent| Ok((Self::Two(exponent), Format::BinarySi));
        match suffix {
            "" => si(0),
            "n" => si(-9),
            "u" => si(-6),
            "m" => si(-3),
            "k" => si(3),
            "M" => si(6),
            "G" => si(9),
            "T" => si(12),
            "P" => si(15),
            "E" => si(18),
            "Ki" => binary(10),
            "Mi" => binary(20),
            "Gi" => binary(30),
            "Ti" => binary(40),
            "Pi" => binary(50),
            "Ei" => binary(60),
            _ => {
                let digits = suffix.strip_prefix(['e', 'E']).ok_or(ParseQuantityError::Suffix)?;
                let exponent = digits.parse().map_err(|_| ParseQuantityError::Suffix)?;
                Ok((Self::Ten(exponent), Format::DecimalExponent))
            }
        }
    }
}

/// A quantity's text, taken apart (`parseQuantityString`).
struct Parts<'a> {
    negative: bool,
    /// Digits before the point, without leading zeros; may be empty.
    whole: &'a str,
    /// Digits after the point.
    fraction: &'a str,
    suffix: &'a str,
    /// Whether there was any digit at all before the suffix.
    digits: bool,
}

impl<'a> Parts<'a> {
    fn split(text: &'a str) -> Result<Self, ParseQuantityError> {
        if text.is_empty() {
            return Err(ParseQuantityError::Format);
        }
        let negative = text.starts_with('-');
        let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
        let (all_whole, rest) = split_digits(unsigned);
        let whole = all_whole.trim_start_matches('0');
        let (fraction, suffix) = rest.strip_prefix('.').map_or(("", rest), split_digits);
        let after_letters = suffix.trim_start_matches(|c: char| "eEinumkKMGTP".contains(c));
        let exponent = after_letters.strip_prefix(['-', '+']).unwrap_or(after_letters);
        if !exponent.bytes().all(|b| b.is_ascii_digit()) {
            return Err(ParseQuantityError::Format);
        }
        let digits = !all_whole.is_empty() || !fraction.is_empty();
        Ok(Self { negative, whole, fraction, suffix, digits })
    }

    /// The short form, if Go would use it.
    fn small(&self, suffix: Suffix, format: Format) -> Option<Quantity> {
        // Go counts an absent whole part as the digit 0.
        let whole_digits = self.whole.len().max(1);
        let (exponent, factor) = match suffix {
            Suffix::Ten(exponent) => {
                if whole_digits.checked_add(self.fraction.len())? > MAX_SMALL_DIGITS {
                    return None;
                }
                (exponent.checked_sub(i32::try_from(self.fraction.len()).ok()?)?, 1)
            }
            Suffix::Two(bits) => {
                let digits = u32::try_from(whole_digits).ok()?.checked_add(bits * 3 / 10)?;
                if !self.fraction.is_empty() || digits > 14 {
                    return None;
                }
                (0, 1_i64.checked_shl(bits)?)
            }
        };
        if exponent < NANO {
            return None;
        }
        let magnitude = self
            .whole
            .bytes()
            .chain(self.fraction.bytes())
            .try_fold(0_i64, |sum, digit| sum.checked_mul(10)?.checked_add(i64::from(digit - b'0')))?
            .checked_mul(factor)?;
        let mantissa = if self.negative { -magnitude } else { magnitude };
        Some(Quantity { amount: Amount::Small { mantissa, exponent }, format })
    }

    fn big(&self, suffix: Suffix, mut format: Format) -> Result<Quantity, ParseQuantityError> {
        if !self.digits {
            return Err(ParseQuantityError::Numeric);
        }
        let places = i32::try_from(self.fraction.len()).map_err(|_| ParseQuantityError::Numeric)?;
        let mut decimal = Decimal::from_digits(self.whole, self.fraction);
        decimal.exponent = -places;
        match suffix {
            Suffix::Ten(exponent) => {
                decimal.exponent = exponent.checked_sub(places).ok_or(ParseQuantityError::Suffix)?;
            }
            Suffix::Two(bits) => (0..bits / 10).for_each(|_| decimal.multiply(1024)),
        }
        if decimal.is_zero() {
            decimal.exponent = 0;
        } else {
            decimal.round_up(NANO);
            // Go holds every such number at nine places; it shows in asApproximateFloat.
            decimal.lower_exponent(NANO);
        }
        if format == Format::BinarySi {
            let cap = Decimal::new(MAX_BINARY, 0);
            if decimal.compare(&cap) == Ordering::Greater {
                decimal = cap;
            } else if !decimal.is_zero() && decimal.compare(&Decimal::new(1, 0)) == Ordering::Less {
                format = Format::DecimalSi;
            }
        }
        if self.negative {
            decimal = decimal.negated();
        }
        Ok(Quantity { amount: Amount::Big(Box::new(decimal)), format })
    }
}

fn split_digits(text: &str) -> (&str, &str) {
    let end = text.bytes().position(|b| !b.is_ascii_digit()).unwrap_or(text.len());
    text.split_at(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn q(text: &str) -> Quantity {
        Quantity::parse(text).unwrap()
    }

    #[test]
    fn text_becomes_canonical() {
        for (text, canonical) in [
            ("0", "0"),
            ("1.5", "1500m"),
            ("1.5Gi", "1536Mi"),
            ("0.5Gi", "512Mi"),
            ("1000", "1k"),
            ("12E6", "12e6"),
            ("12e7", "120e6"),
            ("1024", "1024"),
            ("1024Ki", "1Mi"),
            ("100Ki", "100Ki"),
            ("1Ki", "1Ki"),
            ("0.1Ki", "102400m"),
            ("0.5Ki", "512"),
            ("80Gi", "80Gi"),
            ("1n", "1n"),
            ("0.1n", "1n"),
            ("-0.1n", "-1n"),
            ("12.50G", "12500M"),
            (".", "0"),
            ("+", "0"),
            ("-5", "-5"),
            ("9223372036854775808", "9223372036854775808"),
            ("16Ei", "9223372036854775807"),
            ("1000E", "1000E"),
            ("1.500", "1500m"),
            ("1e-3", "1e-3"),
            ("0.000001", "1u"),
            ("3e400", "30e399"),
        ] {
            assert_eq!(q(text).to_string(), canonical, "{text}");
        }
    }

    #[test]
    fn malformed_text_is_refused() {
        use ParseQuantityError::{Format, Suffix};
        for (text, error) in [
            ("", Format),
            ("three", Format),
            ("1GB", Format),
            ("1e2k", Format),
            ("1,3G", Format),
            (" 1", Format),
            ("1 ", Format),
            ("200K", Suffix),
            ("1e", Suffix),
            ("1e+", Suffix),
            ("1mm", Suffix),
            ("1e99999999999", Suffix),
            ("1+5", Suffix),
            ("é", Format),
        ] {
            assert_eq!(Quantity::parse(text), Err(error), "{text}");
        }
        assert_eq!(Quantity::parse("1e4294967296"), Err(Suffix), "Go cuts this exponent to 32 bits");
    }

    #[test]
    fn numbers_compare_exactly_whatever_their_form() {
        for (small, large) in [
            ("1", "1.000000001"),
            ("9223372036854775807", "9223372036854775808"),
            ("80G", "80Gi"),
            ("-2", "-1"),
            ("-1n", "0"),
            ("9e999", "1e1000"),
            ("-1e1000", "-9e999"),
            ("999999999999999999999999", "1e24"),
            ("1e18", "1000000000000000001"),
        ] {
            assert_eq!(q(small).cmp(&q(large)), Ordering::Less, "{small} {large}");
            assert_eq!(q(large).cmp(&q(small)), Ordering::Greater, "{large} {small}");
        }
        for (a, b) in [
            ("1000m", "1"),
            ("1Ki", "1024"),
            ("1e1000", "10e999"),
            ("0e7", "0"),
            ("1000000000000000000000", "1e21"),
        ] {
            assert_eq!(q(a), q(b), "{a} {b}");
        }
    }

    #[test]
    fn sums_are_exact_and_keep_the_left_family() {
        for (a, b, sum) in [
            ("9223372036854775807", "1", "9223372036854775808"),
            ("1Gi", "1", "1073741825"),
            ("0", "1Gi", "1Gi"),
            ("9e60", "1n", "9000000000000000000000000000000000000000000000000000000000000000000001e-9"),
            ("1", "-1", "0"),
            ("500m", "500m", "1"),
            ("1e30", "-1e30", "0"),
            ("1", "-1e30", "-999999999999999999999999999999"),
            ("80Gi", "-81Gi", "-1Gi"),
        ] {
            assert_eq!(q(a).checked_add(&q(b)).unwrap().to_string(), sum, "{a} + {b}");
        }
        assert_eq!(q("80Gi").checked_sub(&q("8Gi")).unwrap(), q("72Gi"));
    }

    #[test]
    fn integers_are_recognised_as_go_does() {
        for (text, value) in [
            ("1000m", None),
            ("1.0", None),
            ("1.5k", Some(1500)),
            ("9E", Some(9_000_000_000_000_000_000)),
            ("10E", None),
            ("999999999999999999", Some(999_999_999_999_999_999)),
            ("1000000000000000000", None),
            ("512Mi", Some(536_870_912)),
            ("0.5Gi", None),
            ("1000000000000Ki", None),
            ("1e3", Some(1000)),
            ("0e400000000", Some(0)),
            ("-3", Some(-3)),
        ] {
            assert_eq!(q(text).as_i64(), value, "{text}");
        }
    }

    #[test]
    fn scaled_values_round_away_from_zero() {
        assert_eq!(q("1500m").value(), Some(2));
        assert_eq!(q("-1500m").value(), Some(-2));
        assert_eq!(q("1n").milli_value(), Some(1));
        assert_eq!(q("2").milli_value(), Some(2000));
        assert_eq!(q("9223372036854775807").value(), Some(i64::MAX));
        assert_eq!(q("9223372036854775808").value(), None);
        assert_eq!(q("-9223372036854775808").value(), Some(i64::MIN));
        assert_eq!(q("1e400000000").value(), None);
        assert_eq!(q("1.0000000000000000001").value(), Some(2));
    }

    #[test]
    #[allow(clippy::float_cmp)]
    fn floats_are_close() {
        for (text, value) in [
            ("1500m", 1.5),
            ("80Gi", 85_899_345_920.0),
            ("9e60", 9e60),
            ("1e400", f64::INFINITY),
            ("-1e400", f64::NEG_INFINITY),
            ("0e400", 0.0),
        ] {
            assert!(
                (q(text).as_approximate_f64() - value).abs() <= value.abs() * 1e-15
                    || q(text).as_approximate_f64() == value,
                "{text}"
            );
        }
    }

    #[test]
    fn huge_exponents_cost_nothing() {
        assert_eq!(q("1e-99999999"), q("1n"));
        assert_eq!(q("-1e-2147483648"), q("-1n"));
        assert!(q("1e2147483647") > q("1234567890123456789012345e100000000"));
        assert!(q("-1e2147483647") < q("-1234567890123456789012345e100000000"));
        assert_eq!(q("1e100000000").checked_add(&q("1")), None);
        assert_eq!(q("1e100000000").checked_add(&q("0")).unwrap(), q("1e100000000"));
        assert_eq!(
            q("1234567890123456789012345e100000000").checked_add(&q("0")).unwrap().sign(),
            Ordering::Greater
        );
        assert_eq!(q("1000000000000000000000e2147483000").to_string(), "100e2147483019");
        assert!(q("1234567890123456789012345e100000000").as_approximate_f64().is_infinite());
    }
}
