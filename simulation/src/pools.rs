//! What the answer to a `ResourcePoolStatusRequest` should be: once more, from the specification and docs/DEVIATIONS.md and
//! straight from the objects, knowing nothing of the allocator's inventory.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    history::{History, Slices},
    taints::{effect, generation, held, selects},
};
use dra_inhabitants::cluster::{at, items, set, text, uid};

const MOST_BYTES: usize = 256;

/// True when slices of the pool were missing.
pub(crate) fn is_incomplete(pool: &Value) -> bool {
    text(pool, &["validationError"]).starts_with("PoolIncomplete:")
}

/// Objects that an answer depends on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts<'a> {
    pub(crate) slices: &'a Slices,
    pub(crate) claims: &'a [Arc<Value>],
    pub(crate) rules: &'a [Arc<Value>],
}

/// A published device.
struct Device<'a> {
    slice: &'a Value,
    published: &'a Value,
    name: &'a str,
    /// Results that hold it, those for administration aside.
    uses: Vec<&'a Value>,
    tainted: bool,
}

/// Claims that hold a device, and the results by which they do.
type Uses<'a> = BTreeMap<&'a str, Vec<(&'a str, &'a Value)>>;

/// What is wrong with the answer to a request, if it should tell the state of this moment.
pub(crate) fn wrong(facts: Facts<'_>, request: &Value) -> Option<String> {
    let spec = at(request, &["spec"]);
    let (driver, wanted) = (text(spec, &["driver"]), text(spec, &["poolName"]));
    let names = pool_names(facts.slices, driver, wanted);
    let told = at(request, &["status", "poolCount"]);
    if *told != json!(names.len()) {
        return Some(format!("poolCount is {told}, but there are {}", names.len()));
    }
    let limit = at(spec, &["limit"]).as_u64().and_then(|limit| usize::try_from(limit).ok()).unwrap_or(100);
    let listed = items(request, &["status", "pools"]);
    if listed.len() != names.len().min(limit) {
        return Some(format!("{} pools listed of {} with limit {limit}", listed.len(), names.len()));
    }
    let attribute = text(spec, &["defaultPartitionTypeAttribute"]);
    listed.iter().zip(names).find_map(|(told, pool)| {
        // What withdrawn devices consume is known only to those who saw them.
        let [most, least] = [false, true].map(|charged| status(facts, driver, pool, attribute, charged));
        let right = with_allocatable_between(told, &most, &least);
        (*told != right).then(|| format!("pool {driver}/{pool} is told to be {told}, but is {right}"))
    })
}

/// Names of pools, in order.
fn pool_names<'a>(slices: &'a Slices, driver: &str, wanted: &str) -> BTreeSet<&'a str> {
    slices
        .values()
        .filter(|slice| text(slice, &["spec", "driver"]) == driver)
        .map(|slice| text(slice, &["spec", "pool", "name"]))
        .filter(|pool| wanted.is_empty() || *pool == wanted)
        .collect()
}

/// `most`, with the numbers of allocatable partitions as they were told wherever these are possible.
fn with_allocatable_between(told: &Value, most: &Value, least: &Value) -> Value {
    let mut right = most.clone();
    let Some(types) = right.get_mut("partitionSummary").and_then(Value::as_array_mut) else { return right };
    let number = |pool: &Value, index: usize| {
        items(pool, &["partitionSummary"]).get(index).and_then(|one| at(one, &["allocatable"]).as_u64())
    };
    for (index, one) in types.iter_mut().enumerate() {
        if let (Some(told), Some(most), Some(least)) =
            (number(told, index), number(most, index), number(least, index))
            && (least..=most).contains(&told)
        {
            set(one, "allocatable", json!(told));
        }
    }
    right
}

/// The slices of a pool's newest generation, in the order of their names, and that generation.
fn newest<'a>(slices: &'a Slices, driver: &str, pool: &str) -> (i64, Vec<&'a Value>) {
    let of_pool: Vec<&Value> = slices
        .values()
        .map(|slice| &**slice)
        .filter(|s| text(s, &["spec", "driver"]) == driver && text(s, &["spec", "pool", "name"]) == pool)
        .collect();
    let newest = of_pool.iter().map(|slice| generation(slice)).max().unwrap_or_default();
    (newest, of_pool.into_iter().filter(|slice| generation(slice) == newest).collect())
}

