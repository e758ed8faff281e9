//! What our controller answers, and when.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use dra_e2e::story::SOON;
use dra_e2e::{ControlPlane, Manager, ManagerOptions, Options, Program, holds_for, wait_until};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::world::{World, counts, devices, named, pool};

/// The time for which slices are waited for, and what a busy machine takes.
const GRACE: Duration = Duration::from_secs(50);

struct Shared {
    plane: ControlPlane,
    manager: Manager,
}

static SHARED: OnceCell<Shared> = OnceCell::const_new();

async fn shared() -> Result<(&'static Shared, World)> {
    let shared = SHARED
        .get_or_try_init(async || {
            let plane =
                ControlPlane::start(Options { controllers: String::new(), ..Options::all_gates() }).await?;
            let mut options = ManagerOptions::pool_status_of(Program::Ours, &plane).await?;
            options.more.push("--debug-endpoints".to_owned());
            let manager = Manager::start(&plane, options).await?;
            anyhow::Ok(Shared { plane, manager })
        })
        .await?;
    Ok((shared, World::of(&shared.plane).await?))
}

fn message(status: &Value) -> &str {
    status.pointer("/conditions/0/message").and_then(Value::as_str).unwrap_or_default()
}

fn error(pool: &Value) -> &str {
    pool.get("validationError").and_then(Value::as_str).unwrap_or_default()
}

#[tokio::test]
async fn a_request_is_answered_once_and_its_status_never_changes() -> Result<()> {
    let (shared, world) = shared().await?;
    let driver = "once.example.com";
    world.slice("once-a", json!({"driver": driver, "pool": pool("a", 1, 1), "devices": devices(4)})).await?;
    world.ask("once", json!({"driver": driver})).await?;
    shared.plane.kubectl(&[
        "wait",
        "--for=condition=Complete",
        "resourcepoolstatusrequest/once",
        "--timeout=30s",
    ])?;
    let status = world.answer("once", SOON).await?;
    ensure!(counts(named(&status, "a")?) == [Some(4), Some(0), Some(4), Some(0)], "{status}");
    ensure!(message(&status) == "Calculated status for 1 pools", "{status}");
    let version = world.version("once").await?;
    world.slice("once-b", json!({"driver": driver, "pool": pool("b", 1, 1), "devices": devices(1)})).await?;
    holds_for("the answer stays", Duration::from_secs(2), async || {
        ensure!(world.version("once").await? == version, "it was written again");
        Ok(())
    })
    .await?;
    let refusal = world.refusal("once", json!({"poolCount": 7})).await?;
    ensure!(refusal.contains("immutable"), "{refusal}");
    // Fresh numbers: delete and make again.
    world.delete_request("once").await?;
    world.ask("once", json!({"driver": driver})).await?;
    ensure!(world.answer("once", SOON).await?.get("poolCount") == Some(&json!(2)));
    let table = shared.plane.kubectl(&["get", "resourcepoolstatusrequest", "once"])?;
    ensure!(table.contains("Complete"), "{table}");
    Ok(())
}

#[tokio::test]
async fn an_incomplete_pool_is_answered_when_its_last_slice_comes() -> Result<()> {
    let (_, world) = shared().await?;
    let driver = "late.example.com";
    world.slice("late-1", json!({"driver": driver, "pool": pool("p", 1, 2), "devices": devices(2)})).await?;
    world.ask("late", json!({"driver": driver})).await?;
    holds_for("the request waits", Duration::from_secs(3), async || {
        ensure!(world.status("late").await?.is_none(), "it was answered");
        Ok(())
    })
    .await?;
    let more = json!([{"name": "device-9"}]);
    world.slice("late-2", json!({"driver": driver, "pool": pool("p", 1, 2), "devices": more})).await?;
    let asked = Instant::now();
    let status = world.answer("late", SOON).await?;
    ensure!(asked.elapsed() < Duration::from_secs(15), "it waited for the end of the grace");
    ensure!(counts(named(&status, "p")?) == [Some(3), Some(0), Some(3), Some(0)], "{status}");
    Ok(())
}

#[tokio::test]
async fn an_incomplete_pool_does_not_silence_the_good_ones() -> Result<()> {
    let (_, world) = shared().await?;
    let driver = "half.example.com";
    world
        .slice("half-1", json!({"driver": driver, "pool": pool("bad", 3, 2), "devices": devices(2)}))
        .await?;
    world
        .slice("half-2", json!({"driver": driver, "pool": pool("good", 1, 1), "devices": devices(5)}))
        .await?;
    world.ask("half", json!({"driver": driver})).await?;
    let status = world.answer("half", GRACE).await?;
    let bad = named(&status, "bad")?;
    ensure!(
        error(bad)
            == "PoolIncomplete: pool half.example.com/bad is incomplete: observed 1/2 slices at generation 3",
        "{bad}"
    );
    ensure!(counts(bad) == [None; 4], "{bad}");
    ensure!(counts(named(&status, "good")?)[0] == Some(5), "{status}");
    ensure!(message(&status) == "Calculated status for 2 pools (1 incomplete)", "{status}");
    Ok(())
}

