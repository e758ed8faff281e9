//! Device taints and tolerations, and the rules by which administrators taint devices.

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use serde::{
    Deserialize,
    de::{Deserializer, IgnoredAny},
};
use serde_json::value::RawValue;

use crate::{
    Meta,
    meta::{Text, compact},
    names,
    object::{DecodeError, Kind, Object, decode},
    pod::non_empty,
};

/// `effect` of a taint.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TaintEffect {
    /// `None`: for information only.
    None,
    /// `NoSchedule`: keeps claims away that do not tolerate it.
    NoSchedule,
    /// `NoExecute`: as `NoSchedule`, and Pods that do not tolerate it are evicted.
    NoExecute,
    /// One that is not known here; it does nothing.
    Other(Arc<str>),
}

impl TaintEffect {
    /// The effect of that name.
    pub fn of(name: &str) -> Self {
        match name {
            "None" => Self::None,
            "NoSchedule" => Self::NoSchedule,
            "NoExecute" => Self::NoExecute,
            other => Self::Other(other.into()),
        }
    }

    /// As the API writes it.
    pub fn name(&self) -> &str {
        match self {
            Self::None => "None",
            Self::NoSchedule => "NoSchedule",
            Self::NoExecute => "NoExecute",
            Self::Other(name) => name,
        }
    }
}

/// A taint of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taint {
    /// `key`, a qualified name.
    pub key: Arc<str>,
    /// `value`, possibly empty.
    pub value: Arc<str>,
    /// `effect`.
    pub effect: TaintEffect,
    /// `timeAdded`; the API server fills it in.
    pub time_added: Option<Timestamp>,
}

/// `operator` of a toleration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// `Equal`, which is also the meaning of an empty operator.
    Equal,
    /// `Exists`.
    Exists,
    /// One that is not known; it matches nothing.
    Unknown,
}

/// A toleration, as the scheduler copied it into an allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Toleration {
    /// `key`; an empty one stands for every key.
    pub key: Box<str>,
    /// `operator`.
    pub operator: Operator,
    /// `value`, compared by [`Operator::Equal`] only.
    pub value: Box<str>,
    /// `effect`; an empty one stands for every effect.
    pub effect: Box<str>,
    /// `tolerationSeconds`: how long after `timeAdded` the taint is tolerated; without it for ever. The API server
    /// sets no bounds: negative values mean "not at all", and there are values beyond all dates.
    pub seconds: Option<i64>,
}

impl Toleration {
    /// True when key, operator and value match the taint; the effect is not looked at
    /// (`resourceclaim/devicetoleration.go`).
    pub fn matches(&self, key: &str, value: &str) -> bool {
        (self.key.is_empty() || &*self.key == key)
            && match self.operator {
                Operator::Equal => &*self.value == value,
                Operator::Exists => true,
                Operator::Unknown => false,
            }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WireToleration<'a> {
    #[serde(borrow, default)]
    key: Option<Text<'a>>,
    #[serde(borrow, default)]
    operator: Option<Text<'a>>,
    #[serde(borrow, default)]
    value: Option<Text<'a>>,
    #[serde(borrow, default)]
    effect: Option<Text<'a>>,
    #[serde(default)]
    toleration_seconds: Option<i64>,
}

impl WireToleration<'_> {
    pub(crate) fn compact(&self) -> Toleration {
        let text = |t: &Option<Text<'_>>| t.as_deref().unwrap_or_default().into();
        Toleration {
            key: text(&self.key),
            operator: match self.operator.as_deref().unwrap_or_default() {
                "" | "Equal" => Operator::Equal,
                "Exists" => Operator::Exists,
                _ => Operator::Unknown,
            },
            value: text(&self.value),
            effect: text(&self.effect),
            seconds: self.toleration_seconds,
        }
    }
}

/// `spec.deviceSelector` of a rule: all fields that are set must be equal. One without any field selects every
/// device of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceTaintSelector {
    /// `driver`.
    pub driver: Option<Arc<str>>,
    /// `pool`.
    pub pool: Option<Arc<str>>,
    /// `device`.
    pub device: Option<Arc<str>>,
}

