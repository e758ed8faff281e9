//! The functions that expressions can call: declarations for the checker, implementations for the evaluator.
//!
//! Source: `k8s.io/apiserver/pkg/cel/environment/base.go` lists the libraries; the standard library is cel-go's
//! `common/stdlib`. An implementation dispatches on the values it is given, whichever variants the checker found
//! possible: a variant which the checker excludes would not accept the values either.

pub(crate) mod authz;
pub(crate) mod convert;
pub(crate) mod format;
pub(crate) mod format_named;
pub(crate) mod lists;
pub(crate) mod net;
pub(crate) mod operators;
pub(crate) mod optional;
pub(crate) mod quantity;
pub(crate) mod regex;
pub(crate) mod semver;
pub(crate) mod strings;
pub(crate) mod time;
pub(crate) mod url;

use crate::cost::CostRule;
use crate::error::EvalError;
use crate::regexes::Pattern;
use crate::types::Type;
use crate::value::{Fuel, Value};
use std::collections::BTreeMap;

/// A call in progress.
pub(crate) struct Call<'c, 'a> {
    /// The function's name.
    pub(crate) function: &'static str,
    /// Target, if any, and arguments.
    pub(crate) args: &'c [Value<'a>],
    /// The pattern of a regex function, if it is a constant.
    pub(crate) pattern: Option<&'a Pattern>,
    pub(crate) fuel: &'c mut Fuel,
}

/// The result of a function.
pub(crate) type Outcome<'a> = Result<Value<'a>, EvalError>;

/// The code of a function.
pub(crate) type Implementation = for<'c, 'a> fn(&mut Call<'c, 'a>) -> Outcome<'a>;

impl Call<'_, '_> {
    /// The error for arguments that no variant takes.
    pub(crate) fn no_such_overload(&self) -> EvalError {
        let types: Vec<&str> = self.args.iter().map(Value::type_name).collect();
        EvalError::NoSuchOverloadOf(format!("{}({})", self.function, types.join(", ")).into())
    }
}

/// One variant of a function.
pub(crate) struct Overload {
    pub(crate) member: bool,
    pub(crate) params: Vec<Type>,
    pub(crate) result: Type,
    /// Its own rule, if it has one.
    pub(crate) cost: Option<CostRule>,
    /// Its own code, if it has some.
    pub(crate) implementation: Option<Implementation>,
}

impl std::fmt::Debug for Overload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Overload")
            .field("params", &self.params)
            .field("result", &self.result)
            .finish_non_exhaustive()
    }
}

/// A function and its variants, in the order in which the checker tries them.
pub(crate) struct Function {
    pub(crate) name: &'static str,
    pub(crate) implementation: Implementation,
    /// The rule for all variants that have none of their own.
    pub(crate) cost: Option<CostRule>,
    pub(crate) overloads: Vec<Overload>,
}

impl Function {
    pub(crate) fn global(&mut self, params: impl Into<Vec<Type>>, result: Type) -> &mut Self {
        self.overload(false, params.into(), result)
    }

    pub(crate) fn member(&mut self, params: impl Into<Vec<Type>>, result: Type) -> &mut Self {
        self.overload(true, params.into(), result)
    }

    /// The rule of the variant added last.
    pub(crate) fn costs(&mut self, rule: CostRule) -> &mut Self {
        if let Some(overload) = self.overloads.last_mut() {
            overload.cost = Some(rule);
        }
        self
    }

    /// The code of the variant added last.
    pub(crate) fn done_by(&mut self, implementation: Implementation) -> &mut Self {
        if let Some(overload) = self.overloads.last_mut() {
            overload.implementation = Some(implementation);
        }
        self
    }

    /// The rule of all variants without their own.
    pub(crate) fn all_cost(&mut self, rule: CostRule) -> &mut Self {
        self.cost = Some(rule);
        self
    }

    fn overload(&mut self, member: bool, params: Vec<Type>, result: Type) -> &mut Self {
        self.overloads.push(Overload { member, params, result, cost: None, implementation: None });
        self
    }
}

/// All functions by name.
#[derive(Default)]
pub(crate) struct Functions {
    by_name: BTreeMap<&'static str, Function>,
}

impl Functions {
    /// Everything that expressions can call. `includes` is behind a gate for new expressions.
    pub(crate) fn new(includes: bool) -> Self {
        let mut functions = Self::default();
        operators::declare(&mut functions);
        convert::declare(&mut functions);
        time::declare(&mut functions);
        strings::declare(&mut functions);
        lists::declare(&mut functions, includes);
        optional::declare(&mut functions);
        quantity::declare(&mut functions);
        semver::declare(&mut functions);
        net::declare(&mut functions);
        url::declare(&mut functions);
        regex::declare(&mut functions);
        format_named::declare(&mut functions);
        authz::declare(&mut functions);
        functions
    }

    /// The function of this name, declared now if it is new.
    pub(crate) fn add(&mut self, name: &'static str, implementation: Implementation) -> &mut Function {
        self.by_name.entry(name).or_insert_with(|| Function {
            name,
            implementation,
            cost: None,
            overloads: Vec::new(),
        })
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Function> {
        self.by_name.get(name)
    }
}
