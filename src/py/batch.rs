//! `vmap` and the transforms of `torchlike.func`, as Python uses them.

use super::object::{PyTensor, tensor_ref, viewing, wrap};
use crate::layers::autograd::{engine, forward, views};
use crate::layers::batch::{self, Randomness};
use crate::layers::modes;
use crate::ops::f;
use crate::tensor::Edge;
use crate::{Result, Tensor, captured};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

/// Opens a level for so many examples, and gives its number; `randomness` is 'error', 'different' or 'same'.
#[pyfunction]
fn _batch_enter(size: i64, randomness: &str) -> PyResult<u32> {
    let randomness = match randomness {
        "error" => Randomness::Error,
        "different" => Randomness::Different,
        "same" => Randomness::Same,
        other => {
            return Err(PyRuntimeError::new_err(format!(
                "Only allowed values for randomness are 'error', 'different', or 'same'. Got {other}"
            )));
        }
    };
    Ok(batch::enter(size, randomness))
}

/// Says of the innermost level that its examples differ in their tangents alone.
#[pyfunction]
fn _batch_differ_in_tangents() {
    batch::differ_in_tangents();
}

/// Closes a level, and those opened since.
#[pyfunction]
fn _batch_exit(level: u32) {
    batch::exit(level);
}

/// Sets a level and those opened since aside for random operators; gives the numbers that `_batch_take_back` wants.
#[pyfunction]
fn _batch_set_aside(level: u32) -> Vec<u32> {
    batch::set_aside(level)
}

/// Ends what `_batch_set_aside` began.
#[pyfunction]
fn _batch_take_back(levels: Vec<u32>) {
    batch::take_back(&levels);
}

/// One example of a level: the tensor without dimension `dim`.
#[pyfunction]
fn _batch_hide<'py>(t: &Bound<'py, PyTensor>, dim: i64, level: u32) -> PyResult<Bound<'py, PyAny>> {
    let made = wrap(t.py(), batch::hide(t.get().get(), dim, level)?)?;
    Ok(viewing(made, &[t.clone().into_any()]))
}

/// All `size` examples of a level along dimension `dim`.
#[pyfunction]
fn _batch_show<'py>(
    t: &Bound<'py, PyTensor>,
    dim: i64,
    level: u32,
    size: i64,
) -> PyResult<Bound<'py, PyAny>> {
    let made = wrap(t.py(), batch::show(t.get().get(), dim, level, size)?)?;
    // Of examples that were made inside nobody outside is shown one.
    let base = t.get().base();
    match base.filter(|b| !batch::is_at(b.get().get(), level)) {
        Some(base) => Ok(viewing(made, &[base.bind(t.py()).clone().into_any()])),
        None => Ok(made),
    }
}

/// Whether a tensor is an example of a level.
#[pyfunction]
fn _batch_is_at(t: &Bound<'_, PyTensor>, level: u32) -> bool {
    batch::is_at(t.get().get(), level)
}

/// Whether a tensor, or a tangent of it, is an example of a level.
#[pyfunction]
fn _batch_differs(t: &Bound<'_, PyTensor>, level: u32) -> bool {
    batch::differs(t.get().get(), &[(level, 0)])
}

/// The levels that the tensors among some values are examples of, the lowest first.
#[pyfunction]
fn _batch_levels(values: &Bound<'_, PyTuple>) -> Vec<u32> {
    let mut found: Vec<u32> = Vec::new();
    if batch::is_on() {
        for o in values.iter() {
            if let Some(t) = tensor_ref(&o) {
                found.extend(t.batch().iter().map(|d| d.level));
            }
        }
        found.sort_unstable();
        found.dedup();
    }
    found
}

/// Along which dimension the examples of a level, of which a tensor is one, were given; 0 for what was made since.
#[pyfunction]
fn _batch_dim(t: &Bound<'_, PyTensor>, level: u32) -> i64 {
    batch::given::dim(t.get().get(), level)
}

/// Whether a level is open.
#[pyfunction]
fn _batch_is_on() -> bool {
    batch::is_on()
}

/// How many examples an open level has, and what random operators do there; None for any other number.
#[pyfunction]
fn _batch_about(level: u32) -> Option<(i64, &'static str)> {
    let (size, randomness) = batch::about(level)?;
    let word = match randomness {
        Randomness::Error => "error",
        Randomness::Different => "different",
        Randomness::Same => "same",
    };
    Some((size, word))
}

/// How many levels are open around an open level, itself included; 0 for any other number.
#[pyfunction]
fn _batch_depth(level: u32) -> usize {
    batch::depth(level)
}

/// The levels that a tensor is an example of, and all examples.
#[pyfunction]
fn _batch_whole<'py>(t: &Bound<'py, PyTensor>) -> PyResult<(Vec<u32>, Bound<'py, PyAny>)> {
    let own = t.get().get();
    let levels = own.batch().iter().map(|d| d.level).collect();
    Ok((levels, wrap(t.py(), own.whole())?))
}

/// A tensor whose gradient a transform computes: the same values, of all examples apart. Where it had a history, also what stands for it in
/// the graph, whatever is written to the first.
#[pyfunction]
fn _func_input<'py>(
    t: &Bound<'py, PyTensor>,
) -> PyResult<(Bound<'py, PyAny>, Option<Bound<'py, PyAny>>)> {
    let own = views::current(&t.get().get().whole())?.into_owned();
    let own = batch::same_example(&own, t.get().get())?;
    let (input, tracked) = input(&own)?;
    let place = tracked.then(|| wrap(t.py(), input.clone())).transpose()?;
    Ok((wrap(t.py(), input)?, place))
}

