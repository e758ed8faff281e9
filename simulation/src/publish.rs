//! What drivers do: they publish their pools, slice after slice, and taint devices.

use std::collections::VecDeque;

use serde_json::{Value, json};

use crate::{run::Story, taints::held};
use dra_inhabitants::cluster::{Cluster, at, items, name, set, text};

/// The driver of devices that are allocated whole, in parts or in shares.
pub(crate) const GPU: &str = "gpu.example.com";
/// The driver of devices that are allocated whole.
pub(crate) const NIC: &str = "nic.example.com";
/// Attribute that names the type of a partition.
pub(crate) const PROFILE: &str = "gpu.example.com/profile";
/// Keys and values of taints and tolerations.
pub(crate) const KEYS: [&str; 2] = ["example.com/a", "example.com/b"];
pub(crate) const VALUES: [&str; 2] = ["", "x"];

/// What kind of devices a pool has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layout {
    Whole,
    Shared,
    Parts,
}

#[derive(Debug)]
struct Pool {
    driver: &'static str,
    name: &'static str,
    /// Of its slices, by number.
    nodes: [&'static str; 2],
    layout: Layout,
    generation: i64,
    slices: usize,
}

#[derive(Debug)]
enum Write {
    Put(String, Value),
    Remove(String),
}

/// The drivers of all nodes.
#[derive(Debug)]
pub(crate) struct Drivers {
    cluster: Cluster,
    random: fastrand::Rng,
    pools: Vec<Pool>,
    /// What is still to be written of a publication.
    left: VecDeque<Write>,
}

/// A taint as a driver or an administrator may set it. Times are in the past, now, or soon.
pub(crate) fn taint(random: &mut fastrand::Rng, cluster: &Cluster) -> Value {
    let effect = match random.u8(..10) {
        0..7 => "NoExecute",
        7..9 => "NoSchedule",
        _ => "None",
    };
    let mut taint = json!({"key": random.choice(KEYS), "value": random.choice(VALUES), "effect": effect});
    if random.u8(..3) == 0 {
        let by = jiff::SignedDuration::from_secs(random.i64(-600..200));
        let time = cluster.server.now().saturating_add(by).unwrap_or(jiff::Timestamp::MAX);
        set(&mut taint, "timeAdded", json!(time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()));
    }
    taint
}

/// Driver, pool and name of some device that a claim holds.
pub(crate) fn in_use(random: &mut fastrand::Rng, cluster: &Cluster) -> Option<[String; 3]> {
    let claims = cluster.all("ResourceClaim");
    let held: Vec<_> = claims.iter().flat_map(|claim| held(claim)).collect();
    let one = random.choice(&held)?;
    Some([one.driver, one.pool, one.device].map(str::to_owned))
}

impl Drivers {
    pub(crate) fn new(cluster: Cluster, seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut pool = |driver, name, nodes, layouts: &[Layout]| Pool {
            driver,
            name,
            nodes,
            layout: random.choice(layouts).copied().unwrap_or(Layout::Whole),
            // Some drivers begin with 0.
            generation: random.i64(-1..2),
            slices: 0,
        };
        let any = [Layout::Whole, Layout::Whole, Layout::Shared, Layout::Parts];
        let pools = vec![
            pool(GPU, "node-0", ["node-0"; 2], &any),
            pool(GPU, "node-1", ["node-1"; 2], &any),
            pool(GPU, "shelf", ["node-8", "node-9"], &[Layout::Whole, Layout::Parts]),
            pool(NIC, "node-0", ["node-0"; 2], &[Layout::Whole]),
        ];
        Self { cluster, random, pools, left: VecDeque::new() }
    }

    /// All of them publish what they have.
    pub(crate) fn prepare(&mut self, story: &mut Story) {
        for index in 0..self.pools.len() {
            self.publish(index);
            self.write_all(story);
        }
    }

    /// One thing that a driver does.
    pub(crate) fn act(&mut self, story: &mut Story) {
        match self.random.u8(..20) {
            _ if !self.left.is_empty() && self.random.u8(..4) > 0 => self.write_one(story),
            0..10 => {
                let index = self.random.usize(..self.pools.len());
                self.publish(index);
                if self.random.bool() {
                    self.write_all(story);
                } else {
                    self.write_one(story);
                }
            }
            10..17 => self.taint_one(story),
            17..19 => self.remove_one(story),
            _ => {
                // It dies in the middle of a publication.
                self.left.clear();
            }
        }
    }

