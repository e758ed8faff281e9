//! From text to an [`Ast`]: the `cel` crate's parser, limits, and the macros that it does not have.
//!
//! The crate's default parser (ANTLR) overflows a thread's stack on some thirty nested parentheses, so the other one is
//! taken. That one is not limited in all directions; [`scan`] is, before it starts.

use crate::ast::{Ast, Comprehension, Element, Entry, Expr, NodeId, UNUSED};
use crate::error::CompileError;
use crate::value::Value;
use cel::common::ast::{self, EntryExpr, IdedEntryExpr, IdedExpr, LiteralValue};
use cel::parser::PrattParser;
use std::borrow::Cow;

/// The longest expression that the API accepts, in bytes (`CELSelectorExpressionMaxLength`).
pub const MAX_LENGTH: usize = 10 * 1024;
/// The deepest nesting, as in cel-go.
pub const MAX_DEPTH: usize = 250;
/// The most nodes after macros are expanded. `optMap` doubles its target, so that a short text could otherwise become
/// arbitrarily large.
const MAX_NODES: usize = 50_000;
/// The most `?:` in an expression; in a row they are nested.
const MAX_CONDITIONALS: usize = 300;

const TOO_DEEP: CompileError = CompileError::TooDeep { limit: MAX_DEPTH };

/// Parses `source` and returns the tree with its root.
pub(crate) fn parse(source: &str) -> Result<(Ast, NodeId), CompileError> {
    if source.len() > MAX_LENGTH {
        return Err(CompileError::TooLong { len: source.len(), limit: MAX_LENGTH });
    }
    let source = scan(source)?;
    let parsed = PrattParser::new()
        .max_recursion_depth(u16::try_from(MAX_DEPTH).unwrap_or(u16::MAX))
        .enable_optional_syntax(true)
        .enable_ident_escape_syntax(true)
        .parse(&source)
        .map_err(|errors| {
            let texts: Vec<String> = errors
                .errors
                .iter()
                .map(|error| format!("ERROR: <input>:{}:{}: {}", error.pos.0, error.pos.1, error.msg))
                .collect();
            CompileError::Syntax(texts.join("\n"))
        })?;
    let mut converter = Converter { ast: Ast::default() };
    let root = converter.convert(&parsed, Depth { levels: 1, nodes: 0 });
    dismantle(parsed);
    Ok((converter.ast, root?))
}

/// Bounds what the parser would recurse over, and rewrites what it reads differently: the smallest integer in hexadecimal,
/// which it does not know, and `existsOne`.
fn scan(source: &str) -> Result<Cow<'_, str>, CompileError> {
    let bytes = source.as_bytes();
    let byte = |index: usize| bytes.get(index).copied().unwrap_or(0);
    let (mut depth, mut conditionals, mut index) = (0_usize, 0_usize, 0_usize);
    let (mut smallest, mut exists_one) = (Vec::new(), Vec::new());
    while index < bytes.len() {
        match byte(index) {
            b'(' | b'[' | b'{' => {
                depth += 1;
                if depth > MAX_DEPTH {
                    return Err(TOO_DEEP);
                }
            }
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            b'?' => {
                conditionals += 1;
                if conditionals > MAX_CONDITIONALS {
                    return Err(TOO_DEEP);
                }
            }
            b'/' if byte(index + 1) == b'/' => {
                while index < bytes.len() && byte(index) != b'\n' {
                    index += 1;
                }
            }
            b'e' if is_call_of(source, index, EXISTS_ONE) => exists_one.push(index),
            b'-' if source.get(index..).is_some_and(|rest| rest.starts_with(SMALLEST)) => {
                smallest.push(index);
            }
            b'`' => index = end_of_quoted(bytes, index, true),
            b'"' | b'\'' => {
                let before = byte(index.wrapping_sub(1)).to_ascii_lowercase();
                let further = byte(index.wrapping_sub(2)).to_ascii_lowercase();
                let raw = before == b'r' || (before == b'b' && further == b'r');
                index = end_of_quoted(bytes, index, raw);
            }
            _ => {}
        }
        index += 1;
    }
    let mut text = Cow::Borrowed(source);
    let mut replacements: Vec<(usize, &str, &str)> =
        smallest.into_iter().map(|start| (start, SMALLEST, "-9223372036854775808")).collect();
    replacements.extend(exists_one.into_iter().map(|start| (start, EXISTS_ONE, RENAMED_EXISTS_ONE)));
    replacements.sort_unstable();
    for (start, old, new) in replacements.into_iter().rev() {
        text.to_mut().replace_range(start..start + old.len(), new);
    }
    Ok(text)
}

