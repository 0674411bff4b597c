//! ctc_loss.

use crate::cpu::ctc::{Sequences, losses, losses_room};
use crate::ops::core::helpers::readable;
use crate::ops::core::op::{Batch, Cast, F, OpDef, Plan, Ret, compose, kernel};
use crate::ops::f;
use crate::ops::nn::loss::{Reduction, reduced};
use crate::{DType, Result, Tensor, ensure};
use torchlike_macros::operators;

macro_rules! operands {
    ($a:ident, $steps:expr, $labels:expr) => {
        Operands {
            x: $a.log_probs,
            targets: $a.targets,
            steps: $steps,
            labels: $labels,
            blank: $a.blank,
            zero_infinity: $a.zero_infinity,
        }
    };
}

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    kernel(
        "_ctc_loss",
        "(Tensor log_probs, Tensor targets, int[] input_lengths, int[] target_lengths, int blank=0, bool zero_infinity=False) -> (Tensor, Tensor)",
        F,
        body!(rule, run, scratch: |a, _, outs, room| losses_room(room, outs, &sequences!(a))),
        "Minus the log probability of label sequences, and the logarithms that led to it.",
    ).samples("f32[4, 2, 3], i64([[1, 2], [2, 1]]), [4, 3], [2, 1], 0; f64[4, 2, 3], i64([1, 2, 2]), [4, 4], [2, 1]")
    .grad("log_probs: _ctc_loss_backward(grad, log_probs, targets, input_lengths, target_lengths, result0, result1, blank, zero_infinity)"),
    compose(
        "_ctc_loss#tensors",
        "(Tensor log_probs, Tensor targets, Tensor input_lengths, Tensor target_lengths, int blank=0, bool zero_infinity=False) -> (Tensor, Tensor)",
        F,
        |a| {
            let (steps, labels) = lengths(a.input_lengths, a.target_lengths)?;
            let call = f::_CtcLoss::new(a.log_probs, a.targets, &steps, &labels);
            let losses = call.blank(a.blank).zero_infinity(a.zero_infinity).call()?;
            Ok(Ret::Tuple(losses.into()))
        },
        "Minus the log probability of label sequences, and the logarithms that led to it.",
    ).samples("f32[4, 2, 3], i64([[1, 2], [2, 1]]), i64([4, 3]), i64([2, 1])")
    .batch(Batch::Each),
    compose(
        "nn.functional.ctc_loss",
        "(Tensor log_probs, Tensor targets, Tensor input_lengths, Tensor target_lengths, int blank=0, str reduction='mean', bool zero_infinity=False)",
        F,
        |a| {
            let reduction = Reduction::named(a.reduction)?;
            let (steps, labels) = lengths(a.input_lengths, a.target_lengths)?;
            ctc(&operands!(a, &steps, &labels), reduction)
        },
        "Minus the log probability of label sequences.",
    ).samples("f32[50, 16, 20], i64[16, 30].below(20), i64[16].below(51), i64[16].below(30), reduction='none', zero_infinity=True")
    .batch(Batch::Each)
    .amp(Cast::Single, Cast::Kept),
    compose(
        "nn.functional.ctc_loss#ints",
        "(Tensor log_probs, Tensor targets, int[] input_lengths, int[] target_lengths, int blank=0, str reduction='mean', bool zero_infinity=False)",
        F,
        |a| {
            let reduction = Reduction::named(a.reduction)?;
            ctc(&operands!(a, a.input_lengths, a.target_lengths), reduction)
        },
        "Minus the log probability of label sequences.",
    ).samples(
        "f32[4, 2, 3], i64([[1, 2], [2, 1]]), [4, 3], [2, 1]; \
         f32[4, 2, 3], i64([1, 2, 2]), [4, 4], [2, 1], reduction='sum'",
    )
    .amp(Cast::Single, Cast::Kept),
    compose(
        "ctc_loss",
        "(Tensor log_probs, Tensor targets, Tensor input_lengths, Tensor target_lengths, int blank=0, int reduction=Mean, bool zero_infinity=False)",
        F,
        |a| {
            let (steps, labels) = lengths(a.input_lengths, a.target_lengths)?;
            ctc(
                &operands!(a, &steps, &labels),
                Reduction::of_int(a.reduction),
            )
        },
        "Minus the log probability of label sequences.",
    ).samples("f32[4, 2, 3], i64([[1, 2], [2, 1]]), i64([4, 3]), i64([2, 1])")
    .batch(Batch::Each)
    .amp(Cast::Single, Cast::Kept),
    compose(
        "ctc_loss#ints",
        "(Tensor log_probs, Tensor targets, int[] input_lengths, int[] target_lengths, int blank=0, int reduction=Mean, bool zero_infinity=False)",
        F,
        |a| {
            ctc(
                &operands!(a, a.input_lengths, a.target_lengths),
                Reduction::of_int(a.reduction),
            )
        },
        "Minus the log probability of label sequences.",
    ).samples("f32[4, 2, 3], i64([[1, 2], [2, 1]]), [4, 3], [2, 1], 0, 2")
    .amp(Cast::Single, Cast::Kept),
];

