//! Amounts of counters and capacities in the form the search computes with: whole nano-units in 128 bits.
//!
//! A parsed quantity is a multiple of 10⁻⁹, so the conversion is exact. 128 bits hold about ±1.7·10²⁹ units; sums
//! stay inside because single amounts are limited to [`LIMIT`]. A published quantity beyond that makes its pool
//! invalid, and a requested one is an error: both are refused rather than computed wrongly.

use dra_api::quantity::{Format, Quantity};

/// Nano-units.
pub(crate) type Nanos = i128;

/// The largest magnitude of a single amount, in nano-units: 10²⁴ units. A hundred thousand of them can be added.
pub(crate) const LIMIT: Nanos = 1_000_000_000_000_000_000_000_000_000_000_000;

const UNIT: Nanos = 1_000_000_000;
/// 10¹⁸ units.
const CHUNK: Nanos = 1_000_000_000_000_000_000 * UNIT;

/// The quantity in nano-units, `None` beyond [`LIMIT`].
pub(crate) fn nanos(quantity: &Quantity) -> Option<Nanos> {
    if let Some(units) = quantity.as_i64() {
        return Some(Nanos::from(units) * UNIT);
    }
    if let Some(nanos) = quantity.scaled_value(-9) {
        return Some(Nanos::from(nanos));
    }
    // Too long for 64 bits: take it apart into chunks of 10¹⁸ units, units and a fraction. `scaled_value` rounds
    // away from zero, so each remainder has at most the magnitude of one step.
    let chunks = quantity.scaled_value(18)?;
    let rest = quantity.checked_sub(&Quantity::parse(&format!("{chunks}e18")).ok()?)?;
    let units = rest.value()?;
    let fraction = rest.checked_sub(&Quantity::from_i64(units, Format::DecimalSi))?.scaled_value(-9)?;
    let total = Nanos::from(chunks)
        .checked_mul(CHUNK)?
        .checked_add(Nanos::from(units) * UNIT)?
        .checked_add(Nanos::from(fraction))?;
    (total.abs() <= LIMIT).then_some(total)
}

/// The product, rounded up to whole nano-units and in the suffix family of the first; `None` beyond [`LIMIT`].
pub(crate) fn product(a: &Quantity, b: &Quantity) -> Option<Quantity> {
    let (units, rest) = (nanos(a)?.div_euclid(UNIT), nanos(a)?.rem_euclid(UNIT));
    let factor = nanos(b)?;
    let fraction = rest.checked_mul(factor)?;
    let rounded = fraction.div_euclid(UNIT) + Nanos::from(fraction.rem_euclid(UNIT) != 0);
    let total = units.checked_mul(factor)?.checked_add(rounded)?;
    (total.abs() <= LIMIT).then(|| quantity_like(total, a.format()))
}

/// The quantity of so many nano-units, for people to read.
pub(crate) fn quantity(nanos: Nanos) -> Quantity {
    let units = nanos.div_euclid(UNIT);
    let fraction = nanos.rem_euclid(UNIT);
    let text = if fraction == 0 { units.to_string() } else { format!("{nanos}n") };
    Quantity::parse(&text).unwrap_or(Quantity::ZERO)
}

/// How a shortfall or a remainder is shown next to a quantity of the given suffix family.
pub(crate) fn quantity_like(nanos: Nanos, format: Format) -> Quantity {
    let plain = quantity(nanos);
    // Adding to a zero of a family does not change the family, adding zero of a family to nothing takes it over.
    match Quantity::parse(match format {
        Format::BinarySi => "1Ki",
        Format::DecimalSi => "1",
        Format::DecimalExponent => "1e3",
    }) {
        Ok(one) => one.checked_add(&plain).and_then(|sum| sum.checked_sub(&one)).unwrap_or(plain),
        Err(_) => plain,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Option<Nanos> {
        nanos(&Quantity::parse(text).unwrap())
    }

    #[test]
    fn quantities_of_every_size_convert_exactly() {
        assert_eq!(of("0"), Some(0));
        assert_eq!(of("1500m"), Some(1_500_000_000));
        assert_eq!(of("80Gi"), Some(80 * 1024 * 1024 * 1024 * UNIT));
        assert_eq!(of("1000000000000000000001"), Some(1_000_000_000_000_000_000_001 * UNIT));
        assert_eq!(of("-1000000000000000000001"), Some(-1_000_000_000_000_000_000_001 * UNIT));
        assert_eq!(of("12345678901234567890.5"), Some(12_345_678_901_234_567_890_500_000_000));
    }

    #[test]
    fn a_quantity_out_of_range_is_refused() {
        assert_eq!(of("1e40"), None);
        assert_eq!(of("1e999999"), None);
    }

    #[test]
    fn products_are_exact_or_refused() {
        let product = |a: &str, b: &str| {
            let (a, b) = (Quantity::parse(a).unwrap(), Quantity::parse(b).unwrap());
            product(&a, &b).map(|product| product.to_string())
        };
        assert_eq!(product("4Gi", "500m"), Some("2Gi".to_owned()));
        assert_eq!(product("1500m", "3"), Some("4500m".to_owned()));
        assert_eq!(product("1n", "1n"), Some("1n".to_owned()));
        assert_eq!(product("-2", "2500m"), Some("-5".to_owned()));
        assert_eq!(product("1e20", "1e20"), None);
        assert_eq!(product("1e30", "1"), None);
    }

    #[test]
    fn amounts_print_as_quantities() {
        assert_eq!(quantity(1_500_000_000).to_string(), "1500m");
        assert_eq!(quantity_like(2 * 1024 * 1024 * UNIT, Format::BinarySi).to_string(), "2Mi");
    }
}
