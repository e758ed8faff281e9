//! Functions of the authorizer: declared, because they may stand in expressions, but nothing has their types
//! (`pkg/cel/library/authz.go` of the API server).

use super::{Call, Functions, Outcome};
use crate::types::Type;

const AUTHORIZER: Type = Type::Object("kubernetes.authorization.Authorizer");
const PATH: Type = Type::Object("kubernetes.authorization.PathCheck");
const GROUP: Type = Type::Object("kubernetes.authorization.GroupCheck");
const RESOURCE: Type = Type::Object("kubernetes.authorization.ResourceCheck");
const DECISION: Type = Type::Object("kubernetes.authorization.Decision");

pub(super) fn declare(functions: &mut Functions) {
    use Type::{Bool, String};
    functions.add("path", never).member([AUTHORIZER, String], PATH);
    functions.add("group", never).member([AUTHORIZER, String], GROUP);
    functions.add("serviceAccount", never).member([AUTHORIZER, String, String], AUTHORIZER);
    functions.add("resource", never).member([GROUP, String], RESOURCE);
    for name in ["subresource", "namespace", "name", "fieldSelector", "labelSelector"] {
        functions.add(name, never).member([RESOURCE, String], RESOURCE);
    }
    functions.add("check", never).member([PATH, String], DECISION).member([RESOURCE, String], DECISION);
    functions.add("errored", never).member([DECISION], Bool);
    functions.add("error", never).member([DECISION], String);
    functions.add("allowed", never).member([DECISION], Bool);
    functions.add("reason", never).member([DECISION], String);
}

fn never<'a>(call: &mut Call<'_, 'a>) -> Outcome<'a> {
    Err(call.no_such_overload())
}
