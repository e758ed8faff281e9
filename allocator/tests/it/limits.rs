//! Callers can cancel, and can bound the number of steps.

use std::cell::Cell;

use dra_allocator::{Answer, FitEnd, GaveUp, Limits, Verdict};
use serde_json::json;

use crate::world::{any, claim, exactly, inventory, node, plain_devices, slice, with_devices};

fn all() -> dra_allocator::objects::ResourceClaim {
    let mut wanted = exactly(1);
    wanted["allocationMode"] = json!("All");
    wanted["selectors"] = json!([{"cel": {"expression": "false"}}]);
    claim(json!([{"name": "r", "exactly": wanted}]))
}

#[test]
fn looking_for_all_devices_can_be_cancelled() {
    let world = with_devices(plain_devices(10_000));
    let asked = Cell::new(0);
    let cancelled = || {
        asked.set(asked.get() + 1);
        asked.get() == 3
    };
    let limits = Limits { cancelled: &cancelled, ..Limits::NONE };
    let outcome = world.allocate(&node("node-1"), &[all()], limits, &mut String::new);
    assert_eq!((outcome.answer, asked.get()), (Ok(Answer::GaveUp(GaveUp::Cancelled)), 3));
    asked.set(2);
    assert_eq!(world.explain(&node("node-1"), &[all()], limits, 1).verdict, Verdict::GaveUp);
}

#[test]
fn looking_for_all_devices_takes_a_step_for_some_hundred_of_them() {
    let world = with_devices(plain_devices(10_000));
    let ask = |steps| {
        let limits = Limits { steps, ..Limits::NONE };
        world.allocate(&node("node-1"), &[all()], limits, &mut String::new).answer
    };
    assert_eq!(ask(18), Ok(Answer::GaveUp(GaveUp::Steps)));
    assert_eq!(ask(20), Ok(Answer::DoesNotFit));
}

#[test]
fn counting_copies_can_be_cancelled_between_any_two() {
    let slices: Vec<_> = (1..=3)
        .map(|number| {
            let name = format!("node-{number}");
            slice(&name, &name, json!({"nodeName": name, "devices": plain_devices(4)}))
        })
        .collect();
    let nodes: Vec<_> = (1..=3).map(|number| node(&format!("node-{number}"))).collect();
    let world = inventory(&slices);
    let left = Cell::new(6);
    let cancelled = || {
        left.set(left.get() - 1);
        left.get() < 0
    };
    let found = world.fit(&nodes, &[any(1)], Limits { cancelled: &cancelled, ..Limits::NONE }, 100);
    let ends: Vec<_> = found.nodes.iter().map(|node| (node.copies, node.end.clone())).collect();
    assert_eq!(ends, [(4, FitEnd::Full), (1, FitEnd::GaveUp), (0, FitEnd::GaveUp)]);
    assert_eq!(found.total, 5);
}

#[test]
fn the_steps_are_for_all_copies_on_all_nodes() {
    let world = inventory(&[
        slice("a", "a", json!({"devices": plain_devices(4)})),
        slice("b", "b", json!({"devices": plain_devices(4), "nodeName": "node-2"})),
    ]);
    let one = world.allocate(&node("node-1"), &[any(1)], Limits::NONE, &mut String::new).steps;
    let limits = Limits { steps: 6 * one, ..Limits::NONE };
    let found = world.fit(&[node("node-1"), node("node-2")], &[any(1)], limits, 100);
    assert_eq!((found.nodes[0].copies, &found.nodes[0].end), (4, &FitEnd::Full));
    assert_eq!(found.nodes[1].end, FitEnd::GaveUp);
    assert!(found.total < 8, "{found:?}");
}
