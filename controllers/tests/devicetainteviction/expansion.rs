//! Rules that select by DeviceClass and by CEL expression.

use serde_json::{Value, json};

use crate::world::{Kind, T0, World, at, claim, pod, rule, seconds, taint, tolerate};

/// A slice of some driver with GPUs of these names, each of one model.
pub(crate) fn gpus(pool: &str, generation: i64, gpus: &[(&str, &str)]) -> Value {
    let devices: Vec<Value> = gpus
        .iter()
        .map(|(name, model)| match *model {
            "" => json!({"name": name}),
            model => json!({"name": name, "attributes": {"model": {"string": model}}}),
        })
        .collect();
    json!({
        "metadata": {"name": format!("slice-{pool}"), "uid": format!("uid-{pool}")},
        "spec": {"driver": "some-driver", "nodeName": pool, "devices": devices,
            "pool": {"name": pool, "generation": generation, "resourceSliceCount": 1}},
    })
}

const OLD: &str = "device.attributes['some-driver'].model == 'old'";

/// A rule without deviceSelector, with a class and an expression in annotations if they are not empty.
pub(crate) fn selecting(name: &str, class: &str, cel: &str, effect: &str) -> Value {
    let mut annotations = json!({});
    for (annotation, value) in [("select-device-class", class), ("select-cel", cel)] {
        if !value.is_empty() {
            annotations[format!("dra-controller-manager.dev/{annotation}")] = json!(value);
        }
    }
    json!({
        "metadata": {"name": name, "uid": format!("uid-{name}"), "annotations": annotations},
        "spec": {"taint": taint(effect, T0)},
    })
}

pub(crate) fn class(name: &str, expression: &str) -> Value {
    json!({"metadata": {"name": name, "uid": format!("uid-class-{name}")},
        "spec": {"selectors": [{"cel": {"expression": expression}}]}})
}

/// Three GPUs, two of them old.
fn fleet(w: &mut World) {
    w.put(Kind::Slice, gpus("worker", 1, &[("gpu-0", "old"), ("gpu-1", "new")]));
    w.put(Kind::Slice, gpus("other", 1, &[("gpu-0", "old")]));
}

/// A Pod of the device's name that uses it.
fn user(w: &mut World, device: &str) {
    w.put(Kind::Claim, claim(&format!("ns/{device}"), device, (device, device)));
    w.put(Kind::Pod, pod(&format!("ns/{device}"), device, device));
}

fn told(w: &World, words: &str) -> bool {
    w.told.iter().any(|event| event.contains(words))
}

#[test]
fn a_rule_that_selects_by_expression_becomes_one_rule_for_each_device() {
    let mut w = World::new();
    fleet(&mut w);
    w.put(Kind::Rule, selecting("old", "", OLD, "NoSchedule"));
    let wanted = |pool: &str| format!("some-driver/{pool}/gpu-0 NoSchedule {T0}");
    assert_eq!(w.children("old"), [wanted("other"), wanted("worker")]);
    let name = &w.names_of_children("old")[0];
    let child = w.object(Kind::Rule, name).unwrap();
    assert_eq!(child["metadata"]["labels"], json!({"dra-controller-manager.dev/expanded-from": "old"}));
    assert_eq!(
        child["metadata"]["ownerReferences"],
        json!([{"apiVersion": "resource.k8s.io/v1", "kind": "DeviceTaintRule", "name": "old", "uid": "uid-old",
            "controller": true}])
    );
    assert_eq!(child["spec"]["taint"], taint("NoSchedule", T0));
    assert!(told(
        &w,
        "DeviceTaintRule old Expanded: Selects 2 devices; there is one DeviceTaintRule for each."
    ));
    assert_eq!(w.condition("old").unwrap().1, "OtherEffect");
    let requests = w.requests.clone();
    w.put(Kind::Slice, gpus("other", 2, &[("gpu-0", "old")]));
    assert_eq!(w.requests, requests, "nothing has changed");
}

