//! Which taints keep which requests away.

use crate::objects::{DeviceTaint, DeviceToleration};

/// Whether the effect of a taint keeps claims away that do not tolerate it; `None` and unknown effects do not.
pub(crate) fn has_effect(taint: &DeviceTaint) -> bool {
    matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute")
}

/// Whether a taint keeps a request with these tolerations away (`taintPreventsAllocation`).
pub(crate) fn prevents(taint: &DeviceTaint, tolerations: &[DeviceToleration]) -> bool {
    has_effect(taint) && !tolerations.iter().any(|toleration| tolerates(toleration, taint))
}

/// `ToleratesTaint` (`resourceclaim/devicetoleration.go`).
fn tolerates(toleration: &DeviceToleration, taint: &DeviceTaint) -> bool {
    (toleration.effect.is_empty() || toleration.effect == taint.effect)
        && (toleration.key.is_empty() || toleration.key == taint.key)
        && match toleration.operator.as_str() {
            "" | "Equal" => toleration.value == taint.value,
            "Exists" => true,
            _ => false,
        }
}
