//! Values of expressions, their equality and order.

use crate::device::{AttributeValue, DeviceView, KeyId, NameId};
use crate::error::EvalError;
use crate::library::convert::basic_text;
use crate::library::format_named::NamedFormat;
use crate::library::net::Cidr;
use crate::library::time::Timestamp;
use crate::library::url::Url;
use crate::map::{Entries, MapKey};
use crate::regexes::Pattern;
use crate::semver::Version;
use dra_api::quantity::Quantity;
use std::cmp::Ordering;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// A value: a constant of the program, a part of the device, or something computed.
#[derive(Clone, Debug)]
pub enum Value<'a> {
    /// `null`
    Null,
    /// `bool`
    Bool(bool),
    /// `int`
    Int(i64),
    /// `uint`
    Uint(u64),
    /// `double`
    Double(f64),
    /// `string`
    String(Text<'a>),
    /// `bytes`
    Bytes(Arc<[u8]>),
    /// `list`
    List(Arc<Vec<Value<'a>>>),
    /// `map`
    Map(Map<'a>),
    /// `optional_type`
    Optional(Option<Arc<Value<'a>>>),
    /// `google.protobuf.Duration`, nanoseconds
    Duration(i64),
    /// `google.protobuf.Timestamp`
    Timestamp(Timestamp),
    /// `type`, by its name
    Type(&'static str),
    /// `kubernetes.Quantity`
    Quantity(QuantityValue<'a>),
    /// `kubernetes.Semver`
    Semver(VersionValue<'a>),
    /// `net.IP`
    Ip(IpAddr),
    /// `net.CIDR`
    Cidr(Cidr),
    /// `kubernetes.URL`
    Url(Arc<Url>),
    /// `kubernetes.NamedFormat`
    Format(&'static NamedFormat),
}

/// A string, borrowed from the device or the program, or computed.
#[derive(Clone, Debug)]
pub enum Text<'a> {
    /// Part of the device or of the program.
    Borrowed(&'a str),
    /// Computed.
    Owned(Arc<str>),
}

impl Text<'_> {
    /// The text.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Borrowed(text) => text,
            Self::Owned(text) => text,
        }
    }
}

/// A quantity, borrowed from the device or computed.
#[derive(Clone, Debug)]
pub enum QuantityValue<'a> {
    /// The device's capacity.
    Borrowed(&'a Quantity),
    /// Parsed.
    Owned(Arc<Quantity>),
    /// A sum or difference. Kubernetes' implementation makes it a different Go type, which is not equal to anything when it
    /// stands on the right side.
    Sum(Arc<Quantity>),
}

impl QuantityValue<'_> {
    /// The quantity.
    pub fn get(&self) -> &Quantity {
        match self {
            Self::Borrowed(quantity) => quantity,
            Self::Owned(quantity) | Self::Sum(quantity) => quantity,
        }
    }
}

/// A version, borrowed from the device or the program, or computed.
#[derive(Clone, Debug)]
pub enum VersionValue<'a> {
    /// Part of the device or of the program.
    Borrowed(&'a Version),
    /// Parsed.
    Owned(Arc<Version>),
}

impl VersionValue<'_> {
    /// The version.
    pub fn get(&self) -> &Version {
        match self {
            Self::Borrowed(version) => version,
            Self::Owned(version) => version,
        }
    }
}

/// Which of the device's two kinds of maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `device.attributes`
    Attributes,
    /// `device.capacity`
    Capacity,
}

/// A map.
#[derive(Clone, Debug)]
pub enum Map<'a> {
    /// `device.attributes` or `device.capacity`: domains. Any other domain is found too, and empty.
    Domains(DeviceView<'a>, Kind),
    /// The attributes or capacities of one domain.
    Domain(DeviceView<'a>, Kind, NameId),
    /// `device` itself, which is a map at run time.
    Device(DeviceView<'a>),
    /// Constants or computed.
    Entries(Arc<Entries<'a>>),
}

/// Whether two values are equal, or of types between which Kubernetes defines no equality.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Equality {
    Equal,
    Different,
    Undefined,
}

impl From<bool> for Equality {
    fn from(equal: bool) -> Self {
        if equal { Self::Equal } else { Self::Different }
    }
}

/// Bounds the time and the memory of an evaluation where costs do not: the cost of a call is only charged when it is done, and
/// some calls cost next to nothing whatever they are given.
#[derive(Debug)]
pub(crate) struct Fuel {
    /// Steps that are left, some nanoseconds each.
    steps: u64,
    /// Values that may still be made, some 32 bytes each.
    values: u64,
    /// The last pattern that was not constant, with its source.
    pattern: Option<(Box<str>, Arc<Pattern>)>,
}

/// Steps of one evaluation; what stays within the cost limit on values of sensible size needs far fewer.
const STEPS: u64 = 16_000_000;
/// Values that one evaluation can make: 64 MiB.
const VALUES: u64 = 2_000_000;
/// Steps for the compilation of a pattern of up to this size.
const PATTERN: u64 = 80_000;
const PATTERN_SIZE: usize = 1 << 20;

impl Fuel {
    pub(crate) fn new() -> Self {
        Self { steps: STEPS, values: VALUES, pattern: None }
    }

    /// Takes steps.
    pub(crate) fn take(&mut self, steps: u64) -> Result<(), EvalError> {
        self.steps = self.steps.checked_sub(steps).ok_or(EvalError::CostLimitExceeded)?;
        Ok(())
    }

    /// Takes a step for each of so many elements.
    pub(crate) fn take_len(&mut self, elements: usize) -> Result<(), EvalError> {
        self.take(len(elements))
    }

    /// Takes what it costs to make so many values.
    pub(crate) fn take_values(&mut self, values: usize) -> Result<(), EvalError> {
        self.values = self.values.checked_sub(len(values)).ok_or(EvalError::CostLimitExceeded)?;
        self.take(len(values))
    }

    /// Takes what it costs to copy or search so many bytes of text.
    pub(crate) fn take_bytes(&mut self, bytes: usize) -> Result<(), EvalError> {
        self.values = self.values.checked_sub(len(bytes) / 32).ok_or(EvalError::CostLimitExceeded)?;
        self.take(len(bytes) / 16 + 1)
    }

    /// A pattern that the program did not know beforehand.
    pub(crate) fn pattern(&mut self, source: &str) -> Result<Arc<Pattern>, EvalError> {
        if let Some((known, pattern)) = &self.pattern
            && known.as_ref() == source
        {
            return Ok(Arc::clone(pattern));
        }
        self.take(PATTERN)?;
        let pattern = Pattern::with_limit(source, PATTERN_SIZE).map(Arc::new).map_err(EvalError::text)?;
        self.pattern = Some((source.into(), Arc::clone(&pattern)));
        Ok(pattern)
    }
}

/// A length as CEL counts it.
pub(crate) fn len(len: usize) -> u64 {
    u64::try_from(len).unwrap_or(u64::MAX)
}

/// The code points of a text.
pub(crate) fn text_size(text: &str) -> u64 {
    len(if text.is_ascii() { text.len() } else { text.chars().count() })
}

/// A length or index as CEL's `int`.
pub(crate) fn int(len: usize) -> i64 {
    i64::try_from(len).unwrap_or(i64::MAX)
}

impl<'a> Value<'a> {
    pub(crate) fn text(text: impl Into<Arc<str>>) -> Self {
        Self::String(Text::Owned(text.into()))
    }

    pub(crate) fn list(items: Vec<Value<'a>>) -> Self {
        Self::List(Arc::new(items))
    }

    pub(crate) fn texts<I: IntoIterator<Item: Into<Arc<str>>>>(texts: I) -> Self {
        Self::list(texts.into_iter().map(Value::text).collect())
    }

    pub(crate) fn some(value: Value<'a>) -> Self {
        Self::Optional(Some(Arc::new(value)))
    }

    pub(crate) const NONE: Self = Self::Optional(None);

    /// A constant of the program, borrowed from it.
    #[inline]
    pub(crate) fn of_constant(constant: &'a Value<'static>) -> Self {
        match constant {
            Value::String(Text::Owned(text)) => Value::String(Text::Borrowed(text)),
            Value::Quantity(QuantityValue::Owned(quantity)) => {
                Value::Quantity(QuantityValue::Borrowed(quantity))
            }
            Value::Semver(VersionValue::Owned(version)) => Value::Semver(VersionValue::Borrowed(version)),
            other => other.clone(),
        }
    }

    /// The value of an attribute.
    #[inline]
    pub(crate) fn of_attribute(attribute: AttributeValue<'a>) -> Self {
        match attribute {
            AttributeValue::Int(int) => Self::Int(int),
            AttributeValue::Bool(bool) => Self::Bool(bool),
            AttributeValue::String(text) => Self::String(Text::Borrowed(text)),
            AttributeValue::Version(version) => Self::Semver(VersionValue::Borrowed(version)),
            AttributeValue::Ints(ints) => Self::list(ints.iter().map(|int| Self::Int(*int)).collect()),
            AttributeValue::Bools(bools) => Self::list(bools.iter().map(|bool| Self::Bool(*bool)).collect()),
            AttributeValue::Strings(texts) => {
                Self::list(texts.iter().map(|text| Self::String(Text::Borrowed(text))).collect())
            }
            AttributeValue::Versions(versions) => Self::list(
                versions.iter().map(|version| Self::Semver(VersionValue::Borrowed(version))).collect(),
            ),
        }
    }

    /// The name of its type.
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::Null => "null_type",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Uint(_) => "uint",
            Self::Double(_) => "double",
            Self::String(_) => "string",
            Self::Bytes(_) => "bytes",
            Self::List(_) => "list",
            Self::Map(_) => "map",
            Self::Optional(_) => "optional_type",
            Self::Duration(_) => "google.protobuf.Duration",
            Self::Timestamp(_) => "google.protobuf.Timestamp",
            Self::Type(_) => "type",
            Self::Quantity(_) => "kubernetes.Quantity",
            Self::Semver(_) => "kubernetes.Semver",
            Self::Ip(_) => "net.IP",
            Self::Cidr(_) => "net.CIDR",
            Self::Url(_) => "kubernetes.URL",
            Self::Format(_) => "kubernetes.NamedFormat",
        }
    }

    /// The size that costs depend on: of strings in code points, of lists and maps in entries, 1 for all without a size.
    pub(crate) fn size(&self) -> u64 {
        match self {
            Self::String(text) => text_size(text.as_str()),
            Self::Bytes(bytes) => len(bytes.len()),
            Self::List(items) => len(items.len()),
            Self::Map(map) => map.len(),
            Self::Ip(IpAddr::V4(_)) => 4,
            Self::Ip(IpAddr::V6(_)) => 16,
            Self::Cidr(cidr) => cidr.size(),
            _ => 1,
        }
    }

    /// Whether it is the zero or empty value of its type; types without one have none.
    pub(crate) fn is_zero(&self) -> bool {
        match self {
            Self::Null => true,
            Self::Bool(bool) => !bool,
            Self::Int(int) => *int == 0,
            Self::Uint(uint) => *uint == 0,
            Self::Double(double) => *double == 0.0,
            Self::String(text) => text.as_str().is_empty(),
            Self::Bytes(bytes) => bytes.is_empty(),
            Self::List(items) => items.is_empty(),
            Self::Map(map) => map.len() == 0,
            Self::Duration(nanos) => *nanos == 0,
            Self::Timestamp(timestamp) => *timestamp == Timestamp::ZERO,
            _ => false,
        }
    }

    /// Equality with the value on the right, which is not always the same as the other way round.
    pub(crate) fn equality(&self, other: &Self, fuel: &mut Fuel) -> Result<Equality, EvalError> {
        Ok(match (self, other) {
            (Self::Null, _) | (_, Self::Null) => matches!((self, other), (Self::Null, Self::Null)).into(),
            (Self::String(a), Self::String(b)) => (a.as_str() == b.as_str()).into(),
            (Self::Int(a), Self::Int(b)) | (Self::Duration(a), Self::Duration(b)) => (a == b).into(),
            (Self::Bool(a), Self::Bool(b)) => (a == b).into(),
            (Self::Bytes(a), Self::Bytes(b)) => (a == b).into(),
            (
                Self::Int(_) | Self::Uint(_) | Self::Double(_),
                Self::Int(_) | Self::Uint(_) | Self::Double(_),
            ) => (compare_numbers(self, other) == Some(Ordering::Equal)).into(),
            (Self::Timestamp(a), Self::Timestamp(b)) => (a == b).into(),
            (Self::Type(a), Self::Type(b)) => (a == b).into(),
            (Self::Optional(a), Self::Optional(b)) => match (a, b) {
                (None, None) => Equality::Equal,
                (Some(a), Some(b)) => a.equality(b, fuel)?,
                _ => Equality::Different,
            },
            (Self::Quantity(_), Self::Quantity(QuantityValue::Sum(_))) => Equality::Undefined,
            (Self::Quantity(a), Self::Quantity(b)) => (a.get() == b.get()).into(),
            (Self::Semver(a), Self::Semver(b)) => (a.get() == b.get()).into(),
            (Self::Ip(a), Self::Ip(b)) => (a == b).into(),
            (Self::Cidr(a), Self::Cidr(b)) => (a == b).into(),
            (Self::Url(a), Self::Url(b)) => (a == b).into(),
            (Self::Format(a), Self::Format(b)) => (a.name == b.name).into(),
            (
                Self::Quantity(_)
                | Self::Semver(_)
                | Self::Ip(_)
                | Self::Cidr(_)
                | Self::Url(_)
                | Self::Format(_),
                _,
            ) => Equality::Undefined,
            (Self::List(a), Self::List(b)) => {
                if a.len() != b.len() {
                    return Ok(Equality::Different);
                }
                fuel.take_len(a.len())?;
                for (a, b) in a.iter().zip(b.iter()) {
                    if a.equality(b, fuel)? == Equality::Different {
                        return Ok(Equality::Different);
                    }
                }
                Equality::Equal
            }
            (Self::Map(a), Self::Map(b)) => {
                if a.len() != b.len() {
                    return Ok(Equality::Different);
                }
                fuel.take(a.len())?;
                for (key, value) in a.entries() {
                    let Some(other) = b.find(&key) else { return Ok(Equality::Different) };
                    if value.equality(&other, fuel)? == Equality::Different {
                        return Ok(Equality::Different);
                    }
                }
                Equality::Equal
            }
            _ => Equality::Different,
        })
    }

    /// Whether both are equal; types between which there is no equality count as different.
    pub(crate) fn equals(&self, other: &Self, fuel: &mut Fuel) -> Result<bool, EvalError> {
        Ok(self.equality(other, fuel)? == Equality::Equal)
    }

    /// The order of two values, if their types have one.
    pub(crate) fn compare(&self, other: &Self) -> Result<Ordering, EvalError> {
        match (self, other) {
            (Self::Int(a), Self::Int(b)) | (Self::Duration(a), Self::Duration(b)) => Ok(a.cmp(b)),
            (Self::String(a), Self::String(b)) => Ok(a.as_str().cmp(b.as_str())),
            (Self::Bool(a), Self::Bool(b)) => Ok(a.cmp(b)),
            (Self::Bytes(a), Self::Bytes(b)) => Ok(a.cmp(b)),
            (Self::Timestamp(a), Self::Timestamp(b)) => Ok(a.cmp(b)),
            (Self::Double(a), _) if a.is_nan() => Err("NaN values cannot be ordered".into()),
            (Self::Int(_) | Self::Uint(_) | Self::Double(_), Self::Double(b)) if b.is_nan() => {
                Err("NaN values cannot be ordered".into())
            }
            _ => compare_numbers(self, other).ok_or(EvalError::NoSuchOverload),
        }
    }

    /// Whether values of its type have an order.
    pub(crate) fn is_comparable(&self) -> bool {
        matches!(
            self,
            Self::Int(_)
                | Self::Uint(_)
                | Self::Double(_)
                | Self::Bool(_)
                | Self::String(_)
                | Self::Bytes(_)
                | Self::Duration(_)
                | Self::Timestamp(_)
        )
    }
}

/// 2⁶³ and 2⁶⁴ as floats; both are exact.
const TWO_63: f64 = 9_223_372_036_854_775_808.0;
const TWO_64: f64 = 18_446_744_073_709_551_616.0;

/// As Go compares them: a float is brought to the integer's range first, then the integer is converted to a float.
#[allow(clippy::cast_precision_loss)]
fn compare_numbers(a: &Value<'_>, b: &Value<'_>) -> Option<Ordering> {
    let int_order = |double: f64, int: i64| {
        if double < -TWO_63 {
            Some(Ordering::Less)
        } else if double > TWO_63 {
            Some(Ordering::Greater)
        } else {
            double.partial_cmp(&(int as f64))
        }
    };
    let uint_order = |double: f64, uint: u64| {
        if double < 0.0 {
            Some(Ordering::Less)
        } else if double > TWO_64 {
            Some(Ordering::Greater)
        } else {
            double.partial_cmp(&(uint as f64))
        }
    };
    match (a, b) {
        (Value::Int(a), Value::Int(b)) => Some(a.cmp(b)),
        (Value::Uint(a), Value::Uint(b)) => Some(a.cmp(b)),
        (Value::Int(a), Value::Uint(b)) => Some(i128::from(*a).cmp(&i128::from(*b))),
        (Value::Uint(a), Value::Int(b)) => Some(i128::from(*a).cmp(&i128::from(*b))),
        (Value::Double(a), Value::Double(b)) => a.partial_cmp(b),
        (Value::Double(a), Value::Int(b)) => int_order(*a, *b),
        (Value::Int(a), Value::Double(b)) => int_order(*b, *a).map(Ordering::reverse),
        (Value::Double(a), Value::Uint(b)) => uint_order(*a, *b),
        (Value::Uint(a), Value::Double(b)) => uint_order(*b, *a).map(Ordering::reverse),
        _ => None,
    }
}

impl<'a> Map<'a> {
    /// An empty one.
    pub(crate) fn empty() -> Self {
        Self::Entries(Arc::new(Entries::default()))
    }

    /// The number of entries.
    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::Entries(entries) => len(entries.len()),
            Self::Device(_) => 4,
            Self::Domains(view, kind) => len(kind.domains(*view).count()),
            Self::Domain(view, kind, domain) => len(kind.names(*view, *domain).count()),
        }
    }

    /// The keys, in a fixed order.
    pub(crate) fn keys(&self) -> Vec<Value<'a>> {
        let text = |view: DeviceView<'a>, name| Value::String(Text::Borrowed(view.interner.text(name)));
        match self {
            Self::Entries(entries) => entries.iter().map(|(key, _)| key.to_value()).collect(),
            Self::Device(_) => DEVICE_FIELDS.map(|field| Value::String(Text::Borrowed(field))).to_vec(),
            Self::Domains(view, kind) => kind.domains(*view).map(|domain| text(*view, domain)).collect(),
            Self::Domain(view, kind, domain) => {
                kind.names(*view, *domain).map(|(name, _)| text(*view, name)).collect()
            }
        }
    }

    /// Keys with their values, in the order of [`Map::keys`].
    pub(crate) fn entries(&self) -> Vec<(Value<'a>, Value<'a>)> {
        match self {
            Self::Entries(entries) => {
                entries.iter().map(|(key, value)| (key.to_value(), value.clone())).collect()
            }
            _ => self
                .keys()
                .into_iter()
                .filter_map(|key| {
                    let value = self.find(&key)?;
                    Some((key, value))
                })
                .collect(),
        }
    }

    /// The value of a key. Numbers of different types find each other.
    pub(crate) fn find(&self, key: &Value<'_>) -> Option<Value<'a>> {
        match (self, key) {
            (Self::Entries(entries), _) => MapKey::lookup(key).find_map(|key| entries.get(&key)).cloned(),
            (Self::Domains(view, kind), Value::String(text)) => Some(kind.domain(*view, text.as_str())),
            (Self::Domains(..), _) => Some(Value::Map(Self::empty())),
            (Self::Domain(view, kind, domain), Value::String(text)) => {
                let name = view.interner.find_name(text.as_str())?;
                kind.value(*view, view.interner.find_key(*domain, name)?)
            }
            (Self::Device(view), Value::String(text)) => device_field(*view, text.as_str()),
            (Self::Domain(..) | Self::Device(_), _) => None,
        }
    }

    /// Whether `in` finds the key. Of the domains only those that the device has.
    pub(crate) fn contains(&self, key: &Value<'_>) -> bool {
        match (self, key) {
            (Self::Domains(view, kind), Value::String(text)) => view
                .interner
                .find_name(text.as_str())
                .is_some_and(|name| kind.domains(*view).any(|domain| domain == name)),
            (Self::Domains(..), _) => false,
            _ => self.find(key).is_some(),
        }
    }
}

