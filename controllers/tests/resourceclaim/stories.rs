//! Whole stories as text: what happens, and below it, indented, what the controller does and says. The files in
//! `stories/` are read, told again, and must come out as they are; with `UPDATE_STORIES=1` in the environment they are
//! written instead, for a look at the difference.
//!
//! ```text
//! # A comment, kept.
//! template t                    claim c
//! group g a=t b:c               entries: `=` names a template, `:` a claim
//! pod p in g on n1 a=t b:c      a member of g that has its node already
//! schedule p                    the scheduler allocates, reserves and places
//! allocate c                    somebody allocates a claim and reserves it for nobody
//! phase p Succeeded             delete pod p      vanish group g      collect-garbage
//! lag claim 30                  the watch of claims is 30 s behind
//! lose create   refuse record   the next such request gets no answer (but is carried out) or a 500
//! relist pod    restart         wait 90
//! ```

use std::{fmt::Write as _, fs, path::PathBuf, time::Duration};

use serde_json::json;

use crate::common::{
    World,
    driver::Verb,
    objects::*,
    server::{Kind, Refusal},
};

fn kind(word: &str) -> Kind {
    match word {
        "pod" => Kind::Pod,
        "group" => Kind::PodGroup,
        "claim" => Kind::Claim,
        "template" => Kind::Template,
        other => panic!("no kind {other}"),
    }
}

fn verb(word: &str) -> Verb {
    match word {
        "create" => Verb::Create,
        "record" => Verb::RecordPod,
        "reserve" => Verb::Reserve,
        "release" => Verb::Release,
        "finalizer" => Verb::RemoveFinalizer,
        "delete" => Verb::Delete,
        other => panic!("no request {other}"),
    }
}

fn with_entries(mut draft: Draft, words: &[&str]) -> Draft {
    let mut words = words.iter();
    while let Some(word) = words.next() {
        draft = match *word {
            "in" => draft.member_of(words.next().unwrap()),
            "on" => draft.on(words.next().unwrap()),
            entry => match (entry.split_once('='), entry.split_once(':')) {
                (Some((name, template)), _) => draft.templated(name, template),
                (None, Some((name, claim))) => draft.direct(name, claim),
                (None, None) => panic!("no entry: {entry}"),
            },
        };
    }
    draft
}

fn command(w: &mut World, line: &str) {
    let words: Vec<&str> = line.split_whitespace().collect();
    match words.as_slice() {
        ["template", name] => drop(w.put(template(name))),
        ["claim", name] => drop(w.put(claim(name))),
        ["group", name, rest @ ..] => drop(w.put(with_entries(group(name), rest))),
        ["pod", name, rest @ ..] => drop(w.put(with_entries(pod(name), rest))),
        ["schedule", name] => assert!(w.schedule(name), "{line}"),
        ["allocate", name] => w.edit(Kind::Claim, name, |c| c["status"]["allocation"] = json!({})),
        ["phase", name, phase] => w.phase(name, phase),
        ["delete", k, name] => w.delete(kind(k), name),
        ["vanish", k, name] => w.vanish(kind(k), name),
        ["collect-garbage"] => w.collect_garbage(),
        ["lag", k, seconds] => {
            w.server.lag.insert(kind(k), Duration::from_secs(seconds.parse().unwrap()));
        }
        ["lose", what] => w.lose_answers(verb(what), "", 1),
        ["refuse", what] => w.fail(verb(what), "", Refusal::Internal, 1),
        ["relist", k] => w.relist(kind(k)),
        ["restart"] => w.restart(),
        ["wait", seconds] => w.run_for(Duration::from_secs(seconds.parse().unwrap())),
        _ => panic!("no command: {line}"),
    }
    w.run_for(Duration::ZERO);
}

/// The story with what the controller does and says now.
fn told_again(story: &str) -> String {
    let mut w = World::default();
    w.driver.log.clear();
    let mut out = String::new();
    for line in story.lines().filter(|line| !line.starts_with("  ")) {
        writeln!(out, "{line}").unwrap();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let before = w.driver.told.clone();
        command(&mut w, line);
        for action in w.driver.log.drain(..) {
            writeln!(out, "  {action}").unwrap();
        }
        for ((subject, reason, note), times) in &w.driver.told {
            let new = times - before.get(&(subject.clone(), reason, note.clone())).unwrap_or(&0);
            if new > 0 {
                writeln!(out, "  tell {subject} {reason} ({new}): {note}").unwrap();
            }
        }
    }
    out
}

#[test]
fn the_stories_are_told_as_they_were_written() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/resourceclaim/stories");
    let mut files: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|f| f.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty());
    for file in files {
        let story = fs::read_to_string(&file).unwrap();
        let again = told_again(&story);
        if std::env::var_os("UPDATE_STORIES").is_some() {
            fs::write(&file, again).unwrap();
        } else {
            assert_eq!(again, story, "{}", file.display());
        }
    }
}
