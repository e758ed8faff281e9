//! Objects in files, as `kubectl get -o yaml` and people write them: YAML with any number of documents, JSON, lists.

use std::{
    fmt, fs,
    io::Read as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, bail};
use dra_inhabitants::cluster::{at, set, text};
use serde_json::{Value, json};

/// Where an object stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// File, or `standard input`.
    pub(crate) file: String,
    /// Number of the document in it, from 1; those without content do not count.
    pub(crate) document: usize,
    /// Position in `items` when the document is a list.
    pub(crate) item: Option<usize>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, document {}", self.file, self.document)?;
        self.item.map_or(Ok(()), |item| write!(f, ", items[{item}]"))
    }
}

/// An object that was found.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) place: Place,
    /// A JSON object; nothing else is known of it.
    pub(crate) object: Value,
}

/// Something that is no object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) place: Place,
    /// What is wrong, with field or line.
    pub(crate) what: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.what)
    }
}

/// What files hold, in their order.
#[derive(Debug, Default)]
pub(crate) struct Input {
    pub(crate) objects: Vec<Found>,
    pub(crate) problems: Vec<Problem>,
}

impl Input {
    /// Reads files, folders (their `.yaml`, `.yml` and `.json` files by name, not what lies deeper) and `-` for standard
    /// input.
    ///
    /// # Errors
    /// Something cannot be read, or a folder has no such file. What is wrong inside of files is no error.
    pub(crate) fn read(paths: &[PathBuf]) -> Result<Self> {
        let mut input = Self::default();
        for path in paths {
            if path.as_os_str() == "-" {
                let mut text = String::new();
                std::io::stdin().read_to_string(&mut text).context("cannot read standard input")?;
                input.add("standard input", &text);
            } else if path.is_dir() {
                let files = files_in(path)?;
                if files.is_empty() {
                    bail!("{} has no .yaml, .yml or .json files", path.display());
                }
                for file in files {
                    input.add_file(&file)?;
                }
            } else {
                input.add_file(path)?;
            }
        }
        Ok(input)
    }

    fn add_file(&mut self, path: &Path) -> Result<()> {
        let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        self.add(&path.display().to_string(), &text);
        Ok(())
    }

    /// Reads one text.
    pub(crate) fn add(&mut self, file: &str, text: &str) {
        let place = |document| Place { file: file.to_owned(), document, item: None };
        let begins_as_json = text.trim_start().starts_with(['{', '[']);
        if begins_as_json {
            // Much faster than reading it as YAML, which it is, too.
            let values: Result<Vec<Value>, _> =
                serde_json::Deserializer::from_str(text).into_iter().collect();
            if let Ok(values) = values {
                for (index, value) in values.into_iter().enumerate() {
                    self.document(place(index.saturating_add(1)), value);
                }
                return;
            }
        }
        for (index, part) in documents(text).into_iter().enumerate() {
            let place = place(index.saturating_add(1));
            if let Some((list, items)) = part.parse_large_list() {
                self.items(&place, items, &list);
                continue;
            }
            match part.parse() {
                Ok(value) => self.document(place, value),
                Err(what) => match part.items() {
                    // One bad item must not hide the others.
                    Some(items) => self.salvage(&place, &items),
                    None => self.problems.push(Problem { place, what }),
                },
            }
        }
    }