/// The node that all slices name.
fn common_node<'a>(slices: &[&'a Value]) -> Option<&'a str> {
    let mut nodes = slices.iter().map(|slice| text(slice, &["spec", "nodeName"]));
    let first = nodes.next().filter(|node| !node.is_empty())?;
    nodes.all(|node| node == first).then_some(first)
}

/// Who holds the devices of a pool, by device.
fn uses<'a>(claims: &'a [Arc<Value>], driver: &str, pool: &str) -> Uses<'a> {
    let mut uses = Uses::new();
    for claim in claims {
        for held in held(claim).filter(|h| h.driver == driver && h.pool == pool) {
            if at(held.result, &["adminAccess"]) != true {
                uses.entry(held.device).or_default().push((uid(claim), held.result));
            }
        }
    }
    uses
}

/// `status.pools[]` for a pool (spec §3 to §6). With `charged`, devices that are not published any more consume what
/// they did.
fn status(facts: Facts<'_>, driver: &str, pool: &str, attribute: &str, charged: bool) -> Value {
    let id = format!("{driver}/{pool}");
    let (generation, slices) = newest(facts.slices, driver, pool);
    let mut status = json!({"driver": driver, "poolName": pool, "generation": generation.max(1)});
    if let Some(node) = common_node(&slices) {
        set(&mut status, "nodeName", json!(node));
    }
    let announced = slices
        .iter()
        .filter_map(|s| at(s, &["spec", "pool", "resourceSliceCount"]).as_u64())
        .max()
        .unwrap_or_default();
    let observed = slices.len();
    if u64::try_from(observed).unwrap_or(u64::MAX) < announced {
        let error = format!(
            "PoolIncomplete: pool {id} is incomplete: observed {observed}/{announced} slices at generation {generation}"
        );
        set(&mut status, "validationError", json!(error));
        return status;
    }
    let uses = uses(facts.claims, driver, pool);
    let devices: Vec<Device<'_>> = slices
        .iter()
        .flat_map(|slice| items(slice, &["spec", "devices"]).iter().map(move |device| (*slice, device)))
        .map(|(slice, device)| {
            let name = text(device, &["name"]);
            Device {
                slice,
                published: device,
                name,
                uses: uses.get(name).into_iter().flatten().map(|(_, result)| *result).collect(),
                tainted: is_tainted(facts.rules, driver, pool, device),
            }
        })
        .collect();
    let published: BTreeSet<&str> = devices.iter().map(|device| device.name).collect();
    let allocated = published.iter().filter(|name| uses.contains_key(*name)).count();
    let unavailable = devices.iter().filter(|d| d.tainted && d.uses.is_empty()).count();
    set(&mut status, "resourceSliceCount", json!(observed));
    set(&mut status, "totalDevices", json!(devices.len()));
    set(&mut status, "allocatedDevices", json!(allocated));
    set(&mut status, "unavailableDevices", json!(unavailable));
    let available = devices.len().saturating_sub(allocated).saturating_sub(unavailable);
    set(&mut status, "availableDevices", json!(available));

    let lost: Vec<&str> = uses.keys().copied().filter(|name| !published.contains(name)).collect();
    let mut errors = Vec::new();
    match partitions(&id, driver, attribute, &slices, &devices, if charged { &lost } else { &[] }) {
        Ok(types) if types.is_empty() => {}
        Ok(types) => set(&mut status, "partitionSummary", json!(types)),
        Err(error) => errors.push(error),
    }
    if let Some(shareable) = shareable(&devices) {
        set(&mut status, "shareableSummary", shareable);
    }
    if generation == 0 {
        errors.push(format!(
            "PoolGenerationZero: 1 stands for generation 0, which this API cannot express, of pool {id}"
        ));
    }
    let twice: BTreeSet<&str> = devices
        .iter()
        .filter(|device| at(device.published, &["allowMultipleAllocations"]) != true)
        .map(|device| device.name)
        .filter(|name| {
            let claims: BTreeSet<&str> =
                uses.get(name).into_iter().flatten().map(|(claim, _)| *claim).collect();
            claims.len() > 1
        })
        .collect();
    if !twice.is_empty() {
        let twice: Vec<&str> = twice.into_iter().collect();
        errors.push(format!(
            "DeviceAllocatedTwice: devices of pool {id} are held by more than one claim: {}",
            twice.join(", ")
        ));
    }
    if !lost.is_empty() {
        errors.push(format!(
            "DeviceNotPublished: claims hold devices that pool {id} does not publish at generation {generation}: {}",
            lost.join(", ")
        ));
    }
    if !errors.is_empty() {
        let mut error = errors.join("; ");
        error.truncate(error.floor_char_boundary(MOST_BYTES));
        set(&mut status, "validationError", json!(error));
    }
    status
}

