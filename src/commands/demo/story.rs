//! The story, whatever the objects: claims are made for Pods, devices are tainted, Pods go, claims are released.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, bail, ensure};
use dra_inhabitants::cluster::{at, is_deleting, items, name, namespace, set, text};
use serde_json::{Value, json};

use super::{
    api::{Api, Id, KINDS, fresh},
    kubectl::Kubectl,
    telling::Teller,
};
use crate::table::count;

/// The taint that the story sets.
const TAINT_KEY: &str = "example.com/maintenance";
const TAINT_VALUE: &str = "demo";
const RULE: &str = "dra-demo";
const REQUEST: &str = "dra-demo";
/// On everything that a story makes: its run. Nothing without it is ever removed.
const LABEL: &str = "dra-controller-manager.dev/demo";

/// The story and what it is told with.
pub(super) struct Story<'a> {
    pub(super) api: &'a Api,
    pub(super) teller: &'a Teller,
    /// Nodes, slices and kubelets are real: they are left alone.
    pub(super) real: bool,
    /// To show what a user sees of the rule.
    pub(super) kubectl: Option<Kubectl>,
    /// Which telling this is; the value of [`LABEL`].
    pub(super) run: String,
    /// What was made, or was about to be made, to be removed in the end.
    pub(super) made: Vec<Id>,
}

/// A Pod with its claims, as they are at some moment.
struct Holder {
    pod: Value,
    claims: Vec<Value>,
}

/// How a Pod stands to the taint of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stand {
    /// None of its devices is selected.
    Untouched,
    /// It goes at once.
    Goes,
    /// It goes after so many seconds.
    GoesAfter(i64),
    /// It stays.
    Stays,
}