impl DeviceTaintSelector {
    /// True when it selects every device of the cluster.
    pub fn is_everything(&self) -> bool {
        self.driver.is_none() && self.pool.is_none() && self.device.is_none()
    }

    /// True when it selects this device. Exact comparison, no wildcards.
    pub fn selects(&self, driver: &str, pool: &str, device: &str) -> bool {
        let is = |wanted: &Option<Arc<str>>, name: &str| wanted.as_ref().is_none_or(|w| **w == *name);
        is(&self.driver, driver) && is(&self.pool, pool) && is(&self.device, device)
    }
}

/// The API version that a rule was read through, and is written through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RuleVersion {
    /// `v1`, since Kubernetes 1.37.
    V1,
    /// `v1beta2`, since 1.36.
    V1beta2,
    /// `v1alpha3`, since 1.33.
    V1alpha3,
}

impl RuleVersion {
    /// Its kind.
    pub const fn kind(self) -> Kind {
        let version = match self {
            Self::V1 => "v1",
            Self::V1beta2 => "v1beta2",
            Self::V1alpha3 => "v1alpha3",
        };
        Kind { group: names::RESOURCE_GROUP, version, kind: "DeviceTaintRule", plural: "devicetaintrules" }
    }
}

/// `status` of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConditionStatus {
    /// `True`.
    True,
    /// `False`.
    False,
    /// `Unknown`, or anything else.
    Unknown,
}

impl ConditionStatus {
    /// As the API writes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

/// A condition of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// `status`.
    pub status: ConditionStatus,
    /// `reason`.
    pub reason: Arc<str>,
    /// `message`.
    pub message: Arc<str>,
    /// `observedGeneration`; 0 when absent.
    pub observed_generation: i64,
    /// `lastTransitionTime`.
    pub last_transition: Option<Timestamp>,
}

/// The rule that another one was expanded from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RuleParent {
    /// Its name.
    pub name: Arc<str>,
    /// Its uid.
    pub uid: Arc<str>,
}

/// A DeviceTaintRule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceTaintRule {
    /// Identity; the namespace is empty.
    pub meta: Meta,
    /// The version it was read through.
    pub version: RuleVersion,
    /// `metadata.generation`.
    pub generation: i64,
    /// `spec.deviceSelector`; none selects nothing.
    pub selector: Option<DeviceTaintSelector>,
    /// `spec.taint`.
    pub taint: Taint,
    /// Eviction is paused by annotation.
    pub paused: bool,
    /// An annotation confirms that every device of the cluster is meant.
    pub confirmed: bool,
    /// Value of the annotation that selects by DeviceClass.
    pub select_class: Option<Arc<str>>,
    /// Value of the annotation that selects by CEL expression.
    pub select_cel: Option<Arc<str>>,
    /// The rule that this one was expanded from: its controller owner is a rule, and it has our label
    /// ([`names::EXPANDED_FROM_LABEL`]).
    pub parent: Option<RuleParent>,
    /// Fields of the selector that somebody asked for and the API server does not have (any more), as far as the
    /// object still shows them. Looked for only where the selector is empty.
    pub dropped: Box<[Arc<str>]>,
    /// The condition `EvictionInProgress`.
    pub condition: Option<Box<Condition>>,
}

impl DeviceTaintRule {
    /// Key of the rule of that name.
    pub fn key(name: &str) -> crate::ObjectKey {
        crate::ObjectKey::new("", name)
    }

    /// True when the devices that are meant are those of a class, or those of which an expression is true: the rule
    /// is expanded into one for each. Where there is a `deviceSelector`, that counts; and what was expanded is not
    /// expanded again.
    pub fn selects_by_annotation(&self) -> bool {
        self.selector.is_none()
            && self.parent.is_none()
            && (self.select_class.is_some() || self.select_cel.is_some())
    }
}

