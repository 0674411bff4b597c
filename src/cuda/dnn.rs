//! Convolutions by cuDNN, where it is installed: graphs of one operation, for which the library proposes engines.

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
use sys::cudnnBackendAttributeName_t as Attribute;
use sys::cudnnBackendDescriptorType_t as Kind;

/// Bytes that an engine may have to work with.
const WORKSPACE: usize = 1 << 30;

/// The library's handle, bound to its device's stream, and its plans for convolutions seen before; none if it has no words for one.
pub struct Dnn {
    handle: sys::cudnnHandle_t,
    plans: HashMap<Vec<i64>, Option<Plan>>,
}

// SAFETY: used behind a mutex.
unsafe impl Send for Dnn {}

fn present() -> bool {
    static PRESENT: OnceLock<bool> = OnceLock::new();
    // SAFETY: only asks if the library can be opened.
    driver::opens(&PRESENT, || unsafe { sys::is_culib_present() })
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
        plans: HashMap::new(),
    })
}

/// What the library calls a dtype, and what it computes it in.
type Types = (sys::cudnnDataType_t, sys::cudnnDataType_t);

fn types(d: DType) -> Option<Types> {
    use sys::cudnnDataType_t as Data;
    Some(match d {
        DType::F32 => (Data::CUDNN_DATA_FLOAT, Data::CUDNN_DATA_FLOAT),
        DType::F64 => (Data::CUDNN_DATA_DOUBLE, Data::CUDNN_DATA_DOUBLE),
        DType::F16 => (Data::CUDNN_DATA_HALF, Data::CUDNN_DATA_FLOAT),
        DType::BF16 => (Data::CUDNN_DATA_BFLOAT16, Data::CUDNN_DATA_FLOAT),
        _ => return None,
    })
}

/// Sizes as the library takes them: sequences are images of one row.
fn sizes(list: &[i64], missing: i64) -> Vec<i64> {
    let mut all = list.to_vec();
    if all.len() == 3 {
        all.insert(2, missing);
    }
    all
}

type Done<T> = Result<T, result::CudnnError>;

/// What the library can be told, and how it calls the type.
trait Value {
    const TYPE: sys::cudnnBackendAttributeType_t;
}

macro_rules! values {
    ($($type:ty => $name:ident),* $(,)?) => {
        $(impl Value for $type {
            const TYPE: sys::cudnnBackendAttributeType_t = sys::cudnnBackendAttributeType_t::$name;
        })*
    };
}

values! {
    i64 => CUDNN_TYPE_INT64,
    f32 => CUDNN_TYPE_FLOAT,
    f64 => CUDNN_TYPE_DOUBLE,
    sys::cudnnHandle_t => CUDNN_TYPE_HANDLE,
    sys::cudnnDataType_t => CUDNN_TYPE_DATA_TYPE,
    sys::cudnnConvolutionMode_t => CUDNN_TYPE_CONVOLUTION_MODE,
    sys::cudnnBackendHeurMode_t => CUDNN_TYPE_HEUR_MODE,
    Note => CUDNN_TYPE_NUMERICAL_NOTE,
    Address => CUDNN_TYPE_VOID_PTR,
    Other => CUDNN_TYPE_BACKEND_DESCRIPTOR,
}

/// An address on the device.
#[repr(transparent)]
#[derive(Clone, Copy)]
struct Address(*mut c_void);

/// Another description.
#[repr(transparent)]
#[derive(Clone, Copy)]
struct Other(sys::cudnnBackendDescriptor_t);

/// What an engine does to numbers; newer libraries have more of them than an enumeration of today.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq)]
struct Note(u32);

impl Note {
    const TENSOR_CORE: Self =
        Self(sys::cudnnBackendNumericalNote_t::CUDNN_NUMERICAL_NOTE_TENSOR_CORE as u32);
    const DOWN_CONVERT: Self =
        Self(sys::cudnnBackendNumericalNote_t::CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS as u32);
}

/// A description for the library, given back when dropped.
struct Described(sys::cudnnBackendDescriptor_t);

impl Drop for Described {
    fn drop(&mut self) {
        // SAFETY: made by `Described::new` and used nowhere else; a failure leaves nothing to do.
        let _ = unsafe { sys::cudnnBackendDestroyDescriptor(self.0) };
    }
}

impl Described {
    fn new(kind: sys::cudnnBackendDescriptorType_t) -> Done<Self> {
        let mut made = std::ptr::null_mut();
        // SAFETY: the library writes the new description's address.
        unsafe { sys::cudnnBackendCreateDescriptor(kind, &raw mut made) }.result()?;
        Ok(Self(made))
    }

    fn with<V: Value>(self, name: Attribute, values: &[V]) -> Done<Self> {
        // SAFETY: the list has as many values of the type as is said, which the library copies.
        unsafe {
            sys::cudnnBackendSetAttribute(
                self.0,
                name,
                V::TYPE,
                values.len() as i64,
                values.as_ptr().cast(),
            )
        }
        .result()?;
        Ok(self)
    }

