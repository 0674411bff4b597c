//! Matrix products by cuBLAS.

#![allow(unsafe_code, reason = "calls cuBLAS")]

use super::copy::{copy_into, dense};
use super::driver::{self, Gpu, lock};
use crate::kernels::single_precision;
use crate::{DType, Result, Scalar, Tensor, bail, err};
use cudarc::cublas::{result, sys};
use std::ffi::c_void;
use std::sync::OnceLock;

/// A cuBLAS handle, bound to its device's stream.
pub struct Handle(sys::cublasHandle_t);

// SAFETY: used behind a mutex.
unsafe impl Send for Handle {}

fn present() -> bool {
    static PRESENT: OnceLock<bool> = OnceLock::new();
    // SAFETY: only asks if the library can be opened.
    driver::opens(&PRESENT, || unsafe { sys::is_culib_present() })
}

fn broken(what: &str, e: result::CublasError) -> crate::Error {
    err!(Runtime, "CUDA error: {:?} when calling `{what}`", e.0)
}

fn start(gpu: &Gpu) -> Result<Handle> {
    if !present() {
        bail!(
            Runtime,
            "matrix products on CUDA need the cuBLAS library (libcublas), which could not be found. Install the package nvidia-cublas or the CUDA toolkit."
        );
    }
    let handle = result::create_handle().map_err(|e| broken("cublasCreate", e))?;
    // SAFETY: both live as long as the process.
    unsafe { result::set_stream(handle, gpu.stream.cast()) }
        .map_err(|e| broken("cublasSetStream", e))?;
    Ok(Handle(handle))
}

/// A matrix as cuBLAS takes it (columns first): transposed or not, with a leading dimension.
struct Side {
    op: sys::cublasOperation_t,
    lead: i32,
    step: i64,
    ptr: *const c_void,
}

/// Reads `t` (rows, columns) as column-major `t` transposed, if its strides allow.
fn side(t: &Tensor) -> Option<Side> {
    let n = t.ndim();
    let (rows, cols) = (t.shape()[n - 2], t.shape()[n - 1]);
    let (rs, cs) = (t.strides()[n - 2], t.strides()[n - 1]);
    let step = if n == 3 && t.shape()[0] > 1 {
        t.strides()[0]
    } else {
        0
    };
    let fits = |lead: i64, least: i64| lead >= least.max(1) && lead <= i64::from(i32::MAX);
    let row_lead = if rows <= 1 { cols.max(1) } else { rs };
    let col_lead = if cols <= 1 { rows.max(1) } else { cs };
    let ptr = t.data_ptr().cast_const().cast();
    let (op, lead) = if (cs == 1 || cols <= 1) && fits(row_lead, cols) {
        (sys::cublasOperation_t::CUBLAS_OP_N, row_lead)
    } else if (rs == 1 || rows <= 1) && fits(col_lead, rows) {
        (sys::cublasOperation_t::CUBLAS_OP_T, col_lead)
    } else {
        return None;
    };
    (step >= 0).then_some(Side {
        op,
        lead: lead as i32,
        step,
        ptr,
    })
}

/// What cuBLAS calls a dtype, and what it computes it in.
fn library_type(d: DType) -> Result<(sys::cudaDataType_t, sys::cublasComputeType_t)> {
    use sys::cublasComputeType_t as Compute;
    use sys::cudaDataType_t as Data;
    Ok(match d {
        DType::F16 => (Data::CUDA_R_16F, Compute::CUBLAS_COMPUTE_32F),
        DType::BF16 => (Data::CUDA_R_16BF, Compute::CUBLAS_COMPUTE_32F),
        DType::F32 if !single_precision::products() => {
            (Data::CUDA_R_32F, Compute::CUBLAS_COMPUTE_32F_FAST_TF32)
        }
        DType::F32 => (Data::CUDA_R_32F, Compute::CUBLAS_COMPUTE_32F),
        DType::F64 => (Data::CUDA_R_64F, Compute::CUBLAS_COMPUTE_64F),
        DType::C64 => (Data::CUDA_C_32F, Compute::CUBLAS_COMPUTE_32F),
        DType::C128 => (Data::CUDA_C_64F, Compute::CUBLAS_COMPUTE_64F),
        d => return Err(d.no_kernel("addmm_cuda")),
    })
}

