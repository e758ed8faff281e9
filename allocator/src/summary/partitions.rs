//! How many more partitions of each type fit (spec pool-status §5).

use std::{collections::BTreeMap, fmt::Write as _};

use dra_api::quantity::Quantity;

use super::status::{
    MOST_ITEMS, Member, PartitionTypeStatus, count, grouping, own_attribute, partition_type,
};
use crate::amount::{self, Nanos};
use crate::inventory::pool::{Groups, Pool};
use crate::inventory::slice::{Consumption, Slice};

/// What a device takes of its pool, with names resolved.
#[derive(Default)]
struct Draw {
    /// Counter and amount; no counter if nobody declares it.
    counters: Vec<(Option<usize>, Nanos)>,
    /// Counter set and compatibility groups.
    sets: Vec<(usize, Vec<u32>)>,
}

/// What is left of a pool's counters, and which groups are in use.
#[derive(Clone)]
struct Left {
    counters: Vec<Nanos>,
    groups: Vec<Groups>,
}

/// The names in a pool's slices, as numbers.
#[derive(Default)]
struct Names<'a> {
    counters: BTreeMap<(&'a str, &'a str), usize>,
    sets: BTreeMap<&'a str, usize>,
    groups: BTreeMap<&'a str, u32>,
}

/// An amount beyond all bounds is more than there is of anything.
fn nanos(quantity: &Quantity) -> Nanos {
    amount::nanos(quantity).unwrap_or(amount::LIMIT)
}

impl<'a> Names<'a> {
    /// Numbers what slices declare. Of a set that is declared twice, the last slice counts for each counter.
    fn of(slices: &[&'a Slice]) -> (Self, Left) {
        let mut names = Self::default();
        let mut left = Vec::new();
        for set in slices.iter().flat_map(|slice| &slice.counter_sets) {
            let next = names.sets.len();
            names.sets.entry(&set.name).or_insert(next);
            for (counter, _, declared) in &set.counters {
                let position = *names.counters.entry((&set.name, counter)).or_insert(left.len());
                match left.get_mut(position) {
                    Some(known) => *known = nanos(declared),
                    None => left.push(nanos(declared)),
                }
            }
        }
        let groups = vec![Groups::NoMember; names.sets.len()];
        (names, Left { counters: left, groups })
    }

    fn draw(&mut self, consumptions: &'a [Consumption]) -> Draw {
        let mut draw = Draw::default();
        for consumption in consumptions {
            for (counter, amount) in &consumption.counters {
                let position = self.counters.get(&(&*consumption.set, &**counter)).copied();
                draw.counters.push((position, nanos(amount)));
            }
            if let Some(set) = self.sets.get(&*consumption.set).copied() {
                let mut groups: Vec<u32> = consumption
                    .groups
                    .iter()
                    .map(|group| {
                        let next = u32::try_from(self.groups.len()).unwrap_or(u32::MAX);
                        *self.groups.entry(group).or_insert(next)
                    })
                    .collect();
                groups.sort_unstable();
                groups.dedup();
                draw.sets.push((set, groups));
            }
        }
        draw
    }
}

impl Left {
    /// A claim has the device, whether it fits or not.
    fn charge(&mut self, draw: &Draw) {
        for (counter, amount) in &draw.counters {
            if let Some(left) = counter.and_then(|counter| self.counters.get_mut(counter)) {
                *left = left.saturating_sub(*amount);
            }
        }
        for (set, groups) in &draw.sets {
            if let Some(running) = self.groups.get_mut(*set) {
                *running = running.with(groups);
            }
        }
    }

    /// Takes the device if its counters suffice and its groups go with those in use.
    fn take(&mut self, draw: &Draw) -> bool {
        let fits = draw.counters.iter().all(|(counter, amount)| {
            counter.and_then(|counter| self.counters.get(counter)).is_some_and(|left| left >= amount)
        });
        let admitted = draw
            .sets
            .iter()
            .all(|(set, groups)| self.groups.get(*set).is_none_or(|running| running.admits(groups)));
        if fits && admitted {
            self.charge(draw);
        }
        fits && admitted
    }
}

/// What a device costs, by value: names of counter sets do not count, because each card of a node has a set of its
/// own, and neither do numbers in names of counters, because each placement on a card has a part of its own
/// (`memory-slice-3`).
fn cost(consumptions: &[Consumption]) -> Vec<(String, Nanos)> {
    let mut cost: Vec<_> = consumptions
        .iter()
        .flat_map(|consumption| &consumption.counters)
        .map(|(counter, amount)| (without_numbers(counter), nanos(amount)))
        .collect();
    cost.sort_unstable();
    cost
}

fn without_numbers(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    for character in name.chars() {
        if !character.is_ascii_digit() {
            text.push(character);
        } else if !text.ends_with('#') {
            text.push('#');
        }
    }
    text
}

/// Letters, marks, numbers, punctuation, symbols and the plain space (`unicode.IsPrint` of Go).
fn is_printable(character: char) -> bool {
    // At the start of a text, marks would be escaped too.
    let escaped: String = ['-', character].iter().collect::<String>().escape_debug().skip(1).collect();
    !escaped.starts_with("\\u")
}

/// A text as Go's `%q` writes it.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for character in text.chars() {
        match character {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\u{7}' => quoted.push_str("\\a"),
            '\u{8}' => quoted.push_str("\\b"),
            '\u{c}' => quoted.push_str("\\f"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\u{b}' => quoted.push_str("\\v"),
            // Writing to a String cannot fail.
            ascii if ascii.is_ascii_control() => drop(write!(quoted, "\\x{:02x}", u32::from(ascii))),
            plain if is_printable(plain) => quoted.push(plain),
            short if u32::from(short) < 0x1_0000 => drop(write!(quoted, "\\u{:04x}", u32::from(short))),
            long => drop(write!(quoted, "\\U{:08x}", u32::from(long))),
        }
    }
    quoted.push('"');
    quoted
}

