//! Fourier transforms by cuFFT, where it is installed.

#![allow(unsafe_code, reason = "calls cuFFT")]

use super::alloc::Block;
use super::driver::{self, Gpu, lock};
use crate::{DType, Result, Tensor, err};
use cudarc::cufft::{result, sys};
use smallvec::SmallVec;
use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::OnceLock;
use sys::cufftType as Kind;

/// Plans that a device keeps at most; then all of them are made anew.
const KEPT: usize = 1024;

/// Plans by kind, lengths and number of transforms; none for what the library does not do.
#[derive(Default)]
pub struct Plans(HashMap<(u32, SmallVec<[i64; 4]>), Option<Plan>>);

/// A plan of the library, given back when dropped.
struct Plan {
    handle: sys::cufftHandle,
    bytes: usize,
}

impl Drop for Plan {
    fn drop(&mut self) {
        // SAFETY: made by `Plan::new` and used nowhere else; a failure leaves nothing to do.
        let _ = unsafe { result::destroy(self.handle) };
    }
}

fn present() -> bool {
    static PRESENT: OnceLock<bool> = OnceLock::new();
    // SAFETY: only asks if the library can be opened.
    driver::opens(&PRESENT, || unsafe { sys::is_culib_present() })
}

fn broken(e: result::CufftError) -> crate::Error {
    err!(Runtime, "cuFFT error: {:?}", e.0)
}

impl Plan {
    fn new(gpu: &Gpu, kind: Kind, lengths: &[i64], batch: i64) -> Result<Self, result::CufftError> {
        let mut plan = Self {
            handle: result::create()?,
            bytes: 0,
        };
        let (mut lengths, none) = (lengths.to_vec(), std::ptr::null_mut());
        // SAFETY: the plan was just created; lengths are as many as is said, and lines lie one after the other.
        unsafe {
            sys::cufftSetAutoAllocation(plan.handle, 0).result()?;
            sys::cufftMakePlanMany64(
                plan.handle,
                lengths.len() as i32,
                lengths.as_mut_ptr(),
                none,
                1,
                0,
                none,
                1,
                0,
                kind,
                batch,
                &raw mut plan.bytes,
            )
            .result()?;
            sys::cufftSetStream(plan.handle, gpu.stream.cast()).result()?;
        }
        Ok(plan)
    }

    fn run(
        &self,
        kind: Kind,
        [from, to]: [*mut c_void; 2],
        forward: bool,
        room: u64,
    ) -> Result<(), result::CufftError> {
        let (h, way) = (self.handle, if forward { -1 } else { 1 });
        // SAFETY: the plan was made for transforms of this kind and for as many as both sides hold; the stream's order keeps their
        // memory, and the room that the plan asked for, until the work is done.
        unsafe {
            sys::cufftSetWorkArea(h, room as usize as *mut c_void).result()?;
            match kind {
                Kind::CUFFT_C2C => sys::cufftExecC2C(h, from.cast(), to.cast(), way),
                Kind::CUFFT_Z2Z => sys::cufftExecZ2Z(h, from.cast(), to.cast(), way),
                Kind::CUFFT_R2C => sys::cufftExecR2C(h, from.cast(), to.cast()),
                Kind::CUFFT_D2Z => sys::cufftExecD2Z(h, from.cast(), to.cast()),
                Kind::CUFFT_C2R => sys::cufftExecC2R(h, from.cast(), to.cast()),
                Kind::CUFFT_Z2D => sys::cufftExecZ2D(h, from.cast(), to.cast()),
            }
        }
        .result()
    }
}

/// Transforms the last `rank` dimensions of a row-major tensor into another; of real and complex numbers, these are the half of the
/// last dimension. What numbers are computed from may be written over. False if the library is not there or does not do it.
///
/// # Errors
/// If memory cannot be had, or the library fails.
pub fn transform(out: &Tensor, from: &Tensor, rank: usize, forward: bool) -> Result<bool> {
    let (kind, whole) = match (from.dtype(), out.dtype()) {
        (DType::C64, DType::C64) => (Kind::CUFFT_C2C, out),
        (DType::C128, DType::C128) => (Kind::CUFFT_Z2Z, out),
        (DType::F32, DType::C64) => (Kind::CUFFT_R2C, from),
        (DType::F64, DType::C128) => (Kind::CUFFT_D2Z, from),
        (DType::C64, DType::F32) => (Kind::CUFFT_C2R, out),
        (DType::C128, DType::F64) => (Kind::CUFFT_Z2D, out),
        _ => return Ok(false),
    };
    if !present() {
        return Ok(false);
    }
    let gpu = driver::gpu(out.device())?;
    let lengths = &whole.shape()[whole.ndim() - rank..];
    let batch = whole.numel() / lengths.iter().product::<i64>();
    let mut key: SmallVec<[i64; 4]> = lengths.iter().copied().collect();
    key.push(batch);
    let mut plans = lock(&gpu.fft);
    if plans.0.len() >= KEPT {
        plans.0.clear();
    }
    let make = || Plan::new(gpu, kind, lengths, batch).ok();
    let Some(plan) = plans.0.entry((kind as u32, key)).or_insert_with(make) else {
        return Ok(false);
    };
    let room = if plan.bytes > 0 {
        Some(Block::new(gpu, plan.bytes)?)
    } else {
        None
    };
    let sides = [from, out].map(|t| t.data_ptr().cast::<c_void>());
    let room = room.as_ref().map_or(0, Block::ptr);
    plan.run(kind, sides, forward, room)
        .map_err(broken)
        .map(|()| true)
}