const SMALLEST: &str = "-0x8000000000000000";
/// Kubernetes has this macro with two variables only, the parser also with one.
const EXISTS_ONE: &str = "existsOne";
const RENAMED_EXISTS_ONE: &str = "existsOne__two";

/// Whether the identifier at `start` is `name` and is called.
fn is_call_of(source: &str, start: usize, name: &str) -> bool {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let before = source.get(..start).and_then(|before| before.chars().next_back());
    let after = source.get(start..).and_then(|rest| rest.strip_prefix(name));
    !before.is_some_and(is_word) && after.is_some_and(|after| after.trim_start().starts_with('('))
}

/// The index of the last character of a quoted text.
fn end_of_quoted(bytes: &[u8], start: usize, raw: bool) -> usize {
    let quote = bytes.get(start).copied().unwrap_or(0);
    let is_quote = |index: usize| bytes.get(index) == Some(&quote);
    let triple = quote != b'`' && is_quote(start + 1) && is_quote(start + 2);
    let mut index = start + if triple { 3 } else { 1 };
    while index < bytes.len() {
        if !raw && bytes.get(index) == Some(&b'\\') {
            index += 1;
        } else if is_quote(index) && !triple {
            return index;
        } else if is_quote(index) && is_quote(index + 1) && is_quote(index + 2) {
            return index + 2;
        }
        index += 1;
    }
    index
}

/// Drops a parse tree without recursion.
fn dismantle(root: IdedExpr) {
    let mut pending = vec![root];
    while let Some(node) = pending.pop() {
        match node.expr {
            ast::Expr::Call(call) => {
                pending.extend(call.target.map(|target| *target));
                pending.extend(call.args);
            }
            ast::Expr::Select(select) => pending.push(*select.operand),
            ast::Expr::List(list) => pending.extend(list.elements),
            ast::Expr::Map(map) => {
                map.entries.into_iter().for_each(|entry| dismantle_entry(entry, &mut pending));
            }
            ast::Expr::Struct(message) => {
                message.entries.into_iter().for_each(|entry| dismantle_entry(entry, &mut pending));
            }
            ast::Expr::Comprehension(fold) => {
                pending.extend([
                    fold.iter_range,
                    fold.accu_init,
                    fold.loop_cond,
                    fold.loop_step,
                    fold.result,
                ]);
            }
            ast::Expr::Ident(_) | ast::Expr::Literal(_) | ast::Expr::Unspecified => {}
        }
    }
}

fn dismantle_entry(entry: IdedEntryExpr, pending: &mut Vec<IdedExpr>) {
    match entry.expr {
        EntryExpr::MapEntry(entry) => pending.extend([entry.key, entry.value]),
        EntryExpr::StructField(field) => pending.push(field.value),
    }
}

struct Converter {
    ast: Ast,
}

/// How deep a node is: in levels as cel-go counts them, and in nodes of the tree.
#[derive(Clone, Copy)]
struct Depth {
    levels: usize,
    nodes: usize,
}

/// The deepest tree, which takes stack. Logical operators and the like are no levels.
const MAX_TREE_DEPTH: usize = 500;

/// The levels between a node and those below it.
fn levels(expr: &ast::Expr) -> usize {
    match expr {
        ast::Expr::Call(call) => match call.func_name.as_str() {
            "_&&_" | "_||_" | "!_" | "-_" | "_?_:_" => 0,
            _ => 1,
        },
        ast::Expr::Select(_) | ast::Expr::List(_) | ast::Expr::Map(_) | ast::Expr::Comprehension(_) => 1,
        _ => 0,
    }
}

