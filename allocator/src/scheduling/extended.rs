//! Extended resources from devices: which class serves a resource, and the claim that the scheduler makes for a Pod
//! (`extendeddynamicresources.go`, `deviceclass/extendedresourcecache`).

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::pod::{Container, PodSpec, Resources, aggregate};
use crate::objects::{DeviceClass, DeviceRequest, ExactDeviceRequest, ObjectMeta, ResourceClaim};

/// Before the name of a class: the resource that each class has without saying so.
pub const IMPLICIT_PREFIX: &str = "deviceclass.resource.kubernetes.io/";
/// The name of the claim as long as it is in memory only; not one that a stored claim can have.
pub const EXTENDED_CLAIM: &str = "<extended-resources>";

/// Which class serves which extended resource.
///
/// Of several classes with the same name for a resource the newest wins, then the one whose name sorts first. Unlike in
/// Kubernetes, where it depends on the order of events, the others keep their implicit resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExtendedResources {
    classes: BTreeMap<String, String>,
}

/// The claim for a Pod's extended resources on one node.
#[derive(Clone, Debug, PartialEq)]
pub struct ExtendedClaim {
    /// To be allocated after the Pod's other claims.
    pub claim: ResourceClaim,
    /// Which container's resource is served by which request, as in the Pod's `extendedResourceClaimStatus`.
    pub mappings: Vec<RequestMapping>,
}

/// A container's resource and the request of the claim that serves it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RequestMapping {
    /// The container.
    pub container_name: String,
    /// The resource.
    pub resource_name: String,
    /// The request.
    pub request_name: String,
}

/// A resource that neither a class nor the node's device plugins provide.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot fit resource {0}: no DeviceClass serves it, and the node does not have it")]
pub struct NotProvided(pub String);

impl ExtendedResources {
    /// Of these classes. Creation times are compared as text: RFC 3339 in UTC, as the API server writes it.
    pub fn new<'a>(classes: impl IntoIterator<Item = &'a DeviceClass>) -> Self {
        let mut explicit: BTreeMap<&str, &DeviceClass> = BTreeMap::new();
        let mut found = BTreeMap::new();
        for class in classes {
            let name = &class.metadata.name;
            found.insert(format!("{IMPLICIT_PREFIX}{name}"), name.clone());
            let Some(resource) = class.spec.extended_resource_name.as_deref() else { continue };
            let wins = explicit.get(resource).is_none_or(|other| {
                let (time, others) = (&class.metadata.creation_timestamp, &other.metadata.creation_timestamp);
                time.cmp(others).then_with(|| other.metadata.name.cmp(name)).is_gt()
            });
            if wins {
                explicit.insert(resource, class);
            }
        }
        let explicit = explicit.into_iter();
        found.extend(explicit.map(|(resource, class)| (resource.to_owned(), class.metadata.name.clone())));
        Self { classes: found }
    }

    /// The class that serves a resource.
    pub fn class(&self, resource: &str) -> Option<&str> {
        self.classes.get(resource).map(String::as_str)
    }

    /// The claim that a Pod needs on a node with so much `allocatable`; none if device plugins provide all its extended
    /// resources there, or if it has none that a class serves. A node has a resource either from a device plugin or from a
    /// class: from the latter if it has nothing allocatable of it.
    ///
    /// # Errors
    ///
    /// The node does not have one of the resources at all.
    pub fn claim(
        &self,
        namespace: &str,
        pod: &PodSpec,
        allocatable: &Resources,
    ) -> Result<Option<ExtendedClaim>, NotProvided> {
        let wanted: Vec<String> = aggregate(pod, |container| &container.resources.requests)
            .into_iter()
            .filter(|(name, amount)| is_extended(name) && !amount.is_zero())
            .map(|(name, _)| name)
            .collect();
        if !wanted.iter().any(|name| self.classes.contains_key(name)) {
            return Ok(None);
        }
        let mut served = Vec::new();
        for name in &wanted {
            let has = allocatable.get(name);
            match self.class(name) {
                Some(class) if has.is_none_or(dra_api::quantity::Quantity::is_zero) => {
                    served.push((name.as_str(), class));
                }
                None if has.is_none() => return Err(NotProvided(name.clone())),
                _ => {}
            }
        }
        if served.is_empty() {
            return Ok(None);
        }
        let mut asked = Vec::new();
        let mut mappings = Vec::new();
        for (resource, class) in served {
            requests_for(pod, resource, class, &mut asked, &mut mappings);
        }
        asked.sort_by(|a: &DeviceRequest, b| a.name.cmp(&b.name));
        let mut claim = ResourceClaim {
            metadata: ObjectMeta {
                name: EXTENDED_CLAIM.to_owned(),
                namespace: namespace.to_owned(),
                ..ObjectMeta::default()
            },
            ..ResourceClaim::default()
        };
        claim.spec.devices.requests = asked;
        Ok(Some(ExtendedClaim { claim, mappings }))
    }
}

