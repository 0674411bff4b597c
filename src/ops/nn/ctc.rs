//! ctc_loss.

use crate::ops::core::args::{Arg, Args};
use crate::ops::core::dispatch;
use crate::ops::core::op::{F, KernelBody, OpDef, Plan, Ret, kernel, old_compose};
use crate::ops::nn::loss::{Reduction, reduced};
use crate::{DType, Dims, Result, Tensor, cpu, ensure, op, run1};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    kernel(
        "_nn.ctc_loss",
        "(Tensor log_probs, Tensor targets, int[] input_lengths, int[] target_lengths, int blank)",
        0,
        KernelBody::new(infer, |a, o| {
            cpu::ctc::losses(
                &o[0],
                a.tensor(0)?,
                a.tensor(1)?,
                a.ints(2)?,
                a.ints(3)?,
                a.int(4)? as usize,
            )
        }),
        "Minus the log probability of label sequences.",
    ),
    old_compose(
        "nn.functional.ctc_loss",
        "(Tensor log_probs, Tensor targets, Tensor input_lengths, Tensor target_lengths, int blank=0, str reduction='mean', bool zero_infinity=False)",
        F,
        |a| ctc(a, Reduction::named(a.str(5).unwrap_or("mean"))?),
        "Minus the log probability of label sequences.",
    ),
    old_compose(
        "nn.functional.ctc_loss#ints",
        "(Tensor log_probs, Tensor targets, int[] input_lengths, int[] target_lengths, int blank=0, str reduction='mean', bool zero_infinity=False)",
        F,
        |a| ctc(a, Reduction::named(a.str(5).unwrap_or("mean"))?),
        "Minus the log probability of label sequences.",
    ),
    old_compose(
        "ctc_loss",
        "(Tensor log_probs, Tensor targets, Tensor input_lengths, Tensor target_lengths, int blank=0, int reduction=1, bool zero_infinity=False)",
        F,
        |a| ctc(a, Reduction::of_int(a.int(5)?)),
        "Minus the log probability of label sequences.",
    ),
    old_compose(
        "ctc_loss#ints",
        "(Tensor log_probs, Tensor targets, int[] input_lengths, int[] target_lengths, int blank=0, int reduction=1, bool zero_infinity=False)",
        F,
        |a| ctc(a, Reduction::of_int(a.int(5)?)),
        "Minus the log probability of label sequences.",
    ),
];

fn infer(a: &Args) -> Result<Plan> {
    let (x, targets, steps, lengths) = (a.tensor(0)?, a.tensor(1)?, a.ints(2)?, a.ints(3)?);
    ensure!(
        x.ndim() == 3,
        Runtime,
        "log_probs must have 3 dimensions, got {}",
        x.ndim()
    );
    let (t, n, classes) = (x.shape()[0], x.shape()[1], x.shape()[2]);
    ensure!(
        matches!(targets.dtype(), DType::I64 | DType::I32),
        Runtime,
        "Expected tensor for argument #2 'targets' to have one of the following scalar types: Long, Int; but got torch.{}Tensor instead \
         (while checking arguments for ctc_loss)",
        targets.dtype().scalar_type()
    );
    ensure!(
        (0..classes).contains(&a.int(4)?),
        Runtime,
        "blank must be in label range"
    );
    ensure!(
        steps.len() as i64 == n,
        Runtime,
        "input_lengths must be of size batch_size"
    );
    ensure!(
        lengths.len() as i64 == n,
        Runtime,
        "target_lengths must be of size batch_size"
    );
    ensure!(
        targets.ndim() == 1 || targets.ndim() == 2,
        Runtime,
        "targets must have 1 or 2 dimensions, got {}",
        targets.ndim()
    );
    let sum: i64 = lengths.iter().map(|l| (*l).max(0)).sum();
    let room = if targets.ndim() == 2 {
        ensure!(
            targets.shape()[0] == n,
            Runtime,
            "Expected tensor to have size {n} at dimension 0, but got size {} for argument #2 'targets' (while checking arguments for ctc_loss)",
            targets.shape()[0]
        );
        targets.shape()[1]
    } else {
        ensure!(
            targets.numel() == sum,
            Runtime,
            "Expected tensor to have {sum} elements for argument #2 'targets', but got {} (while checking arguments for ctc_loss)",
            targets.numel()
        );
        sum
    };
    let longest = lengths.iter().copied().max().unwrap_or(0);
    ensure!(
        longest <= room,
        Runtime,
        "Expected tensor to have size at least {longest} at dimension 1, but got size {room} for argument #2 'targets' (while checking \
         arguments for ctc_loss_allocate_outputs)"
    );
    ensure!(
        lengths.iter().all(|&l| l >= 0),
        Runtime,
        "Expected target_lengths to be not negative"
    );
    for &s in steps.iter() {
        ensure!(
            (0..=t).contains(&s),
            Runtime,
            "Expected input_lengths to have value at most {t}, but got value {s} (while checking arguments for ctc_loss_allocate_outputs)"
        );
    }
    x.dtype()
        .check_kernel(matches!(x.dtype(), DType::F32 | DType::F64), "ctc_loss_cpu")?;
    Ok(Plan::contiguous(&[n], x.dtype()))
}

fn lengths(a: &Args, i: usize) -> Result<Dims> {
    let Some(t) = a.opt_tensor(i) else {
        return Ok(a.ints(i)?.clone());
    };
    ensure!(
        t.dtype().is_integral(false),
        Runtime,
        "{} must be integral",
        a.op.schema.params[i].name
    );
    let host = crate::ops::core::helpers::readable(
        t,
        "ctc_loss() reads the lengths of its sequences, and meta tensors have none",
    )?;
    Ok(Dims::new(cpu::slice::<i64>(&cpu::copy::dense(
        &host,
        DType::I64,
    )?)))
}

fn ctc(a: &Args, r: Reduction) -> Result<Ret> {
    let (x, targets) = (a.tensor(0)?, a.tensor(1)?);
    let (steps, labels) = (lengths(a, 2)?, lengths(a, 3)?);
    let single = x.ndim() == 2;
    let wide = if single {
        run1!("unsqueeze", x, 1i64)?
    } else {
        x.clone()
    };
    let values = [
        Arg::Tensor(&wide),
        Arg::Tensor(targets),
        Arg::Ints(steps),
        Arg::Ints(labels.clone()),
        Arg::Int(a.int(4)?),
    ];
    let mut losses: Tensor = dispatch::run(op!("_nn.ctc_loss")?, &values)?.one()?;
    if a.bool(6) {
        losses = run1!("masked_fill", &losses, &run1!("isinf", &losses)?, 0i64)?;
    }
    if r == Reduction::Mean {
        let counts: Vec<f64> = labels.iter().map(|&l| l.max(1) as f64).collect();
        let counts = Tensor::from_slice(&counts, &[counts.len() as i64])?
            .to_dtype(losses.dtype())?
            .to_device(losses.device())?;
        return reduced(run1!("div", &losses, &counts)?, r);
    }
    if single && r == Reduction::None {
        return Ok(run1!("squeeze#dim", &losses, 0i64)?.into());
    }
    reduced(losses, r)
}
