//! The type checker: gives each node a type and each call its possible variants (`checker/checker.go` of cel-go).

use crate::ast::{Ast, Comprehension, Element, Entry, Expr, NodeId};
use crate::error::CompileError;
use crate::library::{Function, Functions};
use crate::options::CompileOptions;
use crate::types::{self, CIDR, DEVICE, IP, Substitution, Type, list, map, optional};
use crate::value::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What the checker found out about an expression.
pub(crate) struct Checked<'f> {
    types: Vec<Type>,
    calls: BTreeMap<NodeId, Resolution<'f>>,
    references: BTreeMap<NodeId, Reference>,
}

/// The function of a call and its variants that fit.
#[derive(Clone)]
pub(crate) struct Resolution<'f> {
    pub(crate) function: &'f Function,
    /// The variants' positions in the function.
    pub(crate) overloads: Vec<usize>,
    /// The target is the namespace of the function's name.
    pub(crate) namespaced: bool,
}

/// What an identifier, or a selection which spells one, refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reference {
    Device,
    /// A variable of a loop.
    Local(String),
    Type(&'static str),
}

impl Checked<'_> {
    pub(crate) fn type_of(&self, id: NodeId) -> &Type {
        self.types.get(id).unwrap_or(&Type::Dyn)
    }

    pub(crate) fn reference(&self, id: NodeId) -> Option<&Reference> {
        self.references.get(&id)
    }
}

impl<'f> Checked<'f> {
    pub(crate) fn call(&self, id: NodeId) -> Option<&Resolution<'f>> {
        self.calls.get(&id)
    }
}

/// Identifiers that stand for types.
fn type_identifier(name: &str) -> Option<(&'static str, Type)> {
    let list_of_dyn = || list(Type::Dyn);
    Some(match name {
        "bool" => ("bool", Type::Bool),
        "bytes" => ("bytes", Type::Bytes),
        "double" => ("double", Type::Double),
        "google.protobuf.Duration" => ("google.protobuf.Duration", Type::Duration),
        "google.protobuf.Timestamp" => ("google.protobuf.Timestamp", Type::Timestamp),
        "int" => ("int", Type::Int),
        "list" => ("list", list_of_dyn()),
        "map" => ("map", map(Type::Dyn, Type::Dyn)),
        "net.CIDR" => ("net.CIDR", CIDR),
        "net.IP" => ("net.IP", IP),
        "null_type" => ("null_type", Type::Null),
        "optional_type" => ("optional_type", optional(Type::Dyn)),
        "string" => ("string", Type::String),
        "type" => ("type", Type::Meta(Arc::new(Type::Dyn))),
        "uint" => ("uint", Type::Uint),
        _ => return None,
    })
}

/// Checks an expression.
pub(crate) fn check<'f>(
    ast: &Ast,
    root: NodeId,
    functions: &'f Functions,
    options: &CompileOptions,
) -> Result<Checked<'f>, CompileError> {
    let mut checker = Checker {
        ast,
        functions,
        options,
        types: vec![None; ast.len()],
        calls: BTreeMap::new(),
        references: BTreeMap::new(),
        scopes: Vec::new(),
        substitution: Substitution::default(),
        fresh: 0,
    };
    checker.check(root)?;
    let substitution = checker.substitution;
    let types =
        checker.types.into_iter().map(|of| substitution.apply(&of.unwrap_or(Type::Dyn), true)).collect();
    if substitution.is_exhausted() {
        return error("types are too large");
    }
    Ok(Checked { types, calls: checker.calls, references: checker.references })
}

struct Checker<'c, 'f> {
    ast: &'c Ast,
    functions: &'f Functions,
    options: &'c CompileOptions,
    types: Vec<Option<Type>>,
    calls: BTreeMap<NodeId, Resolution<'f>>,
    references: BTreeMap<NodeId, Reference>,
    scopes: Vec<(String, Type)>,
    substitution: Substitution,
    fresh: usize,
}

fn error<T>(text: impl Into<String>) -> Result<T, CompileError> {
    Err(CompileError::Check(format!("ERROR: <input>: {}", text.into())))
}

fn undeclared<T>(name: &str) -> Result<T, CompileError> {
    error(format!("undeclared reference to '{name}' (in container '')"))
}

fn mismatch<T>(expected: &Type, found: &Type) -> Result<T, CompileError> {
    error(format!("expected type '{expected}' but found '{found}'"))
}

type Checks = Result<Type, CompileError>;

