//! Tells the linker how to make the extension module smaller, if it is one that knows how.

use std::env::{var, var_os};
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Functions of the same instructions become one. Nothing here or in Python compares addresses of functions that differ in kind.
const FOLD: &str = "-Wl,--icf=all";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=RUSTFLAGS");
    let linux = var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux");
    if linux && var_os("CARGO_FEATURE_PYTHON").is_some() && links(FOLD) {
        println!("cargo::rustc-link-arg-cdylib={FOLD}");
    }
}

/// Whether a library can be linked with an argument, by the linker that the compiler would take.
fn links(arg: &str) -> bool {
    let (Some(rustc), Some(out), Ok(target)) = (var_os("RUSTC"), var_os("OUT_DIR"), var("TARGET"))
    else {
        return false;
    };
    let out = PathBuf::from(out).join("linked");
    let mut call = Command::new(rustc);
    call.args([
        "-",
        "--crate-name=linked",
        "--crate-type=cdylib",
        "--target",
        &target,
    ]);
    call.arg("-o").arg(out).arg(format!("-Clink-arg={arg}"));
    if let Ok(linker) = var("RUSTC_LINKER") {
        call.arg(format!("-Clinker={linker}"));
    }
    if let Ok(flags) = var("CARGO_ENCODED_RUSTFLAGS") {
        call.args(flags.split('\x1f').filter(|f| !f.is_empty()));
    }
    call.stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    call.status().is_ok_and(|status| status.success())
}
