//! What Kubernetes refuses in checked expressions although it is well typed: malformed literals of durations, times and
//! patterns, mixed literals of lists and maps, and format strings that do not fit their arguments.

use crate::ast::{Ast, Expr, NodeId};
use crate::check::Checked;
use crate::error::CompileError;
use crate::library::format::{Part, parse};
use crate::library::time::{Timestamp, parse_duration};
use crate::regexes::Pattern;
use crate::types::Type;

fn refuse<T>(text: impl Into<String>) -> Result<T, CompileError> {
    Err(CompileError::Check(format!("ERROR: <input>: {}", text.into())))
}

/// Validates an expression.
pub(crate) fn validate(ast: &Ast, root: NodeId, checked: &Checked<'_>) -> Result<(), CompileError> {
    Validator { ast, checked }.visit(root, false)
}

struct Validator<'v> {
    ast: &'v Ast,
    checked: &'v Checked<'v>,
}

impl Validator<'_> {
    /// `mixed` allows mixed literals: they may stand in the arguments of `format`.
    fn visit(&self, id: NodeId, mixed: bool) -> Result<(), CompileError> {
        match self.ast.get(id) {
            Expr::Literal(_) | Expr::Ident(_) => Ok(()),
            Expr::Select { operand, .. } => self.visit(*operand, mixed),
            Expr::Call { function, target, args } => {
                self.visit_call(function, *target, args)?;
                let mixed = mixed || function == "format";
                target.iter().chain(args).try_for_each(|arg| self.visit(*arg, mixed))
            }
            Expr::List(elements) => {
                let types = elements.iter().map(|element| (element.value, element.optional));
                if !mixed {
                    self.homogeneous(types)?;
                }
                elements.iter().try_for_each(|element| self.visit(element.value, mixed))
            }
            Expr::Map(entries) => {
                if !mixed {
                    self.homogeneous(entries.iter().map(|entry| (entry.key, false)))?;
                    self.homogeneous(entries.iter().map(|entry| (entry.value, entry.optional)))?;
                }
                entries.iter().try_for_each(|entry| {
                    self.visit(entry.key, mixed)?;
                    self.visit(entry.value, mixed)
                })
            }
            Expr::Comprehension(fold) => [fold.range, fold.init, fold.condition, fold.step, fold.result]
                .into_iter()
                .try_for_each(|part| self.visit(part, mixed)),
        }
    }

    fn homogeneous(&self, elements: impl Iterator<Item = (NodeId, bool)>) -> Result<(), CompileError> {
        let mut first: Option<&Type> = None;
        for (id, optional) in elements {
            let of = match self.checked.type_of(id) {
                Type::Optional(value) if optional => value.as_ref(),
                other => other,
            };
            match first {
                Some(first) if first != of => {
                    return refuse(format!("expected type '{first}' but found '{of}'"));
                }
                Some(_) => {}
                None => first = Some(of),
            }
        }
        Ok(())
    }

    fn visit_call(
        &self,
        function: &str,
        target: Option<NodeId>,
        args: &[NodeId],
    ) -> Result<(), CompileError> {
        if function == "format" {
            return self.visit_format(target, args);
        }
        let Some(text) = args.first().and_then(|arg| self.ast.string_literal(*arg)) else { return Ok(()) };
        let valid = match function {
            "duration" => parse_duration(text).is_some(),
            "timestamp" => Timestamp::parse(text).is_some(),
            "matches" => Pattern::new(text).is_ok(),
            _ => true,
        };
        if valid { Ok(()) } else { refuse(format!("invalid {function} argument")) }
    }

    fn visit_format(&self, target: Option<NodeId>, args: &[NodeId]) -> Result<(), CompileError> {
        let (Some(text), [list]) = (target.and_then(|target| self.ast.string_literal(target)), args) else {
            return Ok(());
        };
        let Expr::List(elements) = self.ast.get(*list) else { return Ok(()) };
        let mut index = 0;
        for part in parse(text).or_else(refuse)? {
            let Part::Clause(clause) = part else { continue };
            let Some(element) = elements.get(index) else {
                return refuse(format!("index {index} out of range"));
            };
            self.check_clause(clause, element.value)?;
            index += 1;
        }
        if elements.len() > index {
            return refuse(format!(
                "too many arguments supplied to string.format (expected {index}, got {})",
                elements.len()
            ));
        }
        Ok(())
    }

    /// Checks an argument, for a string clause with all that a literal contains.
    fn check_clause(&self, clause: crate::library::format::Clause, id: NodeId) -> Result<(), CompileError> {
        clause.check(self.checked.type_of(id)).or_else(refuse)?;
        if !matches!(clause, crate::library::format::Clause::String) {
            return Ok(());
        }
        match self.ast.get(id) {
            Expr::List(elements) => {
                elements.iter().try_for_each(|element| self.check_clause(clause, element.value))
            }
            Expr::Map(entries) => entries.iter().try_for_each(|entry| {
                self.check_clause(clause, entry.key)?;
                self.check_clause(clause, entry.value)
            }),
            _ => Ok(()),
        }
    }
}