struct Type {
    total: usize,
    free: Vec<Draw>,
    cost: Vec<(String, Nanos)>,
}

/// `devices` are those of `slices`, in the same order; `unpublished` are held and in none of them.
pub(super) fn partitions(
    pool: &Pool,
    slices: &[&Slice],
    devices: &[Member<'_>],
    unpublished: &[&str],
    default_attribute: Option<&str>,
) -> Result<Vec<PartitionTypeStatus>, String> {
    let id = &pool.id;
    let declares = slices.iter().any(|slice| slice.len() > 0 && !own_attribute(slice).is_empty());
    if slices.iter().all(|slice| slice.counter_sets.is_empty()) {
        // What a request names is no promise of the pool.
        return if declares {
            Err(format!(
                "PartitionTypeMissing: pool {id} declares partitionTypeAttribute but publishes no sharedCounters"
            ))
        } else {
            Ok(Vec::new())
        };
    }
    let attributes = grouping(slices, default_attribute);
    if attributes.iter().all(|attribute| attribute.is_empty()) {
        return Ok(Vec::new());
    }
    let (mut names, mut left) = Names::of(slices);
    let mut types: BTreeMap<(&str, &str), Type> = BTreeMap::new();
    for (member, attribute) in devices.iter().zip(attributes) {
        let device = member.device;
        let consumptions = device.consumptions();
        if consumptions.is_empty() {
            continue;
        }
        let draw = names.draw(consumptions);
        if member.allocated {
            left.charge(&draw);
        }
        if attribute.is_empty() {
            continue;
        }
        let name = device.name();
        let of_type = partition_type(device, &id.driver, attribute).ok_or_else(|| {
            format!(
                "PartitionTypeMissing: device {} in pool {id} does not carry partition type attribute {}",
                quoted(name),
                quoted(attribute)
            )
        })?;
        if of_type.is_empty() {
            return Err(format!(
                "PartitionTypeMissing: device {} in pool {id} has an empty partition type attribute {}",
                quoted(name),
                quoted(attribute)
            ));
        }
        let known = types.entry((attribute, of_type)).or_insert_with(|| Type {
            total: 0,
            free: Vec::new(),
            cost: cost(consumptions),
        });
        if known.total > 0 && known.cost != cost(consumptions) {
            return Err(format!(
                "PartitionCostMismatch: devices of partition type {} in pool {id} consume different counters",
                quoted(of_type)
            ));
        }
        known.total += 1;
        if !member.allocated && !member.tainted {
            known.free.push(draw);
        }
    }
    let generation = slices.first().map_or(0, |slice| slice.generation);
    for name in unpublished {
        left.charge(&names.draw(last_published(pool, generation, name)));
    }
    let number = types.len();
    if number > MOST_ITEMS {
        return Err(format!(
            "PartitionSummaryOverCap: pool {id} has {number} partition types, exceeding the maximum of {MOST_ITEMS}"
        ));
    }
    let fitting = |free: &[Draw]| {
        let mut left = left.clone();
        free.iter().filter(|draw| left.take(draw)).count()
    };
    Ok(types
        .into_iter()
        .map(|((attribute, of_type), found)| PartitionTypeStatus {
            attribute: attribute.to_owned(),
            of_type: of_type.to_owned(),
            total: count(found.total),
            allocatable: count(fitting(&found.free)),
        })
        .collect())
}

/// What a device that the newest generation does not publish consumes: by the newest slice that still has it, or as
/// it was when such a slice went.
fn last_published<'a>(pool: &'a Pool, newest: i64, name: &str) -> &'a [Consumption] {
    let older = pool.slots().iter().map(|slot| &slot.slice).filter(|slice| slice.generation < newest);
    older
        .filter_map(|slice| {
            let device = slice.find(name).next().and_then(|at| slice.device(at))?;
            Some((slice.generation, device.consumptions()))
        })
        .chain(pool.withdrawn(name))
        .max_by_key(|(generation, _)| *generation)
        .map_or(&[], |(_, consumptions)| consumptions)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_quoted_as_in_go() {
        assert_eq!(quoted("1g.5gb"), r#""1g.5gb""#);
        assert_eq!(quoted("a\"b\\c\n\u{1}\u{7f}é\u{85}"), r#""a\"b\\c\n\x01\x7fé\u0085""#);
        assert_eq!(
            quoted("a\u{a0}b\u{200b}\u{3000}\u{e000}\u{f0000}"),
            r#""a\u00a0b\u200b\u3000\ue000\U000f0000""#
        );
        assert_eq!(quoted("'e\u{301}日本😀"), "\"'e\u{301}日本😀\"");
    }
}