/// `IsDRAExtendedResourceName`.
fn is_extended(resource: &str) -> bool {
    let is_native = !resource.contains('/') || resource.contains("kubernetes.io/");
    resource.starts_with(IMPLICIT_PREFIX) || !is_native && !resource.starts_with("requests.")
}

/// The requests for one resource (`createRequestsAndMappings`). Containers that run on have requests of their own;
/// init containers that end use those of containers that come later, and the largest shortfall among them becomes one
/// more request.
fn requests_for(
    pod: &PodSpec,
    resource: &str,
    class: &str,
    asked: &mut Vec<DeviceRequest>,
    mappings: &mut Vec<RequestMapping>,
) {
    let inits = pod.init_containers.iter().map(|container| (container, !container.is_sidecar()));
    let all: Vec<(&Container, bool)> =
        inits.chain(pod.containers.iter().map(|container| (container, false))).collect();
    let mut lasting: Vec<(usize, DeviceRequest)> = Vec::new();
    for (position, (container, ends)) in all.iter().enumerate() {
        if *ends {
            continue;
        }
        if let Some(request) = request(position, container, resource, class, &[], mappings) {
            lasting.push((position, request));
        }
    }
    let mut largest: Option<DeviceRequest> = None;
    let mut short_names = BTreeSet::new();
    let mut short_mappings = Vec::new();
    for (position, (container, ends)) in all.iter().enumerate() {
        if !*ends {
            continue;
        }
        let reusable: Vec<&DeviceRequest> =
            lasting.iter().filter(|(at, _)| *at >= position).map(|(_, request)| request).collect();
        if let Some(request) = request(position, container, resource, class, &reusable, &mut short_mappings) {
            short_names.insert(request.name.clone());
            if largest.as_ref().is_none_or(|largest| count(largest) < count(&request)) {
                largest = Some(request);
            }
        }
    }
    if let Some(largest) = largest {
        for mapping in &mut short_mappings {
            if short_names.contains(&mapping.request_name) {
                mapping.request_name.clone_from(&largest.name);
            }
        }
        asked.push(largest);
    }
    asked.extend(lasting.into_iter().map(|(_, request)| request));
    mappings.append(&mut short_mappings);
}

fn count(request: &DeviceRequest) -> i64 {
    request.exactly.as_ref().map_or(0, |exactly| exactly.count)
}

/// What a container needs beyond the requests that it can use, if anything (`createResourceRequestAndMappings`).
fn request(
    position: usize,
    container: &Container,
    resource: &str,
    class: &str,
    reusable: &[&DeviceRequest],
    mappings: &mut Vec<RequestMapping>,
) -> Option<DeviceRequest> {
    let requests = &container.resources.requests;
    let needed = requests.get(resource)?.as_i64().filter(|needed| *needed != 0)?;
    let mut map_to = |request: &str| {
        mappings.push(RequestMapping {
            container_name: container.name.clone(),
            resource_name: resource.to_owned(),
            request_name: request.to_owned(),
        });
    };
    let mut found = 0_i64;
    for request in reusable {
        found = found.saturating_add(count(request));
        map_to(&request.name);
        if found >= needed {
            return None;
        }
    }
    let index = requests.keys().position(|name| name == resource).unwrap_or(0);
    let name = format!("container-{position}-request-{index}");
    map_to(&name);
    let exactly = ExactDeviceRequest {
        device_class_name: class.to_owned(),
        allocation_mode: "ExactCount".to_owned(),
        count: needed.saturating_sub(found),
        ..ExactDeviceRequest::default()
    };
    Some(DeviceRequest { name, exactly: Some(exactly), first_available: Vec::new() })
}

