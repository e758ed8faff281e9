//! What devices publish about themselves, in compact form: attributes and capacities.
//!
//! A device of a real driver has a dozen attributes, and decoded it takes several kilobytes. Here all texts of a slice lie
//! in one buffer, equal values and capacities are stored once per slice, and the list of attribute names (the *shape*) is
//! shared by all devices of a driver that have the same names.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::sync::Arc;

use dra_api::quantity::Quantity;
use dra_cel::{AttributeValue, KeyId, NameId, Version};

use crate::amount::{self, Nanos};
use crate::objects::{CapacityRequestPolicy, Device, DeviceAttribute, DeviceCapacity, ResourceSlice};
use crate::selector::Programs;

/// A place in a buffer of texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    start: u32,
    end: u32,
}

impl Span {
    /// Appends a text to a buffer.
    pub(super) fn push(text: &str, texts: &mut String) -> Self {
        let start = index(texts.len());
        texts.push_str(text);
        Self { start, end: index(texts.len()) }
    }

    pub(super) fn of(self, texts: &str) -> &str {
        texts.get(self.start as usize..self.end as usize).unwrap_or_default()
    }
}

/// Marks the absence of an entry in a side table.
pub(super) const NONE: u32 = u32::MAX;

/// The sorted attribute names of a device.
#[derive(Debug)]
pub(crate) struct Shape {
    driver: NameId,
    names: Box<[Box<str>]>,
    /// The names as expressions know them, and their positions. Where a name occurs with and without the driver's domain,
    /// only the one with the domain is here.
    keys: Box<[(KeyId, u32)]>,
}

impl Shape {
    fn new(driver: NameId, names: Box<[Box<str>]>, programs: &Programs) -> Self {
        let mut keys: Vec<(KeyId, u32)> = Vec::with_capacity(names.len());
        for (name, column) in names.iter().zip(0..) {
            let key = programs.key(driver, name);
            match keys.iter_mut().find(|(known, _)| *known == key) {
                Some((_, known)) if name.contains('/') => *known = column,
                Some(_) => {}
                None => keys.push((key, column)),
            }
        }
        Self { driver, names, keys: keys.into() }
    }

    fn column(&self, name: &str) -> Option<usize> {
        self.names.binary_search_by(|one| (**one).cmp(name)).ok()
    }

    fn column_of(&self, key: KeyId) -> Option<usize> {
        self.keys.iter().find(|(known, _)| *known == key).map(|(_, column)| *column as usize)
    }
}

/// Keys follow from driver and names.
impl Ord for Shape {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.driver, &self.names).cmp(&(other.driver, &other.names))
    }
}

impl PartialOrd for Shape {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Shape {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Shape {}

/// Shapes in use, so that equal ones are stored once.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shapes {
    known: imbl::OrdSet<Arc<Shape>>,
    sweep_at: usize,
}

impl Shapes {
    fn intern(&mut self, driver: NameId, names: Box<[Box<str>]>, programs: &Programs) -> Arc<Shape> {
        let shape = Shape { driver, names, keys: Box::default() };
        if let Some(known) = self.known.get(&shape) {
            return known.clone();
        }
        let shape = Arc::new(Shape::new(driver, shape.names, programs));
        if self.known.len() >= self.sweep_at {
            self.known = self.known.iter().filter(|one| Arc::strong_count(one) > 1).cloned().collect();
            self.sweep_at = self.known.len().saturating_mul(2).max(64);
        }
        self.known.insert(shape.clone());
        shape
    }
}

/// A stored attribute value.
#[derive(Clone, Debug)]
enum Value {
    Int(i64),
    Bool(bool),
    Text(Span),
    Version(Box<OneVersion>),
    Ints(Box<[i64]>),
    Bools(Box<[bool]>),
    Texts(Box<[Box<str>]>),
    Versions(Box<ManyVersions>),
    /// No known field, or several; and the one that expressions see.
    Odd(Box<(DeviceAttribute, Option<Value>)>),
}

/// A version as published, and what it means, or why it means nothing.
#[derive(Clone, Debug)]
struct OneVersion {
    published: Span,
    meaning: Result<Version, Box<str>>,
}

/// The same of a list.
#[derive(Clone, Debug)]
struct ManyVersions {
    published: Box<[Box<str>]>,
    meaning: Result<Box<[Version]>, Box<str>>,
}

impl Value {
    /// Why expressions cannot read the value.
    fn problem(&self) -> Option<Cow<'_, str>> {
        let malformed = |reason: &str| Some(format!("parse semantic version: {reason}").into());
        match self {
            Self::Version(version) => malformed(version.meaning.as_ref().err()?),
            Self::Versions(versions) => malformed(versions.meaning.as_ref().err()?),
            Self::Odd(odd) => match &odd.1 {
                Some(value) => value.problem(),
                None => Some("unsupported attribute value".into()),
            },
            _ => None,
        }
    }
}