#[test]
fn a_class_and_an_expression_must_both_be_true() {
    let mut w = World::new();
    fleet(&mut w);
    w.put(Kind::Class, class("on-worker", "device.driver == 'some-driver'"));
    w.put(Kind::Rule, selecting("all", "on-worker", "", "NoSchedule"));
    assert_eq!(w.children("all").len(), 3);
    w.put(Kind::Rule, selecting("old", "on-worker", OLD, "NoSchedule"));
    assert_eq!(w.children("old").len(), 2);
    // The class is followed.
    w.put(Kind::Class, class("on-worker", "device.driver == 'another'"));
    assert!(w.children("all").is_empty() && w.children("old").is_empty());
}

#[test]
fn the_parents_condition_sums_its_children() {
    let mut w = World::new();
    fleet(&mut w);
    user(&mut w, "gpu-0");
    user(&mut w, "gpu-1");
    let mut late = claim("ns/late", "gpu-0", ("late", "late"));
    late["status"]["allocation"]["devices"]["results"][0]["pool"] = json!("other");
    tolerate(&mut late, json!([{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}]));
    w.put(Kind::Claim, late);
    w.put(Kind::Pod, pod("ns/late", "late", "late"));
    w.put(Kind::Rule, selecting("old", "", OLD, "NoExecute"));
    assert_eq!(w.gone(), ["ns/gpu-0"], "the Pod on the new one stays");
    w.pass(seconds(20));
    assert_eq!(
        w.condition("old").unwrap().2,
        "1 pod needs to be evicted in 1 namespace. 1 pod evicted since starting the controller."
    );
    w.pass(seconds(60));
    let (status, reason, message) = w.condition("old").unwrap();
    assert_eq!((&*status, &*reason), ("False", "Completed"));
    assert_eq!(message, "2 pods evicted since starting the controller.");
    for child in w.names_of_children("old") {
        let (_, reason, message) = w.condition(&child).unwrap();
        assert_eq!((&*reason, &*message), ("Completed", "1 pod evicted since starting the controller."));
    }
    assert!(told(&w, "expanded from \"old\", taints device some-driver/worker/gpu-0"), "{:?}", w.told);
    // What was evicted stays counted when the device goes.
    w.remove(Kind::Slice, "slice-worker");
    w.put(Kind::Slice, gpus("third", 1, &[("gpu-0", "old")]));
    w.pass(seconds(20));
    assert_eq!(w.condition("old").unwrap().2, "2 pods evicted since starting the controller.");
}

#[test]
fn a_pod_with_two_selected_devices_counts_once() {
    let mut w = World::new();
    w.put(Kind::Slice, gpus("worker", 1, &[("gpu-0", "old"), ("gpu-1", "old")]));
    let mut c = claim("ns/c", "gpu-0", ("p", "u"));
    let mut second = c["status"]["allocation"]["devices"]["results"][0].clone();
    second["device"] = json!("gpu-1");
    c["status"]["allocation"]["devices"]["results"].as_array_mut().unwrap().push(second);
    w.put(Kind::Claim, c);
    w.put(Kind::Pod, pod("ns/p", "u", "c"));
    w.put(Kind::Rule, selecting("old", "", OLD, "NoExecute"));
    w.pass(seconds(20));
    assert_eq!(w.gone(), ["ns/p"]);
    assert_eq!(w.condition("old").unwrap().2, "1 pod evicted since starting the controller.");
}

#[test]
fn children_keep_in_step_with_slices() {
    let mut w = World::new();
    fleet(&mut w);
    w.put(Kind::Rule, selecting("old", "", OLD, "NoSchedule"));
    w.put(Kind::Slice, gpus("worker", 2, &[("gpu-0", "new"), ("gpu-1", "old"), ("gpu-2", "old")]));
    let devices: Vec<String> =
        w.children("old").iter().map(|child| child.split(' ').next().unwrap().to_owned()).collect();
    assert_eq!(devices, ["some-driver/other/gpu-0", "some-driver/worker/gpu-1", "some-driver/worker/gpu-2"]);
    w.remove(Kind::Slice, "slice-other");
    assert_eq!(w.children("old").len(), 2);
}

