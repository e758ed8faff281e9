//! Random allocation requests over all features, for comparing this allocator with the Go one.
//!
//! The same seed gives the same request. Objects are drawn from small sets of names and values, so that requests,
//! constraints, counters and taints meet often. Some are not valid for the API, as objects stored before stricter
//! validation may be.

// Indexing sets and reads fields of JSON objects that are made here.
#![allow(clippy::indexing_slicing)]

use serde_json::{Map, Value, json};

/// Splitmix64: small, and the same everywhere for ever.
#[derive(Debug)]
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Less than `bound`, which is not zero.
    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// In `percent` of all cases.
    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        let position = usize::try_from(self.below(from.len() as u64)).unwrap_or(0);
        from[position]
    }

    /// Each of `from` in `percent` of all cases.
    fn some<T: Copy>(&mut self, from: &[T], percent: u64) -> Vec<T> {
        from.iter().copied().filter(|_| self.chance(percent)).collect()
    }
}

const GATES: [&str; 11] = [
    "AdminAccess",
    "CompatibilityGroups",
    "ConsumableCapacity",
    "DerivedAttributes",
    "DeviceBindingAndStatus",
    "DeviceTaints",
    "FractionalCapacityRange",
    "ListTypeAttributes",
    "OptionalNodeOperations",
    "PartitionableDevices",
    "PrioritizedList",
];
const DRIVERS: [&str; 2] = ["a.dev", "b.dev"];
const CLASSES: [&str; 5] = ["a", "b", "any", "big", "shared"];
const ATTRIBUTES: [&str; 5] = ["model", "numa", "a.dev/model", "fabric.io/root", "fw"];
const CONSTRAINT_ATTRIBUTES: [&str; 4] = ["a.dev/model", "a.dev/numa", "fabric.io/root", "b.dev/fw"];
const CAPACITIES: [&str; 2] = ["memory", "a.dev/cores"];
const COUNTERS: [&str; 2] = ["slots", "memory"];
const CONDITIONS: [&str; 2] = ["dra.io/ready", "dra.io/attached"];
const GROUPS: [&str; 3] = ["mig", "vgpu", "mps"];

const EXPRESSIONS: [&str; 14] = [
    "true",
    "device.driver == 'a.dev'",
    "device.driver != 'b.dev'",
    "device.attributes['a.dev'].?model.orValue('') == 'x'",
    "device.attributes['a.dev'].?numa.orValue(0) == 0",
    "'model' in device.attributes['a.dev']",
    "device.attributes['fabric.io'].?root.hasValue()",
    "has(device.attributes['b.dev'].fw)",
    "device.capacity['a.dev'].?memory.orValue(quantity('0')).compareTo(quantity('4')) >= 0",
    "device.allowMultipleAllocations",
    "!device.allowMultipleAllocations",
    "device.attributes['a.dev'].exists(n, n == 'model')",
    "device.attributes['a.dev'].model == 'x'",
    "device.attributes['a.dev'].numa > 0 || device.driver == 'b.dev'",
];
const BAD_EXPRESSIONS: [&str; 3] = ["nonsense", "device.driver", "device.attributes['a.dev'].model + 1 == 2"];
const DERIVED_EXPRESSIONS: [&str; 6] = [
    "device.driver",
    "1",
    "device.attributes['a.dev'].?numa.orValue(7)",
    "device.attributes['a.dev'].?model.orValue('y')",
    "[1, 2]",
    "device.attributes['a.dev'].numa",
];

/// A request in the harness's JSON form.
pub fn request(seed: u64) -> Value {
    let mut random = Random(seed.wrapping_mul(0xA076_1D64_78BD_642F) ^ 0x5851_F42D_4C95_7F2D);
    let random = &mut random;
    // Half of all requests have most gates on, the others any.
    let percent = if random.chance(50) { 95 } else { 60 };
    let on = random.some(&GATES, percent);
    let has = |gate: &str| on.contains(&gate);
    let mut slices = Vec::new();
    for driver in DRIVERS {
        let pools: &[&str] = if random.chance(60) { &["p1"] } else { &["p1", "p2", "p10"] };
        for pool in pools {
            slices.extend(pool_slices(random, driver, pool));
        }
    }
    slices.sort_by(|a, b| a["metadata"]["name"].as_str().cmp(&b["metadata"]["name"].as_str()));
    let state = allocated_state(random, &slices);
    let mut wanted = Wanted {
        admin: has("AdminAccess"),
        alternatives: has("PrioritizedList"),
        capacity: has("ConsumableCapacity"),
        derived: has("DerivedAttributes"),
    };
    // Now and then ask for what a gate forbids.
    if random.chance(4) {
        wanted = Wanted { admin: true, alternatives: true, capacity: true, derived: true };
    }
    let claims: Vec<Value> =
        (0..=random.pick(&[0, 0, 0, 1, 1, 2])).map(|n| claim(random, n, &wanted)).collect();
    let mut labels = Map::new();
    labels.insert("region".to_owned(), json!(random.pick(&["east", "west"])));
    labels.insert("cpus".to_owned(), json!(random.pick(&["4", "16"])));
    let mut node = json!({"metadata": {"name": "node-1", "labels": labels}});
    if random.chance(50) {
        node["status"] = json!({"declaredFeatures": ["DRAOptionalNodeOperations"]});
    }
    json!({
        "features": on.iter().map(|gate| ((*gate).to_owned(), json!(true))).collect::<Map<_, _>>(),
        "allocatedState": state,
        "classes": classes(random),
        "slices": slices,
        "node": node,
        "claims": claims,
    })
}

