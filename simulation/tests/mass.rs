//! An eviction at full size.

use dra_simulation::mass::{Mass, run};

#[test]
fn ten_thousand_pods_are_evicted_once_each_although_the_manager_crashes_in_the_middle() {
    let crashes = if std::env::var_os("DRACM_LONG").is_some() { 20 } else { 3 };
    let outcome = run(Mass { seed: 1, pods: 10_000, crashes }).unwrap();
    println!("{outcome:#?}");
    assert!(outcome.wrong.is_empty(), "{:#?}", outcome.wrong.iter().take(20).collect::<Vec<_>>());
    assert_eq!((outcome.crashes, outcome.deletions), (crashes, outcome.going));
    // A mark whose answer was lost is made again, one that a predecessor has made is not.
    assert!(outcome.marks <= outcome.going + outcome.going / 50, "{outcome:?}");
    // A few for each life and one each ten seconds.
    let seconds = usize::try_from(outcome.took.as_secs()).unwrap();
    assert!(outcome.reports <= 4 * (crashes + 1) + seconds / 10, "{outcome:?}");
    // Marks, deletions, events, and what failed once more.
    assert!(outcome.requests <= 4 * outcome.going, "{outcome:?}");
}
