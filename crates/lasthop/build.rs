//! Leaves the tables for unwinding out of the released program: a tenth of it, and a panic ends it
//! without them, after its message. GNU ld and lld know how. Where the linker can, functions that
//! came out the same stand there once, and relocations are packed (DT_RELR: glibc 2.36, musl 1.2.4).

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

fn main() {
    let script = "release.ld";
    println!("cargo::rerun-if-changed={script}");
    let is = |name, value: &str| env::var(name).is_ok_and(|found| found == value);
    if is("PROFILE", "release") && is("CARGO_CFG_TARGET_OS", "linux") {
        let directory = env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
        println!("cargo::rustc-link-arg-bins=-Wl,-T,{directory}/{script}");
        println!("cargo::rustc-link-arg-bins=-Wl,--no-eh-frame-hdr");
        let fold = "-Wl,--icf=all";
        if linked_with(fold).is_some() {
            println!("cargo::rustc-link-arg-bins={fold}");
        }
        // The small program is for one router, whose C library is taken to know what this host's does.
        let pack = "-Wl,-z,pack-relative-relocs";
        let runs = |program: PathBuf| Command::new(program).status().is_ok_and(|s| s.success());
        if env::var_os("CARGO_FEATURE_VIEWS").is_none() && linked_with(pack).is_some_and(runs) {
            println!("cargo::rustc-link-arg-bins={pack}");
        }
    }
}

/// A program that does nothing, if the linker knows the option.
fn linked_with(option: &str) -> Option<PathBuf> {
    let var = |name| env::var_os(name).unwrap_or_default();
    let source = PathBuf::from(var("OUT_DIR")).join("probe.rs");
    fs::write(&source, "fn main() {}").ok()?;
    let program = source.with_extension("program");
    let linker = env::var("RUSTC_LINKER").map(|linker| format!("-Clinker={linker}"));
    let flags = env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    let linked = Command::new(var("RUSTC"))
        .args(linker.ok())
        .args(flags.split('\x1f').filter(|flag| !flag.is_empty()))
        .arg("--target")
        .arg(var("TARGET"))
        .args(["-C", &format!("link-arg={option}"), "-o"])
        .args([&program, &source])
        .stderr(Stdio::null())
        .status();
    linked.is_ok_and(|status| status.success()).then_some(program)
}
