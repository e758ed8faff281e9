//! Nanoseconds per device for simple selectors: `cargo bench -p dra-cel`.

use divan::Bencher;
use divan::counter::ItemsCount;
use dra_api::quantity::Quantity;
use dra_cel::{CompileOptions, Compiler, Device, DeviceBuilder, DeviceView, Interner, RawAttribute};

fn main() {
    divan::main();
}

const SELECTORS: [&str; 10] = [
    r#"device.driver == "gpu.acme.dev""#,
    r#"device.attributes["gpu.acme.dev"].model == "A100-80GB""#,
    r#"device.attributes["gpu.acme.dev"].index == 3"#,
    r#"device.attributes["gpu.acme.dev"].healthy"#,
    r#"device.driver == "gpu.acme.dev" && device.attributes["gpu.acme.dev"].model == "A100-80GB""#,
    r#"device.capacity["gpu.acme.dev"].memory.compareTo(quantity("40Gi")) >= 0"#,
    r#"device.attributes["gpu.acme.dev"].driverVersion.isGreaterThan(semver("550.0.0"))"#,
    r#"device.attributes["gpu.acme.dev"].model in ["A100-80GB", "H100-80GB"]"#,
    r#"device.attributes["gpu.acme.dev"].model.matches("^A100")"#,
    r#"has(device.attributes["gpu.acme.dev"].numa) && device.attributes["gpu.acme.dev"].numa == 0"#,
];

fn devices(interner: &mut Interner) -> Vec<Device> {
    (0..1000_i64)
        .map(|index| {
            let mut builder = DeviceBuilder::new(interner, "gpu.acme.dev");
            let uuid = format!("GPU-{index:032x}");
            let text = |string| RawAttribute { string: Some(string), ..RawAttribute::default() };
            builder
                .attribute("uuid", text(&uuid))
                .attribute("model", text(if index % 2 == 0 { "A100-80GB" } else { "A100-40GB" }))
                .attribute("architecture", text("Ampere"))
                .attribute("index", RawAttribute { int: Some(index % 8), ..RawAttribute::default() })
                .attribute("numa", RawAttribute { int: Some(index % 2), ..RawAttribute::default() })
                .attribute("healthy", RawAttribute { bool: Some(true), ..RawAttribute::default() })
                .attribute(
                    "driverVersion",
                    RawAttribute { version: Some("570.86.15"), ..RawAttribute::default() },
                )
                .attribute("resource.kubernetes.io/pcieRoot", text("pci0000:3a"))
                .capacity("memory", Quantity::parse("80Gi").unwrap_or(Quantity::ZERO));
            builder.build()
        })
        .collect()
}

/// A thousand devices for each selector.
#[divan::bench(args = SELECTORS)]
fn match_thousand(bencher: Bencher<'_, '_>, selector: &str) {
    let mut interner = Interner::new();
    let devices = devices(&mut interner);
    let program = match Compiler::new().compile(selector, &CompileOptions::default(), &mut interner) {
        Ok(program) => program,
        Err(error) => {
            eprintln!("{selector}: {error}");
            return;
        }
    };
    bencher.counter(ItemsCount::new(devices.len())).bench(|| {
        devices
            .iter()
            .filter(|device| program.matches(DeviceView { device: *device, interner: &interner }) == Ok(true))
            .count()
    });
}

/// What a selector takes before it can be used.
#[divan::bench(args = SELECTORS)]
fn compile(bencher: Bencher<'_, '_>, selector: &str) {
    let compiler = Compiler::new();
    let options = CompileOptions::default();
    bencher.bench(|| compiler.compile(selector, &options, &mut Interner::new()));
}
