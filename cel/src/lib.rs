//! The Kubernetes flavour of CEL for DRA devices: selectors and derived attributes.
//!
//! The `cel` crate parses; everything else is here, because the limits are part of the behaviour: a [`Compiler`] checks
//! types and turns an expression into a [`Program`], whose evaluation charges cost as Kubernetes' cel-go does and ends at the
//! limit. Devices are held in a small form with interned names, see [`Interner`] and [`DeviceBuilder`], and are read by
//! programs as they are.
//!
//! ```
//! use dra_cel::{CompileOptions, Compiler, DeviceBuilder, DeviceView, Interner, RawAttribute};
//!
//! let mut interner = Interner::new();
//! let mut builder = DeviceBuilder::new(&mut interner, "gpu.acme.dev");
//! builder.attribute("model", RawAttribute { string: Some("A100"), ..RawAttribute::default() });
//! let device = builder.build();
//!
//! let source = r#"device.attributes["gpu.acme.dev"].model == "A100""#;
//! let program = Compiler::new().compile(source, &CompileOptions::default(), &mut interner).unwrap();
//! assert_eq!(program.matches(DeviceView { device: &device, interner: &interner }), Ok(true));
//! ```
//!
//! Everything here is pure: no I/O, no clock, no global state. Nothing takes time or memory beyond what the cost limit and a
//! second limit on the work behind single calls allow.

mod ast;
mod check;
mod cost;
mod device;
mod error;
mod eval;
mod library;
mod map;
mod options;
mod parse;
mod plan;
mod program;
mod regexes;
mod semver;
mod types;
mod validate;
mod value;
pub mod wire;

pub use cost::COST_LIMIT;
pub use device::{
    AttributeValue, Device, DeviceBuilder, DeviceView, Interner, KeyId, NameId, RawAttribute, ReadDevice,
    TextList, VersionList,
};
pub use error::{CompileError, EvalError};
pub use options::{CompileOptions, Environment, Purpose};
pub use parse::{MAX_DEPTH, MAX_LENGTH};
pub use program::{Compiler, DerivedAttribute, Evaluation, Program};
pub use semver::Version;
pub use value::{Map, QuantityValue, Text, Value, VersionValue};
