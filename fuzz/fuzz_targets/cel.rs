//! Any text as an expression: an error or an answer, the same each time, within the limits of cost, time and memory
//! (the two last are libFuzzer's `-timeout` and `-rss_limit_mb`).

#![no_main]

use std::sync::LazyLock;

use dra_cel::wire::WireDevice;
use dra_cel::{COST_LIMIT, CompileOptions, Compiler, DeviceView, Environment, Interner, Purpose};
use libfuzzer_sys::fuzz_target;

static COMPILER: LazyLock<Compiler> = LazyLock::new(Compiler::new);

/// One value of each kind, so that expressions find something.
static DEVICE: LazyLock<WireDevice> = LazyLock::new(|| {
    serde_json::from_str(
        r#"{
            "driver": "a.dev", "allowMultipleAllocations": true,
            "attributes": {
                "s": {"string": "Vega-9000 XL"}, "i": {"int": 3}, "b": {"bool": true}, "v": {"version": "1.2.3-rc.1+b5"},
                "strs": {"strings": ["b", "a", "b"]}, "ints": {"ints": [3, 1, 2]}, "bools": {"bools": [true, false]},
                "vers": {"versions": ["1.0.0", "2.1.0"]}, "none": {"ints": []}, "ip": {"string": "10.20.30.40"},
                "min": {"int": -9223372036854775808}, "b.dev/x": {"int": 1}, "u": {"string": "ré\u0000\ud83d\ude80"}
            },
            "capacity": {"m": {"value": "80Gi"}, "huge": {"value": "9e60"}, "nano": {"value": "1n"}, "b.dev/slots": {"value": "4"}}
        }"#,
    )
    .expect("the device is well-formed")
});

fuzz_target!(|text: &str| {
    let modes = text.len();
    let options = CompileOptions {
        environment: if modes % 4 == 0 { Environment::New } else { Environment::Stored },
        purpose: if modes % 2 == 0 { Purpose::DerivedAttribute } else { Purpose::Selector },
        // Mostly less than Kubernetes' limit: otherwise all time goes into loops that run up to it.
        cost_limit: if modes % 8 < 7 { COST_LIMIT / 100 } else { COST_LIMIT },
        ..CompileOptions::default()
    };
    let mut interner = Interner::new();
    let device = DEVICE.build(&mut interner).expect("the capacities are quantities");
    let Ok(program) = COMPILER.compile(text, &options, &mut interner) else { return };
    let view = DeviceView { device: &device, interner: &interner };
    let evaluation = program.evaluate(view);
    assert!(evaluation.result.is_err() || evaluation.cost <= options.cost_limit);
    match options.purpose {
        Purpose::Selector => assert_eq!(program.matches(view), program.matches(view)),
        Purpose::DerivedAttribute => assert_eq!(program.derive(view), program.derive(view)),
    }
});
