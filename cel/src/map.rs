//! Maps that expressions make: literals, `transformMap`, queries of URLs.

use crate::error::EvalError;
use crate::value::{Text, Value};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The entries of a map, in the order of their keys.
#[derive(Clone, Debug, Default)]
pub struct Entries<'a> {
    entries: BTreeMap<MapKey, Value<'a>>,
}

/// What a map can have as key. Numbers of different types are different keys, though a lookup takes one for the other.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum MapKey {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    /// The bits of a float, of which there is only one for zero.
    Double(u64),
    String(Arc<str>),
    Duration(i64),
    Type(&'static str),
}

impl MapKey {
    /// The key for an entry.
    pub(crate) fn new(value: &Value<'_>) -> Result<Self, EvalError> {
        Ok(match value {
            Value::Null => Self::Null,
            Value::Bool(bool) => Self::Bool(*bool),
            Value::Int(int) => Self::Int(*int),
            Value::Uint(uint) => Self::Uint(*uint),
            Value::Double(double) => Self::Double((double + 0.0).to_bits()),
            Value::String(Text::Owned(text)) => Self::String(Arc::clone(text)),
            Value::String(Text::Borrowed(text)) => Self::String((*text).into()),
            Value::Duration(nanos) => Self::Duration(*nanos),
            Value::Type(name) => Self::Type(name),
            Value::Bytes(_) | Value::Semver(_) | Value::Format(_) => {
                return Err(EvalError::unhashable(value.type_name()));
            }
            other => return Err(EvalError::text(format!("unsupported key type: {}", other.type_name()))),
        })
    }

    /// The keys that a lookup of `value` tries, in order.
    pub(crate) fn lookup(value: &Value<'_>) -> impl Iterator<Item = Self> {
        let (int, uint) = match value {
            Value::Int(int) => (None, u64::try_from(*int).ok()),
            Value::Uint(uint) => (i64::try_from(*uint).ok(), None),
            Value::Double(double) => (exact_int(*double), exact_uint(*double)),
            _ => (None, None),
        };
        Self::new(value).ok().into_iter().chain(int.map(Self::Int)).chain(uint.map(Self::Uint))
    }

    pub(crate) fn to_value<'a>(&self) -> Value<'a> {
        match self {
            Self::Null => Value::Null,
            Self::Bool(bool) => Value::Bool(*bool),
            Self::Int(int) => Value::Int(*int),
            Self::Uint(uint) => Value::Uint(*uint),
            Self::Double(bits) => Value::Double(f64::from_bits(*bits)),
            Self::String(text) => Value::String(Text::Owned(Arc::clone(text))),
            Self::Duration(nanos) => Value::Duration(*nanos),
            Self::Type(name) => Value::Type(name),
        }
    }
}

/// The integer that a float is, if it is one (`doubleToInt64Lossless`).
#[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss, clippy::float_cmp)]
fn exact_int(double: f64) -> Option<i64> {
    let int = double as i64;
    (int as f64 == double && int != i64::MAX).then_some(int)
}

/// The unsigned integer that a float is, if it is one.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    clippy::float_cmp
)]
fn exact_uint(double: f64) -> Option<u64> {
    let uint = double as u64;
    (uint as f64 == double && uint != u64::MAX).then_some(uint)
}

impl<'a> Entries<'a> {
    /// The number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&MapKey, &Value<'a>)> {
        self.entries.iter()
    }

    pub(crate) fn get(&self, key: &MapKey) -> Option<&Value<'a>> {
        self.entries.get(key)
    }

    /// Sets an entry and returns what was there.
    pub(crate) fn insert(&mut self, key: MapKey, value: Value<'a>) -> Option<Value<'a>> {
        self.entries.insert(key, value)
    }

    pub(crate) fn remove(&mut self, key: &MapKey) {
        self.entries.remove(key);
    }
}
