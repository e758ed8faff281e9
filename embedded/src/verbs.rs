//! Writing: create, update, patch, apply, delete, and what Pods can in addition.
//!
//! Sources: `k8s.io/apiserver/pkg/registry/{rest,generic/registry}` and `pkg/registry/core/pod/storage`.

use std::sync::Arc;

use http::Method;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{
    call::{Call, Subresource},
    kinds::{KINDS, KindInfo, Part, StatusWrites, position},
    managers::{Manager, Managers},
    object::{at, copy, each, has, items, meta, seconds, set, text},
    patch,
    refusal::{Cause, Refusal},
    rules::{POD_GROUP_PROTECTION, changed_metadata, new_metadata},
    state::State,
};

/// Attempts at a generated name (`maxNameGenerationCreateAttempts`).
const NAME_ATTEMPTS: usize = 8;
/// Longest part of a generated name before its suffix.
const GENERATE_NAME_MAX: usize = 58;

/// An answer with a body.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) body: Arc<Value>,
}

impl Answer {
    fn ok(body: Arc<Value>) -> Self {
        Self { code: 200, body }
    }

    fn created(body: Arc<Value>) -> Self {
        Self { code: 201, body }
    }

    fn done(code: u16, details: &Value) -> Self {
        let mut body = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"});
        if details.is_null() {
            set(&mut body, &["code"], json!(code));
        } else {
            set(&mut body, &["details"], details.clone());
        }
        Self { code, body: Arc::new(body) }
    }
}

/// The state that a DELETE is right for.
#[derive(Default)]
struct DeleteOptions {
    uid: Option<String>,
    resource_version: Option<String>,
    grace: Option<i64>,
}

impl DeleteOptions {
    fn read(options: &Value, query: &str) -> Result<Self, Refusal> {
        let text = |field| at(options, &["preconditions", field]).as_str().map(str::to_owned);
        let grace = match (at(options, &["gracePeriodSeconds"]).as_i64(), query) {
            (Some(grace), _) => Some(grace),
            (None, "") => None,
            (None, query) => {
                Some(query.parse().map_err(|_| Refusal::bad_request("gracePeriodSeconds is not a number"))?)
            }
        };
        Ok(Self { uid: text("uid"), resource_version: text("resourceVersion"), grace })
    }
}

impl State {
    /// Answers a call about objects, watches excepted.
    pub(crate) fn answer(&mut self, call: &Call) -> Result<Answer, Refusal> {
        let collection = call.name.is_empty();
        match (&call.method, call.subresource) {
            (&Method::GET, None) if collection => self.list(call).map(|list| Answer::ok(Arc::new(list))),
            (&Method::GET, None | Some(Subresource::Status)) => {
                self.existing(call).map(|(o, _)| Answer::ok(o))
            }
            (&Method::POST, None) if collection => self.create(call),
            (&Method::POST, Some(Subresource::Binding)) => self.bind(call),
            (&Method::POST, Some(Subresource::Eviction)) => self.evict(call),
            (&Method::PUT, None | Some(Subresource::Status)) if !collection => self.replace(call),
            (&Method::PATCH, None | Some(Subresource::Status)) if !collection => self.patch(call),
            (&Method::DELETE, None) if !collection => {
                let options = if call.body.is_empty() { Value::Null } else { call.json()? };
                let options = DeleteOptions::read(&options, call.query("gracePeriodSeconds"))?;
                let answer = self.delete(call.kind, &call.namespace, &call.name, &options)?;
                // The first version of rules that is stable answers in short, the older ones did not.
                if call.kind.kind == "DeviceTaintRule" && call.version.name == "v1" {
                    return Ok(removed_in_short(call.kind, &call.name, &answer.body));
                }
                Ok(answer)
            }
            (&Method::DELETE, None) => self.delete_collection(call),
            _ => Err(Refusal::not_allowed()),
        }
    }

    fn existing(&self, call: &Call) -> Result<(Arc<Value>, Managers), Refusal> {
        let stored = self.get(call.kind, &call.namespace, &call.name);
        let stored = stored.ok_or_else(|| Refusal::not_found(call.kind, &call.name))?;
        Ok((Arc::clone(&stored.object), stored.managers.clone()))
    }

