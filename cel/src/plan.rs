//! From a checked expression to the form that is evaluated, as cel-go plans it with its optimisations on: constant lists,
//! maps and conversions are computed now (and cost nothing later), membership in a constant list is a set lookup.

use crate::ast::{Ast, Comprehension, Expr, NodeId};
use crate::check::{Checked, Reference, Resolution};
use crate::cost::{CostRule, LIST};
use crate::device::{Interner, KeyId, NameId};
use crate::error::{CompileError, EvalError};
use crate::library::{Call, Implementation};
use crate::map::{Entries, MapKey};
use crate::regexes::Pattern;
use crate::types::Type;
use crate::value::{Fuel, Kind, Map, Value};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A node of a program.
#[derive(Debug)]
pub(crate) enum Node {
    Const(Value<'static>),
    Attribute(Box<Attribute>),
    /// `device.driver`
    Driver,
    /// `device.attributes["domain"].name`, which is one lookup.
    Lookup {
        kind: Kind,
        key: KeyId,
        name: Box<str>,
    },
    /// `has(device.attributes["domain"].name)`
    Has {
        kind: Kind,
        key: KeyId,
    },
    /// A call with constant arguments, which is charged for each time.
    Known(Box<Known>),
    And(Box<[Node]>),
    Or(Box<[Node]>),
    /// `==`, or `!=`
    Equal {
        sides: Box<[Node; 2]>,
        negated: bool,
    },
    Call(Box<CallNode>),
    /// `accumulator + [element]`; making the list costs this much.
    Append {
        accu: usize,
        list: Box<ListNode>,
        cost: u64,
    },
    /// `cel.@mapInsert(accumulator, …)`
    Insert {
        accu: usize,
        args: Box<[Node]>,
    },
    List(Box<ListNode>),
    Map(Box<MapNode>),
    /// `element in [constants]`
    InSet {
        element: Box<Node>,
        set: Box<[Value<'static>]>,
    },
    /// `optional.or(optional)`, or `optional.orValue(value)`
    OptionalOr {
        sides: Box<[Node; 2]>,
        unwrap: bool,
    },
    Fold(Box<Fold>),
}

/// The outcome of a call and its cost.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) result: Result<Value<'static>, EvalError>,
    pub(crate) cost: u64,
}

/// A value with qualifiers: `base.field[index]`.
#[derive(Debug)]
pub(crate) struct Attribute {
    pub(crate) base: Base,
    pub(crate) qualifiers: Vec<Qualifier>,
    /// `has(…)`: the last qualifier only tests.
    pub(crate) test: bool,
}

/// Where an attribute starts.
#[derive(Debug)]
pub(crate) enum Base {
    Device,
    /// `device.attributes["domain"]`, which is charged as two qualifiers.
    Domain(Kind, NameId),
    Local(usize),
    Computed(Node),
    Conditional {
        condition: Node,
        truthy: Node,
        falsy: Node,
    },
}

#[derive(Debug)]
pub(crate) struct Qualifier {
    pub(crate) key: Key,
    pub(crate) optional: bool,
    /// The last one of `has(…)`.
    pub(crate) test: bool,
}

#[derive(Debug)]
pub(crate) enum Key {
    /// A constant with its name or domain in the interner, which saves a lookup.
    Const {
        value: Value<'static>,
        name: Option<NameId>,
    },
    Computed(Node),
}

/// A call of a function with strict arguments.
pub(crate) struct CallNode {
    pub(crate) function: &'static str,
    pub(crate) implementation: Implementation,
    pub(crate) args: Box<[Node]>,
    pub(crate) cost: CostRule,
    /// Arguments after one that fails are not evaluated.
    pub(crate) stops_early: bool,
    pub(crate) pattern: Option<Pattern>,
}

impl std::fmt::Debug for CallNode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CallNode")
            .field("function", &self.function)
            .field("args", &self.args)
            .finish_non_exhaustive()
    }
}

#[derive(Debug)]
pub(crate) struct ListNode {
    /// Elements, and whether they are optional.
    pub(crate) elements: Box<[(Node, bool)]>,
}

#[derive(Debug)]
pub(crate) struct MapNode {
    /// Keys, values, and whether they are optional.
    pub(crate) entries: Box<[(Node, Node, bool)]>,
}

/// A loop.
#[derive(Debug)]
pub(crate) struct Fold {
    pub(crate) range: Node,
    pub(crate) var: usize,
    pub(crate) var2: Option<usize>,
    pub(crate) accu: usize,
    /// Evaluated when the accumulator is first read.
    pub(crate) init: Node,
    pub(crate) condition: Node,
    pub(crate) step: Node,
    pub(crate) result: Node,
}