#[cfg(test)]
#[allow(clippy::needless_pass_by_value, reason = "JSON is written at the place of use")]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn class(name: &str, resource: Option<&str>, created: &str) -> DeviceClass {
        serde_json::from_value(json!({
            "metadata": {"name": name, "creationTimestamp": created}, "spec": {"extendedResourceName": resource},
        }))
        .unwrap()
    }

    fn gpus() -> ExtendedResources {
        ExtendedResources::new(&[
            class("gpu.example.com", Some("example.com/gpu"), "2026-01-01T00:00:00Z"),
            class("nic.example.com", None, "2026-01-01T00:00:00Z"),
        ])
    }

    fn pod(spec: Value) -> PodSpec {
        serde_json::from_value(spec).unwrap()
    }

    fn container(name: &str, requests: Value) -> Value {
        json!({"name": name, "resources": {"requests": requests}})
    }

    fn allocatable(resources: Value) -> Resources {
        serde_json::from_value(resources).unwrap()
    }

    /// `name=class*count` of each request.
    fn asked(claim: &ExtendedClaim) -> Vec<String> {
        let requests = claim.claim.spec.devices.requests.iter();
        requests
            .map(|request| {
                let exactly = request.exactly.as_ref().unwrap();
                format!("{}={}*{}", request.name, exactly.device_class_name, exactly.count)
            })
            .collect()
    }

    /// `container:request` of each mapping.
    fn mapped(claim: &ExtendedClaim) -> Vec<String> {
        let mappings = claim.mappings.iter();
        mappings.map(|mapping| format!("{}:{}", mapping.container_name, mapping.request_name)).collect()
    }

    #[test]
    fn a_pod_gets_devices_of_the_class_that_names_its_resource() {
        let pod = pod(json!({"containers": [container("c", json!({"cpu": "1", "example.com/gpu": 2}))]}));
        let claim = gpus().claim("ns", &pod, &Resources::new()).unwrap().unwrap();
        assert_eq!(claim.claim.key(), "ns/<extended-resources>");
        assert_eq!(asked(&claim), ["container-0-request-1=gpu.example.com*2"]);
        assert_eq!(mapped(&claim), ["c:container-0-request-1"]);
    }

    #[test]
    fn every_class_has_an_implicit_resource() {
        let pod = pod(
            json!({"containers": [container("c", json!({"deviceclass.resource.kubernetes.io/nic.example.com": 1}))]}),
        );
        let claim = gpus().claim("ns", &pod, &Resources::new()).unwrap().unwrap();
        assert_eq!(asked(&claim), ["container-0-request-0=nic.example.com*1"]);
    }

    #[test]
    fn a_node_has_a_resource_from_a_device_plugin_or_from_a_class() {
        let pod = pod(json!({"containers": [container("c", json!({"example.com/gpu": 1}))]}));
        let on = |node: Value| gpus().claim("ns", &pod, &allocatable(node));
        assert_eq!(on(json!({"example.com/gpu": "4"})), Ok(None));
        assert!(on(json!({"example.com/gpu": "0"})).unwrap().is_some());
        assert!(on(json!({})).unwrap().is_some());
    }

    #[test]
    fn a_resource_that_nobody_provides_rules_the_node_out() {
        let pod = pod(
            json!({"containers": [container("c", json!({"example.com/gpu": 1, "example.com/fpga": 1}))]}),
        );
        let missing = gpus().claim("ns", &pod, &Resources::new());
        assert_eq!(missing, Err(NotProvided("example.com/fpga".to_owned())));
        assert!(gpus().claim("ns", &pod, &allocatable(json!({"example.com/fpga": "1"}))).unwrap().is_some());
    }

    #[test]
    fn pods_without_such_resources_need_no_claim() {
        for requests in
            [json!({}), json!({"cpu": "1"}), json!({"example.com/gpu": 0}), json!({"other.com/x": 1})]
        {
            let pod = pod(json!({"containers": [container("c", requests)]}));
            assert_eq!(gpus().claim("ns", &pod, &Resources::new()), Ok(None));
        }
    }

    #[test]
    fn the_newest_of_several_classes_serves_a_resource_and_the_others_keep_their_implicit_one() {
        let (old, new) = ("2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z");
        let classes = [
            class("b", Some("x.dev/gpu"), new),
            class("a", Some("x.dev/gpu"), old),
            class("c", Some("x.dev/gpu"), new),
        ];
        for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
            let resources = ExtendedResources::new(order.map(|position| &classes[position]));
            assert_eq!(resources.class("x.dev/gpu"), Some("b"));
            for name in ["a", "b", "c"] {
                assert_eq!(resources.class(&format!("{IMPLICIT_PREFIX}{name}")), Some(name));
            }
        }
    }

    #[test]
    fn init_containers_use_what_later_containers_have_and_share_one_request_for_the_rest() {
        let pod = pod(json!({
            "initContainers": [
                container("small", json!({"example.com/gpu": 1})),
                container("large", json!({"example.com/gpu": 5})),
                container("larger", json!({"example.com/gpu": 6})),
                {"name": "sidecar", "restartPolicy": "Always", "resources": {"requests": {"example.com/gpu": 1}}},
                container("last", json!({"example.com/gpu": 2})),
            ],
            "containers": [container("main", json!({"example.com/gpu": 2}))],
        }));
        let claim = gpus().claim("ns", &pod, &Resources::new()).unwrap().unwrap();
        assert_eq!(
            asked(&claim),
            [
                "container-2-request-0=gpu.example.com*3",
                "container-3-request-0=gpu.example.com*1",
                "container-5-request-0=gpu.example.com*2",
            ]
        );
        assert_eq!(
            mapped(&claim),
            [
                "sidecar:container-3-request-0",
                "main:container-5-request-0",
                "small:container-3-request-0",
                "large:container-3-request-0",
                "large:container-5-request-0",
                "large:container-2-request-0",
                "larger:container-3-request-0",
                "larger:container-5-request-0",
                "larger:container-2-request-0",
                "last:container-5-request-0",
            ]
        );
    }

    #[test]
    fn requests_are_sorted_by_name_bytewise() {
        let containers: Vec<_> =
            (0..11).map(|n| container(&format!("c{n}"), json!({"example.com/gpu": 1}))).collect();
        let pod = pod(json!({"containers": containers}));
        let claim = gpus().claim("ns", &pod, &Resources::new()).unwrap().unwrap();
        assert_eq!(
            asked(&claim)[..3].iter().map(|one| &one[..13]).collect::<Vec<_>>(),
            ["container-0-r", "container-1-r", "container-10-"]
        );
    }
}
