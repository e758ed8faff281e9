//! Many histories, and that a seed is one history.
//!
//! `SEED=123 cargo test -p dra-simulation` tells the story of one seed; `SEEDS=50` runs fewer than 2,000.

use dra_simulation::{
    many::{ENOUGH, command, run_many},
    run::run,
};

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().and_then(|text| text.parse().ok())
}

#[test]
fn whatever_happens_everything_ends_up_as_it_should() {
    if let Some(seed) = number("SEED") {
        let outcome = run(seed);
        println!("{}", outcome.story.join("\n"));
        assert!(outcome.wrong.is_empty(), "seed {seed}: {:#?}", outcome.wrong);
        return;
    }
    let summary = run_many(0, number("SEEDS").unwrap_or(2_000), ENOUGH);
    let failures: Vec<String> = summary
        .failed
        .iter()
        .map(|o| format!("seed {}: {}\n  {}", o.seed, o.wrong.join("; "), command(o.seed)))
        .collect();
    assert!(
        failures.is_empty(),
        "{} of {} seeds failed:\n{}",
        failures.len(),
        summary.seeds,
        failures.join("\n")
    );
    assert!(
        summary.writes > summary.seeds
            && summary.crashes > summary.seeds / 2
            && summary.evictions > summary.seeds / 4
            && summary.answers > summary.seeds,
        "too little happens: {summary:?}"
    );
}

#[test]
fn the_same_seed_gives_the_same_history() {
    for seed in 0..5 {
        let (first, second) = (run(seed), run(seed));
        assert_eq!(first.story, second.story, "seed {seed}");
        assert_eq!(first.trace, second.trace, "seed {seed}");
    }
}