#[test]
fn a_republication_slice_by_slice_touches_no_child() {
    let mut w = World::new();
    let part = |name: &str, generation: i64, device: &str| {
        let mut slice = gpus("worker", generation, &[(device, "old")]);
        slice["metadata"] = json!({"name": name, "uid": name});
        slice["spec"]["pool"]["resourceSliceCount"] = json!(2);
        slice
    };
    w.put(Kind::Slice, part("a", 1, "gpu-0"));
    w.put(Kind::Slice, part("b", 1, "gpu-1"));
    w.put(Kind::Rule, selecting("old", "", OLD, "NoExecute"));
    let requests = w.requests.clone();
    w.put(Kind::Slice, part("a", 2, "gpu-0"));
    w.put(Kind::Slice, part("b", 2, "gpu-1"));
    assert_eq!(w.requests, requests);
    assert_eq!(w.children("old").len(), 2);
}

#[test]
fn an_edit_of_the_taint_reaches_every_child() {
    let mut w = World::new();
    fleet(&mut w);
    user(&mut w, "gpu-0");
    w.put(Kind::Rule, selecting("old", "", OLD, "NoSchedule"));
    let names = w.names_of_children("old");
    w.pass(seconds(5));
    w.change(Kind::Rule, "old", |rule| rule["spec"]["taint"] = taint("NoExecute", &at(5)));
    let wanted = |pool: &str| format!("some-driver/{pool}/gpu-0 NoExecute {}", at(5));
    assert_eq!(w.children("old"), [wanted("other"), wanted("worker")]);
    assert_eq!(w.names_of_children("old"), names, "they are changed, not replaced");
    assert_eq!(w.gone(), ["ns/gpu-0"]);
    // The same second as before: the API server gives the child the time of the write, and that is put right.
    w.pass(seconds(5));
    w.change(Kind::Rule, "old", |rule| rule["spec"]["taint"]["effect"] = json!("NoSchedule"));
    assert_eq!(w.children("old")[0], format!("some-driver/other/gpu-0 NoSchedule {}", at(5)));
    // Somebody else's hand.
    w.change(Kind::Rule, &names[0], |rule| {
        rule["spec"] = json!({"deviceSelector": {"driver": "x"}, "taint": taint("NoExecute", T0)});
    });
    assert_eq!(w.children("old")[0], format!("some-driver/other/gpu-0 NoSchedule {}", at(5)));
}

#[test]
fn an_invalid_expression_is_reported_and_changes_nothing() {
    let mut w = World::new();
    fleet(&mut w);
    w.put(Kind::Rule, selecting("old", "", OLD, "NoSchedule"));
    let before = w.children("old");
    w.put(Kind::Rule, selecting("old", "", "device.nonsense ==", "NoExecute"));
    assert_eq!(w.children("old"), before, "not even the effect");
    let (status, reason, message) = w.condition("old").unwrap();
    assert_eq!((&*status, &*reason), ("Unknown", "InvalidSelector"));
    assert!(message.contains("CEL compile error") && message.ends_with("Nothing is changed."), "{message}");
    assert!(told(&w, "DeviceTaintRule old ExpansionFailed: It is not known which devices are selected: "));
    w.put(Kind::Slice, gpus("worker", 2, &[("gpu-9", "old")]));
    assert_eq!(w.children("old"), before);
    w.put(Kind::Rule, selecting("old", "", OLD, "NoExecute"));
    assert_eq!(w.children("old").len(), 2);
    w.pass(seconds(20));
    assert_eq!(w.condition("old").unwrap().1, "NotStarted");
}

#[test]
fn a_class_that_is_missing_changes_nothing_until_it_appears() {
    let mut w = World::new();
    fleet(&mut w);
    w.put(Kind::Class, class("c", OLD));
    w.put(Kind::Rule, selecting("old", "c", "", "NoSchedule"));
    assert_eq!(w.children("old").len(), 2);
    w.remove(Kind::Class, "c");
    w.pass(seconds(2));
    assert_eq!(w.children("old").len(), 2);
    let (_, reason, message) = w.condition("old").unwrap();
    assert_eq!(reason, "DeviceClassNotFound");
    assert!(message.contains("DeviceClass \"c\" does not exist"), "{message}");
    w.put(Kind::Slice, gpus("other", 2, &[("gpu-0", "new")]));
    assert_eq!(w.children("old").len(), 2);
    w.put(Kind::Class, class("c", OLD));
    w.pass(seconds(2));
    assert_eq!(w.children("old").len(), 1);
    assert_eq!(w.condition("old").unwrap().1, "OtherEffect");
}

