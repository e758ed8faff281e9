//! Requests: an error or an answer, the same each time, in bounded time.
//!
//! Text that begins with a brace is a request as it stands. Anything else is the seed of a generated request and a list of
//! edits to it, so that most inputs are requests with few faults.

#![no_main]

use dra_conformance::generate;
use dra_conformance::wire::{Request, respond_within};
use libfuzzer_sys::fuzz_target;
use serde_json::{Value, json};

/// Steps after which a search gives up.
const STEPS: u64 = 20_000;

fuzz_target!(|input: &[u8]| {
    let edited;
    let text = if input.first() == Some(&b'{') {
        input
    } else {
        let Some((seed, edits)) = input.split_first_chunk() else { return };
        let mut request = generate::request(u64::from(u32::from_le_bytes(*seed)));
        for edit in edits.chunks_exact(4).take(16) {
            apply(&mut request, edit);
        }
        edited = request.to_string();
        edited.as_bytes()
    };
    let Ok(request) = Request::parse(text) else { return };
    let answer = || serde_json::to_value(respond_within(&request, STEPS)).expect("an answer is JSON");
    assert_eq!(answer(), answer());
});

/// Replaces, removes or doubles the value at some place.
fn apply(request: &mut Value, edit: &[u8]) {
    let [low, high, what, _] = *edit else { return };
    let places = count(request);
    let mut place = usize::from(u16::from_le_bytes([low, high])) % places;
    edit_at(request, &mut place, what);
}

fn count(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(count).sum(),
        Value::Object(fields) => fields.values().map(count).sum(),
        _ => 0,
    }
}

/// Counts down to the place, in order of the text; whether it was found.
fn edit_at(value: &mut Value, place: &mut usize, what: u8) -> bool {
    if *place == 0 {
        *value = hostile(value, what);
        return true;
    }
    *place -= 1;
    match value {
        Value::Array(items) => {
            for position in 0..items.len() {
                if *place == 0 && what % 4 == 1 {
                    let copy = items[position].clone();
                    items.push(copy);
                    return true;
                }
                if edit_at(&mut items[position], place, what) {
                    return true;
                }
            }
            false
        }
        Value::Object(fields) => fields.values_mut().any(|field| edit_at(field, place, what)),
        _ => false,
    }
}

fn hostile(value: &Value, what: u8) -> Value {
    let texts = [
        "", "0", "-1", "1e-99999999", "1e99999999", "9223372036854775807", "9223372036854775808", "9e999", "1n", "-9E",
        "a.dev", "p1", "All", "ExactCount", "device.driver", "lists.range(100000).all(x, x >= 0)", "true", "1.0.0",
        "01.0", "a/b/c", "ns", "r0", "r0/s0", "*",
    ];
    let numbers = [0, 1, -1, 2, 33, i64::MAX, i64::MIN, 1 << 32];
    let text = texts[usize::from(what) % texts.len()];
    match (value, what % 8) {
        (_, 0) => Value::Null,
        (Value::String(_), 1..) => json!(text),
        (Value::Number(_), 1..) => json!(numbers[usize::from(what / 8) % numbers.len()]),
        (Value::Bool(one), 1..) => json!(!one),
        (Value::Array(_), 1..4) => json!([]),
        (Value::Object(_), 1..4) => json!({}),
        (_, 4) => json!([value]),
        (_, 5) => json!({"value": value, "int": 1, "ints": [1], "min": "1", "step": "0"}),
        (_, 6) => json!(text),
        _ => json!(numbers[usize::from(what / 8) % numbers.len()]),
    }
}