/// The checks of the loss and of its gradient; gives the most labels of a sample.
pub(in crate::ops) fn check(s: &Sequences, blank: i64) -> Result<i64> {
    let (x, targets) = (s.x, s.targets);
    ensure!(
        x.ndim() == 3,
        Runtime,
        "log_probs must have 3 dimensions, got {}",
        x.ndim()
    );
    let (n, classes) = (x.shape()[1], x.shape()[2]);
    ensure!(
        matches!(targets.dtype(), DType::I64 | DType::I32),
        Runtime,
        "Expected tensor for argument #2 'targets' to have one of the following scalar types: Long, Int; but got torch.{}Tensor instead \
         (while checking arguments for ctc_loss)",
        targets.dtype().scalar_type()
    );
    ensure!(
        (0..classes).contains(&blank),
        Runtime,
        "blank must be in label range"
    );
    ensure!(
        s.steps.len() as i64 == n,
        Runtime,
        "input_lengths must be of size batch_size"
    );
    ensure!(
        s.lengths.len() as i64 == n,
        Runtime,
        "target_lengths must be of size batch_size"
    );
    check_lengths(s, n)?;
    Ok(s.lengths.iter().copied().max().unwrap_or(0))
}

/// The operands of a call as kernels take them.
macro_rules! sequences {
    ($a:expr) => {
        crate::cpu::ctc::Sequences {
            x: $a.log_probs,
            targets: $a.targets,
            steps: $a.input_lengths,
            lengths: $a.target_lengths,
            blank: $a.blank as usize,
        }
    };
}
pub(in crate::ops) use sequences;

fn rule(a: &calls::_CtcLoss) -> Result<Plan> {
    let x = a.log_probs;
    let longest = check(&sequences!(a), a.blank)?;
    x.dtype()
        .check_kernel(matches!(x.dtype(), DType::F32 | DType::F64), "ctc_loss_cpu")?;
    let (steps, n) = (x.shape()[0], x.shape()[1]);
    Ok(Plan::many(&[
        (&[n], x.dtype()),
        (&[n, steps, 2 * longest + 1], x.dtype()),
    ]))
}

