//! Attention of 16 bits on a GPU that keeps no matrix of scores, and its gradients.

use super::job::{Job, Kernel};
use super::{copy, dense};
use crate::cpu::attention::{Inputs, Shapes};
use crate::cpu::attention_backward::Known;
use crate::plan::ViewPlan;
use crate::{DType, Result, Tensor};
use smallvec::SmallVec;

const fn kernel(name: &'static str) -> Kernel {
    Kernel {
        file: include_str!("../cuda/kernels/flash.cu"),
        name,
    }
}

/// Rows of one side that a warp has at a time, and warps of a block.
const ROWS: i64 = 16;
const WARPS: i64 = 4;

/// Kernels that keep no scores, for heads of a width: how their work is cut.
struct Flash {
    dtype: DType,
    width: i64,
}

impl Flash {
    /// For tensors of 16 bits that lie in whole rows, where there is no mask.
    fn of(i: &Inputs, s: &Shapes, sums: Option<&Tensor>, others: &[&Tensor]) -> Option<Self> {
        let d = i.query.dtype();
        let suits = i.mask.is_none()
            && matches!(d, DType::F16 | DType::BF16)
            && i.scale > 0.0
            && s.width == s.values
            && s.width % 16 == 0
            && (16..=128).contains(&s.width)
            && s.batch.len() == 2
            && *i.query.shape() == s.batch.concat(&[s.queries, s.width])
            && i.key.shape()[0] == s.batch[0]
            && i.key.shape()[..3] == i.value.shape()[..3]
            && i.key.shape()[1] > 0
            && s.batch[1] % i.key.shape()[1] == 0
            && sums.is_none_or(|t| t.dtype() == DType::F32);
        let mut all = [i.query, i.key, i.value]
            .into_iter()
            .chain(others.iter().copied());
        (suits && all.all(whole)).then_some(Self {
            dtype: d,
            width: s.width,
        })
    }

    /// A kernel that walks over tiles of so many rows; so many blocks of it share a multiprocessor.
    fn job(&self, name: &'static str, tile: i64, blocks: i64) -> Job {
        Job::new(kernel(name))
            .ty("T", self.dtype)
            .define("D", self.width)
            .define("TILE", tile)
            .define("WARPS", WARPS)
            .define("BLOCKS", blocks)
            .threads(32 * WARPS as u32)
    }

    /// Bytes of so many rows in shared memory.
    fn bytes(&self, rows: i64) -> i64 {
        rows * (self.width + 8) * self.dtype.size() as i64
    }

    /// True if registers have room for more than one side.
    fn short(&self) -> bool {
        self.width <= 64
    }

    /// Blocks of rows that a warp has at once.
    fn together(&self) -> i64 {
        if self.short() { 2 } else { 1 }
    }

    // Tiles and blocks are those that were fastest on an H200.

    fn forward(&self) -> Job {
        let (tile, stages) = (64, 2);
        self.job("flash", tile, if self.short() { 2 } else { 3 })
            .define("ROWS", self.together())
            .define("STAGES", stages)
            .shared(2 * stages * self.bytes(tile))
    }

    fn by_query(&self) -> Job {
        let (tile, blocks) = if self.short() { (64, 3) } else { (32, 2) };
        self.job("by_query", tile, blocks)
            .shared(4 * self.bytes(tile))
    }

    fn by_key(&self) -> Job {
        let tile = 64;
        self.job("by_key", tile, 2)
            .shared(4 * self.bytes(tile) + 16 * tile + 2 * self.bytes(ROWS * WARPS))
    }

    fn inner(&self) -> Job {
        self.job("inner", 64, 2).threads(256)
    }
}

/// True if pieces of 16 bytes can be read: rows are whole ones, and begin at multiples of them.
fn whole(t: &Tensor) -> bool {
    let steps = t.strides();
    t.ndim() == 4
        && steps[3] == 1
        && steps[..3].iter().all(|n| n % 8 == 0)
        && t.data_ptr() as usize % 16 == 0
        && !t.is_lazy()
}