    // Create

    fn create(&mut self, call: &Call) -> Result<Answer, Refusal> {
        let object = call.object()?;
        self.create_object(call, object).map(Answer::created)
    }

    fn create_object(&mut self, call: &Call, mut object: Value) -> Result<Arc<Value>, Refusal> {
        let kind = call.kind;
        if kind.namespaced {
            self.check_namespace(call, meta(&object, "name"))?;
        }
        if !matches!(meta(&object, "resourceVersion"), "" | "0") {
            return Err(Refusal::unexplained("resourceVersion should not be set on objects to be created"));
        }
        for field in
            ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "generation", "resourceVersion"]
        {
            set(&mut object, &["metadata", field], Value::Null);
        }
        set(&mut object, &["metadata", "creationTimestamp"], json!(seconds(self.now)));
        let uid = self.uid();
        set(&mut object, &["metadata", "uid"], json!(uid));
        if kind.generation {
            set(&mut object, &["metadata", "generation"], json!(1));
        }
        if kind.status == StatusWrites::StatusOnly {
            set(&mut object, &["status"], Value::Null);
        }
        let base = meta(&object, "generateName").to_owned();
        let generated = meta(&object, "name").is_empty() && !base.is_empty();
        let attempts = if generated { NAME_ATTEMPTS } else { 1 };
        for _ in 0..attempts {
            if generated {
                let base: String = base.chars().take(GENERATE_NAME_MAX).collect();
                let name = format!("{base}{}", self.suffix());
                set(&mut object, &["metadata", "name"], json!(name));
            }
            (kind.defaults)(&mut object, &Value::Null, self.now);
            let mut causes = new_metadata(&object);
            causes.extend((kind.validate)(&object, &Value::Null, Part::Main));
            if !causes.is_empty() {
                return Err(Refusal::invalid(kind, meta(&object, "name"), causes));
            }
            if self.get(kind, meta(&object, "namespace"), meta(&object, "name")).is_none() {
                let mut managers = Managers::default();
                managers.updated(kind, manager(call, false), &Value::Null, &object);
                return Ok(self.put(kind, object, managers));
            }
        }
        Err(Refusal::already_exists(kind, meta(&object, "name"), generated))
    }

    fn check_namespace(&self, call: &Call, name: &str) -> Result<(), Refusal> {
        let Some(namespaces) = position("Namespace").and_then(|i| KINDS.get(i)) else { return Ok(()) };
        let Some(namespace) = self.get(namespaces, "", &call.namespace) else {
            return Err(Refusal::not_found(namespaces, &call.namespace));
        };
        if has(&namespace.object, &["metadata", "deletionTimestamp"]) {
            let why = format!(
                "unable to create new content in namespace {} because it is being terminated",
                call.namespace
            );
            return Err(Refusal::forbidden(call.kind, name, &why));
        }
        Ok(())
    }

    // Update

    fn replace(&mut self, call: &Call) -> Result<Answer, Refusal> {
        let new = call.object()?;
        if meta(&new, "name").is_empty() {
            return Err(Refusal::bad_request(format!(
                "the name of the object () does not match the name on the URL ({})",
                call.name
            )));
        }
        let (old, managers) = match self.existing(call) {
            Err(_) if call.kind.create_on_update => {
                return self.create_object(call, new).map(Answer::created);
            }
            existing => existing?,
        };
        let (uid, expected) = (meta(&old, "uid"), meta(&new, "uid"));
        if !expected.is_empty() && expected != uid {
            return Err(Refusal::other_uid(call.kind, &call.namespace, &call.name, expected, uid));
        }
        self.update(call, &old, new, managers, false)
    }

    fn patch(&mut self, call: &Call) -> Result<Answer, Refusal> {
        if call.content() == "application/apply-patch+yaml" {
            return self.apply(call);
        }
        let (old, managers) = self.existing(call)?;
        let mut new = Value::clone(&old);
        set(&mut new, &["apiVersion"], json!(call.api_version()));
        let patch = call.json()?;
        match call.content() {
            "application/merge-patch+json" => json_patch::merge(&mut new, &patch),
            "application/strategic-merge-patch+json" => patch::strategic(call.kind, &mut new, &patch)?,
            "application/json-patch+json" => {
                let patch: json_patch::Patch = serde_json::from_value(patch)
                    .map_err(|e| Refusal::bad_request(format!("error decoding patch: {e}")))?;
                json_patch::patch(&mut new, &patch).map_err(|_| Refusal::rejected_patch())?;
            }
            _ => {
                return Err(Refusal::media_type(
                    "application/json-patch+json, application/merge-patch+json, \
                     application/strategic-merge-patch+json, application/apply-patch+yaml",
                ));
            }
        }
        let new = call.patched(new)?;
        self.update(call, &old, new, managers, false)
    }

    fn apply(&mut self, call: &Call) -> Result<Answer, Refusal> {
        if call.query("fieldManager").is_empty() {
            let cause = Cause::required("fieldManager", "is required for apply patch");
            return Err(Refusal::invalid_kind("meta.k8s.io", "PatchOptions", "", vec![cause]));
        }
        let wanted = call.json()?;
        for (field, expected) in [("apiVersion", call.api_version()), ("kind", call.kind.kind.to_owned())] {
            if text(&wanted, &[field]) != expected {
                return Err(Refusal::bad_request(format!("{field} must be {expected}")));
            }
        }
        if has(&wanted, &["metadata", "managedFields"]) {
            return Err(Refusal::bad_request("metadata.managedFields must be nil"));
        }
        let mut wanted = call.patched(wanted)?;
        if self.get(call.kind, &call.namespace, &call.name).is_none() {
            if call.part() == Part::Status {
                return Err(Refusal::not_found(call.kind, &call.name));
            }
            let uid = meta(&wanted, "uid");
            if !uid.is_empty() {
                let why = format!(
                    "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
                );
                return Err(Refusal::conflict(call.kind, &call.name, &why));
            }
            set(&mut wanted, &["metadata", "name"], json!(call.name));
            let created = self.create_object(call, wanted.clone())?;
            let (_, managers) =
                Managers::default().applied(call.kind, &manager(call, true), &created, &wanted, true)?;
            self.set_managers(call, managers);
            return Ok(Answer::created(created));
        }
        let (old, managers) = self.existing(call)?;
        let system = at(&wanted, &["metadata"]).clone();
        // What this part of the object does not take is nobody's.
        match (call.part(), call.kind.status) {
            (Part::Main, StatusWrites::None) => {}
            (Part::Main, _) => set(&mut wanted, &["status"], Value::Null),
            (Part::Status, status) => {
                set(&mut wanted, &["spec"], Value::Null);
                if status == StatusWrites::StatusOnly {
                    set(&mut wanted, &["metadata"], Value::Null);
                }
            }
        }
        let (mut new, managers) =
            managers.applied(call.kind, &manager(call, true), &old, &wanted, call.flag("force"))?;
        for field in ["uid", "resourceVersion"] {
            if has(&system, &[field]) {
                set(&mut new, &["metadata", field], at(&system, &[field]).clone());
            }
        }
        let new = call.patched(new)?;
        self.update(call, &old, new, managers, true)
    }

    fn set_managers(&mut self, call: &Call, managers: Managers) {
        if let Some(stored) = self.stored_mut(call.kind, &call.namespace, &call.name) {
            stored.managers = managers;
        }
    }

    /// Writes the new state of an object, if it is one that the object may have. With `applies`, `managers` says
    /// already who owns what.
    fn update(
        &mut self,
        call: &Call,
        old: &Value,
        mut new: Value,
        mut managers: Managers,
        applies: bool,
    ) -> Result<Answer, Refusal> {
        let kind = call.kind;
        let (current, asked) = (meta(old, "resourceVersion").to_owned(), meta(&new, "resourceVersion"));
        if matches!(asked, "" | "0") {
            if !call.version.unconditional {
                return Err(Refusal::without_version(kind, &call.name));
            }
        } else if asked != current {
            return Err(Refusal::modified(kind, &call.name));
        }
        set(&mut new, &["metadata", "resourceVersion"], json!(current));
        keep_other_part(kind, call.part(), old, &mut new);
        keep_system_metadata(old, &mut new);
        let owned_before = self.get(kind, &call.namespace, &call.name).map(|s| s.managers.clone());
        if !applies {
            // What the server sets in the following is nobody's.
            managers.updated(kind, manager(call, false), old, &new);
        }
        (kind.defaults)(&mut new, old, self.now);
        if kind.generation && at(&new, &["spec"]) != at(old, &["spec"]) {
            let generation = at(old, &["metadata", "generation"]).as_i64().unwrap_or_default();
            set(&mut new, &["metadata", "generation"], json!(generation.saturating_add(1)));
        }
        let mut causes = changed_metadata(&new, old);
        causes.extend((kind.validate)(&new, old, call.part()));
        if !causes.is_empty() {
            return Err(Refusal::invalid(kind, &call.name, causes));
        }
        // Who owns what is part of the object: a change of that alone is written too.
        if new == *old && owned_before.as_ref() == Some(&managers) {
            return Ok(Answer::ok(Arc::new(new)));
        }
        if is_finished(kind, &new) {
            // It is gone, and the answer is the object all the same.
            self.remove(kind, &call.namespace, &call.name);
            return Ok(Answer::ok(Arc::new(new)));
        }
        Ok(Answer::ok(self.put(kind, new, managers)))
    }

    // Delete

    fn delete(
        &mut self,
        kind: &'static KindInfo,
        namespace: &str,
        name: &str,
        options: &DeleteOptions,
    ) -> Result<Answer, Refusal> {
        let Some(stored) = self.get(kind, namespace, name).cloned() else {
            return Err(Refusal::not_found(kind, name));
        };
        let old = stored.object;
        check_preconditions(kind, name, &old, options)?;
        let mut new = Value::clone(&old);
        let graceful = if kind.kind == "Pod" {
            match graceful(&mut new, options.grace, self.now) {
                Graceful::Pending => return Ok(Answer::ok(old)),
                Graceful::Begun => true,
                Graceful::Not => false,
            }
        } else {
            false
        };
        let held = !items(&new, &["metadata", "finalizers"]).is_empty()
            || !items(&new, &["spec", "finalizers"]).is_empty();
        if !graceful {
            if !held {
                return Ok(self.removed(kind, namespace, name));
            }
            if !has(&new, &["metadata", "deletionTimestamp"]) {
                set(&mut new, &["metadata", "deletionTimestamp"], json!(seconds(self.now)));
                bump_generation(&mut new);
            }
            if kind.kind == "Namespace" {
                set(&mut new, &["status", "phase"], json!("Terminating"));
            } else {
                set(&mut new, &["metadata", "deletionGracePeriodSeconds"], json!(0));
            }
        }
        let written = if new == *old { old } else { self.put(kind, new, stored.managers) };
        let now = at(&written, &["metadata", "deletionGracePeriodSeconds"]).as_i64() == Some(0);
        if graceful && now && !held {
            return Ok(self.removed(kind, namespace, name));
        }
        Ok(Answer::ok(written))
    }

    fn removed(&mut self, kind: &'static KindInfo, namespace: &str, name: &str) -> Answer {
        let last = self.remove(kind, namespace, name).unwrap_or_default();
        if kind.returns_deleted {
            return Answer::ok(last);
        }
        removed_in_short(kind, name, &last)
    }

    fn delete_collection(&mut self, call: &Call) -> Result<Answer, Refusal> {
        let selector = Self::selector(call)?;
        let doomed: Vec<Arc<Value>> = self.all(call.kind).filter(|o| selector.selects(o)).cloned().collect();
        for object in &doomed {
            let (namespace, name) = (meta(object, "namespace"), meta(object, "name"));
            self.delete(call.kind, namespace, name, &DeleteOptions::default())?;
        }
        let items: Vec<&Value> = doomed.iter().map(AsRef::as_ref).collect();
        Ok(Answer::ok(Arc::new(json!({
            "kind": format!("{}List", call.kind.kind), "apiVersion": call.api_version(),
            "metadata": {"resourceVersion": self.revision().to_string()}, "items": items,
        }))))
    }

    // Pods

    fn bind(&mut self, call: &Call) -> Result<Answer, Refusal> {
        let binding = call.json()?;
        let (old, mut managers) = self.existing(call)?;
        let conflict = |why: &str| Err(Refusal::not_to_be_bound(&call.name, why));
        let (uid, expected) = (meta(&old, "uid"), meta(&binding, "uid"));
        if !expected.is_empty() && expected != uid {
            return Err(Refusal::other_uid(call.kind, &call.namespace, &call.name, expected, uid));
        }
        let node = text(&binding, &["target", "name"]);
        if node.is_empty() {
            return Err(Refusal::unexplained("target.name: Required value"));
        }
        if has(&old, &["metadata", "deletionTimestamp"]) {
            return conflict(&format!("pod {} is being deleted, cannot be assigned to a host", call.name));
        }
        let present = text(&old, &["spec", "nodeName"]);
        if !present.is_empty() {
            return conflict(&format!("pod {} is already assigned to node \"{present}\"", call.name));
        }
        if !items(&old, &["spec", "schedulingGates"]).is_empty() {
            return conflict(&format!("pod {} has non-empty .spec.schedulingGates", call.name));
        }
        let mut new = Value::clone(&old);
        set(&mut new, &["spec", "nodeName"], json!(node));
        let scheduled = json!({"type": "PodScheduled", "status": "True", "lastProbeTime": null,
            "lastTransitionTime": seconds(self.now)});
        let mut found = false;
        for condition in each(&mut new, &["status", "conditions"]) {
            if text(condition, &["type"]) == "PodScheduled" {
                *condition = scheduled.clone();
                found = true;
            }
        }
        if !found {
            let mut conditions = items(&new, &["status", "conditions"]).to_vec();
            conditions.push(scheduled);
            set(&mut new, &["status", "conditions"], json!(conditions));
        }
        managers.updated(call.kind, manager(call, false), &old, &new);
        self.put(call.kind, new, managers);
        Ok(Answer::done(201, &Value::Null))
    }

    /// Without a `PodDisruptionBudget` an eviction is a deletion.
    fn evict(&mut self, call: &Call) -> Result<Answer, Refusal> {
        let eviction = call.json()?;
        let options = DeleteOptions::read(at(&eviction, &["deleteOptions"]), "")?;
        let (old, mut managers) = self.existing(call)?;
        check_preconditions(call.kind, &call.name, &old, &options)?;
        let mut new = Value::clone(&old);
        let mut conditions = items(&new, &["status", "conditions"]).to_vec();
        conditions.retain(|c| text(c, &["type"]) != "DisruptionTarget");
        conditions
            .push(json!({"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting", "lastTransitionTime": seconds(self.now)}));
        set(&mut new, &["status", "conditions"], json!(conditions));
        managers.updated(call.kind, manager(call, false), &old, &new);
        self.put(call.kind, new, managers);
        // The version of a precondition was checked before the condition was set.
        let options = DeleteOptions { resource_version: None, ..options };
        self.delete(call.kind, &call.namespace, &call.name, &options)?;
        Ok(Answer::done(201, &Value::Null))
    }

    // Garbage

    /// One pass of the garbage collector and of the namespace controller: deletes objects whose owners are all gone,
    /// the contents of terminating namespaces, and such namespaces when they are empty. How many it deleted.
    pub(crate) fn collect(&mut self) -> usize {
        let mut deleted: usize = 0;
        for kind in &KINDS {
            let doomed: Vec<(String, String, String)> = self
                .all(kind)
                .filter(|object| self.is_garbage(kind, object))
                .map(|o| {
                    (meta(o, "namespace").to_owned(), meta(o, "name").to_owned(), meta(o, "uid").to_owned())
                })
                .collect();
            for (namespace, name, uid) in doomed {
                let options = DeleteOptions { uid: Some(uid), ..DeleteOptions::default() };
                let before = self.revision();
                let _ = self.delete(kind, &namespace, &name, &options);
                deleted = deleted.saturating_add(usize::from(self.revision() > before));
            }
        }
        self.release_pod_groups();
        deleted.saturating_add(self.collect_namespaces())
    }

    /// The controller that protects PodGroups: one that is being deleted goes when no Pod that runs is its member.
    fn release_pod_groups(&mut self) {
        let kind = |name| position(name).and_then(|i| KINDS.get(i));
        let (Some(groups), Some(pods)) = (kind("PodGroup"), kind("Pod")) else { return };
        let free: Vec<(Arc<Value>, Managers)> = self
            .all(groups)
            .filter(|g| has(g, &["metadata", "deletionTimestamp"]))
            .filter(|g| {
                !self.all(pods).any(|p| {
                    meta(p, "namespace") == meta(g, "namespace")
                        && text(p, &["spec", "schedulingGroup", "podGroupName"]) == meta(g, "name")
                        && !matches!(text(p, &["status", "phase"]), "Succeeded" | "Failed")
                })
            })
            .filter_map(|g| self.get(groups, meta(g, "namespace"), meta(g, "name")))
            .map(|stored| (Arc::clone(&stored.object), stored.managers.clone()))
            .collect();
        for (group, managers) in free {
            let mut new = Value::clone(&group);
            let mut left = items(&group, &["metadata", "finalizers"]).to_vec();
            left.retain(|f| f != POD_GROUP_PROTECTION);
            set(
                &mut new,
                &["metadata", "finalizers"],
                if left.is_empty() { Value::Null } else { json!(left) },
            );
            if left.is_empty() {
                self.remove(groups, meta(&group, "namespace"), meta(&group, "name"));
            } else if new != *group {
                self.put(groups, new, managers);
            }
        }
    }

    fn is_garbage(&self, kind: &KindInfo, object: &Value) -> bool {
        let namespace = meta(object, "namespace");
        if kind.namespaced && self.is_terminating(namespace) {
            return true;
        }
        let owners = items(object, &["metadata", "ownerReferences"]);
        !owners.is_empty() && !owners.iter().any(|owner| self.owner_exists(owner, namespace))
    }

    fn owner_exists(&self, owner: &Value, namespace: &str) -> bool {
        // An owner of a kind that is not known here is taken to exist.
        let Some(kind) = position(text(owner, &["kind"])).and_then(|i| KINDS.get(i)) else { return true };
        let namespace = if kind.namespaced { namespace } else { "" };
        self.get(kind, namespace, text(owner, &["name"]))
            .is_some_and(|found| meta(&found.object, "uid") == text(owner, &["uid"]))
    }

    fn is_terminating(&self, namespace: &str) -> bool {
        position("Namespace")
            .and_then(|i| self.get(KINDS.get(i)?, "", namespace))
            .is_some_and(|n| has(&n.object, &["metadata", "deletionTimestamp"]))
    }

    fn collect_namespaces(&mut self) -> usize {
        let Some(namespaces) = position("Namespace").and_then(|i| KINDS.get(i)) else { return 0 };
        let empty: Vec<String> = self
            .all(namespaces)
            .filter(|n| has(n, &["metadata", "deletionTimestamp"]))
            .map(|n| meta(n, "name").to_owned())
            .filter(|name| {
                !KINDS.iter().any(|k| k.namespaced && self.all(k).any(|o| meta(o, "namespace") == name))
            })
            .collect();
        for name in &empty {
            self.remove(namespaces, "", name);
        }
        empty.len()
    }
}

