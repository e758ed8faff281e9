//! A published slice in compact form.
//!
//! A device of a real driver has a dozen attributes, and decoded it takes several kilobytes. Here all texts of a slice
//! lie in one buffer, equal values, capacities, consumptions and taints are stored once per slice, and the list of
//! attribute names (the *shape*) is shared by all devices in the cluster that have the same names.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use dra_api::quantity::Quantity;

use crate::amount::{self, Nanos};
use crate::nodes::Matcher;
use crate::objects::{
    CapacityRequestPolicy, Device, DeviceAttribute, DeviceCapacity, DeviceCounterConsumption, DeviceTaint,
    Node, NodeSelector, ResourceSlice,
};
use crate::selector::Prepared;

/// A place in a slice's text buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    start: u32,
    end: u32,
}

/// The sorted attribute names of a device.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Shape {
    names: Box<[Box<str>]>,
}

impl Shape {
    fn column(&self, name: &str) -> Option<usize> {
        self.names.binary_search_by(|one| (**one).cmp(name)).ok()
    }
}

/// Shapes in use, so that equal ones are stored once.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shapes {
    known: imbl::OrdSet<Arc<Shape>>,
    sweep_at: usize,
}

impl Shapes {
    fn intern(&mut self, names: Box<[Box<str>]>) -> Arc<Shape> {
        let shape = Arc::new(Shape { names });
        if let Some(known) = self.known.get(&shape) {
            return known.clone();
        }
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
    Version(Span),
    Ints(Box<[i64]>),
    Bools(Box<[bool]>),
    Texts(Box<[Box<str>]>),
    Versions(Box<[Box<str>]>),
    /// No known field, or several.
    Odd(Box<DeviceAttribute>),
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

/// Which nodes can use a slice or a device.
#[derive(Clone, Debug)]
pub(crate) enum Scope {
    /// The node of this name.
    Node(Arc<str>),
    /// All nodes.
    All,
    /// Selected nodes, or why the selector is malformed.
    Selected(Result<Arc<Matcher>, Arc<str>>),
    /// Each device says so itself.
    PerDevice,
    /// Nothing that is known.
    Unknown,
}

impl Scope {
    fn of(
        node_name: Option<&str>,
        all_nodes: Option<bool>,
        selector: Option<&NodeSelector>,
        per_device: Option<bool>,
    ) -> Self {
        match (node_name, all_nodes, selector, per_device) {
            (Some(name), ..) if !name.is_empty() => Self::Node(name.into()),
            (_, Some(true), ..) => Self::All,
            (.., Some(selector), _) => {
                Self::Selected(Matcher::parse(selector).map(Arc::new).map_err(std::convert::Into::into))
            }
            (.., Some(true)) => Self::PerDevice,
            _ => Self::Unknown,
        }
    }

    /// Whether the node is in scope. [`Scope::PerDevice`] is not decided here.
    ///
    /// # Errors
    ///
    /// The selector is malformed.
    pub(crate) fn includes(&self, node: &Node) -> Result<bool, Arc<str>> {
        match self {
            Self::Node(name) => Ok(**name == *node.metadata.name),
            Self::All => Ok(true),
            Self::Selected(Ok(matcher)) => Ok(matcher.matches(node)),
            Self::Selected(Err(error)) => Err(error.clone()),
            Self::PerDevice | Self::Unknown => Ok(false),
        }
    }
}

/// One capacity of a device.
#[derive(Clone, Debug)]
pub(crate) struct Capacity {
    pub(crate) name: Box<str>,
    pub(crate) value: Quantity,
    pub(crate) nanos: Nanos,
    pub(crate) policy: Option<Box<CapacityRequestPolicy>>,
}

/// What a device takes from one counter set.
#[derive(Clone, Debug)]
pub(crate) struct Consumption {
    pub(crate) set: Box<str>,
    pub(crate) counters: Box<[(Box<str>, Nanos)]>,
    pub(crate) groups: Box<[Box<str>]>,
    /// The same amounts as published, for summaries.
    pub(crate) published: Box<[Quantity]>,
}

/// A published counter set.
#[derive(Clone, Debug)]
pub(crate) struct CounterSet {
    pub(crate) name: Arc<str>,
    pub(crate) counters: Box<[(Arc<str>, Nanos, Quantity)]>,
}

/// What few devices have.
#[derive(Clone, Debug)]
pub(crate) struct Extra {
    pub(crate) scope: Scope,
    /// `nodeName` was published, if only as an empty text.
    pub(crate) has_node_name: bool,
    pub(crate) node_selector: Option<NodeSelector>,
    pub(crate) binds_to_node: bool,
    pub(crate) binding_conditions: Option<Box<[String]>>,
    pub(crate) binding_failure_conditions: Option<Box<[String]>>,
}

/// Marks the absence of an entry in a side table.
const NONE: u32 = u32::MAX;

#[derive(Clone, Debug)]
struct Row {
    name: Span,
    shape: u32,
    values: u32,
    capacities: u32,
    consumptions: u32,
    taints: u32,
    extra: u32,
    allow_multiple: bool,
}

/// A published slice.
#[derive(Debug)]
#[allow(clippy::struct_excessive_bools, reason = "they are independent facts of the API object")]
pub(crate) struct Slice {
    pub(crate) name: Arc<str>,
    pub(crate) driver: Arc<str>,
    pub(crate) generation: i64,
    /// `resourceSliceCount`.
    pub(crate) announced: i64,
    pub(crate) scope: Scope,
    pub(crate) node_name: Option<Arc<str>>,
    pub(crate) node_selector: Option<NodeSelector>,
    /// `perDeviceNodeSelection` is true.
    pub(crate) per_device: bool,
    /// `perDeviceNodeSelection` is present.
    pub(crate) has_per_device: bool,
    pub(crate) skip_node_operations: Box<[String]>,
    pub(crate) partition_type_attribute: Option<Arc<str>>,
    pub(crate) counter_sets: Box<[CounterSet]>,
    /// A quantity is too large to compute with; the pool cannot be used.
    pub(crate) out_of_range: Option<Arc<str>>,
    /// Some consumption names a compatibility group.
    pub(crate) uses_groups: bool,
    /// Some device has a list of binding conditions, possibly an empty one.
    pub(crate) has_binding_conditions: bool,
    texts: Box<str>,
    rows: Box<[Row]>,
    shapes: Box<[Arc<Shape>]>,
    value_refs: Box<[u32]>,
    values: Box<[Value]>,
    capacities: Box<[Box<[Capacity]>]>,
    consumptions: Box<[Box<[Consumption]>]>,
    taints: Box<[DeviceTaint]>,
    taint_lists: Box<[Box<[u32]>]>,
    extras: Box<[Extra]>,
    /// Positions in the order of device names.
    by_name: Box<[u32]>,
    /// The devices as expressions read them, once somebody has asked.
    pub(crate) prepared: OnceLock<Prepared>,
}

/// A device of a slice.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeviceRef<'a> {
    slice: &'a Slice,
    row: &'a Row,
}

impl Slice {
    /// Brings a slice into compact form.
    pub(crate) fn new(object: &ResourceSlice, shapes: &mut Shapes) -> Self {
        Builder::default().build(object, shapes)
    }

    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(crate) fn device(&self, position: usize) -> Option<DeviceRef<'_>> {
        self.rows.get(position).map(|row| DeviceRef { slice: self, row })
    }

