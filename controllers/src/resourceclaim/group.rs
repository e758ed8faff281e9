//! Plan for a PodGroup: one claim for each entry that names a template (spec §3).

use std::{collections::BTreeMap, sync::Arc};

use dra_api::{ObjectKey, PodGroup};

use super::{
    ResourceClaims,
    entries::{Check, Owner, check, find_generated, generate, record},
};
use crate::{
    plan::{Pass, Plan, Subject, SubjectKind},
    view::View,
};

pub(super) fn group_owner(group: &PodGroup) -> Owner<'_> {
    Owner {
        subject: Subject::of(SubjectKind::PodGroup, &group.meta),
        statuses: &group.claim_statuses,
        pod: None,
    }
}

impl ResourceClaims {
    pub(super) fn plan_group(&self, view: &View, key: &ObjectKey, pass: &Pass) -> Plan {
        let mut plan = Plan::default();
        let Some(group) = view.pod_groups.get(key) else { return plan };
        if group.meta.deleting || !self.workload_claims(view) {
            return plan;
        }
        let owner = group_owner(group);
        let mut found = BTreeMap::new();
        for entry in &group.claims {
            if entry.claim_name.is_some() {
                continue;
            }
            let replaces = match check(view, &owner, entry, false, pass, &mut plan) {
                Check::Settled | Check::Unknown => continue,
                Check::Uses(claim) => {
                    found.insert(Arc::clone(&entry.name), claim);
                    continue;
                }
                Check::Needed { replaces } => replaces,
            };
            match find_generated(view, &owner.subject, &entry.name) {
                Some(claim) => {
                    found.insert(Arc::clone(&entry.name), Arc::clone(&claim.meta.key.name));
                }
                None => generate(view, &self.gates, &owner, entry, replaces, pass, &mut plan),
            }
        }
        record(&owner, &found, &mut plan);
        plan
    }
}