impl Story<'_> {
    /// Tells it all.
    pub(super) async fn tell(&mut self, objects: Vec<Value>) -> Result<()> {
        let input = self.apply(objects).await?;
        let pods = names(&input, "Pod");
        let groups = names(&input, "PodGroup");
        ensure!(
            input
                .iter()
                .any(|(kind, pod)| *kind == "Pod" && !items(pod, &["spec", "resourceClaims"]).is_empty()),
            "the input has no Pod with resourceClaims: there is nothing to show"
        );
        let what = format!("claims are made, allocated and reserved, and {} run", count(pods.len(), "Pod"));
        self.teller.step(&what, self.run(&pods)).await?;
        self.show_pods(&pods).await?;
        let made = self.claims(&pods).await?.len();

        self.one_ends(&pods).await?;
        let evicted = self.maintenance(&pods).await?;
        if !groups.is_empty() {
            self.groups_go(&groups, &pods).await?;
        }
        let left = self.here(&pods).await?;
        if !left.is_empty() {
            let claims = self.claims(&pods).await?;
            let what =
                format!("what is left ({}) is deleted: the claims are released", count(left.len(), "Pod"));
            self.teller
                .step(&what, async {
                    for pod in &left {
                        self.api.delete(pod).await?;
                    }
                    self.api.gone(&left).await?;
                    self.released(&claims).await
                })
                .await?;
        }
        self.show_claims(&pods).await?;
        self.teller.say(&format!(
            "Demo complete: {} ran on {}; {} evicted because of a taint; every claim was released in the end. \
             {:.1} s in all.",
            count(pods.len(), "Pod"),
            count(made, "claim"),
            count(evicted, "Pod"),
            self.teller.elapsed().as_secs_f64()
        ))
    }

    /// Removes what was made, the last one first. For clusters that go on after the story.
    pub(super) async fn clean_up(&mut self) -> Result<()> {
        while let Some(id) = self.made.pop() {
            let found = self.api.get(&id).await?;
            if found.is_some_and(|object| text(&object, &["metadata", "labels", LABEL]) == self.run) {
                self.api.delete(&id).await?;
            }
        }
        Ok(())
    }

    /// Creates the objects in an order in which they can be created.
    async fn apply(&mut self, objects: Vec<Value>) -> Result<Vec<(&'static str, Value)>> {
        let (mut input, mut skipped) = (Vec::new(), BTreeMap::new());
        for object in objects {
            let (group, _) = text(&object, &["apiVersion"]).split_once('/').unwrap_or_default();
            let kind = KINDS.iter().find(|k| k.kind == text(&object, &["kind"]) && k.group == group);
            match kind {
                // The cluster has its own.
                Some(kind) if self.real && matches!(kind.kind, "Node" | "ResourceSlice") => {}
                Some(kind) => {
                    let mut object = fresh(object, kind);
                    let namespaced =
                        matches!(kind.kind, "Pod" | "PodGroup" | "ResourceClaim" | "ResourceClaimTemplate");
                    if namespaced && namespace(&object).is_empty() {
                        set_default_namespace(&mut object);
                    }
                    self.label(&mut object);
                    input.push((kind.kind, object));
                }
                None => *skipped.entry(text(&object, &["kind"]).to_owned()).or_insert(0_usize) += 1,
            }
        }
        for (kind, number) in skipped {
            self.teller.say(&format!(
                "skipped {} of kind {kind}, which the demo does not know",
                count(number, "object")
            ))?;
        }
        let order = |kind: &str| KINDS.iter().position(|k| k.kind == kind);
        input.sort_by_key(|(kind, _)| order(kind));
        if !self.real {
            add_nodes(&mut input);
        }
        let (teller, api) = (self.teller, self.api);
        let what = format!("applying {}", count(input.len(), "object"));
        teller
            .step(&what, async {
                for (kind, object) in &input {
                    let id = Id::of(kind, object);
                    self.made.push(id.clone());
                    if !api.create(kind, object).await? && !matches!(*kind, "Namespace" | "DeviceClass") {
                        bail!("{id} is there already: it may be of use to somebody; delete it first");
                    }
                }
                Ok(())
            })
            .await?;
        Ok(input)
    }

    fn label(&self, object: &mut Value) {
        let Some(metadata) = object.get_mut("metadata") else { return };
        let mut labels = at(metadata, &["labels"]).clone();
        if !labels.is_object() {
            labels = json!({});
        }
        set(&mut labels, LABEL, json!(self.run));
        set(metadata, "labels", labels);
    }

    async fn run(&self, pods: &[Id]) -> Result<()> {
        let waited = self
            .api
            .until(async || {
                let mut waiting = Vec::new();
                for pod in pods {
                    let found = self.api.get(pod).await?;
                    let phase = found.as_ref().map_or("gone", |pod| text(pod, &["status", "phase"]));
                    if phase != "Running" {
                        waiting.push(format!("{pod} is {phase}"));
                    }
                }
                Ok(if waiting.is_empty() { Ok(()) } else { Err(waiting.join(", ")) })
            })
            .await;
        let Err(error) = waited else { return Ok(()) };
        let mut why = Vec::new();
        for pod in pods {
            let Some(holder) =
                self.holder(pod).await?.filter(|h| text(&h.pod, &["status", "phase"]) != "Running")
            else {
                continue;
            };
            let mut reasons = self.api.events(&holder.pod).await;
            for claim in &holder.claims {
                if at(claim, &["status", "allocation"]).is_null() {
                    reasons.push(format!(
                        "claim {} is not allocated: no node has what it asks for",
                        name(claim)
                    ));
                }
            }
            why.push(format!("\n  {pod}: {}", reasons.join("; ")));
        }
        Err(error).with_context(|| format!("not every Pod runs{}", why.concat()))
    }

    /// A Pod ends, and what was made for it is deleted.
    async fn one_ends(&self, pods: &[Id]) -> Result<()> {
        let mut chosen = None;
        for pod in pods {
            let Some(holder) = self.holder(pod).await? else { continue };
            let generated = holder.claims.iter().any(|claim| is_owned_by(claim, "Pod"));
            if generated && !holder.claims.iter().any(tolerates_something) {
                chosen = Some((pod, holder));
                break;
            }
        }
        let Some((pod, holder)) = chosen else { return Ok(()) };
        let how = if self.real { "is deleted" } else { "completes" };
        self.teller
            .step(&format!("{pod} {how}: the claim made for it is released and deleted"), async {
                if self.real {
                    self.api.delete(pod).await?;
                } else {
                    self.api.patch(pod, "/status", &json!({"status": {"phase": "Succeeded"}})).await?;
                }
                self.released(&holder.claims).await
            })
            .await
    }

    /// Devices are tainted, first to see what would happen, then for good. How many Pods were evicted.
    async fn maintenance(&mut self, pods: &[Id]) -> Result<usize> {
        let (driver, selector) = self.selector(pods).await?;
        let stands = self.stands(pods, &selector).await?;
        let rule = Id::new("DeviceTaintRule", "", RULE);
        let mut body = json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceTaintRule", "metadata": {"name": RULE},
            "spec": {"deviceSelector": selector, "taint": {"key": TAINT_KEY, "value": TAINT_VALUE, "effect": "None"}}});
        self.label(&mut body);
        self.made.push(rule.clone());
        let api = self.api;
        let message = self.teller.step("a DeviceTaintRule with effect None: what would happen?", async {
            ensure!(api.create("DeviceTaintRule", &body).await?, "{rule} is there already: delete it first");
            condition(api, &rule, |condition| !text(condition, &["message"]).is_empty()).await
        });
        self.show_rule(&message.await?).await?;

        // Somebody else may have got a device meanwhile.
        let (_, still) = self.selector(pods).await?;
        ensure!(still == selector, "somebody else uses selected devices now: nothing was evicted");
        let of = |wanted: fn(Stand) -> bool| -> Vec<Id> {
            stands.iter().filter(|(_, stand)| wanted(*stand)).map(|(pod, _)| pod.clone()).collect()
        };
        let going = of(|stand| stand == Stand::Goes);
        let patient = of(|stand| matches!(stand, Stand::GoesAfter(_)));
        let staying = of(|stand| stand == Stand::Stays);
        let what = format!(
            "the effect becomes NoExecute: {} without a toleration must go",
            count(going.len(), "Pod")
        );
        self.teller
            .step(&what, async {
                api.patch(&rule, "", &json!({"spec": {"taint": {"effect": "NoExecute"}}})).await?;
                if self.kubectl.is_none() { api.gone(&going).await } else { Ok(()) }
            })
            .await?;
        let evicted = going.len().saturating_add(patient.len());
        if self.kubectl.is_some() {
            if evicted > 0 {
                let what = "the condition tells that Pods have to go";
                let told = condition(api, &rule, |c| text(c, &["status"]) == "True");
                self.show_rule(&self.teller.step(what, told).await?).await?;
            }
            self.teller.step("they are gone", api.gone(&going)).await?;
        }
        if !patient.is_empty() {
            let what =
                format!("tolerated for some seconds, then gone as well: {}", count(patient.len(), "Pod"));
            self.teller.step(&what, api.gone(&patient)).await?;
        }
        self.show_pods(pods).await?;
        for pod in &staying {
            let found = api.get(pod).await?;
            ensure!(found.is_some_and(|pod| !is_deleting(&pod)), "{pod} tolerates the taint and is gone");
        }
        self.ask_for_pools(&driver).await?;
        let what = "waiting for the condition: kubectl wait --for=condition=EvictionInProgress=false";
        let (waited, condition) = self
            .teller
            .step(what, async {
                let mut waited = String::new();
                if let Some(kubectl) = &self.kubectl {
                    let (rule, patience) = (format!("devicetaintrule/{RULE}"), api.patience.as_secs());
                    let wanted = "--for=condition=EvictionInProgress=false";
                    waited = kubectl.run(&["wait", wanted, &rule, &format!("--timeout={patience}s")]).await?;
                }
                Ok((waited, condition(api, &rule, |c| text(c, &["status"]) == "False").await?))
            })
            .await?;
        if !waited.is_empty() {
            self.teller.say(&waited)?;
        }
        self.show_rule(&condition).await?;
        if evicted > 0 {
            let said = text(&condition, &["message"]);
            ensure!(
                said.contains(&format!("{} evicted", count(evicted, "pod"))),
                "{evicted} Pods were to be evicted, but the condition says: {said}"
            );
        }
        for pod in &staying {
            ensure!(api.get(pod).await?.is_some(), "{pod} tolerates the taint and is gone");
        }
        let what = match staying.len() {
            0 => "the rule is deleted".to_owned(),
            number => {
                format!("the rule is deleted; tolerating it, {} stayed", count(number, "Pod"))
            }
        };
        self.teller.step(&what, api.delete(&rule)).await?;
        Ok(evicted)
    }

    /// What the rule's condition says, or all that kubectl tells of the rule.
    async fn show_rule(&self, condition: &Value) -> Result<()> {
        match &self.kubectl {
            Some(kubectl) => {
                let described = kubectl.run(&["describe", "devicetaintrule", RULE]).await?;
                self.teller.say(&described)
            }
            None => self.teller.say(&format!("\n    {}\n", text(condition, &["message"]))),
        }
    }

    /// What the rule selects: the driver that most devices of these Pods come from; but a single device where others use
    /// that driver, too.
    async fn selector(&self, pods: &[Id]) -> Result<(String, Value)> {
        let mut uses: BTreeMap<String, Vec<Value>> = BTreeMap::new();
        let mut ours = Vec::new();
        for pod in pods {
            let Some(holder) = self.holder(pod).await? else { continue };
            for claim in holder.claims {
                for result in items(&claim, &["status", "allocation", "devices", "results"]) {
                    uses.entry(text(result, &["driver"]).to_owned()).or_default().push(result.clone());
                }
                ours.push(Id::of("ResourceClaim", &claim));
            }
        }
        let (driver, results) = uses
            .into_iter()
            .max_by_key(|(driver, results)| (results.len(), std::cmp::Reverse(driver.clone())))
            .context("no Pod has a device")?;
        let foreign: Vec<Value> = self
            .api
            .list("ResourceClaim", "")
            .await?
            .iter()
            .filter(|claim| !ours.contains(&Id::of("ResourceClaim", claim)))
            .flat_map(|claim| items(claim, &["status", "allocation", "devices", "results"]).to_vec())
            .filter(|result| text(result, &["driver"]) == driver)
            .collect();
        if foreign.is_empty() {
            return Ok((driver.clone(), json!({"driver": driver})));
        }
        let is_same = |one: &Value, other: &Value| {
            ["driver", "pool", "device"].iter().all(|part| text(one, &[part]) == text(other, &[part]))
        };
        let own = results.iter().find(|result| !foreign.iter().any(|other| is_same(other, result)));
        let own =
            own.context("every device of these Pods is shared with others: none can be tainted for show")?;
        let selector =
            json!({"driver": driver, "pool": text(own, &["pool"]), "device": text(own, &["device"])});
        Ok((driver, selector))
    }

    async fn stands(&self, pods: &[Id], selector: &Value) -> Result<Vec<(Id, Stand)>> {
        let mut stands = Vec::new();
        for pod in pods {
            let Some(holder) =
                self.holder(pod).await?.filter(|h| text(&h.pod, &["status", "phase"]) == "Running")
            else {
                continue;
            };
            let results: Vec<&Value> = holder
                .claims
                .iter()
                .flat_map(|claim| items(claim, &["status", "allocation", "devices", "results"]))
                .collect();
            stands.push((pod.clone(), stand(&results, selector)));
        }
        Ok(stands)
    }

    /// The pools of a driver as a `ResourcePoolStatusRequest` shows them.
    async fn ask_for_pools(&mut self, driver: &str) -> Result<()> {
        let request = Id::new("ResourcePoolStatusRequest", "", REQUEST);
        let mut body = json!({"apiVersion": "resource.k8s.io/v1alpha3", "kind": request.kind,
            "metadata": {"name": REQUEST}, "spec": {"driver": driver}});
        self.label(&mut body);
        let api = self.api;
        if self.real && api.list("ResourcePoolStatusRequest", "").await.is_err() {
            return self.teller.say("(the API server does not serve ResourcePoolStatusRequests: left out)");
        }
        self.made.push(request.clone());
        let answered = self.teller.step("a ResourcePoolStatusRequest asks what is left", async {
            ensure!(api.create(request.kind, &body).await?, "{request} is there already: delete it first");
            api.until(async || {
                let found = api.get(&request).await?.unwrap_or_default();
                let done =
                    items(&found, &["status", "conditions"]).iter().any(|c| text(c, &["type"]) == "Complete");
                Ok(if done { Ok(found) } else { Err(format!("no answer to {request}")) })
            })
            .await
        });
        let rows: Vec<[String; 6]> = items(&answered.await?, &["status", "pools"])
            .iter()
            .map(|pool| {
                let number = |field: &str| at(pool, &[field]).as_i64().unwrap_or_default().to_string();
                [
                    text(pool, &["poolName"]).to_owned(),
                    text(pool, &["nodeName"]).to_owned(),
                    number("totalDevices"),
                    number("allocatedDevices"),
                    number("availableDevices"),
                    number("unavailableDevices"),
                ]
            })
            .collect();
        ensure!(!rows.is_empty(), "the answer has no pool of driver {driver}");
        self.teller.table(["POOL", "NODE", "DEVICES", "ALLOCATED", "AVAILABLE", "TAINTED"], &rows, "")
    }

    /// A claim of a PodGroup outlives its Pods and goes with the PodGroup.
    async fn groups_go(&self, groups: &[Id], pods: &[Id]) -> Result<()> {
        let mut members = Vec::new();
        for pod in self.here(pods).await? {
            let found = self.api.get(&pod).await?.unwrap_or_default();
            if !text(&found, &["spec", "schedulingGroup", "podGroupName"]).is_empty() {
                members.push(pod);
            }
        }
        let mut claims = Vec::new();
        for group in groups {
            let found = self.api.get(group).await?.with_context(|| format!("{group} is gone"))?;
            for entry in items(&found, &["status", "resourceClaimStatuses"]) {
                claims.push(Id::new("ResourceClaim", &group.namespace, text(entry, &["resourceClaimName"])));
            }
        }
        self.teller
            .step(
                "the Pods of PodGroups are gone, or are deleted: the claims stay with their PodGroups",
                async {
                    for pod in &members {
                        self.api.delete(pod).await?;
                    }
                    self.api.gone(&members).await?;
                    for claim in &claims {
                        let found = self.api.get(claim).await?.with_context(|| format!("{claim} is gone"))?;
                        let holds = items(&found, &["status", "reservedFor"])
                            .iter()
                            .any(|c| text(c, &["resource"]) == "podgroups");
                        ensure!(
                            holds,
                            "{claim} is not reserved for its PodGroup: {}",
                            at(&found, &["status"])
                        );
                    }
                    Ok(())
                },
            )
            .await?;
        self.show_claims(pods).await?;
        let what = format!(
            "{} deleted: the claims go with them",
            if groups.len() == 1 { "the PodGroup is" } else { "the PodGroups are" }
        );
        self.teller
            .step(&what, async {
                for group in groups {
                    self.api.delete(group).await?;
                }
                self.api.gone(&claims).await
            })
            .await
    }

    // What is there

    async fn holder(&self, pod: &Id) -> Result<Option<Holder>> {
        let Some(found) = self.api.get(pod).await? else { return Ok(None) };
        let mut claims = Vec::new();
        for (_, claim) in self.claim_names(&found).await? {
            claims.extend(self.api.get(&claim).await?);
        }
        Ok(Some(Holder { pod: found, claims }))
    }

    /// Entries of a Pod and their claims, those of its PodGroup among them.
    async fn claim_names(&self, pod: &Value) -> Result<Vec<(String, Id)>> {
        let group = text(pod, &["spec", "schedulingGroup", "podGroupName"]);
        let group = if group.is_empty() {
            None
        } else {
            self.api.get(&Id::new("PodGroup", namespace(pod), group)).await?
        };
        let entries = dra_inhabitants::cluster::entries(pod, group.as_ref());
        let spec = items(pod, &["spec", "resourceClaims"]);
        Ok(entries
            .into_iter()
            .zip(spec)
            .filter_map(|(entry, spec)| {
                use dra_inhabitants::cluster::Entry;
                let claim = match entry {
                    Entry::Direct(claim) => Some(claim),
                    Entry::Generated { recorded, .. } | Entry::Shared { recorded, .. } => recorded,
                }?;
                let entry = text(spec, &["name"]).to_owned();
                Some((entry, Id::new("ResourceClaim", namespace(pod), &claim)))
            })
            .collect())
    }

    /// Claims of these Pods, each once.
    async fn claims(&self, pods: &[Id]) -> Result<Vec<Value>> {
        let mut claims: BTreeMap<Id, Value> = BTreeMap::new();
        for pod in pods {
            for claim in self.holder(pod).await?.into_iter().flat_map(|holder| holder.claims) {
                claims.insert(Id::of("ResourceClaim", &claim), claim);
            }
        }
        Ok(claims.into_values().collect())
    }

    async fn here(&self, pods: &[Id]) -> Result<Vec<Id>> {
        let mut here = Vec::new();
        for pod in pods {
            if self.api.get(pod).await?.is_some() {
                here.push(pod.clone());
            }
        }
        Ok(here)
    }

    /// Waits until claims that were made for Pods are gone, and others have no allocation any more.
    async fn released(&self, claims: &[Value]) -> Result<()> {
        let (made, own): (Vec<&Value>, Vec<&Value>) = claims
            .iter()
            .filter(|claim| !is_owned_by(claim, "PodGroup"))
            .partition(|claim| is_owned_by(claim, "Pod"));
        let names = |claims: Vec<&Value>| -> Vec<Id> {
            claims.into_iter().map(|claim| Id::of("ResourceClaim", claim)).collect()
        };
        self.api.gone(&names(made)).await?;
        let own = names(own);
        self.api
            .until(async || {
                for claim in &own {
                    let found = self.api.get(claim).await?.unwrap_or_default();
                    if !at(&found, &["status", "allocation"]).is_null() {
                        return Ok(Err(format!("{claim} is allocated")));
                    }
                }
                Ok(Ok(()))
            })
            .await
    }

    // Tables

    async fn show_pods(&self, pods: &[Id]) -> Result<()> {
        let mut rows = Vec::new();
        for pod in pods {
            let Some(found) = self.api.get(pod).await? else { continue };
            for (entry, claim) in self.claim_names(&found).await? {
                let object = self.api.get(&claim).await?;
                rows.push([
                    name(&found).to_owned(),
                    text(&found, &["status", "phase"]).to_owned(),
                    text(&found, &["spec", "nodeName"]).to_owned(),
                    entry,
                    claim.name,
                    object.as_ref().map(devices).unwrap_or_default(),
                    object.as_ref().map_or_else(|| "(claim is gone)".to_owned(), reserved_for),
                ]);
            }
        }
        let head = ["POD", "PHASE", "NODE", "ENTRY", "CLAIM", "DEVICES", "RESERVED FOR"];
        self.teller.table(head, &rows, "no Pods")
    }

    async fn show_claims(&self, pods: &[Id]) -> Result<()> {
        let mut namespaces: Vec<&str> = pods.iter().map(|pod| pod.namespace.as_str()).collect();
        namespaces.sort_unstable();
        namespaces.dedup();
        let mut rows = Vec::new();
        for namespace in namespaces {
            for claim in self.api.list("ResourceClaim", namespace).await? {
                let allocated = !at(&claim, &["status", "allocation"]).is_null();
                let state = if allocated { "allocated" } else { "free" };
                rows.push([name(&claim).to_owned(), state.to_owned(), devices(&claim), reserved_for(&claim)]);
            }
        }
        self.teller.table(["CLAIM", "STATE", "DEVICES", "RESERVED FOR"], &rows, "no claims are left")
    }
}

