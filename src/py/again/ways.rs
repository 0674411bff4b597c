//! Ways between wholes on a mesh, this process's pieces of them, and other places on the mesh: nodes of the graph.

use super::moved::brought;
use super::whole::{self, Lies};
use crate::layers::autograd::{anomaly, forward};
use crate::ops::{f, helpers};
use crate::py::error::carried;
use crate::py::noted::{self, Noted};
use crate::py::object::{PyTensor, tensor_ref, viewing, wrap};
use crate::py::types::{self, PyDType};
use crate::tensor::{Backward, Grads, Link, Mark, Meta, Node, Place};
use crate::{DType, MemoryFormat, Result, Tensor, mode};
use pyo3::exceptions::PyNotImplementedError;
use pyo3::intern;
use pyo3::prelude::*;
use smallvec::smallvec;
use std::borrow::Cow;

/// How a tensor came to be of another one.
enum Way {
    /// The piece of a whole that lies so. `wanted`: how the gradient of the piece lies, if that was said.
    ToPiece {
        spec: Py<PyAny>,
        wanted: Option<Py<PyAny>>,
    },
    /// The whole that lies so, of a piece. `wanted`: where the gradient of the whole is to go, if that was said.
    OfPiece {
        spec: Py<PyAny>,
        wanted: Option<Py<PyAny>>,
    },
    /// The same whole elsewhere. Its gradient is moved in one type, and given in another.
    Elsewhere {
        before: Py<PyAny>,
        moved: DType,
        given: DType,
    },
    /// A gradient that was brought to where its tensor had been.
    Back { before: Py<PyAny> },
}

impl Backward for Way {
    fn name(&self) -> Cow<'static, str> {
        Cow::Borrowed(match self {
            Self::ToPiece { .. } => "_ToTorchTensorBackward",
            Self::OfPiece { .. } => "_FromTorchTensorBackward",
            Self::Elsewhere { .. } => "RedistributeBackward",
            Self::Back { .. } => "NestedRedistributeBackward",
        })
    }

    fn apply(&self, _: &Place, grads: &mut Grads) -> Result<Grads> {
        let Some(grad) = grads.pop().flatten() else {
            return Ok(smallvec![None]);
        };
        let made = Python::attach(|py| self.back(py, &grad)).map_err(carried)?;
        drop(grad);
        let made: Grads = smallvec![Some(made)];
        // The gradient was one that handles its calls, even if what it became is none.
        noted::settled(&made);
        Ok(made)
    }

    fn release(&self) {}
}

impl Way {
    /// The gradient before this, of the one behind.
    fn back(&self, py: Python<'_>, grad: &Tensor) -> PyResult<Tensor> {
        match self {
            Self::ToPiece { spec, wanted } => {
                let spec = spec.bind(py);
                let lies = (wrap(py, grad.clone())?, or_unsplit(spec, wanted.as_ref())?);
                let lies = spec.call_method1(intern!(py, "of_piece"), lies)?;
                of_piece(grad, &lies, None)
            }
            Self::OfPiece { spec, wanted } => {
                let wanted = or_unsplit(spec.bind(py), wanted.as_ref())?;
                let now = Lies::of(py, grad)?;
                if now.spec.getattr(intern!(py, "placements"))?.eq(&wanted)? {
                    return piece_of_gradient(grad, now);
                }
                let target = now.spec.call_method1(intern!(py, "placed"), (wanted,))?;
                let there = elsewhere(grad, now, None, &target, None)?;
                piece_of_gradient(&there, Lies::of(py, &there)?)
            }
            Self::Elsewhere {
                before,
                moved,
                given,
            } => back(grad, Lies::of(py, grad)?, before.bind(py), *moved, *given),
            Self::Back { before } => {
                let before = before.bind(py);
                let wanted = before.getattr(intern!(py, "unsplit"))?;
                let target = before.call_method1(intern!(py, "placed"), (wanted, true))?;
                elsewhere(grad, Lies::of(py, grad)?, None, &target, None)
            }
        }
    }

    /// What was made this way of a tensor, with the history of that.
    fn note(self, of: &Tensor, made: Tensor) -> Tensor {
        let follows = made.dtype().is_float() || made.dtype().is_complex();
        if !(follows && mode::grad_enabled() && of.requires_grad()) {
            return made;
        }
        let node = Node::new(
            Box::new(self),
            smallvec![of.edge()],
            smallvec![Meta::of(&made)],
        );
        let link = Link::of_node(node.at_version(made.storage().version()));
        anomaly::made(&link);
        let made = made.tracked(link, 0);
        match made.is_view() {
            true => made.marked(Mark::InFunction),
            false => made,
        }
    }
}

/// Placements that were asked for, or those of a spec with what is partial reduced.
fn or_unsplit<'py>(
    spec: &Bound<'py, PyAny>,
    wanted: Option<&Py<PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    match wanted {
        Some(wanted) => Ok(wanted.bind(spec.py()).clone()),
        None => spec.getattr(intern!(spec.py(), "unsplit")),
    }
}

/// The same placements of tensors of a type.
fn typed<'py>(spec: &Bound<'py, PyAny>, dtype: DType) -> PyResult<Bound<'py, PyAny>> {
    let py = spec.py();
    if whole::dtype_of(spec)? == dtype {
        return Ok(spec.clone());
    }
    spec.call_method1(intern!(py, "typed"), (types::dtype(py, dtype)?,))
}

fn cast(locals: &[Tensor], dtype: DType) -> Result<Vec<Tensor>> {
    locals.iter().map(|t| t.to_dtype(dtype)).collect()
}