#[derive(Deserialize)]
struct Wire<'a> {
    #[serde(borrow)]
    metadata: WireRuleMeta<'a>,
    #[serde(borrow)]
    spec: WireSpec<'a>,
    #[serde(borrow, default)]
    status: Option<WireStatus<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireRuleMeta<'a> {
    #[serde(borrow)]
    name: Text<'a>,
    #[serde(borrow, default)]
    uid: Text<'a>,
    #[serde(borrow, default)]
    resource_version: Text<'a>,
    #[serde(default)]
    generation: i64,
    #[serde(borrow, default)]
    deletion_timestamp: Option<Text<'a>>,
    #[serde(borrow, default)]
    annotations: Option<WireAnnotations<'a>>,
    #[serde(borrow, default)]
    labels: Option<WireLabels<'a>>,
    #[serde(borrow, default)]
    owner_references: Option<Vec<WireOwner<'a>>>,
    #[serde(borrow, default)]
    managed_fields: Option<&'a RawValue>,
}

#[derive(Deserialize, Default)]
struct WireAnnotations<'a> {
    #[serde(borrow, default, rename = "dra-controller-manager.dev/pause-eviction")]
    pause: Option<Text<'a>>,
    #[serde(borrow, default, rename = "dra-controller-manager.dev/confirm-all-devices")]
    confirm: Option<Text<'a>>,
    #[serde(borrow, default, rename = "dra-controller-manager.dev/select-device-class")]
    class: Option<Text<'a>>,
    #[serde(borrow, default, rename = "dra-controller-manager.dev/select-cel")]
    cel: Option<Text<'a>>,
    #[serde(borrow, default, rename = "kubectl.kubernetes.io/last-applied-configuration")]
    last_applied: Option<Text<'a>>,
}

#[derive(Deserialize, Default)]
struct WireLabels<'a> {
    #[serde(borrow, default, rename = "dra-controller-manager.dev/expanded-from")]
    expanded_from: Option<Text<'a>>,
}

#[derive(Deserialize)]
struct WireOwner<'a> {
    #[serde(borrow)]
    kind: Text<'a>,
    #[serde(borrow, default)]
    name: Text<'a>,
    #[serde(borrow)]
    uid: Text<'a>,
    #[serde(default)]
    controller: Option<bool>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireSpec<'a> {
    #[serde(borrow, default)]
    device_selector: Option<WireSelector<'a>>,
    #[serde(borrow)]
    taint: WireTaint<'a>,
}

#[derive(Deserialize)]
struct WireSelector<'a> {
    #[serde(borrow, default)]
    driver: Option<Text<'a>>,
    #[serde(borrow, default)]
    pool: Option<Text<'a>>,
    #[serde(borrow, default)]
    device: Option<Text<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireTaint<'a> {
    #[serde(borrow)]
    key: Text<'a>,
    #[serde(borrow, default)]
    value: Option<Text<'a>>,
    #[serde(borrow)]
    effect: Text<'a>,
    #[serde(default)]
    time_added: Option<Timestamp>,
}

#[derive(Deserialize)]
struct WireStatus<'a> {
    #[serde(borrow, default)]
    conditions: Option<Vec<WireCondition<'a>>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WireCondition<'a> {
    #[serde(borrow, rename = "type")]
    pub(crate) type_: Text<'a>,
    #[serde(borrow, default)]
    pub(crate) status: Text<'a>,
    #[serde(borrow, default)]
    pub(crate) reason: Option<Text<'a>>,
    #[serde(borrow, default)]
    pub(crate) message: Option<Text<'a>>,
    #[serde(default)]
    pub(crate) observed_generation: Option<i64>,
    #[serde(default)]
    pub(crate) last_transition_time: Option<Timestamp>,
}

impl WireCondition<'_> {
    pub(crate) fn compact(&self) -> Condition {
        let text = |t: &Option<Text<'_>>| Arc::from(t.as_deref().unwrap_or_default());
        Condition {
            status: match &*self.status {
                "True" => ConditionStatus::True,
                "False" => ConditionStatus::False,
                _ => ConditionStatus::Unknown,
            },
            reason: text(&self.reason),
            message: text(&self.message),
            observed_generation: self.observed_generation.unwrap_or_default(),
            last_transition: self.last_transition_time,
        }
    }
}

