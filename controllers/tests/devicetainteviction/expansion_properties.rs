//! Whatever order slices, classes and rules come and go in, in the end there are the children that belong to what is
//! there.

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::expansion::{class, gpus, selecting};
use crate::world::{Kind, T0, World};

/// One thing that somebody does.
#[derive(Clone, Debug)]
enum Step {
    Slice {
        pool: usize,
        models: Vec<usize>,
    },
    NoSlice {
        pool: usize,
    },
    Class {
        expression: usize,
    },
    NoClass,
    Rule {
        selection: usize,
        effect: usize,
    },
    NoRule,
    /// Somebody deletes or edits the children.
    Meddle {
        delete: bool,
    },
    Restart,
    Settle,
}

/// At most three devices are in one pool.
const MOST: usize = 4;
const POOLS: [&str; 2] = ["worker", "other"];
const MODELS: [&str; 3] = ["old", "new", ""];
const EXPRESSIONS: [&str; 3] = [
    "device.driver == 'some-driver'",
    "device.attributes['some-driver'].model == 'old'",
    "device.attributes['some-driver'].?model.orValue('') == 'new'",
];
/// Class and expression.
const SELECTIONS: [(&str, &str); 4] = [("c", ""), ("", EXPRESSIONS[1]), ("c", EXPRESSIONS[2]), ("", "")];
const EFFECTS: [&str; 3] = ["NoSchedule", "NoExecute", "None"];

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..2usize, prop::collection::vec(0..3usize, 0..4))
            .prop_map(|(pool, models)| Step::Slice { pool, models }),
        1 => (0..2usize).prop_map(|pool| Step::NoSlice { pool }),
        2 => (0..3usize).prop_map(|expression| Step::Class { expression }),
        1 => Just(Step::NoClass),
        3 => (0..4usize, 0..3usize).prop_map(|(selection, effect)| Step::Rule { selection, effect }),
        1 => Just(Step::NoRule),
        1 => any::<bool>().prop_map(|delete| Step::Meddle { delete }),
        1 => Just(Step::Restart),
        2 => Just(Step::Settle),
    ]
}

/// What is there in the end.
#[derive(Default)]
struct End {
    slices: [Option<Vec<usize>>; 2],
    class: Option<usize>,
    rule: Option<(usize, usize)>,
}

impl End {
    fn selected(&self, model: &str) -> bool {
        let of = |expression: usize| match expression {
            0 => true,
            1 => model == "old",
            _ => model == "new",
        };
        match self.rule.map(|(selection, _)| selection) {
            Some(0) => self.class.is_some_and(of),
            Some(1) => model == "old",
            Some(2) => self.class.is_some_and(of) && model == "new",
            _ => false,
        }
    }

    fn children(&self) -> Vec<String> {
        let Some((_, effect)) = self.rule.filter(|(_, effect)| EFFECTS[*effect] != "None") else {
            return Vec::new();
        };
        let mut found = Vec::new();
        for (pool, models) in self.slices.iter().enumerate() {
            for (device, model) in models.iter().flatten().enumerate() {
                if self.selected(MODELS[*model]) {
                    found.push(format!("some-driver/{}/gpu-{device} {} {T0}", POOLS[pool], EFFECTS[effect]));
                }
            }
        }
        found.sort();
        found
    }
}

fn tell(w: &mut World, step: &Step, end: &mut End, n: usize) {
    match step {
        Step::Slice { pool, models } => {
            let devices: Vec<(String, &str)> =
                models.iter().enumerate().map(|(d, model)| (format!("gpu-{d}"), MODELS[*model])).collect();
            let devices: Vec<(&str, &str)> =
                devices.iter().map(|(name, model)| (name.as_str(), *model)).collect();
            w.event(Kind::Slice, gpus(POOLS[*pool], 1 + i64::try_from(n).unwrap(), &devices));
            end.slices[*pool] = Some(models.clone());
        }
        Step::NoSlice { pool } => {
            w.remove_event(Kind::Slice, &format!("slice-{}", POOLS[*pool]));
            end.slices[*pool] = None;
        }
        Step::Class { expression } => {
            w.event(Kind::Class, class("c", EXPRESSIONS[*expression]));
            end.class = Some(*expression);
        }
        Step::NoClass => {
            w.remove_event(Kind::Class, "c");
            end.class = None;
        }
        Step::Rule { selection, effect } => {
            let (class, cel) = SELECTIONS[*selection];
            let mut rule = selecting("r", class, cel, EFFECTS[*effect]);
            if end.rule.is_none() {
                rule["metadata"]["uid"] = json!(format!("uid-r-{n}"));
            } else {
                rule["metadata"]["uid"] = w.object(Kind::Rule, "r").unwrap()["metadata"]["uid"].clone();
            }
            w.event(Kind::Rule, rule);
            end.rule = Some((*selection, *effect));
        }
        Step::NoRule => {
            w.remove_event(Kind::Rule, "r");
            end.rule = None;
        }
        Step::Meddle { delete } => {
            for child in w.names_of_children("r") {
                if *delete {
                    w.remove_event(Kind::Rule, &child);
                } else {
                    let mut object: Value = w.object(Kind::Rule, &child).unwrap().clone();
                    object["spec"]["deviceSelector"]["pool"] = json!("elsewhere");
                    w.event(Kind::Rule, object);
                }
            }
        }
        Step::Restart => w.restart(),
        Step::Settle => w.settle(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn the_children_are_those_of_the_final_state_whatever_came_before(steps in prop::collection::vec(step(), 1..25)) {
        let mut w = World::new();
        w.planner.most_expanded = MOST;
        let mut end = End::default();
        for (n, step) in steps.iter().enumerate() {
            tell(&mut w, step, &mut end, n);
        }
        // A class that is missing changes nothing: bring it back, so that there is one answer.
        if end.class.is_none() {
            tell(&mut w, &Step::Class { expression: 0 }, &mut end, 100);
        }
        // Above the limit, what is there stays: let there be few enough.
        if end.children().len() > MOST {
            w.settle();
            tell(&mut w, &Step::NoSlice { pool: 0 }, &mut end, 101);
        }
        w.settle();
        // What a rule leaves that ended while the manager was away is the garbage collector's.
        let rule = w.object(Kind::Rule, "r").map(|rule| rule["metadata"]["uid"].clone());
        for child in w.names_of_children("r") {
            if Some(&w.object(Kind::Rule, &child).unwrap()["metadata"]["ownerReferences"][0]["uid"]) != rule.as_ref() {
                w.remove(Kind::Rule, &child);
            }
        }
        prop_assert_eq!(w.children("r"), end.children());
        let requests = w.requests.clone();
        w.restart();
        prop_assert_eq!(w.children("r"), end.children());
        for what in ["create_rule", "correct_rule", "delete_rule"] {
            prop_assert_eq!(w.requests.get(what), requests.get(what), "a restart changes nothing");
        }
    }
}
