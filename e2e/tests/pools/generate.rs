//! Random pools, each with the deviations that its state may lead to.

use std::collections::BTreeMap;

use anyhow::Result;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::{Value, json};

use crate::world::{World, merge, pool};

/// Names of docs/DEVIATIONS.md, "Pool status".
pub(crate) const TAINTED_AND_ALLOCATED: &str = "P5";
pub(crate) const NOT_PUBLISHED: &str = "P6";
pub(crate) const HELD_TWICE: &str = "P7";
pub(crate) const SEVERAL_GPUS: &str = "P8";
pub(crate) const TAINTED_PARTITION: &str = "P9";
pub(crate) const DEFAULT_ATTRIBUTE: &str = "P10";
pub(crate) const USED_UP: &str = "P11";
pub(crate) const GENERATION_ZERO: &str = "P2";
pub(crate) const EMPTY_TYPE: &str = "P3";
pub(crate) const INCOMPLETE: &str = "P1";

/// Which deviations a pool may show.
pub(crate) type Traits = BTreeMap<(String, String), Vec<&'static str>>;

pub(crate) struct Generator {
    random: StdRng,
    claims: usize,
    /// By driver and pool.
    pub(crate) traits: Traits,
}

const DEVICES: usize = 6;

impl Generator {
    pub(crate) fn seeded(seed: u64) -> Self {
        Self { random: StdRng::seed_from_u64(seed), claims: 0, traits: Traits::new() }
    }

    fn chance(&mut self, percent: u32) -> bool {
        self.random.random_range(0..100) < percent
    }

    fn number(&mut self, below: usize) -> usize {
        self.random.random_range(0..below)
    }

    fn marks(&mut self, driver: &str, pool: &str, mark: &'static str) {
        let known = self.traits.entry((driver.to_owned(), pool.to_owned())).or_default();
        if !known.contains(&mark) {
            known.push(mark);
        }
    }

    async fn hold(
        &mut self,
        world: &World,
        driver: &str,
        pool: &str,
        device: &str,
        more: Value,
    ) -> Result<()> {
        self.claims += 1;
        let mut result = json!({"driver": driver, "pool": pool, "device": device});
        merge(&mut result, more);
        world.claim(&format!("claim-{}", self.claims), &[result]).await
    }

    /// Makes the pools of a driver; every few drivers are of a kind that the in-tree controller never answers for.
    pub(crate) async fn driver(&mut self, world: &World, number: usize) -> Result<String> {
        let driver = format!("d{number}.example.com");
        let pools = 1 + self.number(4);
        for one in 0..pools {
            let name = format!("pool-{one}");
            self.traits.insert((driver.clone(), name.clone()), Vec::new());
            match self.number(3) {
                0 => self.plain(world, &driver, &name).await?,
                1 => self.partitioned(world, &driver, &name).await?,
                _ => self.shareable(world, &driver, &name).await?,
            }
        }
        if number % 6 == 5 {
            let name = "odd";
            match self.number(3) {
                0 => {
                    self.marks(&driver, name, GENERATION_ZERO);
                    let spec =
                        json!({"driver": driver, "pool": pool(name, 0, 1), "devices": [{"name": "x"}]});
                    world.slice(&format!("{driver}-odd"), spec).await?;
                }
                1 => {
                    self.marks(&driver, name, INCOMPLETE);
                    let spec =
                        json!({"driver": driver, "pool": pool(name, 1, 2), "devices": [{"name": "x"}]});
                    world.slice(&format!("{driver}-odd"), spec).await?;
                }
                _ => {
                    self.marks(&driver, name, EMPTY_TYPE);
                    self.partitions(world, &driver, name, &[("x", "", 0, 8)], 1).await?;
                }
            }
        }
        Ok(driver)
    }

    async fn plain(&mut self, world: &World, driver: &str, name: &str) -> Result<()> {
        self.marks(driver, name, DEFAULT_ATTRIBUTE);
        let slices = 1 + self.number(3);
        let generation = 1 + i64::try_from(self.number(3))?;
        let one_node = self.chance(50);
        let count = i64::try_from(slices)?;
        if self.chance(30) {
            let old = json!({"driver": driver, "pool": pool(name, 0, 9), "devices": [{"name": "old"}]});
            world.slice(&format!("{driver}-{name}-old"), old).await?;
        }
        for slice in 0..slices {
            let mut devices = Vec::new();
            for device in 0..DEVICES {
                let device = format!("s{slice}-d{device}");
                let mut spec = json!({"name": device});
                let (tainted, held) = (self.chance(20), self.chance(30));
                if tainted {
                    let effects = ["NoSchedule", "NoExecute", "None"];
                    let effect = effects.get(self.number(3)).copied().unwrap_or("None");
                    merge(&mut spec, json!({"taints": [{"key": "k", "effect": effect}]}));
                }
                if held {
                    self.hold(world, driver, name, &device, json!({})).await?;
                    if tainted {
                        self.marks(driver, name, TAINTED_AND_ALLOCATED);
                    }
                    if self.chance(10) {
                        self.hold(world, driver, name, &device, json!({})).await?;
                        self.marks(driver, name, HELD_TWICE);
                    }
                }
                devices.push(spec);
            }
            let node = if one_node { "node-1".to_owned() } else { format!("node-{slice}") };
            let spec = json!({"driver": driver, "pool": pool(name, generation, count), "devices": devices,
                "nodeName": node});
            world.slice(&format!("{driver}-{name}-{slice}"), spec).await?;
        }
        if self.chance(15) {
            self.hold(world, driver, name, "gone", json!({})).await?;
            self.marks(driver, name, NOT_PUBLISHED);
        }
        if self.chance(15) {
            let effect = if self.chance(70) { "NoSchedule" } else { "None" };
            world
                .rule(
                    &format!("{driver}-{name}"),
                    json!({"driver": driver, "pool": name, "device": "s0-d0"}),
                    effect,
                )
                .await?;
            self.marks(driver, name, TAINTED_AND_ALLOCATED);
        }
        Ok(())
    }