impl<'f> Checker<'_, 'f> {
    /// Checks a node and the nodes below it, and notes and returns its type.
    fn check(&mut self, id: NodeId) -> Checks {
        let ast = self.ast;
        let of = match ast.get(id) {
            Expr::Literal(value) => literal_type(value),
            Expr::Ident(name) => self.check_ident(id, name)?,
            Expr::Select { operand, field, test } => self.check_select(id, *operand, field, *test)?,
            Expr::Call { function, target, args } => self.check_call(id, function, *target, args)?,
            Expr::List(elements) => self.check_list(elements)?,
            Expr::Map(entries) => self.check_map(entries)?,
            Expr::Comprehension(fold) => self.check_fold(fold)?,
        };
        if self.substitution.is_exhausted() {
            return error("types are too large");
        }
        if let Some(place) = self.types.get_mut(id) {
            *place = Some(of.clone());
        }
        Ok(of)
    }

    fn fresh(&mut self) -> Type {
        self.fresh += 1;
        Type::Param(types::Param::Fresh(self.fresh - 1))
    }

    fn resolve(&self, of: &Type) -> Type {
        self.substitution.apply(of, false)
    }

    fn check_ident(&mut self, id: NodeId, name: &str) -> Checks {
        let (global, plain) = match name.strip_prefix('.') {
            Some(plain) => (true, plain),
            None => (false, name),
        };
        if !global && let Some((local, of)) = self.scopes.iter().rev().find(|(local, _)| local == plain) {
            self.references.insert(id, Reference::Local(local.clone()));
            return Ok(of.clone());
        }
        self.check_global(id, plain).map_or_else(|| undeclared(plain), Ok)
    }

    fn check_global(&mut self, id: NodeId, name: &str) -> Option<Type> {
        if name == "device" {
            self.references.insert(id, Reference::Device);
            return Some(DEVICE);
        }
        let (name, of) = type_identifier(name)?;
        self.references.insert(id, Reference::Type(name));
        Some(Type::Meta(Arc::new(of)))
    }

    fn check_select(&mut self, id: NodeId, operand: NodeId, field: &str, test: bool) -> Checks {
        // `google.protobuf.Duration` is one name, unless its first part is a variable.
        if !test && let Some(name) = self.ast.qualified_name(id) {
            let root = name.split('.').next().unwrap_or_default();
            let local = self.scopes.iter().any(|(local, _)| local == root);
            if !local && let Some(of) = self.check_global(id, name.trim_start_matches('.')) {
                return Ok(of);
            }
        }
        let of = self.check_field(operand, field, false)?;
        Ok(if test { Type::Bool } else { self.resolve(&of) })
    }

    fn check_field(&mut self, operand: NodeId, field: &str, is_optional: bool) -> Checks {
        let operand = self.check(operand)?;
        let operand = self.resolve(&operand);
        let (target, was_optional) = match &operand {
            Type::Optional(value) => (value.as_ref(), true),
            other => (other, false),
        };
        let of = match target {
            Type::Map(_, value) => value.as_ref().clone(),
            Type::Object(name) => match (target == &DEVICE).then(|| self.device_field(field)).flatten() {
                Some(of) => of,
                None => return error(format!("undefined field '{field}' in '{name}'")),
            },
            Type::Param(_) => {
                self.substitution.assign(&Type::Dyn, target);
                Type::Dyn
            }
            Type::Dyn | Type::Any => Type::Dyn,
            other => return error(format!("type '{other}' does not support field selection")),
        };
        Ok(if was_optional || is_optional { optional(of) } else { of })
    }

    fn device_field(&self, field: &str) -> Option<Type> {
        Some(match field {
            "driver" => Type::String,
            "attributes" => map(Type::String, map(Type::String, self.options.attribute_type())),
            "capacity" => map(Type::String, map(Type::String, types::QUANTITY)),
            "allowMultipleAllocations" if self.options.has_multiple_allocations() => Type::Bool,
            _ => return None,
        })
    }

    fn check_call(&mut self, id: NodeId, name: &str, target: Option<NodeId>, args: &[NodeId]) -> Checks {
        if name == "_?._" {
            return self.check_optional_select(id, name, args);
        }
        let mut arg_types = args.iter().map(|arg| self.check(*arg)).collect::<Result<Vec<_>, _>>()?;
        let Some(target) = target else {
            let Some(function) = self.functions.get(name.trim_start_matches('.')) else {
                return undeclared(name);
            };
            return self.resolve_overload(id, function, false, false, &arg_types);
        };
        if let Some(prefix) = self.ast.qualified_name(target)
            && let Some(function) = self.functions.get(format!("{prefix}.{name}").trim_start_matches('.'))
        {
            return self.resolve_overload(id, function, false, true, &arg_types);
        }
        arg_types.insert(0, self.check(target)?);
        let Some(function) = self.functions.get(name) else { return undeclared(name) };
        self.resolve_overload(id, function, true, false, &arg_types)
    }

    fn check_optional_select(&mut self, id: NodeId, name: &str, args: &[NodeId]) -> Checks {
        let [operand, field] = args else { return error("incorrect signature of optional selection") };
        let ast = self.ast;
        let Some(field_name) = ast.string_literal(*field) else {
            return error("unsupported optional field selection");
        };
        let of = self.check_field(*operand, field_name, true)?;
        if let Some(function) = self.functions.get(name) {
            self.calls.insert(id, Resolution { function, overloads: vec![0], namespaced: false });
        }
        Ok(self.resolve(&of))
    }

    fn resolve_overload(
        &mut self,
        id: NodeId,
        function: &'f Function,
        member: bool,
        namespaced: bool,
        args: &[Type],
    ) -> Checks {
        let mut overloads = Vec::new();
        let mut result: Option<Type> = None;
        for (index, overload) in function.overloads.iter().enumerate() {
            if overload.member != member {
                continue;
            }
            let mut fresh: BTreeMap<&'static str, usize> = BTreeMap::new();
            let next = &mut self.fresh;
            let mut instance = |name| {
                *fresh.entry(name).or_insert_with(|| {
                    *next += 1;
                    *next - 1
                })
            };
            let params: Vec<Type> = overload.params.iter().map(|of| of.instantiate(&mut instance)).collect();
            let declared = overload.result.instantiate(&mut instance);
            if !self.substitution.assign_all(args, &params) {
                continue;
            }
            overloads.push(index);
            let of = self.resolve(&declared);
            result = Some(match result {
                None => of,
                Some(present) if !present.is_dyn() && present != of => Type::Dyn,
                Some(present) => present,
            });
        }
        let Some(result) = result else {
            let args: Vec<String> =
                args.iter().map(|of| self.substitution.apply(of, true).to_string()).collect();
            let applied = match args.split_first() {
                Some((target, rest)) if member => format!("{target}.({})", rest.join(", ")),
                _ => format!("({})", args.join(", ")),
            };
            return error(format!(
                "found no matching overload for '{}' applied to '{applied}'",
                function.name
            ));
        };
        self.calls.insert(id, Resolution { function, overloads, namespaced });
        Ok(result)
    }

    fn check_list(&mut self, elements: &[Element]) -> Checks {
        let mut joined = None;
        for element in elements {
            let mut of = self.check(element.value)?;
            if element.optional {
                of = unwrap_optional(of)?;
            }
            joined = Some(self.join(joined, of));
        }
        Ok(list(joined.unwrap_or_else(|| self.fresh())))
    }

    fn check_map(&mut self, entries: &[Entry]) -> Checks {
        let (mut keys, mut values) = (None, None);
        for entry in entries {
            let key = self.check(entry.key)?;
            keys = Some(self.join(keys, key));
            let mut value = self.check(entry.value)?;
            if entry.optional {
                value = unwrap_optional(value)?;
            }
            values = Some(self.join(values, value));
        }
        let key = keys.unwrap_or_else(|| self.fresh());
        let value = values.unwrap_or_else(|| self.fresh());
        Ok(map(key, value))
    }

    /// The most general type of both; types that do not unify make a literal of `dyn`, which the validator refuses.
    fn join(&mut self, previous: Option<Type>, current: Type) -> Type {
        match previous {
            None => current,
            Some(previous) if self.substitution.assign(&previous, &current) => {
                types::more_general(&previous, &current)
            }
            Some(_) => Type::Dyn,
        }
    }

    fn check_fold(&mut self, fold: &Comprehension) -> Checks {
        let range = self.check(fold.range)?;
        let accu = self.check(fold.init)?;
        let range = self.resolve(&range);
        let two = fold.var2.is_some();
        let (var, var2) = match &range {
            Type::List(element) if two => (Type::Int, element.as_ref().clone()),
            Type::List(element) => (element.as_ref().clone(), Type::Dyn),
            Type::Map(key, value) => (key.as_ref().clone(), value.as_ref().clone()),
            Type::Dyn | Type::Param(_) => {
                self.substitution.assign(&Type::Dyn, &range);
                (Type::Dyn, Type::Dyn)
            }
            other => {
                return error(format!(
                    "expression of type '{other}' cannot be range of a comprehension (must be list, map, or dynamic)"
                ));
            }
        };
        let outer = self.scopes.len();
        self.scopes.push((fold.accu.clone(), accu.clone()));
        self.scopes.push((fold.var.clone(), var));
        self.scopes.extend(fold.var2.iter().map(|name| (name.clone(), var2.clone())));
        let condition = self.check(fold.condition)?;
        self.expect(&Type::Bool, &condition)?;
        let step = self.check(fold.step)?;
        self.expect(&accu, &step)?;
        self.scopes.truncate(outer + 1);
        let result = self.check(fold.result)?;
        self.scopes.truncate(outer);
        Ok(self.resolve(&result))
    }

    fn expect(&mut self, expected: &Type, found: &Type) -> Result<(), CompileError> {
        if self.substitution.assign(expected, found) { Ok(()) } else { mismatch(expected, found) }
    }
}

fn unwrap_optional(of: Type) -> Checks {
    match of {
        Type::Optional(value) => Ok(value.as_ref().clone()),
        of if of.is_dyn() => Ok(of),
        of => mismatch(&optional(of.clone()), &of),
    }
}

fn literal_type(value: &Value<'_>) -> Type {
    match value {
        Value::Null => Type::Null,
        Value::Bool(_) => Type::Bool,
        Value::Int(_) => Type::Int,
        Value::Uint(_) => Type::Uint,
        Value::Double(_) => Type::Double,
        Value::String(_) => Type::String,
        Value::Bytes(_) => Type::Bytes,
        _ => Type::Dyn,
    }
}