/// Waits until the rule has a condition that is as wanted.
async fn condition(api: &Api, rule: &Id, wanted: impl Fn(&Value) -> bool) -> Result<Value> {
    api.until(async || {
        let found = api.get(rule).await?.unwrap_or_default();
        let generation = at(&found, &["metadata", "generation"]);
        let conditions = items(&found, &["status", "conditions"]);
        let condition =
            conditions.iter().find(|c| text(c, &["type"]) == dra_api::names::EVICTION_IN_PROGRESS);
        Ok(match condition {
            Some(c) if at(c, &["observedGeneration"]) == generation && wanted(c) => Ok(c.clone()),
            Some(c) => Err(format!("{rule} has the condition {c}")),
            None => Err(format!("{rule} has no condition; does a taint eviction controller run?")),
        })
    })
    .await
}

fn names(input: &[(&'static str, Value)], kind: &'static str) -> Vec<Id> {
    input.iter().filter(|(k, _)| *k == kind).map(|(_, object)| Id::of(kind, object)).collect()
}

fn set_default_namespace(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("namespace".to_owned(), json!("default"));
    }
}

/// Nodes that slices name and the input has not, and namespaces.
fn add_nodes(input: &mut Vec<(&'static str, Value)>) {
    let missing = |kind: &str, name: &str, input: &[(&'static str, Value)]| {
        !name.is_empty()
            && !input.iter().any(|(k, o)| *k == kind && dra_inhabitants::cluster::name(o) == name)
    };
    let (mut wanted, mut more): (Vec<(&'static str, String)>, Vec<_>) = (Vec::new(), Vec::new());
    for (kind, object) in input.iter() {
        if *kind == "ResourceSlice" {
            wanted.push(("Node", text(object, &["spec", "nodeName"]).to_owned()));
        }
        if namespace(object) != "default" {
            wanted.push(("Namespace", namespace(object).to_owned()));
        }
    }
    wanted.sort();
    wanted.dedup();
    for (kind, name) in wanted {
        if missing(kind, &name, input) {
            more.push((kind, json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name}})));
        }
    }
    input.splice(0..0, more);
}

fn is_owned_by(claim: &Value, kind: &str) -> bool {
    dra_inhabitants::cluster::owner(claim, kind).is_some()
}

fn tolerates_something(claim: &Value) -> bool {
    items(claim, &["status", "allocation", "devices", "results"])
        .iter()
        .any(|result| !items(result, &["tolerations"]).is_empty())
}

/// How a Pod with these devices stands to the story's taint with effect `NoExecute`.
fn stand(results: &[&Value], selector: &Value) -> Stand {
    let selected = |result: &&&Value| {
        ["driver", "pool", "device"]
            .iter()
            .all(|part| at(selector, &[part]).is_null() || at(selector, &[part]) == at(result, &[part]))
    };
    let mut stand = Stand::Untouched;
    for result in results.iter().filter(selected) {
        let matching = items(result, &["tolerations"]).iter().filter(|t| tolerates(t));
        let seconds: Vec<Option<i64>> = matching.map(|t| at(t, &["tolerationSeconds"]).as_i64()).collect();
        let here = match (seconds.is_empty(), seconds.iter().flatten().min()) {
            (true, _) => Stand::Goes,
            (false, None) => Stand::Stays,
            (false, Some(seconds)) => Stand::GoesAfter(*seconds),
        };
        stand = match (stand, here) {
            (Stand::Goes, _) | (_, Stand::Goes) => Stand::Goes,
            (Stand::GoesAfter(a), Stand::GoesAfter(b)) => Stand::GoesAfter(a.min(b)),
            (Stand::GoesAfter(a), _) | (_, Stand::GoesAfter(a)) => Stand::GoesAfter(a),
            _ => here,
        };
    }
    stand
}

fn tolerates(toleration: &Value) -> bool {
    let (key, effect) = (text(toleration, &["key"]), text(toleration, &["effect"]));
    let value = text(toleration, &["operator"]) == "Exists" || text(toleration, &["value"]) == TAINT_VALUE;
    matches!(effect, "" | "NoExecute") && (key.is_empty() || key == TAINT_KEY) && value
}

fn devices(claim: &Value) -> String {
    let results = items(claim, &["status", "allocation", "devices", "results"]);
    let names: Vec<String> =
        results.iter().map(|r| format!("{}/{}", text(r, &["pool"]), text(r, &["device"]))).collect();
    names.join(" ")
}

fn reserved_for(claim: &Value) -> String {
    let consumers = items(claim, &["status", "reservedFor"]);
    let names: Vec<String> =
        consumers.iter().map(|c| format!("{}/{}", text(c, &["resource"]), text(c, &["name"]))).collect();
    names.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_patient_claim_decides() {
        let selector = json!({"driver": "d"});
        let with = |tolerations: Value| json!({"driver": "d", "pool": "p", "device": "x", "tolerations": tolerations});
        let exists =
            |seconds: Value| json!({"key": TAINT_KEY, "operator": "Exists", "tolerationSeconds": seconds});
        let (always, soon) = (with(json!([exists(Value::Null)])), with(json!([exists(json!(5))])));
        let (never, other) = (with(json!([])), json!({"driver": "e"}));
        assert_eq!(stand(&[&other], &selector), Stand::Untouched);
        assert_eq!(stand(&[&other, &always], &selector), Stand::Stays);
        assert_eq!(stand(&[&soon, &always], &selector), Stand::GoesAfter(5));
        assert_eq!(stand(&[&soon, &never, &always], &selector), Stand::Goes);
        let others =
            with(json!([{"key": "other", "operator": "Exists"}, {"key": TAINT_KEY, "value": "other"}]));
        assert_eq!(stand(&[&others], &selector), Stand::Goes);
    }
}
