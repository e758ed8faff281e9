//! Any two lines as quantities: they are parsed, written, compared, added and subtracted, and what holds of numbers holds.

#![no_main]

use std::cmp::Ordering;

use dra_api::quantity::{Format, Quantity};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let (first, second) = text.split_once('\n').unwrap_or((text, "1"));
    let Ok(a) = Quantity::parse(first) else { return };
    one(&a);
    let Ok(b) = Quantity::parse(second) else { return };
    one(&b);
    two(&a, &b);
});

fn one(a: &Quantity) {
    let text = a.to_string();
    let again = Quantity::parse(&text).expect("what is written can be read");
    assert_eq!(&again, a, "{text} is the same number");
    // A multiple of a thousand that is none of 1024 is written in units and read back as a decimal: 62.5Ki, 64000, 64k.
    if a.format() != Format::BinarySi {
        assert_eq!(again.to_string(), text, "the canonical form is its own canonical form");
    }
    let json = serde_json::to_string(a).expect("a quantity is a JSON string");
    assert_eq!(&serde_json::from_str::<Quantity>(&json).expect("what is written can be read"), a);

    let rest = a.checked_sub(a).expect("the exponents are equal");
    assert!(rest.is_zero());
    assert_eq!(a.negated().negated(), *a);
    assert_eq!(a.negated().sign(), a.sign().reverse());
    assert!(!a.as_approximate_f64().is_nan());
    if let Some(whole) = a.as_i64() {
        assert_eq!(a.value(), Some(whole));
        assert_eq!(a.scaled_value(0), Some(whole));
    }
    if let (Some(value), Some(milli)) = (a.value(), a.milli_value()) {
        // Both are rounded away from zero.
        assert!(i128::from(value).abs() * 1000 >= i128::from(milli).abs());
    }
}

fn two(a: &Quantity, b: &Quantity) {
    assert_eq!(a.cmp(b), b.cmp(a).reverse());
    assert_eq!(a.negated().cmp(&b.negated()), b.cmp(a));
    let (sum, swapped) = (a.checked_add(b), b.checked_add(a));
    assert_eq!(sum, swapped);
    if let Some(rest) = a.checked_sub(b) {
        assert_eq!(rest.sign(), a.cmp(b));
    }
    let Some(sum) = sum else { return };
    assert_eq!(sum.cmp(a), b.sign(), "a sum differs from one part in the direction of the other");
    if let Some(rest) = sum.checked_sub(b) {
        assert_eq!(rest.cmp(a), Ordering::Equal);
    }
    let _ = (sum.to_string(), sum.value(), sum.milli_value(), sum.as_approximate_f64());
}