fn input(t: &Tensor) -> Result<(Tensor, bool)> {
    let each = batch::each_apart(t)?;
    let whole = each.whole();
    if !whole.requires_grad() {
        return Ok((batch::same_example(&whole.fresh_leaf(), &each)?, false));
    }
    // To who watches it is the tensor itself. A write that nobody records leaves the place of a tensor, but not that of a view.
    let view = modes::unseen(|| f::view_as(&whole, &whole))?.numbered_alike(whole.nr_alike());
    let made = match view.edge() {
        Some(edge) => view.of_its_own().tracked(edge.to, edge.nr),
        None => view,
    };
    Ok((batch::same_example(&made, &each)?, true))
}

fn edges(tensors: &[Bound<'_, PyAny>]) -> Result<Vec<Edge>> {
    let of = |t: &Tensor| Ok(views::current(&t.whole())?.edge());
    let all = tensors.iter().filter_map(tensor_ref).map(of);
    let all = all.collect::<Result<Vec<Option<Edge>>>>()?;
    Ok(all.into_iter().flatten().collect())
}

/// Whether the outputs depend on leaves that are no `inputs`, nor before these.
#[pyfunction]
fn _leads_elsewhere(
    outputs: Vec<Bound<'_, PyAny>>,
    inputs: Vec<Bound<'_, PyAny>>,
) -> PyResult<bool> {
    Ok(engine::leads_elsewhere(&edges(&outputs)?, &edges(&inputs)?))
}

/// The tensor without its history, and apart from what is written where it lies; its tangents and levels stay.
#[pyfunction]
fn _untracked<'py>(t: &Bound<'py, PyTensor>) -> PyResult<Bound<'py, PyAny>> {
    let own = t.get().get();
    let whole = own.whole();
    let made = whole.untracked().of_its_own();
    wrap(t.py(), batch::same_example(&made, own)?)
}

/// The tensor without histories, its own and those of its tangents, that lead to nothing but `inputs`; without any if nobody asks for
/// gradients of what is outside.
#[pyfunction]
fn _outward<'py>(
    t: &Bound<'py, PyTensor>,
    inputs: Vec<Bound<'_, PyAny>>,
    outside: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let (own, inputs) = (t.get().get(), edges(&inputs)?);
    match apart(&own.whole(), &inputs, outside)? {
        Some(made) => wrap(t.py(), batch::same_example(&made.of_its_own(), own)?),
        None => Ok(t.clone().into_any()),
    }
}

/// The tensor without such histories, if it had some.
fn apart(t: &Tensor, inputs: &[Edge], outside: bool) -> Result<Option<Tensor>> {
    let edge = views::current(t)?.edge();
    let ends = |edge| !outside || !engine::leads_elsewhere(&[edge], inputs);
    let mut made = edge.is_some_and(ends).then(|| t.untracked());
    for (level, tangent) in t.tangents() {
        if let Some(tangent) = apart(tangent, inputs, outside)? {
            let whole = made.unwrap_or_else(|| t.clone());
            made = Some(whole.with_tangent(*level, tangent));
        }
    }
    Ok(made)
}

/// Refuses to read the value of an example.
pub fn check_item(t: &Tensor) -> PyResult<()> {
    if !t.batch().iter().any(|d| !d.alike) {
        return Ok(());
    }
    Err(PyRuntimeError::new_err(
        "vmap: It looks like you're calling .item() on a Tensor. We don't support vmap over calling .item() on a Tensor, please \
         try to rewrite what you're doing with other operations. If error is occurring somewhere inside PyTorch internals, please \
         file a bug report.",
    ))
}

/// Refuses to decide by the value of an example.
pub fn check_choice(t: &Tensor) -> PyResult<()> {
    if !t.batch().iter().any(|d| !d.alike) {
        return Ok(());
    }
    Err(PyRuntimeError::new_err(
        "vmap: It looks like you're attempting to use a Tensor in some data-dependent control flow. We don't support that yet, \
         please file an issue at https://github.com/pytorch/pytorch/issues .",
    ))
}

/// Refuses to hand out the memory of an example.
pub fn check_memory(t: &Tensor) -> PyResult<()> {
    if !t.batch().iter().any(|d| !d.alike) {
        return Ok(());
    }
    Err(PyRuntimeError::new_err(NO_MEMORY))
}

/// Refuses to show others the memory of what a function is differentiated by in forward mode: they would not see the tangent.
pub fn check_shown(t: &Tensor) -> PyResult<()> {
    if captured::depth() == 0 || !forward::is_dual(t) {
        return Ok(());
    }
    Err(PyRuntimeError::new_err(NO_MEMORY))
}

const NO_MEMORY: &str = "Cannot access data pointer of Tensor that doesn't have storage";

/// Warns that an operator, as `aten::sin`, runs once for each example.
#[pyfunction]
fn _batch_warn(name: &str) {
    batch::warn_of_loop(name);
}

/// Adds the functions to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    macro_rules! add {
        ($($f:ident)+) => { $(m.add_function(wrap_pyfunction!($f, m)?)?;)+ };
    }
    add!(_batch_enter _batch_differ_in_tangents _batch_exit _batch_dim _batch_set_aside _batch_take_back _batch_hide _batch_show _batch_is_at _batch_differs _batch_is_on _batch_about _batch_depth _batch_levels _batch_warn _batch_whole _func_input _leads_elsewhere _outward _untracked);
    Ok(())
}
