//! Functions whose gradient the user writes (`autograd.Function`): their nodes are Python objects.

use super::error::carried;
use super::graph::{PyNode, optional};
use super::object::{PyTensor, attributes_of, is_tensor, tensor_ref, wrap};
use super::types::{PyDType, PyDevice, type_name};
use super::watch;
use crate::layers::autograd::{anomaly, forward, views};
use crate::layers::batch;
use crate::ops::f;
use crate::tensor::{Backward, Edges, Grads, Link, Mark, Meta, Node, Place};
use crate::{DType, Device, Dims, Result, Tensor, mode};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyList, PyTuple, PyType};
use smallvec::SmallVec;
use std::any::Any;
use std::borrow::Cow;

/// The node of a function of the user's.
pub struct Custom {
    /// The object that is `ctx` in the function's code.
    pub ctx: Py<PyAny>,
    /// What the only output looks like, where nothing is saved, written or marked.
    alone: Option<Meta>,
    /// How often the memory of each output had been written, if there are several views among them.
    versions: SmallVec<[u32; 2]>,
}

impl Backward for Custom {
    fn name(&self) -> Cow<'static, str> {
        let name = Python::attach(|py| {
            let class = self.ctx.bind(py).get_type();
            PyResult::Ok(class.name()?.to_string())
        });
        Cow::Owned(name.unwrap_or_default())
    }

    fn apply(&self, _: &Place, grads: &mut Grads) -> Result<Grads> {
        Python::attach(|py| self.call(py, std::mem::take(grads))).map_err(carried)
    }

    fn release(&self) {
        if self.alone.is_some() {
            return;
        }
        Python::attach(|py| {
            if let Err(e) = self.ctx.bind(py).call_method0("_release") {
                e.write_unraisable(py, None);
            }
        });
    }

    fn version_of(&self, nr: u16) -> Option<u32> {
        self.versions.get(usize::from(nr)).copied()
    }
}

fn gradient(o: &Bound<'_, PyAny>) -> PyResult<Option<Tensor>> {
    if o.is_none() {
        return Ok(None);
    }
    match tensor_ref(o) {
        Some(t) => Ok(Some(t.clone())),
        None => Err(PyRuntimeError::new_err(format!(
            "expected Variable or None (got {})",
            type_name(o)
        ))),
    }
}

impl Custom {
    fn call(&self, py: Python<'_>, mut grads: Grads) -> PyResult<Grads> {
        let ctx = self.ctx.bind(py);
        if let Some(meta) = &self.alone {
            if let [Some(_)] = grads.as_slice()
                && let Some(user) = plain_backward(ctx)?
            {
                let grad = grads.pop().flatten();
                return fitted(ctx, user.call1((ctx, optional(py, grad)?))?);
            }
            ctx.setattr(intern!(py, "_metas"), (shown(py, meta)?,))?;
        }
        let items = grads.into_iter().map(|g| optional(py, g));
        let given = PyTuple::new(py, items.collect::<PyResult<Vec<_>>>()?)?;
        let made = ctx.call_method1(intern!(py, "_run"), (given,))?;
        made.try_iter()?.map(|o| gradient(&o?)).collect()
    }
}

/// What an output with a gradient looks like, as `ctx` keeps it.
fn shown<'py>(py: Python<'py>, meta: &Meta) -> PyResult<Bound<'py, PyTuple>> {
    let shape = super::sizes::size(py, &meta.shape)?;
    (shape, PyDType(meta.dtype), PyDevice::of(meta.device), true).into_pyobject(py)
}

/// The user's `backward`, if nothing else is to be called.
fn plain_backward<'py>(ctx: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = ctx.py();
    let class = ctx.getattr(intern!(py, "_forward_cls"))?;
    let vjp = class.getattr(intern!(py, "vjp"))?;
    let same = BASE.get(py).is_some_and(|base| base.bind(py).is(&vjp));
    Ok(match same {
        true => Some(class.getattr(intern!(py, "backward"))?),
        false => None,
    })
}

/// The gradients of the tensors among the inputs, from what the user's `backward` gave.
fn fitted(ctx: &Bound<'_, PyAny>, made: Bound<'_, PyAny>) -> PyResult<Grads> {
    let py = ctx.py();
    let notes = attributes_of(ctx)?;
    if let Ok(all) = made.cast::<PyTuple>()
        && let Some(places) = notes.get_item(intern!(py, "_places"))?
        && let Some(count) = notes.get_item(intern!(py, "_count"))?
    {
        let places = places.cast::<PyTuple>()?;
        let count: usize = count.extract()?;
        let given = all.iter().filter(|o| !o.is_none()).count();
        let at = |i: Bound<'_, PyAny>| all.get_item(i.extract()?);
        let found: Vec<_> = places.iter().map(at).collect::<PyResult<_>>()?;
        let known = found.iter().filter(|o| !o.is_none()).count();
        if all.len() == count && given == known {
            return found.iter().map(gradient).collect();
        }
    }
    let made = ctx.call_method1(intern!(py, "_fitted"), (made,))?;
    made.try_iter()?.map(|o| gradient(&o?)).collect()
}