/// This process's piece of a gradient; where it plays several ranks, each has a part in the piece that all of them gave.
fn piece_of_gradient(grad: &Tensor, lies: Lies) -> PyResult<Tensor> {
    if let [piece] = lies.locals.as_slice() {
        return to_piece(grad, &lies.spec, piece, None);
    }
    let mut pieces = lies.locals.iter();
    let Some(first) = pieces.next() else {
        return Ok(Tensor::empty(&[0], grad.dtype(), grad.device())?);
    };
    Ok(mode::with_grad(false, || {
        pieces.try_fold(first.clone(), |sum, piece| f::add(&sum, piece))
    })?)
}

fn to_piece(
    t: &Tensor,
    spec: &Bound<'_, PyAny>,
    piece: &Tensor,
    wanted: Option<Py<PyAny>>,
) -> PyResult<Tensor> {
    if !mode::grad_enabled() {
        return Ok(piece.clone());
    }
    let shown = mode::with_grad(false, || f::view(piece, piece.shape()))?;
    let spec = spec.clone().unbind();
    Ok(Way::ToPiece { spec, wanted }.note(t, shown))
}

fn of_piece(
    piece: &Tensor,
    spec: &Bound<'_, PyAny>,
    wanted: Option<Py<PyAny>>,
) -> PyResult<Tensor> {
    let seats = whole::seats(spec)?;
    let locals: Result<Vec<Tensor>> = mode::with_grad(false, || {
        let copies = (1..seats).map(|_| helpers::clone(piece, MemoryFormat::Preserve));
        std::iter::once(f::view(piece, piece.shape()))
            .chain(copies)
            .collect()
    });
    let made = whole::made(spec, locals?)?;
    let spec = spec.clone().unbind();
    Ok(Way::OfPiece { spec, wanted }.note(piece, made))
}

/// A whole that is brought to where `to` says, in the type of `from` if that is given. Its gradient goes back in the type `moved`.
fn elsewhere(
    t: &Tensor,
    lies: Lies,
    from: Option<&Bound<'_, PyAny>>,
    to: &Bound<'_, PyAny>,
    moved: Option<DType>,
) -> PyResult<Tensor> {
    let from = from.unwrap_or(&lies.spec);
    let made = mode::with_grad(false, || -> PyResult<Tensor> {
        let locals = match from.is(&lies.spec) {
            true => lies.locals,
            false => cast(&lies.locals, whole::dtype_of(from)?)?,
        };
        whole::made(to, brought(&locals, from, to)?)
    })?;
    let way = Way::Elsewhere {
        before: from.clone().unbind(),
        moved: moved.unwrap_or(t.dtype()),
        given: t.dtype(),
    };
    Ok(way.note(t, made))
}

/// A gradient that is brought to where its tensor lay, `before`; it stays partial where that was partial.
fn back(
    grad: &Tensor,
    lies: Lies,
    before: &Bound<'_, PyAny>,
    moved: DType,
    given: DType,
) -> PyResult<Tensor> {
    let now = typed(&lies.spec, moved)?;
    let target = before.call_method1(intern!(before.py(), "of_gradient"), (&now,))?;
    let made = mode::with_grad(false, || -> PyResult<Tensor> {
        let there = brought(&cast(&lies.locals, moved)?, &now, &target)?;
        whole::made(&typed(&target, given)?, cast(&there, given)?)
    })?;
    let before = lies.spec.unbind();
    Ok(Way::Back { before }.note(grad, made))
}

/// A tensor with its history as it is now.
fn now(t: &Bound<'_, PyTensor>) -> PyResult<Tensor> {
    let now = match mode::grad_enabled() {
        true => t.get().settled()?.clone(),
        false => t.get().get().clone(),
    };
    if !now.batch().is_empty() || forward::is_enabled() && !now.tangents().is_empty() {
        return Err(PyNotImplementedError::new_err(
            "from_local(), to_local() and redistribute() have no rules for vmap and for forward mode AD",
        ));
    }
    Ok(now)
}

/// The whole of which this is a piece, and lies as `spec` says; its gradient is brought to `wanted`.
#[pyfunction]
#[pyo3(signature = (local, spec, wanted=None))]
pub fn _of_piece<'py>(
    local: &Bound<'py, PyTensor>,
    spec: &Bound<'py, PyAny>,
    wanted: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let _noted = Noted::of([local.as_any()]);
    let made = of_piece(&now(local)?, spec, wanted)?;
    wrap(local.py(), made)
}

/// The piece `local` of a whole, as a view; its gradient lies as `wanted` says.
#[pyfunction]
#[pyo3(signature = (whole, local, wanted=None))]
pub fn _to_piece<'py>(
    whole: &Bound<'py, PyTensor>,
    local: &Bound<'py, PyAny>,
    wanted: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = whole.py();
    let _noted = Noted::of([local]);
    let Some(piece) = tensor_ref(local).filter(|_| mode::grad_enabled()) else {
        return Ok(local.clone());
    };
    let spec = whole.getattr(intern!(py, "_spec"))?;
    let made = wrap(py, to_piece(&now(whole)?, &spec, piece, wanted)?)?;
    Ok(viewing(made, std::slice::from_ref(local)))
}

/// A whole, in the type of `from`, that is brought to where `to` says; its gradient goes back in the type `moved`.
#[pyfunction]
pub fn _elsewhere<'py>(
    whole: &Bound<'py, PyTensor>,
    from: &Bound<'py, PyAny>,
    to: &Bound<'py, PyAny>,
    moved: &PyDType,
) -> PyResult<Bound<'py, PyAny>> {
    let py = whole.py();
    let t = now(whole)?;
    let lies = Lies::of(py, &t)?;
    wrap(py, elsewhere(&t, lies, Some(from), to, Some(moved.0))?)
}