/// A field of an attribute as published.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Field<'a> {
    Ints(&'a [i64]),
    Bools(&'a [bool]),
    Texts(&'a [String]),
    Versions(&'a [String]),
    Int(i64),
    Bool(bool),
    Text(&'a str),
    Version(&'a str),
}

/// The fields that are set, in the order in which Kubernetes looks for the one that expressions see.
fn fields(attribute: &DeviceAttribute) -> impl Iterator<Item = Field<'_>> {
    [
        attribute.ints.as_deref().map(Field::Ints),
        attribute.bools.as_deref().map(Field::Bools),
        attribute.strings.as_deref().map(Field::Texts),
        attribute.versions.as_deref().map(Field::Versions),
        attribute.int.map(Field::Int),
        attribute.bool.map(Field::Bool),
        attribute.string.as_deref().map(Field::Text),
        attribute.version.as_deref().map(Field::Version),
    ]
    .into_iter()
    .flatten()
}

/// An attribute value as constraints and selectors see it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Attribute<'a> {
    Int(i64),
    Bool(bool),
    Text(&'a str),
    Version(&'a str),
    Ints(&'a [i64]),
    Bools(&'a [bool]),
    Texts(&'a [Box<str>]),
    Versions(&'a [Box<str>]),
    /// No known field, or several: not a value that the API accepts.
    Odd(&'a DeviceAttribute),
}

/// One capacity of a device.
#[derive(Clone, Debug)]
pub(crate) struct Capacity {
    pub(crate) name: Box<str>,
    /// The name as expressions know it.
    key: KeyId,
    pub(crate) value: Quantity,
    pub(crate) nanos: Nanos,
    pub(crate) policy: Option<Box<CapacityRequestPolicy>>,
}

#[cfg(test)]
impl Capacity {
    pub(crate) fn for_tests(name: &str, value: Quantity, policy: CapacityRequestPolicy) -> Self {
        let programs = Programs::default();
        Self {
            name: name.into(),
            key: programs.key(programs.driver("d"), name),
            nanos: amount::nanos(&value).unwrap_or(0),
            value,
            policy: Some(Box::new(policy)),
        }
    }
}

/// Where the details of a device are.
#[derive(Clone, Debug)]
struct Row {
    shape: u32,
    values: u32,
    capacities: u32,
    /// Expressions cannot read one of the attributes.
    unreadable: bool,
}

/// Attributes and capacities of the devices of a slice.
#[derive(Debug, Default)]
pub(crate) struct Details {
    rows: Box<[Row]>,
    texts: Box<str>,
    shapes: Box<[Arc<Shape>]>,
    value_refs: Box<[u32]>,
    values: Box<[Value]>,
    capacities: Box<[Box<[Capacity]>]>,
    /// Names that expressions know must be at least this new to read them.
    pub(crate) names: u64,
}

impl Details {
    /// The details of a slice's devices. What is out of range counts as nothing.
    pub(super) fn new(object: &ResourceSlice, shapes: &mut Shapes, programs: &Programs) -> Self {
        Builder::new(object, shapes, programs).build(object)
    }

    fn shape(&self, device: usize) -> Option<&Shape> {
        self.shapes.get(self.rows.get(device)?.shape as usize).map(|shape| &**shape)
    }

    fn value(&self, device: usize, column: usize) -> Option<&Value> {
        let reference = self.value_refs.get(self.rows.get(device)?.values as usize + column)?;
        self.values.get(*reference as usize)
    }

    /// The attribute of a device published under exactly this name.
    pub(super) fn attribute(&self, device: usize, name: &str) -> Option<Attribute<'_>> {
        let column = self.shape(device)?.column(name)?;
        Some(match self.value(device, column)? {
            Value::Int(value) => Attribute::Int(*value),
            Value::Bool(value) => Attribute::Bool(*value),
            Value::Text(span) => Attribute::Text(span.of(&self.texts)),
            Value::Version(version) => Attribute::Version(version.published.of(&self.texts)),
            Value::Ints(values) => Attribute::Ints(values),
            Value::Bools(values) => Attribute::Bools(values),
            Value::Texts(values) => Attribute::Texts(values),
            Value::Versions(versions) => Attribute::Versions(&versions.published),
            Value::Odd(odd) => Attribute::Odd(&odd.0),
        })
    }

    /// The attribute of a device that expressions know by this key.
    pub(super) fn attribute_value(&self, device: usize, key: KeyId) -> Option<AttributeValue<'_>> {
        let column = self.shape(device)?.column_of(key)?;
        let value = match self.value(device, column)? {
            Value::Odd(odd) => odd.1.as_ref()?,
            value => value,
        };
        Some(match value {
            Value::Int(value) => AttributeValue::Int(*value),
            Value::Bool(value) => AttributeValue::Bool(*value),
            Value::Text(span) => AttributeValue::String(span.of(&self.texts)),
            Value::Version(version) => AttributeValue::Version(version.meaning.as_ref().ok()?),
            Value::Ints(values) => AttributeValue::Ints(values),
            Value::Bools(values) => AttributeValue::Bools(values),
            Value::Texts(texts) => AttributeValue::Strings((&**texts).into()),
            Value::Versions(versions) => {
                AttributeValue::Versions((&**versions.meaning.as_ref().ok()?).into())
            }
            Value::Odd(_) => return None,
        })
    }

    pub(super) fn has_attribute(&self, device: usize, key: KeyId) -> bool {
        self.shape(device).is_some_and(|shape| shape.column_of(key).is_some())
    }

    /// The keys of a device's attributes, each once.
    pub(super) fn attribute_keys(&self, device: usize) -> Vec<KeyId> {
        let shape = self.shape(device);
        shape.map_or_else(Vec::new, |shape| shape.keys.iter().map(|(key, _)| *key).collect())
    }

    /// Why expressions cannot read a device.
    pub(super) fn problem(&self, device: usize) -> Option<String> {
        if !self.rows.get(device)?.unreadable {
            return None;
        }
        let names = &self.shape(device)?.names;
        names.iter().enumerate().find_map(|(column, name)| {
            let problem = self.value(device, column)?.problem()?;
            Some(format!("attribute {name}: {problem}"))
        })
    }

    /// How many different lists of capacities there are.
    pub(super) fn capacity_lists(&self) -> usize {
        self.capacities.len()
    }

    /// Identifies a device's capacities among those of the slice; `None` if it has none.
    pub(super) fn capacity_list(&self, device: usize) -> Option<usize> {
        self.rows.get(device).map(|row| row.capacities).filter(|list| *list != NONE).map(|list| list as usize)
    }

    /// The capacities of a device, sorted by name.
    pub(super) fn capacities(&self, device: usize) -> &[Capacity] {
        self.capacity_list(device).and_then(|list| self.capacities.get(list)).map_or(&[], |list| list)
    }

    /// The capacity of a device that expressions know by this key.
    pub(super) fn capacity(&self, device: usize, key: KeyId) -> Option<&Quantity> {
        let mut named = self.capacities(device).iter().filter(|capacity| capacity.key == key);
        let first = named.next()?;
        // The name with the domain counts.
        let found = named.find(|capacity| capacity.name.contains('/')).unwrap_or(first);
        Some(&found.value)
    }

    /// The keys of a device's capacities, each once.
    pub(super) fn capacity_keys(&self, device: usize) -> Vec<KeyId> {
        let mut keys: Vec<KeyId> = self.capacities(device).iter().map(|capacity| capacity.key).collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    }
}

struct Builder<'a, 's> {
    shapes: &'s mut Shapes,
    programs: &'s Programs,
    driver: NameId,
    texts: String,
    values: Vec<Value>,
    value_refs: Vec<u32>,
    known_values: HashMap<Field<'a>, u32, BuildHasherDefault<DefaultHasher>>,
    /// Some value cannot be read by expressions.
    unreadable: bool,
    known_shapes: Vec<Arc<Shape>>,
    /// The device before, with its shape and the position of its values: the next one mostly resembles it.
    previous: Option<(&'a Device, u32, u32)>,
    capacities: Vec<Box<[Capacity]>>,
    known_capacities: Vec<&'a BTreeMap<String, DeviceCapacity>>,
    known_keys: Vec<(&'a str, KeyId)>,
}

/// How far back a list of equal entries is searched for; devices of one kind follow each other.
pub(super) const LOOK_BACK: usize = 64;

pub(super) fn index(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(NONE)
}

/// The position of the last entry that is as wanted, if it is not too far back.
pub(super) fn recent<T>(list: &[T], wanted: impl Fn(&T) -> bool) -> Option<u32> {
    let back = list.iter().rev().take(LOOK_BACK).position(wanted)?;
    Some(index(list.len() - 1 - back))
}

impl<'a, 's> Builder<'a, 's> {
    fn new(object: &'a ResourceSlice, shapes: &'s mut Shapes, programs: &'s Programs) -> Self {
        let devices = object.spec.devices.len();
        let attributes = object.spec.devices.first().map_or(0, |device| device.attributes.len());
        Self {
            shapes,
            programs,
            driver: programs.driver(&object.spec.driver),
            texts: String::new(),
            values: Vec::new(),
            value_refs: Vec::with_capacity(devices.saturating_mul(attributes)),
            known_values: HashMap::with_capacity_and_hasher(devices, BuildHasherDefault::default()),
            unreadable: false,
            known_shapes: Vec::new(),
            previous: None,
            capacities: Vec::new(),
            known_capacities: Vec::new(),
            known_keys: Vec::new(),
        }
    }

    fn build(mut self, object: &'a ResourceSlice) -> Details {
        Details {
            rows: object.spec.devices.iter().map(|device| self.row(device)).collect(),
            texts: self.texts.into(),
            shapes: self.known_shapes.into(),
            value_refs: self.value_refs.into(),
            values: self.values.into(),
            capacities: self.capacities.into(),
            names: self.programs.age(),
        }
    }

    fn row(&mut self, device: &'a Device) -> Row {
        let values = index(self.value_refs.len());
        let like = self.previous.filter(|(previous, ..)| {
            previous.attributes.len() == device.attributes.len()
                && previous.attributes.keys().eq(device.attributes.keys())
        });
        let shape = if let Some((previous, shape, first)) = like {
            for ((attribute, before), column) in
                device.attributes.values().zip(previous.attributes.values()).zip(first..)
            {
                let known = self.value_refs.get(column as usize).filter(|_| attribute == before).copied();
                let reference = known.unwrap_or_else(|| self.value(attribute));
                self.value_refs.push(reference);
            }
            shape
        } else {
            for attribute in device.attributes.values() {
                let reference = self.value(attribute);
                self.value_refs.push(reference);
            }
            self.shape(&device.attributes)
        };
        self.previous = Some((device, shape, values));
        let own = self.value_refs.get(values as usize..).unwrap_or_default();
        let is_unreadable = |reference: &u32| {
            self.values.get(*reference as usize).is_some_and(|value| value.problem().is_some())
        };
        Row {
            unreadable: self.unreadable && own.iter().any(is_unreadable),
            shape,
            values,
            capacities: self.capacity_list(device),
        }
    }

    fn shape(&mut self, attributes: &BTreeMap<String, DeviceAttribute>) -> u32 {
        let same = |shape: &Arc<Shape>| {
            shape.names.len() == attributes.len()
                && shape.names.iter().zip(attributes.keys()).all(|(known, name)| **known == **name)
        };
        recent(&self.known_shapes, same).unwrap_or_else(|| {
            let names = attributes.keys().map(|name| name.as_str().into()).collect();
            self.known_shapes.push(self.shapes.intern(self.driver, names, self.programs));
            index(self.known_shapes.len() - 1)
        })
    }

    fn value(&mut self, attribute: &'a DeviceAttribute) -> u32 {
        let mut fields = fields(attribute);
        let (first, more) = (fields.next(), fields.next());
        let single = first.filter(|_| more.is_none());
        if let Some(known) = single.and_then(|field| self.known_values.get(&field)) {
            return *known;
        }
        let value = match single {
            Some(field) => self.read(field),
            None => Value::Odd(Box::new((attribute.clone(), first.map(|field| self.read(field))))),
        };
        self.unreadable = self.unreadable || value.problem().is_some();
        let position = index(self.values.len());
        self.values.push(value);
        if let Some(field) = single {
            self.known_values.insert(field, position);
        }
        position
    }

    fn read(&mut self, field: Field<'_>) -> Value {
        let boxed = |texts: &[String]| texts.iter().map(|text| text.as_str().into()).collect();
        match field {
            Field::Int(value) => Value::Int(value),
            Field::Bool(value) => Value::Bool(value),
            Field::Text(text) => Value::Text(Span::push(text, &mut self.texts)),
            Field::Version(text) => Value::Version(Box::new(OneVersion {
                published: Span::push(text, &mut self.texts),
                meaning: Version::parse(text).map_err(Into::into),
            })),
            Field::Ints(values) => Value::Ints(values.into()),
            Field::Bools(values) => Value::Bools(values.into()),
            Field::Texts(texts) => Value::Texts(boxed(texts)),
            Field::Versions(texts) => Value::Versions(Box::new(ManyVersions {
                published: boxed(texts),
                meaning: texts.iter().map(|text| Version::parse(text).map_err(Into::into)).collect(),
            })),
        }
    }

    /// The key of a capacity.
    fn key(&mut self, name: &'a str) -> KeyId {
        if let Some((_, key)) = self.known_keys.iter().take(LOOK_BACK).find(|(known, _)| *known == name) {
            return *key;
        }
        let key = self.programs.key(self.driver, name);
        self.known_keys.push((name, key));
        key
    }

    fn capacity_list(&mut self, device: &'a Device) -> u32 {
        if device.capacity.is_empty() {
            return NONE;
        }
        if let Some(known) = recent(&self.known_capacities, |one| same_capacities(one, &device.capacity)) {
            return known;
        }
        let list = device
            .capacity
            .iter()
            .map(|(name, capacity)| Capacity {
                name: name.as_str().into(),
                key: self.key(name),
                value: capacity.value.clone(),
                nanos: amount::nanos(&capacity.value).unwrap_or(0),
                policy: capacity.request_policy.clone(),
            })
            .collect();
        self.capacities.push(list);
        self.known_capacities.push(&device.capacity);
        index(self.capacities.len() - 1)
    }
}

/// Equal also in the suffix family, which shows in results.
pub(super) fn same_quantity(a: &Quantity, b: &Quantity) -> bool {
    a == b && a.format() == b.format()
}

fn same_capacities(a: &BTreeMap<String, DeviceCapacity>, b: &BTreeMap<String, DeviceCapacity>) -> bool {
    let same_policies = |a: Option<&CapacityRequestPolicy>, b: Option<&CapacityRequestPolicy>| match (a, b) {
        (None, None) => true,
        (Some(a), Some(b)) => {
            let quantities = |policy: &CapacityRequestPolicy| {
                let range = policy.valid_range.clone().unwrap_or_default();
                [policy.default.clone(), range.min, range.max, range.step]
                    .into_iter()
                    .flatten()
                    .chain(policy.valid_values.clone().unwrap_or_default())
                    .collect::<Vec<_>>()
            };
            a == b && quantities(a).iter().zip(&quantities(b)).all(|(a, b)| same_quantity(a, b))
        }
        _ => false,
    };
    a.len() == b.len()
        && a.iter().zip(b).all(|((a_name, a), (b_name, b))| {
            a_name == b_name
                && same_quantity(&a.value, &b.value)
                && same_policies(a.request_policy.as_deref(), b.request_policy.as_deref())
        })
}
