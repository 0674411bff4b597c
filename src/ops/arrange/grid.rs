//! Tensors expanded over each other: grids and combinations.

use crate::dims;
use crate::ops::arrange::join::some;
use crate::ops::core::helpers;
use crate::ops::core::op::{F, OpDef, Ret, compose};
use crate::ops::f;
use crate::{Dims, Result, Tensor, ensure};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    compose(
        "meshgrid",
        "(Tensor[*] tensors, *, str? indexing=None) -> Tensor[]",
        F,
        meshgrid,
        "The coordinates of a grid, one tensor a dimension.",
    )
    .samples(
        "f32[4], indexing='ij'; c64[4], indexing='xy'; f32[3], f32[()], f32[3], indexing='xy'",
    ),
    compose(
        "broadcast_tensors",
        "(Tensor[*] tensors) -> Tensor[]",
        F,
        broadcast_tensors,
        "Tensors expanded to a common shape.",
    )
    .samples(
        "f16[3], f16[1, 2, 1], f16[1, 1], f16[5, 1, 1]; \
         u8([5, 1, 6]), u8([[[5], [6]]]), u8([[4]]), u8([[[2]], [[5]], [[5]], [[9]], [[3]]])",
    ),
    compose(
        "cartesian_prod",
        "(Tensor[*] tensors)",
        F,
        cartesian_prod,
        "All combinations of one element of each tensor.",
    )
    .samples("f32[1], f32[2]; c64[4]"),
    compose(
        "combinations",
        "(Tensor self, int r=2, bool with_replacement=False)",
        F,
        combinations,
        "All choices of `r` elements.",
    )
    .samples("f32[4], r=1; c64[4], r=1; f32[4], r=1, with_replacement=True"),
];

fn meshgrid(a: &calls::Meshgrid) -> Result<Vec<Tensor>> {
    let mut list = some(a.tensors, "meshgrid")?.refs();
    if a.indexing.is_none() {
        crate::warn_once!(
            "torch.meshgrid: in an upcoming release, it will be required to pass the indexing argument."
        );
    }
    let indexing = a.indexing.unwrap_or("ij");
    for &t in &list {
        ensure!(
            t.dtype() == list[0].dtype(),
            Runtime,
            "meshgrid expects all tensors to have the same dtype"
        );
        ensure!(
            t.device() == list[0].device(),
            Runtime,
            "meshgrid expects all tensors to have the same device"
        );
    }
    ensure!(
        matches!(indexing, "ij" | "xy"),
        Runtime,
        "torch.meshgrid: indexing must be one of \"xy\" or \"ij\", but received: {indexing}"
    );
    for &t in &list {
        ensure!(
            t.ndim() <= 1,
            Runtime,
            "torch.meshgrid: Expected 0D or 1D tensor in the tensor list but got: {}",
            t.shape()
        );
    }
    if indexing == "ij" || list.len() < 2 {
        return grid(&list);
    }
    // With "xy" the first two dimensions trade places.
    list.swap(0, 1);
    let mut grids = grid(&list)?;
    grids.swap(0, 1);
    Ok(grids)
}

/// Each vector along a dimension of its own, expanded over the others.
fn grid(list: &[&Tensor]) -> Result<Vec<Tensor>> {
    let shape: Dims = list.iter().map(|t| t.numel()).collect();
    let ones = Dims::filled(list.len(), 1);
    let grids = list.iter().enumerate().map(|(i, t)| {
        let line = f::view(t, &ones.with(i, t.numel()))?;
        f::expand(&line, &shape)
    });
    grids.collect()
}

fn broadcast_tensors(a: &calls::BroadcastTensors) -> Result<Vec<Tensor>> {
    let mut shape = Dims::EMPTY;
    for t in a.tensors.iter() {
        shape = dims::broadcast(&shape, t.shape())?;
    }
    let expanded = |t: &Tensor| match *t.shape() == shape {
        true => Ok(t.clone()),
        false => f::expand(t, &shape),
    };
    a.tensors.iter().map(expanded).collect()
}

fn cartesian_prod(a: &calls::CartesianProd) -> Result<Ret> {
    for t in a.tensors.iter() {
        ensure!(
            t.ndim() == 1,
            Runtime,
            "Expect a 1D vector, but got shape {}",
            t.shape()
        );
    }
    if a.tensors.len() == 1 {
        return Ok(Ret::Same(0));
    }
    let flat = f::Meshgrid::new(a.tensors)
        .indexing("ij")
        .call()?
        .iter()
        .map(|t| f::reshape(t, &[-1]))
        .collect::<Result<Vec<_>>>()?;
    f::Stack::new(&flat).dim(1).call().map(Ret::One)
}

fn combinations(a: &calls::Combinations) -> Result<Tensor> {
    let (t, r) = (a.input, a.r);
    ensure!(
        t.ndim() == 1,
        Runtime,
        "Expect a 1D vector, but got shape {}",
        t.shape()
    );
    ensure!(r >= 0, Runtime, "Expect a non-negative number, but got {r}");
    if r == 0 {
        return f::new_empty(t, &[0]);
    }
    let rows = choices(t.shape()[0], r, a.with_replacement)?;
    let count = rows.len() as i64 / r;
    let index = helpers::made_for(Tensor::from_slice(&rows, &[count, r])?, t)?;
    let columns = f::Unbind::new(&index).dim(1).call()?;
    let picked = columns.iter().map(|c| f::index_select(t, 0, c));
    f::Stack::new(&picked.collect::<Result<Vec<_>>>()?)
        .dim(1)
        .call()
}

/// All ascending choices of `r` of `n` places, one after another.
fn choices(n: i64, r: i64, replace: bool) -> Result<Vec<i64>> {
    let mut rows: Vec<i64> = Vec::new();
    if n == 0 || (!replace && r > n) {
        return Ok(rows);
    }
    let count = number_of_choices(if replace { n.saturating_add(r - 1) } else { n }, r);
    let room = count.and_then(|count| count.checked_mul(r)?.try_into().ok());
    ensure!(
        room.is_some_and(|room| rows.try_reserve_exact(room).is_ok()),
        Memory,
        "combinations: the choices of {r} of {n} do not fit into memory"
    );
    let mut pick: Vec<i64> = (0..r).map(|i| if replace { 0 } else { i }).collect();
    let mut going = true;
    while going {
        rows.extend(&pick);
        going = false;
        for i in (0..r as usize).rev() {
            let top = if replace { n - 1 } else { n - r + i as i64 };
            if pick[i] < top {
                pick[i] += 1;
                for j in i + 1..r as usize {
                    pick[j] = if replace { pick[i] } else { pick[j - 1] + 1 };
                }
                going = true;
                break;
            }
        }
    }
    Ok(rows)
}

/// In how many ways `r` of `n` things are chosen.
fn number_of_choices(n: i64, r: i64) -> Option<i64> {
    let few = r.min(n - r);
    let mut count = 1i128;
    for i in 0..few {
        count = count.checked_mul((n - i).into())? / i128::from(i + 1);
        i64::try_from(count).ok()?;
    }
    count.try_into().ok()
}
