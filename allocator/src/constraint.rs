//! Constraints across the devices of a claim.
//!
//! Rules: `matchAttributeConstraint`, `distinctAttributeConstraint`, `attributeAsSet`; spec §4. Each constraint keeps
//! what it has seen on a stack, one entry per accepted device, so that taking back the last device restores it.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::rc::Rc;

use crate::inventory::details::Attribute;
use crate::inventory::slice::DeviceRef;
use crate::objects::{DeviceAttribute, DeviceConstraint};

/// A value of some type, as a number of the constraint: the values that it has seen are counted up from zero.
pub(crate) type Number = u32;

/// The values of an attribute, sorted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Set {
    pub(crate) elements: Box<[Number]>,
}

impl Set {
    fn new(mut elements: Vec<Number>) -> Self {
        elements.sort_unstable();
        elements.dedup();
        Self { elements: elements.into() }
    }

    /// Goes through both side by side; `found` says whether to go on after an element that both have.
    fn compare(&self, other: &Self, mut found: impl FnMut(Number) -> bool) {
        let (mut ours, mut theirs) = (&*self.elements, &*other.elements);
        while let ([a, more_ours @ ..], [b, more_theirs @ ..]) = (ours, theirs) {
            match a.cmp(b) {
                Ordering::Less => ours = more_ours,
                Ordering::Greater => theirs = more_theirs,
                Ordering::Equal => {
                    if !found(*a) {
                        return;
                    }
                    (ours, theirs) = (more_ours, more_theirs);
                }
            }
        }
    }

    /// What both have in common; `None` if nothing.
    fn intersection(&self, other: &Self) -> Option<Self> {
        let mut elements = Vec::new();
        self.compare(other, |element| {
            elements.push(element);
            true
        });
        (!elements.is_empty()).then(|| Self { elements: elements.into() })
    }

    fn overlaps(&self, other: &Self) -> bool {
        let mut overlaps = false;
        self.compare(other, |_| {
            overlaps = true;
            false
        });
        overlaps
    }
}

/// An attribute as a constraint compares it. Valid attributes have exactly one field.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Form {
    pub(crate) text: Option<Number>,
    pub(crate) int: Option<Number>,
    pub(crate) bool: Option<Number>,
    pub(crate) version: Option<Number>,
    /// `None` without a list that has elements, and without a scalar.
    pub(crate) set: Option<Set>,
}

impl Form {
    /// The scalar that decides a comparison with this attribute on the new device's side.
    pub(crate) fn scalar(&self) -> Option<Number> {
        self.text.or(self.int).or(self.bool).or(self.version)
    }

    /// Whether a new device with `self` equals an earlier one with `other`; `None` if `self` is not comparable.
    fn equals(&self, other: &Self) -> Option<bool> {
        // Values of different types have different numbers.
        let value = self.scalar();
        value.is_some().then(|| [other.text, other.int, other.bool, other.version].contains(&value))
    }
}

/// A value before it is numbered.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Value<'a> {
    Int(i64),
    Bool(bool),
    Text(Cow<'a, str>),
    Version(Cow<'a, str>),
}

/// What must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    Match,
    Distinct,
}

/// A constraint and the devices accepted so far.
#[derive(Debug)]
pub(crate) struct Constraint<'a> {
    pub(crate) rule: Rule,
    /// Fully qualified name of the attribute.
    pub(crate) attribute: &'a str,
    requests: &'a [String],
    /// `list_type_attributes` is on.
    sets: bool,
    numbers: HashMap<Value<'a>, Number, BuildHasherDefault<DefaultHasher>>,
    /// Looked-up attributes by device number: 0 for not yet, 1 for missing, else 2 + position in `forms`.
    looked_up: Vec<u32>,
    forms: Vec<Rc<Form>>,
    accepted: Vec<Rc<Form>>,
    common: Vec<Rc<Set>>,
}

impl<'a> Constraint<'a> {
    /// `None` for a kind of constraint that is not known.
    pub(crate) fn new(object: &'a DeviceConstraint, sets: bool, devices: usize) -> Option<Self> {
        let (rule, attribute) = match (&object.match_attribute, &object.distinct_attribute) {
            (Some(attribute), _) => (Rule::Match, attribute),
            (None, Some(attribute)) => (Rule::Distinct, attribute),
            (None, None) => return None,
        };
        Some(Self {
            rule,
            attribute,
            requests: &object.requests,
            sets,
            numbers: HashMap::default(),
            looked_up: vec![0; devices],
            forms: Vec::new(),
            accepted: Vec::new(),
            common: Vec::new(),
        })
    }

    /// Whether the constraint is about a request, or a subrequest of `parent`.
    pub(crate) fn applies_to(&self, request: &str, parent: Option<&str>) -> bool {
        self.requests.is_empty()
            || self.requests.iter().any(|name| match parent {
                None => name == request,
                Some(parent) => {
                    name == parent
                        || name.strip_prefix(parent).and_then(|rest| rest.strip_prefix('/')) == Some(request)
                }
            })
    }

