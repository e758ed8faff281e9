//! Devices in the form that programs read: small, with all names interned.
//!
//! An [`Interner`] belongs to the caller (one for an inventory). Devices are built and expressions compiled
//! against it, so that a reference such as `device.attributes["gpu.acme.dev"].model` and the device's own
//! attribute are the same small number, and an evaluation looks nothing up by text.
//!
//! Attribute and capacity names without a domain belong to the driver's domain; with one, the name is cut at the first
//! slash (`k8s.io/dynamic-resource-allocation/cel`, `parseQualifiedName`).

use crate::semver::Version;
use dra_api::quantity::Quantity;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// A domain, an attribute name or a driver name in an [`Interner`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NameId(u32);

/// A pair of domain and name in an [`Interner`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId(u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct VersionId(u32);

/// The names, keys and versions that devices and programs refer to by number. Grows only; numbers stay valid, also in clones.
#[derive(Clone, Debug, Default)]
pub struct Interner {
    names: Vec<Arc<str>>,
    name_ids: BTreeMap<Arc<str>, NameId>,
    keys: Vec<(NameId, NameId)>,
    key_ids: BTreeMap<(NameId, NameId), KeyId>,
    versions: Vec<Arc<Version>>,
    version_ids: BTreeMap<Arc<str>, VersionId>,
}

/// Nothing ever interned has this number, so that running out of numbers only makes names equal that nobody looks for.
fn next_id(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

fn at<T>(items: &[T], id: u32) -> Option<&T> {
    items.get(usize::try_from(id).ok()?)
}

impl Interner {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// The number of `text`, a new one if it was unknown.
    pub fn name(&mut self, text: &str) -> NameId {
        if let Some(id) = self.find_name(text) {
            return id;
        }
        let id = NameId(next_id(self.names.len()));
        let text: Arc<str> = text.into();
        self.names.push(Arc::clone(&text));
        self.name_ids.insert(text, id);
        id
    }

    /// The number of the pair, a new one if it was unknown.
    pub fn key(&mut self, domain: NameId, name: NameId) -> KeyId {
        if let Some(id) = self.find_key(domain, name) {
            return id;
        }
        let id = KeyId(next_id(self.keys.len()));
        self.keys.push((domain, name));
        self.key_ids.insert((domain, name), id);
        id
    }

    /// The key of an attribute or capacity as the API names it: without a domain it belongs to `driver`'s.
    pub fn qualified_key(&mut self, driver: NameId, qualified: &str) -> KeyId {
        let (domain, name) = match qualified.split_once('/') {
            Some((domain, name)) => (self.name(domain), self.name(name)),
            None => (driver, self.name(qualified)),
        };
        self.key(domain, name)
    }

    /// The number of `text` if it was ever interned.
    pub fn find_name(&self, text: &str) -> Option<NameId> {
        self.name_ids.get(text).copied()
    }

    /// The number of the pair if it was ever interned.
    pub fn find_key(&self, domain: NameId, name: NameId) -> Option<KeyId> {
        self.key_ids.get(&(domain, name)).copied()
    }

    /// The text of a name, empty for a number of another interner.
    pub fn text(&self, name: NameId) -> &str {
        at(&self.names, name.0).map_or("", |text| text)
    }

    /// Domain and name of a key, `None` for a number of another interner.
    pub fn key_parts(&self, key: KeyId) -> Option<(NameId, NameId)> {
        at(&self.keys, key.0).copied()
    }

    fn version(&mut self, text: &str) -> Result<VersionId, String> {
        if let Some(id) = self.version_ids.get(text) {
            return Ok(*id);
        }
        let version = Version::parse(text)?;
        let id = VersionId(next_id(self.versions.len()));
        self.versions.push(Arc::new(version));
        self.version_ids.insert(text.into(), id);
        Ok(id)
    }
}

/// An attribute as it stands in the API: one of these should be set. If several are, Kubernetes takes the first in the order
/// of the fields here.
#[derive(Clone, Copy, Debug, Default)]
pub struct RawAttribute<'a> {
    /// `ints`
    pub ints: Option<&'a [i64]>,
    /// `bools`
    pub bools: Option<&'a [bool]>,
    /// `strings`
    pub strings: Option<&'a [String]>,
    /// `versions`
    pub versions: Option<&'a [String]>,
    /// `int`
    pub int: Option<i64>,
    /// `bool`
    pub bool: Option<bool>,
    /// `string`
    pub string: Option<&'a str>,
    /// `version`
    pub version: Option<&'a str>,
}

