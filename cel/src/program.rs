//! Compiling expressions, and evaluating them for devices.

use crate::check::check;
use crate::device::{DeviceView, Interner};
use crate::error::{CompileError, EvalError};
use crate::eval::Machine;
use crate::library::Functions;
use crate::options::{CompileOptions, Purpose};
use crate::parse::parse;
use crate::plan::{Node, plan};
use crate::types::{SEMVER, Type};
use crate::validate::validate;
use crate::value::Value;
use std::fmt;

/// Compiles expressions. It holds the declarations of all functions, so keep it; it keeps nothing of what it compiles.
pub struct Compiler {
    with_includes: Functions,
    without_includes: Functions,
}

impl Default for Compiler {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Compiler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compiler").finish_non_exhaustive()
    }
}

impl Compiler {
    /// A compiler.
    pub fn new() -> Self {
        Self { with_includes: Functions::new(true), without_includes: Functions::new(false) }
    }

    /// Compiles an expression for devices whose names are in `interner`, which gets those of the expression.
    ///
    /// # Errors
    ///
    /// What is wrong with the expression, or that it is too long or too deeply nested.
    pub fn compile(
        &self,
        source: &str,
        options: &CompileOptions,
        interner: &mut Interner,
    ) -> Result<Program, CompileError> {
        let functions = if options.has_lists() { &self.with_includes } else { &self.without_includes };
        let (ast, root) = parse(source)?;
        let checked = check(&ast, root, functions, options)?;
        validate(&ast, root, &checked)?;
        check_result(checked.type_of(root), options)?;
        let (root, slots) = plan(&ast, root, &checked, interner)?;
        Ok(Program { root, slots, cost_limit: options.cost_limit })
    }
}

/// Whether the type is what the expression is used for (`validateOutputType`).
fn check_result(of: &Type, options: &CompileOptions) -> Result<(), CompileError> {
    let scalar =
        |of: &Type| of.is_dyn() || matches!(of, Type::Bool | Type::Int | Type::String) || *of == SEMVER;
    let (fits, needed) = match options.purpose {
        Purpose::Selector => {
            (*of == Type::Bool || *of == options.attribute_type(), "bool or the unknown type".to_owned())
        }
        Purpose::DerivedAttribute => {
            let in_list = |of: &Type| matches!(of, Type::List(element) if scalar(element));
            let lists = options.has_lists();
            let or_list = if lists { " or a list of these scalars" } else { "" };
            (
                scalar(of) || (lists && in_list(of)),
                format!("a primitive scalar (string, integer, boolean, semver){or_list}"),
            )
        }
    };
    if fits { Ok(()) } else { Err(CompileError::ResultType(format!("must evaluate to {needed}, not {of}"))) }
}

/// A compiled expression. It can be shared between threads.
#[derive(Debug)]
pub struct Program {
    root: Node,
    slots: usize,
    cost_limit: u64,
}

/// The outcome of an evaluation.
#[derive(Debug)]
pub struct Evaluation<'a> {
    /// The value, or why there is none.
    pub result: Result<Value<'a>, EvalError>,
    /// What was charged, also for an evaluation that failed; 0 for a device that can't be converted.
    pub cost: u64,
}

impl Program {
    /// Evaluates the expression for a device built with the interner that it was compiled with.
    pub fn evaluate<'a>(&'a self, device: DeviceView<'a>) -> Evaluation<'a> {
        if let Some(reason) = device.device.conversion_error() {
            return Evaluation { result: Err(EvalError::Device(reason.into())), cost: 0 };
        }
        let mut machine = Machine::new(device, self.slots, self.cost_limit);
        let result = machine.eval(&self.root);
        Evaluation { result, cost: machine.cost() }
    }

    /// Whether the device is suitable.
    ///
    /// # Errors
    ///
    /// Why the evaluation failed, or that its result is no truth value.
    pub fn matches(&self, device: DeviceView<'_>) -> Result<bool, EvalError> {
        truth(self.evaluate(device).result?)
    }

