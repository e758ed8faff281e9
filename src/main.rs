//! The binary; see the library of the same name.

use std::process::ExitCode;

fn main() -> ExitCode {
    dra_controller_manager::main()
}