    /// What remains to be published is, or never will be.
    pub(crate) fn end(&mut self, story: &mut Story) {
        if self.random.u8(..3) > 0 {
            self.write_all(story);
        }
        self.left.clear();
    }

    fn write_all(&mut self, story: &mut Story) {
        while !self.left.is_empty() {
            self.write_one(story);
        }
    }

    fn write_one(&mut self, story: &mut Story) {
        match self.left.pop_front() {
            Some(Write::Put(slice, body)) => {
                let known = self.cluster.find("ResourceSlice", &slice).is_some();
                let done = if known {
                    self.cluster.patch("ResourceSlice", &slice, "", &body)
                } else {
                    self.cluster.create("ResourceSlice", &body)
                };
                if done.is_ok() {
                    let spec = at(&body, &["spec"]);
                    story.tell(&format!(
                        "driver: {slice} at generation {} with {} devices",
                        at(spec, &["pool", "generation"]),
                        items(spec, &["devices"]).len()
                    ));
                }
            }
            Some(Write::Remove(slice)) => {
                if self.cluster.delete("ResourceSlice", &slice, &Value::Null).is_ok() {
                    story.tell(&format!("driver: removes {slice}"));
                }
            }
            None => {}
        }
    }

    /// Puts what a pool should look like from now on behind what is still to be written.
    fn publish(&mut self, index: usize) {
        let Some(pool) = self.pools.get_mut(index) else { return };
        let random = &mut self.random;
        if random.u8(..12) == 0 && pool.driver == GPU {
            pool.layout =
                random.choice([Layout::Whole, Layout::Shared, Layout::Parts]).unwrap_or(Layout::Whole);
        }
        let (generation, more) = match random.u8(..12) {
            // In place, as no driver should.
            0 => (pool.generation.max(0), 0),
            // One slice never comes.
            1 => (pool.generation + 1, 1),
            2 => (pool.generation + 5, 0),
            _ => (pool.generation + 1, 0),
        };
        pool.generation = generation;
        let contents = contents(pool, random, &self.cluster);
        let count = contents.len() + more;
        for (number, mut spec) in contents.into_iter().enumerate() {
            let node = pool.nodes.get(number.min(1)).copied().unwrap_or_default();
            set(&mut spec, "driver", json!(pool.driver));
            set(&mut spec, "nodeName", json!(node));
            let announced = json!({"name": pool.name, "generation": generation, "resourceSliceCount": count});
            set(&mut spec, "pool", announced);
            let slice = slice_name(pool, number);
            let body = json!({"metadata": {"name": slice}, "spec": spec});
            self.left.push_back(Write::Put(slice, body));
        }
        let slices = count - more;
        for number in slices..pool.slices {
            self.left.push_back(Write::Remove(slice_name(pool, number)));
        }
        pool.slices = slices;
    }

    /// The devices of a slice get other taints, without a word about anything else.
    fn taint_one(&mut self, story: &mut Story) {
        let slices = self.cluster.all("ResourceSlice");
        let used = in_use(&mut self.random, &self.cluster).filter(|_| self.random.u8(..4) > 0);
        let shows = |slice: &Value, [driver, pool, device]: &[String; 3]| {
            let of_pool =
                text(slice, &["spec", "driver"]) == driver && text(slice, &["spec", "pool", "name"]) == pool;
            let devices = items(slice, &["spec", "devices"]);
            devices.iter().position(|d| text(d, &["name"]) == device).filter(|_| of_pool)
        };
        let found = used.and_then(|used| slices.iter().find_map(|slice| Some((slice, shows(slice, &used)?))));
        let Some(slice) = found.map(|(slice, _)| slice).or_else(|| self.random.choice(&slices)) else {
            return;
        };
        let mut devices = items(slice, &["spec", "devices"]).to_vec();
        if devices.is_empty() {
            return;
        }
        let index = found.map_or_else(|| self.random.usize(..devices.len()), |(_, index)| index);
        let taints: Vec<Value> = match self.random.u8(..4) {
            0 => Vec::new(),
            1 => vec![taint(&mut self.random, &self.cluster), taint(&mut self.random, &self.cluster)],
            _ => vec![taint(&mut self.random, &self.cluster)],
        };
        let told: Vec<String> = taints.iter().map(ToString::to_string).collect();
        let Some(device) = devices.get_mut(index) else { return };
        set(device, "taints", json!(taints));
        let device = at(device, &["name"]).clone();
        let patch = json!({"spec": {"devices": devices}});
        if self.cluster.patch("ResourceSlice", name(slice), "", &patch).is_ok() {
            story.tell(&format!("driver: {device} in {} has the taints [{}]", name(slice), told.join(", ")));
        }
    }

