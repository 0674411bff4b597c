//! Convolutions by cuDNN, where it is installed.

#![allow(unsafe_code, reason = "calls cuDNN")]

use super::alloc::Block;
use super::driver::{self, Gpu, lock};
use crate::kernels::conv::{Direction, Work};
use crate::kernels::single_precision;
use crate::{DType, Result, Tensor, err};
use cudarc::cudnn::{result, sys};
use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::OnceLock;

/// Bytes that an algorithm may have to work with.
const WORKSPACE: usize = 1 << 30;

/// The library's handle, bound to its device's stream, and the algorithms it chose for convolutions seen before.
pub struct Dnn {
    handle: sys::cudnnHandle_t,
    chosen: HashMap<Vec<i64>, Option<(u32, usize)>>,
}

// SAFETY: used behind a mutex.
unsafe impl Send for Dnn {}

fn present() -> bool {
    static PRESENT: OnceLock<bool> = OnceLock::new();
    *PRESENT.get_or_init(|| {
        std::panic::catch_unwind(|| {
            // SAFETY: only asks if the library can be opened.
            unsafe { sys::is_culib_present() }
        })
        .unwrap_or(false)
    })
}

fn broken(what: &str, e: result::CudnnError) -> crate::Error {
    err!(Runtime, "cuDNN error: {:?} in {what}", e.0)
}

fn start(gpu: &Gpu) -> Result<Dnn> {
    let handle = result::create_handle().map_err(|e| broken("cudnnCreate", e))?;
    // SAFETY: both live as long as the process.
    unsafe { result::set_stream(handle, gpu.stream.cast()) }
        .map_err(|e| broken("cudnnSetStream", e))?;
    Ok(Dnn {
        handle,
        chosen: HashMap::new(),
    })
}

/// What the library calls a dtype, and what it computes it in.
fn types(d: DType) -> Option<(sys::cudnnDataType_t, sys::cudnnDataType_t)> {
    use sys::cudnnDataType_t as Data;
    Some(match d {
        DType::F32 => (Data::CUDNN_DATA_FLOAT, Data::CUDNN_DATA_FLOAT),
        DType::F64 => (Data::CUDNN_DATA_DOUBLE, Data::CUDNN_DATA_DOUBLE),
        DType::F16 => (Data::CUDNN_DATA_HALF, Data::CUDNN_DATA_FLOAT),
        DType::BF16 => (Data::CUDNN_DATA_BFLOAT16, Data::CUDNN_DATA_FLOAT),
        _ => return None,
    })
}

/// Sizes as the library takes them: sequences are images of one row. `None` if one is too large.
fn sizes(list: &[i64], missing: i64) -> Option<Vec<i32>> {
    let mut all = list.to_vec();
    if all.len() == 3 {
        all.insert(2, missing);
    }
    all.into_iter().map(|n| i32::try_from(n).ok()).collect()
}

/// Descriptions of a convolution's tensors, given back when dropped.
struct Described {
    x: sys::cudnnTensorDescriptor_t,
    y: sys::cudnnTensorDescriptor_t,
    w: sys::cudnnFilterDescriptor_t,
    conv: sys::cudnnConvolutionDescriptor_t,
}

impl Drop for Described {
    fn drop(&mut self) {
        // SAFETY: made by `Described::new` and used nowhere else; a failure leaves nothing to do.
        unsafe {
            let _ = result::destroy_tensor_descriptor(self.x);
            let _ = result::destroy_tensor_descriptor(self.y);
            let _ = result::destroy_filter_descriptor(self.w);
            let _ = result::destroy_convolution_descriptor(self.conv);
        }
    }
}