/// Checks that targets and input of `n` samples are as long as their lengths say.
fn check_lengths(s: &Sequences, n: i64) -> Result<()> {
    let (targets, labels, steps) = (s.targets, s.lengths, s.x.shape()[0]);
    ensure!(
        targets.ndim() == 1 || targets.ndim() == 2,
        Runtime,
        "Expected 1 to 2 dimensions, but got {}-dimensional tensor for argument #2 'targets' (while checking arguments for \
         ctc_loss_allocate_outputs)",
        targets.ndim()
    );
    if let Some(l) = labels.iter().find(|l| **l < 0) {
        crate::bail!(
            Runtime,
            "Expected target_lengths to have value at least 0, but got value {l} (while checking arguments for ctc_loss_allocate_outputs)"
        );
    }
    let room = if targets.ndim() == 2 {
        ensure!(
            targets.shape()[0] == n,
            Runtime,
            "Expected tensor to have size {n} at dimension 0, but got size {} for argument #2 'targets' (while checking arguments for \
             ctc_loss_allocate_outputs)",
            targets.shape()[0]
        );
        targets.shape()[1]
    } else {
        let sum = labels.iter().fold(0i64, |sum, &l| sum.saturating_add(l));
        ensure!(
            targets.numel() == sum,
            Runtime,
            "Expected tensor to have size {sum} at dimension 0, but got size {} for argument #2 'targets' (while checking arguments for \
             ctc_loss_allocate_outputs)",
            targets.numel()
        );
        sum
    };
    let longest = labels.iter().copied().max().unwrap_or(0);
    ensure!(
        longest <= room,
        Runtime,
        "Expected tensor to have size at least {longest} at dimension 1, but got size {room} for argument #2 'targets' (while checking \
         arguments for ctc_loss_allocate_outputs)"
    );
    if let Some(s) = s.steps.iter().find(|s| !(0..=steps).contains(s)) {
        crate::bail!(
            Runtime,
            "Expected input_lengths to have value at most {steps}, but got value {s} (while checking arguments for ctc_loss_allocate_outputs)"
        );
    }
    Ok(())
}

fn run(a: &calls::_CtcLoss, (): &(), outs: &[Tensor]) -> Result<()> {
    losses(outs, &sequences!(a))
}

/// The values of the lengths of inputs and targets.
pub(in crate::ops) fn lengths(inputs: &Tensor, targets: &Tensor) -> Result<(Vec<i64>, Vec<i64>)> {
    Ok((
        values(inputs, "input_lengths")?,
        values(targets, "target_lengths")?,
    ))
}

fn values(t: &Tensor, name: &str) -> Result<Vec<i64>> {
    ensure!(
        t.dtype().is_integral(false),
        Runtime,
        "{name} must be integral"
    );
    readable(
        t,
        "ctc_loss() reads the lengths of its sequences, and meta tensors have none",
    )?
    .to_dtype(DType::I64)?
    .to_vec()
}

/// What the rows of all kinds take.
struct Operands<'a> {
    x: &'a Tensor,
    targets: &'a Tensor,
    steps: &'a [i64],
    labels: &'a [i64],
    blank: i64,
    zero_infinity: bool,
}

/// How many labels each sequence has, at least one, as tensors beside the losses (recorded if those are).
fn counts(labels: &[i64], losses: &Tensor) -> Result<Vec<Tensor>> {
    let count = |n: &i64| f::new_full(losses, &[], (*n).max(1));
    labels.iter().map(count).collect()
}

fn ctc(o: &Operands, r: Reduction) -> Result<Ret> {
    let single = o.x.ndim() == 2;
    let wide = if single {
        f::unsqueeze(o.x, 1)?
    } else {
        o.x.clone()
    };
    let whole = matches!(o.targets.dtype(), DType::I64 | DType::I32);
    let targets = if whole {
        o.targets.clone()
    } else {
        f::to_dtype(o.targets, DType::I64)?
    };
    let call = f::_CtcLoss::new(&wide, &targets, o.steps, o.labels);
    let [mut losses, _] = call.blank(o.blank).zero_infinity(o.zero_infinity).call()?;
    if o.zero_infinity {
        let none = f::Zeros::new(&[][..]).dtype(losses.dtype());
        let none = none.device(losses.device()).call()?;
        losses = f::where_(&f::eq(&losses, f64::INFINITY)?, &none, &losses)?;
    }
    if r == Reduction::Mean {
        let counts = f::stack(&counts(o.labels, &losses)?)?;
        return reduced(f::div(&losses, &counts)?, r);
    }
    if single && r == Reduction::None {
        return Ok(f::squeeze_dim(&losses, 0)?.into());
    }
    reduced(losses, r)
}