fn is_tainted(rules: &[Arc<Value>], driver: &str, pool: &str, device: &Value) -> bool {
    let keeps_away = |effect: &str| matches!(effect, "NoSchedule" | "NoExecute");
    items(device, &["taints"]).iter().any(|taint| keeps_away(text(taint, &["effect"])))
        || rules
            .iter()
            .any(|rule| keeps_away(effect(rule)) && selects(rule, driver, pool, text(device, &["name"])))
}

/// An amount in thousandths, and whether it is written in powers of 1024.
type Amount = (i128, bool);

fn amount(text: &str) -> Amount {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, suffix) = text.split_at_checked(digits).unwrap_or((text, ""));
    let number: i128 = number.parse().unwrap_or_default();
    match suffix {
        "Ki" => (number << 10, true),
        "Mi" => (number << 20, true),
        "Gi" => (number << 30, true),
        "Ti" => (number << 40, true),
        _ => (number, false),
    }
}

/// The sum keeps the way in which its first part is written.
fn add(sum: &mut Amount, more: Amount) {
    if sum.0 == 0 {
        sum.1 = more.1;
    }
    sum.0 += more.0;
}

fn written((number, binary): Amount) -> String {
    if binary && number != 0 {
        for (shift, suffix) in [(40, "Ti"), (30, "Gi"), (20, "Mi"), (10, "Ki")] {
            if number % (1 << shift) == 0 {
                return format!("{}{suffix}", number >> shift);
            }
        }
    }
    number.to_string()
}

// Partitions

/// Counter set and counter, and how much.
type Counters<'a> = BTreeMap<(&'a str, &'a str), i128>;

fn consumed(device: &Value) -> Vec<(&str, &str, i128)> {
    items(device, &["consumesCounters"])
        .iter()
        .flat_map(|consumption| {
            let set = text(consumption, &["counterSet"]);
            let counters = at(consumption, &["counters"]).as_object().into_iter().flatten();
            counters.map(move |(counter, value)| (set, counter.as_str(), amount(text(value, &["value"])).0))
        })
        .collect()
}

/// What a device costs, by value: sets and numbers in names do not count.
fn cost(device: &Value) -> Vec<(String, i128)> {
    let mut cost: Vec<(String, i128)> = consumed(device)
        .into_iter()
        .map(|(_, counter, amount)| {
            let name: String = counter.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
            (name, amount)
        })
        .collect();
    cost.sort();
    cost
}

/// What the user module's partitions consume, by their names: `full-0` all of card 0, `half-1-0` half of card 1.
fn withdrawn(name: &str) -> Option<(String, i128)> {
    let card = |text: &str| format!("card-{}", text.split('-').next().unwrap_or_default());
    let full = name.strip_prefix("full-").map(|rest| (card(rest), 80_i128 << 30));
    full.or_else(|| name.strip_prefix("half-").map(|rest| (card(rest), 40_i128 << 30)))
}