type Converted = Result<NodeId, CompileError>;

fn syntax(text: impl Into<String>) -> CompileError {
    CompileError::Syntax(text.into())
}

impl Converter {
    fn push(&mut self, expr: Expr) -> Converted {
        if self.ast.len() >= MAX_NODES {
            return Err(TOO_DEEP);
        }
        Ok(self.ast.push(expr))
    }

    fn convert(&mut self, node: &IdedExpr, depth: Depth) -> Converted {
        if depth.levels > MAX_DEPTH || depth.nodes > MAX_TREE_DEPTH {
            return Err(TOO_DEEP);
        }
        let below = Depth { levels: depth.levels + levels(&node.expr), nodes: depth.nodes + 1 };
        match &node.expr {
            ast::Expr::Unspecified => Err(syntax("ERROR: empty expression")),
            ast::Expr::Literal(literal) => self.push(Expr::Literal(literal_value(literal))),
            ast::Expr::Ident(name) => self.push(Expr::Ident(name.clone())),
            ast::Expr::Select(select) => {
                let operand = self.convert(&select.operand, below)?;
                self.push(Expr::Select { operand, field: select.field.clone(), test: select.test })
            }
            ast::Expr::Call(call) => match self.expand(call, below)? {
                Some(expanded) => Ok(expanded),
                None => self.convert_call(call, below),
            },
            ast::Expr::List(list) => {
                let elements = list
                    .elements
                    .iter()
                    .enumerate()
                    .map(|(index, element)| {
                        let optional = list.optional_indices.contains(&index);
                        Ok(Element { value: self.convert(element, below)?, optional })
                    })
                    .collect::<Result<_, CompileError>>()?;
                self.push(Expr::List(elements))
            }
            ast::Expr::Map(map) => {
                let entries = map
                    .entries
                    .iter()
                    .map(|entry| match &entry.expr {
                        EntryExpr::MapEntry(entry) => Ok(Entry {
                            key: self.convert(&entry.key, below)?,
                            value: self.convert(&entry.value, below)?,
                            optional: entry.optional,
                        }),
                        EntryExpr::StructField(_) => Err(syntax("ERROR: field in a map")),
                    })
                    .collect::<Result<_, CompileError>>()?;
                self.push(Expr::Map(entries))
            }
            ast::Expr::Struct(message) => Err(CompileError::Check(format!(
                "ERROR: undeclared reference to '{}': messages can't be constructed",
                message.type_name
            ))),
            ast::Expr::Comprehension(fold) => self.convert_fold(fold, below),
        }
    }

    fn convert_call(&mut self, call: &ast::CallExpr, depth: Depth) -> Converted {
        let target = call.target.as_ref().map(|target| self.convert(target, depth)).transpose()?;
        let args = self.convert_all(&call.args, depth)?;
        let function = match call.func_name.as_str() {
            RENAMED_EXISTS_ONE => EXISTS_ONE.to_owned(),
            name => name.to_owned(),
        };
        self.push(Expr::Call { function, target, args })
    }

    fn convert_all(&mut self, nodes: &[IdedExpr], depth: Depth) -> Result<Vec<NodeId>, CompileError> {
        nodes.iter().map(|node| self.convert(node, depth)).collect()
    }

    fn convert_fold(&mut self, fold: &ast::ComprehensionExpr, depth: Depth) -> Converted {
        check_variable(&fold.iter_var)?;
        let comprehension = Comprehension {
            range: self.convert(&fold.iter_range, depth)?,
            var: fold.iter_var.clone(),
            var2: fold.iter_var2.clone(),
            accu: fold.accu_var.clone(),
            init: self.convert(&fold.accu_init, depth)?,
            condition: self.convert(&fold.loop_cond, depth)?,
            step: self.convert(&fold.loop_step, depth)?,
            result: self.convert(&fold.result, depth)?,
        };
        self.push(Expr::Comprehension(Box::new(comprehension)))
    }