/// The value of an attribute.
#[derive(Clone, Copy, Debug)]
pub enum AttributeValue<'a> {
    /// A number.
    Int(i64),
    /// A truth value.
    Bool(bool),
    /// A text.
    String(&'a str),
    /// A version.
    Version(&'a Version),
    /// A list of numbers.
    Ints(&'a [i64]),
    /// A list of truth values.
    Bools(&'a [bool]),
    /// A list of texts.
    Strings(TextList<'a>),
    /// A list of versions.
    Versions(VersionList<'a>),
}

/// The texts of a list attribute.
#[derive(Clone, Copy, Debug)]
pub struct TextList<'a>(Texts<'a>);

#[derive(Clone, Copy, Debug)]
enum Texts<'a> {
    Spans { text: &'a str, spans: &'a [Span] },
    Boxed(&'a [Box<str>]),
}

impl<'a> TextList<'a> {
    /// The texts in order.
    pub fn iter(self) -> impl ExactSizeIterator<Item = &'a str> {
        let len = match self.0 {
            Texts::Spans { spans, .. } => spans.len(),
            Texts::Boxed(texts) => texts.len(),
        };
        (0..len).map(move |position| match self.0 {
            Texts::Spans { text, spans } => spans.get(position).map_or("", |span| span.of(text)),
            Texts::Boxed(texts) => texts.get(position).map_or("", |text| text),
        })
    }
}

impl<'a> From<&'a [Box<str>]> for TextList<'a> {
    fn from(texts: &'a [Box<str>]) -> Self {
        Self(Texts::Boxed(texts))
    }
}

/// The versions of a list attribute.
#[derive(Clone, Copy, Debug)]
pub struct VersionList<'a>(Versions<'a>);

#[derive(Clone, Copy, Debug)]
enum Versions<'a> {
    Interned { ids: &'a [VersionId], versions: &'a [Arc<Version>] },
    Parsed(&'a [Version]),
}

impl<'a> VersionList<'a> {
    /// The versions in order.
    pub fn iter(self) -> impl Iterator<Item = &'a Version> {
        let len = match self.0 {
            Versions::Interned { ids, .. } => ids.len(),
            Versions::Parsed(versions) => versions.len(),
        };
        (0..len).filter_map(move |position| match self.0 {
            Versions::Interned { ids, versions } => at(versions, ids.get(position)?.0).map(AsRef::as_ref),
            Versions::Parsed(versions) => versions.get(position),
        })
    }
}

impl<'a> From<&'a [Version]> for VersionList<'a> {
    fn from(versions: &'a [Version]) -> Self {
        Self(Versions::Parsed(versions))
    }
}

#[derive(Clone, Copy, Debug)]
struct Span {
    start: u32,
    len: u32,
}

impl Span {
    fn range(self) -> Option<std::ops::Range<usize>> {
        let start = usize::try_from(self.start).ok()?;
        Some(start..start.checked_add(usize::try_from(self.len).ok()?)?)
    }

    fn of(self, text: &str) -> &str {
        self.range().and_then(|range| text.get(range)).unwrap_or_default()
    }

    fn items<T>(self, items: &[T]) -> &[T] {
        self.range().and_then(|range| items.get(range)).unwrap_or_default()
    }
}

/// A value in 12 bytes: what does not fit is a span of the device's text or lists.
#[derive(Clone, Copy, Debug)]
enum Slot {
    /// The bytes of the number, which would otherwise be aligned to eight.
    Int([u8; 8]),
    Bool(bool),
    Text(Span),
    Version(VersionId),
    Ints(Span),
    Bools(Span),
    Texts(Span),
    Versions(Span),
}

#[derive(Clone, Debug, Default)]
struct Lists {
    ints: Vec<i64>,
    bools: Vec<bool>,
    texts: Vec<Span>,
    versions: Vec<VersionId>,
}

