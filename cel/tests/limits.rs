//! Nothing that an expression says takes unbounded time, memory or stack.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)] // helpers of tests are tests, too

use dra_cel::{
    CompileError, CompileOptions, Compiler, DerivedAttribute, DeviceBuilder, DeviceView, EvalError, Interner,
    MAX_LENGTH, Program, Purpose, RawAttribute,
};
use std::time::{Duration, Instant};

fn compile(source: &str) -> Result<Program, CompileError> {
    let options = CompileOptions { purpose: Purpose::DerivedAttribute, ..CompileOptions::default() };
    Compiler::new().compile(source, &options, &mut Interner::new())
}

fn derive(source: &str) -> Result<DerivedAttribute, EvalError> {
    let mut interner = Interner::new();
    let options = CompileOptions { purpose: Purpose::DerivedAttribute, ..CompileOptions::default() };
    let program = Compiler::new().compile(source, &options, &mut interner).unwrap();
    let mut builder = DeviceBuilder::new(&mut interner, "a.dev");
    builder.attribute("s", RawAttribute { string: Some("Vega"), ..RawAttribute::default() });
    let device = builder.build();
    program.derive(DeviceView { device: &device, interner: &interner })
}

/// Runs on a stack of the size that threads of the standard library have.
fn on_a_small_stack(run: impl FnOnce() + Send + 'static) {
    std::thread::Builder::new().stack_size(2 << 20).spawn(run).unwrap().join().unwrap();
}

/// Debug builds on a busy machine are slow; without the limits these take minutes to years.
const PATIENCE: Duration = Duration::from_mins(1);

fn in_time(source: &str) -> Result<DerivedAttribute, EvalError> {
    let start = Instant::now();
    let result = derive(source);
    assert!(start.elapsed() < PATIENCE, "{source} took {:?}", start.elapsed());
    result
}

/// `bind(y0, seed, bind(y1, y0 + y0, … use))`
fn doubled(times: usize, seed: &str, then: &str) -> String {
    let mut text = then.replace('Z', &format!("y{times}"));
    for level in (1..=times).rev() {
        let below = level - 1;
        text = format!("cel.bind(y{level}, y{below} + y{below}, {text})");
    }
    format!("cel.bind(y0, {seed}, {text})")
}

