//! Copies from, to, between and on GPUs, of any layout and with conversion.

#![allow(unsafe_code, reason = "copies between host and device memory")]

use super::driver::{self, failed};
use super::map::apply;
use super::source;
use crate::cpu::map::Ctx;
use crate::cpu::rows::Operand;
use crate::{DType, Device, DeviceKind, Result, Tensor, dims};
use cudarc::driver::{result, sys};

fn on_gpu(t: &Tensor) -> bool {
    t.device().kind == DeviceKind::Cuda
}

/// A dense tensor like `t`, elsewhere or of another dtype.
fn dense_like(t: &Tensor, dtype: DType, device: Device) -> Result<Tensor> {
    Tensor::empty_strided(
        t.shape().clone(),
        dims::preserved_strides(t.shape(), t.strides()),
        dtype,
        device,
    )
}

/// A row-major copy on the tensor's own device; itself if it is that already.
///
/// # Errors
/// If memory cannot be had.
pub fn dense(t: &Tensor, dtype: DType) -> Result<Tensor> {
    if t.dtype() == dtype && t.is_contiguous() && !t.is_lazy() {
        return Ok(t.clone());
    }
    let out = Tensor::empty(t.shape(), dtype, t.device())?;
    copy_into(&out, t)?;
    Ok(out)
}

/// Copies `src` (broadcast, converted) into `dst`; at least one of them is on a GPU.
///
/// # Errors
/// If there is no conversion or the data cannot be had.
pub fn copy_into(dst: &Tensor, src: &Tensor) -> Result<()> {
    if dst.numel() == 0 {
        return Ok(());
    }
    if on_gpu(dst) && dst.device() == src.device() {
        let clash = dst.shares_storage(src)
            && (dst.offset() != src.offset()
                || dst.strides() != src.strides()
                || dst.shape() != src.shape());
        if clash {
            let aside = dense_like(src, src.dtype(), src.device())?;
            on_device(
                &aside
                    .clone()
                    .with_conj(src.is_conj())
                    .with_neg(src.is_neg()),
                src,
            )?;
            return on_device(dst, &aside.with_conj(src.is_conj()).with_neg(src.is_neg()));
        }
        return on_device(dst, src);
    }
    let plain = dst.is_conj() == src.is_conj() && dst.is_neg() == src.is_neg();
    let alike =
        dst.dtype() == src.dtype() && dst.shape() == src.shape() && dst.strides() == src.strides();
    if plain && alike && dims::is_dense(dst.shape(), dst.strides()) {
        return bytes(dst, src);
    }
    // The side with fewer bytes to move does the rearranging and converting: the source's, then the result's own.
    let mut sent = src.clone();
    if !dims::is_dense(src.shape(), src.strides())
        || src.is_lazy()
        || (src.dtype().size() > dst.dtype().size() && src.device().is_cpu())
    {
        let to = if src.device().is_cpu() && src.dtype().size() > dst.dtype().size() {
            dst.dtype()
        } else {
            src.dtype()
        };
        sent = dense_like(src, to, src.device())?;
        if on_gpu(src) {
            on_device(&sent, src)?
        } else {
            crate::cpu::copy::copy(&sent, src)?
        }
    }
    let there = Tensor::empty_strided(
        sent.shape().clone(),
        sent.strides().clone(),
        sent.dtype(),
        dst.device(),
    )?;
    bytes(&there, &sent)?;
    if on_gpu(dst) {
        on_device(dst, &there)
    } else {
        crate::cpu::copy::copy(dst, &there)
    }
}

