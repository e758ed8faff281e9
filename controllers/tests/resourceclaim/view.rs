//! The view under races between watches and answers (spec §2.3 on the in-tree mutation cache; DESIGN
//! "Expectations"): the later state of an object wins, whichever way it came.

use std::{sync::Arc, time::Duration};

use dra_api::{Claim, Object, ObjectKey, Pod, Uid};
use dra_controllers::view::{Source, UNCONFIRMED_FOR, View};
use serde_json::json;

use crate::common::objects::NS;

const T0: Duration = Duration::from_secs(10);

fn claim(uid: &str, version: u64) -> Claim {
    Claim::decode(
        &json!({"metadata": {"name": "c", "namespace": NS, "uid": uid,
            "resourceVersion": version.to_string()}, "spec": {}})
        .to_string(),
    )
    .unwrap()
}

fn pod(uid: &str, version: u64) -> Pod {
    Pod::decode(
        &json!({"metadata": {"name": "p", "namespace": NS, "uid": uid,
            "resourceVersion": version.to_string()}, "spec": {}})
        .to_string(),
    )
    .unwrap()
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new(NS, name)
}

fn version(view: &View) -> Option<u64> {
    view.claims.get(&key("c")).map(|c| c.meta.resource_version.0)
}

#[test]
fn what_we_wrote_is_not_undone_by_the_watch_that_lags_behind() {
    let mut view = View::default();
    view.observe(claim("u", 5), Source::Watch, T0);
    view.observe(claim("u", 9), Source::Answer, T0);
    assert!(view.observe(claim("u", 7), Source::Watch, T0).is_none());
    assert_eq!(version(&view), Some(9));
    assert!(view.observe(claim("u", 9), Source::Watch, T0).is_none(), "confirmation is no change");
    assert!(view.observe(claim("u", 11), Source::Watch, T0).is_some());
}

#[test]
fn an_answer_that_the_watch_overtook_changes_nothing() {
    let mut view = View::default();
    view.observe(claim("u", 12), Source::Watch, T0);
    assert!(view.observe(claim("u", 9), Source::Answer, T0).is_none());
    assert_eq!(version(&view), Some(12));
}

/// DESIGN: the expected object is held "until the watch shows that uid …, its deletion": a deletion that the watch
/// showed before the answer was stored counts too.
#[test]
fn an_answer_does_not_revive_what_the_watch_has_shown_to_be_deleted() {
    let mut view = View::default();
    view.observe(claim("u", 5), Source::Watch, T0);
    view.deleted::<Claim>(&key("c"), &Uid::from("u"));
    view.observe(claim("u", 5), Source::Answer, T0);
    assert_eq!(version(&view), None);
}

#[test]
fn an_answer_for_another_object_of_the_name_does_count_after_a_deletion() {
    let mut view = View::default();
    view.observe(claim("u", 5), Source::Watch, T0);
    view.deleted::<Claim>(&key("c"), &Uid::from("u"));
    view.observe(claim("v", 8), Source::Answer, T0);
    assert_eq!(version(&view), Some(8));
}

#[test]
fn what_the_server_said_is_gone_is_not_revived_by_the_watch_that_lags_behind() {
    let mut view = View::default();
    view.observe(claim("u", 5), Source::Watch, T0);
    assert!(view.gone::<Claim>(&key("c"), &Uid::from("u"), T0).is_some());
    view.observe(claim("u", 7), Source::Watch, T0);
    assert_eq!(version(&view), None);
    view.deleted::<Claim>(&key("c"), &Uid::from("u"));
    view.observe(claim("v", 9), Source::Watch, T0);
    assert_eq!(version(&view), Some(9));
}

#[test]
fn a_deletion_of_another_uid_takes_nothing_away() {
    let mut view = View::default();
    view.observe(claim("v", 9), Source::Watch, T0);
    assert!(view.deleted::<Claim>(&key("c"), &Uid::from("u")).is_none());
    assert!(view.gone::<Claim>(&key("c"), &Uid::from("u"), T0).is_none());
    assert_eq!(version(&view), Some(9));
}

/// A relist removes what it lacks, except what was written after it began.
#[test]
fn a_list_does_not_take_away_what_was_written_while_it_ran() {
    let mut view = View::default();
    view.observe(claim("u", 5), Source::Watch, T0);
    view.list_begins::<Claim>(T0);
    let later = T0 + Duration::from_millis(1);
    view.observe(
        Claim::decode(
            &json!({"metadata": {"name": "new", "namespace": NS, "uid": "n", "resourceVersion": "8"},
                "spec": {}})
            .to_string(),
        )
        .unwrap(),
        Source::Answer,
        later,
    );
    assert_eq!(view.list_ends::<Claim>().len(), 1);
    assert!(view.claims.get(&key("c")).is_none() && view.claims.get(&key("new")).is_some());
    view.list_begins::<Claim>(later + Duration::from_secs(1));
    assert_eq!(view.list_ends::<Claim>().len(), 1, "the next list decides");

    // The same for what was known before and written while the list ran.
    let mut view = View::default();
    view.observe(claim("u", 5), Source::Watch, T0);
    view.list_begins::<Claim>(T0);
    view.observe(claim("u", 8), Source::Answer, later);
    assert!(view.list_ends::<Claim>().is_empty());
    assert_eq!(version(&view), Some(8));
}