/// Plans an expression. Returns its root and the number of variables.
pub(crate) fn plan(
    ast: &Ast,
    root: NodeId,
    checked: &Checked<'_>,
    interner: &mut Interner,
) -> Result<(Node, usize), CompileError> {
    let mut planner = Planner { ast, checked, interner, scopes: BTreeMap::new(), slots: 0 };
    let mut node = planner.plan(root)?;
    let slots = planner.slots;
    specialise(&mut node, interner);
    Ok((node, slots))
}

struct Planner<'p> {
    ast: &'p Ast,
    checked: &'p Checked<'p>,
    interner: &'p mut Interner,
    /// Variables in scope; the last of the same name hides the others.
    scopes: BTreeMap<String, Vec<usize>>,
    slots: usize,
}

type Planned = Result<Node, CompileError>;

fn constant_error(error: &EvalError) -> CompileError {
    CompileError::Constant(error.to_string())
}

impl Planner<'_> {
    fn plan(&mut self, id: NodeId) -> Planned {
        let ast = self.ast;
        if let Some(reference) = self.checked.reference(id) {
            return self.plan_reference(id, reference);
        }
        match ast.get(id) {
            Expr::Literal(value) => Ok(Node::Const(value.clone())),
            Expr::Ident(name) => Err(CompileError::Check(format!("ERROR: undeclared reference to '{name}'"))),
            Expr::Select { operand, field, test } => {
                let operand = self.plan(*operand)?;
                let key = self.const_key(Value::text(field.as_str()));
                Ok(qualify(operand, Qualifier { key, optional: false, test: *test }))
            }
            Expr::Call { function, target, args } => self.plan_call(id, function, *target, args),
            Expr::List(elements) => {
                let elements = elements
                    .iter()
                    .map(|element| Ok((self.plan(element.value)?, element.optional)))
                    .collect::<Result<Box<[_]>, CompileError>>()?;
                Ok(const_list(ListNode { elements }))
            }
            Expr::Map(entries) => {
                let entries = entries
                    .iter()
                    .map(|entry| Ok((self.plan(entry.key)?, self.plan(entry.value)?, entry.optional)))
                    .collect::<Result<Box<[_]>, CompileError>>()?;
                const_map(MapNode { entries })
            }
            Expr::Comprehension(fold) => self.plan_fold(fold),
        }
    }

    fn plan_reference(&mut self, id: NodeId, reference: &Reference) -> Planned {
        let base = match reference {
            Reference::Device => Base::Device,
            Reference::Type(name) => return Ok(Node::Const(Value::Type(name))),
            // Kubernetes takes such a variable for the name of a type.
            Reference::Local(name) if matches!(self.checked.type_of(id), Type::Meta(_)) => {
                return Err(CompileError::Constant(format!("reference to undefined type: {name}")));
            }
            Reference::Local(name) => match self.scopes.get(name).and_then(|slots| slots.last()) {
                Some(slot) => Base::Local(*slot),
                None => return Err(CompileError::Check(format!("ERROR: undeclared reference to '{name}'"))),
            },
        };
        Ok(Node::Attribute(Box::new(Attribute { base, qualifiers: Vec::new(), test: false })))
    }

    fn const_key(&mut self, value: Value<'static>) -> Key {
        let name = match &value {
            Value::String(text) => Some(self.interner.name(text.as_str())),
            _ => None,
        };
        Key::Const { value, name }
    }

    fn plan_call(&mut self, id: NodeId, name: &str, target: Option<NodeId>, args: &[NodeId]) -> Planned {
        let Some(resolution) = self.checked.call(id) else {
            return Err(CompileError::Check(format!("ERROR: undeclared reference to '{name}'")));
        };
        let target = target.filter(|_| !resolution.namespaced);
        let args: Vec<Node> =
            target.iter().chain(args).map(|arg| self.plan(*arg)).collect::<Result<_, CompileError>>()?;
        let name = resolution.function.name;
        match (name, two(args)) {
            ("_&&_", args) => Ok(Node::And(args.into())),
            ("_||_", args) => Ok(Node::Or(args.into())),
            ("_==_" | "_!=_", Args::Two(sides)) => Ok(Node::Equal { sides, negated: name == "_!=_" }),
            ("_[_]" | "_[?_]" | "_?._", Args::Two(sides)) => self.plan_index(*sides, name != "_[_]"),
            ("or" | "orValue", Args::Two(sides)) => Ok(Node::OptionalOr { sides, unwrap: name == "orValue" }),
            ("_?_:_", args) => {
                let mut args = Vec::from(args).into_iter();
                match (args.next(), args.next(), args.next()) {
                    (Some(condition), Some(truthy), Some(falsy)) => {
                        Ok(Node::Attribute(Box::new(Attribute {
                            base: Base::Conditional { condition, truthy, falsy },
                            qualifiers: Vec::new(),
                            test: false,
                        })))
                    }
                    _ => Err(CompileError::Check("ERROR: incomplete conditional".to_owned())),
                }
            }
            ("@in", Args::Two(sides)) => plan_in(resolution, *sides),
            (_, args) => plan_function(resolution, args.into()),
        }
    }

    fn plan_index(&mut self, [operand, index]: [Node; 2], optional: bool) -> Planned {
        let key = match index {
            Node::Const(
                value @ (Value::String(_)
                | Value::Int(_)
                | Value::Uint(_)
                | Value::Bool(_)
                | Value::Double(_)),
            ) => self.const_key(value),
            Node::Const(other) => {
                return Err(CompileError::Constant(format!("invalid qualifier type: {}", other.type_name())));
            }
            computed => Key::Computed(computed),
        };
        Ok(qualify(operand, Qualifier { key, optional, test: false }))
    }

    fn declare(&mut self, name: &str) -> usize {
        let slot = self.slots;
        self.slots += 1;
        self.scopes.entry(name.to_owned()).or_default().push(slot);
        slot
    }

    fn forget(&mut self, name: &str) {
        if let Some(slots) = self.scopes.get_mut(name) {
            slots.pop();
        }
    }

    fn plan_fold(&mut self, fold: &Comprehension) -> Planned {
        let init = self.plan(fold.init)?;
        let range = self.plan(fold.range)?;
        let accu = self.declare(&fold.accu);
        let var = self.declare(&fold.var);
        let var2 = fold.var2.as_ref().map(|name| self.declare(name));
        let condition = self.plan(fold.condition)?;
        let step = collect_in_place(self.plan(fold.step)?, accu);
        self.forget(&fold.var);
        if let Some(name) = &fold.var2 {
            self.forget(name);
        }
        let result = self.plan(fold.result)?;
        self.forget(&fold.accu);
        Ok(Node::Fold(Box::new(Fold { range, var, var2, accu, init, condition, step, result })))
    }
}

