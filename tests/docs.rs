//! The documents name tests as evidence: these must exist.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

const DOCUMENTS: [&str; 3] =
    ["docs/CONFORMANCE.md", "docs/DEVIATIONS.md", "docs/conformance-claims-planner.md"];
/// Words that a name has at least that is taken for a test's without a module before it.
const WORDS: usize = 4;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// All Rust files of the workspace.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && name != "target" && !name.starts_with('.') {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// Names of functions and of modules.
fn names() -> BTreeSet<String> {
    let mut files = Vec::new();
    sources(root(), &mut files);
    let mut names = BTreeSet::new();
    for file in files {
        let stem = file.file_stem().unwrap().to_string_lossy().into_owned();
        names.insert(if stem == "mod" {
            file.parent().unwrap().file_name().unwrap().to_string_lossy().into_owned()
        } else {
            stem
        });
        for line in fs::read_to_string(&file).unwrap().lines() {
            if let Some((_, after)) = line.split_once("fn ") {
                let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
                names.insert(after.chars().take_while(|c| is_part(*c)).collect());
            }
        }
    }
    names
}

/// The name of a test in what stands between two backquotes; `…` stands for what is left out of it.
fn test_named(quoted: &str) -> Option<&str> {
    let whole = quoted.split_whitespace().last()?;
    let name = whole.rsplit("::").next()?;
    let is_name = name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == '…');
    let is_long = name.split('_').filter(|word| !word.is_empty()).count() >= WORDS;
    (is_name && (is_long || whole.contains("::") || name.contains('…'))).then_some(name)
}

fn exists(name: &str, names: &BTreeSet<String>) -> bool {
    let Some((before, after)) = name.split_once('…') else { return names.contains(name) };
    names.iter().any(|known| {
        known.strip_prefix(before).is_some_and(|rest| rest.contains(after.trim_end_matches('…')))
    })
}

#[test]
fn every_test_that_the_documents_name_exists() {
    let (names, mut checked, mut missing) = (names(), 0, Vec::new());
    for document in DOCUMENTS {
        let text = fs::read_to_string(root().join(document)).unwrap();
        for (number, line) in text.lines().enumerate() {
            for name in line.split('`').skip(1).step_by(2).filter_map(test_named) {
                checked += 1;
                if !exists(name, &names) {
                    missing.push(format!("{document}:{}: {name}", number + 1));
                }
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
    assert!(checked > 300, "only {checked} names are found");
}