    /// The expansion of a macro that the parser does not have, if the call is one.
    fn expand(&mut self, call: &ast::CallExpr, depth: Depth) -> Result<Option<NodeId>, CompileError> {
        let Some(target) = call.target.as_deref() else { return Ok(None) };
        let expanded = match (call.func_name.as_str(), call.args.as_slice()) {
            ("bind", [var, init, result]) if is_ident(target, "cel") => {
                let accu = variable(var, "cel.bind() variable names must be simple identifiers")?;
                let init = self.convert(init, depth)?;
                let result = self.convert(result, depth)?;
                self.bind(accu, init, result)
            }
            ("optMap", [var, map]) => {
                let accu = variable(var, "optMap() variable name must be a simple identifier")?;
                self.optional_map(target, accu, map, true, depth)
            }
            ("optFlatMap", [var, map]) => {
                let accu = variable(var, "optFlatMap() variable name must be a simple identifier")?;
                self.optional_map(target, accu, map, false, depth)
            }
            ("sortBy", [var, key]) => self.sort_by(target, var, key, depth),
            ("all" | "exists" | RENAMED_EXISTS_ONE | "exists_one", [key, value, body]) => {
                let vars = variables(key, value)?;
                let (init, condition, step, result) = self.quantifier(&call.func_name, body, depth)?;
                self.fold(target, vars, init, condition, step, result, depth)
            }
            ("transformList" | "transformMap" | "transformMapEntry", [key, value, rest @ ..]) => {
                let (filter, transform) = match rest {
                    [transform] => (None, transform),
                    [filter, transform] => (Some(filter), transform),
                    _ => return Ok(None),
                };
                let vars = variables(key, value)?;
                self.transform(target, &call.func_name, vars, filter, transform, depth)
            }
            _ => return Ok(None),
        };
        expanded.map(Some)
    }

    fn ident(&mut self, name: &str) -> Converted {
        self.push(Expr::Ident(name.to_owned()))
    }

    fn literal(&mut self, value: Value<'static>) -> Converted {
        self.push(Expr::Literal(value))
    }

    fn call(&mut self, function: &str, args: Vec<NodeId>) -> Converted {
        self.push(Expr::Call { function: function.to_owned(), target: None, args })
    }

    fn member(&mut self, target: NodeId, function: &str, args: Vec<NodeId>) -> Converted {
        self.push(Expr::Call { function: function.to_owned(), target: Some(target), args })
    }

    /// A loop over nothing, whose accumulator is the variable.
    fn bind(&mut self, accu: String, init: NodeId, result: NodeId) -> Converted {
        let range = self.push(Expr::List(Vec::new()))?;
        let condition = self.literal(Value::Bool(false))?;
        let step = self.ident(&accu)?;
        self.push(Expr::Comprehension(Box::new(Comprehension {
            range,
            var: UNUSED.to_owned(),
            var2: None,
            accu,
            init,
            condition,
            step,
            result,
        })))
    }

    /// `target.hasValue() ? optional.of(bind(var, target.value(), map)) : optional.none()`
    fn optional_map(
        &mut self,
        target: &IdedExpr,
        accu: String,
        map: &IdedExpr,
        wrap: bool,
        depth: Depth,
    ) -> Converted {
        let tested = self.convert(target, depth)?;
        let condition = self.member(tested, "hasValue", Vec::new())?;
        let taken = self.convert(target, depth)?;
        let init = self.member(taken, "value", Vec::new())?;
        let result = self.convert(map, depth)?;
        let mut bound = self.bind(accu, init, result)?;
        if wrap {
            bound = self.call("optional.of", vec![bound])?;
        }
        let none = self.call("optional.none", Vec::new())?;
        self.call("_?_:_", vec![condition, bound, none])
    }