#[allow(clippy::struct_excessive_bools)]
struct Wanted {
    admin: bool,
    alternatives: bool,
    capacity: bool,
    derived: bool,
}

fn selector(random: &mut Random) -> Value {
    if random.chance(1) {
        return json!({});
    }
    let expression = if random.chance(2) { random.pick(&BAD_EXPRESSIONS) } else { random.pick(&EXPRESSIONS) };
    json!({"cel": {"expression": expression}})
}

fn classes(random: &mut Random) -> Vec<Value> {
    let expression = |text: &str| json!([{"cel": {"expression": text}}]);
    let mut classes = vec![
        ("a", expression("device.driver == 'a.dev'")),
        ("b", expression("device.driver == 'b.dev'")),
        ("any", json!([])),
        (
            "big",
            expression(
                "device.capacity['a.dev'].?memory.orValue(quantity('0')).compareTo(quantity('2')) > 0",
            ),
        ),
        ("shared", expression("device.allowMultipleAllocations")),
    ];
    if random.chance(3) {
        classes.remove(0);
    }
    classes
        .into_iter()
        .map(|(name, selectors)| {
            let mut spec = json!({"selectors": selectors});
            if random.chance(30) {
                spec["config"] = json!([{"opaque": {"driver": "a.dev", "parameters": {"of": name}}}]);
            }
            json!({"metadata": {"name": name}, "spec": spec})
        })
        .collect()
}