/// `Function.vjp`, which nobody calls: functions that have another one are seen to in Python.
static BASE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// Gradients are off until it is dropped.
struct NoGrad(bool);

impl NoGrad {
    fn now() -> Self {
        Self(mode::set_grad_enabled(false))
    }
}

impl Drop for NoGrad {
    fn drop(&mut self) {
        mode::set_grad_enabled(self.0);
    }
}

/// Whether nobody stands between a function and its call: no transform, no override, no tangents.
fn is_plain(
    class: &Bound<'_, PyType>,
    args: &[Bound<'_, PyAny>],
    base: &Bound<'_, PyType>,
) -> PyResult<bool> {
    let name = intern!(class.py(), "setup_context");
    let quiet = !batch::is_on() && !watch::watched(args.iter().filter(|o| is_tensor(o)));
    Ok(quiet && forward::open().is_empty() && class.getattr(name)?.is(&base.getattr(name)?))
}

/// Calls a function of the user's and records it. `base` is the class `Function`; `slowly(class, args)` calls it where somebody
/// stands between, and `wrapped(ctx, args, output, tracked)` gives several outputs their history, or what was saved or marked.
#[pyfunction]
fn _apply_function<'py>(
    class: &Bound<'py, PyType>,
    args: &Bound<'py, PyTuple>,
    base: &Bound<'py, PyType>,
    slowly: &Bound<'py, PyAny>,
    wrapped: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = class.py();
    let objects: Vec<_> = args.iter().collect();
    if !is_plain(class, &objects, base)? {
        return slowly.call1((class, args));
    }
    if BASE.get(py).is_none() {
        let _ = BASE.set(py, base.getattr("vjp")?.unbind());
    }
    let ctx = class.getattr(intern!(py, "_backward_cls"))?.call0()?;
    let places: Vec<usize> = (0..objects.len())
        .filter(|i| tensor_ref(&objects[*i]).is_some())
        .collect();
    if mode::grad_enabled() {
        // What was written through another view has a history that the handle has not seen.
        for holder in objects.iter().filter_map(|o| o.cast::<PyTensor>().ok()) {
            holder.get().settled()?;
        }
    }
    let wants = |o: &Bound<'_, PyAny>| tensor_ref(o).is_some_and(Tensor::requires_grad);
    let wanted: Vec<bool> = objects.iter().map(wants).collect();
    let tracked = mode::grad_enabled() && wanted.contains(&true);
    let notes = attributes_of(&ctx)?;
    notes.set_item(intern!(py, "_count"), objects.len())?;
    notes.set_item(intern!(py, "_places"), PyTuple::new(py, &places)?)?;
    notes.set_item(intern!(py, "needs_input_grad"), PyTuple::new(py, wanted)?)?;
    let mut given = vec![ctx.clone()];
    given.extend(objects.iter().cloned());
    let output = {
        let _off = NoGrad::now();
        class
            .getattr(intern!(py, "forward"))?
            .call1(PyTuple::new(py, given)?)?
    };
    let given = objects.iter().any(|a| a.is(&output));
    let holder = match output.cast::<PyTensor>() {
        Ok(holder) if !given && is_alone(&notes)? => holder.get(),
        _ => return wrapped.call1((ctx, args, output, tracked)),
    };
    let meta = Meta::of(holder.get());
    if !(tracked && (meta.dtype.is_float() || meta.dtype.is_complex())) {
        return match holder.get().requires_grad() {
            true => wrapped.call1((ctx, args, output, tracked)),
            false => Ok(output),
        };
    }
    let edge = |i: &usize| tensor_ref(&objects[*i]).and_then(|t| t.edge());
    let edges = places.iter().map(edge).collect();
    let ctx = ctx.cast_into::<PyNode>()?;
    history(&ctx, Custom::of(&ctx, Some(meta)), edges, &[Some(holder)]);
    Ok(output)
}