    fn salvage(&mut self, list: &Place, items: &[Part<'_>]) {
        for (index, item) in items.iter().enumerate() {
            let place = Place { item: Some(index), ..list.clone() };
            match item.parse() {
                Ok(Value::Array(mut one)) => {
                    for object in one.drain(..) {
                        self.object(place.clone(), object);
                    }
                }
                Ok(_) => self.problems.push(Problem { place, what: "is no element of a list".to_owned() }),
                Err(what) => self.problems.push(Problem { place, what }),
            }
        }
    }

    /// Takes a list apart.
    fn document(&mut self, place: Place, mut value: Value) {
        match &mut value {
            Value::Null => {}
            Value::Array(items) => {
                let items = std::mem::take(items);
                self.items(&place, items, &Value::Null);
            }
            Value::Object(fields) if is_list(fields) => {
                let Some(Value::Array(items)) = fields.remove("items") else { return };
                self.items(&place, items, &value);
            }
            _ => self.object(place, value),
        }
    }

    /// Elements of a list that is not called `List` do not say what they are.
    fn items(&mut self, place: &Place, items: Vec<Value>, list: &Value) {
        let kind = text(list, &["kind"]).strip_suffix("List").unwrap_or_default();
        for (index, mut item) in items.into_iter().enumerate() {
            if !kind.is_empty() && item.is_object() {
                for (field, value) in
                    [("kind", json!(kind)), ("apiVersion", at(list, &["apiVersion"]).clone())]
                {
                    if at(&item, &[field]).is_null() {
                        set(&mut item, field, value);
                    }
                }
            }
            self.object(Place { item: Some(index), ..place.clone() }, item);
        }
    }

    fn object(&mut self, place: Place, object: Value) {
        if object.is_object() {
            self.objects.push(Found { place, object });
        } else {
            self.problems.push(Problem { place, what: "is no object".to_owned() });
        }
    }
}

fn is_list(fields: &serde_json::Map<String, Value>) -> bool {
    let kind = fields.get("kind").and_then(Value::as_str).unwrap_or_default();
    (kind.is_empty() || kind.ends_with("List")) && fields.get("items").is_some_and(Value::is_array)
}

fn files_in(folder: &Path) -> Result<Vec<PathBuf>> {
    let read = || -> std::io::Result<Vec<PathBuf>> {
        let mut files = Vec::new();
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            let known = path.extension().is_some_and(|e| e == "yaml" || e == "yml" || e == "json");
            if known && path.is_file() {
                files.push(path);
            }
        }
        files.sort();
        Ok(files)
    };
    read().with_context(|| format!("cannot read {}", folder.display()))
}

/// Lists from this size on are read on all cores.
const LARGE: usize = 1 << 20;

/// A piece of a YAML text.
#[derive(Clone, Copy, Debug)]
struct Part<'a> {
    text: &'a str,
    /// Lines of the file before it.
    before: usize,
}

