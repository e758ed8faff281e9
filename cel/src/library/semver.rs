//! Functions on versions (`pkg/cel/library/semverlib.go` of the API server). Comparisons stand with the quantities'.

use super::operators::text;
use super::{Call, Functions, Outcome};
use crate::cost::CostRule;
use crate::error::EvalError;
use crate::semver::Version;
use crate::types::{SEMVER, Type};
use crate::value::{Value, VersionValue};
use std::sync::Arc;

pub(super) fn declare(functions: &mut Functions) {
    use Type::{Bool, Int, String};
    functions
        .add("semver", semver)
        .all_cost(CostRule::First)
        .global([String], SEMVER)
        .global([String, Bool], SEMVER);
    functions
        .add("isSemver", is_semver)
        .all_cost(CostRule::First)
        .global([String], Bool)
        .global([String, Bool], Bool);
    for name in ["major", "minor", "patch"] {
        functions.add(name, number).member([SEMVER], Int);
    }
}

fn parse(call: &mut Call<'_, '_>) -> Result<Result<Version, String>, EvalError> {
    let (value, normalise) = match call.args {
        [Value::String(value)] => (text(value), false),
        [Value::String(value), Value::Bool(normalise)] => (text(value), *normalise),
        _ => return Err(call.no_such_overload()),
    };
    call.fuel.take_bytes(value.len())?;
    Ok(if normalise { Version::parse_normalised(value) } else { Version::parse(value) })
}

fn semver<'a>(call: &mut Call<'_, 'a>) -> Outcome<'a> {
    let version = parse(call)?.map_err(EvalError::text)?;
    Ok(Value::Semver(VersionValue::Owned(Arc::new(version))))
}

fn is_semver<'a>(call: &mut Call<'_, 'a>) -> Outcome<'a> {
    Ok(Value::Bool(parse(call)?.is_ok()))
}

/// A number beyond 63 bits comes out negative, as in Kubernetes.
fn number<'a>(call: &mut Call<'_, 'a>) -> Outcome<'a> {
    let [Value::Semver(version)] = call.args else { return Err(call.no_such_overload()) };
    let version = version.get();
    let number = match call.function {
        "major" => version.major,
        "minor" => version.minor,
        _ => version.patch,
    };
    Ok(Value::Int(number.cast_signed()))
}
