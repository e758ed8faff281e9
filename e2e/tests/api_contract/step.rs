//! Requests as data, and sending them.

use std::{collections::BTreeMap, fmt, time::Duration};

use anyhow::{Context as _, Result, bail};
use http::{Method, Request, header};
use kube::Client;
use serde_json::{Value, json};

pub(crate) const JSON: &str = "application/json";
pub(crate) const MERGE: &str = "application/merge-patch+json";
pub(crate) const STRATEGIC: &str = "application/strategic-merge-patch+json";
pub(crate) const JSON_PATCH: &str = "application/json-patch+json";
pub(crate) const APPLY: &str = "application/apply-patch+yaml";

/// What is done.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    /// A request with a whole answer.
    Send { method: Method, content: &'static str, body: Value },
    /// A watch of one second; the answer is the list of its lines.
    Watch,
}

/// One request. In path and body, `{a.metadata.uid}` stands for that field of the answer that was kept as `a`.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    /// What it shows.
    pub(crate) says: &'static str,
    path: String,
    pub(crate) action: Action,
    /// The answer is kept under this name.
    keep: Option<&'static str>,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.action {
            Action::Send { method, body, .. } => {
                let body: String = body.to_string().chars().take(300).collect();
                write!(f, "{method} {} {body}", self.path)
            }
            Action::Watch => write!(f, "WATCH {}", self.path),
        }
    }
}

impl Step {
    fn new(says: &'static str, path: impl Into<String>, action: Action) -> Self {
        Self { says, path: path.into(), action, keep: None }
    }

    /// Keeps the answer under a name.
    pub(crate) fn keep(mut self, name: &'static str) -> Self {
        self.keep = Some(name);
        self
    }
}

fn send(
    says: &'static str,
    method: Method,
    path: impl Into<String>,
    content: &'static str,
    body: Value,
) -> Step {
    Step::new(says, path, Action::Send { method, content, body })
}

pub(crate) fn get(says: &'static str, path: impl Into<String>) -> Step {
    send(says, Method::GET, path, JSON, Value::Null)
}

pub(crate) fn post(says: &'static str, path: impl Into<String>, body: Value) -> Step {
    send(says, Method::POST, path, JSON, body)
}

pub(crate) fn put(says: &'static str, path: impl Into<String>, body: Value) -> Step {
    send(says, Method::PUT, path, JSON, body)
}

pub(crate) fn patch(says: &'static str, path: impl Into<String>, content: &'static str, body: Value) -> Step {
    send(says, Method::PATCH, path, content, body)
}

pub(crate) fn delete(says: &'static str, path: impl Into<String>, options: Value) -> Step {
    send(says, Method::DELETE, path, JSON, options)
}

pub(crate) fn watch(says: &'static str, path: impl Into<String>) -> Step {
    Step::new(says, path, Action::Watch)
}

/// `DeleteOptions` with preconditions.
pub(crate) fn preconditions(of: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": of})
}

/// A server, and what was kept of its answers.
pub(crate) struct Session {
    client: Client,
    kept: BTreeMap<&'static str, Value>,
}

impl Session {
    pub(crate) fn new(client: Client) -> Self {
        Self { client, kept: BTreeMap::new() }
    }

    pub(crate) async fn carry_out(&mut self, step: &Step) -> Result<(u16, Value)> {
        let path = self.filled(&step.path)?;
        let (method, content, body) = match &step.action {
            Action::Send { method, content, body } => {
                let body = if body.is_null() { String::new() } else { self.filled(&body.to_string())? };
                (method.clone(), *content, body)
            }
            Action::Watch => {
                let joint = if path.contains('?') { '&' } else { '?' };
                return self.watch(&format!("{path}{joint}watch=true&timeoutSeconds=1")).await;
            }
        };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::CONTENT_TYPE, content)
            .body(body.into_bytes().into())?;
        let (code, text) = self.answer(request).await?;
        let answer = serde_json::from_str(&text).unwrap_or(Value::String(text));
        if let Some(name) = step.keep {
            self.kept.insert(name, answer.clone());
        }
        Ok((code, answer))
    }

    async fn answer(&self, request: Request<kube::client::Body>) -> Result<(u16, String)> {
        let answer = tokio::time::timeout(Duration::from_secs(20), async {
            let response = self.client.send(request).await?;
            let code = response.status().as_u16();
            let body = response.into_body().collect_bytes().await?;
            Ok::<_, anyhow::Error>((code, String::from_utf8_lossy(&body).into_owned()))
        });
        // A request that is never answered is a difference like any other.
        answer.await.unwrap_or(Ok((0, "no answer".to_owned())))
    }

    async fn watch(&self, path: &str) -> Result<(u16, Value)> {
        let (code, text) = self.answer(Request::get(path).body(Vec::new().into())?).await?;
        let mut lines = Vec::new();
        for line in text.lines() {
            let line: Value = serde_json::from_str(line).unwrap_or_else(|_| line.into());
            let marks_end = line.pointer("/object/metadata/annotations").is_some();
            // When a bookmark comes is the server's business.
            if code != 200 || line["type"] != "BOOKMARK" || marks_end {
                lines.push(line);
            }
        }
        Ok((code, json!({"watched": lines})))
    }

    /// The text with its references to kept answers filled in.
    fn filled(&self, text: &str) -> Result<String> {
        let mut result = String::new();
        let mut rest = text;
        while let Some(start) = rest.find("{@") {
            let (before, from) = rest.split_at(start);
            result.push_str(before);
            let Some((reference, after)) = from.split_at(2).1.split_once('}') else {
                bail!("no end: {from}")
            };
            let (name, field) = reference.split_once('.').unwrap_or((reference, ""));
            let kept = self.kept.get(name).with_context(|| format!("nothing was kept as {name}"))?;
            let value = kept.pointer(&format!("/{}", field.replace('.', "/")));
            let value =
                value.and_then(Value::as_str).with_context(|| format!("{name} has no {field}: {kept}"))?;
            result.push_str(value);
            rest = after;
        }
        result.push_str(rest);
        Ok(result)
    }
}
