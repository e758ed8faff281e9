//! Expressions and devices as JSON lines, for comparison with Kubernetes' own implementation.
//!
//! The protocol is that of the Go oracle: a request has `id`, `expression`, `kind` (`selector` or `derived`), `env` (`stored`
//! or `new`), `features` and a `device` in the form of `resource.k8s.io/v1`; the answer has `id` and `compileError`, or
//! `result` or `runtimeError` with `actualCost`. The estimate `maxCost` is not given.

use crate::{
    CompileOptions, Compiler, DerivedAttribute, DeviceBuilder, DeviceView, Environment, EvalError, Interner,
    Purpose, RawAttribute,
};
use dra_api::quantity::Quantity;
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;

/// A request.
#[derive(Debug, Deserialize)]
pub struct Request {
    /// Comes back in the answer.
    #[serde(default)]
    pub id: String,
    /// The expression.
    #[serde(default)]
    pub expression: String,
    /// `selector`, which is the default, or `derived`.
    #[serde(default)]
    pub kind: String,
    /// `stored`, which is the default, or `new`.
    #[serde(default)]
    pub env: String,
    /// The gates; without them those of 1.37.
    pub features: Option<Features>,
    /// The device.
    #[serde(default)]
    pub device: WireDevice,
}

/// Gates which matter for new expressions.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Features {
    /// `DRAConsumableCapacity`
    #[serde(rename = "ConsumableCapacity")]
    pub consumable_capacity: bool,
    /// `DRAListTypeAttributes`
    #[serde(rename = "ListTypeAttributes")]
    pub list_type_attributes: bool,
}

/// A device in the API's form.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct WireDevice {
    /// The driver, whose domain attributes without one are in.
    pub driver: String,
    /// `allowMultipleAllocations`
    pub allow_multiple_allocations: Option<bool>,
    /// The attributes by name.
    pub attributes: BTreeMap<String, WireAttribute>,
    /// The capacities by name.
    pub capacity: BTreeMap<String, WireCapacity>,
}

/// An attribute in the API's form.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct WireAttribute {
    /// `int`
    pub int: Option<i64>,
    /// `bool`
    pub bool: Option<bool>,
    /// `string`
    pub string: Option<String>,
    /// `version`
    pub version: Option<String>,
    /// `ints`
    pub ints: Option<Vec<i64>>,
    /// `bools`
    pub bools: Option<Vec<bool>>,
    /// `strings`
    pub strings: Option<Vec<String>>,
    /// `versions`
    pub versions: Option<Vec<String>>,
}

/// A capacity in the API's form.
#[derive(Debug, Deserialize)]
pub struct WireCapacity {
    /// The quantity.
    pub value: String,
}

/// An answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Answer {
    /// Of the request.
    pub id: String,
    /// Why the request is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_error: Option<String>,
    /// Why the expression can't be compiled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compile_error: Option<String>,
    /// A truth value for a selector, an attribute for a derived attribute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<Json>,
    /// Why there is no result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime_error: Option<String>,
    /// What was charged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub actual_cost: Option<u64>,
}

/// The answer to one line, as a line without its end.
pub fn answer_line(compiler: &Compiler, line: &str) -> String {
    let answer = match serde_json::from_str::<Request>(line) {
        Ok(request) => answer(compiler, &request),
        Err(error) => Answer { input_error: Some(error.to_string()), ..Answer::default() },
    };
    serde_json::to_string(&answer).unwrap_or_default()
}

/// The answer to a request.
pub fn answer(compiler: &Compiler, request: &Request) -> Answer {
    let id = request.id.clone();
    match try_answer(compiler, request) {
        Ok(answer) => Answer { id, ..answer },
        Err(error) => Answer { id, input_error: Some(error), ..Answer::default() },
    }
}