/// Whether a function saved, wrote and marked nothing.
fn is_alone(notes: &Bound<'_, PyDict>) -> PyResult<bool> {
    let py = notes.py();
    for name in [
        intern!(py, "_dirty"),
        intern!(py, "_constant"),
        intern!(py, "_to_save"),
    ] {
        if notes
            .get_item(name)?
            .is_some_and(|v| v.len().map_or(true, |n| n > 0))
        {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The Python object that is a node itself.
pub fn owner<'py>(py: Python<'py>, body: &dyn Backward) -> Option<Bound<'py, PyAny>> {
    let body: &dyn Any = body;
    let custom = body.downcast_ref::<Custom>()?;
    Some(custom.ctx.bind(py).clone())
}

/// Gives a function's outputs their history: `ctx` becomes the node, between `inputs` and `outputs`, among which are None in
/// the place of those without a gradient. `written`: the only output is an input that the function wrote.
///
/// Views among the outputs must not be written through: that would pass by the function's gradient.
#[pyfunction]
fn _set_history(
    ctx: &Bound<'_, PyNode>,
    inputs: Vec<Bound<'_, PyAny>>,
    outputs: &Bound<'_, PyList>,
    written: bool,
) -> PyResult<()> {
    let edges = inputs.iter().map(|o| tensor_ref(o).and_then(|t| t.edge()));
    let edges = edges.collect();
    let body = Custom::of(ctx, None);
    if written {
        let only = outputs.get_item(0)?;
        let holder = PyTensor::of(&only)?;
        let t = holder.get().clone();
        views::check_write(&t)?;
        let (made, link) = views::wrote(&t, t.clone(), body, edges)?;
        ctx.get().place(&link);
        holder.become_(made);
        return Ok(());
    }
    let outputs: Vec<_> = outputs.iter().collect();
    let given = outputs.iter().map(|o| match o.is_none() {
        true => Ok(None),
        false => PyTensor::of(o).map(Some),
    });
    let holders: Vec<_> = given.collect::<PyResult<_>>()?;
    history(ctx, body, edges, &holders);
    Ok(())
}

impl Custom {
    fn of(ctx: &Bound<'_, PyNode>, alone: Option<Meta>) -> Box<Self> {
        Box::new(Self {
            ctx: ctx.clone().into_any().unbind(),
            alone,
            versions: SmallVec::new(),
        })
    }
}

/// Makes `ctx` the node between its edges and the tensors of `holders`.
fn history(
    ctx: &Bound<'_, PyNode>,
    mut body: Box<Custom>,
    edges: Edges,
    holders: &[Option<&PyTensor>],
) {
    let nothing = || Meta {
        shape: Dims::new(&[]),
        dtype: DType::Bool,
        device: Device::CPU,
    };
    let outs = holders
        .iter()
        .map(|h| h.map_or_else(nothing, |h| Meta::of(h.get())))
        .collect();
    let known = holders
        .iter()
        .map(|h| h.map(|h| h.get().storage().version()));
    let version = known.clone().flatten().next().unwrap_or(0);
    let versions: SmallVec<[u32; 2]> = known.map(|v| v.unwrap_or(version)).collect();
    if versions.iter().any(|v| *v != version) {
        body.versions = versions;
    }
    let link = Link::of_node(Node::new(body, edges, outs).at_version(version));
    ctx.get().place(&link);
    anomaly::made(&link);
    let mark = match holders.iter().flatten().count() {
        1 => Mark::InFunction,
        _ => Mark::OneOfSeveral,
    };
    for (nr, holder) in holders.iter().enumerate() {
        let Some(holder) = holder else { continue };
        let mut t = holder.get().clone().tracked(link.clone(), nr as u16);
        if t.is_view() {
            t = t.marked(mark);
        }
        holder.set(t);
    }
}

/// Gives the memory of dense tensors the size that each needs and the elements of another one, in their order. They count as
/// unchanged: they have their old values again. In the place of None there is a new one, flat. Returns all of them.
#[pyfunction]
fn _refill<'py>(
    tensors: Vec<Option<Bound<'py, PyTensor>>>,
    values: Vec<Bound<'py, PyTensor>>,
) -> PyResult<Vec<Bound<'py, PyAny>>> {
    if tensors.len() != values.len() {
        let text = format!(
            "{} tensors cannot take {} values",
            tensors.len(),
            values.len()
        );
        return Err(PyValueError::new_err(text));
    }
    let _off = NoGrad::now();
    let filled = |(t, values): (Option<Bound<'py, PyTensor>>, &Bound<'py, PyTensor>)| {
        let (py, values) = (values.py(), values.get().get());
        let t = match t {
            Some(t) => t.into_any(),
            None => wrap(py, f::NewEmpty::new(values, &[values.numel()]).call()?)?,
        };
        refill(PyTensor::of(&t)?.get(), values)?;
        Ok(t)
    };
    tensors.into_iter().zip(&values).map(filled).collect()
}

fn refill(t: &Tensor, values: &Tensor) -> Result<()> {
    let version = t.storage().version();
    t.storage().resize(t.numel() as usize * t.dtype().size())?;
    match t.shape() == values.shape() {
        true => crate::ops::helpers::copy_(t, values)?,
        false => crate::ops::helpers::copy_(&f::view(t, values.shape())?, values)?,
    }
    t.storage().set_version(version);
    Ok(())
}

/// Lets the memory of tensors go that is to be filled again.
#[pyfunction]
fn _empty_out(tensors: Vec<Bound<'_, PyTensor>>) -> PyResult<()> {
    for t in &tensors {
        t.get().get().storage().resize(0)?;
    }
    Ok(())
}

/// Counts a change of a tensor's memory that nobody else counts.
#[pyfunction]
fn _increment_version(t: &Bound<'_, PyTensor>) {
    t.get().get().storage().bump();
}

/// Adds the functions to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(_refill, m)?)?;
    m.add_function(wrap_pyfunction!(_empty_out, m)?)?;
    m.add_function(wrap_pyfunction!(_apply_function, m)?)?;
    m.add_function(wrap_pyfunction!(_increment_version, m)?)?;
    m.add_function(wrap_pyfunction!(_set_history, m)?)
}
