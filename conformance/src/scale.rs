//! Measures an inventory of the size of a very large cluster: a million devices in 40,000 pools.

use std::time::{Duration, Instant};

use dra_allocator::objects::{
    Device, DeviceAttribute, DeviceCapacity, DeviceClass, Node, ResourceClaim, ResourceSlice,
};
use dra_allocator::{Answer, Features, Inventory, Limits};
use dra_api::quantity::Quantity;
use serde_json::json;

const POOLS: usize = 40_000;
const DEVICES: usize = 25;
const NODES: usize = 5_000;

/// Prints memory and times.
///
/// # Errors
///
/// The objects cannot be made.
///
/// # Panics
///
/// An allocation that must succeed does not: the figures would mean nothing.
pub fn run() -> Result<(), String> {
    let decode = |error: serde_json::Error| error.to_string();
    let class: DeviceClass = serde_json::from_value(json!({
        "metadata": {"name": "gpu"},
        "spec": {"selectors": [{"cel": {
            "expression": "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'gpu'",
        }}]},
    }))
    .map_err(decode)?;
    let claim: ResourceClaim = serde_json::from_value(json!({
        "metadata": {"name": "claim"},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {
            "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1,
        }}]}},
    }))
    .map_err(decode)?;
    // No device has this number, so each one is looked at.
    let unlikely: ResourceClaim = serde_json::from_value(json!({
        "metadata": {"name": "unlikely"},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {
            "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1,
            "selectors": [{"cel": {"expression": "device.attributes['gpu.nvidia.com'].index == 1000"}}],
        }}]}},
    }))
    .map_err(decode)?;
    let device = device()?;
    let before = resident();
    let mut inventory = Inventory::new(Features::default());
    inventory.apply_class(&class);
    let start = Instant::now();
    for pool in 0..POOLS {
        inventory.apply_slice(&slice(&device, pool, 1));
    }
    println!("{} devices in {POOLS} pools: {:?}", POOLS * DEVICES, start.elapsed());
    println!("resident memory: {} MiB", (resident() - before) / 1024);
    let claims = [claim];
    let mut generation = 1;
    // A short time is taken as the median, so that other programs on the machine do not count.
    println!("snapshot: {:?}", median(1000, || drop(inventory.snapshot())));
    let node = node(POOLS / 2);
    println!(
        "snapshot and allocation on one node: {:?}",
        median(1000, || {
            let outcome = inventory.snapshot().allocate(&node, &claims, Limits::NONE, &mut String::new);
            assert!(matches!(outcome.answer, Ok(Answer::Allocated(_))), "{outcome:?}");
        })
    );
    let mut republish = |keep: bool| {
        let mut times = Vec::new();
        for pool in (0..POOLS).step_by(40) {
            generation += 1;
            let slice = slice(&device, pool, generation);
            let snapshot = keep.then(|| inventory.snapshot());
            let start = Instant::now();
            inventory.apply_slice(&slice);
            times.push(start.elapsed());
            drop(snapshot);
        }
        times.sort();
        times.get(times.len() / 2).copied().unwrap_or_default()
    };
    println!("one slice republished: {:?}", republish(false));
    println!("one slice republished while a snapshot is alive: {:?}", republish(true));
    let nodes: Vec<Node> = (0..NODES).map(self::node).collect();
    for round in ["first", "second"] {
        let start = Instant::now();
        let fit = inventory.fit(&nodes, &claims, Limits::NONE, u64::MAX);
        println!("fit over {NODES} nodes, {round} time: {:?}, {} copies", start.elapsed(), fit.total);
    }
    println!("resident memory then: {} MiB", (resident() - before) / 1024);
    let start = Instant::now();
    for pool in 0..POOLS {
        let outcome = inventory.allocate(
            &self::node(pool),
            std::slice::from_ref(&unlikely),
            Limits::NONE,
            &mut String::new,
        );
        assert_eq!(outcome.answer, Ok(Answer::DoesNotFit));
    }
    println!("two selectors on each device of {POOLS} nodes: {:?}", start.elapsed());
    println!("resident memory then: {} MiB", (resident() - before) / 1024);
    let start = Instant::now();
    let explanation = inventory.explain_cluster(&nodes, std::slice::from_ref(&unlikely), Limits::NONE, 10);
    println!("explanation for {NODES} nodes: {:?}", start.elapsed());
    print!("{}", explanation.text(1000));
    // Last, because memory that was freed before would not be seen to be used again.
    one_selector(&device)
}

