//! A published slice in compact form. What its devices publish about themselves stands in [`Details`].
//!
//! Texts lie in one buffer, and equal consumptions and taints are stored once. Expressions read devices in this form, see
//! [`DeviceRef`]'s [`ReadDevice`].

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, OnceLock};

use dra_api::quantity::Quantity;
use dra_cel::{AttributeValue, Interner, KeyId, NameId, ReadDevice};
use jiff::Timestamp;

use super::details::{Attribute, Capacity, Details, NONE, Shapes, Span, index, recent, same_quantity};
use crate::amount::{self, Nanos};
use crate::nodes::Matcher;
use crate::objects::{Device, DeviceCounterConsumption, DeviceTaint, Node, NodeSelector, ResourceSlice};
use crate::selector::Programs;

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

/// What a device takes from one counter set.
#[derive(Clone, Debug)]
pub(crate) struct Consumption {
    pub(crate) set: Arc<str>,
    pub(crate) counters: Box<[(Arc<str>, Quantity)]>,
    pub(crate) groups: Box<[Box<str>]>,
}

impl Consumption {
    /// A consumption as published. Where names are those of `before`, they are shared.
    fn new(object: &DeviceCounterConsumption, before: Option<&Self>) -> Self {
        let shared = |known: Option<&Arc<str>>, name: &str| {
            known.filter(|known| ***known == *name).map_or_else(|| name.into(), Arc::clone)
        };
        let mut names = before.map_or(&[][..], |before| &before.counters).iter().map(|(name, _)| name);
        Self {
            set: shared(before.map(|before| &before.set), &object.counter_set),
            counters: object
                .counters
                .iter()
                .map(|(name, counter)| (shared(names.next(), name), counter.value.clone()))
                .collect(),
            groups: object.compatibility_groups.iter().map(|group| group.as_str().into()).collect(),
        }
    }
}

/// A consumption in either form.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Consumed<'a> {
    Compact(&'a Consumption),
    Published(&'a DeviceCounterConsumption),
}

impl<'a> Consumed<'a> {
    fn forms(self) -> (Option<&'a Consumption>, Option<&'a DeviceCounterConsumption>) {
        match self {
            Self::Compact(compact) => (Some(compact), None),
            Self::Published(published) => (None, Some(published)),
        }
    }

    pub(crate) fn set(self) -> &'a str {
        match self {
            Self::Compact(compact) => &compact.set,
            Self::Published(published) => &published.counter_set,
        }
    }

    /// Counters and amounts, in the order of their names.
    pub(crate) fn counters(self) -> impl Iterator<Item = (&'a str, &'a Quantity)> {
        let (compact, published) = self.forms();
        let compact =
            compact.into_iter().flat_map(|one| &one.counters).map(|(name, amount)| (&**name, amount));
        let published = published.into_iter().flat_map(|one| &one.counters);
        compact.chain(published.map(|(name, counter)| (name.as_str(), &counter.value)))
    }

    pub(crate) fn groups(self) -> impl Iterator<Item = &'a str> {
        let (compact, published) = self.forms();
        let compact = compact.into_iter().flat_map(|one| &one.groups).map(|group| &**group);
        compact.chain(published.into_iter().flat_map(|one| &one.compatibility_groups).map(String::as_str))
    }
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

#[derive(Clone, Debug)]
struct Row {
    name: Span,
    consumptions: u32,
    taints: u32,
    extra: u32,
    allow_multiple: bool,
}

/// A taint of a device: which one, and since when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tainted {
    taint: u32,
    time_added: Option<Timestamp>,
}

/// A published slice.
#[derive(Debug)]
#[allow(clippy::struct_excessive_bools, reason = "they are independent facts of the API object")]
pub(crate) struct Slice {
    pub(crate) name: Arc<str>,
    /// The driver as expressions know it.
    driver: NameId,
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
    consumptions: OnceLock<Box<[Box<[Consumption]>]>>,
    /// Different taints, without the times at which they were set: those differ much, and are nothing to an allocation.
    taints: Box<[DeviceTaint]>,
    taint_lists: Box<[Box<[Tainted]>]>,
    extras: Box<[Extra]>,
    /// Positions in the order of device names.
    by_name: Box<[u32]>,
    details: OnceLock<Details>,
    /// What consumptions and details are made from if somebody asks for them.
    source: Option<Source>,
}