/// A device as programs read it. Its names are numbers of the interner that it was built with.
#[derive(Clone, Debug)]
pub struct Device {
    driver: NameId,
    allow_multiple_allocations: bool,
    /// Sorted by key, without duplicates.
    attributes: Box<[(KeyId, Slot)]>,
    /// All texts, one after the other.
    text: Box<str>,
    /// Sorted by key, without duplicates.
    capacities: Box<[(KeyId, Quantity)]>,
    rare: Option<Box<Rare>>,
}

/// What few devices have.
#[derive(Clone, Debug)]
struct Rare {
    lists: Lists,
    invalid: Option<String>,
}

impl Device {
    /// Why every evaluation for this device fails: an attribute without a value, or with a malformed version.
    pub fn conversion_error(&self) -> Option<&str> {
        self.rare.as_ref()?.invalid.as_deref()
    }
}

/// A device as programs read it, however it is stored: [`Device`] stands for itself, and who holds very many devices
/// need not keep each of them in that form as well.
pub trait ReadDevice: fmt::Debug + Send + Sync {
    /// The driver.
    fn driver(&self) -> NameId;

    /// `allowMultipleAllocations`, false if unset.
    fn allows_multiple_allocations(&self) -> bool;

    /// Why every evaluation for this device fails: an attribute without a value, or with a malformed version.
    fn conversion_error(&self) -> Option<Cow<'_, str>>;

    /// The attribute with this key. Of a name with and without the driver's domain the one with the domain counts.
    fn attribute<'a>(&'a self, key: KeyId, interner: &'a Interner) -> Option<AttributeValue<'a>>;

    /// Whether there is an attribute with this key.
    fn has_attribute(&self, key: KeyId) -> bool;

    /// The attributes' keys, each once.
    fn attribute_keys(&self) -> Vec<KeyId>;

    /// The capacity with this key, by the same rule as for attributes.
    fn capacity(&self, key: KeyId) -> Option<&Quantity>;

    /// The capacities' keys, each once.
    fn capacity_keys(&self) -> Vec<KeyId>;
}

impl ReadDevice for Device {
    fn driver(&self) -> NameId {
        self.driver
    }

    fn allows_multiple_allocations(&self) -> bool {
        self.allow_multiple_allocations
    }

    fn conversion_error(&self) -> Option<Cow<'_, str>> {
        self.conversion_error().map(Cow::Borrowed)
    }

    #[inline]
    fn attribute<'a>(&'a self, key: KeyId, interner: &'a Interner) -> Option<AttributeValue<'a>> {
        const NONE: &Lists =
            &Lists { ints: Vec::new(), bools: Vec::new(), texts: Vec::new(), versions: Vec::new() };
        let slot = *find(&self.attributes, key)?;
        let lists = || self.rare.as_ref().map_or(NONE, |rare| &rare.lists);
        Some(match slot {
            Slot::Int(bytes) => AttributeValue::Int(i64::from_ne_bytes(bytes)),
            Slot::Bool(bool) => AttributeValue::Bool(bool),
            Slot::Text(span) => AttributeValue::String(span.of(&self.text)),
            Slot::Version(id) => AttributeValue::Version(at(&interner.versions, id.0)?),
            Slot::Ints(span) => AttributeValue::Ints(span.items(&lists().ints)),
            Slot::Bools(span) => AttributeValue::Bools(span.items(&lists().bools)),
            Slot::Texts(span) => AttributeValue::Strings(TextList(Texts::Spans {
                text: &self.text,
                spans: span.items(&lists().texts),
            })),
            Slot::Versions(span) => AttributeValue::Versions(VersionList(Versions::Interned {
                ids: span.items(&lists().versions),
                versions: &interner.versions,
            })),
        })
    }

    fn has_attribute(&self, key: KeyId) -> bool {
        find(&self.attributes, key).is_some()
    }

    fn attribute_keys(&self) -> Vec<KeyId> {
        self.attributes.iter().map(|(key, _)| *key).collect()
    }

    fn capacity(&self, key: KeyId) -> Option<&Quantity> {
        find(&self.capacities, key)
    }

    fn capacity_keys(&self) -> Vec<KeyId> {
        self.capacities.iter().map(|(key, _)| *key).collect()
    }
}

/// Devices have a handful of keys, up to 32: a scan over adjacent entries beats a binary search.
#[inline]
fn find<T>(entries: &[(KeyId, T)], key: KeyId) -> Option<&T> {
    entries.iter().find(|(other, _)| *other == key).map(|(_, value)| value)
}