    async fn partitioned(&mut self, world: &World, driver: &str, name: &str) -> Result<()> {
        let gpus = if self.chance(30) { 2 } else { 1 };
        let mut shapes = Vec::new();
        let names: Vec<String> =
            (0..gpus).flat_map(|gpu| (0..7).map(move |one| format!("g{gpu}-{one}"))).collect();
        for (position, device) in names.iter().enumerate() {
            let (of_type, memory) = match position % 7 {
                0 => ("Full", 80),
                1 | 2 => ("Half", 40),
                _ => ("Quarter", 20),
            };
            shapes.push((device.as_str(), of_type, position / 7, memory));
        }
        if self.chance(10)
            && let Some(odd) = shapes.get_mut(2)
        {
            odd.3 = 50;
        }
        if gpus > 1 {
            self.marks(driver, name, SEVERAL_GPUS);
        }
        self.partitions(world, driver, name, &shapes, gpus).await?;
        for device in &names {
            if self.chance(15) {
                self.hold(world, driver, name, device, json!({})).await?;
            }
        }
        if self.chance(15) {
            world
                .rule(
                    &format!("{driver}-{name}"),
                    json!({"driver": driver, "pool": name, "device": "g0-1"}),
                    "NoExecute",
                )
                .await?;
            self.marks(driver, name, TAINTED_PARTITION);
            self.marks(driver, name, TAINTED_AND_ALLOCATED);
        }
        Ok(())
    }

    /// Device, type, GPU, memory in Gi.
    async fn partitions(
        &mut self,
        world: &World,
        driver: &str,
        name: &str,
        shapes: &[(&str, &str, usize, usize)],
        gpus: usize,
    ) -> Result<()> {
        let amount = |memory: usize| json!({"memory": {"value": format!("{memory}Gi")}});
        let sets: Vec<Value> =
            (0..gpus).map(|gpu| json!({"name": format!("gpu-{gpu}"), "counters": amount(80)})).collect();
        world
            .slice(
                &format!("{driver}-{name}-counters"),
                json!({"driver": driver, "pool": pool(name, 1, 2), "sharedCounters": sets}),
            )
            .await?;
        let devices: Vec<Value> = shapes
            .iter()
            .map(|(device, of_type, gpu, memory)| {
                json!({
                    "name": device,
                    "attributes": {"profile": {"string": of_type}},
                    "consumesCounters": [{"counterSet": format!("gpu-{gpu}"), "counters": amount(*memory)}],
                })
            })
            .collect();
        let mut spec = json!({"driver": driver, "pool": pool(name, 1, 2), "devices": devices});
        // An empty type can be published in every way; without the attribute it would matter to nobody.
        if self.chance(70) || shapes.len() == 1 {
            merge(&mut spec, json!({"partitionTypeAttribute": format!("{driver}/profile")}));
        }
        world.slice(&format!("{driver}-{name}-devices"), spec).await
    }

    async fn shareable(&mut self, world: &World, driver: &str, name: &str) -> Result<()> {
        self.marks(driver, name, DEFAULT_ATTRIBUTE);
        let capacity = json!({"memory": {"value": "40Gi"}, "cores": {"value": "8"}});
        let devices: Vec<Value> = (0..4)
            .map(|device| {
                json!({"name": format!("card-{device}"), "allowMultipleAllocations": device < 3, "capacity": capacity})
            })
            .collect();
        world
            .slice(
                &format!("{driver}-{name}"),
                json!({"driver": driver, "pool": pool(name, 1, 1), "devices": devices}),
            )
            .await?;
        for card in 0..3 {
            let shares = self.number(4);
            let full = self.chance(15);
            for share in 0..shares {
                let (memory, cores) = if full && share == 0 { (40, 8) } else { (1 + self.number(10), 1) };
                let id = format!("00000000-0000-4000-8000-{:012}", self.claims);
                let consumed = json!({"memory": format!("{memory}Gi"), "cores": cores.to_string()});
                let more = json!({"shareID": id, "consumedCapacity": consumed});
                self.hold(world, driver, name, &format!("card-{card}"), more).await?;
            }
            if full && shares > 0 {
                self.marks(driver, name, USED_UP);
            }
        }
        if self.chance(10) {
            let id = format!("00000000-0000-4000-8000-{:012}", self.claims);
            let more = json!({"shareID": id, "consumedCapacity": {"memory": "3Gi"}});
            self.hold(world, driver, name, "card-gone", more).await?;
            self.marks(driver, name, NOT_PUBLISHED);
        }
        Ok(())
    }

    /// What is asked about a driver.
    pub(crate) fn request(&mut self, driver: &str) -> Value {
        let mut spec = json!({"driver": driver});
        if self.chance(25) {
            let name = format!("pool-{}", self.number(4));
            merge(&mut spec, json!({"poolName": name}));
        }
        if self.chance(25) {
            merge(&mut spec, json!({"limit": 1 + self.number(3)}));
        }
        if self.chance(30) {
            let attribute = if self.chance(80) { "profile" } else { "absent" };
            merge(&mut spec, json!({"defaultPartitionTypeAttribute": format!("{driver}/{attribute}")}));
        }
        spec
    }
}