#[test]
fn devices_on_which_the_expression_fails_are_not_selected_and_counted() {
    let mut w = World::new();
    w.put(Kind::Slice, gpus("worker", 1, &[("gpu-0", "old"), ("gpu-1", ""), ("gpu-2", "")]));
    w.put(Kind::Rule, selecting("old", "", OLD, "NoExecute"));
    assert_eq!(w.children("old").len(), 1);
    w.pass(seconds(20));
    let (_, reason, message) = w.condition("old").unwrap();
    assert_eq!(reason, "NotStarted");
    assert!(
        message.starts_with(
            "2 devices are not selected because a selector fails on them, the first: rule: selector #0 on device \
             some-driver/worker/gpu-1: CEL runtime error: no such key"
        ),
        "{message}"
    );
}

#[test]
fn above_the_limit_no_rule_is_created_and_condition_and_event_say_so() {
    let mut w = World::new();
    w.planner.most_expanded = 2;
    fleet(&mut w);
    w.put(Kind::Rule, selecting("all", "", "true", "NoExecute"));
    assert!(w.children("all").is_empty());
    assert_eq!(w.requests.get("create_rule"), None);
    let text = "3 devices are selected, above the limit of 2 (--max-expanded-rules): no DeviceTaintRule is created for \
                them.";
    let (status, reason, message) = w.condition("all").unwrap();
    assert_eq!((&*status, &*reason, &*message), ("Unknown", "TooManyDevices", text));
    assert!(told(&w, &format!("DeviceTaintRule all ExpansionFailed: {text}")));
    w.remove(Kind::Slice, "slice-other");
    assert_eq!(w.children("all").len(), 2);
    // Those that are there stay, and go with their devices.
    w.put(Kind::Slice, gpus("worker", 2, &[("gpu-0", "old"), ("gpu-2", "old"), ("gpu-3", "old")]));
    assert_eq!(w.children("all"), [format!("some-driver/worker/gpu-0 NoExecute {T0}")]);
    assert_eq!(w.condition("all").unwrap().1, "TooManyDevices");
}

#[test]
fn children_go_with_their_parent_and_its_evictions_end_at_once() {
    let mut w = World::new();
    fleet(&mut w);
    let mut c = claim("ns/c", "gpu-0", ("p", "u"));
    tolerate(&mut c, json!([{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}]));
    w.put(Kind::Claim, c);
    w.put(Kind::Pod, pod("ns/p", "u", "c"));
    w.put(Kind::Rule, selecting("old", "", OLD, "NoExecute"));
    assert_eq!(w.view.evictions.counts(w.now).tolerated, 1);
    // Before any child is deleted.
    w.remove_event(Kind::Rule, "old");
    let judged = w.planner.plan(
        &w.view,
        &dra_controllers::devicetainteviction::Key::Pod(dra_api::ObjectKey::new("ns", "p")),
        &dra_controllers::plan::Pass::at(w.now),
    );
    assert!(!judged.actions.is_empty(), "the eviction is called off");
    w.settle();
    assert!(w.children("old").is_empty());
    w.pass(seconds(100));
    assert!(w.gone().is_empty());
}

#[test]
fn while_the_parent_ends_its_children_are_left_to_the_garbage_collector() {
    let mut w = World::new();
    fleet(&mut w);
    w.put(Kind::Rule, selecting("old", "", OLD, "NoSchedule"));
    let child = w.names_of_children("old")[0].clone();
    w.change(Kind::Rule, "old", |rule| {
        rule["metadata"]["deletionTimestamp"] = json!(T0);
        rule["metadata"]["finalizers"] = json!(["foregroundDeletion"]);
    });
    w.remove(Kind::Rule, &child);
    assert_eq!(w.children("old").len(), 1, "none is created again");
    w.put(Kind::Slice, gpus("third", 1, &[("gpu-0", "old")]));
    w.remove(Kind::Slice, "slice-worker");
    w.remove(Kind::Slice, "slice-other");
    assert_eq!(w.children("old").len(), 1, "and none deleted: it may be meant to outlive its parent");
}

