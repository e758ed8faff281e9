//! What a pool has, what of it is in use, and what is left.
//!
//! [`status`] is what `ResourcePoolStatusRequest` answers with, [`report`] what people and metrics need besides.

mod partitions;
pub mod report;
mod shareable;
pub mod status;

use std::sync::Arc;

use serde::Serialize;

use self::report::PoolReport;
use self::status::PoolStatus;
use crate::ids::PoolId;
use crate::inventory::Inventory;
use crate::inventory::pool::Pool;

/// All there is to tell about a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PoolSummary {
    /// As the API tells it; none while no slice publishes the pool.
    pub status: Option<PoolStatus>,
    /// What the API has no place for.
    pub report: PoolReport,
}

impl Inventory {
    /// All there is to tell about a pool; `None` if it is neither published nor in use. Computed once after each change
    /// of the pool.
    pub fn pool_summary(&self, id: &PoolId) -> Option<Arc<PoolSummary>> {
        self.pool(id).map(|pool| self.summary_of(pool).clone())
    }

    fn summary_of<'a>(&self, pool: &'a Pool) -> &'a Arc<PoolSummary> {
        pool.summary(|| PoolSummary {
            status: (!pool.slots().is_empty()).then(|| status::status(self, pool, None)),
            report: report::report(self, pool, None),
        })
    }

    /// How many pools of `driver` are published (only `pool` if that is given), and the status of the first `limit`, by
    /// name.
    ///
    /// `default_attribute` is `spec.defaultPartitionTypeAttribute` of the request: devices are grouped by it if their
    /// slice does not name an attribute.
    pub fn pool_statuses(
        &self,
        driver: &str,
        pool: Option<&str>,
        default_attribute: Option<&str>,
        limit: usize,
    ) -> (usize, Vec<PoolStatus>) {
        let first = PoolId::new(driver, pool.unwrap_or_default());
        let mut found = 0;
        let mut listed = Vec::new();
        for (_, pool) in self
            .pools_from(&first)
            .take_while(|(id, _)| *id.driver == *driver && pool.is_none_or(|pool| *id.pool == *pool))
            .filter(|(_, pool)| !pool.slots().is_empty())
        {
            found += 1;
            if listed.len() >= limit {
                continue;
            }
            let default = default_attribute.filter(|_| status::uses_default(pool));
            listed.push(match (&self.summary_of(pool).status, default) {
                (Some(status), None) => status.clone(),
                _ => status::status(self, pool, default),
            });
        }
        (found, listed)
    }
}