#[derive(Debug)]
struct Source {
    object: Arc<ResourceSlice>,
    programs: Arc<Programs>,
}

/// A device of a slice.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeviceRef<'a> {
    slice: &'a Slice,
    row: &'a Row,
    position: usize,
}

impl Slice {
    /// Brings a slice into compact form.
    pub(crate) fn new(object: &ResourceSlice, shapes: &mut Shapes, programs: &Programs) -> Self {
        let details = OnceLock::from(Details::new(object, shapes, programs));
        Self { details, ..Builder::default().build(object, programs) }
    }

    /// Brings a slice into compact form, except that attributes, capacities and consumptions stay as they are until
    /// somebody asks for one of them.
    pub(crate) fn undetailed(object: &Arc<ResourceSlice>, programs: &Arc<Programs>) -> Self {
        let source = Source { object: object.clone(), programs: programs.clone() };
        let builder = Builder { undetailed: true, ..Builder::default() };
        Self { source: Some(source), ..builder.build(object, programs) }
    }

    /// Attributes and capacities.
    pub(crate) fn details(&self) -> &Details {
        self.details.get_or_init(|| match &self.source {
            Some(source) => Details::new(&source.object, &mut Shapes::default(), &source.programs),
            None => Details::default(),
        })
    }

    /// At most so many different capacity lists are there.
    pub(crate) fn most_capacity_lists(&self) -> usize {
        // To count them would mean to make the details.
        self.details.get().map_or(self.len(), Details::capacity_lists)
    }

    pub(crate) fn has_details(&self) -> bool {
        self.details.get().is_some()
    }

    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(crate) fn device(&self, position: usize) -> Option<DeviceRef<'_>> {
        self.rows.get(position).map(|row| DeviceRef { slice: self, row, position })
    }

    pub(crate) fn devices(&self) -> impl Iterator<Item = DeviceRef<'_>> {
        self.rows.iter().enumerate().map(|(position, row)| DeviceRef { slice: self, row, position })
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
    }

    /// The first and the last name in bytewise order; `None` without devices.
    pub(crate) fn names(&self) -> Option<(&str, &str)> {
        Some((self.name_at(*self.by_name.first()?), self.name_at(*self.by_name.last()?)))
    }

    /// The first name that two devices have.
    pub(crate) fn duplicate_name(&self) -> Option<&str> {
        let same = |[a, b]: &&[u32; 2]| self.name_at(*a) == self.name_at(*b);
        self.by_name.array_windows().find(same).map(|[name, _]| self.name_at(*name))
    }

    /// Positions in the order of device names.
    pub(crate) fn by_name(&self) -> &[u32] {
        &self.by_name
    }

    /// Whether a device has this name.
    pub(crate) fn contains(&self, name: &str) -> bool {
        self.by_name.binary_search_by(|position| self.name_at(*position).cmp(name)).is_ok()
    }

    fn name_at(&self, position: u32) -> &str {
        self.rows.get(position as usize).map_or("", |row| row.name.of(&self.texts))
    }

    /// Whether any device has a taint with this effect.
    pub(crate) fn has_taint(&self, effect: &str) -> bool {
        self.taints.iter().any(|taint| taint.effect == effect)
    }

    /// How many different taints the slice publishes.
    pub(crate) fn taint_count(&self) -> usize {
        self.taints.len()
    }

    /// The consumption lists that devices refer to by [`DeviceRef::consumption_list`].
    fn consumption_lists(&self) -> &[Box<[Consumption]>] {
        self.consumptions.get_or_init(|| {
            let devices = self.source.iter().flat_map(|source| &source.object.spec.devices);
            let list = |device: &Device| -> Box<[Consumption]> {
                device.consumes_counters.iter().map(|one| Consumption::new(one, None)).collect()
            };
            devices.map(list).collect()
        })
    }

    /// How many lists of consumptions there are.
    pub(crate) fn consumption_list_count(&self) -> usize {
        self.consumptions.get().map_or(self.len(), |lists| lists.len())
    }

    /// A list of consumptions.
    pub(crate) fn consumed(&self, list: usize) -> impl Iterator<Item = Consumed<'_>> {
        let (compact, source) = match self.consumptions.get() {
            Some(lists) => (lists.get(list), None),
            None => (None, self.source.as_ref()),
        };
        let published = source.and_then(|source| source.object.spec.devices.get(list));
        let compact = compact.into_iter().flatten().map(Consumed::Compact);
        compact.chain(published.into_iter().flat_map(|one| &one.consumes_counters).map(Consumed::Published))
    }
}