/// What is said of a removed object instead of showing it.
fn removed_in_short(kind: &KindInfo, name: &str, last: &Value) -> Answer {
    if has(last, &["metadata", "deletionTimestamp"]) && !items(last, &["metadata", "finalizers"]).is_empty() {
        // It is still there.
        return Answer::ok(Arc::new(last.clone()));
    }
    let mut details = json!({"name": name, "kind": kind.plural, "uid": meta(last, "uid")});
    if !kind.group.is_empty() {
        set(&mut details, &["group"], json!(kind.group));
    }
    Answer::done(200, &details)
}

fn manager(call: &Call, applies: bool) -> Manager {
    Manager {
        name: call.manager(),
        applies,
        status: call.part() == Part::Status,
        api_version: call.api_version(),
    }
}

/// A write of the status leaves the rest as it is, and the other way round.
fn keep_other_part(kind: &KindInfo, part: Part, old: &Value, new: &mut Value) {
    match (part, kind.status) {
        (Part::Main, StatusWrites::None) => {}
        (Part::Main, _) => copy(old, new, &["status"]),
        (Part::Status, status) => {
            copy(old, new, &["spec"]);
            copy(old, new, &["metadata", "ownerReferences"]);
            if status == StatusWrites::StatusOnly {
                for field in ["labels", "annotations", "finalizers"] {
                    copy(old, new, &["metadata", field]);
                }
            }
        }
    }
}

