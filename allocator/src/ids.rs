//! Names of pools and devices.

use std::fmt;
use std::sync::Arc;

/// A pool: driver and pool name. Pools are searched in this order, bytewise.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PoolId {
    /// Driver.
    pub driver: Arc<str>,
    /// Pool; unique within the driver.
    pub pool: Arc<str>,
}

impl PoolId {
    /// The pool `pool` of `driver`.
    pub fn new(driver: &str, pool: &str) -> Self {
        Self { driver: driver.into(), pool: pool.into() }
    }
}

impl fmt::Display for PoolId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.driver, self.pool)
    }
}

/// A device: pool and device name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceId {
    /// Pool.
    pub pool: PoolId,
    /// Device; unique within the pool.
    pub device: Arc<str>,
}

impl DeviceId {
    /// The device `device` in the pool `pool` of `driver`.
    pub fn new(driver: &str, pool: &str, device: &str) -> Self {
        Self { pool: PoolId::new(driver, pool), device: device.into() }
    }
}

impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.pool, self.device)
    }
}
