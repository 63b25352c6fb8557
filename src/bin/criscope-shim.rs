//! The `criscope-shim` command. It is built from the crate of that name alone: nothing of the product is linked into it.

use std::process::ExitCode;

fn main() -> ExitCode {
    criscope_shim::main()
}