#[test]
fn children_go_when_nothing_is_to_be_selected_any_more() {
    for change in [
        |rule: &mut Value| rule["metadata"]["annotations"] = json!({}),
        |rule: &mut Value| rule["spec"]["deviceSelector"] = json!({"driver": "another"}),
        |rule: &mut Value| rule["spec"]["taint"]["effect"] = json!("None"),
    ] {
        let mut w = World::new();
        fleet(&mut w);
        w.put(Kind::Rule, selecting("old", "", OLD, "NoSchedule"));
        assert_eq!(w.children("old").len(), 2);
        w.change(Kind::Rule, "old", change);
        assert!(w.children("old").is_empty());
    }
}

#[test]
fn a_device_selector_counts_and_the_annotations_beside_it_do_not() {
    let mut w = World::new();
    fleet(&mut w);
    user(&mut w, "gpu-0");
    let mut everything = selecting("old", "", OLD, "NoExecute");
    everything["spec"]["deviceSelector"] = json!({});
    w.put(Kind::Rule, everything);
    w.pass(seconds(20));
    assert!(w.gone().is_empty() && w.children("old").is_empty());
    let (_, reason, message) = w.condition("old").unwrap();
    assert_eq!(reason, "NotConfirmed");
    assert!(message.ends_with("do not count where there is a deviceSelector: leave it out."), "{message}");
    assert!(told(&w, "DeviceTaintRule old ExpansionFailed: The annotations"));
}

#[test]
fn with_effect_none_the_parent_tells_what_would_happen_and_nothing_is_created() {
    let mut w = World::new();
    fleet(&mut w);
    user(&mut w, "gpu-0");
    user(&mut w, "gpu-1");
    w.put(Kind::Rule, selecting("old", "", OLD, "None"));
    assert!(w.children("old").is_empty());
    w.pass(seconds(2));
    let (status, reason, message) = w.condition("old").unwrap();
    assert_eq!((&*status, &*reason), ("False", "NoEffect"));
    assert!(
        message.starts_with(
            "2 published devices selected. 1 allocated device selected. 1 pod would be evicted in 1 namespace if"
        ),
        "{message}"
    );
    // It is told once, and again for another selection.
    w.remove(Kind::Pod, "ns/gpu-0");
    w.pass(seconds(100));
    assert_eq!(w.condition("old").unwrap().2, message);
    w.put(Kind::Rule, selecting("old", "", "true", "None"));
    w.pass(seconds(2));
    assert!(w.condition("old").unwrap().2.starts_with("3 published devices selected. 2 allocated devices"));
    w.change(Kind::Rule, "old", |rule| rule["spec"]["taint"] = taint("NoExecute", &at(100)));
    assert_eq!(w.children("old").len(), 3);
    assert_eq!(w.gone(), ["ns/gpu-1"]);
}

#[test]
fn a_dry_run_above_the_limit_says_that_too() {
    let mut w = World::new();
    w.planner.most_expanded = 2;
    fleet(&mut w);
    w.put(Kind::Rule, selecting("all", "", "true", "None"));
    w.pass(seconds(2));
    let (_, reason, message) = w.condition("all").unwrap();
    assert_eq!(reason, "NoEffect");
    assert!(message.starts_with("3 published devices selected."), "{message}");
    assert!(message.contains("above the limit of 2"), "{message}");
    assert!(!told(&w, "ExpansionFailed"));
    w.change(Kind::Rule, "all", |rule| rule["spec"]["taint"] = taint("NoExecute", &at(0)));
    assert!(w.children("all").is_empty());
    assert!(told(&w, "DeviceTaintRule all ExpansionFailed: 3 devices are selected, above the limit of 2"));
    assert_eq!(w.condition("all").unwrap().1, "TooManyDevices");
}