#[tokio::test]
async fn generation_zero_and_an_empty_partition_type_end_in_an_error_of_their_pool() -> Result<()> {
    let (_, world) = shared().await?;
    let driver = "odd.example.com";
    world
        .slice("odd-0", json!({"driver": driver, "pool": pool("zero", 0, 1), "devices": devices(2)}))
        .await?;
    let amount = |value: &str| json!({"memory": {"value": value}});
    let sets = json!([{"name": "set", "counters": amount("8Gi")}]);
    world
        .slice("odd-1", json!({"driver": driver, "pool": pool("empty", 1, 2), "sharedCounters": sets}))
        .await?;
    let device = json!([{
        "name": "d", "attributes": {"profile": {"string": ""}},
        "consumesCounters": [{"counterSet": "set", "counters": amount("4Gi")}],
    }]);
    let attribute = "odd.example.com/profile";
    world
        .slice(
            "odd-2",
            json!({"driver": driver, "pool": pool("empty", 1, 2), "devices": device,
                "partitionTypeAttribute": attribute}),
        )
        .await?;
    world.ask("odd", json!({"driver": driver})).await?;
    let status = world.answer("odd", SOON).await?;
    ensure!(error(named(&status, "zero")?).starts_with("PoolGenerationZero:"), "{status}");
    ensure!(error(named(&status, "empty")?).contains("has an empty partition type attribute"), "{status}");
    ensure!(message(&status) == "Calculated status for 2 pools (2 with errors)", "{status}");
    Ok(())
}

/// documented-behaviour X16 to X18: the sample's driver has a slash, which the API server refuses.
#[tokio::test]
async fn the_samples_of_the_documentation_are_answered_once_their_driver_name_is_right() -> Result<()> {
    let (_, world) = shared().await?;
    ensure!(world.ask("check", json!({"driver": "example.com/gpu"})).await.is_err());
    let driver = "gpu.example.com";
    for name in ["pool-a", "pool-b", "pool-c"] {
        let spec =
            json!({"driver": driver, "pool": pool(name, 1, 1), "devices": devices(2), "nodeName": name});
        world.slice(&format!("sample-{name}"), spec).await?;
    }
    world.ask("check-gpus", json!({"driver": driver})).await?;
    world.ask("check-one", json!({"driver": driver, "poolName": "pool-b"})).await?;
    world.ask("check-two", json!({"driver": driver, "limit": 2})).await?;
    let attribute = "gpu.example.com/profile";
    world
        .ask("check-gpu-partitions", json!({"driver": driver, "defaultPartitionTypeAttribute": attribute}))
        .await?;
    let all = world.answer("check-gpus", SOON).await?;
    ensure!(all.get("poolCount") == Some(&json!(3)), "{all}");
    ensure!(named(&all, "pool-b")?.get("nodeName") == Some(&json!("pool-b")), "{all}");
    let one = world.answer("check-one", SOON).await?;
    ensure!(one.get("poolCount") == Some(&json!(1)), "{one}");
    let two = world.answer("check-two", SOON).await?;
    let listed = two.get("pools").and_then(Value::as_array).map(Vec::len);
    ensure!((two.get("poolCount"), listed) == (Some(&json!(3)), Some(2)), "{two}");
    let partitions = world.answer("check-gpu-partitions", SOON).await?;
    ensure!(error(named(&partitions, "pool-a")?).is_empty(), "no counters, no error: {partitions}");
    Ok(())
}

#[tokio::test]
async fn the_live_numbers_follow_claims_and_slices() -> Result<()> {
    let (shared, world) = shared().await?;
    let driver = "live.example.com";
    let card = |name: &str| json!({"name": name, "allowMultipleAllocations": true, "capacity": {"memory": {"value": "8Gi"}}});
    let cards = json!([card("a"), card("b")]);
    world.slice("live-1", json!({"driver": driver, "pool": pool("p", 1, 1), "devices": cards})).await?;
    let share = json!({"driver": driver, "pool": "p", "device": "a",
        "shareID": "8f7c2b1e-0000-4000-8000-000000000001", "consumedCapacity": {"memory": "6Gi"}});
    world.claim("live", &[share]).await?;
    wait_until("metrics show the share", SOON, async || {
        let (_, text) = shared.manager.get("/metrics").await?;
        for line in [
            r#"dra_pool_devices{driver="live.example.com",node="node-1",pool="p",state="allocated"} 1"#,
            r#"dra_pool_shareable_capacity{capacity="memory",driver="live.example.com",node="node-1",pool="p",state="free"} 10737418240"#,
            r#"dra_pool_shareable_capacity{capacity="memory",driver="live.example.com",node="node-1",pool="p",state="largest_free"} 8589934592"#,
        ] {
            ensure!(text.contains(line), "{line} is not in {text}");
        }
        Ok(())
    })
    .await?;
    let (code, text) = shared.manager.get("/debug/pools?driver=live.example.com").await?;
    let found: Value = serde_json::from_str(&text).with_context(|| format!("{code} {text}"))?;
    ensure!(found.pointer("/0/status/allocatedDevices") == Some(&json!(1)), "{found}");
    ensure!(found.pointer("/0/report/shareable/0/largestFree") == Some(&json!("8Gi")), "{found}");
    Ok(())
}

#[tokio::test]
async fn our_role_is_enough() -> Result<()> {
    let (shared, world) = shared().await?;
    world.ask("rights", json!({"driver": "rights.example.com"})).await?;
    world.answer("rights", SOON).await?;
    let refused: Vec<_> =
        shared.plane.requests_of_manager()?.into_iter().filter(|request| !request.allowed).collect();
    ensure!(refused.is_empty(), "{refused:?}");
    let (_, metrics) = shared.manager.get("/metrics").await?;
    let counted = r#"resourcepoolstatusrequest_controller_requests_processed_total{driver_name="rights.example.com"} 1"#;
    ensure!(metrics.contains(counted), "{metrics}");
    Ok(())
}