impl<'a> DeviceRef<'a> {
    pub(crate) fn name(self) -> &'a str {
        self.row.name.of(&self.slice.texts)
    }

    pub(crate) fn slice(self) -> &'a Slice {
        self.slice
    }

    /// Whether the device is published as shareable.
    pub(crate) fn allow_multiple(self) -> bool {
        self.row.allow_multiple
    }

    /// The attribute published under exactly this name.
    pub(crate) fn attribute(self, name: &str) -> Option<Attribute<'a>> {
        self.slice.details().attribute(self.position, name)
    }

    /// Identifies the device's capacities within the slice; `None` if it has none.
    pub(crate) fn capacity_list(self) -> Option<usize> {
        self.slice.details().capacity_list(self.position)
    }

    /// Capacities, sorted by name.
    pub(crate) fn capacities(self) -> &'a [Capacity] {
        self.slice.details().capacities(self.position)
    }

    /// Identifies the device's consumptions within the slice; `None` if it has none.
    pub(crate) fn consumption_list(self) -> Option<usize> {
        (self.row.consumptions != NONE).then_some(self.row.consumptions as usize)
    }

    pub(crate) fn consumptions(self) -> &'a [Consumption] {
        self.slice.consumption_lists().get(self.row.consumptions as usize).map_or(&[], |list| list)
    }

    /// Taints that the slice itself publishes, without their times, with their positions in the slice's list of different
    /// taints.
    pub(crate) fn taints(self) -> impl Iterator<Item = (usize, &'a DeviceTaint)> {
        self.tainted().iter().filter_map(move |tainted| {
            let position = tainted.taint as usize;
            Some((position, self.slice.taints.get(position)?))
        })
    }

    /// Taints that the slice itself publishes, whole.
    pub(crate) fn dated_taints(self) -> impl Iterator<Item = DeviceTaint> {
        self.tainted().iter().filter_map(move |Tainted { taint, time_added }| {
            let taint = self.slice.taints.get(*taint as usize)?;
            Some(DeviceTaint { time_added: *time_added, ..taint.clone() })
        })
    }

    fn tainted(self) -> &'a [Tainted] {
        self.slice.taint_lists.get(self.row.taints as usize).map_or(&[], |list| list)
    }

    pub(crate) fn extra(self) -> Option<&'a Extra> {
        self.slice.extras.get(self.row.extra as usize)
    }

    /// Whether the node can use the device, by the device's own word.
    pub(crate) fn includes(self, node: &Node) -> Result<bool, Arc<str>> {
        self.extra().map_or(Ok(false), |extra| extra.scope.includes(node))
    }
}

impl ReadDevice for DeviceRef<'_> {
    fn driver(&self) -> NameId {
        self.slice.driver
    }

    fn allows_multiple_allocations(&self) -> bool {
        self.row.allow_multiple
    }

    fn conversion_error(&self) -> Option<Cow<'_, str>> {
        self.slice.details().problem(self.position).map(Cow::Owned)
    }

    fn attribute<'a>(&'a self, key: KeyId, _: &'a Interner) -> Option<AttributeValue<'a>> {
        self.slice.details().attribute_value(self.position, key)
    }

    fn has_attribute(&self, key: KeyId) -> bool {
        self.slice.details().has_attribute(self.position, key)
    }

    fn attribute_keys(&self) -> Vec<KeyId> {
        self.slice.details().attribute_keys(self.position)
    }

    fn capacity(&self, key: KeyId) -> Option<&Quantity> {
        self.slice.details().capacity(self.position, key)
    }

    fn capacity_keys(&self) -> Vec<KeyId> {
        self.slice.details().capacity_keys(self.position)
    }
}