/// A tensor that is [`whole`]; itself if it is that already.
fn made_whole(t: &Tensor) -> Result<Tensor> {
    if whole(t) { Ok(t.clone()) } else { dense(t) }
}

/// How samples, heads and rows of tensors lie, and sizes.
fn laid(job: Job, tensors: &[Option<&Tensor>], i: &Inputs, s: &Shapes) -> Job {
    let steps = tensors.iter().flat_map(|t| match t {
        Some(t) => [0, 1, 2].map(|d| t.strides()[d]),
        None => [0; 3],
    });
    let heads = s.batch[1];
    let sizes = [
        heads,
        heads / i.key.shape()[1],
        s.queries,
        s.keys,
        i64::from(i.causal),
        i.scale.to_bits() as i64,
    ];
    job.group([], steps.chain(sizes))
}

/// What is compiled for a dtype of 16 bits, for checks without a device.
pub(super) fn samples(d: DType) -> Vec<Job> {
    let of = |width| {
        let flash = Flash { dtype: d, width };
        [flash.forward(), flash.by_key()]
    };
    [64, 128].into_iter().flat_map(of).collect()
}

/// Attention without a matrix of scores; false if it has to be made otherwise.
///
/// # Errors
/// If a kernel cannot be had.
pub(super) fn forward(out: &Tensor, sums: Option<&Tensor>, i: &Inputs, s: &Shapes) -> Result<bool> {
    let Some(flash) = Flash::of(i, s, sums, &[out]) else {
        return Ok(false);
    };
    let job = flash
        .forward()
        .at(out)
        .maybe(sums)
        .at(i.query)
        .at(i.key)
        .at(i.value);
    let own = ROWS * WARPS * flash.together();
    let blocks = (s.queries + own - 1) / own * s.batch[1] * s.batch[0];
    let all = [i.query, i.key, i.value, out].map(Some);
    laid(job, &[&all[..], &[sums]].concat(), i, s).blocks(out, blocks)?;
    Ok(true)
}

/// The gradients of [`forward`]; false if they have to be made otherwise.
///
/// # Errors
/// If a kernel or memory cannot be had.
pub(super) fn backward(outs: &[Tensor], known: &Known, i: &Inputs, s: &Shapes) -> Result<bool> {
    let Some(flash) = Flash::of(i, s, Some(known.sums), &[]) else {
        return Ok(false);
    };
    let grad = known.grad.raw_view(&ViewPlan::expanded(
        known.grad,
        &s.batch.concat(&[s.queries, s.values]),
    ));
    let (grad, out) = (made_whole(&grad)?, made_whole(known.out)?);
    let mut made: SmallVec<[Tensor; 3]> = SmallVec::new();
    for t in outs {
        made.push(if whole(t) {
            t.clone()
        } else {
            Tensor::empty(t.shape(), t.dtype(), t.device())?
        });
    }
    let means = Tensor::empty(known.sums.shape(), DType::F32, grad.device())?;
    let [dq, dk, dv] = [0, 1, 2].map(|k| &made[k]);
    let all = [i.query, i.key, i.value, &grad, &out, known.sums, dq, dk, dv].map(Some);
    let rows = means.numel();
    let job = flash.inner().at(&means).at(&grad).at(&out);
    laid(job.int(rows), &all, i, s).blocks(&means, (rows + 7) / 8)?;
    let pass = |job: Job| {
        let job = job.at(i.query).at(i.key).at(i.value);
        laid(job.at(&grad).at(known.sums).at(&means), &all, i, s)
    };
    let parts = |n: i64| (n + ROWS * WARPS - 1) / (ROWS * WARPS) * s.batch[0];
    let by_key = flash.by_key().at(dk).at(dv);
    pass(by_key).blocks(&grad, parts(s.keys) * i.key.shape()[1])?;
    let by_query = flash.by_query().at(dq);
    pass(by_query).blocks(&grad, parts(s.queries) * s.batch[1])?;
    for (out, made) in outs.iter().zip(&made) {
        if !made.shares_storage(out) {
            copy(out, made)?;
        }
    }
    Ok(true)
}