fn node_selector(random: &mut Random) -> Value {
    let requirement = match random.below(7) {
        0 => json!({"key": "region", "operator": "In", "values": ["east"]}),
        1 => json!({"key": "region", "operator": "NotIn", "values": ["west", "north"]}),
        2 => json!({"key": "gpu", "operator": "DoesNotExist"}),
        3 => json!({"key": "region", "operator": "Exists"}),
        4 => json!({"key": "cpus", "operator": "Gt", "values": ["8"]}),
        5 => json!({"key": "region", "operator": "In", "values": ["east", "west"]}),
        _ if random.chance(8) => json!({"key": "region", "operator": "Near", "values": ["east"]}),
        _ => json!({"key": "cpus", "operator": "Lt", "values": ["99"]}),
    };
    let mut term = json!({"matchExpressions": [requirement]});
    if random.chance(15) {
        term["matchFields"] = json!([{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]);
    }
    let terms = if random.chance(4) { json!([term, {}]) } else { json!([term]) };
    json!({"nodeSelectorTerms": terms})
}

/// Sets one of the fields that say which nodes can use a slice or a device.
fn scope(random: &mut Random, of: &mut Value) {
    match random.below(10) {
        0..=5 => of["nodeName"] = json!("node-1"),
        6 => of["nodeName"] = json!("node-2"),
        7 | 8 => of["allNodes"] = json!(true),
        _ => of["nodeSelector"] = node_selector(random),
    }
}

fn pool_slices(random: &mut Random, driver: &str, pool: &str) -> Vec<Value> {
    let partitionable = random.chance(40);
    let per_device = random.chance(15);
    let mut specs = Vec::new();
    let mut next_device = 0;
    let mut scope_of_pool = json!({});
    scope(random, &mut scope_of_pool);
    let one_scope = random.chance(80);
    let sets: &[&str] = if random.chance(50) { &["set-1"] } else { &["set-1", "set-2"] };
    let style = Style {
        partitionable,
        per_device,
        shareable: random.chance(35),
        tainted: random.chance(20),
        conditions: random.chance(15),
        groups: partitionable && random.chance(30),
        binds: random.chance(5),
    };
    if partitionable {
        let counters = |random: &mut Random| {
            COUNTERS
                .iter()
                .map(|name| {
                    ((*name).to_owned(), json!({"value": random.pick(&["2", "4", "6", "8Gi", "3500m"])}))
                })
                .collect::<Map<_, _>>()
        };
        let mut list: Vec<Value> =
            sets.iter().map(|set| json!({"name": set, "counters": counters(random)})).collect();
        if random.chance(3) {
            list.push(json!({"name": "set-1", "counters": counters(random)}));
        }
        specs.push(json!({"sharedCounters": list}));
    }
    for _ in 0..random.pick(&[1, 1, 1, 2, 2, 3]) {
        let devices: Vec<Value> = (0..random.pick(&[0_u64, 1, 2, 3, 4, 5, 6]))
            .map(|_| device(random, &mut next_device, &style, sets))
            .collect();
        let mut spec = json!({"devices": devices});
        if random.chance(6) {
            spec["skipNodeOperations"] = json!(["NodePrepareResources"]);
        }
        specs.push(spec);
    }
    let count = specs.len();
    let generation = random.pick(&[1, 1, 2]);
    let announced = if random.chance(3) { count + 1 } else { count };
    let mut slices = Vec::new();
    for (position, mut spec) in specs.into_iter().enumerate() {
        spec["driver"] = json!(driver);
        let generation = if random.chance(2) { generation - 1 } else { generation };
        spec["pool"] = json!({"name": pool, "generation": generation, "resourceSliceCount": announced});
        if per_device && spec.get("sharedCounters").is_none() {
            spec["perDeviceNodeSelection"] = json!(true);
        } else if one_scope {
            for (key, value) in scope_of_pool.as_object().into_iter().flatten() {
                spec[key] = value.clone();
            }
        } else {
            scope(random, &mut spec);
        }
        // Names in an order that differs from the order of creation.
        let name = format!("{}-{driver}-{pool}-{position}", random.pick(&["x", "y", "z"]));
        slices.push(json!({"metadata": {"name": name}, "spec": spec}));
    }
    slices
}

/// What devices of a pool are like. Few pools have everything.
#[allow(clippy::struct_excessive_bools)]
struct Style {
    partitionable: bool,
    per_device: bool,
    shareable: bool,
    tainted: bool,
    conditions: bool,
    groups: bool,
    binds: bool,
}

fn device(random: &mut Random, next: &mut u64, style: &Style, sets: &[&str]) -> Value {
    // Few devices have the name of another one.
    if !random.chance(1) {
        *next += 1;
    }
    let mut device = json!({"name": format!("d{next}")});
    let mut names = random.some(&ATTRIBUTES, 75);
    if names.contains(&"a.dev/model") && random.chance(50) {
        names.retain(|name| *name != "a.dev/model");
    } else if names.contains(&"a.dev/model") {
        // With both, it is left to chance in Go which one an expression sees.
        names.retain(|name| *name != "model");
    }
    let attributes: Map<_, _> =
        names.into_iter().map(|name| (name.to_owned(), attribute(random, name))).collect();
    device["attributes"] = attributes.into();
    let capacity: Map<_, _> =
        random.some(&CAPACITIES, 60).into_iter().map(|name| (name.to_owned(), capacity(random))).collect();
    device["capacity"] = capacity.into();
    if style.per_device {
        scope(random, &mut device);
    }
    if style.shareable && random.chance(80) {
        device["allowMultipleAllocations"] = json!(true);
    }
    if style.tainted && random.chance(50) {
        let taint = |random: &mut Random| {
            json!({
                "key": random.pick(&["k1", "k2"]),
                "value": random.pick(&["", "v"]),
                "effect": random.pick(&["NoSchedule", "NoExecute", "None", "Future"]),
            })
        };
        device["taints"] =
            if random.chance(70) { json!([taint(random)]) } else { json!([taint(random), taint(random)]) };
    }
    if style.conditions && random.chance(60) {
        device["bindingConditions"] = json!(random.some(&CONDITIONS, 60));
        device["bindingFailureConditions"] = json!(random.some(&CONDITIONS, 30));
    }
    if style.binds {
        device["bindsToNode"] = json!(true);
    }
    if style.partitionable && random.chance(85) {
        let of = if random.chance(80) { random.some(sets, 60) } else { sets.to_vec() };
        let consumptions: Vec<Value> = of.into_iter().map(|set| consumption(random, style, set)).collect();
        device["consumesCounters"] = consumptions.into();
    }
    device
}

/// How much a device draws; the API allows less than nothing.
fn amount(random: &mut Random) -> &'static str {
    if random.chance(3) { "-1" } else { random.pick(&["0", "1", "2", "2500m", "4Gi", "3"]) }
}