/// A device together with the interner that knows its names.
#[derive(Clone, Copy, Debug)]
pub struct DeviceView<'a> {
    /// The device.
    pub device: &'a dyn ReadDevice,
    /// The interner that it was built with, or a later clone of it.
    pub interner: &'a Interner,
}

impl<'a> DeviceView<'a> {
    /// The attribute with this key.
    #[inline]
    pub fn attribute(self, key: KeyId) -> Option<AttributeValue<'a>> {
        self.device.attribute(key, self.interner)
    }

    /// The driver's name.
    pub fn driver(self) -> &'a str {
        self.interner.text(self.device.driver())
    }
}

/// Collects what a [`Device`] consists of.
#[derive(Debug)]
pub struct DeviceBuilder<'i> {
    interner: &'i mut Interner,
    driver: NameId,
    allow_multiple_allocations: bool,
    attributes: Vec<Named<Slot>>,
    capacities: Vec<Named<Quantity>>,
    text: String,
    lists: Lists,
    invalid: Option<String>,
}

/// A value under its key, and whether its name had a domain.
#[derive(Debug)]
struct Named<T> {
    key: KeyId,
    value: T,
    qualified: bool,
}

/// The values in the order of their keys, one for each. A name may occur with and without the driver's domain. Kubernetes then
/// takes one of the two at random; the one with the domain is taken here. Of equal names the last one counts.
fn by_key<T>(mut named: Vec<Named<T>>) -> Box<[(KeyId, T)]> {
    named.reverse();
    named.sort_by_key(|named| (named.key, !named.qualified));
    named.dedup_by_key(|named| named.key);
    named.into_iter().map(|named| (named.key, named.value)).collect()
}

impl<'i> DeviceBuilder<'i> {
    /// A device of this driver without attributes and capacities.
    pub fn new(interner: &'i mut Interner, driver: &str) -> Self {
        let driver = interner.name(driver);
        Self {
            interner,
            driver,
            allow_multiple_allocations: false,
            attributes: Vec::new(),
            capacities: Vec::new(),
            text: String::new(),
            lists: Lists::default(),
            invalid: None,
        }
    }

    /// Sets `allowMultipleAllocations`.
    pub fn allow_multiple_allocations(&mut self, allow: bool) -> &mut Self {
        self.allow_multiple_allocations = allow;
        self
    }

    /// Adds an attribute under its name in the API. One that can't be converted makes every evaluation for this
    /// device fail, see [`Device::conversion_error`].
    pub fn attribute(&mut self, name: &str, raw: RawAttribute<'_>) -> &mut Self {
        match self.slot(raw) {
            Ok(slot) => {
                let key = self.interner.qualified_key(self.driver, name);
                self.attributes.push(Named { key, value: slot, qualified: name.contains('/') });
            }
            Err(reason) => {
                self.invalid.get_or_insert_with(|| format!("attribute {name}: {reason}"));
            }
        }
        self
    }

    /// Adds a capacity under its name in the API.
    pub fn capacity(&mut self, name: &str, value: Quantity) -> &mut Self {
        let key = self.interner.qualified_key(self.driver, name);
        self.capacities.push(Named { key, value, qualified: name.contains('/') });
        self
    }

    /// The finished device.
    pub fn build(self) -> Device {
        let Lists { ints, bools, texts, versions } = &self.lists;
        let plain = ints.is_empty() && bools.is_empty() && texts.is_empty() && versions.is_empty();
        let rare = !plain || self.invalid.is_some();
        Device {
            driver: self.driver,
            allow_multiple_allocations: self.allow_multiple_allocations,
            attributes: by_key(self.attributes),
            text: self.text.into(),
            capacities: by_key(self.capacities),
            rare: rare.then(|| Box::new(Rare { lists: self.lists, invalid: self.invalid })),
        }
    }