    pub(crate) fn devices(&self) -> impl Iterator<Item = DeviceRef<'_>> {
        self.rows.iter().map(|row| DeviceRef { slice: self, row })
    }

    /// Positions of the devices with this name; more than one only in invalid slices.
    pub(crate) fn find(&self, name: &str) -> impl Iterator<Item = usize> {
        let first = self.by_name.partition_point(|position| self.name_at(*position) < name);
        self.by_name
            .get(first..)
            .unwrap_or_default()
            .iter()
            .take_while(move |position| self.name_at(**position) == name)
            .map(|position| *position as usize)
            .collect::<Vec<_>>()
            .into_iter()
    }

    /// Whether a device has this name.
    pub(crate) fn contains(&self, name: &str) -> bool {
        self.by_name.binary_search_by(|position| self.name_at(*position).cmp(name)).is_ok()
    }

    fn name_at(&self, position: u32) -> &str {
        self.rows.get(position as usize).map_or("", |row| self.text(row.name))
    }

    fn text(&self, span: Span) -> &str {
        self.texts.get(span.start as usize..span.end as usize).unwrap_or_default()
    }

    /// Whether any device has a taint with this effect.
    pub(crate) fn has_taint(&self, effect: &str) -> bool {
        self.taints.iter().any(|taint| taint.effect == effect)
    }

    /// How many different taints the slice publishes.
    pub(crate) fn taint_count(&self) -> usize {
        self.taints.len()
    }

    /// The capacity lists that devices refer to by [`DeviceRef::capacity_list`].
    pub(crate) fn capacity_lists(&self) -> &[Box<[Capacity]>] {
        &self.capacities
    }

    /// The consumption lists that devices refer to by [`DeviceRef::consumption_list`].
    pub(crate) fn consumption_lists(&self) -> &[Box<[Consumption]>] {
        &self.consumptions
    }
}

