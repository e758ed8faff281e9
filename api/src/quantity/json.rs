//! Quantities in JSON: a text in canonical form; numbers and `null` (zero) are read as well, as Go does.

use std::fmt;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{Format, Quantity};

impl Serialize for Quantity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Text)
    }
}

struct Text;

impl Visitor<'_> for Text {
    type Value = Quantity;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a quantity")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Quantity, E> {
        Quantity::parse(text).map_err(E::custom)
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Quantity, E> {
        Ok(Quantity::from_i64(value, Format::DecimalSi))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Quantity, E> {
        self.visit_str(&value.to_string())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Quantity, E> {
        self.visit_str(&value.to_string())
    }

    fn visit_unit<E: Error>(self) -> Result<Quantity, E> {
        Ok(Quantity::ZERO)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_numbers_and_null_are_read_and_the_canonical_text_is_written() {
        let read = |json: &str| serde_json::from_str::<Quantity>(json).map(|quantity| quantity.to_string());
        assert_eq!(read(r#""1024Ki""#).unwrap(), "1Mi");
        assert_eq!(read("5").unwrap(), "5");
        assert_eq!(read("1.5").unwrap(), "1500m");
        assert_eq!(read("18446744073709551615").unwrap(), "18446744073709551615");
        assert_eq!(read("null").unwrap(), "0");
        assert!(read(r#""5 GB""#).is_err());
        assert!(read("[]").is_err());
        assert_eq!(serde_json::to_string(&Quantity::parse("1024Ki").unwrap()).unwrap(), r#""1Mi""#);
    }
}
