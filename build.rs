//! Tells the linker how to make the extension module smaller, if it knows how and the system runs what it makes then.

use std::env::{var, var_os};
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Functions of the same instructions become one, as nothing asks whether two functions have one address; and the places of
/// addresses are bits rather than 24 bytes each (glibc 2.36 on; wheels say so by their tag).
const ARGS: [&str; 2] = ["-Wl,--icf=all", "-Wl,-z,pack-relative-relocs"];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let linux = var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux");
    if !linux || var_os("CARGO_FEATURE_PYTHON").is_none() || var_os("HOST") != var_os("TARGET") {
        return;
    }
    for arg in ARGS
        .into_iter()
        .filter(|arg| runs_with(arg).unwrap_or(false))
    {
        println!("cargo::rustc-link-arg-cdylib={arg}");
    }
}

/// Whether a program that was linked with an argument, as the compiler would link it, can be run.
fn runs_with(arg: &str) -> Option<bool> {
    let folder = PathBuf::from(var_os("OUT_DIR")?);
    let (source, program) = (folder.join("linked.rs"), folder.join("linked"));
    std::fs::write(&source, "fn main() {}").ok()?;
    let mut compile = Command::new(var_os("RUSTC")?);
    if let Ok(linker) = var("RUSTC_LINKER") {
        compile.arg(format!("-Clinker={linker}"));
    }
    if let Ok(flags) = var("CARGO_ENCODED_RUSTFLAGS") {
        compile.args(flags.split('\x1f').filter(|flag| !flag.is_empty()));
    }
    compile
        .arg(format!("-Clink-arg={arg}"))
        .arg(&source)
        .arg("-o")
        .arg(&program);
    Some(succeeds(&mut compile)? && succeeds(&mut Command::new(&program))?)
}

/// Whether a command does, whatever it has to say.
fn succeeds(command: &mut Command) -> Option<bool> {
    let quiet = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    Some(quiet.status().ok()?.success())
}