impl<'a> DeviceRef<'a> {
    pub(crate) fn name(self) -> &'a str {
        self.slice.text(self.row.name)
    }

    /// Whether the device is published as shareable.
    pub(crate) fn allow_multiple(self) -> bool {
        self.row.allow_multiple
    }

    pub(crate) fn attributes(self) -> impl Iterator<Item = (&'a str, Attribute<'a>)> {
        let names = self.slice.shapes.get(self.row.shape as usize).map_or(&[][..], |shape| &shape.names);
        names.iter().enumerate().filter_map(move |(column, name)| Some((&**name, self.value(column)?)))
    }

    /// The attribute published under exactly this name.
    pub(crate) fn attribute(self, name: &str) -> Option<Attribute<'a>> {
        let column = self.slice.shapes.get(self.row.shape as usize)?.column(name)?;
        self.value(column)
    }

    fn value(self, column: usize) -> Option<Attribute<'a>> {
        let slice = self.slice;
        let reference = slice.value_refs.get(self.row.values as usize + column)?;
        Some(match slice.values.get(*reference as usize)? {
            Value::Int(value) => Attribute::Int(*value),
            Value::Bool(value) => Attribute::Bool(*value),
            Value::Text(span) => Attribute::Text(slice.text(*span)),
            Value::Version(span) => Attribute::Version(slice.text(*span)),
            Value::Ints(values) => Attribute::Ints(values),
            Value::Bools(values) => Attribute::Bools(values),
            Value::Texts(values) => Attribute::Texts(values),
            Value::Versions(values) => Attribute::Versions(values),
            Value::Odd(attribute) => Attribute::Odd(attribute),
        })
    }

    /// Identifies the device's capacities within the slice; `None` if it has none.
    pub(crate) fn capacity_list(self) -> Option<usize> {
        (self.row.capacities != NONE).then_some(self.row.capacities as usize)
    }

    /// Capacities, sorted by name.
    pub(crate) fn capacities(self) -> &'a [Capacity] {
        self.slice.capacities.get(self.row.capacities as usize).map_or(&[], |list| list)
    }

    /// Identifies the device's consumptions within the slice; `None` if it has none.
    pub(crate) fn consumption_list(self) -> Option<usize> {
        (self.row.consumptions != NONE).then_some(self.row.consumptions as usize)
    }

    pub(crate) fn consumptions(self) -> &'a [Consumption] {
        self.slice.consumptions.get(self.row.consumptions as usize).map_or(&[], |list| list)
    }

    /// Taints that the slice itself publishes, with their positions in the slice's list of different taints.
    pub(crate) fn taints(self) -> impl Iterator<Item = (usize, &'a DeviceTaint)> {
        let list: &'a [u32] = self.slice.taint_lists.get(self.row.taints as usize).map_or(&[], |list| list);
        list.iter().filter_map(move |position| {
            let position = *position as usize;
            Some((position, self.slice.taints.get(position)?))
        })
    }

    pub(crate) fn extra(self) -> Option<&'a Extra> {
        self.slice.extras.get(self.row.extra as usize)
    }

    /// Whether the node can use the device, by the device's own word.
    pub(crate) fn includes(self, node: &Node) -> Result<bool, Arc<str>> {
        self.extra().map_or(Ok(false), |extra| extra.scope.includes(node))
    }
}