/// As [`crate::cpu::matrix::product`], on a GPU; the result of 16-bit matrices may be in single precision: `c = alpha a b + beta c + bias`.
///
/// # Errors
/// If the dtype has no products on a GPU, or cuBLAS is not there.
pub fn product(
    c: &Tensor,
    a: &Tensor,
    b: &Tensor,
    alpha: Scalar,
    beta: Scalar,
    bias: Option<&Tensor>,
) -> Result<()> {
    if c.numel() == 0 {
        return Ok(());
    }
    library_type(c.dtype())?;
    let (mut beta, mut target) = (beta, c.clone());
    let fits = matches!(
        side(c),
        Some(Side {
            op: sys::cublasOperation_t::CUBLAS_OP_N,
            ..
        })
    );
    if !fits {
        target = Tensor::empty(c.shape(), c.dtype(), c.device())?;
        if beta.to_bool() {
            copy_into(&target, c)?;
        }
    }
    if let Some(row) = bias {
        // One row for all: spread it first, then add to it.
        copy_into(&target, row)?;
        beta = Scalar::Int(1);
    }
    let k = a.shape()[a.ndim() - 1];
    if k == 0 {
        if !beta.to_bool() {
            super::map::fill_with(&target, Scalar::Int(0))?;
        } else if bias.is_none() && beta.to_c64() != Scalar::Int(1).to_c64() {
            let scale = crate::cpu::rows::Operand::Number(beta);
            super::map::apply(
                "a * b",
                c.dtype(),
                &target,
                &[crate::cpu::rows::Operand::Tensor(&target), scale],
                &crate::cpu::map::Ctx::default(),
            )?;
        }
    } else {
        multiply(&target, a, b, alpha, beta)?;
    }
    if fits { Ok(()) } else { copy_into(c, &target) }
}

fn multiply(c: &Tensor, a: &Tensor, b: &Tensor, alpha: Scalar, beta: Scalar) -> Result<()> {
    let ((data, _), (to_data, compute)) = (library_type(a.dtype())?, library_type(c.dtype())?);
    let gpu = driver::gpu(c.device())?;
    let (dense_a, dense_b);
    let a = if side(a).is_some() && !a.is_lazy() {
        a
    } else {
        dense_a = dense(a, a.dtype())?;
        &dense_a
    };
    let b = if side(b).is_some() && !b.is_lazy() {
        b
    } else {
        dense_b = dense(b, b.dtype())?;
        &dense_b
    };
    let (Some(sa), Some(sb), Some(sc)) = (side(a), side(b), side(c)) else {
        bail!(Runtime, "the layout of a matrix does not fit cuBLAS")
    };
    let n = c.ndim();
    let int =
        |v: i64| i32::try_from(v).map_err(|_| err!(Runtime, "a matrix is too large for cuBLAS"));
    let (rows, cols) = (int(c.shape()[n - 2])?, int(c.shape()[n - 1])?);
    let k = int(a.shape()[a.ndim() - 1])?;
    let batch = if n == 3 { int(c.shape()[0])? } else { 1 };
    // Scale factors in the type of the sums, with an imaginary part for complex ones.
    let (al, be) = (alpha.to_c64(), beta.to_c64());
    let single = [[al.re as f32, al.im as f32], [be.re as f32, be.im as f32]];
    let double = [[al.re, al.im], [be.re, be.im]];
    let (alpha, beta): (*const c_void, *const c_void) =
        if compute == sys::cublasComputeType_t::CUBLAS_COMPUTE_64F {
            (double[0].as_ptr().cast(), double[1].as_ptr().cast())
        } else {
            (single[0].as_ptr().cast(), single[1].as_ptr().cast())
        };
    let mut slot = lock(&gpu.blas);
    if slot.is_none() {
        *slot = Some(start(gpu)?);
    }
    let Some(handle) = slot.as_ref() else {
        bail!(Runtime, "no cuBLAS handle")
    };
    let algo = sys::cublasGemmAlgo_t::CUBLAS_GEMM_DEFAULT_TENSOR_OP;
    let to = c.data_ptr().cast::<c_void>();
    // Row-major c = a b is column-major c' = b' a'.
    // SAFETY: sizes and leading dimensions describe the tensors' own layouts; the handle is locked.
    let status = unsafe {
        if batch == 1 {
            sys::cublasGemmEx(
                handle.0, sb.op, sa.op, cols, rows, k, alpha, sb.ptr, data, sb.lead, sa.ptr, data,
                sa.lead, beta, to, to_data, sc.lead, compute, algo,
            )
        } else {
            sys::cublasGemmStridedBatchedEx(
                handle.0, sb.op, sa.op, cols, rows, k, alpha, sb.ptr, data, sb.lead, sb.step,
                sa.ptr, data, sa.lead, sa.step, beta, to, to_data, sc.lead, sc.step, batch,
                compute, algo,
            )
        }
    };
    status.result().map_err(|e| broken("cublasGemmEx", e))
}