const DEVICE_FIELDS: [&str; 4] = ["allowMultipleAllocations", "attributes", "capacity", "driver"];

/// A field of `device`.
pub(crate) fn device_field<'a>(view: DeviceView<'a>, field: &str) -> Option<Value<'a>> {
    match field {
        "allowMultipleAllocations" => Some(Value::Bool(view.device.allows_multiple_allocations())),
        "attributes" => Some(Value::Map(Map::Domains(view, Kind::Attributes))),
        "capacity" => Some(Value::Map(Map::Domains(view, Kind::Capacity))),
        "driver" => Some(Value::String(Text::Borrowed(view.driver()))),
        _ => None,
    }
}

impl Kind {
    fn keys(self, view: DeviceView<'_>) -> Vec<KeyId> {
        match self {
            Self::Attributes => view.device.attribute_keys(),
            Self::Capacity => view.device.capacity_keys(),
        }
    }

    /// The domains that the device has, in the order of their texts.
    fn domains(self, view: DeviceView<'_>) -> impl Iterator<Item = NameId> {
        let mut domains: Vec<NameId> = self
            .keys(view)
            .iter()
            .filter_map(|key| view.interner.key_parts(*key))
            .map(|(domain, _)| domain)
            .collect();
        domains.sort_by_key(|domain| view.interner.text(*domain));
        domains.dedup();
        domains.into_iter()
    }

