//! Leaves the tables for unwinding out of the released program: a tenth of it, and a panic ends it
//! without them, after its message. GNU ld and lld know how.

use std::env;

fn main() {
    let script = "release.ld";
    println!("cargo::rerun-if-changed={script}");
    let is = |name, value: &str| env::var(name).is_ok_and(|found| found == value);
    if is("PROFILE", "release") && is("CARGO_CFG_TARGET_OS", "linux") {
        let directory = env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
        println!("cargo::rustc-link-arg-bins=-Wl,-T,{directory}/{script}");
        println!("cargo::rustc-link-arg-bins=-Wl,--no-eh-frame-hdr");
    }
}