/// Adds a qualifier to a node, which becomes the start of an attribute if it is none.
fn qualify(node: Node, qualifier: Qualifier) -> Node {
    let mut attribute = match node {
        Node::Attribute(attribute) if !attribute.test => attribute,
        other => Box::new(Attribute { base: Base::Computed(other), qualifiers: Vec::new(), test: false }),
    };
    attribute.test = qualifier.test;
    attribute.qualifiers.push(qualifier);
    Node::Attribute(attribute)
}

/// Arguments: mostly two.
enum Args {
    Two(Box<[Node; 2]>),
    Other(Vec<Node>),
}

fn two(args: Vec<Node>) -> Args {
    match <[Node; 2]>::try_from(args) {
        Ok(sides) => Args::Two(Box::new(sides)),
        Err(args) => Args::Other(args),
    }
}

impl From<Args> for Vec<Node> {
    fn from(args: Args) -> Self {
        match args {
            Args::Two(sides) => Self::from(*sides),
            Args::Other(args) => args,
        }
    }
}

impl From<Args> for Box<[Node]> {
    fn from(args: Args) -> Self {
        Vec::from(args).into()
    }
}

/// Replaces the nodes which are cheaper to evaluate in one step, once the tree is complete.
fn specialise(node: &mut Node, interner: &mut Interner) {
    match node {
        Node::Attribute(attribute) => {
            match &mut attribute.base {
                Base::Device => start_at_domain(attribute, interner),
                Base::Domain(..) | Base::Local(_) => {}
                Base::Computed(inner) => specialise(inner, interner),
                Base::Conditional { condition, truthy, falsy } => {
                    specialise(condition, interner);
                    // A branch which is an attribute is charged differently, so it has to remain one.
                    for branch in [truthy, falsy] {
                        match branch {
                            Node::Attribute(attribute) if !matches!(attribute.base, Base::Computed(_)) => {}
                            other => specialise(other, interner),
                        }
                    }
                }
            }
            for qualifier in &mut attribute.qualifiers {
                match &mut qualifier.key {
                    Key::Computed(Node::Attribute(_)) | Key::Const { .. } => {}
                    Key::Computed(computed) => specialise(computed, interner),
                }
            }
            if let Some(special) = special(attribute, interner) {
                *node = special;
            }
        }
        Node::And(nodes) | Node::Or(nodes) | Node::Insert { args: nodes, .. } => {
            nodes.iter_mut().for_each(|node| specialise(node, interner));
        }
        Node::Equal { sides, .. } | Node::OptionalOr { sides, .. } => {
            sides.iter_mut().for_each(|node| specialise(node, interner));
        }
        Node::Call(call) => call.args.iter_mut().for_each(|node| specialise(node, interner)),
        Node::Append { list, .. } | Node::List(list) => {
            list.elements.iter_mut().for_each(|(node, _)| specialise(node, interner));
        }
        Node::Map(map) => {
            for (key, value, _) in &mut map.entries {
                specialise(key, interner);
                specialise(value, interner);
            }
        }
        Node::InSet { element, .. } => specialise(element, interner),
        Node::Fold(fold) => {
            let Fold { range, init, condition, step, result, .. } = fold.as_mut();
            for node in [range, init, condition, step, result] {
                specialise(node, interner);
            }
        }
        Node::Const(_) | Node::Driver | Node::Lookup { .. } | Node::Has { .. } | Node::Known(_) => {}
    }
}

