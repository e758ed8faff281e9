//! Selectors and derived attributes: expressions compiled once and evaluated on published devices.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use crate::inventory::slice::Slice;
use crate::objects::{DeviceAttribute, DeviceSelector};

/// Compiled expressions.
#[derive(Debug, Default)]
pub(crate) struct Programs {
    known: Mutex<BTreeMap<Box<str>, Arc<Compiled>>>,
}

#[derive(Debug)]
struct Compiled {
    expression: Box<str>,
}

/// A selector; without an expression it is of a kind that is not known.
#[derive(Clone, Debug)]
pub(crate) struct Selector {
    compiled: Option<Arc<Compiled>>,
}

/// Why an expression has no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    Empty,
    Compile(String),
    Evaluate(String),
}

/// Evaluates expressions during one call.
#[derive(Debug)]
pub(crate) struct Evaluation<'a> {
    #[allow(dead_code)]
    programs: &'a Programs,
}

impl Programs {
    pub(crate) fn selector(&self, object: &DeviceSelector) -> Selector {
        let compiled = object.cel.as_ref().and_then(|cel| {
            let mut known = self.known.lock().ok()?;
            Some(
                known
                    .entry(cel.expression.as_str().into())
                    .or_insert_with(|| Arc::new(Compiled { expression: cel.expression.as_str().into() }))
                    .clone(),
            )
        });
        Selector { compiled }
    }

    pub(crate) fn evaluation(&self) -> Evaluation<'_> {
        Evaluation { programs: self }
    }
}

impl Evaluation<'_> {
    pub(crate) fn matches(&mut self, selector: &Selector, slice: &Slice, device: usize) -> Result<bool, Failure> {
        let _ = (slice, device);
        let Some(compiled) = &selector.compiled else { return Err(Failure::Empty) };
        let expression = &*compiled.expression;
        if expression == "true" {
            return Ok(true);
        }
        if let Some(driver) = expression.strip_prefix("device.driver == \"") {
            return Ok(driver.strip_suffix('"') == Some(&*slice.driver));
        }
        Err(Failure::Compile(format!("not yet: {expression}")))
    }

    pub(crate) fn derive(&mut self, expression: &str, slice: &Slice, device: usize) -> Result<DeviceAttribute, Failure> {
        let _ = (expression, slice, device);
        Err(Failure::Compile("not yet".to_owned()))
    }
}

impl Failure {
    pub(crate) fn describe(&self, owner: &str, position: usize, device: &str) -> String {
        match self {
            Self::Empty => {
                format!("{owner}: selector #{position}: CEL expression empty (unsupported selector type?)")
            }
            Self::Compile(error) => format!("{owner}: selector #{position}: CEL compile error: {error}"),
            Self::Evaluate(error) => {
                format!("{owner}: selector #{position} on device {device}: CEL runtime error: {error}")
            }
        }
    }

    pub(crate) fn describe_derived(&self, name: &str, device: &str) -> String {
        match self {
            Self::Empty => format!("compile derived attribute {name} failed: no expression"),
            Self::Compile(error) => format!("compile derived attribute {name} failed: {error}"),
            Self::Evaluate(error) => format!("evaluate derived attribute {name} on device {device} failed: {error}"),
        }
    }
}