    fn remove_one(&mut self, story: &mut Story) {
        let slices = self.cluster.all("ResourceSlice");
        let Some(slice) = self.random.choice(&slices) else { return };
        if self.cluster.delete("ResourceSlice", name(slice), &Value::Null).is_ok() {
            story.tell(&format!("somebody: deletes {}", name(slice)));
        }
    }
}

fn slice_name(pool: &Pool, number: usize) -> String {
    let driver = if pool.driver == GPU { "gpu" } else { "nic" };
    format!("{driver}-{}-{number}", pool.name)
}

/// What the slices of a pool have; nulls erase what an earlier publication had.
fn contents(pool: &Pool, random: &mut fastrand::Rng, cluster: &Cluster) -> Vec<Value> {
    let mut slices = match pool.layout {
        Layout::Whole => whole(random),
        Layout::Shared => shared(random),
        Layout::Parts => parts(random),
    };
    for slice in &mut slices {
        let devices = slice.get_mut("devices").and_then(Value::as_array_mut).into_iter().flatten();
        for device in devices {
            if random.u8(..16) == 0 {
                set(device, "taints", json!([taint(random, cluster)]));
            }
        }
    }
    slices
}

fn slice(devices: Vec<Value>) -> Value {
    json!({"devices": devices, "sharedCounters": null, "partitionTypeAttribute": null})
}

/// Spreads devices over one or two slices; sometimes one is published twice.
fn spread(devices: Vec<Value>, random: &mut fastrand::Rng) -> Vec<Value> {
    if devices.len() < 2 || random.bool() {
        return vec![slice(devices)];
    }
    let mut first = devices;
    let mut second = first.split_off(first.len() / 2);
    if random.u8(..8) == 0
        && let Some(twice) = first.first()
    {
        second.push(twice.clone());
    }
    vec![slice(first), slice(second)]
}

fn whole(random: &mut fastrand::Rng) -> Vec<Value> {
    let devices = (0..random.u8(1..7)).map(|n| json!({"name": format!("dev-{n}")})).collect();
    spread(devices, random)
}

fn shared(random: &mut fastrand::Rng) -> Vec<Value> {
    let devices = (0..random.u8(1..5))
        .map(|n| {
            let mut device = json!({"name": format!("dev-{n}")});
            if random.u8(..4) > 0 {
                let memory = random.choice(["20Gi", "40Gi"]).unwrap_or("40Gi");
                set(&mut device, "allowMultipleAllocations", json!(true));
                set(&mut device, "capacity", json!({"memory": {"value": memory}, "cores": {"value": "8"}}));
            }
            device
        })
        .collect();
    spread(devices, random)
}

/// Cards of 80Gi, each of them whole or as two halves, in one slice with the counters and one with the devices.
fn parts(random: &mut fastrand::Rng) -> Vec<Value> {
    let cards = random.u8(1..3);
    let counters: Vec<Value> = (0..cards)
        .map(|card| json!({"name": format!("card-{card}"), "counters": {"memory": {"value": "80Gi"}}}))
        .collect();
    let odd = random.u8(..16);
    let mut devices = Vec::new();
    for card in 0..cards {
        let mut device = |name: String, of_type: &str, memory: &str, card: &str| {
            devices.push(json!({"name": name, "attributes": {"profile": {"string": of_type}},
                "consumesCounters": [{"counterSet": card, "counters": {"memory": {"value": memory}}}]}));
        };
        let set = format!("card-{card}");
        device(format!("full-{card}"), "Full", "80Gi", &set);
        for half in 0..2 {
            let memory = if odd == 0 && half == 1 { "30Gi" } else { "40Gi" };
            let of_type = if odd == 1 && half == 1 { "" } else { "Half" };
            let set = if odd == 2 && half == 1 { "card-7" } else { &set };
            device(format!("half-{card}-{half}"), of_type, memory, set);
        }
    }
    if odd == 3
        && let Some(last) = devices.last_mut()
    {
        set(last, "attributes", Value::Null);
    }
    let attribute = if random.u8(..4) > 0 { json!(PROFILE) } else { Value::Null };
    vec![
        json!({"devices": null, "sharedCounters": counters, "partitionTypeAttribute": null}),
        json!({"devices": devices, "sharedCounters": null, "partitionTypeAttribute": attribute}),
    ]
}