#[derive(Default)]
struct Builder<'a> {
    texts: String,
    values: Vec<Value>,
    value_refs: Vec<u32>,
    known_values: BTreeMap<&'a DeviceAttribute, u32>,
    shapes: Vec<Arc<Shape>>,
    capacities: Vec<Box<[Capacity]>>,
    known_capacities: Vec<&'a BTreeMap<String, DeviceCapacity>>,
    consumptions: Vec<Box<[Consumption]>>,
    known_consumptions: Vec<&'a [DeviceCounterConsumption]>,
    taints: Vec<DeviceTaint>,
    known_taints: BTreeMap<&'a DeviceTaint, u32>,
    taint_lists: Vec<Box<[u32]>>,
    extras: Vec<Extra>,
    out_of_range: Option<Arc<str>>,
}

/// How far back a list of equal entries is searched for; devices of one kind follow each other.
const LOOK_BACK: usize = 64;

fn index(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(NONE)
}

impl<'a> Builder<'a> {
    fn build(mut self, object: &'a ResourceSlice, shapes: &mut Shapes) -> Slice {
        let spec = &object.spec;
        let rows: Box<[Row]> = spec.devices.iter().map(|device| self.row(device, shapes)).collect();
        let mut by_name: Box<[u32]> = (0..index(rows.len())).collect();
        by_name
            .sort_by_key(|position| spec.devices.get(*position as usize).map(|device| device.name.as_str()));
        let counter_sets = spec
            .shared_counters
            .iter()
            .map(|set| CounterSet {
                name: set.name.as_str().into(),
                counters: set
                    .counters
                    .iter()
                    .map(|(name, counter)| {
                        let nanos =
                            self.nanos(&counter.value, || format!("counter {name} of set {}", set.name));
                        (name.as_str().into(), nanos, counter.value.clone())
                    })
                    .collect(),
            })
            .collect();
        let uses_groups = spec
            .devices
            .iter()
            .flat_map(|device| &device.consumes_counters)
            .any(|consumption| !consumption.compatibility_groups.is_empty());
        Slice {
            name: object.metadata.name.as_str().into(),
            driver: spec.driver.as_str().into(),
            generation: spec.pool.generation,
            announced: spec.pool.resource_slice_count,
            scope: Scope::of(
                spec.node_name.as_deref(),
                spec.all_nodes,
                spec.node_selector.as_ref(),
                spec.per_device_node_selection,
            ),
            node_name: spec.node_name.as_deref().map(Into::into),
            node_selector: spec.node_selector.clone(),
            per_device: spec.per_device_node_selection == Some(true),
            has_per_device: spec.per_device_node_selection.is_some(),
            skip_node_operations: spec.skip_node_operations.clone().into(),
            partition_type_attribute: spec.partition_type_attribute.as_deref().map(Into::into),
            counter_sets,
            uses_groups,
            has_binding_conditions: spec.devices.iter().any(|device| device.binding_conditions.is_some()),
            out_of_range: self.out_of_range,
            texts: self.texts.into(),
            rows,
            shapes: self.shapes.into(),
            value_refs: self.value_refs.into(),
            values: self.values.into(),
            capacities: self.capacities.into(),
            consumptions: self.consumptions.into(),
            taints: self.taints.into(),
            taint_lists: self.taint_lists.into(),
            extras: self.extras.into(),
            by_name,
            prepared: OnceLock::new(),
        }
    }

