//! Which devices the rules select that select by annotation. Like evictions, this is not shown by the API server: it is
//! written by carrying out [`crate::plan::Action::Expand`].

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use dra_allocator::DeviceId;
use dra_api::{DeviceTaintRule, Uid};

/// Why it is not known which devices a rule selects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The DeviceClass does not exist.
    ClassMissing(Arc<str>),
    /// The expression, or a selector of the class, is not valid.
    Invalid(Arc<str>),
    /// The selectors cost too much to evaluate.
    TooCostly(Arc<str>),
}

impl Refusal {
    /// For people.
    pub fn text(&self) -> &Arc<str> {
        match self {
            Self::ClassMissing(text) | Self::Invalid(text) | Self::TooCostly(text) => text,
        }
    }
}

/// The devices that a rule selects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selected {
    /// The devices, by the name of the rule for each.
    pub children: BTreeMap<Arc<str>, DeviceId>,
    /// How many devices could not be judged.
    pub failed: usize,
    /// Why the first of them could not.
    pub first_failure: Option<Arc<str>>,
}

/// What a rule is expanded into.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expansion {
    /// Name of the rule.
    pub rule: Arc<str>,
    /// The DeviceClass that it named.
    pub class: Option<Arc<str>>,
    /// The expression that it had.
    pub expression: Option<Arc<str>>,
    /// What came of it.
    pub result: Result<Selected, Refusal>,
}

impl Expansion {
    /// True while the rule asks for what was evaluated.
    pub fn is_of(&self, rule: &DeviceTaintRule) -> bool {
        rule.selects_by_annotation() && self.class == rule.select_class && self.expression == rule.select_cel
    }

    fn children(&self) -> Option<&BTreeMap<Arc<str>, DeviceId>> {
        self.result.as_ref().ok().map(|selected| &selected.children)
    }
}

/// What changed in [`Expansions`].
#[derive(Debug)]
pub struct ExpansionChange {
    /// Name of the rule.
    pub rule: Arc<str>,
    /// Its uid.
    pub uid: Uid,
    /// Names of rules that are to exist since, or not any more.
    pub children: BTreeSet<Arc<str>>,
    /// How many there were to be before.
    pub before: usize,
    /// Nothing was known before: those that exist are to be looked at, too.
    pub all: bool,
}

/// What rules are expanded into.
#[derive(Debug, Default)]
pub struct Expansions {
    rules: BTreeMap<Uid, Expansion>,
}

impl Expansions {
    /// What the rule with this uid is expanded into.
    pub fn get(&self, rule: &Uid) -> Option<&Expansion> {
        self.rules.get(rule)
    }

    /// Names of the rules that are to have a child of this name.
    pub fn expecting<'a>(&'a self, child: &'a str) -> impl Iterator<Item = &'a Arc<str>> {
        self.rules
            .values()
            .filter(move |one| one.children().is_some_and(|children| children.contains_key(child)))
            .map(|one| &one.rule)
    }

    /// Remembers what the rule is expanded into, or that it is not.
    pub(super) fn set(
        &mut self,
        rule: &Arc<str>,
        uid: &Uid,
        expansion: Option<Expansion>,
    ) -> ExpansionChange {
        let old = self.rules.remove(uid);
        let known = old.as_ref().and_then(Expansion::children);
        let after = expansion.as_ref().and_then(Expansion::children);
        let mut children = BTreeSet::new();
        // While it is not known what the rule selects, nothing changes.
        if let Some(after) = after {
            let before = known.into_iter().flatten();
            children.extend(
                before.filter(|(name, _)| !after.contains_key(*name)).map(|(name, _)| Arc::clone(name)),
            );
            let is_new = |name: &Arc<str>| known.is_none_or(|known| !known.contains_key(name));
            children.extend(after.keys().filter(|name| is_new(name)).cloned());
        }
        let all = expansion.is_none() || (after.is_some() && known.is_none());
        let before = known.map_or(0, BTreeMap::len);
        if let Some(expansion) = expansion {
            self.rules.insert(Arc::clone(uid), expansion);
        }
        ExpansionChange { rule: Arc::clone(rule), uid: Arc::clone(uid), children, before, all }
    }

    /// The rule is gone.
    pub(super) fn forget(&mut self, rule: &Uid) {
        self.rules.remove(rule);
    }
}