impl Described {
    /// `None` if the library has no words for it.
    fn new(work: &Work) -> Result<Option<Self>, result::CudnnError> {
        use sys::cudnnMathType_t as Math;
        let Some((data, compute)) = types(work.x.dtype()) else {
            return Ok(None);
        };
        let made = Self {
            x: result::create_tensor_descriptor()?,
            y: result::create_tensor_descriptor()?,
            w: result::create_filter_descriptor()?,
            conv: result::create_convolution_descriptor()?,
        };
        for (descriptor, t) in [(made.x, work.x), (made.y, work.y)] {
            let row = t.strides()[t.ndim() - 1] * t.shape()[t.ndim() - 1];
            let (Some(shape), Some(strides)) = (sizes(t.shape(), 1), sizes(t.strides(), row))
            else {
                return Ok(None);
            };
            // SAFETY: both lists have as many entries as is said.
            unsafe {
                result::set_tensornd_descriptor(
                    descriptor,
                    data,
                    shape.len() as i32,
                    shape.as_ptr(),
                    strides.as_ptr(),
                )?;
            }
        }
        let Some(filter) = sizes(work.w.shape(), 1) else {
            return Ok(None);
        };
        let n = filter.len() - 2;
        let format = if work.g.channels_last {
            sys::cudnnTensorFormat_t::CUDNN_TENSOR_NHWC
        } else {
            sys::cudnnTensorFormat_t::CUDNN_TENSOR_NCHW
        };
        let list = |v: [i64; 3]| -> Vec<i32> { v[3 - n..].iter().map(|&i| i as i32).collect() };
        let (pad, stride, dilation) =
            (list(work.g.pad), list(work.g.stride), list(work.g.dilation));
        let math = match work.x.dtype() {
            DType::F32 if single_precision::convolutions() => Math::CUDNN_FMA_MATH,
            DType::F64 => Math::CUDNN_FMA_MATH,
            DType::F32 => Math::CUDNN_DEFAULT_MATH,
            _ => Math::CUDNN_TENSOR_OP_MATH,
        };
        // SAFETY: the lists have as many entries as is said; the descriptors were just made.
        unsafe {
            result::set_filternd_descriptor(
                made.w,
                data,
                format,
                filter.len() as i32,
                filter.as_ptr(),
            )?;
            let mode = sys::cudnnConvolutionMode_t::CUDNN_CROSS_CORRELATION;
            result::set_convolutionnd_descriptor(
                made.conv,
                n as i32,
                pad.as_ptr(),
                stride.as_ptr(),
                dilation.as_ptr(),
                mode,
                compute,
            )?;
            result::set_convolution_group_count(made.conv, work.g.groups as i32)?;
            result::set_convolution_math_type(made.conv, math)?;
        }
        Ok(Some(made))
    }
}

/// What tells convolutions apart.
fn key(work: &Work) -> Vec<i64> {
    let g = &work.g;
    let precise = i64::from(single_precision::convolutions());
    let mut key = vec![
        work.direction as i64,
        work.x.dtype() as i64,
        g.groups as i64,
        i64::from(g.channels_last),
        precise,
    ];
    for t in [work.x, work.w, work.y] {
        key.extend(t.shape().iter());
        key.extend(t.strides().iter());
    }
    key.extend([g.pad, g.stride, g.dilation].iter().flatten());
    key
}

/// The first of the library's proposals that runs in the memory there is: its number, and its memory.
macro_rules! choose {
    ($ask:ident, $perf:ident, $handle:expr, $a:expr, $b:expr, $conv:expr, $c:expr) => {{
        // SAFETY: plain numbers, for which zeros are values; the library fills as many as it says.
        let mut list: [sys::$perf; 8] = unsafe { std::mem::zeroed() };
        let mut n = 0;
        // SAFETY: the descriptors are complete; there is room for as many proposals as are asked for.
        let asked = unsafe { sys::$ask($handle, $a, $b, $conv, $c, 8, &raw mut n, list.as_mut_ptr()) };
        asked.result().ok().and_then(|()| {
            let fits = |p: &&sys::$perf| {
                p.status == sys::cudnnStatus_t::CUDNN_STATUS_SUCCESS && p.memory <= WORKSPACE
            };
            list.iter().take(n.max(0) as usize).find(fits).map(|p| (p.algo as u32, p.memory))
        })
    }};
}

