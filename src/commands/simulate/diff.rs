//! What is different between two runs.

use std::collections::{BTreeMap, VecDeque};

use super::report::{ActionChange, Deed, EndChange, Happening, Subject};

/// Actions that only one run has, and those that happen at another time, for another reason or with another effect.
/// Of several of the same kind on the same object, the first corresponds to the first.
pub(super) fn actions(without: &[Happening], with: &[Happening]) -> Vec<ActionChange> {
    let mut others: BTreeMap<(Deed, &Subject), VecDeque<&Happening>> = BTreeMap::new();
    for happening in without {
        others.entry((happening.action, &happening.object)).or_default().push_back(happening);
    }
    let mut changes = Vec::new();
    for happening in with {
        let other = others.get_mut(&(happening.action, &happening.object)).and_then(VecDeque::pop_front);
        match other {
            None => {
                changes.push(ActionChange { change: "added", without: None, with: Some(happening.clone()) });
            }
            Some(other) if is_same(other, happening) => {}
            Some(other) => changes.push(ActionChange {
                change: "changed",
                without: Some(other.clone()),
                with: Some(happening.clone()),
            }),
        }
    }
    for other in others.into_values().flatten() {
        changes.push(ActionChange { change: "removed", without: Some(other.clone()), with: None });
    }
    changes.sort_by_key(|change| change.with.as_ref().or(change.without.as_ref()).map(|h| h.after_seconds));
    changes
}

fn is_same(one: &Happening, other: &Happening) -> bool {
    one.after_seconds == other.after_seconds && one.reason == other.reason && one.frees == other.frees
}

/// Objects that end differently.
pub(super) fn end(without: &BTreeMap<Subject, String>, with: &BTreeMap<Subject, String>) -> Vec<EndChange> {
    let mut objects: Vec<&Subject> = without.keys().chain(with.keys()).collect();
    objects.sort();
    objects.dedup();
    objects
        .into_iter()
        .filter(|object| without.get(*object) != with.get(*object))
        .map(|object| EndChange {
            object: object.clone(),
            without: without.get(object).cloned(),
            with: with.get(object).cloned(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    fn happening(action: Deed, name: &str, after_seconds: i64) -> Happening {
        let object = Subject { kind: "Pod".to_owned(), namespace: "ns".to_owned(), name: name.to_owned() };
        Happening {
            at: Timestamp::UNIX_EPOCH,
            after_seconds,
            by: "test",
            action,
            object,
            reason: String::new(),
            frees: Vec::new(),
        }
    }

    #[test]
    fn added_removed_and_moved_actions_are_told_in_the_order_of_time() {
        let without = [
            happening(Deed::EvictPod, "a", 5),
            happening(Deed::EvictPod, "b", 9),
            happening(Deed::Tell, "a", 1),
        ];
        let with = [
            happening(Deed::EvictPod, "a", 2),
            happening(Deed::Tell, "a", 1),
            happening(Deed::EvictPod, "c", 3),
        ];
        let changes = actions(&without, &with);
        let short: Vec<(&str, Option<i64>, Option<i64>)> = changes
            .iter()
            .map(|c| {
                let after = |h: &Option<Happening>| h.as_ref().map(|h| h.after_seconds);
                (c.change, after(&c.without), after(&c.with))
            })
            .collect();
        assert_eq!(
            short,
            [("changed", Some(5), Some(2)), ("added", None, Some(3)), ("removed", Some(9), None)]
        );
        assert!(actions(&without, &without).is_empty());
    }
}