    fn row(&mut self, device: &'a Device, shapes: &mut Shapes) -> Row {
        let values = index(self.value_refs.len());
        for attribute in device.attributes.values() {
            let reference = self.value(attribute);
            self.value_refs.push(reference);
        }
        Row {
            name: self.span(&device.name),
            shape: self.shape(&device.attributes, shapes),
            values,
            capacities: self.capacity_list(device),
            consumptions: self.consumption_list(device),
            taints: self.taint_list(device),
            extra: self.extra(device),
            allow_multiple: device.allow_multiple_allocations,
        }
    }

    fn span(&mut self, text: &str) -> Span {
        let start = index(self.texts.len());
        self.texts.push_str(text);
        Span { start, end: index(self.texts.len()) }
    }

    fn shape(&mut self, attributes: &BTreeMap<String, DeviceAttribute>, shapes: &mut Shapes) -> u32 {
        let same = |shape: &Arc<Shape>| {
            shape.names.len() == attributes.len()
                && shape.names.iter().zip(attributes.keys()).all(|(known, name)| **known == **name)
        };
        if let Some(known) = self.shapes.iter().position(same) {
            return index(known);
        }
        self.shapes.push(shapes.intern(attributes.keys().map(|name| name.as_str().into()).collect()));
        index(self.shapes.len() - 1)
    }

    fn value(&mut self, attribute: &'a DeviceAttribute) -> u32 {
        if let Some(known) = self.known_values.get(attribute) {
            return *known;
        }
        let boxed = |texts: &[String]| texts.iter().map(|text| text.as_str().into()).collect();
        let value = match attribute {
            DeviceAttribute {
                int: Some(value),
                bool: None,
                string: None,
                version: None,
                ints: None,
                bools: None,
                strings: None,
                versions: None,
            } => Value::Int(*value),
            DeviceAttribute {
                int: None,
                bool: Some(value),
                string: None,
                version: None,
                ints: None,
                bools: None,
                strings: None,
                versions: None,
            } => Value::Bool(*value),
            DeviceAttribute {
                int: None,
                bool: None,
                string: Some(text),
                version: None,
                ints: None,
                bools: None,
                strings: None,
                versions: None,
            } => Value::Text(self.span(text)),
            DeviceAttribute {
                int: None,
                bool: None,
                string: None,
                version: Some(text),
                ints: None,
                bools: None,
                strings: None,
                versions: None,
            } => Value::Version(self.span(text)),
            DeviceAttribute {
                int: None,
                bool: None,
                string: None,
                version: None,
                ints: Some(values),
                bools: None,
                strings: None,
                versions: None,
            } => Value::Ints(values.as_slice().into()),
            DeviceAttribute {
                int: None,
                bool: None,
                string: None,
                version: None,
                ints: None,
                bools: Some(values),
                strings: None,
                versions: None,
            } => Value::Bools(values.as_slice().into()),
            DeviceAttribute {
                int: None,
                bool: None,
                string: None,
                version: None,
                ints: None,
                bools: None,
                strings: Some(texts),
                versions: None,
            } => Value::Texts(boxed(texts)),
            DeviceAttribute {
                int: None,
                bool: None,
                string: None,
                version: None,
                ints: None,
                bools: None,
                strings: None,
                versions: Some(texts),
            } => Value::Versions(boxed(texts)),
            odd => Value::Odd(Box::new(odd.clone())),
        };
        let position = index(self.values.len());
        self.values.push(value);
        self.known_values.insert(attribute, position);
        position
    }

    fn nanos(&mut self, quantity: &Quantity, what: impl Fn() -> String) -> Nanos {
        amount::nanos(quantity).unwrap_or_else(|| {
            self.out_of_range.get_or_insert_with(|| format!("{} is out of range: {quantity}", what()).into());
            0
        })
    }

