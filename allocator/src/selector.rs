//! Selectors and derived attributes: expressions compiled once and evaluated on published devices.
//!
//! Programs and devices refer to names by number, so both are made against one [`Interner`] that an inventory and its
//! snapshots share.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use dra_cel::{
    CompileOptions, Compiler, DerivedAttribute, DeviceView, Interner, KeyId, NameId, Program, Purpose,
};

use crate::inventory::slice::Slice;
use crate::objects::{DeviceAttribute, DeviceSelector};

/// More compiled expressions than this are not kept; classes keep theirs in any case.
const MOST_KEPT: usize = 4096;

/// A compiled expression, or why it does not compile.
#[derive(Debug)]
struct Compiled {
    program: Result<Program, String>,
    /// The names must be at least this new.
    names: u64,
}

/// The names that expressions and devices refer to. They only become more, so newer ones serve as well as older ones,
/// and who evaluates keeps a copy instead of a lock.
#[derive(Clone, Debug, Default)]
struct Names {
    interner: Arc<Interner>,
    /// Counts changes.
    age: u64,
}

/// Compiled expressions, and the names that they and devices refer to.
#[derive(Debug, Default)]
#[allow(clippy::type_complexity, reason = "the key is explained where it stands")]
pub(crate) struct Programs {
    /// Made when it is first needed, which takes a while.
    compiler: OnceLock<Compiler>,
    names: Mutex<Names>,
    /// By expression, and whether it derives an attribute.
    kept: Mutex<BTreeMap<(Box<str>, bool), Arc<Compiled>>>,
}

/// A selector; without an expression it is of a kind that is not known.
#[derive(Clone, Debug)]
pub(crate) struct Selector {
    compiled: Option<Arc<Compiled>>,
}

/// Why an expression has no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    Empty,
    Compile(String),
    Evaluate(String),
}

/// Evaluates expressions during one call.
#[derive(Debug)]
pub(crate) struct Evaluation<'a> {
    programs: &'a Programs,
    names: Names,
}

impl Programs {
    pub(crate) fn selector(&self, object: &DeviceSelector) -> Selector {
        Selector { compiled: object.cel.as_ref().map(|cel| self.compile(&cel.expression, Purpose::Selector)) }
    }

    fn compile(&self, expression: &str, purpose: Purpose) -> Arc<Compiled> {
        // What is kept stays right when a thread panicked in between.
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (expression.into(), purpose == Purpose::DerivedAttribute);
        if let Some(known) = kept.get(&key) {
            return known.clone();
        }
        if kept.len() >= MOST_KEPT {
            kept.clear();
        }
        let options = CompileOptions { purpose, ..CompileOptions::default() };
        let compiler = self.compiler.get_or_init(Compiler::new);
        let (program, names) = self.change_names(|interner| compiler.compile(expression, &options, interner));
        let compiled = Arc::new(Compiled { program: program.map_err(|error| error.to_string()), names });
        kept.insert(key, compiled.clone());
        compiled
    }

    /// Lets `change` add names; also says how new they are then.
    fn change_names<T>(&self, change: impl FnOnce(&mut Interner) -> T) -> (T, u64) {
        let mut names = self.lock_names();
        names.age += 1;
        (change(Arc::make_mut(&mut names.interner)), names.age)
    }

    /// The number of a driver.
    pub(crate) fn driver(&self, driver: &str) -> NameId {
        let known = self.lock_names().interner.find_name(driver);
        known.unwrap_or_else(|| self.change_names(|interner| interner.name(driver)).0)
    }

    /// The number of an attribute or capacity of a driver.
    pub(crate) fn key(&self, driver: NameId, name: &str) -> KeyId {
        let find = |interner: &Interner| match name.split_once('/') {
            Some((domain, name)) => interner.find_key(interner.find_name(domain)?, interner.find_name(name)?),
            None => interner.find_key(driver, interner.find_name(name)?),
        };
        let known = find(&self.lock_names().interner);
        known.unwrap_or_else(|| self.change_names(|interner| interner.qualified_key(driver, name)).0)
    }

    pub(crate) fn evaluation(&self) -> Evaluation<'_> {
        Evaluation { programs: self, names: self.lock_names().clone() }
    }

    /// How new the names are.
    pub(crate) fn age(&self) -> u64 {
        self.lock_names().age
    }

    fn lock_names(&self) -> MutexGuard<'_, Names> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Selector {
    /// Why it is true of no device at all, if so.
    pub(crate) fn fault(&self) -> Option<Failure> {
        match &self.compiled {
            None => Some(Failure::Empty),
            Some(compiled) => compiled.program.as_ref().err().cloned().map(Failure::Compile),
        }
    }
}