/// Replaces the first two qualifiers of `device.attributes["domain"]` by their meaning.
fn start_at_domain(attribute: &mut Attribute, interner: &mut Interner) {
    let [field, domain, ..] = attribute.qualifiers.as_slice() else { return };
    let (Some(field), Some(domain)) = (field.plain_text(), domain.plain_text()) else { return };
    let kind = match field {
        "attributes" => Kind::Attributes,
        "capacity" => Kind::Capacity,
        _ => return,
    };
    attribute.base = Base::Domain(kind, interner.name(domain));
    attribute.qualifiers.drain(..2);
}

impl Qualifier {
    /// The text of a constant that has to be present.
    fn plain_text(&self) -> Option<&str> {
        match self {
            Self { key: Key::Const { value: Value::String(text), .. }, optional: false, test: false } => {
                Some(text.as_str())
            }
            _ => None,
        }
    }
}

/// The one-step form of an attribute, if it has one.
fn special(attribute: &Attribute, interner: &mut Interner) -> Option<Node> {
    match (&attribute.base, attribute.qualifiers.as_slice()) {
        (Base::Device, [field]) if field.plain_text() == Some("driver") => Some(Node::Driver),
        (Base::Domain(kind, domain), [name]) if !name.optional => {
            let Key::Const { value: Value::String(text), name: Some(id) } = &name.key else { return None };
            let (kind, key) = (*kind, interner.key(*domain, *id));
            Some(if name.test {
                Node::Has { kind, key }
            } else {
                Node::Lookup { kind, key, name: text.as_str().into() }
            })
        }
        _ => None,
    }
}

fn const_list(list: ListNode) -> Node {
    let mut values = Vec::new();
    for (element, optional) in &list.elements {
        match element {
            Node::Const(value) if !optional => values.push(value.clone()),
            _ => return Node::List(Box::new(list)),
        }
    }
    Node::Const(Value::list(values))
}

fn const_map(map: MapNode) -> Planned {
    let mut entries = Entries::default();
    for entry in &map.entries {
        let (Node::Const(key), Node::Const(value), false) = entry else {
            return Ok(Node::Map(Box::new(map)));
        };
        let key = MapKey::new(key).map_err(|error| constant_error(&error))?;
        entries.insert(key, value.clone());
    }
    Ok(Node::Const(Value::Map(Map::Entries(Arc::new(entries)))))
}

fn plan_in(resolution: &Resolution<'_>, sides: [Node; 2]) -> Planned {
    let in_list = resolution.overloads.as_slice() == [0];
    let [element, list] = sides;
    if let (true, Node::Const(Value::List(items))) = (in_list, &list) {
        if items.is_empty() {
            return Ok(Node::Const(Value::Bool(false)));
        }
        let hashable = |item: &Value<'_>| {
            matches!(
                item,
                Value::Bool(_) | Value::Int(_) | Value::Uint(_) | Value::Double(_) | Value::String(_)
            )
        };
        if items.iter().all(hashable) {
            let set = items.iter().cloned().collect();
            return Ok(Node::InSet { element: Box::new(element), set });
        }
    }
    plan_function(resolution, Box::new([element, list]))
}

