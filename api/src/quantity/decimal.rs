//! Decimals of any length, for quantities that do not fit 64 bits.

use super::MAX_DIGITS;
use std::cmp::Ordering;
use std::fmt::Write;

/// Decimal digits in one limb of a [`Decimal`].
const LIMB_DIGITS: u32 = 9;
const LIMB: u64 = 1_000_000_000;

/// `±limbs * 10^exponent`. Base 10⁹, so that scaling by powers of ten and printing are cheap.
#[derive(Clone, Debug)]
pub(super) struct Decimal {
    negative: bool,
    /// Least significant first, the last one not zero; empty for zero.
    limbs: Vec<u32>,
    pub(super) exponent: i32,
}

/// The value below 10⁹ that the arithmetic has just reduced.
fn limb(value: u64) -> u32 {
    u32::try_from(value % LIMB).unwrap_or_default()
}

impl Decimal {
    pub(super) fn new(mantissa: i64, exponent: i32) -> Self {
        let mut rest = mantissa.unsigned_abs();
        let mut limbs = Vec::new();
        while rest != 0 {
            limbs.push(limb(rest));
            rest /= LIMB;
        }
        Self { negative: mantissa < 0, limbs, exponent }
    }

    pub(super) fn from_digits(whole: &str, fraction: &str) -> Self {
        let digits: Vec<u8> = whole.bytes().chain(fraction.bytes()).collect();
        let limbs = digits
            .rchunks(LIMB_DIGITS as usize)
            .map(|chunk| chunk.iter().fold(0, |sum, digit| sum * 10 + u32::from(digit - b'0')))
            .collect();
        let mut decimal = Self { negative: false, limbs, exponent: 0 };
        decimal.trim();
        decimal
    }

    fn trim(&mut self) {
        while self.limbs.last() == Some(&0) {
            self.limbs.pop();
        }
    }

    pub(super) fn is_zero(&self) -> bool {
        self.limbs.is_empty()
    }

    pub(super) fn sign(&self) -> Ordering {
        match (self.is_zero(), self.negative) {
            (true, _) => Ordering::Equal,
            (false, true) => Ordering::Less,
            (false, false) => Ordering::Greater,
        }
    }

    pub(super) fn negated(mut self) -> Self {
        self.negative = !self.negative;
        self
    }

    /// Decimal digits of the mantissa, 0 for zero.
    fn digits(&self) -> u32 {
        match self.limbs.split_last() {
            None => 0,
            Some((last, rest)) => {
                let rest = u32::try_from(rest.len()).unwrap_or(u32::MAX);
                rest.saturating_mul(LIMB_DIGITS).saturating_add(last.ilog10() + 1)
            }
        }
    }

    pub(super) fn multiply(&mut self, factor: u32) {
        let mut carry = 0_u64;
        for place in &mut self.limbs {
            let product = u64::from(*place) * u64::from(factor) + carry;
            *place = limb(product);
            carry = product / LIMB;
        }
        if carry != 0 {
            self.limbs.push(limb(carry));
        }
    }

    /// Divides the mantissa by `divisor` and returns the remainder.
    fn divide(&mut self, divisor: u32) -> u32 {
        let divisor = u64::from(divisor.max(1));
        let mut rest = 0_u64;
        for place in self.limbs.iter_mut().rev() {
            let value = rest * LIMB + u64::from(*place);
            *place = limb(value / divisor);
            rest = value % divisor;
        }
        self.trim();
        limb(rest)
    }

    /// Gives the number the smaller `exponent`, unless that takes more than [`MAX_DIGITS`] digits.
    pub(super) fn lower_exponent(&mut self, exponent: i32) -> bool {
        let Ok(places) = u64::try_from(i64::from(self.exponent) - i64::from(exponent)) else {
            return true;
        };
        if self.is_zero() {
            self.exponent = exponent;
            return true;
        }
        let Some(places) =
            u32::try_from(places).ok().filter(|places| self.digits().saturating_add(*places) <= MAX_DIGITS)
        else {
            return places == 0;
        };
        self.multiply(10_u32.pow(places % LIMB_DIGITS));
        let zeros = (places / LIMB_DIGITS) as usize;
        self.limbs.splice(0..0, std::iter::repeat_n(0, zeros));
        self.exponent = exponent;
        true
    }

    /// Rounds away from zero to a multiple of 10^`exponent`, and returns whether that was exact.
    pub(super) fn round_up(&mut self, exponent: i32) -> bool {
        let Ok(places) = u64::try_from(i64::from(exponent) - i64::from(self.exponent)) else {
            return true;
        };
        if places == 0 || self.is_zero() {
            self.exponent = self.exponent.max(exponent);
            return true;
        }
        let mut exact = true;
        let dropped = usize::try_from(places / u64::from(LIMB_DIGITS)).unwrap_or(usize::MAX);
        for place in self.limbs.drain(..dropped.min(self.limbs.len())) {
            exact &= place == 0;
        }
        let rest = u32::try_from(places % u64::from(LIMB_DIGITS)).unwrap_or_default();
        exact &= self.divide(10_u32.pow(rest)) == 0;
        if !exact {
            self.increment();
        }
        self.exponent = exponent;
        exact
    }

    fn increment(&mut self) {
        for place in &mut self.limbs {
            let value = u64::from(*place) + 1;
            *place = limb(value);
            if value < LIMB {
                return;
            }
        }
        self.limbs.push(1);
    }

    pub(super) fn compare(&self, other: &Self) -> Ordering {
        let (a, b) = (self.sign(), other.sign());
        if a != b || a == Ordering::Equal {
            return a.cmp(&b);
        }
        let magnitude = self.compare_magnitude(other);
        if self.negative { magnitude.reverse() } else { magnitude }
    }

