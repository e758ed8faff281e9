//! Constraints across the devices of a claim.
//!
//! Rules: `matchAttributeConstraint`, `distinctAttributeConstraint`, `attributeAsSet`; spec §4. Each constraint keeps
//! what it has seen on a stack, one entry per accepted device, so that taking back the last device restores it.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::rc::Rc;

use crate::inventory::slice::{Attribute, DeviceRef};
use crate::objects::{DeviceAttribute, DeviceConstraint};

/// The element type of an attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Type {
    Int,
    Bool,
    Text,
    Version,
}

/// The values of an attribute: type and elements, sorted. Texts stand as numbers of the constraint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Set {
    pub(crate) of: Type,
    pub(crate) elements: Box<[i64]>,
}

impl Set {
    fn new(of: Type, mut elements: Vec<i64>) -> Self {
        elements.sort_unstable();
        elements.dedup();
        Self { of, elements: elements.into() }
    }

    /// What both have in common; `None` if nothing.
    fn intersection(&self, other: &Self) -> Option<Self> {
        if self.of != other.of {
            return None;
        }
        // Both are sorted: go through them side by side.
        let (mut ours, mut theirs) = (self.elements.iter().peekable(), other.elements.iter().peekable());
        let mut elements = Vec::new();
        while let (Some(a), Some(b)) = (ours.peek(), theirs.peek()) {
            match a.cmp(b) {
                Ordering::Less => {
                    ours.next();
                }
                Ordering::Greater => {
                    theirs.next();
                }
                Ordering::Equal => {
                    elements.push(**a);
                    ours.next();
                    theirs.next();
                }
            }
        }
        (!elements.is_empty()).then(|| Self { of: self.of, elements: elements.into() })
    }
}

/// An attribute as a constraint compares it. Valid attributes have exactly one field.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Form {
    pub(crate) text: Option<i64>,
    pub(crate) int: Option<i64>,
    pub(crate) bool: Option<i64>,
    pub(crate) version: Option<i64>,
    /// `None` without a list that has elements, and without a scalar.
    pub(crate) set: Option<Set>,
}

impl Form {
    /// The scalar that decides a comparison with this attribute on the new device's side.
    pub(crate) fn scalar(&self) -> Option<(Type, i64)> {
        self.text
            .map(|text| (Type::Text, text))
            .or(self.int.map(|int| (Type::Int, int)))
            .or(self.bool.map(|bool| (Type::Bool, bool)))
            .or(self.version.map(|version| (Type::Version, version)))
    }

    fn field(&self, of: Type) -> Option<i64> {
        match of {
            Type::Int => self.int,
            Type::Bool => self.bool,
            Type::Text => self.text,
            Type::Version => self.version,
        }
    }

    /// Whether a new device with `self` equals an earlier one with `other`; `None` if `self` is not comparable.
    fn equals(&self, other: &Self) -> Option<bool> {
        let (of, value) = self.scalar()?;
        Some(other.field(of) == Some(value))
    }
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
    texts: HashMap<Box<str>, i64, BuildHasherDefault<DefaultHasher>>,
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
            texts: HashMap::default(),
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
        device: DeviceRef<'_>,
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
        self.form(Attribute::Odd(attribute))
    }

    fn form(&mut self, attribute: Attribute<'_>) -> Rc<Form> {
        let mut form = Form::default();
        let scalar = |of, value| Some(Set::new(of, vec![value]));
        match attribute {
            Attribute::Int(int) => {
                form.int = Some(int);
                form.set = scalar(Type::Int, int);
            }
            Attribute::Bool(bool) => {
                form.bool = Some(i64::from(bool));
                form.set = scalar(Type::Bool, i64::from(bool));
            }
            Attribute::Text(text) => {
                let text = self.number(text);
                form.text = Some(text);
                form.set = scalar(Type::Text, text);
            }
            Attribute::Version(version) => {
                let version = self.number(version);
                form.version = Some(version);
                form.set = scalar(Type::Version, version);
            }
            Attribute::Ints(ints) => form.set = Self::list(Type::Int, ints.iter().copied()),
            Attribute::Bools(bools) => {
                form.set = Self::list(Type::Bool, bools.iter().copied().map(i64::from));
            }
            Attribute::Texts(texts) => form.set = self.texts(Type::Text, texts.iter().map(|text| &**text)),
            Attribute::Versions(texts) => {
                form.set = self.texts(Type::Version, texts.iter().map(|text| &**text));
            }
            Attribute::Odd(odd) => form = self.odd(odd),
        }
        Rc::new(form)
    }

    /// Several fields, or none: lists come before scalars, each in a fixed order.
    fn odd(&mut self, odd: &DeviceAttribute) -> Form {
        let text = odd.string.as_deref().map(|text| self.number(text));
        let version = odd.version.as_deref().map(|version| self.number(version));
        let strings = |list: &'_ Option<Vec<String>>| list.clone().unwrap_or_default();
        let (texts, versions) = (strings(&odd.strings), strings(&odd.versions));
        let set = Self::list(Type::Int, odd.ints.iter().flatten().copied())
            .or_else(|| Self::list(Type::Bool, odd.bools.iter().flatten().copied().map(i64::from)))
            .or_else(|| self.texts(Type::Text, texts.iter().map(String::as_str)))
            .or_else(|| self.texts(Type::Version, versions.iter().map(String::as_str)));
        let one = |of, value: Option<i64>| value.map(|value| Set::new(of, vec![value]));
        let bool = odd.bool.map(i64::from);
        let set = set
            .or_else(|| one(Type::Int, odd.int))
            .or_else(|| one(Type::Bool, bool))
            .or_else(|| one(Type::Text, text))
            .or_else(|| one(Type::Version, version));
        Form { text, int: odd.int, bool, version, set }
    }

    fn list(of: Type, elements: impl Iterator<Item = i64>) -> Option<Set> {
        let elements: Vec<_> = elements.collect();
        (!elements.is_empty()).then(|| Set::new(of, elements))
    }

    fn texts<'t>(&mut self, of: Type, texts: impl Iterator<Item = &'t str>) -> Option<Set> {
        let numbers: Vec<_> = texts.map(|text| self.number(text)).collect();
        Self::list(of, numbers.into_iter())
    }

    fn number(&mut self, text: &str) -> i64 {
        if let Some(known) = self.texts.get(text) {
            return *known;
        }
        let number = i64::try_from(self.texts.len()).unwrap_or(i64::MAX);
        self.texts.insert(text.into(), number);
        number
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
                let overlaps =
                    |one: &Rc<Form>| one.set.as_ref().is_some_and(|one| set.intersection(one).is_some());
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

    fn add(constraint: &mut Constraint<'_>, attribute: Attribute<'_>) -> bool {
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