/// Moves the bytes of two dense tensors of one layout.
fn bytes(dst: &Tensor, src: &Tensor) -> Result<()> {
    let n = src.numel() as usize * src.dtype().size();
    let (to, from) = (dst.data_ptr(), src.data_ptr());
    match (on_gpu(dst), on_gpu(src)) {
        (true, false) => {
            let gpu = driver::gpu(dst.device())?;
            // SAFETY: both sides hold n bytes. Pageable host memory is read before the call returns.
            unsafe {
                sys::cuMemcpyHtoDAsync_v2(
                    to as usize as u64,
                    from.cast_const().cast(),
                    n,
                    gpu.stream,
                )
            }
            .result()
            .map_err(|e| failed("cuMemcpyHtoDAsync", e))?;
            // Pinned memory of others would be read later, so wait: the source may change after this call.
            gpu.wait()
        }
        (false, true) => {
            let gpu = driver::gpu(src.device())?;
            // SAFETY: both sides hold n bytes; the wait below keeps the host's alive until the copy is done.
            unsafe { sys::cuMemcpyDtoHAsync_v2(to.cast(), from as usize as u64, n, gpu.stream) }
                .result()
                .map_err(|e| failed("cuMemcpyDtoHAsync", e))?;
            gpu.wait()
        }
        (true, true) => {
            let there = driver::gpu(dst.device())?;
            there.wait()?;
            let here = driver::gpu(src.device())?;
            // SAFETY: both sides hold n bytes in their contexts.
            unsafe {
                result::memcpy_peer_async(
                    there.context,
                    to as usize as u64,
                    here.context,
                    from as usize as u64,
                    n,
                    here.stream,
                )
            }
            .map_err(|e| failed("cuMemcpyPeerAsync", e))?;
            here.wait()
        }
        (false, false) => crate::cpu::copy::copy(dst, src),
    }
}

/// A copy within one device.
fn on_device(dst: &Tensor, src: &Tensor) -> Result<()> {
    let (conj, neg) = (dst.is_conj() != src.is_conj(), dst.is_neg() != src.is_neg());
    let same = dst.dtype() == src.dtype() && !conj && !neg;
    if same
        && dst.shape() == src.shape()
        && dst.strides() == src.strides()
        && dims::is_dense(dst.shape(), dst.strides())
    {
        if dst.data_ptr() == src.data_ptr() {
            return Ok(());
        }
        let gpu = driver::gpu(dst.device())?;
        let n = src.numel() as usize * src.dtype().size();
        // SAFETY: both sides hold n bytes on the device.
        return unsafe {
            result::memcpy_dtod_async(
                dst.data_ptr() as usize as u64,
                src.data_ptr() as usize as u64,
                n,
                gpu.stream,
            )
        }
        .map_err(|e| failed("cuMemcpyDtoDAsync", e));
    }
    if same {
        // Nothing to compute: move bit patterns, which works for every dtype of that size.
        let raw = match dst.dtype().size() {
            1 => DType::U8,
            2 => DType::U16,
            4 => DType::U32,
            8 => DType::U64,
            _ => dst.dtype(),
        };
        let view = |t: &Tensor| {
            t.look(&crate::plan::ViewPlan::reinterpret(
                raw,
                t.shape().clone(),
                t.strides().clone(),
                t.offset(),
            ))
        };
        return apply(
            "a",
            raw,
            &view(dst),
            &[Operand::Tensor(&view(src))],
            &Ctx::default(),
        );
    }
    if source::storage_type(src.dtype()).is_none() || source::storage_type(dst.dtype()).is_none() {
        return by_way_of_host(dst, src);
    }
    // A lazy result keeps its flags: what it means is written conjugated and negated back.
    let expression = match (conj && src.dtype().is_complex(), neg) {
        (false, false) => "a",
        (true, false) => "conj_(a)",
        (false, true) => "-a",
        (true, true) => "-conj_(a)",
    };
    apply(
        expression,
        src.dtype(),
        dst,
        &[Operand::Tensor(src)],
        &Ctx::default(),
    )
}

/// For dtypes that kernels do not know.
fn by_way_of_host(dst: &Tensor, src: &Tensor) -> Result<()> {
    let host = dense_like(src, src.dtype(), Device::CPU)?;
    copy_into(&host, src)?;
    let made = Tensor::empty(dst.shape(), dst.dtype(), Device::CPU)?;
    crate::cpu::copy::copy(&made, &host)?;
    if made.strides() == dst.strides() {
        return bytes(dst, &made);
    }
    let there = Tensor::empty(dst.shape(), dst.dtype(), dst.device())?;
    bytes(&there, &made)?;
    on_device(dst, &there)
}