    fn of(self, name: Attribute, other: &Self) -> Done<Self> {
        self.with(name, &[Other(other.0)])
    }

    fn finished(self) -> Done<Self> {
        // SAFETY: the description is complete, or the library says what is missing.
        unsafe { sys::cudnnBackendFinalize(self.0) }.result()?;
        Ok(self)
    }

    /// Reads values, as many as there is room for; how many there are.
    fn read<V: Value>(&self, name: Attribute, values: &mut [V]) -> Done<usize> {
        let mut n = 0;
        // SAFETY: there is room for as many values as are asked for; descriptions among them exist.
        unsafe {
            sys::cudnnBackendGetAttribute(
                self.0,
                name,
                V::TYPE,
                values.len() as i64,
                &raw mut n,
                values.as_mut_ptr().cast(),
            )
        }
        .result()?;
        Ok(n.max(0) as usize)
    }
}

/// What a plan calls the tensors of a convolution.
const NAMES: [i64; 3] = [1, 2, 3];

/// The largest power of two, up to 16, that an address is a multiple of.
fn alignment(t: &Tensor) -> i64 {
    1 << (t.data_ptr() as usize).trailing_zeros().min(4)
}

fn tensor(t: &Tensor, data: sys::cudnnDataType_t, name: i64) -> Done<Described> {
    let row = t.strides()[t.ndim() - 1] * t.shape()[t.ndim() - 1];
    Described::new(Kind::CUDNN_BACKEND_TENSOR_DESCRIPTOR)?
        .with(Attribute::CUDNN_ATTR_TENSOR_DATA_TYPE, &[data])?
        .with(
            Attribute::CUDNN_ATTR_TENSOR_DIMENSIONS,
            &sizes(t.shape(), 1),
        )?
        .with(
            Attribute::CUDNN_ATTR_TENSOR_STRIDES,
            &sizes(t.strides(), row),
        )?
        .with(Attribute::CUDNN_ATTR_TENSOR_UNIQUE_ID, &[name])?
        .with(Attribute::CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, &[alignment(t)])?
        .finished()
}

/// How windows are taken.
fn windows(work: &Work, compute: sys::cudnnDataType_t) -> Done<Described> {
    let n = sizes(work.x.shape(), 1).len() - 2;
    let g = work.g;
    let [pad, stride, dilation] = [&g.pad, &g.stride, &g.dilation].map(|v| &v[3 - n..]);
    let mode = sys::cudnnConvolutionMode_t::CUDNN_CROSS_CORRELATION;
    Described::new(Kind::CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR)?
        .with(Attribute::CUDNN_ATTR_CONVOLUTION_COMP_TYPE, &[compute])?
        .with(Attribute::CUDNN_ATTR_CONVOLUTION_CONV_MODE, &[mode])?
        .with(Attribute::CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, &[n as i64])?
        .with(Attribute::CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, pad)?
        .with(Attribute::CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, pad)?
        .with(Attribute::CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, stride)?
        .with(Attribute::CUDNN_ATTR_CONVOLUTION_DILATIONS, dilation)?
        .finished()
}

/// A convolution or one of its gradients as a graph.
fn graph(handle: sys::cudnnHandle_t, work: &Work, (data, compute): Types) -> Done<Described> {
    use Attribute as A;
    let [x, w, y] = [
        tensor(work.x, data, NAMES[0])?,
        tensor(work.w, data, NAMES[1])?,
        tensor(work.y, data, NAMES[2])?,
    ];
    let conv = windows(work, compute)?;
    let (kind, names, factors) = match work.direction {
        Direction::Forward => (
            Kind::CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
            [
                A::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                A::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                A::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                A::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
            ],
            [
                A::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                A::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
            ],
        ),
        Direction::ToInput => (
            Kind::CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
            [
                A::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                A::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                A::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                A::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
            ],
            [
                A::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                A::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
            ],
        ),
        Direction::ToWeight => (
            Kind::CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
            [
                A::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                A::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                A::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                A::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
            ],
            [
                A::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                A::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
            ],
        ),
    };
    let mut call = Described::new(kind)?;
    for (name, part) in names.into_iter().zip([&conv, &x, &w, &y]) {
        call = call.of(name, part)?;
    }
    for (name, factor) in factors.into_iter().zip([1.0, 0.0]) {
        call = if work.x.dtype() == DType::F64 {
            call.with(name, &[factor])?
        } else {
            call.with(name, &[factor as f32])?
        };
    }
    let call = call.finished()?;
    Described::new(Kind::CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR)?
        .with(A::CUDNN_ATTR_OPERATIONGRAPH_HANDLE, &[handle])?
        .of(A::CUDNN_ATTR_OPERATIONGRAPH_OPS, &call)?
        .finished()
}