#[test]
fn a_pause_of_the_parent_pauses_its_children() {
    let mut w = World::new();
    fleet(&mut w);
    user(&mut w, "gpu-0");
    let mut paused = selecting("old", "", OLD, "NoExecute");
    paused["metadata"]["annotations"]["dra-controller-manager.dev/pause-eviction"] = json!("true");
    w.put(Kind::Rule, paused);
    w.pass(seconds(20));
    assert!(w.gone().is_empty());
    assert_eq!(w.children("old").len(), 2, "the scheduler honours the taint meanwhile");
    assert_eq!(
        w.condition("old").unwrap().2,
        "1 pod needs to be evicted in 1 namespace. Eviction is paused by the annotation \
         dra-controller-manager.dev/pause-eviction."
    );
    w.put(Kind::Rule, selecting("old", "", OLD, "NoExecute"));
    assert_eq!(w.gone(), ["ns/gpu-0"]);
}

#[test]
fn a_rule_that_has_a_childs_name_is_never_touched_and_reported() {
    let mut w = World::new();
    fleet(&mut w);
    w.put(Kind::Rule, selecting("old", "", OLD, "NoExecute"));
    let name = w.names_of_children("old")[0].clone();
    w.change(Kind::Rule, "old", |rule| rule["metadata"]["annotations"] = json!({}));
    let theirs = rule(&name, "NoSchedule", T0);
    w.put(Kind::Rule, theirs.clone());
    w.put(Kind::Rule, selecting("old", "", OLD, "NoExecute"));
    w.pass(seconds(20));
    assert_eq!(w.object(Kind::Rule, &name).unwrap()["spec"], theirs["spec"]);
    assert_eq!(w.children("old").len(), 1);
    assert!(told(&w, &format!("DeviceTaintRule old ExpansionFailed: DeviceTaintRule \"{name}\" is not one")));
    let (status, reason, message) = w.condition("old").unwrap();
    assert_eq!((&*status, &*reason), ("Unknown", "Expanding"));
    assert_eq!(message, "1 of 2 DeviceTaintRules are in place. The names of 1 are taken by others.");
    w.remove(Kind::Rule, &name);
    assert_eq!(w.children("old").len(), 2);
}

#[test]
fn a_parent_that_is_created_anew_replaces_the_children_of_the_old_one() {
    let mut w = World::new();
    fleet(&mut w);
    w.put(Kind::Rule, selecting("old", "", OLD, "NoSchedule"));
    // Seen as one update.
    let mut again = selecting("old", "", OLD, "NoExecute");
    again["metadata"]["uid"] = json!("another");
    w.put(Kind::Rule, again);
    let names = w.names_of_children("old");
    assert_eq!(names.len(), 2);
    for name in names {
        let owner = &w.object(Kind::Rule, &name).unwrap()["metadata"]["ownerReferences"][0];
        assert_eq!(owner["uid"], "another");
    }
}

#[test]
fn no_condition_says_that_it_is_over_before_all_children_are_there() {
    let mut w = World::new();
    fleet(&mut w);
    w.no_new_rules = true;
    w.put(Kind::Rule, selecting("old", "", OLD, "NoExecute"));
    w.pass(seconds(60));
    let (status, reason, message) = w.condition("old").unwrap();
    assert_eq!((&*status, &*reason), ("Unknown", "Expanding"));
    assert_eq!(message, "0 of 2 DeviceTaintRules are in place.");
    w.no_new_rules = false;
    w.pass(seconds(20));
    assert_eq!(w.condition("old").unwrap().1, "NotStarted");
}

#[test]
fn after_a_restart_children_are_found_again_and_those_that_are_not_meant_any_more_go() {
    let mut w = World::new();
    fleet(&mut w);
    w.put(Kind::Rule, selecting("old", "", OLD, "NoSchedule"));
    let before = w.names_of_children("old");
    w.requests.clear();
    w.restart();
    assert_eq!(w.names_of_children("old"), before);
    assert_eq!(w.requests.get("create_rule"), None);
    w.event(Kind::Slice, gpus("other", 2, &[("gpu-0", "new")]));
    w.restart();
    assert_eq!(w.children("old"), [format!("some-driver/worker/gpu-0 NoSchedule {T0}")]);
}