fn try_answer(compiler: &Compiler, request: &Request) -> Result<Answer, String> {
    let options = request.options()?;
    let mut interner = Interner::new();
    let program = match compiler.compile(&request.expression, &options, &mut interner) {
        Ok(program) => program,
        Err(error) => return Ok(Answer { compile_error: Some(error.to_string()), ..Answer::default() }),
    };
    let device = request.device.build(&mut interner)?;
    let view = DeviceView { device: &device, interner: &interner };
    let evaluation = program.evaluate(view);
    let cost = device.conversion_error().is_none().then_some(evaluation.cost);
    let result: Result<Json, EvalError> = evaluation.result.and_then(|value| match options.purpose {
        Purpose::Selector => crate::program::truth(value).map(Json::from),
        Purpose::DerivedAttribute => DerivedAttribute::new(value).map(|attribute| attribute_json(&attribute)),
    });
    let (result, runtime_error) = match result {
        Ok(result) => (Some(result), None),
        Err(error) => (None, Some(error.to_string())),
    };
    Ok(Answer { result, runtime_error, actual_cost: cost, ..Answer::default() })
}

impl Request {
    fn options(&self) -> Result<CompileOptions, String> {
        let mut options = CompileOptions::default();
        if let Some(features) = self.features {
            options.consumable_capacity = features.consumable_capacity;
            options.list_type_attributes = features.list_type_attributes;
        }
        options.environment = match self.env.as_str() {
            "" | "stored" => Environment::Stored,
            "new" => Environment::New,
            _ => return Err("env must be stored or new".to_owned()),
        };
        options.purpose = match self.kind.as_str() {
            "" | "selector" => Purpose::Selector,
            "derived" => Purpose::DerivedAttribute,
            _ => return Err("kind must be selector or derived".to_owned()),
        };
        Ok(options)
    }
}

impl WireDevice {
    /// The device for programs.
    ///
    /// # Errors
    ///
    /// A capacity that is not a quantity.
    pub fn build(&self, interner: &mut Interner) -> Result<crate::Device, String> {
        let mut builder = DeviceBuilder::new(interner, &self.driver);
        builder.allow_multiple_allocations(self.allow_multiple_allocations.unwrap_or(false));
        for (name, attribute) in &self.attributes {
            builder.attribute(
                name,
                RawAttribute {
                    ints: attribute.ints.as_deref(),
                    bools: attribute.bools.as_deref(),
                    strings: attribute.strings.as_deref(),
                    versions: attribute.versions.as_deref(),
                    int: attribute.int,
                    bool: attribute.bool,
                    string: attribute.string.as_deref(),
                    version: attribute.version.as_deref(),
                },
            );
        }
        for (name, capacity) in &self.capacity {
            let value =
                Quantity::parse(&capacity.value).map_err(|error| format!("capacity {name}: {error}"))?;
            builder.capacity(name, value);
        }
        Ok(builder.build())
    }
}

/// An attribute in the API's form.
fn attribute_json(attribute: &DerivedAttribute) -> Json {
    match attribute {
        DerivedAttribute::Int(value) => json!({ "int": value }),
        DerivedAttribute::Bool(value) => json!({ "bool": value }),
        DerivedAttribute::String(value) => json!({ "string": value }),
        DerivedAttribute::Version(value) => json!({ "version": value }),
        DerivedAttribute::Ints(values) => json!({ "ints": values }),
        DerivedAttribute::Bools(values) => json!({ "bools": values }),
        DerivedAttribute::Strings(values) => json!({ "strings": values }),
        DerivedAttribute::Versions(values) => json!({ "versions": values }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_answered_with_a_line() {
        let line = r#"{"id":"1","expression":"device.attributes[\"a.dev\"].i == 3","device":{"driver":"a.dev","attributes":{"i":{"int":3}}}}"#;
        assert_eq!(answer_line(&Compiler::new(), line), r#"{"id":"1","result":true,"actualCost":5}"#);
    }

    #[test]
    fn nonsense_is_answered_too() {
        for line in [
            "",
            "{",
            "[]",
            r#"{"env":"old"}"#,
            r#"{"device":{"capacity":{"m":{"value":"x"}}},"expression":"true"}"#,
        ] {
            assert!(answer_line(&Compiler::new(), line).contains("inputError"), "{line}");
        }
    }
}