/// The library's proposals for a graph, the best first.
fn proposals(graph: &Described, mode: sys::cudnnBackendHeurMode_t) -> Done<Vec<Described>> {
    const MOST: usize = 16;
    let asked = Described::new(Kind::CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR)?
        .of(Attribute::CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph)?
        .with(Attribute::CUDNN_ATTR_ENGINEHEUR_MODE, &[mode])?
        .finished()?;
    let mut list = (0..MOST)
        .map(|_| Described::new(Kind::CUDNN_BACKEND_ENGINECFG_DESCRIPTOR))
        .collect::<Done<Vec<_>>>()?;
    let mut raw: Vec<Other> = list.iter().map(|d| Other(d.0)).collect();
    let n = asked.read(Attribute::CUDNN_ATTR_ENGINEHEUR_RESULTS, &mut raw)?;
    list.truncate(n);
    Ok(list)
}

/// True if an engine computes as exactly as is asked for.
fn exact_enough(proposal: &Described, precise: bool) -> Done<bool> {
    let engine = Described::new(Kind::CUDNN_BACKEND_ENGINE_DESCRIPTOR)?;
    proposal.read(
        Attribute::CUDNN_ATTR_ENGINECFG_ENGINE,
        &mut [Other(engine.0)],
    )?;
    let mut notes = [Note(u32::MAX); 32];
    let n = engine.read(Attribute::CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, &mut notes)?;
    let has = |note| notes[..n.min(notes.len())].contains(&note);
    Ok(!(has(Note::DOWN_CONVERT) || precise && has(Note::TENSOR_CORE)))
}

/// An engine that is ready to run, and the memory it works in.
struct Plan {
    plan: Described,
    _proposal: Described,
    bytes: usize,
}

impl Plan {
    /// The first proposal that is exact enough and runs in the memory there is; an error or none if there is none.
    fn of(handle: sys::cudnnHandle_t, work: &Work, types: Types) -> Done<Option<Self>> {
        use sys::cudnnBackendHeurMode_t as Mode;
        let graph = graph(handle, work, types)?;
        let precise = work.x.dtype() == DType::F32 && single_precision::convolutions();
        for mode in [Mode::CUDNN_HEUR_MODE_A, Mode::CUDNN_HEUR_MODE_FALLBACK] {
            for proposal in proposals(&graph, mode).unwrap_or_default() {
                if exact_enough(&proposal, precise)?
                    && let Ok(plan) = Self::from(handle, proposal)
                    && plan.bytes <= WORKSPACE
                {
                    return Ok(Some(plan));
                }
            }
        }
        Ok(None)
    }

    fn from(handle: sys::cudnnHandle_t, proposal: Described) -> Done<Self> {
        let plan = Described::new(Kind::CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR)?
            .of(
                Attribute::CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
                &proposal,
            )?
            .with(Attribute::CUDNN_ATTR_EXECUTION_PLAN_HANDLE, &[handle])?
            .finished()?;
        let mut bytes = [0i64];
        plan.read(
            Attribute::CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
            &mut bytes,
        )?;
        Ok(Self {
            plan,
            _proposal: proposal,
            bytes: bytes[0].max(0) as usize,
        })
    }

    fn run(&self, handle: sys::cudnnHandle_t, work: &Work, room: u64) -> Done<()> {
        let at = |t: &Tensor| Address(t.data_ptr().cast());
        let tensors = [at(work.x), at(work.w), at(work.y)];
        let pack = Described::new(Kind::CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR)?
            .with(Attribute::CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, &tensors)?
            .with(Attribute::CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, &NAMES)?
            .with(
                Attribute::CUDNN_ATTR_VARIANT_PACK_WORKSPACE,
                &[Address(room as usize as *mut c_void)],
            )?
            .finished()?;
        // SAFETY: the plan was made for tensors of these layouts, whose memory the stream's order keeps until the work is done, as
        // it does the room that the plan asked for.
        unsafe { sys::cudnnBackendExecute(handle, self.plan.0, pack.0) }.result()
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
        precise,
    ];
    for t in [work.x, work.w, work.y] {
        key.extend(t.shape().iter());
        key.extend(t.strides().iter());
        key.push(alignment(t));
    }
    key.extend([g.pad, g.stride, g.dilation].iter().flatten());
    key
}

/// Runs a convolution or one of its gradients; false if the library is not there or does not do it.
///
/// # Errors
/// If memory cannot be had, or the library fails.
pub fn convolve(work: &Work) -> Result<bool> {
    let Some(types) = types(work.x.dtype()).filter(|_| present()) else {
        return Ok(false);
    };
    let gpu = driver::gpu(work.x.device())?;
    let mut slot = lock(&gpu.dnn);
    if slot.is_none() {
        *slot = Some(start(gpu)?);
    }
    let Some(dnn) = slot.as_mut() else {
        return Ok(false);
    };
    let handle = dnn.handle;
    let make = || Plan::of(handle, work, types).ok().flatten();
    let Some(plan) = dnn.plans.entry(key(work)).or_insert_with(make) else {
        return Ok(false);
    };
    let room = if plan.bytes > 0 {
        Some(Block::new(gpu, plan.bytes)?)
    } else {
        None
    };
    plan.run(handle, work, room.as_ref().map_or(0, Block::ptr))
        .map_err(|e| broken("a convolution", e))
        .map(|()| true)
}