    /// Whether the device is suitable, as [`Program::matches`] says it, and what it cost to find that out.
    pub fn matches_at_cost(&self, device: DeviceView<'_>) -> (Result<bool, EvalError>, u64) {
        let Evaluation { result, cost } = self.evaluate(device);
        (result.and_then(truth), cost)
    }

    /// The derived attribute of the device.
    ///
    /// # Errors
    ///
    /// Why the evaluation failed, or that its result can't be an attribute.
    pub fn derive(&self, device: DeviceView<'_>) -> Result<DerivedAttribute, EvalError> {
        DerivedAttribute::new(self.evaluate(device).result?)
    }
}

/// The truth value that a selector gave.
pub(crate) fn truth(value: Value<'_>) -> Result<bool, EvalError> {
    match value {
        Value::Bool(value) => Ok(value),
        Value::Optional(Some(value)) => truth(value.as_ref().clone()),
        other => Err(EvalError::Result(
            format!("CEL result of type {} could not be converted to bool", other.type_name()).into(),
        )),
    }
}

/// The value of a derived attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DerivedAttribute {
    /// A number.
    Int(i64),
    /// A truth value.
    Bool(bool),
    /// A text.
    String(String),
    /// A version, as text.
    Version(String),
    /// Numbers.
    Ints(Vec<i64>),
    /// Truth values.
    Bools(Vec<bool>),
    /// Texts; also the empty list.
    Strings(Vec<String>),
    /// Versions, as texts.
    Versions(Vec<String>),
}

impl DerivedAttribute {
    /// The attribute that a result stands for (`valToDeviceAttribute`).
    pub(crate) fn new(value: Value<'_>) -> Result<Self, EvalError> {
        match value {
            Value::Bool(value) => Ok(Self::Bool(value)),
            Value::Int(value) => Ok(Self::Int(value)),
            Value::String(text) => Ok(Self::String(text.as_str().to_owned())),
            Value::Type(name) => Ok(Self::String(name.to_owned())),
            Value::Semver(version) => Ok(Self::Version(version.get().to_string())),
            Value::Optional(Some(value)) if !matches!(*value, Value::List(_)) => {
                Self::new(value.as_ref().clone())
            }
            Value::List(items) => Self::list(&items),
            other => {
                Err(EvalError::Result(format!("unsupported CEL return type: {}", other.type_name()).into()))
            }
        }
    }

    fn list(items: &[Value<'_>]) -> Result<Self, EvalError> {
        let mut elements = Vec::with_capacity(items.len());
        for item in items {
            elements.push(Self::new(item.clone())?);
        }
        let all = match elements.first() {
            None => Some(Self::Strings(Vec::new())),
            Some(Self::Bool(_)) => collect(elements, |element| match element {
                Self::Bool(value) => Some(value),
                _ => None,
            })
            .map(Self::Bools),
            Some(Self::Int(_)) => collect(elements, |element| match element {
                Self::Int(value) => Some(value),
                _ => None,
            })
            .map(Self::Ints),
            Some(Self::String(_)) => collect(elements, |element| match element {
                Self::String(value) => Some(value),
                _ => None,
            })
            .map(Self::Strings),
            Some(Self::Version(_)) => collect(elements, |element| match element {
                Self::Version(value) => Some(value),
                _ => None,
            })
            .map(Self::Versions),
            Some(_) => None,
        };
        all.ok_or_else(|| EvalError::Result("list elements must be scalars of the same type".into()))
    }
}

fn collect<T>(
    elements: Vec<DerivedAttribute>,
    get: impl Fn(DerivedAttribute) -> Option<T>,
) -> Option<Vec<T>> {
    elements.into_iter().map(get).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Device;

    #[test]
    fn values_are_small() {
        assert!(size_of::<Result<Value<'_>, EvalError>>() <= 32);
    }

    #[test]
    fn everything_can_be_shared_between_threads() {
        fn shareable<T: Send + Sync>() {}
        shareable::<Compiler>();
        shareable::<Program>();
        shareable::<Interner>();
        shareable::<Device>();
        shareable::<EvalError>();
    }
}