/// The time that a simple selector and all else takes, on a pool of 10,000 devices.
fn one_selector(device: &Device) -> Result<(), String> {
    let decode = |error: serde_json::Error| error.to_string();
    let mut inventory = Inventory::new(Features::default());
    let class = serde_json::from_value(json!({"metadata": {"name": "any"}})).map_err(decode)?;
    inventory.apply_class(&class);
    let mut large = slice(device, 0, 1);
    let devices = 10_000_u32;
    large.spec.devices = (0..devices)
        .zip(large.spec.devices.iter().cycle())
        .map(|(number, like)| Device { name: format!("gpu-{number}"), ..like.clone() })
        .collect();
    inventory.apply_slice(&large);
    for expression in [
        "device.attributes['gpu.nvidia.com'].index == 1000",
        "device.attributes['gpu.nvidia.com'].type == 'nic'",
        "device.attributes['gpu.nvidia.com'].driverVersion.isLessThan(semver('500.0.0'))",
        "device.capacity['gpu.nvidia.com'].memory.isGreaterThan(quantity('100Gi'))",
    ] {
        let claim = serde_json::from_value(json!({
            "metadata": {"name": "claim"},
            "spec": {"devices": {"requests": [{"name": "r", "exactly": {
                "deviceClassName": "any", "allocationMode": "ExactCount", "count": 1,
                "selectors": [{"cel": {"expression": expression}}],
            }}]}},
        }))
        .map_err(decode)?;
        let taken = median(20, || {
            let claims = std::slice::from_ref(&claim);
            let outcome = inventory.allocate(&node(0), claims, Limits::NONE, &mut String::new);
            assert_eq!(outcome.answer, Ok(Answer::DoesNotFit));
        });
        println!("each of {devices} devices tried with the selector {expression}: {:?}", taken / devices);
    }
    Ok(())
}

fn median(times: usize, mut operation: impl FnMut()) -> Duration {
    let mut taken: Vec<_> = (0..times)
        .map(|_| {
            let start = Instant::now();
            operation();
            start.elapsed()
        })
        .collect();
    taken.sort();
    taken.get(times / 2).copied().unwrap_or_default()
}

/// Memory of this process in KiB (`VmRSS`).
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse().unwrap_or(0)
}

fn node(number: usize) -> Node {
    let mut node = Node::default();
    node.metadata.name = format!("node-{number:05}");
    node
}

/// What all devices have in common: 13 attributes and two capacities, as a real driver publishes them.
fn device() -> Result<Device, String> {
    let text = |text: &str| DeviceAttribute { string: Some(text.to_owned()), ..Default::default() };
    let version = |text: &str| DeviceAttribute { version: Some(text.to_owned()), ..Default::default() };
    let amount = |text: &str| {
        let value = Quantity::parse(text).map_err(|error| error.to_string())?;
        Ok::<_, String>(DeviceCapacity { value, request_policy: None })
    };
    let mut device = Device::default();
    for (name, attribute) in [
        ("type", text("gpu")),
        ("productName", text("NVIDIA H100 80GB HBM3")),
        ("brand", text("Nvidia")),
        ("architecture", text("Hopper")),
        ("cudaComputeCapability", version("9.0.0")),
        ("driverVersion", version("580.95.5")),
        ("cudaDriverVersion", version("13.0.0")),
    ] {
        device.attributes.insert(name.to_owned(), attribute);
    }
    device.capacity.insert("memory".to_owned(), amount("81559Mi")?);
    device.capacity.insert("cores".to_owned(), amount("132")?);
    Ok(device)
}

fn slice(like: &Device, pool: usize, generation: i64) -> ResourceSlice {
    let text = |text: String| DeviceAttribute { string: Some(text), ..Default::default() };
    let number = |value: usize| DeviceAttribute { int: i64::try_from(value).ok(), ..Default::default() };
    let node = format!("node-{pool:05}");
    let mut slice = ResourceSlice::default();
    slice.metadata.name = format!("{node}-gpu");
    "gpu.nvidia.com".clone_into(&mut slice.spec.driver);
    slice.spec.pool.name.clone_from(&node);
    slice.spec.pool.generation = generation;
    slice.spec.pool.resource_slice_count = 1;
    slice.spec.node_name = Some(node);
    for position in 0..DEVICES {
        let mut device = like.clone();
        device.name = format!("gpu-{position}");
        for (name, attribute) in [
            ("uuid", text(format!("GPU-{pool:08x}-{position:04x}-4950-a0bc-3f4eba57dd89"))),
            ("index", number(position)),
            ("minor", number(position)),
            ("resource.kubernetes.io/numaNode", number(position / 4)),
            ("resource.kubernetes.io/pciBusID", text(format!("0000:{position:02x}:00.0"))),
            ("resource.kubernetes.io/pcieRoot", text(format!("pci0000:{:02x}", position / 4))),
        ] {
            device.attributes.insert(name.to_owned(), attribute);
        }
        slice.spec.devices.push(device);
    }
    slice
}