/// Functions with one implementation for all variants, which gets all arguments whatever their values.
const SINGLE: [&str; 14] = [
    "_+_",
    "_-_",
    "_*_",
    "_/_",
    "_%_",
    "_<_",
    "_<=_",
    "_>_",
    "_>=_",
    "@in",
    "matches",
    "sort",
    "@sortByAssociatedKeys",
    "size",
];
/// Conversions, which are computed beforehand for constants.
const CONVERSIONS: [&str; 10] =
    ["bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint"];

fn plan_function(resolution: &Resolution<'_>, args: Box<[Node]>) -> Planned {
    let function = resolution.function;
    let only = match resolution.overloads.as_slice() {
        [index] => function.overloads.get(*index),
        _ => None,
    };
    let implementation = only.and_then(|overload| overload.implementation).unwrap_or(function.implementation);
    let cost = only.and_then(|overload| overload.cost).or(function.cost).unwrap_or(CostRule::One);
    let dispatched = only.is_none() && function.overloads.len() > 1 && !SINGLE.contains(&function.name);
    let pattern = match (function.name, &*args) {
        ("matches" | "find" | "findAll", [_, Node::Const(Value::String(source)), ..]) => {
            Some(Pattern::new(source.as_str()).map_err(CompileError::Constant)?)
        }
        _ => None,
    };
    if let (true, [Node::Const(value)]) = (CONVERSIONS.contains(&function.name), &*args) {
        let mut call = Call {
            function: function.name,
            args: std::slice::from_ref(value),
            pattern: None,
            fuel: &mut Fuel::new(),
        };
        let converted = implementation(&mut call).map_err(|error| constant_error(&error))?;
        return Ok(Node::Const(converted));
    }
    if let Some(known) = precompute(function.name, implementation, cost, &args) {
        return Ok(Node::Known(Box::new(known)));
    }
    Ok(Node::Call(Box::new(CallNode {
        function: function.name,
        implementation,
        stops_early: args.len() > 2 || dispatched || function.name == "format" || pattern.is_some(),
        args,
        cost,
        pattern,
    })))
}

/// Functions that only read a text: with a constant one the outcome is computed beforehand.
const PARSERS: [&str; 10] =
    ["cidr", "ip", "isCIDR", "isIP", "isQuantity", "isSemver", "isURL", "quantity", "semver", "url"];

/// The outcome of a call, if it is always the same and cheap to compute.
fn precompute(
    name: &'static str,
    implementation: Implementation,
    rule: CostRule,
    args: &[Node],
) -> Option<Known> {
    if !PARSERS.contains(&name) {
        return None;
    }
    let args: Vec<Value<'static>> = args
        .iter()
        .map(|arg| match arg {
            Node::Const(value) => Some(value.clone()),
            _ => None,
        })
        .collect::<Option<_>>()?;
    let mut fuel = Fuel::new();
    let result = implementation(&mut Call { function: name, args: &args, pattern: None, fuel: &mut fuel });
    let cost = rule.cost(args.first(), args.get(1), result.as_ref().ok(), &mut fuel).ok()?;
    Some(Known { result, cost })
}

/// Lets a loop's step add to the accumulator where it is, instead of copying it each time.
fn collect_in_place(node: Node, accu: usize) -> Node {
    match node {
        Node::Call(call) if call.cost == CostRule::One && is_local(call.args.first(), accu) => {
            match (call.function, &*call.args) {
                ("_+_", [_, Node::List(_) | Node::Const(Value::List(_))]) => {
                    match Vec::from(call.args).pop() {
                        Some(Node::List(list)) => Node::Append { accu, list, cost: LIST },
                        Some(Node::Const(Value::List(items))) => {
                            let elements =
                                items.iter().map(|item| (Node::Const(item.clone()), false)).collect();
                            Node::Append { accu, list: Box::new(ListNode { elements }), cost: 0 }
                        }
                        _ => Node::Const(Value::Null),
                    }
                }
                ("cel.@mapInsert", _) => Node::Insert { accu, args: call.args },
                _ => Node::Call(call),
            }
        }
        Node::Attribute(mut attribute) => {
            if let Base::Conditional { truthy, .. } = &mut attribute.base
                && attribute.qualifiers.is_empty()
            {
                let taken = std::mem::replace(truthy, Node::Const(Value::Null));
                *truthy = collect_in_place(taken, accu);
            }
            Node::Attribute(attribute)
        }
        other => other,
    }
}

fn is_local(node: Option<&Node>, slot: usize) -> bool {
    matches!(node, Some(Node::Attribute(attribute))
        if matches!(attribute.base, Base::Local(other) if other == slot) && attribute.qualifiers.is_empty())
}