    /// The names in a domain, in the order of their texts.
    fn names(self, view: DeviceView<'_>, domain: NameId) -> impl Iterator<Item = (NameId, KeyId)> {
        let mut names: Vec<(NameId, KeyId)> = self
            .keys(view)
            .iter()
            .filter_map(|key| {
                let (of, name) = view.interner.key_parts(*key)?;
                (of == domain).then_some((name, *key))
            })
            .collect();
        names.sort_by_key(|(name, _)| view.interner.text(*name));
        names.into_iter()
    }

    /// The map of a domain, which may be one that the device does not have.
    pub(crate) fn domain<'a>(self, view: DeviceView<'a>, domain: &str) -> Value<'a> {
        Value::Map(match view.interner.find_name(domain) {
            Some(domain) => Map::Domain(view, self, domain),
            None => Map::empty(),
        })
    }

    /// Whether there is an attribute or capacity with this key.
    pub(crate) fn has(self, view: DeviceView<'_>, key: KeyId) -> bool {
        match self {
            Self::Attributes => view.device.has_attribute(key),
            Self::Capacity => view.device.capacity(key).is_some(),
        }
    }

    /// The attribute or capacity with this key.
    #[inline]
    pub(crate) fn value(self, view: DeviceView<'_>, key: KeyId) -> Option<Value<'_>> {
        match self {
            Self::Attributes => view.attribute(key).map(Value::of_attribute),
            Self::Capacity => {
                view.device.capacity(key).map(|value| Value::Quantity(QuantityValue::Borrowed(value)))
            }
        }
    }
}

/// A short form for messages.
impl fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self, basic_text(self)) {
            (_, Some(Ok(text))) => f.write_str(&text),
            (Self::Null, _) => f.write_str("null"),
            (Self::Type(name), _) => f.write_str(name),
            (Self::Quantity(quantity), _) => quantity.get().fmt(f),
            (Self::Semver(version), _) => version.get().fmt(f),
            _ => f.write_str(self.type_name()),
        }
    }
}
