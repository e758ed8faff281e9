//! The view keeps slices, taint rules and allocations in the allocator's inventory, for whoever asks for devices.

#![allow(clippy::unwrap_used)]

use dra_allocator::{DeviceFilter, DeviceId, Features};
use dra_api::{Claim, DeviceTaintRule, ObjectKey};
use dra_controllers::{
    Elapsed,
    view::{ResourceSlice, Source, Tracked, View},
};

fn put<T: Tracked>(view: &mut View, json: &str) {
    view.observe(T::decode(json).unwrap(), Source::Watch, Elapsed::ZERO);
}

fn slice(name: &str, version: u64, pool: &str, taint: &str) -> String {
    let taints = if taint.is_empty() {
        String::new()
    } else {
        format!(r#","taints":[{{"key":"{taint}","effect":"NoExecute","timeAdded":"2026-01-01T00:00:00Z"}}]"#)
    };
    format!(
        r#"{{"metadata":{{"name":"{name}","uid":"{name}","resourceVersion":"{version}"}},
        "spec":{{"driver":"d","nodeName":"n","pool":{{"name":"{pool}","generation":1,"resourceSliceCount":1}},
        "devices":[{{"name":"x"{taints}}}]}}}}"#
    )
}

fn claim(version: u64, device: &str) -> String {
    format!(
        r#"{{"metadata":{{"name":"c","namespace":"ns","uid":"u","resourceVersion":"{version}"}},"spec":{{}},
        "status":{{"allocation":{{"devices":{{"results":[{{"request":"r","driver":"d","pool":"p",
        "device":"{device}"}}]}}}}}}}}"#
    )
}

fn watching() -> View {
    let mut view = View::default();
    view.keep_devices(Features::default());
    view
}

fn taints(view: &View, pool: &str) -> usize {
    view.inventory().unwrap().slice_taints(&DeviceId::new("d", pool, "x")).len()
}

fn holders(view: &View) -> Vec<String> {
    let all = view.inventory().unwrap().claims_holding(DeviceFilter::default());
    all.iter().map(ToString::to_string).collect()
}

#[test]
fn slices_go_into_the_inventory_and_leave_it_with_their_deletion() {
    let mut view = watching();
    put::<ResourceSlice>(&mut view, &slice("s", 1, "p", "t"));
    assert_eq!(taints(&view, "p"), 1);
    put::<ResourceSlice>(&mut view, &slice("s", 2, "p", ""));
    assert_eq!(taints(&view, "p"), 0);
    put::<ResourceSlice>(&mut view, &slice("s", 3, "p", "t"));
    view.deleted::<ResourceSlice>(&ObjectKey::new("", "s"), &"s".into());
    assert_eq!(taints(&view, "p"), 0);
}

#[test]
fn a_slice_that_moves_to_another_pool_leaves_nothing_behind() {
    let mut view = watching();
    put::<ResourceSlice>(&mut view, &slice("s", 1, "p", "t"));
    put::<ResourceSlice>(&mut view, &slice("s", 2, "q", "t"));
    assert_eq!((taints(&view, "p"), taints(&view, "q")), (0, 1));
}

#[test]
fn a_list_after_a_lost_watch_removes_slices_that_it_lacks() {
    let mut view = watching();
    put::<ResourceSlice>(&mut view, &slice("ghost", 1, "p", "t"));
    view.list_begins::<ResourceSlice>(Elapsed::from_secs(1));
    put::<ResourceSlice>(&mut view, &slice("other", 5, "q", ""));
    assert_eq!(view.list_ends::<ResourceSlice>().len(), 1);
    assert_eq!(taints(&view, "p"), 0);
}

#[test]
fn an_event_that_comes_late_does_not_bring_an_older_slice_back() {
    let mut view = watching();
    put::<ResourceSlice>(&mut view, &slice("s", 5, "p", ""));
    put::<ResourceSlice>(&mut view, &slice("s", 3, "p", "t"));
    assert_eq!(taints(&view, "p"), 0);
}

#[test]
fn rules_of_the_view_are_rules_of_the_inventory() {
    let mut view = watching();
    let rule = |version: u64, selector: &str| {
        format!(
            r#"{{"metadata":{{"name":"r","uid":"u","resourceVersion":"{version}"}},
            "spec":{{{selector}"taint":{{"key":"k","effect":"NoExecute"}}}}}}"#
        )
    };
    let selecting =
        |view: &View| view.inventory().unwrap().rules_selecting(&DeviceId::new("d", "p", "x")).len();
    put::<DeviceTaintRule>(&mut view, &rule(1, r#""deviceSelector":{"device":"x"},"#));
    assert_eq!(selecting(&view), 1, "no slice needs to publish the device");
    put::<DeviceTaintRule>(&mut view, &rule(2, ""));
    assert_eq!(selecting(&view), 0, "no selector selects nothing");
    put::<DeviceTaintRule>(&mut view, &rule(3, r#""deviceSelector":{},"#));
    assert_eq!(selecting(&view), 1);
    view.deleted::<DeviceTaintRule>(&ObjectKey::new("", "r"), &"u".into());
    assert_eq!(selecting(&view), 0);
}

#[test]
fn what_claims_hold_follows_their_allocation() {
    let mut view = watching();
    put::<Claim>(&mut view, &claim(1, "x"));
    assert_eq!(holders(&view), ["ns/c"]);
    let released = r#"{"metadata":{"name":"c","namespace":"ns","uid":"u","resourceVersion":"2"},"spec":{}}"#;
    put::<Claim>(&mut view, released);
    assert!(holders(&view).is_empty());
    put::<Claim>(&mut view, &claim(3, "y"));
    view.deleted::<Claim>(&ObjectKey::new("ns", "c"), &"u".into());
    assert!(holders(&view).is_empty());
}

#[test]
fn without_a_controller_that_asks_for_devices_none_are_kept() {
    let mut view = View::default();
    put::<Claim>(&mut view, &claim(1, "x"));
    assert!(view.inventory().is_none());
    let kept = view.claims.get(&ObjectKey::new("ns", "c")).unwrap();
    assert!(kept.allocation.as_ref().unwrap().devices.is_empty());
}