fn proposal(handle: sys::cudnnHandle_t, work: &Work, d: &Described) -> Option<(u32, usize)> {
    match work.direction {
        Direction::Forward => choose!(
            cudnnGetConvolutionForwardAlgorithm_v7,
            cudnnConvolutionFwdAlgoPerf_t,
            handle,
            d.x,
            d.w,
            d.conv,
            d.y
        ),
        Direction::ToInput => choose!(
            cudnnGetConvolutionBackwardDataAlgorithm_v7,
            cudnnConvolutionBwdDataAlgoPerf_t,
            handle,
            d.w,
            d.y,
            d.conv,
            d.x
        ),
        Direction::ToWeight => choose!(
            cudnnGetConvolutionBackwardFilterAlgorithm_v7,
            cudnnConvolutionBwdFilterAlgoPerf_t,
            handle,
            d.x,
            d.y,
            d.conv,
            d.w
        ),
    }
}

/// Runs a convolution or one of its gradients; false if the library is not there or does not do it.
///
/// # Errors
/// If memory cannot be had, or the library fails.
pub fn convolve(work: &Work) -> Result<bool> {
    if !present() || types(work.x.dtype()).is_none() {
        return Ok(false);
    }
    let gpu = driver::gpu(work.x.device())?;
    let mut slot = lock(&gpu.dnn);
    if slot.is_none() {
        *slot = Some(start(gpu)?);
    }
    let Some(dnn) = slot.as_mut() else {
        return Ok(false);
    };
    let Ok(Some(described)) = Described::new(work) else {
        return Ok(false);
    };
    let handle = dnn.handle;
    let chosen = *dnn
        .chosen
        .entry(key(work))
        .or_insert_with(|| proposal(handle, work, &described));
    let Some((algorithm, bytes)) = chosen else {
        return Ok(false);
    };
    let room = if bytes > 0 {
        Some(Block::new(gpu, bytes)?)
    } else {
        None
    };
    let room = room.as_ref().map_or(0, Block::ptr) as usize as *mut c_void;
    run(handle, work, &described, algorithm, room, bytes)
        .map_err(|e| broken("a convolution", e))
        .map(|()| true)
}

fn run(
    handle: sys::cudnnHandle_t,
    work: &Work,
    d: &Described,
    algorithm: u32,
    room: *mut c_void,
    bytes: usize,
) -> Result<(), result::CudnnError> {
    let (single, double) = ([1f32, 0.0], [1f64, 0.0]);
    let [one, zero]: [*const c_void; 2] = if work.x.dtype() == DType::F64 {
        [0, 1].map(|i| std::ptr::from_ref(&double[i]).cast())
    } else {
        [0, 1].map(|i| std::ptr::from_ref(&single[i]).cast())
    };
    let at = |t: &Tensor| t.data_ptr().cast::<c_void>();
    let (x, w, y) = (at(work.x), at(work.w), at(work.y));
    // SAFETY: the descriptions are of these tensors, whose memory the stream's order keeps until the work is done; the number is one
    // that the library gave for this kind of call, with room for what it asked for.
    unsafe {
        match work.direction {
            Direction::Forward => {
                let algorithm =
                    std::mem::transmute::<u32, sys::cudnnConvolutionFwdAlgo_t>(algorithm);
                sys::cudnnConvolutionForward(
                    handle, one, d.x, x, d.w, w, d.conv, algorithm, room, bytes, zero, d.y, y,
                )
            }
            Direction::ToInput => {
                let algorithm =
                    std::mem::transmute::<u32, sys::cudnnConvolutionBwdDataAlgo_t>(algorithm);
                sys::cudnnConvolutionBackwardData(
                    handle, one, d.w, w, d.y, y, d.conv, algorithm, room, bytes, zero, d.x, x,
                )
            }
            Direction::ToWeight => {
                let algorithm =
                    std::mem::transmute::<u32, sys::cudnnConvolutionBwdFilterAlgo_t>(algorithm);
                sys::cudnnConvolutionBackwardFilter(
                    handle, one, d.x, x, d.y, y, d.conv, algorithm, room, bytes, zero, d.w, w,
                )
            }
        }
    }
    .result()
}