impl Evaluation<'_> {
    fn with<T>(
        &mut self,
        compiled: &Compiled,
        slice: &Slice,
        device: usize,
        ask: impl FnOnce(DeviceView<'_>) -> T,
    ) -> Option<T> {
        if !slice.has_details() {
            // Nobody needs the old names while new ones are added.
            self.names = Names::default();
        }
        if self.names.age < slice.details().names.max(compiled.names) {
            self.names = self.programs.lock_names().clone();
        }
        let device = slice.device(device)?;
        Some(ask(DeviceView { device: &device, interner: &self.names.interner }))
    }

    /// Whether a selector is true of a device.
    ///
    /// # Errors
    ///
    /// It does not compile, or fails on the device.
    pub(crate) fn matches(
        &mut self,
        selector: &Selector,
        slice: &Slice,
        device: usize,
    ) -> Result<bool, Failure> {
        let Some(compiled) = &selector.compiled else { return Err(Failure::Empty) };
        let program = compiled.program.as_ref().map_err(|error| Failure::Compile(error.clone()))?;
        self.with(compiled, slice, device, |view| program.matches(view))
            .unwrap_or(Ok(false))
            .map_err(|error| Failure::Evaluate(error.to_string()))
    }

    /// Whether a selector is true of a device, and what it cost to find that out.
    ///
    /// # Errors
    ///
    /// It does not compile, or fails on the device.
    pub(crate) fn matches_at_cost(
        &mut self,
        selector: &Selector,
        slice: &Slice,
        device: usize,
    ) -> (Result<bool, Failure>, u64) {
        let Some(compiled) = &selector.compiled else { return (Err(Failure::Empty), 0) };
        let program = match &compiled.program {
            Ok(program) => program,
            Err(error) => return (Err(Failure::Compile(error.clone())), 0),
        };
        let (matched, cost) = self
            .with(compiled, slice, device, |view| program.matches_at_cost(view))
            .unwrap_or((Ok(false), 0));
        (matched.map_err(|error| Failure::Evaluate(error.to_string())), cost)
    }

    /// The attribute that an expression derives from a device.
    ///
    /// # Errors
    ///
    /// It does not compile, fails on the device, or its value cannot be an attribute.
    pub(crate) fn derive(
        &mut self,
        expression: &str,
        slice: &Slice,
        device: usize,
    ) -> Result<DeviceAttribute, Failure> {
        let compiled = self.programs.compile(expression, Purpose::DerivedAttribute);
        let program = compiled.program.as_ref().map_err(|error| Failure::Compile(error.clone()))?;
        let derived = self
            .with(&compiled, slice, device, |view| program.derive(view))
            .unwrap_or(Ok(DerivedAttribute::Strings(Vec::new())))
            .map_err(|error| Failure::Evaluate(error.to_string()))?;
        let mut attribute = DeviceAttribute::default();
        match derived {
            DerivedAttribute::Int(value) => attribute.int = Some(value),
            DerivedAttribute::Bool(value) => attribute.bool = Some(value),
            DerivedAttribute::String(text) => attribute.string = Some(text),
            DerivedAttribute::Version(text) => attribute.version = Some(text),
            DerivedAttribute::Ints(values) => attribute.ints = Some(values),
            DerivedAttribute::Bools(values) => attribute.bools = Some(values),
            DerivedAttribute::Strings(texts) => attribute.strings = Some(texts),
            DerivedAttribute::Versions(texts) => attribute.versions = Some(texts),
        }
        Ok(attribute)
    }
}

/// How to guard a look-up, as Kubernetes says it (`cel/errors.go`).
const HINT: &str = ". consider using CEL optional chaining (.? followed by orValue()) or guarding the check with has() \
                    for optional fields";

impl Failure {
    /// The error of a selector of `owner`, a class or a claim.
    pub(crate) fn describe(&self, owner: &str, position: usize, device: &str) -> String {
        match self {
            Self::Empty => {
                format!("{owner}: selector #{position}: CEL expression empty (unsupported selector type?)")
            }
            Self::Compile(error) => format!("{owner}: selector #{position}: CEL compile error: {error}"),
            Self::Evaluate(error) => {
                let hint = if error.contains("no such key:") { HINT } else { "" };
                format!("{owner}: selector #{position} on device {device}: CEL runtime error: {error}{hint}")
            }
        }
    }

    /// The error of a derived attribute.
    pub(crate) fn describe_derived(&self, name: &str, device: &str) -> String {
        match self {
            Self::Empty => format!("compile derived attribute {name} failed: no expression"),
            Self::Compile(error) => format!("compile derived attribute {name} failed: {error}"),
            Self::Evaluate(error) => {
                format!("evaluate derived attribute {name} on device {device} failed: {error}")
            }
        }
    }
}
