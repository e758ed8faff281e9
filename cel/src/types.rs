//! Types of expressions and their unification, as in cel-go's checker (`checker/types.go`).

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// A type at compile time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Type {
    Dyn,
    /// As `Dyn`, but loops over it are refused.
    Any,
    Null,
    Bool,
    Int,
    Uint,
    Double,
    String,
    Bytes,
    Duration,
    Timestamp,
    List(Arc<Type>),
    Map(Arc<Type>, Arc<Type>),
    Optional(Arc<Type>),
    /// `net.IP` and `net.CIDR`
    Opaque(&'static str),
    /// `kubernetes.Quantity` and so on
    Object(&'static str),
    /// The type of a type.
    Meta(Arc<Type>),
    /// A variable of the unification.
    Param(Param),
}

/// A type variable: declared by a function, or made for one of its calls.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Param {
    Declared(&'static str),
    Fresh(usize),
}

pub(crate) const DEVICE: Type = Type::Object("kubernetes.DRADevice");
pub(crate) const QUANTITY: Type = Type::Object("kubernetes.Quantity");
pub(crate) const SEMVER: Type = Type::Object("kubernetes.Semver");
pub(crate) const URL: Type = Type::Object("kubernetes.URL");
pub(crate) const FORMAT: Type = Type::Object("kubernetes.NamedFormat");
pub(crate) const IP: Type = Type::Opaque("net.IP");
pub(crate) const CIDR: Type = Type::Opaque("net.CIDR");

pub(crate) fn list(element: Type) -> Type {
    Type::List(Arc::new(element))
}

pub(crate) fn map(key: Type, value: Type) -> Type {
    Type::Map(Arc::new(key), Arc::new(value))
}

pub(crate) fn optional(value: Type) -> Type {
    Type::Optional(Arc::new(value))
}

pub(crate) fn param(name: &'static str) -> Type {
    Type::Param(Param::Declared(name))
}

impl Type {
    pub(crate) fn is_dyn(&self) -> bool {
        matches!(self, Self::Dyn | Self::Any)
    }

    fn params(&self) -> Vec<&Type> {
        match self {
            Self::List(element) | Self::Optional(element) | Self::Meta(element) => vec![element],
            Self::Map(key, value) => vec![key, value],
            _ => Vec::new(),
        }
    }

    /// Replaces the variables that a function declares by fresh ones.
    pub(crate) fn instantiate(&self, fresh: &mut dyn FnMut(&'static str) -> usize) -> Type {
        match self {
            Self::Param(Param::Declared(name)) => Self::Param(Param::Fresh(fresh(name))),
            Self::List(element) => list(element.instantiate(fresh)),
            Self::Optional(value) => optional(value.instantiate(fresh)),
            Self::Meta(of) => Self::Meta(Arc::new(of.instantiate(fresh))),
            Self::Map(key, value) => map(key.instantiate(fresh), value.instantiate(fresh)),
            _ => self.clone(),
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dyn | Self::Param(_) => f.write_str("dyn"),
            Self::Any => f.write_str("any"),
            Self::Null => f.write_str("null"),
            Self::Bool => f.write_str("bool"),
            Self::Int => f.write_str("int"),
            Self::Uint => f.write_str("uint"),
            Self::Double => f.write_str("double"),
            Self::String => f.write_str("string"),
            Self::Bytes => f.write_str("bytes"),
            Self::Duration => f.write_str("google.protobuf.Duration"),
            Self::Timestamp => f.write_str("google.protobuf.Timestamp"),
            Self::List(element) => write!(f, "list({element})"),
            Self::Map(key, value) => write!(f, "map({key}, {value})"),
            Self::Optional(value) => write!(f, "optional_type({value})"),
            Self::Opaque(name) | Self::Object(name) => f.write_str(name),
            Self::Meta(of) => write!(f, "type({of})"),
        }
    }
}

/// What the type variables stand for so far.
#[derive(Debug)]
pub(crate) struct Substitution {
    bound: BTreeMap<Param, Type>,
    /// What to restore if an assignment turns out not to fit.
    journal: Vec<(Param, Option<Type>)>,
    /// Steps left: types can grow exponentially with the length of the expression.
    steps: Cell<u64>,
}

impl Default for Substitution {
    fn default() -> Self {
        Self { bound: BTreeMap::new(), journal: Vec::new(), steps: Cell::new(2_000_000) }
    }
}

impl Substitution {
    /// Whether the types have become too large to go on; results are arbitrary from then on.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.steps.get() == 0
    }

    /// Takes a step, and returns whether there was one left.
    fn step(&self) -> bool {
        self.steps.set(self.steps.get().saturating_sub(1));
        !self.is_exhausted()
    }

    /// Unifies `from` with `to` if the first can be used where the second is expected.
    pub(crate) fn assign(&mut self, from: &Type, to: &Type) -> bool {
        self.assign_all(std::slice::from_ref(from), std::slice::from_ref(to))
    }

    /// As [`Substitution::assign`] for lists of equal length; nothing is bound unless all fit.
    pub(crate) fn assign_all(&mut self, from: &[Type], to: &[Type]) -> bool {
        if from.len() != to.len() {
            return false;
        }
        self.journal.clear();
        let fits = from.iter().zip(to).all(|(from, to)| self.unify(from, to));
        if !fits {
            while let Some((param, before)) = self.journal.pop() {
                match before {
                    Some(before) => self.bound.insert(param, before),
                    None => self.bound.remove(&param),
                };
            }
        }
        fits
    }

    fn bind(&mut self, param: &Param, to: Type) {
        let before = self.bound.insert(param.clone(), to);
        self.journal.push((param.clone(), before));
    }

    fn find(&self, param: &Param) -> Option<Type> {
        self.bound.get(param).cloned()
    }

    fn unify(&mut self, from: &Type, to: &Type) -> bool {
        if !self.step() {
            return false;
        }
        if let Type::Param(param) = to {
            match self.substitute_for(from, param) {
                (true, _) => return true,
                (false, true) => return false,
                (false, false) => {}
            }
        }
        if let Type::Param(param) = from {
            return self.substitute_for(to, param).0;
        }
        if from.is_dyn() || to.is_dyn() {
            return true;
        }
        match (from, to) {
            (Type::Null, other) | (other, Type::Null) => matches!(
                other,
                Type::Null
                    | Type::Opaque(_)
                    | Type::Optional(_)
                    | Type::Object(_)
                    | Type::Duration
                    | Type::Timestamp
            ),
            (Type::Meta(_), Type::Meta(_)) => true,
            (Type::List(a), Type::List(b)) | (Type::Optional(a), Type::Optional(b)) => self.unify(a, b),
            (Type::Map(key_a, value_a), Type::Map(key_b, value_b)) => {
                self.unify(key_a, key_b) && self.unify(value_a, value_b)
            }
            _ => from == to,
        }
    }

    /// Whether `with` is a valid substitution for `param`, and whether it had one already.
    fn substitute_for(&mut self, with: &Type, param: &Param) -> (bool, bool) {
        if matches!(with, Type::Param(other) if other == param) {
            return (true, true);
        }
        if let Some(present) = self.find(param) {
            if present == *with {
                return (true, true);
            }
            if self.unify(with, &present) {
                let general = more_general(with, &present);
                if self.not_within(param, &general) {
                    self.bind(param, general);
                }
                return (true, true);
            }
            return (false, true);
        }
        if self.not_within(param, with) {
            self.bind(param, with.clone());
            return (true, false);
        }
        (false, false)
    }

    fn not_within(&self, param: &Param, within: &Type) -> bool {
        match within {
            _ if !self.step() => false,
            Type::Param(other) if other == param => false,
            Type::Param(other) => self.bound.get(other).is_none_or(|bound| self.not_within(param, bound)),
            _ => within.params().into_iter().all(|inner| self.not_within(param, inner)),
        }
    }

    /// The type with all bound variables replaced, and with `to_dyn` the others by `dyn`.
    pub(crate) fn apply(&self, of: &Type, to_dyn: bool) -> Type {
        let bound = match of {
            _ if !self.step() => return Type::Dyn,
            Type::Param(param) => self.find(param),
            Type::List(element) => return list(self.apply(element, to_dyn)),
            Type::Optional(value) => return optional(self.apply(value, to_dyn)),
            Type::Meta(of) => return Type::Meta(Arc::new(self.apply(of, to_dyn))),
            Type::Map(key, value) => return map(self.apply(key, to_dyn), self.apply(value, to_dyn)),
            other => return other.clone(),
        };
        match bound {
            Some(bound) => self.apply(&bound, to_dyn),
            None if to_dyn => Type::Dyn,
            None => of.clone(),
        }
    }
}

/// The more general of two types which unify.
pub(crate) fn more_general(a: &Type, b: &Type) -> Type {
    if equal_or_less_specific(a, b) { a.clone() } else { b.clone() }
}

fn equal_or_less_specific(a: &Type, b: &Type) -> bool {
    if a.is_dyn() || matches!(a, Type::Param(_)) {
        return true;
    }
    if b.is_dyn() || matches!(b, Type::Param(_)) {
        return false;
    }
    match (a, b) {
        (Type::List(a), Type::List(b)) | (Type::Optional(a), Type::Optional(b)) => {
            equal_or_less_specific(a, b)
        }
        (Type::Map(key_a, value_a), Type::Map(key_b, value_b)) => {
            equal_or_less_specific(key_a, key_b) && equal_or_less_specific(value_a, value_b)
        }
        (Type::Meta(_), Type::Meta(_)) => true,
        _ => a == b,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fresh(number: usize) -> Type {
        Type::Param(Param::Fresh(number))
    }

    #[test]
    fn variables_take_the_more_general_type() {
        let mut substitution = Substitution::default();
        assert!(substitution.assign(&list(Type::Int), &list(fresh(0))));
        assert!(substitution.assign(&Type::Dyn, &fresh(0)));
        assert_eq!(substitution.apply(&fresh(0), false), Type::Dyn);
    }

    #[test]
    fn what_does_not_fit_leaves_no_trace() {
        let mut substitution = Substitution::default();
        assert!(!substitution.assign_all(&[Type::Int, Type::Int], &[fresh(0), Type::String]));
        assert_eq!(substitution.apply(&fresh(0), false), fresh(0));
    }

    #[test]
    fn no_type_contains_itself() {
        let mut substitution = Substitution::default();
        assert!(!substitution.assign(&fresh(0), &list(fresh(0))));
    }
}