    /// The published attribute of a device; `None` if it has none (`lookupStaticAttribute`).
    pub(crate) fn published(
        &mut self,
        device: DeviceRef<'a>,
        number: usize,
        driver: &str,
    ) -> Option<Rc<Form>> {
        match self.looked_up.get(number).copied() {
            None | Some(1) => return None,
            Some(0) => {}
            Some(found) => return self.forms.get(found as usize - 2).cloned(),
        }
        let attribute = device.attribute(self.attribute).or_else(|| {
            let (domain, name) = self.attribute.split_once('/')?;
            (domain == driver).then(|| device.attribute(name))?
        });
        let form = attribute.map(|attribute| self.form(attribute));
        let entry = match &form {
            None => 1,
            Some(form) => {
                let known = self.forms.iter().rev().take(8).position(|known| known == form);
                let position = if let Some(back) = known {
                    self.forms.len() - 1 - back
                } else {
                    self.forms.push(form.clone());
                    self.forms.len() - 1
                };
                u32::try_from(position + 2).unwrap_or(1)
            }
        };
        if let Some(slot) = self.looked_up.get_mut(number) {
            *slot = entry;
        }
        form
    }

    /// A computed attribute.
    pub(crate) fn derived(&mut self, attribute: &DeviceAttribute) -> Rc<Form> {
        Rc::new(self.odd(attribute, |text| Cow::Owned(text.to_owned())))
    }

    fn form(&mut self, attribute: Attribute<'a>) -> Rc<Form> {
        let mut form = Form::default();
        let mut scalar = |value| {
            let number = self.number(value);
            (Some(number), Some(Set::new(vec![number])))
        };
        match attribute {
            Attribute::Int(int) => (form.int, form.set) = scalar(Value::Int(int)),
            Attribute::Bool(bool) => (form.bool, form.set) = scalar(Value::Bool(bool)),
            Attribute::Text(text) => (form.text, form.set) = scalar(Value::Text(text.into())),
            Attribute::Version(version) => {
                (form.version, form.set) = scalar(Value::Version(version.into()));
            }
            Attribute::Ints(ints) => form.set = self.list(ints.iter().copied().map(Value::Int)),
            Attribute::Bools(bools) => form.set = self.list(bools.iter().copied().map(Value::Bool)),
            Attribute::Texts(texts) => {
                form.set = self.list(texts.iter().map(|text| Value::Text((&**text).into())));
            }
            Attribute::Versions(texts) => {
                form.set = self.list(texts.iter().map(|text| Value::Version((&**text).into())));
            }
            Attribute::Odd(odd) => form = self.odd(odd, Cow::Borrowed),
        }
        Rc::new(form)
    }

    /// Several fields, or none: lists come before scalars, each in a fixed order.
    fn odd<'t>(&mut self, odd: &'t DeviceAttribute, keep: impl Fn(&'t str) -> Cow<'a, str>) -> Form {
        let ints = odd.ints.iter().flatten().copied().map(Value::Int);
        let bools = odd.bools.iter().flatten().copied().map(Value::Bool);
        let texts = odd.strings.iter().flatten().map(|text| Value::Text(keep(text)));
        let versions = odd.versions.iter().flatten().map(|text| Value::Version(keep(text)));
        let set = self.list(ints);
        let set = set.or_else(|| self.list(bools));
        let set = set.or_else(|| self.list(texts));
        let set = set.or_else(|| self.list(versions));
        let text = odd.string.as_deref().map(|text| self.number(Value::Text(keep(text))));
        let version = odd.version.as_deref().map(|version| self.number(Value::Version(keep(version))));
        let int = odd.int.map(|int| self.number(Value::Int(int)));
        let bool = odd.bool.map(|bool| self.number(Value::Bool(bool)));
        let scalar = int.or(bool).or(text).or(version);
        let set = set.or_else(|| scalar.map(|number| Set::new(vec![number])));
        Form { text, int, bool, version, set }
    }

    fn list(&mut self, values: impl Iterator<Item = Value<'a>>) -> Option<Set> {
        let numbers: Vec<_> = values.map(|value| self.number(value)).collect();
        (!numbers.is_empty()).then(|| Set::new(numbers))
    }

    fn number(&mut self, value: Value<'a>) -> Number {
        // Running out of numbers would take more memory than there is.
        let next = Number::try_from(self.numbers.len()).unwrap_or(Number::MAX);
        *self.numbers.entry(value).or_insert(next)
    }

    /// How many different values have been seen.
    pub(crate) fn values(&self) -> usize {
        self.numbers.len()
    }

