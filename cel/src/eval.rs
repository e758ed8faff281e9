//! The evaluator. It charges as cel-go does: for each identifier, qualifier and call when it is done, also when it failed.

use crate::cost::{CostRule, LIST, MAP, smaller};
use crate::device::DeviceView;
use crate::error::EvalError;
use crate::library::operators::append;
use crate::library::{Call, lists};
use crate::map::{Entries, MapKey};
use crate::plan::{Attribute, Base, CallNode, Fold, Key, ListNode, MapNode, Node, Qualifier};
use crate::value::{Equality, Fuel, Map, Text, Value, device_field, int, text_size};
use std::sync::Arc;

/// A variable of a loop.
enum Slot<'a> {
    /// Out of scope, or taken to be changed.
    Empty,
    /// An accumulator which nobody has read yet.
    Unread(&'a Node),
    Value(Value<'a>),
    Failed(EvalError),
}

/// One evaluation.
pub(crate) struct Machine<'a> {
    view: DeviceView<'a>,
    slots: Vec<Slot<'a>>,
    cost: u64,
    limit: u64,
    fuel: Fuel,
}

type Evaluated<'a> = Result<Value<'a>, EvalError>;

impl<'a> Machine<'a> {
    pub(crate) fn new(view: DeviceView<'a>, slots: usize, limit: u64) -> Self {
        let slots = std::iter::repeat_with(|| Slot::Empty).take(slots).collect();
        Self { view, slots, cost: 0, limit, fuel: Fuel::new() }
    }

    /// What has been charged so far.
    pub(crate) fn cost(&self) -> u64 {
        self.cost
    }

    #[inline]
    fn charge(&mut self, cost: u64) -> Result<(), EvalError> {
        self.cost = self.cost.saturating_add(cost);
        if self.cost > self.limit { Err(EvalError::CostLimitExceeded) } else { Ok(()) }
    }