#[derive(Default)]
struct Builder<'a> {
    /// Consumptions are left out; a device's list has the number of the device.
    undetailed: bool,
    texts: String,
    consumptions: Vec<Box<[Consumption]>>,
    /// With a hash, because partitions differ in little and late.
    known_consumptions: Vec<(u64, &'a [DeviceCounterConsumption])>,
    taints: Vec<DeviceTaint>,
    /// By key, value and effect.
    known_taints: BTreeMap<[&'a str; 3], u32>,
    taint_lists: Vec<Box<[Tainted]>>,
    extras: Vec<Extra>,
    out_of_range: Option<Arc<str>>,
}

impl<'a> Builder<'a> {
    fn build(mut self, object: &'a ResourceSlice, programs: &Programs) -> Slice {
        let spec = &object.spec;
        let rows: Box<[Row]> =
            spec.devices.iter().zip(0..).map(|(device, at)| self.row(device, at)).collect();
        let mut by_name: Vec<_> = spec.devices.iter().map(|device| device.name.as_str()).zip(0..).collect();
        by_name.sort_unstable();
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
            driver: programs.driver(&spec.driver),
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
            consumptions: if self.undetailed {
                OnceLock::new()
            } else {
                OnceLock::from(Box::from(self.consumptions))
            },
            taints: self.taints.into(),
            taint_lists: self.taint_lists.into(),
            extras: self.extras.into(),
            by_name: by_name.into_iter().map(|(_, position)| position).collect(),
            details: OnceLock::new(),
            source: None,
        }
    }

    fn row(&mut self, device: &'a Device, position: u32) -> Row {
        for (name, capacity) in &device.capacity {
            self.nanos(&capacity.value, || format!("capacity {name} of device {}", device.name));
        }
        Row {
            name: Span::push(&device.name, &mut self.texts),
            consumptions: self.consumption_list(device, position),
            taints: self.taint_list(device),
            extra: self.extra(device),
            allow_multiple: device.allow_multiple_allocations,
        }
    }

    fn nanos(&mut self, quantity: &Quantity, what: impl Fn() -> String) -> Nanos {
        amount::nanos(quantity).unwrap_or_else(|| {
            self.out_of_range.get_or_insert_with(|| format!("{} is out of range: {quantity}", what()).into());
            0
        })
    }

    fn consumption_list(&mut self, device: &'a Device, position: u32) -> u32 {
        if device.consumes_counters.is_empty() {
            return NONE;
        }
        for (name, counter) in device.consumes_counters.iter().flat_map(|consumption| &consumption.counters) {
            self.nanos(&counter.value, || format!("consumption of counter {name} by device {}", device.name));
        }
        if self.undetailed {
            return position;
        }
        let hash = hash_of(&device.consumes_counters);
        let same = |(known, one): &(u64, &[DeviceCounterConsumption])| {
            *known == hash && same_consumptions(one, &device.consumes_counters)
        };
        if let Some(known) = recent(&self.known_consumptions, same) {
            return known;
        }
        // Most sets and counters bear the names of those of the device before.
        let mut before = self.consumptions.last().map_or(&[][..], |list| list).iter();
        let consume = |consumption| Consumption::new(consumption, before.next());
        let list = device.consumes_counters.iter().map(consume).collect();
        self.consumptions.push(list);
        self.known_consumptions.push((hash, &device.consumes_counters));
        index(self.consumptions.len() - 1)
    }

    fn taint_list(&mut self, device: &'a Device) -> u32 {
        if device.taints.is_empty() {
            return NONE;
        }
        let tainted =
            |taint: &'a DeviceTaint| Tainted { taint: self.taint(taint), time_added: taint.time_added };
        let list: Box<[Tainted]> = device.taints.iter().map(tainted).collect();
        if let Some(known) = recent(&self.taint_lists, |one| *one == list) {
            return known;
        }
        self.taint_lists.push(list);
        index(self.taint_lists.len() - 1)
    }

    fn taint(&mut self, taint: &'a DeviceTaint) -> u32 {
        let known = self.known_taints.entry([&taint.key, &taint.value, &taint.effect]);
        *known.or_insert_with(|| {
            self.taints.push(DeviceTaint {
                key: taint.key.clone(),
                value: taint.value.clone(),
                effect: taint.effect.clone(),
                time_added: None,
            });
            index(self.taints.len() - 1)
        })
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

fn hash_of(consumptions: &[DeviceCounterConsumption]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for consumption in consumptions {
        for (name, counter) in &consumption.counters {
            // The last character often is a number and all that tells two names apart.
            (name.as_bytes().last(), counter.value.as_i64()).hash(&mut hasher);
        }
    }
    hasher.finish()
}

fn same_consumptions(a: &[DeviceCounterConsumption], b: &[DeviceCounterConsumption]) -> bool {
    a == b
        && a.iter().zip(b).all(|(a, b)| {
            a.counters.values().zip(b.counters.values()).all(|(a, b)| same_quantity(&a.value, &b.value))
        })
}