/// What only the server sets.
fn keep_system_metadata(old: &Value, new: &mut Value) {
    for field in
        ["creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation", "selfLink"]
    {
        copy(old, new, &["metadata", field]);
    }
    for field in ["uid", "name", "generateName", "namespace"] {
        if !has(new, &["metadata", field]) {
            copy(old, new, &["metadata", field]);
        }
    }
}

fn bump_generation(object: &mut Value) {
    if let Some(generation) = at(object, &["metadata", "generation"]).as_i64() {
        set(object, &["metadata", "generation"], json!(generation.saturating_add(1)));
    }
}

/// True when the last finalizer of an object that is being deleted is gone.
fn is_finished(kind: &KindInfo, object: &Value) -> bool {
    has(object, &["metadata", "deletionTimestamp"])
        && items(object, &["metadata", "finalizers"]).is_empty()
        && at(object, &["metadata", "deletionGracePeriodSeconds"]).as_i64().unwrap_or_default() == 0
        && kind.kind != "Namespace"
}

fn check_preconditions(
    kind: &KindInfo,
    name: &str,
    object: &Value,
    options: &DeleteOptions,
) -> Result<(), Refusal> {
    let mismatch = |what: &str, expected: &str, found: &str, so: &str| {
        Refusal::not_to_be_deleted(
            kind,
            name,
            &format!(
                "the {what} in the precondition ({expected}) does not match the {what} in record ({found}). {so}"
            ),
        )
    };
    let (uid, version) = (meta(object, "uid"), meta(object, "resourceVersion"));
    if let Some(expected) = options.uid.as_deref().filter(|u| *u != uid) {
        let so = "The object might have been deleted and then recreated";
        return Err(mismatch("UID", expected, uid, so));
    }
    if let Some(expected) = options.resource_version.as_deref().filter(|v| *v != version) {
        return Err(mismatch("ResourceVersion", expected, version, "The object might have been modified"));
    }
    Ok(())
}

