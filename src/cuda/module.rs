//! Kernels from text: compiled by NVRTC once for each text and architecture, kept on disk and in the process.

#![allow(unsafe_code, reason = "calls NVRTC and loads what it made")]

use super::driver::{self, Gpu, failed, lock};
use super::source::Text;
use crate::{Result, bail, err};
use cudarc::driver::{result, sys};
use cudarc::nvrtc;
use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::ffi::{CString, c_char};
use std::hash::{Hash as _, Hasher as _};
use std::path::PathBuf;
use std::sync::OnceLock;

/// Loaded functions of a device: by name, file and a hash of what the file is compiled for.
#[derive(Default)]
pub struct Modules(HashMap<(&'static str, usize, u64), Function>);

/// A kernel that can be launched.
#[derive(Clone, Copy)]
pub struct Function(pub(super) sys::CUfunction);

// SAFETY: a handle that is valid on every thread and never freed.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

/// The kernel `name` of a file, compiled after a head.
///
/// # Errors
/// If NVRTC is not there or does not take the text.
pub fn function(gpu: &Gpu, head: &str, file: &'static str, name: &'static str) -> Result<Function> {
    let mut hash = DefaultHasher::new();
    head.hash(&mut hash);
    let key = (name, file.as_ptr() as usize, hash.finish());
    let mut modules = lock(&gpu.modules);
    if let Some(f) = modules.0.get(&key) {
        return Ok(*f);
    }
    let head = head.to_owned();
    let text = Text { head, file }.whole();
    let image = image(&text, fingerprint(text.as_bytes()), gpu.arch)?;
    // SAFETY: the image ends with a zero byte, and the context is current.
    let module = unsafe { result::module::load_data(image.as_ptr().cast()) }
        .map_err(|e| failed("cuModuleLoadData", e))?;
    let c_name =
        CString::new(name).map_err(|_| err!(Runtime, "a kernel's name holds a zero byte"))?;
    // SAFETY: the module was just loaded and is never unloaded.
    let f = unsafe { result::module::get_function(module, c_name) }
        .map_err(|e| failed("cuModuleGetFunction", e))?;
    modules.0.insert(key, Function(f));
    Ok(Function(f))
}

/// FNV-1a in 128 bits: names files and entries, not a guard against forgery.
fn fingerprint(bytes: &[u8]) -> u128 {
    bytes
        .iter()
        .fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d, |h, &b| {
            (h ^ u128::from(b)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b)
        })
}

/// The folder of compiled kernels; none if the user has no cache folder.
fn folder() -> Option<PathBuf> {
    let base = std::env::var_os("TORCHLIKE_KERNEL_CACHE")
        .map(PathBuf::from)
        .or_else(|| {
            let cache = std::env::var_os("XDG_CACHE_HOME")
                .filter(|v| !v.is_empty())
                .map(PathBuf::from);
            let cache =
                cache.or_else(|| std::env::var_os("HOME").map(|h| PathBuf::from(h).join(".cache")));
            cache.map(|c| c.join("torchlike").join("kernels"))
        })?;
    std::fs::create_dir_all(&base).ok()?;
    Some(base)
}

/// The compiled text, from disk if it is there.
fn image(text: &str, key: u128, (major, minor): (i32, i32)) -> Result<Vec<u8>> {
    let file = folder().map(|d| {
        d.join(format!(
            "{key:032x}-sm{major}{minor}-{}.bin",
            env!("CARGO_PKG_VERSION")
        ))
    });
    if let Some(bytes) = file.as_ref().and_then(|f| std::fs::read(f).ok())
        && !bytes.is_empty()
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
    driver::opens(&PRESENT, || unsafe { nvrtc::sys::is_culib_present() })
}

fn compile(text: &str, major: i32, minor: i32) -> Result<Vec<u8>> {
    if !present() {
        bail!(
            Runtime,
            "CUDA kernels need the NVRTC library (libnvrtc), which could not be found. Install the package nvidia-cuda-nvrtc or the CUDA toolkit."
        );
    }
    // Machine code runs whatever PTX the driver understands; only a GPU newer than the library needs PTX.
    match build(text, &format!("--gpu-architecture=sm_{major}{minor}"), true) {
        Err(Failure::Option) => match build(text, "--gpu-architecture=compute_80", false) {
            Ok(bytes) => Ok(bytes),
            Err(Failure::Option) => bail!(
                Runtime,
                "this NVRTC library is too old for a GPU of architecture {major}.{minor}"
            ),
            Err(Failure::Other(e)) => Err(e),
        },
        Ok(bytes) => Ok(bytes),
        Err(Failure::Other(e)) => Err(e),
    }
}

/// Why NVRTC did not compile.
enum Failure {
    /// It does not know the architecture.
    Option,
    Other(crate::Error),
}

fn broken(what: &str, e: nvrtc::result::NvrtcError) -> Failure {
    Failure::Other(err!(Runtime, "NVRTC error in {what}: {e:?}"))
}

/// Machine code, or PTX with a zero byte at its end.
fn build(text: &str, architecture: &str, machine: bool) -> Result<Vec<u8>, Failure> {
    let source = CString::new(text)
        .map_err(|_| Failure::Other(err!(Runtime, "a kernel's text holds a zero byte")))?;
    let program = nvrtc::result::create_program(&source, None)
        .map_err(|e| broken("nvrtcCreateProgram", e))?;
    // SAFETY: the program was just created and is destroyed once, below.
    let made = unsafe { nvrtc::result::compile_program(program, &[architecture, "--std=c++14"]) };
    let result = match made {
        // SAFETY: the program is compiled.
        Ok(()) if machine => unsafe { machine_code(program) },
        // SAFETY: the program is compiled.
        Ok(()) => unsafe { nvrtc::result::get_ptx(program) }
            .map_err(|e| broken("nvrtcGetPTX", e))
            .map(|ptx| {
                let mut bytes: Vec<u8> = ptx.into_iter().map(|c| c as u8).collect();
                if bytes.last() != Some(&0) {
                    bytes.push(0);
                }
                bytes
            }),
        Err(e) if e.0 == nvrtc::sys::nvrtcResult::NVRTC_ERROR_INVALID_OPTION => {
            Err(Failure::Option)
        }
        Err(e) => {
            // SAFETY: the program exists.
            let log = unsafe { nvrtc::result::get_program_log(program) }.unwrap_or_default();
            Err(Failure::Other(err!(
                Runtime,
                "NVRTC error: {e:?}\n{}",
                as_text(&log)
            )))
        }
    };
    // SAFETY: not used afterwards.
    let _ = unsafe { nvrtc::result::destroy_program(program) };
    result
}

/// # Safety
/// The program has to be compiled for a real architecture.
unsafe fn machine_code(program: nvrtc::sys::nvrtcProgram) -> Result<Vec<u8>, Failure> {
    let mut size = 0usize;
    // SAFETY: the caller's promise.
    unsafe { nvrtc::sys::nvrtcGetCUBINSize(program, &raw mut size) }
        .result()
        .map_err(|e| broken("nvrtcGetCUBINSize", e))?;
    let mut bytes = vec![0u8; size];
    // SAFETY: the buffer has the size that was asked for.
    unsafe { nvrtc::sys::nvrtcGetCUBIN(program, bytes.as_mut_ptr().cast()) }
        .result()
        .map_err(|e| broken("nvrtcGetCUBIN", e))?;
    Ok(bytes)
}

fn as_text(log: &[c_char]) -> String {
    let bytes: Vec<u8> = log
        .iter()
        .map(|&c| c as u8)
        .take_while(|&c| c != 0)
        .collect();
    String::from_utf8_lossy(&bytes).into_owned()
}