/// The names of the fields of a JSON object.
#[derive(Default)]
struct FieldNames(Vec<String>);

impl<'de> Deserialize<'de> for FieldNames {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let fields = Option::<BTreeMap<String, IgnoredAny>>::deserialize(deserializer)?;
        Ok(Self(fields.unwrap_or_default().into_keys().collect()))
    }
}

#[derive(Deserialize, Default)]
struct Applied {
    #[serde(default)]
    spec: AppliedSpec,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct AppliedSpec {
    #[serde(default)]
    device_selector: FieldNames,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Managed {
    #[serde(default)]
    fields_v1: ManagedFields,
}

#[derive(Deserialize, Default)]
struct ManagedFields {
    #[serde(default, rename = "f:spec")]
    spec: ManagedSpec,
}

#[derive(Deserialize, Default)]
struct ManagedSpec {
    #[serde(default, rename = "f:deviceSelector")]
    device_selector: FieldNames,
}

/// Fields of the selector that the object's history names and the API server has not kept. What cannot be read
/// says nothing.
fn dropped(last_applied: Option<&Text<'_>>, managed: Option<&RawValue>) -> Box<[Arc<str>]> {
    let mut fields = Vec::new();
    if let Some(text) = last_applied
        && let Ok(applied) = serde_json::from_str::<Applied>(text)
    {
        fields.extend(applied.spec.device_selector.0);
    }
    if let Some(managed) = managed.and_then(|raw| serde_json::from_str::<Vec<Managed>>(raw.get()).ok()) {
        for entry in managed {
            let names = entry.fields_v1.spec.device_selector.0;
            fields.extend(names.iter().filter_map(|name| name.strip_prefix("f:")).map(str::to_owned));
        }
    }
    fields.retain(|name| !matches!(name.as_str(), "driver" | "pool" | "device"));
    fields.sort();
    fields.dedup();
    fields.into_iter().map(Arc::from).collect()
}

impl DeviceTaintRule {
    /// Decodes a rule of any version: they have the same fields.
    ///
    /// # Errors
    /// As [`Object::decode`].
    pub fn decode_as(version: RuleVersion, json: &str) -> Result<Self, DecodeError> {
        let wire: Wire<'_> = decode(json)?;
        let m = wire.metadata;
        let meta = compact("", &m.name, &m.uid, &m.resource_version, m.deletion_timestamp.is_some())
            .map_err(DecodeError)?;
        let annotations = m.annotations.unwrap_or_default();
        // An empty text is a value of its own: it selects devices with an empty name, which is none.
        let selector = wire.spec.device_selector.map(|s| DeviceTaintSelector {
            driver: s.driver.map(|t| t.shared()),
            pool: s.pool.map(|t| t.shared()),
            device: s.device.map(|t| t.shared()),
        });
        let dropped = match &selector {
            Some(selector) if selector.is_everything() => {
                dropped(annotations.last_applied.as_ref(), m.managed_fields)
            }
            _ => Box::default(),
        };
        let condition = wire
            .status
            .and_then(|s| s.conditions)
            .into_iter()
            .flatten()
            .find(|c| &*c.type_ == names::EVICTION_IN_PROGRESS);
        let is_expanded = m.labels.is_some_and(|labels| labels.expanded_from.is_some());
        let parent = m
            .owner_references
            .iter()
            .flatten()
            .filter(|_| is_expanded)
            .find(|o| o.controller == Some(true) && &*o.kind == "DeviceTaintRule")
            .map(|o| RuleParent { name: o.name.shared(), uid: o.uid.shared() });
        let is_true = |text: &Option<Text<'_>>| text.as_deref() == Some("true");
        Ok(Self {
            meta,
            version,
            generation: m.generation,
            selector,
            taint: Taint {
                key: wire.spec.taint.key.shared(),
                value: wire.spec.taint.value.map_or_else(|| Arc::from(""), |v| v.shared()),
                effect: TaintEffect::of(&wire.spec.taint.effect),
                time_added: wire.spec.taint.time_added,
            },
            paused: is_true(&annotations.pause),
            confirmed: is_true(&annotations.confirm),
            select_class: non_empty(annotations.class),
            select_cel: non_empty(annotations.cel),
            parent,
            dropped,
            condition: condition.map(|c| Box::new(c.compact())),
        })
    }
}

impl Object for DeviceTaintRule {
    const KIND: Kind = RuleVersion::V1.kind();

    fn decode(json: &str) -> Result<Self, DecodeError> {
        Self::decode_as(RuleVersion::V1, json)
    }

    fn meta(&self) -> &Meta {
        &self.meta
    }
}

/// A rule that is read through `v1beta2`.
#[derive(Clone, Debug)]
pub struct RuleV1beta2(DeviceTaintRule);

/// A rule that is read through `v1alpha3`.
#[derive(Clone, Debug)]
pub struct RuleV1alpha3(DeviceTaintRule);

impl Object for RuleV1beta2 {
    const KIND: Kind = RuleVersion::V1beta2.kind();

    fn decode(json: &str) -> Result<Self, DecodeError> {
        DeviceTaintRule::decode_as(RuleVersion::V1beta2, json).map(Self)
    }

    fn meta(&self) -> &Meta {
        &self.0.meta
    }
}

impl Object for RuleV1alpha3 {
    const KIND: Kind = RuleVersion::V1alpha3.kind();

    fn decode(json: &str) -> Result<Self, DecodeError> {
        DeviceTaintRule::decode_as(RuleVersion::V1alpha3, json).map(Self)
    }

    fn meta(&self) -> &Meta {
        &self.0.meta
    }
}

impl From<RuleV1beta2> for DeviceTaintRule {
    fn from(rule: RuleV1beta2) -> Self {
        rule.0
    }
}

impl From<RuleV1alpha3> for DeviceTaintRule {
    fn from(rule: RuleV1alpha3) -> Self {
        rule.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(metadata: &str, spec: &str, status: &str) -> DeviceTaintRule {
        DeviceTaintRule::decode(&format!(
            r#"{{"metadata":{{"name":"r","uid":"u","resourceVersion":"5","generation":2{metadata}}},
            "spec":{{{spec}"taint":{{"key":"example.com/broken","effect":"NoExecute",
            "timeAdded":"2026-01-02T03:04:05Z"}}}},"status":{{{status}}}}}"#
        ))
        .unwrap()
    }

    #[test]
    fn a_rule_keeps_selector_taint_and_our_condition() {
        let r = rule(
            r#","annotations":{"dra-controller-manager.dev/pause-eviction":"true"}"#,
            r#""deviceSelector":{"driver":"d","pool":"p"},"#,
            r#""conditions":[{"type":"Testing","status":"True"},{"type":"EvictionInProgress","status":"False",
            "reason":"Completed","message":"m","observedGeneration":2,"lastTransitionTime":"2026-01-02T03:04:06Z"}]"#,
        );
        assert_eq!(r.meta.key.to_string(), "r");
        assert_eq!(r.generation, 2);
        assert!(r.paused && !r.confirmed);
        let selector = r.selector.unwrap();
        assert!(selector.selects("d", "p", "any") && !selector.selects("d", "q", "any"));
        assert_eq!(r.taint.effect, TaintEffect::NoExecute);
        assert_eq!(r.taint.time_added.unwrap().to_string(), "2026-01-02T03:04:05Z");
        let condition = r.condition.unwrap();
        assert_eq!((&*condition.reason, condition.status), ("Completed", ConditionStatus::False));
    }

    #[test]
    fn no_selector_and_an_empty_one_are_told_apart() {
        assert!(rule("", "", "").selector.is_none());
        assert!(rule("", r#""deviceSelector":null,"#, "").selector.is_none());
        assert!(rule("", r#""deviceSelector":{},"#, "").selector.unwrap().is_everything());
    }

    #[test]
    fn only_a_rule_without_selector_is_expanded_and_what_was_expanded_is_not() {
        let cel = r#","annotations":{"dra-controller-manager.dev/select-cel":"true"}"#;
        assert!(rule(cel, "", "").selects_by_annotation());
        let class = r#","annotations":{"dra-controller-manager.dev/select-device-class":"gpu"}"#;
        assert!(rule(class, "", "").selects_by_annotation());
        assert!(!rule("", "", "").selects_by_annotation());
        let empty = r#","annotations":{"dra-controller-manager.dev/select-cel":""}"#;
        assert!(!rule(empty, "", "").selects_by_annotation(), "an empty expression asks for nothing");
        assert!(!rule(cel, r#""deviceSelector":{},"#, "").selects_by_annotation());
        let owner = r#","ownerReferences":[{"apiVersion":"resource.k8s.io/v1","kind":"DeviceTaintRule","name":"p",
            "uid":"pu","controller":true}]"#;
        let label = r#","labels":{"dra-controller-manager.dev/expanded-from":"p"}"#;
        let child = rule(&format!("{cel}{owner}{label}"), "", "");
        assert_eq!(child.parent, Some(RuleParent { name: "p".into(), uid: "pu".into() }));
        assert!(!child.selects_by_annotation());
        assert_eq!(rule(owner, "", "").parent, None, "without our label it is somebody else's");
        assert_eq!(rule(label, "", "").parent, None);
    }

    #[test]
    fn selectors_that_the_api_server_dropped_are_found_in_the_objects_history() {
        let applied = r#"{\"spec\":{\"deviceSelector\":{\"deviceClassName\":\"gpu\",\"driver\":\"d\"}}}"#;
        let metadata = format!(
            r#","annotations":{{"kubectl.kubernetes.io/last-applied-configuration":"{applied}"}},
            "managedFields":[{{"fieldsV1":{{"f:spec":{{"f:deviceSelector":{{".":{{}},"f:selectors":{{}}}}}}}}}}]"#
        );
        let dropped = rule(&metadata, r#""deviceSelector":{},"#, "").dropped;
        assert_eq!(dropped.iter().map(|d| &**d).collect::<Vec<_>>(), ["deviceClassName", "selectors"]);
        let garbage = r#","annotations":{"kubectl.kubernetes.io/last-applied-configuration":"{"}"#;
        assert!(rule(garbage, r#""deviceSelector":{},"#, "").dropped.is_empty());
    }

    #[test]
    fn every_version_gives_the_same_rule_and_remembers_where_it_came_from() {
        let json = r#"{"metadata":{"name":"r","uid":"u","resourceVersion":"5"},
            "spec":{"taint":{"key":"k","effect":"None"}}}"#;
        let v1 = DeviceTaintRule::decode(json).unwrap();
        let beta: DeviceTaintRule = RuleV1beta2::decode(json).unwrap().into();
        let alpha: DeviceTaintRule = RuleV1alpha3::decode(json).unwrap().into();
        assert_eq!(beta.version.kind().api_version(), "resource.k8s.io/v1beta2");
        assert_eq!(alpha.version.kind().api_version(), "resource.k8s.io/v1alpha3");
        assert_eq!(DeviceTaintRule { version: RuleVersion::V1, ..beta }, v1);
        assert_eq!(DeviceTaintRule { version: RuleVersion::V1, ..alpha }, v1);
    }

    #[test]
    fn a_toleration_matches_by_key_and_by_value_or_existence() {
        let t = |key: &str, operator, value: &str| Toleration {
            key: key.into(),
            operator,
            value: value.into(),
            effect: "".into(),
            seconds: None,
        };
        assert!(t("k", Operator::Exists, "").matches("k", "any"));
        assert!(t("", Operator::Exists, "").matches("k", ""));
        assert!(!t("other", Operator::Exists, "").matches("k", ""));
        assert!(t("k", Operator::Equal, "v").matches("k", "v"));
        assert!(!t("k", Operator::Equal, "v").matches("k", "w"));
        assert!(t("", Operator::Equal, "v").matches("k", "v"));
        assert!(!t("k", Operator::Unknown, "v").matches("k", "v"));
    }
}