    /// Evaluates a node.
    pub(crate) fn eval(&mut self, node: &'a Node) -> Evaluated<'a> {
        match node {
            Node::Const(value) => Ok(Value::of_constant(value)),
            Node::Driver => {
                self.charge(2)?;
                Ok(Value::String(Text::Borrowed(self.view.driver())))
            }
            Node::Lookup { kind, key, name } => {
                self.charge(4)?;
                kind.value(self.view, *key).ok_or_else(|| EvalError::NoSuchKey(name.clone()))
            }
            Node::Has { kind, key } => {
                self.charge(3)?;
                Ok(Value::Bool(kind.has(self.view, *key)))
            }
            Node::Known(known) => {
                self.charge(known.cost)?;
                match &known.result {
                    Ok(value) => Ok(Value::of_constant(value)),
                    Err(error) => Err(error.clone()),
                }
            }
            Node::Attribute(attribute) => self.eval_attribute(attribute),
            Node::And(terms) => self.eval_logic(terms, false),
            Node::Or(terms) => self.eval_logic(terms, true),
            Node::Equal { sides, negated } => self.eval_equal(sides, *negated),
            Node::Call(call) => self.eval_call(call),
            Node::Append { accu, list, cost } => self.eval_append(*accu, list, *cost),
            Node::Insert { accu, args } => self.eval_insert(*accu, args),
            Node::List(list) => self.eval_list(list),
            Node::Map(map) => self.eval_map(map),
            Node::InSet { element, set } => self.eval_in_set(element, set),
            Node::OptionalOr { sides, unwrap } => self.eval_optional_or(sides, *unwrap),
            Node::Fold(fold) => self.eval_fold(fold),
        }
    }

    #[inline(never)]
    fn eval_in_set(&mut self, element: &'a Node, set: &'a [Value<'static>]) -> Evaluated<'a> {
        let element = self.eval(element)?;
        if let Value::Bytes(_) | Value::Semver(_) | Value::Format(_) = element {
            return Err(EvalError::unhashable(element.type_name()));
        }
        for constant in set {
            if element.equals(constant, &mut self.fuel)? {
                return Ok(Value::Bool(true));
            }
        }
        Ok(Value::Bool(false))
    }

    #[inline(never)]
    fn eval_optional_or(&mut self, [left, right]: &'a [Node; 2], unwrap: bool) -> Evaluated<'a> {
        match (self.eval(left)?, unwrap) {
            (Value::Optional(None), _) => self.eval(right),
            (Value::Optional(Some(value)), true) => Ok(value.as_ref().clone()),
            (value @ Value::Optional(_), false) => Ok(value),
            _ => Err(EvalError::NoSuchOverload),
        }
    }

    /// `&&` ends at the first false, `||` at the first true; otherwise the first error counts.
    #[inline(never)]
    fn eval_logic(&mut self, terms: &'a [Node], decisive: bool) -> Evaluated<'a> {
        let mut failure = None;
        for term in terms {
            let error = match self.eval(term) {
                Ok(Value::Bool(value)) if value == decisive => return Ok(Value::Bool(decisive)),
                Ok(Value::Bool(_)) => continue,
                Ok(_) => EvalError::NoSuchOverload,
                Err(error) if error.is_final() => return Err(error),
                Err(error) => error,
            };
            failure.get_or_insert(error);
        }
        failure.map_or(Ok(Value::Bool(!decisive)), Err)
    }

    /// Evaluates a node; only errors that end the evaluation are errors here.
    #[inline]
    fn attempt(&mut self, node: &'a Node) -> Result<Evaluated<'a>, EvalError> {
        match self.eval(node) {
            Err(error) if error.is_final() => Err(error),
            other => Ok(other),
        }
    }

    #[inline(never)]
    fn eval_equal(&mut self, [left, right]: &'a [Node; 2], negated: bool) -> Evaluated<'a> {
        let rule = if negated { CostRule::Smaller } else { CostRule::Equals };
        let left = match self.eval(left) {
            Ok(left) => left,
            Err(error) if error.is_final() => return Err(error),
            Err(error) => {
                let right = self.attempt(right)?;
                let cost = rule.cost(None, right.as_ref().ok(), None, &mut self.fuel)?;
                self.charge(cost)?;
                return Err(error);
            }
        };
        if let Node::Const(right) = right {
            return self.compare(&left, right, rule);
        }
        match self.eval(right) {
            Ok(right) => self.compare(&left, &right, rule),
            Err(error) if error.is_final() => Err(error),
            Err(error) => {
                let cost = rule.cost(Some(&left), None, None, &mut self.fuel)?;
                self.charge(cost)?;
                Err(error)
            }
        }
    }

    /// Whether two values are equal, or by the rule for it different.
    fn compare(&mut self, left: &Value<'a>, right: &Value<'a>, rule: CostRule) -> Evaluated<'a> {
        let equality = left.equality(right, &mut self.fuel)?;
        let cost = match (left, right) {
            (Value::Int(_) | Value::Bool(_), Value::Int(_) | Value::Bool(_)) => 1,
            (Value::String(a), Value::String(b)) => {
                let size = text_size(a.as_str());
                // Equal texts have equal sizes.
                smaller(size, if equality == Equality::Equal { size } else { text_size(b.as_str()) })
            }
            _ => rule.cost(Some(left), Some(right), None, &mut self.fuel)?,
        };
        self.charge(cost)?;
        match (equality, rule) {
            (equality, CostRule::Smaller) => Ok(Value::Bool(equality != Equality::Equal)),
            (Equality::Undefined, _) => Err(EvalError::NoSuchOverload),
            (equality, _) => Ok(Value::Bool(equality == Equality::Equal)),
        }
    }

    #[inline(never)]
    fn eval_call(&mut self, call: &'a CallNode) -> Evaluated<'a> {
        match call.args.as_ref() {
            [arg] => match self.eval(arg) {
                Ok(arg) => self.finish_call(call, &[arg]),
                Err(error) => self.fail_call(call, [None, None], error),
            },
            [left, right] => {
                let left = match self.eval(left) {
                    Ok(left) => left,
                    Err(error) if error.is_final() || call.stops_early => return Err(error),
                    Err(error) => {
                        let right = self.attempt(right)?;
                        return self.fail_call(call, [None, right.as_ref().ok()], error);
                    }
                };
                match self.eval(right) {
                    Ok(right) => self.finish_call(call, &[left, right]),
                    Err(error) => self.fail_call(call, [Some(&left), None], error),
                }
            }
            args => {
                let mut values = Vec::with_capacity(args.len());
                for (index, arg) in args.iter().enumerate() {
                    match self.attempt(arg)? {
                        Ok(value) => values.push(value),
                        // What was charged for the arguments so far is all if one is missing.
                        Err(error) if index + 1 < args.len() => return Err(error),
                        Err(error) => {
                            return self.fail_call(call, [values.first(), values.get(1)], error);
                        }
                    }
                }
                self.finish_call(call, &values)
            }
        }
    }

    /// Carries out a call whose arguments are evaluated, and charges for it.
    fn finish_call(&mut self, call: &'a CallNode, args: &[Value<'a>]) -> Evaluated<'a> {
        let result = (call.implementation)(&mut Call {
            function: call.function,
            args,
            pattern: call.pattern.as_ref(),
            fuel: &mut self.fuel,
        });
        if let Err(error) = &result
            && error.is_final()
        {
            return result;
        }
        let cost = match call.cost {
            CostRule::One => 1,
            rule => rule.cost(args.first(), args.get(1), result.as_ref().ok(), &mut self.fuel)?,
        };
        self.charge(cost)?;
        result
    }

    /// Charges for a call of which an argument failed.
    fn fail_call(
        &mut self,
        call: &'a CallNode,
        [first, second]: [Option<&Value<'a>>; 2],
        error: EvalError,
    ) -> Evaluated<'a> {
        if error.is_final() {
            return Err(error);
        }
        if let (CostRule::SelfCompare(0), None, _) | (CostRule::SelfCompare(1), _, None) =
            (call.cost, first, second)
        {
            return Err(EvalError::Internal(format!("{} of: {error}", call.function).into()));
        }
        let cost = call.cost.cost(first, second, None, &mut self.fuel)?;
        self.charge(cost)?;
        Err(error)
    }

    #[inline(never)]
    fn eval_list(&mut self, list: &'a ListNode) -> Evaluated<'a> {
        let items = self.eval_elements(list);
        self.charge(LIST)?;
        items.map(Value::list)
    }

    #[inline(never)]
    fn eval_map(&mut self, map: &'a MapNode) -> Evaluated<'a> {
        let entries = self.eval_entries(map);
        self.charge(MAP)?;
        entries.map(|entries| Value::Map(Map::Entries(Arc::new(entries))))
    }

    fn eval_elements(&mut self, list: &'a ListNode) -> Result<Vec<Value<'a>>, EvalError> {
        let mut items = Vec::with_capacity(list.elements.len());
        for (element, optional) in &list.elements {
            match (self.eval(element)?, optional) {
                (Value::Optional(value), true) => items.extend(value.map(|value| value.as_ref().clone())),
                (other, true) => {
                    return Err(EvalError::text(format!(
                        "cannot initialize optional list element from non-optional value of type {}",
                        other.type_name()
                    )));
                }
                (value, false) => items.push(value),
            }
        }
        self.fuel.take_values(items.len())?;
        Ok(items)
    }

    fn eval_entries(&mut self, map: &'a MapNode) -> Result<Entries<'a>, EvalError> {
        let mut entries = Entries::default();
        for (key, value, optional) in &map.entries {
            let key = MapKey::new(&self.eval(key)?)?;
            match (self.eval(value)?, optional) {
                (Value::Optional(Some(value)), true) => {
                    entries.insert(key, value.as_ref().clone());
                }
                (Value::Optional(None), true) => entries.remove(&key),
                (other, true) => {
                    return Err(EvalError::text(format!(
                        "cannot initialize optional entry from non-optional value of type {}",
                        other.type_name()
                    )));
                }
                (value, false) => {
                    entries.insert(key, value);
                }
            }
        }
        self.fuel.take_values(entries.len())?;
        Ok(entries)
    }

    /// Evaluates an attribute, and charges for it unless it is a conditional or a test.
    #[inline(never)]
    fn eval_attribute(&mut self, attribute: &'a Attribute) -> Evaluated<'a> {
        let value = self.resolve(attribute);
        if let Err(error) = &value
            && error.is_final()
        {
            return value;
        }
        match (&attribute.base, attribute.test) {
            (Base::Conditional { .. }, true) => self.cost = self.cost.saturating_sub(1),
            (Base::Conditional { .. }, false) | (_, true) => {}
            (_, false) => self.charge(1)?,
        }
        match value {
            Ok(Value::Optional(value)) if attribute.test => Ok(Value::Bool(value.is_some())),
            other => other,
        }
    }

    /// Evaluates an attribute without the charge for itself.
    fn resolve(&mut self, attribute: &'a Attribute) -> Evaluated<'a> {
        let (base, qualifiers) = match &attribute.base {
            Base::Device => match attribute.qualifiers.split_first() {
                Some((first, rest)) => (self.device_field(first)?, rest),
                None => return Ok(Value::Map(Map::Device(self.view))),
            },
            Base::Domain(kind, domain) => {
                self.charge(2)?;
                (Value::Map(Map::Domain(self.view, *kind, *domain)), attribute.qualifiers.as_slice())
            }
            Base::Local(slot) => (self.local(*slot)?, attribute.qualifiers.as_slice()),
            Base::Computed(node) => (self.eval(node)?, attribute.qualifiers.as_slice()),
            Base::Conditional { condition, truthy, falsy } => {
                let branch = match self.eval(condition)? {
                    Value::Bool(true) => truthy,
                    Value::Bool(false) => falsy,
                    _ => return Err(EvalError::NoSuchOverload),
                };
                (self.resolve_node(branch)?, attribute.qualifiers.as_slice())
            }
        };
        if qualifiers.is_empty() {
            return Ok(base);
        }
        self.qualify_all(base, qualifiers)
    }

    /// The value of a branch or an index: an attribute there is not charged for itself.
    fn resolve_node(&mut self, node: &'a Node) -> Evaluated<'a> {
        match node {
            Node::Attribute(attribute) => self.resolve(attribute),
            other => self.eval(other),
        }
    }

    /// A field of `device`. All exist, so an optional one is as good.
    fn device_field(&mut self, qualifier: &'a Qualifier) -> Evaluated<'a> {
        let Key::Const { value: Value::String(name), .. } = &qualifier.key else {
            return Err(EvalError::NoSuchOverload);
        };
        self.charge(1)?;
        match device_field(self.view, name.as_str()) {
            Some(_) if qualifier.test => Ok(Value::Bool(true)),
            Some(value) if qualifier.optional => Ok(Value::some(value)),
            Some(value) => Ok(value),
            None => Err(EvalError::NoSuchKey(name.as_str().into())),
        }
    }

    /// Applies qualifiers in order. Once one is optional, or the base was, all are, and so is the result.
    fn qualify_all(&mut self, base: Value<'a>, qualifiers: &'a [Qualifier]) -> Evaluated<'a> {
        let (mut value, mut optional) = match base {
            Value::Optional(None) => return Ok(Value::NONE),
            Value::Optional(Some(value)) => (value.as_ref().clone(), true),
            value => (value, false),
        };
        for qualifier in qualifiers {
            optional |= qualifier.optional;
            let found = self.qualify(&value, qualifier, optional || qualifier.test);
            match found {
                Err(error) if error.is_final() || optional => return Err(error),
                Ok(None) if optional => return Ok(Value::NONE),
                _ => {}
            }
            self.charge(1)?;
            value = match found? {
                found if qualifier.test => Value::Bool(found.is_some()),
                Some(found) => found,
                None => return Ok(Value::NONE),
            };
        }
        Ok(if optional { Value::some(value) } else { value })
    }

    /// One qualifier. Something missing is an error, or `None` if `lenient`.
    fn qualify(
        &mut self,
        value: &Value<'a>,
        qualifier: &'a Qualifier,
        lenient: bool,
    ) -> Result<Option<Value<'a>>, EvalError> {
        let computed;
        let key: &Value<'_> = match &qualifier.key {
            Key::Const { value: key, name } => {
                if let (Value::Map(Map::Domain(view, kind, domain)), Some(name)) = (value, name) {
                    let found = view.interner.find_key(*domain, *name).and_then(|key| kind.value(*view, key));
                    return match found {
                        None if !lenient => Err(no_such_key(key)),
                        found => Ok(found),
                    };
                }
                key
            }
            Key::Computed(node) => {
                computed = self.resolve_node(node)?;
                match &computed {
                    Value::String(_) | Value::Int(_) | Value::Uint(_) | Value::Bool(_) | Value::Double(_) => {
                    }
                    other => {
                        return Err(EvalError::text(format!(
                            "invalid qualifier type: {}",
                            other.type_name()
                        )));
                    }
                }
                &computed
            }
        };
        match value {
            Value::Map(map) => match map.find(key) {
                None if !lenient => Err(no_such_key(key)),
                found => Ok(found),
            },
            Value::List(items) => {
                let index = list_index(key)?;
                match index.and_then(|index| items.get(index)) {
                    None if !lenient => Err(EvalError::IndexOutOfBounds(key_text(key))),
                    found => Ok(found.cloned()),
                }
            }
            _ if lenient => Ok(None),
            _ => Err(no_such_key(key)),
        }
    }

    /// The value of a variable; the start value of an accumulator is computed when it is first read.
    fn local(&mut self, slot: usize) -> Evaluated<'a> {
        if let Some(Slot::Unread(_)) = self.slots.get(slot) {
            let Some(Slot::Unread(init)) =
                self.slots.get_mut(slot).map(|slot| std::mem::replace(slot, Slot::Empty))
            else {
                return Err(EvalError::NoSuchOverload);
            };
            let value = self.attempt(init)?;
            self.set(slot, value);
        }
        match self.slots.get(slot) {
            Some(Slot::Value(value)) => Ok(value.clone()),
            Some(Slot::Failed(error)) => Err(error.clone()),
            _ => Err("variable is not set".into()),
        }
    }

    fn set(&mut self, slot: usize, value: Evaluated<'a>) {
        if let Some(place) = self.slots.get_mut(slot) {
            *place = match value {
                Ok(value) => Slot::Value(value),
                Err(error) => Slot::Failed(error),
            };
        }
    }

    fn clear(&mut self, slot: usize) {
        if let Some(place) = self.slots.get_mut(slot) {
            *place = Slot::Empty;
        }
    }

    /// Takes the accumulator out of its variable, charged as reading it.
    fn take(&mut self, slot: usize) -> Result<Evaluated<'a>, EvalError> {
        // Reading it computes it if need be; the clone is dropped before the original is changed.
        let value = match self.local(slot) {
            Err(error) if error.is_final() => return Err(error),
            other => other,
        };
        self.charge(1)?;
        self.clear(slot);
        Ok(value)
    }

    #[inline(never)]
    fn eval_append(&mut self, accu: usize, list: &'a ListNode, cost: u64) -> Evaluated<'a> {
        let collected = self.take(accu)?;
        let elements = match self.eval_elements(list) {
            Err(error) if error.is_final() => return Err(error),
            other => other,
        };
        self.charge(cost)?;
        let result = match (collected, elements) {
            (Ok(Value::List(collected)), Ok(elements)) => {
                let mut collected = Ok(Value::List(collected));
                for element in elements {
                    let Ok(Value::List(list)) = collected else { break };
                    collected = append(list, element, &mut self.fuel);
                }
                collected
            }
            (Err(error), _) | (_, Err(error)) => Err(error),
            _ => Err(EvalError::NoSuchOverload),
        };
        self.charge(1)?;
        result
    }

    #[inline(never)]
    fn eval_insert(&mut self, accu: usize, args: &'a [Node]) -> Evaluated<'a> {
        let collected = self.take(accu)?;
        // With a key and a value, nothing is evaluated after what failed, and the call is not charged for.
        let stops_early = args.len() > 2;
        if collected.is_err() && stops_early {
            return collected;
        }
        let mut values = Vec::with_capacity(2);
        for (index, arg) in args.iter().enumerate().skip(1) {
            let value = self.attempt(arg)?;
            if value.is_err() && index + 1 < args.len() {
                return value;
            }
            values.push(value);
        }
        let values = match values.into_iter().collect::<Result<Vec<_>, _>>() {
            Ok(values) => values,
            Err(error) => {
                self.charge(1)?;
                return Err(collected.err().unwrap_or(error));
            }
        };
        let entries = match <[Value<'a>; 2]>::try_from(values) {
            Ok([key, value]) => vec![(key, value)],
            Err(mut values) => {
                let Some(Value::Map(map)) = values.pop() else {
                    self.charge(1)?;
                    return Err(collected.err().unwrap_or(EvalError::NoSuchOverload));
                };
                map.entries()
            }
        };
        let result = match collected {
            Ok(Value::Map(map)) => lists::insert(map, entries, &mut self.fuel),
            Ok(_) => Err(EvalError::NoSuchOverload),
            Err(error) => Err(error),
        };
        self.charge(1)?;
        result
    }

    #[inline(never)]
    fn eval_fold(&mut self, fold: &'a Fold) -> Evaluated<'a> {
        let range = self.eval(&fold.range)?;
        if let Some(place) = self.slots.get_mut(fold.accu) {
            *place = Slot::Unread(&fold.init);
        }
        match (&range, fold.var2) {
            (Value::List(items), None) => {
                for item in items.iter() {
                    if !self.turn(fold, item.clone(), None)? {
                        break;
                    }
                }
            }
            (Value::List(items), Some(_)) => {
                for (index, item) in items.iter().enumerate() {
                    if !self.turn(fold, Value::Int(int(index)), Some(item.clone()))? {
                        break;
                    }
                }
            }
            (Value::Map(map), None) => {
                self.fuel.take(map.len())?;
                for key in map.keys() {
                    if !self.turn(fold, key, None)? {
                        break;
                    }
                }
            }
            (Value::Map(map), Some(_)) => {
                self.fuel.take(map.len())?;
                for (key, value) in map.entries() {
                    if !self.turn(fold, key, Some(value))? {
                        break;
                    }
                }
            }
            (other, None) => {
                return Err(EvalError::text(format!("got '{}', expected iterable type", other.type_name())));
            }
            (other, Some(_)) => {
                return Err(EvalError::text(format!(
                    "unsupported comprehension range type: {}",
                    other.type_name()
                )));
            }
        }
        self.clear(fold.var);
        if let Some(var2) = fold.var2 {
            self.clear(var2);
        }
        let result = self.eval(&fold.result);
        self.clear(fold.accu);
        result
    }

    /// One turn of a loop, and whether there should be another. An error in the condition does not end the loop.
    fn turn(
        &mut self,
        fold: &'a Fold,
        first: Value<'a>,
        second: Option<Value<'a>>,
    ) -> Result<bool, EvalError> {
        self.set(fold.var, Ok(first));
        if let (Some(var2), Some(second)) = (fold.var2, second) {
            self.set(var2, Ok(second));
        }
        // Loops cost something in each turn, but some only a little.
        self.fuel.take(1)?;
        if let Ok(Value::Bool(false)) = self.attempt(&fold.condition)? {
            return Ok(false);
        }
        let accu = self.attempt(&fold.step)?;
        self.set(fold.accu, accu);
        Ok(true)
    }
}

/// A key as errors name it.
fn key_text(key: &Value<'_>) -> Box<str> {
    match key {
        Value::String(text) => text.as_str().into(),
        other => other.to_string().into(),
    }
}

fn no_such_key(key: &Value<'_>) -> EvalError {
    EvalError::NoSuchKey(key_text(key))
}

/// An index into a list, `None` if it is out of any list's range.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn list_index(key: &Value<'_>) -> Result<Option<usize>, EvalError> {
    match key {
        Value::Int(index) => Ok(usize::try_from(*index).ok()),
        Value::Uint(index) => Ok(usize::try_from(*index).ok()),
        Value::Double(index) if index.fract() == 0.0 => {
            Ok((0.0..4e9).contains(index).then_some(*index as usize))
        }
        Value::Double(index) => Err(EvalError::text(format!("unsupported index value {index} in list"))),
        other => Err(EvalError::text(format!("unsupported index type '{}' in list", other.type_name()))),
    }
}