    /// Accepts a device with this attribute, or leaves everything as it was.
    pub(crate) fn add(&mut self, form: &Rc<Form>) -> bool {
        match (self.rule, self.sets) {
            (Rule::Match, true) => {
                let Some(set) = &form.set else { return false };
                let common = match self.common.last() {
                    None => Some(set.clone()),
                    Some(common) => common.intersection(set),
                };
                let Some(common) = common else { return false };
                self.common.push(Rc::new(common));
            }
            (Rule::Match, false) => {
                // The first device is accepted whatever it has.
                if let Some(reference) = self.accepted.first()
                    && form.equals(reference) != Some(true)
                {
                    return false;
                }
            }
            (Rule::Distinct, true) => {
                let Some(set) = &form.set else { return false };
                let overlaps = |one: &Rc<Form>| one.set.as_ref().is_some_and(|one| set.overlaps(one));
                if self.accepted.iter().any(overlaps) {
                    return false;
                }
            }
            (Rule::Distinct, false) => {
                if self.accepted.iter().any(|one| form.equals(one) != Some(false)) {
                    return false;
                }
            }
        }
        self.accepted.push(form.clone());
        true
    }

    /// Takes back the device accepted last.
    pub(crate) fn remove(&mut self) {
        self.accepted.pop();
        self.common.pop();
    }

    /// Devices accepted so far.
    pub(crate) fn accepted(&self) -> &[Rc<Form>] {
        &self.accepted
    }

    /// What all accepted devices have in common, where sets are compared.
    pub(crate) fn common(&self) -> Option<&Set> {
        self.common.last().map(|common| &**common)
    }

    /// Whether attributes are compared as sets.
    pub(crate) fn compares_sets(&self) -> bool {
        self.sets
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn constraint(object: &DeviceConstraint, sets: bool) -> Constraint<'_> {
        Constraint::new(object, sets, 0).unwrap()
    }

    fn matching() -> DeviceConstraint {
        DeviceConstraint { match_attribute: Some("d/a".to_owned()), ..Default::default() }
    }

    fn distinct() -> DeviceConstraint {
        DeviceConstraint { distinct_attribute: Some("d/a".to_owned()), ..Default::default() }
    }

    fn add<'a>(constraint: &mut Constraint<'a>, attribute: Attribute<'a>) -> bool {
        let form = constraint.form(attribute);
        constraint.add(&form)
    }

    #[test]
    fn a_match_of_sets_needs_one_element_that_all_have() {
        let object = matching();
        let mut constraint = constraint(&object, true);
        assert!(add(&mut constraint, Attribute::Ints(&[1, 2])));
        assert!(add(&mut constraint, Attribute::Ints(&[2, 3])));
        assert!(!add(&mut constraint, Attribute::Ints(&[3, 1])));
        assert!(add(&mut constraint, Attribute::Int(2)));
        constraint.remove();
        constraint.remove();
        assert!(add(&mut constraint, Attribute::Ints(&[3, 1])));
    }

    #[test]
    fn a_match_of_scalars_takes_any_first_device() {
        let object = matching();
        let mut constraint = constraint(&object, false);
        assert!(add(&mut constraint, Attribute::Ints(&[1])));
        assert!(!add(&mut constraint, Attribute::Ints(&[1])));
        constraint.remove();
        assert!(add(&mut constraint, Attribute::Version("1.0.0")));
        assert!(!add(&mut constraint, Attribute::Version("1.0.0+b")));
        assert!(!add(&mut constraint, Attribute::Text("1.0.0")));
        assert!(add(&mut constraint, Attribute::Version("1.0.0")));
    }

    #[test]
    fn distinct_values_of_different_types_are_distinct() {
        let object = distinct();
        for sets in [false, true] {
            let mut constraint = constraint(&object, sets);
            assert!(add(&mut constraint, Attribute::Int(1)));
            assert!(add(&mut constraint, Attribute::Bool(true)));
            assert!(add(&mut constraint, Attribute::Text("1")));
            assert!(!add(&mut constraint, Attribute::Int(1)));
        }
    }

    #[test]
    fn distinct_lists_must_be_disjoint() {
        let object = distinct();
        let mut constraint = constraint(&object, true);
        assert!(add(&mut constraint, Attribute::Ints(&[1, 2])));
        assert!(!add(&mut constraint, Attribute::Ints(&[2, 3])));
        assert!(add(&mut constraint, Attribute::Ints(&[3])));
        assert!(!add(&mut constraint, Attribute::Ints(&[])));
    }

    #[test]
    fn subrequests_are_named_by_their_parent_or_in_full() {
        for (name, applies) in [("r", true), ("r/s", true), ("s", false), ("r/t", false), ("rs", false)] {
            let object = DeviceConstraint { requests: vec![name.to_owned()], ..matching() };
            assert_eq!(constraint(&object, false).applies_to("s", Some("r")), applies, "{name}");
        }
        let object = DeviceConstraint { requests: vec!["r".to_owned()], ..matching() };
        assert!(constraint(&object, false).applies_to("r", None));
        assert!(!constraint(&object, false).applies_to("s", None));
    }
}