impl Part<'_> {
    fn parse(&self) -> Result<Value, String> {
        // The limits are for documents of people; a cluster is larger. Those on anchors and depth stay, so that a small
        // text cannot become a large one.
        let mut budget = serde_saphyr::Budget::default();
        budget.max_events = usize::MAX;
        budget.max_nodes = usize::MAX;
        budget.max_total_scalar_bytes = usize::MAX;
        budget.max_reader_input_bytes = None;
        let options =
            serde_saphyr::options! { budget: Some(budget), with_snippet: false, strict_booleans: true };
        serde_saphyr::from_str_with_options(self.text, options).map_err(|error| {
            let text = error.to_string();
            let first = without_position(text.lines().next().unwrap_or_default());
            match error.location().and_then(|l| usize::try_from(l.line()).ok()) {
                Some(line) => format!("line {}: {first}", self.before.saturating_add(line)),
                None => first.to_owned(),
            }
        })
    }

    /// A large list as kubectl writes it, without and with its elements. None if it is not large or anything about it is
    /// unusual; then it is read as a whole.
    fn parse_large_list(&self) -> Option<(Value, Vec<Value>)> {
        if self.text.len() < LARGE {
            return None;
        }
        let parts = self.items()?;
        let inside: usize = parts.iter().map(|part| part.text.len()).sum();
        let begin = self
            .text
            .find("\nitems:")
            .map(|at| at.saturating_add(1))
            .or(self.text.starts_with("items:").then_some(0))?;
        let first = self.text.get(begin..)?.find('\n')?.saturating_add(begin).saturating_add(1);
        let after = first.saturating_add(inside);
        let outside = format!("{}{}", self.text.get(..begin)?, self.text.get(after..)?);
        let list = Part { text: &outside, before: 0 }.parse().ok()?;
        let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let share = parts.len().div_ceil(threads).max(1);
        let read: Vec<Option<Vec<Value>>> = std::thread::scope(|scope| {
            let readers: Vec<_> = parts
                .chunks(share)
                .map(|chunk| {
                    scope.spawn(|| chunk.iter().map(Self::parse_element).collect::<Option<Vec<Value>>>())
                })
                .collect();
            readers.into_iter().map(|reader| reader.join().ok().flatten()).collect()
        });
        let items = read.into_iter().collect::<Option<Vec<Vec<Value>>>>()?;
        Some((list, items.into_iter().flatten().collect()))
    }

    /// The one element of a list of one.
    fn parse_element(&self) -> Option<Value> {
        match self.parse() {
            Ok(Value::Array(mut one)) if one.len() == 1 => one.pop(),
            _ => None,
        }
    }

    /// The elements of `items`, each as a list of one, if this looks like a list as kubectl writes it.
    fn items(&self) -> Option<Vec<Self>> {
        let mut starts: Vec<(usize, usize)> = Vec::new();
        let mut end = None;
        let (mut inside, mut position) = (false, 0);
        for (number, line) in self.text.split_inclusive('\n').enumerate() {
            if !inside {
                inside = line.trim_end() == "items:";
            } else if end.is_none() {
                if line.starts_with("- ") {
                    starts.push((position, number));
                } else if !line.starts_with([' ', '\n', '\r', '#']) {
                    end = Some(position);
                }
            }
            position = position.saturating_add(line.len());
        }
        let ends = starts.iter().skip(1).map(|(at, _)| *at).chain([end.unwrap_or(position)]);
        let items: Vec<Self> = starts
            .iter()
            .zip(ends)
            .filter_map(|(&(from, line), to)| {
                let before = self.before.saturating_add(line);
                Some(Self { text: self.text.get(from..to)?, before })
            })
            .collect();
        (!items.is_empty()).then_some(items)
    }

    fn has_content(&self) -> bool {
        self.text.lines().any(|line| {
            let line = line.trim();
            !line.is_empty() && !line.starts_with(['#', '%'])
        })
    }
}

/// A message without the position at its end, which is one in a part of the file.
pub(crate) fn without_position(message: &str) -> &str {
    let message = message.trim_end_matches(':');
    message.rfind(" at line ").and_then(|at| message.get(..at)).unwrap_or(message)
}