    /// `bind(list, target, list.@sortByAssociatedKeys(list.map(var, key)))`
    fn sort_by(&mut self, target: &IdedExpr, var: &IdedExpr, key: &IdedExpr, depth: Depth) -> Converted {
        const INPUT: &str = "@__sortBy_input__";
        if matches!(target.expr, ast::Expr::Literal(_) | ast::Expr::Map(_) | ast::Expr::Struct(_)) {
            return Err(syntax(
                "ERROR: sortBy can only be applied to a list, identifier, comprehension, call or select expression",
            ));
        }
        let var = variable(var, "argument is not an identifier")?;
        check_variable(&var)?;
        let init = self.convert(target, depth)?;
        let key = self.convert(key, depth)?;
        let step = self.append(key)?;
        let keys = Comprehension {
            range: self.ident(INPUT)?,
            var,
            var2: None,
            accu: ACCUMULATOR.to_owned(),
            init: self.push(Expr::List(Vec::new()))?,
            condition: self.literal(Value::Bool(true))?,
            step,
            result: self.ident(ACCUMULATOR)?,
        };
        let keys = self.push(Expr::Comprehension(Box::new(keys)))?;
        let list = self.ident(INPUT)?;
        let sorted = self.member(list, "@sortByAssociatedKeys", vec![keys])?;
        self.bind(INPUT.to_owned(), init, sorted)
    }

    /// `accumulator + [value]`
    fn append(&mut self, value: NodeId) -> Converted {
        let accu = self.ident(ACCUMULATOR)?;
        let list = self.push(Expr::List(vec![Element { value, optional: false }]))?;
        self.call("_+_", vec![accu, list])
    }

    /// Start, condition, step and result of `all`, `exists` and `existsOne`.
    fn quantifier(
        &mut self,
        function: &str,
        body: &IdedExpr,
        depth: Depth,
    ) -> Result<(NodeId, NodeId, NodeId, NodeId), CompileError> {
        let body = self.convert(body, depth)?;
        let accu = self.ident(ACCUMULATOR)?;
        let result = self.ident(ACCUMULATOR)?;
        Ok(match function {
            "all" => {
                let condition = self.ident(ACCUMULATOR)?;
                (
                    self.literal(Value::Bool(true))?,
                    self.call("@not_strictly_false", vec![condition])?,
                    self.call("_&&_", vec![accu, body])?,
                    result,
                )
            }
            "exists" => {
                let condition = self.ident(ACCUMULATOR)?;
                let condition = self.call("!_", vec![condition])?;
                (
                    self.literal(Value::Bool(false))?,
                    self.call("@not_strictly_false", vec![condition])?,
                    self.call("_||_", vec![accu, body])?,
                    result,
                )
            }
            _ => {
                let one = self.literal(Value::Int(1))?;
                let more = self.call("_+_", vec![accu, one])?;
                let same = self.ident(ACCUMULATOR)?;
                let one = self.literal(Value::Int(1))?;
                (
                    self.literal(Value::Int(0))?,
                    self.literal(Value::Bool(true))?,
                    self.call("_?_:_", vec![body, more, same])?,
                    self.call("_==_", vec![result, one])?,
                )
            }
        })
    }

    fn transform(
        &mut self,
        target: &IdedExpr,
        function: &str,
        vars: (String, String),
        filter: Option<&IdedExpr>,
        transform: &IdedExpr,
        depth: Depth,
    ) -> Converted {
        let filter = filter.map(|filter| self.convert(filter, depth)).transpose()?;
        let transform = self.convert(transform, depth)?;
        let mut step = match function {
            "transformList" => self.append(transform)?,
            "transformMap" => {
                let accu = self.ident(ACCUMULATOR)?;
                let key = self.ident(&vars.0)?;
                self.call("cel.@mapInsert", vec![accu, key, transform])?
            }
            _ => {
                let accu = self.ident(ACCUMULATOR)?;
                self.call("cel.@mapInsert", vec![accu, transform])?
            }
        };
        if let Some(filter) = filter {
            let same = self.ident(ACCUMULATOR)?;
            step = self.call("_?_:_", vec![filter, step, same])?;
        }
        let init = match function {
            "transformList" => self.push(Expr::List(Vec::new()))?,
            _ => self.push(Expr::Map(Vec::new()))?,
        };
        let condition = self.literal(Value::Bool(true))?;
        let result = self.ident(ACCUMULATOR)?;
        self.fold(target, vars, init, condition, step, result, depth)
    }

