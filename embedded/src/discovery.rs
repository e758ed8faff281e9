//! What the server says about itself: groups, versions, resources, health.

use serde_json::{Value, json};

use crate::{
    kinds::{KINDS, KindInfo, StatusWrites, Version},
    refusal::Refusal,
    state::State,
};

/// An answer about the server.
pub(crate) enum Page {
    Json(Value),
    Text(u16, &'static str),
    Refused(Refusal),
}

/// What a path says that leads nowhere: a group that is served answers, others do not exist.
pub(crate) fn nowhere(state: &State, path: &[&str]) -> Page {
    let known = match path {
        ["api", ..] => true,
        ["apis", group, ..] => state.groups().contains(group),
        _ => false,
    };
    if known { Page::Refused(Refusal::no_resource()) } else { Page::Text(404, "404 page not found\n") }
}

impl State {
    pub(crate) fn page(&self, path: &[String]) -> Page {
        let path: Vec<&str> = path.iter().map(String::as_str).collect();
        match path[..] {
            ["healthz" | "livez" | "readyz"] => Page::Text(200, "ok"),
            ["version"] => Page::Json(json!({"major": "1", "minor": "37", "gitVersion": "v1.37.2-embedded",
                "gitCommit": "", "gitTreeState": "", "buildDate": "", "goVersion": "", "compiler": "", "platform": ""})),
            ["api"] => Page::Json(
                json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}),
            ),
            ["apis"] => {
                let groups: Vec<Value> = self.groups().iter().map(|group| self.group(group)).collect();
                Page::Json(json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}))
            }
            ["apis", group] if self.groups().contains(&group) => {
                let mut page = self.group(group);
                crate::object::set(&mut page, &["kind"], json!("APIGroup"));
                crate::object::set(&mut page, &["apiVersion"], json!("v1"));
                Page::Json(page)
            }
            ["api", version] => self.resources("", version),
            ["apis", group, version] => self.resources(group, version),
            _ => nowhere(self, &path),
        }
    }

    /// Kinds and versions that are served.
    fn served(&self) -> impl Iterator<Item = (&'static KindInfo, &'static Version)> {
        KINDS
            .iter()
            .flat_map(|k| k.versions.iter().map(move |v| (k, v)))
            .filter(|(k, v)| self.serves(k, v.name))
    }

    /// Groups with a name that have something to serve.
    fn groups(&self) -> Vec<&'static str> {
        let mut groups: Vec<&str> = self.served().map(|(k, _)| k.group).filter(|g| !g.is_empty()).collect();
        groups.sort_unstable();
        groups.dedup();
        groups
    }

    fn group(&self, group: &str) -> Value {
        let mut versions: Vec<&str> =
            self.served().filter(|(k, _)| k.group == group).map(|(_, v)| v.name).collect();
        // Stable versions come first, then beta and alpha, each with the latest first.
        versions.sort_unstable_by_key(|v| (v.contains("alpha"), v.contains("beta"), std::cmp::Reverse(*v)));
        versions.dedup();
        let versions: Vec<Value> = versions
            .iter()
            .map(|version| json!({"groupVersion": format!("{group}/{version}"), "version": version}))
            .collect();
        json!({"name": group, "versions": versions, "preferredVersion": versions.first()})
    }

    fn resources(&self, group: &str, version: &str) -> Page {
        let mut resources = Vec::new();
        let mut api_version = None;
        for (kind, _) in self.served().filter(|(k, v)| k.group == group && v.name == version) {
            api_version = Some(kind.api_version(version));
            let resource = |name: String, verbs: &[&str]| {
                json!({"name": name, "singularName": if name.contains('/') { "" } else { kind.singular },
                    "namespaced": kind.namespaced, "kind": kind.kind, "verbs": verbs})
            };
            let mut verbs =
                vec!["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
            if kind.kind == "Namespace" {
                verbs.retain(|verb| *verb != "deletecollection");
            }
            resources.push(resource(kind.plural.to_owned(), &verbs));
            if kind.status != StatusWrites::None {
                resources.push(resource(format!("{}/status", kind.plural), &["get", "patch", "update"]));
            }
            if kind.kind == "Pod" {
                for (name, kind) in [("binding", "Binding"), ("eviction", "Eviction")] {
                    resources
                        .push(json!({"name": format!("pods/{name}"), "singularName": "", "namespaced": true,
                        "kind": kind, "verbs": ["create"]}));
                }
            }
        }
        match api_version {
            None if group.is_empty() => nowhere(self, &["api"]),
            None => nowhere(self, &["apis", group]),
            Some(api_version) => {
                let mut page =
                    json!({"kind": "APIResourceList", "groupVersion": api_version, "resources": resources});
                if !group.is_empty() {
                    crate::object::set(&mut page, &["apiVersion"], json!("v1"));
                }
                Page::Json(page)
            }
        }
    }
}