    fn slot(&mut self, raw: RawAttribute<'_>) -> Result<Slot, String> {
        let lists = &mut self.lists;
        Ok(match raw {
            RawAttribute { ints: Some(ints), .. } => {
                Slot::Ints(extend(&mut lists.ints, ints.iter().copied())?)
            }
            RawAttribute { bools: Some(bools), .. } => {
                Slot::Bools(extend(&mut lists.bools, bools.iter().copied())?)
            }
            RawAttribute { strings: Some(strings), .. } => {
                let spans: Vec<Span> =
                    strings.iter().map(|text| push_text(&mut self.text, text)).collect::<Result<_, _>>()?;
                Slot::Texts(extend(&mut lists.texts, spans)?)
            }
            RawAttribute { versions: Some(versions), .. } => {
                let ids: Vec<VersionId> = versions
                    .iter()
                    .map(|text| parse_version(self.interner, text))
                    .collect::<Result<_, _>>()?;
                Slot::Versions(extend(&mut lists.versions, ids)?)
            }
            RawAttribute { int: Some(int), .. } => Slot::Int(int.to_ne_bytes()),
            RawAttribute { bool: Some(bool), .. } => Slot::Bool(bool),
            RawAttribute { string: Some(text), .. } => Slot::Text(push_text(&mut self.text, text)?),
            RawAttribute { version: Some(text), .. } => Slot::Version(parse_version(self.interner, text)?),
            _ => return Err("unsupported attribute value".to_owned()),
        })
    }
}

fn parse_version(interner: &mut Interner, text: &str) -> Result<VersionId, String> {
    interner.version(text).map_err(|reason| format!("parse semantic version: {reason}"))
}

fn span(start: usize, end: usize) -> Result<Span, String> {
    let too_long = |_| "value is too long".to_owned();
    Ok(Span {
        start: u32::try_from(start).map_err(too_long)?,
        len: u32::try_from(end - start).map_err(too_long)?,
    })
}

fn push_text(all: &mut String, text: &str) -> Result<Span, String> {
    let start = all.len();
    all.push_str(text);
    span(start, all.len())
}

fn extend<T>(all: &mut Vec<T>, items: impl IntoIterator<Item = T>) -> Result<Span, String> {
    let start = all.len();
    all.extend(items);
    span(start, all.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_without_a_domain_belong_to_the_driver() {
        let mut interner = Interner::new();
        let mut builder = DeviceBuilder::new(&mut interner, "a.dev");
        builder
            .attribute("plain", RawAttribute { int: Some(1), ..RawAttribute::default() })
            .attribute("b.dev/x/y", RawAttribute { string: Some("two"), ..RawAttribute::default() });
        let device = builder.build();
        let mut key = |domain: &str, name: &str| {
            let (domain, name) = (interner.name(domain), interner.name(name));
            interner.key(domain, name)
        };
        let (plain, other, absent) = (key("a.dev", "plain"), key("b.dev", "x/y"), key("a.dev", "x/y"));
        let view = DeviceView { device: &device, interner: &interner };
        assert!(matches!(view.attribute(plain), Some(AttributeValue::Int(1))));
        assert!(matches!(view.attribute(other), Some(AttributeValue::String("two"))));
        assert!(view.attribute(absent).is_none());
    }

    #[test]
    fn the_qualified_name_wins_over_the_plain_one() {
        for names in [["x", "a.dev/x"], ["a.dev/x", "x"]] {
            let mut interner = Interner::new();
            let mut builder = DeviceBuilder::new(&mut interner, "a.dev");
            for name in names {
                let int = Some(i64::from(name.contains('/')));
                builder.attribute(name, RawAttribute { int, ..RawAttribute::default() });
            }
            let device = builder.build();
            let driver = device.driver();
            let key = interner.qualified_key(driver, "x");
            let view = DeviceView { device: &device, interner: &interner };
            assert!(matches!(view.attribute(key), Some(AttributeValue::Int(1))));
        }
    }

    #[test]
    fn a_bad_version_is_remembered() {
        let mut interner = Interner::new();
        let mut builder = DeviceBuilder::new(&mut interner, "a.dev");
        builder.attribute("fw", RawAttribute { version: Some("1.02.3"), ..RawAttribute::default() });
        builder.attribute("ok", RawAttribute { int: Some(1), ..RawAttribute::default() });
        let device = builder.build();
        assert!(device.conversion_error().unwrap().starts_with("attribute fw: parse semantic version: "));
    }

    #[test]
    fn devices_are_small() {
        assert!(size_of::<(KeyId, Slot)>() <= 16);
        assert!(size_of::<Device>() <= 64);
    }
}
