//! What a pool has, what of it is in use, and what is left.
//!
//! [`status`] is what `ResourcePoolStatusRequest` answers with, [`report`] what people and metrics need besides.

mod partitions;
pub mod report;
mod shareable;
pub mod status;

use std::sync::Arc;

use serde::{Serialize, Serializer};

use self::report::PoolReport;
use self::status::PoolStatus;
use crate::ids::PoolId;
use crate::inventory::Inventory;
use crate::inventory::pool::Pool;

/// All there is to tell about a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PoolSummary {
    /// As the API tells it; none while no slice publishes the pool.
    #[serde(serialize_with = "plain")]
    pub status: Option<Arc<PoolStatus>>,
    /// What the API has no place for.
    pub report: PoolReport,
}

#[allow(clippy::ref_option, reason = "serde passes a reference to the field")]
fn plain<S: Serializer>(status: &Option<Arc<PoolStatus>>, serializer: S) -> Result<S::Ok, S::Error> {
    status.as_deref().serialize(serializer)
}

impl Inventory {
    /// All there is to tell about a pool; `None` if it is neither published nor in use. Computed once after each change
    /// of the pool.
    pub fn pool_summary(&self, id: &PoolId) -> Option<Arc<PoolSummary>> {
        let pool = self.pool(id)?;
        let summary = pool.summary(|| PoolSummary {
            status: pool.is_published().then(|| Arc::clone(self.status_of(pool))),
            report: report::report(self, pool, None),
        });
        Some(Arc::clone(summary))
    }

    /// Computed once after each change of the pool, and apart from the report: an answer does not need that.
    fn status_of<'a>(&self, pool: &'a Pool) -> &'a Arc<PoolStatus> {
        pool.status(|| status::status(self, pool, None))
    }

    /// How many pools of `driver` are published (only `pool` if that is given), and the status of the first `limit`, by
    /// name. Only these are looked at.
    ///
    /// `default_attribute` is `spec.defaultPartitionTypeAttribute` of the request: devices are grouped by it if their
    /// slice does not name an attribute.
    pub fn pool_statuses(
        &self,
        driver: &str,
        pool: Option<&str>,
        default_attribute: Option<&str>,
        limit: usize,
    ) -> (usize, Vec<Arc<PoolStatus>>) {
        let status = |pool: &Pool| match default_attribute.filter(|_| status::uses_default(pool)) {
            None => Arc::clone(self.status_of(pool)),
            default => Arc::new(status::status(self, pool, default)),
        };
        let first = PoolId::new(driver, pool.unwrap_or_default());
        if pool.is_some() {
            let found = self.pool(&first).filter(|pool| pool.is_published());
            let listed = found.into_iter().take(limit).map(|pool| status(pool)).collect();
            return (usize::from(found.is_some()), listed);
        }
        let listed = self
            .pools_from(&first)
            .take_while(|(id, _)| *id.driver == *driver)
            .filter(|(_, pool)| pool.is_published())
            .take(limit)
            .map(|(_, pool)| status(pool))
            .collect();
        (self.published_pools(driver), listed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::features::Features;
    use crate::objects::ResourceSlice;

    #[test]
    fn an_answer_looks_at_the_pools_that_it_lists_and_computes_no_report() {
        let mut inventory = Inventory::new(Features::ALL);
        for name in ["a", "b", "c"] {
            let mut slice = ResourceSlice::default();
            slice.metadata.name = name.to_owned();
            slice.spec.driver = "d".to_owned();
            slice.spec.pool.name = name.to_owned();
            slice.spec.pool.resource_slice_count = 1;
            inventory.apply_slice(&slice);
        }
        let computed = |inventory: &Inventory| {
            let pool = |name: &str| Arc::clone(inventory.pool(&PoolId::new("d", name)).unwrap());
            ["a", "b", "c"].map(|name| pool(name).has_summary())
        };
        assert_eq!(inventory.pool_statuses("d", None, None, 1).0, 3);
        assert_eq!(computed(&inventory), [true, false, false]);
        assert_eq!(inventory.pool_statuses("d", Some("c"), None, 10).0, 1);
        assert_eq!(computed(&inventory), [true, false, true]);
        let of_c = inventory.pool(&PoolId::new("d", "c")).unwrap();
        let mut reported = false;
        of_c.summary(|| {
            reported = true;
            PoolSummary { status: None, report: PoolReport::default() }
        });
        assert!(reported, "nobody has asked for it before");
    }
}