fn consumption(random: &mut Random, style: &Style, set: &str) -> Value {
    let set = if random.chance(1) { "set-9" } else { set };
    let mut counters: Map<_, _> = random
        .some(&COUNTERS, 70)
        .into_iter()
        .map(|name| (name.to_owned(), json!({"value": amount(random)})))
        .collect();
    if random.chance(1) {
        counters.insert("unheard-of".to_owned(), json!({"value": "1"}));
    }
    let mut consumption = json!({"counterSet": set, "counters": counters});
    if style.groups && random.chance(80) {
        consumption["compatibilityGroups"] = json!(random.some(&GROUPS, 55));
    }
    consumption
}

fn attribute(random: &mut Random, name: &str) -> Value {
    if random.chance(1) && random.chance(25) {
        return json!({});
    }
    let list = random.chance(15);
    match (name, list) {
        ("model" | "a.dev/model", false) => json!({"string": random.pick(&["x", "x", "y"])}),
        ("model" | "a.dev/model", true) => json!({"strings": random.some(&["x", "y", "z"], 60)}),
        ("numa", false) => json!({"int": random.below(2)}),
        ("numa", true) => json!({"ints": random.some(&[0, 1, 2], 60)}),
        ("fabric.io/root", false) => json!({"bool": random.chance(50)}),
        ("fabric.io/root", true) => json!({"bools": random.some(&[true, false], 60)}),
        (_, false) => json!({"version": random.pick(&["1.0.0", "1.0.0", "2.1.0", "1.0.0+b"])}),
        (_, true) => json!({"versions": random.some(&["1.0.0", "2.0.0"], 60)}),
    }
}

fn capacity(random: &mut Random) -> Value {
    let mut capacity = json!({"value": random.pick(&["1", "4", "8", "10Gi", "2500m"])});
    match random.below(8) {
        0 => capacity["requestPolicy"] = json!({"default": "1"}),
        1 | 2 => {
            let mut range = json!({"min": random.pick(&["1", "200m", "2"])});
            if random.chance(70) {
                range["step"] = json!(random.pick(&["1", "100m", "2"]));
            }
            if random.chance(60) {
                range["max"] = json!(random.pick(&["4", "1", "6500m"]));
            }
            let mut default = random.pick(&["1", "2"]);
            if range["max"] == "1" {
                // A default outside its range counts in Go if it is written as the rounded amount is, and here always.
                default = "1";
                if range["min"] == "2" {
                    range["min"] = json!("1");
                }
            }
            capacity["requestPolicy"] = json!({"default": default, "validRange": range});
        }
        3 => capacity["requestPolicy"] = json!({"default": "1", "validValues": ["1", "2", "4"]}),
        _ => {}
    }
    capacity
}

fn allocated_state(random: &mut Random, slices: &[Value]) -> Value {
    let percent = random.pick(&[0, 0, 10, 30]);
    let (mut dedicated, mut shares, mut consumed) = (Vec::new(), Vec::new(), Vec::new());
    for slice in slices {
        let spec = &slice["spec"];
        for device in spec["devices"].as_array().into_iter().flatten() {
            if !random.chance(percent) {
                continue;
            }
            let id =
                json!({"driver": spec["driver"], "pool": spec["pool"]["name"], "device": device["name"]});
            let shareable = device["allowMultipleAllocations"] == json!(true);
            if !shareable && !random.chance(5) || random.chance(5) {
                dedicated.push(id);
                continue;
            }
            let mut share = id.clone();
            share["shareID"] = json!("11111111-2222-3333-4444-555555555555");
            shares.push(share);
            let amounts: Map<_, _> = device["capacity"]
                .as_object()
                .into_iter()
                .flatten()
                .map(|(name, _)| (name.clone(), json!(random.pick(&["0", "1", "2", "500m"]))))
                .collect();
            if !amounts.is_empty() && random.chance(90) {
                let mut entry = id;
                entry["consumed"] = amounts.into();
                consumed.push(entry);
            }
        }
    }
    if random.chance(10) {
        dedicated.push(json!({"driver": "a.dev", "pool": "p1", "device": "long-gone"}));
    }
    json!({"allocatedDevices": dedicated, "allocatedSharedDeviceIDs": shares, "aggregatedCapacity": consumed})
}

