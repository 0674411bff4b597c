//! Kernels from text: compiled by NVRTC once for each text and architecture, kept on disk and in the process.

#![allow(unsafe_code, reason = "calls NVRTC and loads what it made")]

use super::driver::{Gpu, failed, lock};
use crate::{Result, bail, err};
use cudarc::driver::{result, sys};
use cudarc::nvrtc;
use std::collections::HashMap;
use std::ffi::{CString, c_char};
use std::path::PathBuf;
use std::sync::OnceLock;

/// Loaded functions of a device, by name and text.
#[derive(Default)]
pub struct Modules(HashMap<(u128, &'static str), Function>);

/// A kernel that can be launched.
#[derive(Clone, Copy)]
pub struct Function(pub(super) sys::CUfunction);

// SAFETY: a handle that is valid on every thread and never freed.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

/// The kernel `name` of a source text.
///
/// # Errors
/// If NVRTC is not there or does not take the text.
pub fn function(gpu: &Gpu, text: &str, name: &'static str) -> Result<Function> {
    let key = (fingerprint(text.as_bytes()), name);
    let mut modules = lock(&gpu.modules);
    if let Some(f) = modules.0.get(&key) {
        return Ok(*f);
    }
    let image = image(text, key.0, gpu.arch)?;
    // SAFETY: the image ends with a zero byte, and the context is current.
    let module = unsafe { result::module::load_data(image.as_ptr().cast()) }.map_err(|e| failed("cuModuleLoadData", e))?;
    let c_name = CString::new(name).map_err(|_| err!(Runtime, "a kernel's name holds a zero byte"))?;
    // SAFETY: the module was just loaded and is never unloaded.
    let f = unsafe { result::module::get_function(module, c_name) }.map_err(|e| failed("cuModuleGetFunction", e))?;
    modules.0.insert(key, Function(f));
    Ok(Function(f))
}

/// FNV-1a in 128 bits: names files and entries, not a guard against forgery.
fn fingerprint(bytes: &[u8]) -> u128 {
    bytes.iter().fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d, |h, &b| {
        (h ^ u128::from(b)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b)
    })
}

/// The folder of compiled kernels; none if the user has no cache folder.
fn folder() -> Option<PathBuf> {
    let base = std::env::var_os("TORCHLIKE_KERNEL_CACHE").map(PathBuf::from).or_else(|| {
        let cache = std::env::var_os("XDG_CACHE_HOME").filter(|v| !v.is_empty()).map(PathBuf::from);
        let cache = cache.or_else(|| std::env::var_os("HOME").map(|h| PathBuf::from(h).join(".cache")));
        cache.map(|c| c.join("torchlike").join("kernels"))
    })?;
    std::fs::create_dir_all(&base).ok()?;
    Some(base)
}

/// The compiled text with a zero byte at its end, from disk if it is there.
fn image(text: &str, key: u128, (major, minor): (i32, i32)) -> Result<Vec<u8>> {
    let file = folder().map(|d| d.join(format!("{key:032x}-sm{major}{minor}-{}.ptx", env!("CARGO_PKG_VERSION"))));
    if let Some(bytes) = file.as_ref().and_then(|f| std::fs::read(f).ok())
        && bytes.last() == Some(&0)
    {
        return Ok(bytes);
    }
    let bytes = compile(text, major, minor)?;
    if let Some(file) = file {
        // Written aside and renamed, so that no other process reads half a file; failing to keep it is no error.
        let aside = file.with_extension(format!("{}.tmp", std::process::id()));
        if std::fs::write(&aside, &bytes).is_ok() {
            let _ = std::fs::rename(&aside, &file);
        }
    }
    Ok(bytes)
}

fn present() -> bool {
    static PRESENT: OnceLock<bool> = OnceLock::new();
    // SAFETY: only asks if the library can be opened.
    *PRESENT.get_or_init(|| std::panic::catch_unwind(|| unsafe { nvrtc::sys::is_culib_present() }).unwrap_or(false))
}

fn compile(text: &str, major: i32, minor: i32) -> Result<Vec<u8>> {
    if !present() {
        bail!(Runtime, "CUDA kernels need the NVRTC library (libnvrtc), which could not be found. Install the package nvidia-cuda-nvrtc or the CUDA toolkit.");
    }
    let source = CString::new(text).map_err(|_| err!(Runtime, "a kernel's text holds a zero byte"))?;
    let broken = |what: &str, e: nvrtc::result::NvrtcError| err!(Runtime, "NVRTC error in {what}: {e:?}");
    let program = nvrtc::result::create_program(&source, None).map_err(|e| broken("nvrtcCreateProgram", e))?;
    let options = [format!("--gpu-architecture=compute_{major}{minor}"), "--std=c++14".to_owned()];
    // SAFETY: the program was just created and is destroyed once, below.
    let made = unsafe {
        let made = match nvrtc::result::compile_program(program, &options) {
            Ok(()) => nvrtc::result::get_ptx(program).map_err(|e| broken("nvrtcGetPTX", e)),
            Err(e) => {
                let log = nvrtc::result::get_program_log(program).unwrap_or_default();
                Err(err!(Runtime, "NVRTC error: {e:?}\n{}", as_text(&log)))
            }
        };
        let _ = nvrtc::result::destroy_program(program);
        made
    }?;
    let mut bytes: Vec<u8> = made.into_iter().map(|c| c as u8).collect();
    if bytes.last() != Some(&0) {
        bytes.push(0);
    }
    Ok(bytes)
}

fn as_text(log: &[c_char]) -> String {
    let bytes: Vec<u8> = log.iter().map(|&c| c as u8).take_while(|&c| c != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}