    /// Compares two numbers other than zero without their signs.
    fn compare_magnitude(&self, other: &Self) -> Ordering {
        let leading = |number: &Self| i64::from(number.digits()) + i64::from(number.exponent);
        leading(self).cmp(&leading(other)).then_with(|| {
            // Equally many leading places: the exponents differ by no more than the longer mantissa's digits.
            let digits = |number: &Self| number.digit_text();
            let (a, b) = (digits(self), digits(other));
            let length = a.len().max(b.len());
            let padded =
                |text: &str| text.bytes().chain(std::iter::repeat(b'0')).take(length).collect::<Vec<u8>>();
            padded(&a).cmp(&padded(&b))
        })
    }

    pub(super) fn checked_add(&self, other: &Self) -> Option<Self> {
        if other.is_zero() {
            return Some(self.clone());
        }
        if self.is_zero() {
            return Some(other.clone());
        }
        let exponent = self.exponent.min(other.exponent);
        let (mut a, mut b) = (self.clone(), other.clone());
        if !a.lower_exponent(exponent) || !b.lower_exponent(exponent) {
            return None;
        }
        if a.negative == b.negative {
            a.add_limbs(&b.limbs);
            return Some(a);
        }
        if a.compare_magnitude(&b) == Ordering::Less {
            std::mem::swap(&mut a, &mut b);
        }
        a.subtract_limbs(&b.limbs);
        Some(a)
    }

    fn add_limbs(&mut self, other: &[u32]) {
        if self.limbs.len() < other.len() {
            self.limbs.resize(other.len(), 0);
        }
        let mut carry = 0;
        let mut rest = other.iter();
        for place in &mut self.limbs {
            let sum = u64::from(*place) + u64::from(rest.next().copied().unwrap_or_default()) + carry;
            *place = limb(sum);
            carry = sum / LIMB;
        }
        if carry != 0 {
            self.limbs.push(limb(carry));
        }
    }

    /// Subtracts a mantissa that is not larger.
    fn subtract_limbs(&mut self, other: &[u32]) {
        let mut borrow = 0;
        let mut rest = other.iter();
        for place in &mut self.limbs {
            let take = u64::from(rest.next().copied().unwrap_or_default()) + borrow;
            let value = u64::from(*place) + LIMB - take;
            *place = limb(value);
            borrow = u64::from(value < LIMB);
        }
        self.trim();
    }

    pub(super) fn scaled_value(&self, exponent: i32) -> Option<i64> {
        let mut scaled = self.clone();
        scaled.round_up(exponent);
        if !scaled.lower_exponent(exponent) || scaled.digits() > 19 {
            return None;
        }
        let magnitude = scaled
            .limbs
            .iter()
            .rev()
            .try_fold(0_u64, |sum, place| sum.checked_mul(LIMB)?.checked_add(u64::from(*place)))?;
        let value = i128::from(magnitude);
        i64::try_from(if self.negative { -value } else { value }).ok()
    }

    pub(super) fn mantissa_f64(&self) -> f64 {
        let magnitude: f64 = self.digit_text().parse().unwrap_or(f64::INFINITY);
        if self.negative { -magnitude } else { magnitude }
    }

    /// The mantissa's digits, `0` for zero.
    fn digit_text(&self) -> String {
        let Some((last, rest)) = self.limbs.split_last() else { return "0".to_owned() };
        let mut text = last.to_string();
        for place in rest.iter().rev() {
            // Writing to a String does not fail.
            let _ = write!(text, "{place:09}");
        }
        text
    }

    /// Canonical text with powers of 1000, for a number other than zero.
    pub(super) fn decimal_text(&self, exponent_form: bool) -> String {
        let mut text = self.digit_text();
        let kept = text.trim_end_matches('0').len();
        let dropped = i64::try_from(text.len() - kept).unwrap_or_default();
        text.truncate(kept);
        let exponent = i64::from(self.exponent) + dropped;
        let mut target = exponent - exponent.rem_euclid(3);
        let mut suffix = None;
        if !exponent_form {
            let largest = target.min(18);
            suffix = SI_SUFFIXES.iter().find(|(power, _)| *power == largest).map(|(_, text)| *text);
            if exponent - largest > i64::from(MAX_DIGITS) {
                suffix = None;
            } else if suffix.is_some() {
                target = largest;
            }
        }
        let zeros = usize::try_from(exponent - target).unwrap_or_default();
        text.extend(std::iter::repeat_n('0', zeros));
        if self.negative {
            text.insert(0, '-');
        }
        match suffix {
            Some(suffix) => text.push_str(suffix),
            None if target == 0 => {}
            None => {
                text.push('e');
                text.push_str(&target.to_string());
            }
        }
        text
    }

    /// Canonical text with powers of 1024, `None` for fractions and numbers below 1024.
    pub(super) fn binary_text(&self) -> Option<String> {
        let mut whole = self.clone();
        if !whole.round_up(0) || !whole.lower_exponent(0) {
            return None;
        }
        if whole.compare_magnitude(&Self::new(1024, 0)) == Ordering::Less {
            return None;
        }
        let mut suffix = "";
        for next in ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"] {
            let mut divided = whole.clone();
            if divided.divide(1024) != 0 {
                break;
            }
            whole = divided;
            suffix = next;
        }
        let sign = if whole.negative { "-" } else { "" };
        Some(format!("{sign}{}{suffix}", whole.digit_text()))
    }
}

const SI_SUFFIXES: [(i64, &str); 10] =
    [(-9, "n"), (-6, "u"), (-3, "m"), (0, ""), (3, "k"), (6, "M"), (9, "G"), (12, "T"), (15, "P"), (18, "E")];