/// A list from a server that was behind lacks an object; the watch that follows shows it. It is there, then, and
/// answers about it count again.
#[test]
fn an_object_that_the_watch_shows_after_a_list_lacked_it_counts_fully_again() {
    let mut view = View::default();
    view.observe(claim("u", 5), Source::Watch, T0);
    view.list_begins::<Claim>(T0);
    assert_eq!(view.list_ends::<Claim>().len(), 1);
    view.observe(claim("u", 6), Source::Watch, T0);
    assert_eq!(version(&view), Some(6));
    view.observe(claim("u", 8), Source::Answer, T0);
    assert_eq!(version(&view), Some(8));
    assert!(!view.claims.was_deleted(&Uid::from("u")));
}

#[test]
fn a_listed_object_that_cannot_be_read_is_kept_as_it_was_known() {
    let mut view = View::default();
    view.observe(claim("u", 5), Source::Watch, T0);
    view.list_begins::<Claim>(T0);
    view.unreadable::<Claim>(&key("c"));
    assert!(view.list_ends::<Claim>().is_empty());
    assert_eq!(version(&view), Some(5));
}

/// After 30 s a GET decides.
#[test]
fn what_the_watch_does_not_confirm_is_due_for_a_look_after_thirty_seconds() {
    let mut view = View::default();
    view.observe(claim("u", 5), Source::Answer, T0);
    let late = T0 + UNCONFIRMED_FOR;
    assert!(view.claims.overdue(T0 + Duration::from_secs(29)).is_empty());
    assert_eq!(view.claims.overdue(late), [key("c")]);
    assert!(view.found(claim("u", 5), late).is_none());
    assert!(view.claims.overdue(late + UNCONFIRMED_FOR).is_empty(), "a GET counts as confirmation");

    let mut view = View::default();
    view.observe(claim("u", 5), Source::Answer, T0);
    assert!(view.not_found::<Claim>(&key("c"), Some(&Uid::from("u")), late).is_some());
    assert_eq!(version(&view), None);

    let mut view = View::default();
    view.observe(claim("u", 5), Source::Answer, T0);
    view.observe(claim("u", 5), Source::Watch, T0);
    assert!(view.claims.overdue(late).is_empty(), "so does the watch");
}

#[test]
fn what_a_get_showed_is_trusted_for_a_while_or_until_something_newer_appears() {
    let mut view = View::default();
    assert!(view.note_read(&key("c"), None, T0));
    assert!(view.claims.was_read(&key("c"), T0));
    assert!(!view.claims.was_read(&key("c"), T0 + UNCONFIRMED_FOR));
    view.observe(claim("u", 3), Source::Watch, T0);
    assert!(!view.claims.was_read(&key("c"), T0));
    view.deleted::<Claim>(&key("c"), &Uid::from("u"));
    assert!(!view.claims.was_read(&key("c"), T0), "the old answer does not come back");
    assert!(
        !view.note_read(&key("c"), Some(&Uid::from("u")), T0),
        "nor does what the watch has shown to be deleted"
    );
    assert!(!view.claims.was_read(&key("c"), T0));
    view.tidy(T0 + UNCONFIRMED_FOR);
}

#[test]
fn replaced_and_deleted_uids_are_remembered_whichever_way_they_went() {
    let mut view = View::default();
    view.observe(pod("u", 3), Source::Watch, T0);
    view.observe(pod("v", 7), Source::Watch, T0);
    assert!(view.pods.was_deleted(&Uid::from("u")), "replaced in one update");
    view.list_begins::<Pod>(T0);
    view.list_ends::<Pod>();
    assert!(view.pods.was_deleted(&Uid::from("v")), "missing in a list");
    assert!(!view.pods.was_deleted(&Uid::from("w")));
}

#[test]
fn doubts_about_a_create_request_end_with_a_list_that_began_later() {
    let mut view = View::default();
    let ns: Arc<str> = Arc::from(NS);
    let owner = Uid::from("owner");
    view.note_doubtful_create(&ns, owner.clone(), T0);
    view.settle_doubts(NS, Duration::from_secs(9));
    assert!(view.create_is_doubtful(NS, &owner), "an older list says nothing");
    assert!(!view.create_is_doubtful("other", &owner));
    view.settle_doubts(NS, T0 + Duration::from_secs(1));
    assert!(!view.create_is_doubtful(NS, &owner));
}

#[test]
fn the_gauge_counts_every_claim_once_through_all_changes() {
    let mut view = View::default();
    let count = |view: &View| view.claim_counts().map(|(_, n)| n).sum::<u64>();
    view.observe(claim("u", 5), Source::Answer, T0);
    view.observe(claim("u", 5), Source::Watch, T0);
    view.observe(claim("v", 6), Source::Watch, T0);
    assert_eq!(count(&view), 1);
    view.gone::<Claim>(&key("c"), &Uid::from("v"), T0);
    view.deleted::<Claim>(&key("c"), &Uid::from("v"));
    assert_eq!(count(&view), 0);
}