/// The documents of a YAML text: `---` and `...` at the beginning of a line are markers wherever they stand.
fn documents(text: &str) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    let (mut begin, mut before, mut position) = (0, 0, 0);
    for (number, line) in text.split_inclusive('\n').enumerate() {
        let rest = line.strip_prefix("---").or_else(|| line.strip_prefix("..."));
        let is_marker = rest.is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '\r', '\n']));
        if is_marker {
            parts.extend(text.get(begin..position).map(|text| Part { text, before }));
            // What follows on the same line belongs to the document.
            let content = rest.is_some_and(|rest| !rest.trim().is_empty() && !rest.trim().starts_with('#'));
            let after = position.saturating_add(if content { 3 } else { line.len() });
            (begin, before) = (after, number.saturating_add(usize::from(!content)));
        }
        position = position.saturating_add(line.len());
    }
    parts.extend(text.get(begin..).map(|text| Part { text, before }));
    parts.retain(Part::has_content);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (Vec<String>, Vec<String>) {
        let mut input = Input::default();
        input.add("f.yaml", text);
        let names = input
            .objects
            .iter()
            .map(|f| format!("{} {}", f.place, dra_inhabitants::cluster::name(&f.object)));
        (names.collect(), input.problems.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn documents_lists_and_json_are_all_taken() {
        let (found, problems) = read(
            "# a comment\n---\nkind: Pod\nmetadata: {name: a}\n---\n# nothing\n---\nkind: List\nitems:\n- kind: Pod\n  \
             metadata: {name: b}\n- {kind: Pod, metadata: {name: c}}\n--- {kind: Pod, metadata: {name: d}}\n...\n",
        );
        assert_eq!(
            found,
            [
                "f.yaml, document 1 a",
                "f.yaml, document 2, items[0] b",
                "f.yaml, document 2, items[1] c",
                "f.yaml, document 3 d"
            ]
        );
        assert!(problems.is_empty(), "{problems:?}");
        let (found, _) =
            read("{\"metadata\": {\"name\": \"a\"}}\n{\"items\": [{\"metadata\": {\"name\": \"b\"}}]}");
        assert_eq!(found, ["f.yaml, document 1 a", "f.yaml, document 2, items[0] b"]);
        let (found, _) = read("{kind: Pod, metadata: {name: flow}}");
        assert_eq!(found, ["f.yaml, document 1 flow"]);
    }

    #[test]
    fn elements_of_typed_lists_have_the_kind_of_the_list() {
        let mut input = Input::default();
        input.add(
            "f",
            "{\"kind\": \"PodList\", \"apiVersion\": \"v1\", \"items\": [{\"metadata\": {\"name\": \"a\"}}]}",
        );
        let object = &input.objects[0].object;
        assert_eq!((text(object, &["kind"]), text(object, &["apiVersion"])), ("Pod", "v1"));
    }

    #[test]
    fn a_broken_document_is_named_with_its_line_and_hides_no_other() {
        let (found, problems) = read(
            "kind: Pod\nmetadata: {name: a}\n---\nkind: Pod\n  metadata: [\n---\nmetadata: {name: c}\n---\n7\n",
        );
        assert_eq!(found, ["f.yaml, document 1 a", "f.yaml, document 3 c"]);
        assert_eq!(problems.len(), 2);
        assert!(problems[0].starts_with("f.yaml, document 2: line 5: "), "{problems:?}");
        assert_eq!(problems[1], "f.yaml, document 4: is no object");
    }

    #[test]
    fn a_broken_element_of_a_list_hides_no_other() {
        let (found, problems) = read(
            "apiVersion: v1\nitems:\n- metadata:\n    name: a\n- metadata: {name: b\n  spec: ]\n- metadata:\n    name: c\nkind: \
             List\n",
        );
        assert_eq!(found, ["f.yaml, document 1, items[0] a", "f.yaml, document 1, items[2] c"]);
        assert_eq!(problems.len(), 1);
        assert!(problems[0].starts_with("f.yaml, document 1, items[1]: line "), "{problems:?}");
    }

    #[test]
    fn a_large_list_is_read_in_parts_as_it_is_read_as_a_whole() {
        let item = |n: usize| {
            format!("- kind: Pod\n  metadata:\n    name: pod-{n}\n    text: {}\n", "x".repeat(1000))
        };
        let items: String = (0..1200).map(item).collect();
        let whole =
            format!("apiVersion: v1\nitems:\n{items}kind: List\nmetadata:\n  resourceVersion: \"\"\n");
        assert!(whole.len() > LARGE);
        let [part] = &documents(&whole)[..] else { panic!("one document") };
        let (list, items) = part.parse_large_list().unwrap();
        assert_eq!(list, json!({"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": ""}}));
        assert_eq!(items.len(), 1200);
        assert_eq!(part.parse().unwrap().get("items"), Some(&Value::Array(items)));
        let (found, problems) = read(&whole.replace("name: pod-7\n", "name: [\n"));
        assert_eq!((found.len(), problems.len()), (1199, 1));
        assert!(problems[0].starts_with("f.yaml, document 1, items[7]: line "), "{problems:?}");
    }

    #[test]
    fn a_text_that_unfolds_without_end_is_refused() {
        let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for n in 1..12 {
            let all = vec![format!("*a{}", n - 1); 10].join(", ");
            text = format!("{text}a{n}: &a{n} [{all}]\n");
        }
        let (found, problems) = read(&text);
        assert_eq!((found.len(), problems.len()), (0, 1));
    }
}