fn claim(random: &mut Random, number: u64, wanted: &Wanted) -> Value {
    let requests: Vec<Value> =
        (0..random.pick(&[1_u64, 1, 2, 2, 3])).map(|n| request_of(random, n, wanted)).collect();
    let mut names: Vec<String> = Vec::new();
    for request in &requests {
        let name = request["name"].as_str().unwrap_or_default();
        names.push(name.to_owned());
        for alternative in request["firstAvailable"].as_array().into_iter().flatten() {
            names.push(format!("{name}/{}", alternative["name"].as_str().unwrap_or_default()));
        }
    }
    let mut devices = json!({"requests": requests});
    let some_names = |random: &mut Random| {
        if random.chance(60) {
            return Vec::new();
        }
        names.iter().filter(|_| random.chance(50)).cloned().collect::<Vec<_>>()
    };
    if random.chance(35) {
        let constraints: Vec<Value> = (0..random.pick(&[1, 1, 2]))
            .map(|_| {
                let attribute = random.pick(&CONSTRAINT_ATTRIBUTES);
                let kind = if random.chance(65) { "matchAttribute" } else { "distinctAttribute" };
                let mut constraint = json!({"requests": some_names(random)});
                if !random.chance(1) {
                    constraint[kind] = json!(attribute);
                }
                constraint
            })
            .collect();
        devices["constraints"] = constraints.into();
    }
    if random.chance(25) {
        let config: Vec<Value> = (0..random.pick(&[1, 2]))
            .map(|n| {
                json!({
                    "requests": some_names(random),
                    "opaque": {"driver": "a.dev", "parameters": {"number": n}},
                })
            })
            .collect();
        devices["config"] = config.into();
    }
    json!({"metadata": {"name": format!("claim-{number}"), "namespace": "ns"}, "spec": {"devices": devices}})
}

fn request_of(random: &mut Random, number: u64, wanted: &Wanted) -> Value {
    let name = format!("r{number}");
    if wanted.alternatives && random.chance(25) {
        let alternatives: Vec<Value> = (0..random.pick(&[1, 2, 2, 3]))
            .map(|n| {
                let mut alternative = asked(random, wanted);
                alternative["name"] = json!(format!("s{n}"));
                alternative
            })
            .collect();
        return json!({"name": name, "firstAvailable": alternatives});
    }
    let mut exactly = asked(random, wanted);
    if wanted.admin && random.chance(12) {
        exactly["adminAccess"] = json!(!random.chance(20));
    }
    json!({"name": name, "exactly": exactly})
}

fn asked(random: &mut Random, wanted: &Wanted) -> Value {
    let class = if random.chance(1) { "missing" } else { random.pick(&CLASSES) };
    let mut asked = json!({"deviceClassName": class});
    if random.chance(12) {
        asked["allocationMode"] = json!("All");
    } else {
        asked["allocationMode"] = json!("ExactCount");
        let count = random.pick(&[1, 1, 1, 1, 2, 2, 3, 0]);
        asked["count"] = json!(if random.chance(1) { 20 } else { count });
    }
    if random.chance(40) {
        let selectors: Vec<Value> = (0..random.pick(&[1, 1, 2])).map(|_| selector(random)).collect();
        asked["selectors"] = selectors.into();
    }
    if random.chance(25) {
        let tolerations: Vec<Value> = (0..random.pick(&[1, 2]))
            .map(|_| {
                json!({
                    "key": random.pick(&["", "k1", "k2"]),
                    "operator": random.pick(&["Exists", "Equal", "Equal", "Near"]),
                    "value": random.pick(&["", "v"]),
                    "effect": random.pick(&["", "", "NoSchedule"]),
                })
            })
            .collect();
        asked["tolerations"] = tolerations.into();
    }
    if wanted.capacity && random.chance(30) {
        let names = if random.chance(5) { vec!["unheard-of"] } else { random.some(&CAPACITIES, 60) };
        let amounts: Map<_, _> = names
            .into_iter()
            .map(|name| {
                let amount = random.pick(&["1", "2", "3", "250m", "5", "1Gi"]);
                let amount = if random.chance(2) {
                    random.pick(&["-1", "9223372036854775807", "1e21"])
                } else {
                    amount
                };
                (name.to_owned(), json!(amount))
            })
            .collect();
        asked["capacity"] = json!({"requests": amounts});
    }
    if wanted.derived && random.chance(12) {
        asked["derivedAttributes"] = json!([{
            "name": random.pick(&CONSTRAINT_ATTRIBUTES),
            "expression": random.pick(&DERIVED_EXPRESSIONS),
        }]);
    }
    asked
}