enum Graceful {
    /// The object is marked, with the grace period that it has.
    Begun,
    /// It is being deleted already, and nothing changes.
    Pending,
    /// It is deleted as any object is.
    Not,
}

/// `BeforeDelete` with the Pod's `CheckGracefulDelete`.
fn graceful(pod: &mut Value, asked: Option<i64>, now: Timestamp) -> Graceful {
    const GRACE: &[&str] = &["metadata", "deletionGracePeriodSeconds"];
    const TIME: &[&str] = &["metadata", "deletionTimestamp"];
    let asked = asked.map(|grace| if grace < 0 { 1 } else { grace });
    let at_time = |from: Timestamp, seconds_: i64| {
        json!(seconds(from.checked_add(jiff::SignedDuration::from_secs(seconds_)).unwrap_or(from)))
    };
    if has(pod, TIME) {
        let grace = at(pod, GRACE).as_i64().unwrap_or_default();
        return match asked {
            _ if grace == 0 => Graceful::Not,
            Some(period) if period < grace => {
                let end = text(pod, TIME).parse().unwrap_or(now);
                let shorter = end.checked_sub(jiff::SignedDuration::from_secs(grace - period)).unwrap_or(end);
                let period = if shorter < now && period != 0 { 1 } else { period };
                set(pod, TIME, at_time(shorter.max(now), 0));
                set(pod, GRACE, json!(period));
                Graceful::Begun
            }
            _ => Graceful::Pending,
        };
    }
    let default = at(pod, &["spec", "terminationGracePeriodSeconds"]).as_i64().unwrap_or_default();
    let ended = matches!(text(pod, &["status", "phase"]), "Succeeded" | "Failed");
    let period =
        if ended || text(pod, &["spec", "nodeName"]).is_empty() { 0 } else { asked.unwrap_or(default) };
    set(pod, TIME, at_time(now, period));
    set(pod, GRACE, json!(period));
    bump_generation(pod);
    Graceful::Begun
}
