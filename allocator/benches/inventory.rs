//! Inventories of the size of a very large cluster: a million devices in 40,000 pools.

// A benchmark that cannot be set up has nothing to measure.
#![allow(clippy::expect_used)]

use std::alloc::System;

use divan::{AllocProfiler, Bencher, black_box};
use dra_allocator::objects::{Node, ResourceClaim, ResourceSlice};
use dra_allocator::{Features, Inventory, Limits};
use serde_json::json;

#[global_allocator]
static ALLOCATIONS: AllocProfiler<System> = AllocProfiler::system();

const POOLS: usize = 40_000;
const DEVICES: usize = 25;

fn main() {
    divan::main();
}

/// A device as drivers publish it: 13 attributes, four of them its own, and two capacities.
fn slice(pool: usize, generation: i64) -> ResourceSlice {
    let devices: Vec<_> = (0..DEVICES)
        .map(|device| {
            json!({
                "name": format!("gpu-{device}"),
                "attributes": {
                    "type": {"string": "gpu"},
                    "uuid": {"string": format!("GPU-{pool:08x}-{device:04x}-4950-a0bc-3f4eba57dd89")},
                    "index": {"int": device},
                    "minor": {"int": device},
                    "productName": {"string": "NVIDIA H100 80GB HBM3"},
                    "brand": {"string": "Nvidia"},
                    "architecture": {"string": "Hopper"},
                    "cudaComputeCapability": {"version": "9.0.0"},
                    "driverVersion": {"version": "580.95.5"},
                    "cudaDriverVersion": {"version": "13.0.0"},
                    "resource.kubernetes.io/numaNode": {"int": device / 4},
                    "resource.kubernetes.io/pciBusID": {"string": format!("0000:{device:02x}:00.0")},
                    "resource.kubernetes.io/pcieRoot": {"string": format!("pci0000:{:02x}", device / 4)},
                },
                "capacity": {"memory": {"value": "81559Mi"}, "cores": {"value": "132"}},
            })
        })
        .collect();
    let node = format!("node-{pool:05}");
    serde_json::from_value(json!({
        "metadata": {"name": format!("{node}-gpu")},
        "spec": {
            "driver": "gpu.nvidia.com",
            "pool": {"name": node, "generation": generation, "resourceSliceCount": 1},
            "nodeName": node,
            "devices": devices,
        },
    }))
    .expect("a slice")
}

fn cluster(pools: usize) -> Inventory {
    let mut inventory = Inventory::new(Features::default());
    inventory.apply_class(
        &serde_json::from_value(json!({
            "metadata": {"name": "gpu"},
            "spec": {"selectors": [{"cel": {
                "expression": "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'gpu'",
            }}]},
        }))
        .expect("a class"),
    );
    for pool in 0..pools {
        inventory.apply_slice(&slice(pool, 1));
    }
    inventory
}

fn claim() -> ResourceClaim {
    serde_json::from_value(json!({
        "metadata": {"name": "claim"},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {
            "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1,
        }}]}},
    }))
    .expect("a claim")
}

fn nodes(count: usize) -> Vec<Node> {
    (0..count)
        .map(|node| {
            serde_json::from_value(json!({"metadata": {"name": format!("node-{node:05}")}})).expect("a node")
        })
        .collect()
}

/// The memory of a million devices stands in the column of allocations that are not freed.
#[divan::bench(sample_count = 1, sample_size = 1)]
fn a_million_devices(bencher: Bencher<'_, '_>) {
    bencher.bench_local(|| std::mem::forget(black_box(cluster(POOLS))));
}

#[divan::bench]
fn republish_one_slice(bencher: Bencher<'_, '_>) {
    let mut inventory = cluster(POOLS);
    let mut generation = 1;
    bencher
        .with_inputs(|| {
            generation += 1;
            slice(20_000, generation)
        })
        .bench_local_refs(|slice| inventory.apply_slice(slice));
}

#[divan::bench]
fn republish_one_slice_while_a_snapshot_is_alive(bencher: Bencher<'_, '_>) {
    let mut inventory = cluster(POOLS);
    let mut generation = 1;
    bencher
        .with_inputs(|| {
            generation += 1;
            slice(20_000, generation)
        })
        .bench_local_refs(|slice| {
            let snapshot = inventory.snapshot();
            inventory.apply_slice(slice);
            snapshot
        });
}

#[divan::bench]
fn snapshot(bencher: Bencher<'_, '_>) {
    let inventory = cluster(POOLS);
    bencher.bench_local(|| inventory.snapshot());
}

#[divan::bench]
fn allocate_on_one_node(bencher: Bencher<'_, '_>) {
    let inventory = cluster(POOLS);
    let (node, claims) = (nodes(20_001).pop().expect("a node"), [claim()]);
    bencher.bench_local(|| inventory.snapshot().allocate(&node, &claims, Limits::NONE, &mut String::new));
}

/// No device has this number, so that the selectors of class and request look at each of the 25.
fn unlikely() -> ResourceClaim {
    let mut claim = claim();
    for request in &mut claim.spec.devices.requests {
        if let Some(exactly) = &mut request.exactly {
            exactly.selectors = serde_json::from_value(json!([{"cel": {
                "expression": "device.attributes['gpu.nvidia.com'].index == 1000",
            }}]))
            .expect("selectors");
        }
    }
    claim
}

#[divan::bench]
fn two_selectors_on_25_devices(bencher: Bencher<'_, '_>) {
    let inventory = cluster(100);
    let (node, claims) = (nodes(1).pop().expect("a node"), [unlikely()]);
    bencher.bench_local(|| inventory.allocate(&node, &claims, Limits::NONE, &mut String::new));
}

/// What has not been freed afterwards is what looking at devices adds to the inventory.
#[divan::bench(sample_count = 1, sample_size = 1)]
fn two_selectors_on_a_million_devices(bencher: Bencher<'_, '_>) {
    let inventory = cluster(POOLS);
    let (nodes, claims) = (nodes(POOLS), [unlikely()]);
    bencher.bench_local(|| {
        for node in &nodes {
            black_box(inventory.allocate(node, &claims, Limits::NONE, &mut String::new));
        }
    });
}

#[divan::bench(sample_count = 3, sample_size = 1)]
fn explain_5000_nodes(bencher: Bencher<'_, '_>) {
    let inventory = cluster(5_000);
    let (nodes, claims) = (nodes(5_000), [unlikely()]);
    bencher.bench_local(|| inventory.explain_cluster(&nodes, &claims, Limits::NONE, 10));
}

#[divan::bench(sample_count = 5, sample_size = 1)]
fn fit_over_5000_nodes(bencher: Bencher<'_, '_>) {
    let inventory = cluster(5_000);
    let (nodes, claims) = (nodes(5_000), [claim()]);
    bencher.bench_local(|| inventory.fit(&nodes, &claims, Limits::NONE, u64::MAX));
}
