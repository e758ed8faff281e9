//! For what, and under which rules, an expression is compiled.

use crate::cost::COST_LIMIT;
use crate::types::Type;

/// Which version of the rules holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Environment {
    /// For expressions in stored objects, as the scheduler evaluates them: everything is available, gates do not matter.
    #[default]
    Stored,
    /// For expressions in objects that are about to be written, as the API server admits them.
    New,
}

/// What the result is used for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Purpose {
    /// Whether a device is suitable: a truth value.
    #[default]
    Selector,
    /// An attribute for constraints: a scalar or a list of scalars.
    DerivedAttribute,
}

/// How an expression is compiled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompileOptions {
    /// Which version of the rules holds.
    pub environment: Environment,
    /// The gate `DRAConsumableCapacity`: `device.allowMultipleAllocations` in new expressions.
    pub consumable_capacity: bool,
    /// The gate `DRAListTypeAttributes`: lists, and `includes`, in new expressions.
    pub list_type_attributes: bool,
    /// What the result is used for.
    pub purpose: Purpose,
    /// The most that one evaluation may cost.
    pub cost_limit: u64,
}

impl Default for CompileOptions {
    /// A stored selector with Kubernetes' limit and the gates' defaults in 1.37.
    fn default() -> Self {
        Self {
            environment: Environment::Stored,
            consumable_capacity: true,
            list_type_attributes: false,
            purpose: Purpose::Selector,
            cost_limit: COST_LIMIT,
        }
    }
}

impl CompileOptions {
    pub(crate) fn has_multiple_allocations(&self) -> bool {
        self.environment == Environment::Stored || self.consumable_capacity
    }

    pub(crate) fn has_lists(&self) -> bool {
        self.environment == Environment::Stored || self.list_type_attributes
    }

    pub(crate) fn attribute_type(&self) -> Type {
        if self.has_lists() { Type::Dyn } else { Type::Any }
    }
}