fn partitions(
    id: &str,
    driver: &str,
    default: &str,
    slices: &[&Value],
    devices: &[Device<'_>],
    lost: &[&str],
) -> Result<Vec<Value>, String> {
    let own = |device: &Device<'_>| text(device.slice, &["spec", "partitionTypeAttribute"]).to_owned();
    let mut left = Counters::new();
    for set in slices.iter().flat_map(|slice| items(slice, &["spec", "sharedCounters"])) {
        for (counter, value) in at(set, &["counters"]).as_object().into_iter().flatten() {
            left.insert((text(set, &["name"]), counter), amount(text(value, &["value"])).0);
        }
    }
    if slices.iter().all(|slice| items(slice, &["spec", "sharedCounters"]).is_empty()) {
        return if devices.iter().any(|device| !own(device).is_empty()) {
            Err(format!(
                "PartitionTypeMissing: pool {id} declares partitionTypeAttribute but publishes no sharedCounters"
            ))
        } else {
            Ok(Vec::new())
        };
    }
    let mut types: BTreeMap<(String, String), (Vec<&Device<'_>>, usize)> = BTreeMap::new();
    for device in devices {
        let draw = consumed(device.published);
        if draw.is_empty() {
            continue;
        }
        if !device.uses.is_empty() {
            charge(&mut left, &draw);
        }
        let attribute = Some(own(device)).filter(|own| !own.is_empty()).unwrap_or_else(|| default.to_owned());
        if attribute.is_empty() {
            continue;
        }
        let attributes = at(device.published, &["attributes"]);
        let bare = attribute.strip_prefix(driver).and_then(|rest| rest.strip_prefix('/'));
        let value = attributes
            .get(&attribute)
            .or_else(|| attributes.get(bare?))
            .and_then(|value| at(value, &["string"]).as_str());
        let Some(value) = value else {
            return Err(format!(
                "PartitionTypeMissing: device {:?} in pool {id} does not carry partition type attribute {attribute:?}",
                device.name
            ));
        };
        if value.is_empty() {
            return Err(format!(
                "PartitionTypeMissing: device {:?} in pool {id} has an empty partition type attribute {attribute:?}",
                device.name
            ));
        }
        let (members, total) = types.entry((attribute, value.to_owned())).or_default();
        if members.first().is_some_and(|first| cost(first.published) != cost(device.published)) {
            return Err(format!(
                "PartitionCostMismatch: devices of partition type {value:?} in pool {id} consume different counters"
            ));
        }
        members.push(device);
        *total += 1;
    }
    for (card, amount) in lost.iter().filter_map(|name| withdrawn(name)) {
        let of_card = left.iter_mut().find(|((set, counter), _)| *set == card && *counter == "memory");
        if let Some((_, left)) = of_card {
            *left -= amount;
        }
    }
    Ok(types
        .into_iter()
        .map(|((attribute, of_type), (members, total))| {
            let mut left = left.clone();
            let mut allocatable = 0;
            for device in members.into_iter().filter(|d| d.uses.is_empty() && !d.tainted) {
                let draw = consumed(device.published);
                let fits = |(set, counter, amount): &(&str, &str, i128)| {
                    left.get(&(*set, *counter)).is_some_and(|left| left >= amount)
                };
                if draw.iter().all(fits) {
                    charge(&mut left, &draw);
                    allocatable += 1;
                }
            }
            json!({"attribute": attribute, "type": of_type, "total": total, "allocatable": allocatable})
        })
        .collect())
}

fn charge<'a>(left: &mut Counters<'a>, draw: &[(&'a str, &'a str, i128)]) {
    for (set, counter, amount) in draw {
        if let Some(left) = left.get_mut(&(*set, *counter)) {
            *left -= amount;
        }
    }
}

// Devices that can be shared

fn shareable(devices: &[Device<'_>]) -> Option<Value> {
    let (mut full, mut partial) = (0, 0);
    let mut sums: BTreeMap<&str, (Amount, Amount)> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    let shareable: Vec<&Device<'_>> =
        devices.iter().filter(|d| at(d.published, &["allowMultipleAllocations"]) == true).collect();
    if shareable.is_empty() {
        return None;
    }
    for device in shareable {
        let capacity: Vec<(&str, Amount)> = at(device.published, &["capacity"])
            .as_object()
            .into_iter()
            .flatten()
            .map(|(name, value)| (name.as_str(), amount(text(value, &["value"]))))
            .collect();
        for (name, value) in &capacity {
            add(&mut sums.entry(name).or_default().0, *value);
        }
        if device.uses.is_empty() {
            full += 1;
            continue;
        }
        let shares: Vec<(&str, Amount)> = device
            .uses
            .iter()
            .flat_map(|result| at(result, &["consumedCapacity"]).as_object().into_iter().flatten())
            .map(|(name, value)| (name.as_str(), amount(value.as_str().unwrap_or_default())))
            .collect();
        // Perhaps beside shares from when the driver published it otherwise.
        let whole = device
            .uses
            .iter()
            .any(|r| text(r, &["shareID"]).is_empty() && at(r, &["consumedCapacity"]).is_null());
        let taken = |wanted: &str| -> i128 {
            shares.iter().filter(|(name, _)| *name == wanted).map(|(_, amount)| amount.0).sum()
        };
        let used_up = !capacity.is_empty() && capacity.iter().all(|(name, value)| taken(name) >= value.0);
        if !whole && !used_up {
            partial += 1;
        }
        if seen.insert(device.name) {
            let of_device = if whole { &capacity } else { &shares };
            for (name, value) in of_device {
                add(&mut sums.entry(name).or_default().1, *value);
            }
        }
    }
    let known: BTreeSet<&str> = devices
        .iter()
        .filter(|d| at(d.published, &["allowMultipleAllocations"]) == true)
        .flat_map(|d| at(d.published, &["capacity"]).as_object().into_iter().flatten())
        .map(|(name, _)| name.as_str())
        .collect();
    let capacity: Vec<Value> = sums
        .into_iter()
        .filter(|(name, _)| known.contains(name))
        .map(|(name, (total, consumed))| {
            let free = ((total.0 - consumed.0).max(0), total.1);
            json!({"name": name, "total": written(total), "consumed": written(consumed),
                "available": written(free)})
        })
        .collect();
    let mut summary = json!({"fullyAvailableDevices": full, "partiallyAvailableDevices": partial});
    if !capacity.is_empty() {
        set(&mut summary, "capacity", json!(capacity));
    }
    Some(summary)
}

// While watches lag

/// What in an answer cannot have been so at any moment since `from`. Each kind of object may have been seen as it was
/// at another moment.
pub(crate) fn impossible(history: &History, from: Instant, request: &Value) -> Option<String> {
    let spec = at(request, &["spec"]);
    let (driver, wanted) = (text(spec, &["driver"]), text(spec, &["poolName"]));
    let told = at(request, &["status", "poolCount"]);
    let counts: BTreeSet<usize> =
        history.slices(from).map(|slices| pool_names(slices, driver, wanted).len()).collect();
    let none = counts.is_empty() && *told == json!(0);
    if !none && !counts.iter().any(|count| *told == json!(count)) {
        return Some(format!("{told} pools, but there were {counts:?}"));
    }
    items(request, &["status", "pools"]).iter().find_map(|pool| impossible_pool(history, from, driver, pool))
}

fn impossible_pool(history: &History, from: Instant, driver: &str, told: &Value) -> Option<String> {
    let pool = text(told, &["poolName"]);
    let shape = |pool: &Value| {
        ["generation", "nodeName", "resourceSliceCount", "totalDevices"]
            .map(|field| at(pool, &[field]).clone())
    };
    let wrong = |what: &str| Some(format!("pool {driver}/{pool} {what}: {told}"));
    let as_told: Vec<&Slices> = history
        .slices(from)
        .filter(|slices| {
            let facts = Facts { slices, claims: &[], rules: &[] };
            let was = status(facts, driver, pool, "", false);
            shape(&was) == shape(told)
                && is_incomplete(&was) == is_incomplete(told)
                && (!is_incomplete(told) || was == *told)
        })
        .collect();
    if as_told.is_empty() {
        return wrong("never was like this");
    }
    if is_incomplete(told) {
        return None;
    }
    let number = |field: &str| at(told, &[field]).as_u64().unwrap_or(u64::MAX);
    let (total, allocated) = (number("totalDevices"), number("allocatedDevices"));
    let (available, unavailable) = (number("availableDevices"), number("unavailableDevices"));
    if available != total.saturating_sub(allocated).saturating_sub(unavailable) {
        return wrong("does not add up");
    }
    let (mut ever, mut always) = (BTreeSet::new(), BTreeSet::new());
    for versions in history.all_claims(from) {
        let mut throughout: Option<BTreeSet<String>> = None;
        let mut lasts = false;
        for version in versions {
            lasts = version.lasts();
            let mut holds = BTreeSet::new();
            for held in held(&version.object).filter(|h| h.driver == driver && h.pool == pool) {
                if at(held.result, &["adminAccess"]) != true {
                    holds.insert(held.device.to_owned());
                }
            }
            ever.extend(holds.iter().cloned());
            let before = match throughout {
                None if version.since > from => BTreeSet::new(),
                None => holds.clone(),
                Some(before) => before,
            };
            throughout = Some(before.intersection(&holds).cloned().collect());
        }
        always.extend(throughout.filter(|_| lasts).unwrap_or_default());
    }
    let is_possible = as_told.iter().any(|slices| {
        let (_, current) = newest(slices, driver, pool);
        let published: BTreeSet<&str> = current
            .iter()
            .flat_map(|slice| items(slice, &["spec", "devices"]))
            .map(|device| text(device, &["name"]))
            .collect();
        let count = |of: &BTreeSet<String>| {
            u64::try_from(of.iter().filter(|name| published.contains(name.as_str())).count())
                .unwrap_or(u64::MAX)
        };
        (count(&always)..=count(&ever)).contains(&allocated)
    });
    if is_possible { None } else { wrong(&format!("never had so many in use, but {ever:?}")) }
}
