//! The numbers of all pools as they are now, for metrics: one row for each pool, or fewer where that would be too many.

use std::collections::BTreeMap;

use dra_allocator::{
    Inventory, PoolId,
    summary::{PoolSummary, status::PoolStatus},
};

/// What one row stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// One pool.
    Pool,
    /// All pools of a driver on a node; those on no node of their own together.
    Node,
    /// All pools of a driver.
    Driver,
    /// The same without partition types, capacities and counters, whose names drivers choose.
    DriverOnly,
    /// All pools, likewise.
    Cluster,
}

impl Level {
    /// All levels, the finest first.
    pub const ALL: [Self; 5] = [Self::Pool, Self::Node, Self::Driver, Self::DriverOnly, Self::Cluster];

    /// As the metric says it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pool => "pool",
            Self::Node => "node",
            Self::Driver => "driver",
            Self::DriverOnly => "driver_only",
            Self::Cluster => "cluster",
        }
    }

    fn has_details(self) -> bool {
        !matches!(self, Self::DriverOnly | Self::Cluster)
    }
}

/// Labels of a row; those that its level does not tell are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Labels {
    /// Driver.
    pub driver: String,
    /// Node, if the pool has one.
    pub node: String,
    /// Pool.
    pub pool: String,
}

/// Devices of one partition type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Partition {
    /// All of them.
    pub total: i64,
    /// How many more can be allocated if only these are.
    pub allocatable: i64,
}

/// A capacity of devices that can be shared.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Capacity {
    /// Sum over the devices.
    pub total: f64,
    /// What is left of it.
    pub free: f64,
    /// The most that is left on one device.
    pub largest_free: f64,
    /// What is left where it is less than a share can be.
    pub stranded: f64,
}

/// The numbers of a row; sums over its pools.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Numbers {
    /// Pools.
    pub pools: i64,
    /// Pools whose slices are not all there.
    pub incomplete: i64,
    /// Pools with an error of another kind.
    pub invalid: i64,
    /// `totalDevices`.
    pub total: i64,
    /// `allocatedDevices`.
    pub allocated: i64,
    /// `availableDevices`.
    pub available: i64,
    /// `unavailableDevices`.
    pub unavailable: i64,
    /// Devices that claims have and no slice publishes.
    pub unpublished: i64,
    /// Devices that cannot be shared and that several claims have.
    pub conflicts: i64,
    /// By attribute and type.
    pub partitions: BTreeMap<(String, String), Partition>,
    /// By capacity.
    pub capacities: BTreeMap<String, Capacity>,
    /// What is left of counters and too little for any partition, by counter.
    pub stranded_counters: BTreeMap<String, f64>,
}

impl Numbers {
    fn add(&mut self, summary: &PoolSummary, details: bool) {
        let report = &summary.report;
        let size = |length: usize| i64::try_from(length).unwrap_or(i64::MAX);
        self.unpublished += size(report.unpublished.len());
        self.conflicts += size(report.conflicts.len());
        if let Some(status) = &summary.status {
            self.add_status(status, details);
        }
        if !details {
            return;
        }
        for shareable in &report.shareable {
            let sums = self.capacities.entry(shareable.capacity.clone()).or_default();
            sums.total += shareable.total.as_approximate_f64();
            sums.free += shareable.free.as_approximate_f64();
            sums.largest_free = sums.largest_free.max(shareable.largest_free.as_approximate_f64());
            sums.stranded += shareable.stranded.as_approximate_f64();
        }
        for counter in &report.counters {
            *self.stranded_counters.entry(counter.counter.clone()).or_default() +=
                counter.stranded.as_approximate_f64();
        }
    }

    fn add_status(&mut self, status: &PoolStatus, details: bool) {
        let number = |value: Option<i32>| i64::from(value.unwrap_or(0));
        self.pools += 1;
        if status.is_incomplete() {
            self.incomplete += 1;
        } else if status.validation_error.is_some() {
            self.invalid += 1;
        }
        self.total += number(status.total_devices);
        self.allocated += number(status.allocated_devices);
        self.available += number(status.available_devices);
        self.unavailable += number(status.unavailable_devices);
        for one in status.partition_summary.iter().filter(|_| details) {
            let sums = self.partitions.entry((one.attribute.clone(), one.of_type.clone())).or_default();
            sums.total += i64::from(one.total);
            sums.allocatable += i64::from(one.allocatable);
        }
    }

    /// How many series the row makes.
    fn series(&self) -> usize {
        LEAST_SERIES + 2 * self.partitions.len() + 4 * self.capacities.len() + self.stranded_counters.len()
    }
}

/// Series of a row that has no partition types, capacities and counters.
const LEAST_SERIES: usize = 9;

/// All rows, in order.
#[derive(Clone, Debug, PartialEq)]
pub struct Live {
    /// What a row stands for.
    pub level: Level,
    /// The rows.
    pub rows: BTreeMap<Labels, Numbers>,
}

/// The numbers of all pools in at most `most_series` series (but always in those of one row): by pool, else by driver and
/// node, else by driver. Should there be too many drivers, or names that they choose, these are summed up or left out.
pub fn live(inventory: &Inventory, most_series: usize) -> Live {
    let summaries: Vec<_> =
        inventory.pools().filter_map(|id| Some((id, inventory.pool_summary(id)?))).collect();
    for level in Level::ALL {
        if level == Level::Pool && summaries.len().saturating_mul(LEAST_SERIES) > most_series {
            continue;
        }
        let mut rows: BTreeMap<Labels, Numbers> = BTreeMap::new();
        for (id, summary) in &summaries {
            let row = rows.entry(labels(id, summary, level)).or_default();
            row.add(summary, level.has_details());
        }
        let series: usize = rows.values().map(Numbers::series).sum();
        if series <= most_series || level == Level::Cluster {
            return Live { level, rows };
        }
    }
    Live { level: Level::Cluster, rows: BTreeMap::new() }
}

fn labels(id: &PoolId, summary: &PoolSummary, level: Level) -> Labels {
    let mut labels = Labels::default();
    if level != Level::Cluster {
        labels.driver = id.driver.to_string();
    }
    if matches!(level, Level::Pool | Level::Node) {
        let node = summary.status.as_ref().and_then(|status| status.node_name.clone());
        labels.node = node.unwrap_or_default();
    }
    if level == Level::Pool {
        labels.pool = id.pool.to_string();
    }
    labels
}