#[test]
fn quantities_with_huge_exponents_are_harmless() {
    for source in [
        r#"isQuantity("1e-99999999")"#,
        r#"isQuantity("1e99999999")"#,
        r#"quantity("1e-99999999") == quantity("1n")"#,
        r#"quantity("1e100000000").isLessThan(quantity("12345678901234567890123e99999999"))"#,
        r#"quantity("1e2147483647").compareTo(quantity("-1e2147483647")) == 1"#,
        r#"quantity("0e2000000000").asInteger() == 0"#,
    ] {
        assert_eq!(in_time(source), Ok(DerivedAttribute::Bool(true)), "{source}");
    }
    assert!(in_time(r#"quantity("1e100000000").add(1).isInteger()"#).is_err());
}

#[test]
fn long_loops_end_at_the_cost_limit() {
    for source in [
        "lists.range(900000).all(x, lists.range(900000).all(y, x + y >= 0))",
        "lists.range(400000).map(x, x).size()",
        "lists.range(10000000).size()",
        "lists.range(1000).all(a, lists.range(1000).all(b, lists.range(1000).all(c, true)))",
        r#"lists.range(900000).exists(x, "a".matches("b" + string(x)))"#,
    ] {
        assert_eq!(in_time(source), Err(EvalError::CostLimitExceeded), "{source}");
    }
}

#[test]
fn values_that_double_cheaply_are_refused_in_the_end() {
    for source in [
        doubled(60, "[1, 2]", "Z.size()"),
        doubled(40, r#""0123456789""#, "Z.size()"),
        doubled(18, "[1]", "Z.map(x, Z).map(l, l.map(y, Z).size()).size()"),
        doubled(14, r#""aaaaaaaaaa""#, r#"Z.replace("", Z).size()"#),
        doubled(14, r#""aaaaaaaaaa""#, r#"Z.split("").join(Z).size()"#),
    ] {
        assert_eq!(in_time(&source), Err(EvalError::CostLimitExceeded), "{source}");
    }
}

#[test]
fn searches_take_linear_time() {
    for search in [
        r#"Z.indexOf(Z.substring(0, 300000) + "b")"#,
        r#"Z.lastIndexOf("b" + Z.substring(0, 300000))"#,
        r#"Z.split(Z.substring(0, 300000) + "b").size() - 2"#,
        r#"Z.replace(Z.substring(0, 300000) + "b", "").size() - Z.size() - 1"#,
    ] {
        assert_eq!(in_time(&doubled(16, r#""aaaaaaaaaa""#, search)), Ok(DerivedAttribute::Int(-1)));
    }
}

#[test]
fn shared_parts_do_not_hide_the_work() {
    let mut nested = "y30 == x30".to_owned();
    for (name, level) in (0..30).rev().flat_map(|level| [("y", level), ("x", level)]) {
        let next = level + 1;
        nested = format!("cel.bind({name}{next}, [{name}{level}, {name}{level}], {nested})");
    }
    assert_eq!(
        in_time(&format!("cel.bind(y0, 1, cel.bind(x0, 1, {nested}))")),
        Err(EvalError::CostLimitExceeded)
    );
}

#[test]
fn patterns_are_bounded() {
    assert!(compile(r#""a".matches("((a{100}){100}){100}")"#).is_err());
    assert!(compile(r#""a".matches("(\\pL{1000}|\\pN{1000}){1}")"#).is_err());
    let source = doubled(12, r#""aaaaaaaaaa""#, r#"Z.matches("(a*)*b")"#);
    assert!(in_time(&source).is_ok());
}

#[test]
fn types_that_grow_exponentially_are_refused() {
    let mut source = "b20.size()".to_owned();
    for level in (1..=20).rev() {
        let below = level - 1;
        source = format!("cel.bind(b{level}, {{b{below}: b{below}}}, {source})");
    }
    let start = Instant::now();
    assert!(compile(&format!("cel.bind(b0, {{}}, {source})")).is_err());
    let mut source = "x".to_owned();
    for _ in 0..200 {
        source = format!("{source}.optMap(x, x)");
    }
    assert!(compile(&format!("cel.bind(x, optional.of(1), {source}.hasValue())")).is_err());
    assert!(start.elapsed() < PATIENCE);
}

#[test]
fn long_expressions_are_refused() {
    let source = format!("{} true", " ".repeat(MAX_LENGTH));
    assert!(matches!(compile(&source), Err(CompileError::TooLong { .. })));
}

#[test]
fn deep_expressions_do_not_overflow_the_stack() {
    on_a_small_stack(|| {
        let nest = |open: &str, middle: &str, close: &str, times: usize| {
            format!("{}{middle}{}", open.repeat(times), close.repeat(times))
        };
        for times in [100, 200, 249, 300, 1000, 2000, 5000] {
            for source in [
                nest("(", "1", ")", times),
                nest("[", "1", "]", times),
                nest("{1:", "1", "}", times),
                nest("!", "true", "", times),
                nest("!(", "true", ")", times),
                nest("-(", "1", ")", times),
                nest("-", "1", "", times),
                nest("1+", "1", "", times),
                nest("1+(", "1", ")", times),
                nest("true&&", "true", "", times),
                nest("true||(false&&", "true", ")", times),
                nest("true?1:", "1", "", times),
                nest("true?", "1", ":1", times),
                nest("dyn(", "1", ")", times),
                nest("[1].all(x,", "true", ")", times),
                nest("[1].map(x,", "1", ")", times),
                nest("cel.bind(x,1,", "1", ")", times),
                format!("device{}", ".x".repeat(times)),
                format!("dyn(1){}", "[0]".repeat(times)),
                format!("dyn(1){}", ".?x".repeat(times)),
                format!("[1]{}", ".reverse()".repeat(times)),
                format!("[1]{}", ".map(x,x)".repeat(times)),
                format!("[1]{}", ".sortBy(x,x)".repeat(times)),
            ] {
                let mut interner = Interner::new();
                let options =
                    CompileOptions { purpose: Purpose::DerivedAttribute, ..CompileOptions::default() };
                if let Ok(program) = Compiler::new().compile(&source, &options, &mut interner) {
                    let device = DeviceBuilder::new(&mut interner, "a.dev").build();
                    let _ = program.evaluate(DeviceView { device: &device, interner: &interner });
                }
            }
        }
    });
}