    fn capacity_list(&mut self, device: &'a Device) -> u32 {
        if device.capacity.is_empty() {
            return NONE;
        }
        let since = self.known_capacities.len().saturating_sub(LOOK_BACK);
        let recent = self.known_capacities.get(since..).unwrap_or_default();
        if let Some(known) = recent.iter().position(|one| same_capacities(one, &device.capacity)) {
            return index(since + known);
        }
        let list = device
            .capacity
            .iter()
            .map(|(name, capacity)| Capacity {
                name: name.as_str().into(),
                value: capacity.value.clone(),
                nanos: self.nanos(&capacity.value, || format!("capacity {name} of device {}", device.name)),
                policy: capacity.request_policy.clone().map(Box::new),
            })
            .collect();
        self.capacities.push(list);
        self.known_capacities.push(&device.capacity);
        index(self.capacities.len() - 1)
    }

    fn consumption_list(&mut self, device: &'a Device) -> u32 {
        if device.consumes_counters.is_empty() {
            return NONE;
        }
        let since = self.known_consumptions.len().saturating_sub(LOOK_BACK);
        let recent = self.known_consumptions.get(since..).unwrap_or_default();
        if let Some(known) = recent.iter().position(|one| same_consumptions(one, &device.consumes_counters)) {
            return index(since + known);
        }
        let list = device
            .consumes_counters
            .iter()
            .map(|consumption| Consumption {
                set: consumption.counter_set.as_str().into(),
                counters: consumption
                    .counters
                    .iter()
                    .map(|(name, counter)| {
                        let what = || format!("consumption of counter {name} by device {}", device.name);
                        (name.as_str().into(), self.nanos(&counter.value, what))
                    })
                    .collect(),
                groups: consumption.compatibility_groups.iter().map(|group| group.as_str().into()).collect(),
                published: consumption.counters.values().map(|counter| counter.value.clone()).collect(),
            })
            .collect();
        self.consumptions.push(list);
        self.known_consumptions.push(&device.consumes_counters);
        index(self.consumptions.len() - 1)
    }

    fn taint_list(&mut self, device: &'a Device) -> u32 {
        if device.taints.is_empty() {
            return NONE;
        }
        let list: Box<[u32]> = device.taints.iter().map(|taint| self.taint(taint)).collect();
        let since = self.taint_lists.len().saturating_sub(LOOK_BACK);
        let recent = self.taint_lists.get(since..).unwrap_or_default();
        if let Some(known) = recent.iter().position(|one| *one == list) {
            return index(since + known);
        }
        self.taint_lists.push(list);
        index(self.taint_lists.len() - 1)
    }

    fn taint(&mut self, taint: &'a DeviceTaint) -> u32 {
        if let Some(known) = self.known_taints.get(taint) {
            return *known;
        }
        let position = index(self.taints.len());
        self.taints.push(taint.clone());
        self.known_taints.insert(taint, position);
        position
    }

    fn extra(&mut self, device: &'a Device) -> u32 {
        let plain = device.node_name.is_none()
            && device.node_selector.is_none()
            && device.all_nodes.is_none()
            && !device.binds_to_node
            && device.binding_conditions.is_none()
            && device.binding_failure_conditions.is_none();
        if plain {
            return NONE;
        }
        self.extras.push(Extra {
            scope: Scope::of(
                device.node_name.as_deref(),
                device.all_nodes,
                device.node_selector.as_ref(),
                None,
            ),
            has_node_name: device.node_name.is_some(),
            node_selector: device.node_selector.clone(),
            binds_to_node: device.binds_to_node,
            binding_conditions: device.binding_conditions.clone().map(Into::into),
            binding_failure_conditions: device.binding_failure_conditions.clone().map(Into::into),
        });
        index(self.extras.len() - 1)
    }
}

/// Equal also in the suffix family, which shows in results.
fn same_quantity(a: &Quantity, b: &Quantity) -> bool {
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
                && same_policies(a.request_policy.as_ref(), b.request_policy.as_ref())
        })
}

fn same_consumptions(a: &[DeviceCounterConsumption], b: &[DeviceCounterConsumption]) -> bool {
    a == b
        && a.iter().zip(b).all(|(a, b)| {
            a.counters.values().zip(b.counters.values()).all(|(a, b)| same_quantity(&a.value, &b.value))
        })
}
