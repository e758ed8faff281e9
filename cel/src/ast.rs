//! Expressions as a flat list of nodes, macros expanded.

use crate::value::Value;

/// The position of a node in an [`Ast`].
pub(crate) type NodeId = usize;

/// An expression.
#[derive(Debug, Default)]
pub(crate) struct Ast {
    nodes: Vec<Expr>,
}

/// A node. Names of functions and operators are those of cel-go (`_&&_`, `@in`).
#[derive(Clone, Debug)]
pub(crate) enum Expr {
    Literal(Value<'static>),
    Ident(String),
    /// `operand.field`, or with `test` `has(operand.field)`
    Select {
        operand: NodeId,
        field: String,
        test: bool,
    },
    Call {
        function: String,
        target: Option<NodeId>,
        args: Vec<NodeId>,
    },
    List(Vec<Element>),
    Map(Vec<Entry>),
    Comprehension(Box<Comprehension>),
}

/// An element of a list, with a leading `?` if optional.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Element {
    pub(crate) value: NodeId,
    pub(crate) optional: bool,
}

/// An entry of a map, with a leading `?` if optional.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) key: NodeId,
    pub(crate) value: NodeId,
    pub(crate) optional: bool,
}

/// A loop: `accu` starts as `init`; while `condition` holds, it becomes `step` for each element of `range`; then `result`.
#[derive(Clone, Debug)]
pub(crate) struct Comprehension {
    pub(crate) range: NodeId,
    pub(crate) var: String,
    pub(crate) var2: Option<String>,
    pub(crate) accu: String,
    pub(crate) init: NodeId,
    pub(crate) condition: NodeId,
    pub(crate) step: NodeId,
    pub(crate) result: NodeId,
}

/// The variable of loops which is never read.
pub(crate) const UNUSED: &str = "#unused";

impl Ast {
    pub(crate) fn push(&mut self, expr: Expr) -> NodeId {
        self.nodes.push(expr);
        self.nodes.len() - 1
    }

    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    pub(crate) fn get(&self, id: NodeId) -> &Expr {
        const MISSING: &Expr = &Expr::Literal(Value::Null);
        self.nodes.get(id).unwrap_or(MISSING)
    }

    /// The name that a chain of selections from an identifier spells: `a.b.c`.
    pub(crate) fn qualified_name(&self, id: NodeId) -> Option<String> {
        match self.get(id) {
            Expr::Ident(name) => Some(name.clone()),
            Expr::Select { operand, field, test: false } => {
                Some(format!("{}.{field}", self.qualified_name(*operand)?))
            }
            _ => None,
        }
    }

    /// The text of a string literal.
    pub(crate) fn string_literal(&self, id: NodeId) -> Option<&str> {
        match self.get(id) {
            Expr::Literal(Value::String(text)) => Some(text.as_str()),
            _ => None,
        }
    }
}