    #[allow(clippy::too_many_arguments)]
    fn fold(
        &mut self,
        target: &IdedExpr,
        (var, var2): (String, String),
        init: NodeId,
        condition: NodeId,
        step: NodeId,
        result: NodeId,
        depth: Depth,
    ) -> Converted {
        let range = self.convert(target, depth)?;
        self.push(Expr::Comprehension(Box::new(Comprehension {
            range,
            var,
            var2: Some(var2),
            accu: ACCUMULATOR.to_owned(),
            init,
            condition,
            step,
            result,
        })))
    }
}

/// The name of the accumulator of loops.
const ACCUMULATOR: &str = "@result";

fn is_ident(node: &IdedExpr, name: &str) -> bool {
    matches!(&node.expr, ast::Expr::Ident(ident) if ident == name)
}

fn variable(node: &IdedExpr, problem: &str) -> Result<String, CompileError> {
    match &node.expr {
        ast::Expr::Ident(name) => Ok(name.clone()),
        _ => Err(syntax(format!("ERROR: {problem}"))),
    }
}

fn variables(key: &IdedExpr, value: &IdedExpr) -> Result<(String, String), CompileError> {
    let key = variable(key, "argument must be a simple name")?;
    let value = variable(value, "argument must be a simple name")?;
    if key == value {
        return Err(syntax(format!("ERROR: duplicate variable name: {key}")));
    }
    check_variable(&key)?;
    check_variable(&value)?;
    Ok((key, value))
}

fn check_variable(name: &str) -> Result<(), CompileError> {
    if name == ACCUMULATOR || name == "__result__" {
        return Err(syntax("ERROR: iteration variable overwrites accumulator variable"));
    }
    Ok(())
}

fn literal_value(literal: &LiteralValue) -> Value<'static> {
    match literal {
        LiteralValue::Boolean(value) => Value::Bool(**value),
        LiteralValue::Bytes(value) => Value::Bytes(value.inner().into()),
        LiteralValue::Double(value) => Value::Double(*value.inner()),
        LiteralValue::Int(value) => Value::Int(*value.inner()),
        LiteralValue::Null => Value::Null,
        LiteralValue::String(value) => Value::text(value.inner()),
        LiteralValue::UInt(value) => Value::Uint(*value.inner()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_integer_may_be_written_in_hexadecimal() {
        let (ast, root) = parse("-0x8000000000000000").unwrap();
        assert!(matches!(ast.get(root), Expr::Literal(Value::Int(i64::MIN))));
        assert_eq!(scan(r#""-0x8000000000000000""#), Ok(Cow::Borrowed(r#""-0x8000000000000000""#)));
    }

    #[test]
    fn exists_one_has_two_variables() {
        let macro_of = |source: &str| {
            let (ast, root) = parse(source).unwrap();
            matches!(ast.get(root), Expr::Comprehension(_))
        };
        assert!(macro_of("[1].existsOne(i, v, v > 0)"));
        assert!(macro_of("[1].exists_one(v, v > 0)"));
        assert!(!macro_of("[1].existsOne(v, v > 0)"));
    }

    #[test]
    fn brackets_in_texts_and_comments_are_no_nesting() {
        let brackets = "(".repeat(400);
        for source in [
            format!("'{brackets}' == \"{brackets}\""),
            format!("r'{brackets}\\' == '''{brackets}' \\''' '''"),
            format!("true // {brackets}"),
        ] {
            assert!(scan(&source).is_ok(), "{source}");
        }
        assert!(matches!(parse(&brackets), Err(CompileError::TooDeep { .. })));
    }
}
