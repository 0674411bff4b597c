//! Tensors from Python values and back: `tensor()`, `as_tensor()`, `tolist()`.

use super::convert::number;
use super::dispatch::fresh;
use super::integers::{check_index, check_range, not_an_index};
use super::object::tensor_ref;
use super::results::scalar;
use super::types::type_name;
use crate::ops::helpers::{readable, to_copy};
use crate::{DType, Device, Element, Result as CoreResult, Scalar, Tensor, cpu, layers, mode};
use pyo3::exceptions::{PyNotImplementedError, PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyFloat, PyInt, PyList, PyString, PyTuple};

/// Nested sequences as numbers in row-major order.
struct Nest {
    shape: Vec<i64>,
    values: Vec<Scalar>,
    /// The dtype that is asked for.
    wanted: Option<DType>,
    /// Whether only the shape is wanted: tensors among the items need no value then.
    hollow: bool,
    /// The dtype that holds the items read so far; those of tensors and NumPy's own count as they are.
    dtype: Option<DType>,
}

const MAX_DEPTH: usize = 64;

/// True for lists and tuples.
pub fn is_sequence(o: &Bound<'_, PyAny>) -> bool {
    o.is_instance_of::<PyList>() || o.is_instance_of::<PyTuple>()
}

/// The elements of a sequence: lists and tuples directly, anything else with `len` and `[]`.
pub fn items<'py>(o: &Bound<'py, PyAny>) -> PyResult<Vec<Bound<'py, PyAny>>> {
    if let Ok(l) = o.cast::<PyList>() {
        return Ok(l.iter().collect());
    }
    if let Ok(t) = o.cast::<PyTuple>() {
        return Ok(t.iter().collect());
    }
    let n = o.len()?;
    if n > MOST_CLAIMED {
        return Err(PyValueError::new_err(format!(
            "'{}' object claims {n} items, too many to read one by one",
            type_name(o)
        )));
    }
    // The claim is not trusted with memory, and reading can be interrupted.
    let mut list = Vec::new();
    for i in 0..n {
        list.push(o.get_item(i)?);
        if i % 65536 == 0 {
            o.py().check_signals()?;
        }
    }
    Ok(list)
}

/// Items that are read from an object which is no list or tuple.
const MOST_CLAIMED: usize = 1 << 26;

impl Nest {
    fn read(o: &Bound<'_, PyAny>, wanted: Option<DType>, hollow: bool) -> PyResult<Self> {
        let mut nest = Self {
            wanted,
            hollow,
            shape: Vec::new(),
            values: Vec::new(),
            dtype: None,
        };
        // The shape is that of the first items all the way down.
        let mut level = o.clone();
        loop {
            if nest.shape.len() > MAX_DEPTH {
                return Err(PyValueError::new_err(format!(
                    "too many dimensions '{}'",
                    type_name(&level)
                )));
            }
            if is_sequence(&level)
                || (number(&level).is_none()
                    && tensor_ref(&level).is_none()
                    && !level.is_instance_of::<PyString>()
                    && !level.is_instance_of::<PyBytes>()
                    && level.hasattr("__len__")?
                    && level.hasattr("__getitem__")?)
            {
                if level.is_instance_of::<pyo3::types::PyDict>() && wanted.is_some() {
                    break;
                }
                if level.is_instance_of::<pyo3::types::PyDict>() {
                    return Err(PyRuntimeError::new_err(format!(
                        "Could not infer dtype of {}",
                        type_name(&level)
                    )));
                }
                let n = level.len()?;
                nest.shape.push(n as i64);
                if n == 0 {
                    break;
                }
                level = level.get_item(0).map_err(|_| {
                    PyValueError::new_err(format!(
                        "could not determine the shape of object type '{}'",
                        type_name(&level)
                    ))
                })?;
            } else if let Some(t) = tensor_ref(&level) {
                if t.ndim() > 0 && !nest.shape.is_empty() && t.numel() != 1 && !hollow {
                    return Err(PyValueError::new_err(
                        "only one element tensors can be converted to Python scalars",
                    ));
                }
                break;
            } else if level.is_instance_of::<PyString>() && !nest.shape.is_empty() {
                // Each part of a text is a text.
                return Err(PyValueError::new_err("too many dimensions 'str'"));
            } else {
                break;
            }
        }
        nest.fill(o, 0)?;
        Ok(nest)
    }

    fn fill(&mut self, o: &Bound<'_, PyAny>, depth: usize) -> PyResult<()> {
        if depth == self.shape.len() {
            let is_plain = o.is_exact_instance_of::<PyFloat>()
                || o.is_exact_instance_of::<PyInt>()
                || o.is_exact_instance_of::<PyBool>();
            if !is_plain {
                check_index(o, self.wanted)?;
            }
            if let Some(s) = number(o) {
                self.values.push(s);
                let d = match is_plain {
                    true => None,
                    false => super::numpy::scalar_dtype(o),
                };
                return self.holds(d.unwrap_or_else(|| s.dtype(mode::default_dtype())));
            }
            if let Some(t) = tensor_ref(o) {
                self.values.push(match self.hollow {
                    true => Scalar::Int(0),
                    false => t.item()?,
                });
                return self.holds(t.dtype());
            }
            if is_sequence(o) {
                let name = type_name(o);
                return Err(PyTypeError::new_err(match self.wanted {
                    Some(d) if d.is_float() => format!("must be real number, not {name}"),
                    _ => format!("'{name}' object cannot be interpreted as an integer"),
                }));
            }
            return self.other(o, depth);
        }
        if !is_sequence(o) && !o.hasattr("__len__")? {
            return Err(PyTypeError::new_err("not a sequence"));
        }
        if depth > 0 && super::numpy::is_array(o) {
            warn_of_arrays();
        }
        let list = items(o)?;
        if list.len() as i64 != self.shape[depth] {
            return Err(PyValueError::new_err(format!(
                "expected sequence of length {} at dim {depth} (got {})",
                self.shape[depth],
                list.len()
            )));
        }
        for item in &*list {
            match self.fill(item, depth + 1) {
                Err(_) if item.is(o) && self.wanted.is_none() => {
                    return Err(PyTypeError::new_err(
                        "new(): self-referential lists are incompatible",
                    ));
                }
                done => done?,
            }
        }
        Ok(())
    }

    /// An item that is neither a number nor a tensor: an array of one, or an integer of more than 64 bits.
    #[cold]
    fn other(&mut self, o: &Bound<'_, PyAny>, depth: usize) -> PyResult<()> {
        if super::numpy::is_array(o) {
            let t = super::numpy::from_array(o)?;
            if t.ndim() > 0 {
                return Err(PyTypeError::new_err(
                    "only 0-dimensional arrays can be converted to Python scalars",
                ));
            }
            warn_of_arrays();
            self.values.push(t.item()?);
            return self.holds(t.dtype());
        }
        let is_text = o.is_instance_of::<PyString>() || o.is_instance_of::<PyBytes>();
        if !is_text && super::numpy::is_scalar(o) {
            // What could become a number has: the array says of which type it is.
            super::numpy::from_array(&o.call_method1("__array__", ())?)?;
        }
        match self.wanted {
            _ if o.is_instance_of::<PyInt>() => match self.wanted {
                Some(DType::Bool) => self.values.push(Scalar::Bool(o.is_truthy()?)),
                Some(d) if d.is_float() || d.is_complex() => {
                    self.values.push(Scalar::Float(o.extract()?));
                }
                Some(DType::U64) => {
                    return Err(pyo3::exceptions::PyOverflowError::new_err(
                        "int too big to convert",
                    ));
                }
                _ => return Err(PyValueError::new_err("Overflow when unpacking long long")),
            },
            Some(d) if (depth > 0 || !is_text) && d.is_integral(true) => {
                return Err(not_an_index(o));
            }
            Some(_) if depth > 0 || !is_text => {
                return Err(PyTypeError::new_err(format!(
                    "must be real number, not {}",
                    type_name(o)
                )));
            }
            _ if is_text => {
                return Err(PyTypeError::new_err(format!(
                    "new(): invalid data type '{}'",
                    type_name(o)
                )));
            }
            _ => {
                return Err(PyRuntimeError::new_err(format!(
                    "Could not infer dtype of {}",
                    type_name(o)
                )));
            }
        }
        Ok(())
    }

    /// Takes note of an item's dtype.
    fn holds(&mut self, d: DType) -> PyResult<()> {
        self.dtype = Some(match self.dtype {
            None => d,
            Some(known) if known == d => d,
            Some(known) => crate::dtype::promote(known, d)
                .ok_or_else(|| crate::ops::pointwise::rule::no_promotion(known, d))?,
        });
        Ok(())
    }

    fn inferred(&self) -> DType {
        self.dtype.unwrap_or_else(mode::default_dtype)
    }
}

#[cold]
fn warn_of_arrays() {
    crate::warn_once!(
        "Creating a tensor from a list of numpy.ndarrays is extremely slow. Please consider converting the list to a single numpy.ndarray with numpy.array() before converting to a tensor."
    );
}

/// A copy of a tensor on the memory of another library.
fn copied(t: Tensor, dtype: Option<DType>, device: Device) -> CoreResult<Tensor> {
    let dtype = dtype.unwrap_or(t.dtype());
    if layers::recording() {
        return recorded(to_copy(&t, dtype, Device::CPU)?, device);
    }
    to_copy(&fresh(t)?, dtype, device)
}

/// A tensor from a Python value, always with memory of its own.
pub fn from_value(o: &Bound<'_, PyAny>, dtype: Option<DType>, device: Device) -> PyResult<Tensor> {
    if let Some(t) = tensor_ref(o) {
        let dtype = dtype.unwrap_or(t.dtype());
        return Ok(to_copy(t, dtype, device)?);
    }
    if super::numpy::is_array(o) {
        return Ok(copied(super::numpy::from_array(o)?, dtype, device)?);
    }
    if !is_sequence(o)
        && number(o).is_none()
        && let Some(t) = of_memory(o, dtype)?
    {
        return Ok(copied(t, dtype, device)?);
    }
    let hollow = layers::record::stays_meta(Some(device))
        && crate::mode::layers() & crate::mode::FAKING == 0;
    let (nest, d) = nested(o, dtype, hollow)?;
    if hollow {
        return Ok(Tensor::empty(&nest.shape, d, Device::META)?);
    }
    let t = from_scalars(&nest.values, &nest.shape, d)?;
    Ok(recorded(t, device)?)
}

/// A tensor from nested lists, of which nobody is told.
pub fn unseen(o: &Bound<'_, PyAny>) -> PyResult<Tensor> {
    let (nest, d) = nested(o, None, false)?;
    Ok(from_scalars(&nest.values, &nest.shape, d)?)
}

/// The values in nested lists, and the type of a tensor of them.
fn nested(o: &Bound<'_, PyAny>, dtype: Option<DType>, hollow: bool) -> PyResult<(Nest, DType)> {
    let nest = Nest::read(o, dtype, hollow)?;
    let inferred = nest.inferred();
    let d = dtype.unwrap_or(inferred);
    if let Some(d) = dtype
        && inferred.is_complex()
        && !d.is_complex()
        && d != DType::Bool
    {
        return Err(PyTypeError::new_err(match d.is_float() {
            true => "must be real number, not complex",
            false => "'complex' object cannot be interpreted as an integer",
        }));
    }
    check_range(&nest.values, d)?;
    Ok((nest, d))
}

/// A tensor on the memory of a storage or of what other libraries share by DLPack; None for other objects.
pub(super) fn of_memory<'py>(
    o: &Bound<'py, PyAny>,
    dtype: Option<DType>,
) -> PyResult<Option<Tensor>> {
    let py = o.py();
    let made =
        if o.is_instance_of::<super::storage::PyStorage>() || o.hasattr("_untyped_storage")? {
            let dtype = dtype.map(|d| super::types::dtype(py, d)).transpose()?;
            py.import("torchlike._settings")?
                .call_method1("_on_storage", (o, dtype))?
        } else if o.hasattr("__dlpack__")? {
            py.import("torchlike.utils.dlpack")?
                .call_method1("from_dlpack", (o,))?
        } else {
            return Ok(None);
        };
    Ok(tensor_ref(&made).cloned())
}

/// While recording, values become a recipe like any factory's; otherwise they move to the device.
fn recorded(t: Tensor, device: Device) -> CoreResult<Tensor> {
    if let Some(made) = super::fake::made_here(&t, device)? {
        return Ok(made);
    }
    // What is empty has nothing to wait for: libraries ask such a tensor where factories make theirs.
    if layers::recording() && t.numel() > 0 && !layers::record::stays_meta(Some(device)) {
        return layers::record::constant(&t);
    }
    fresh(t.to_device(device)?)
}

/// The nested list of a tensor's values.
pub fn to_list<'py>(py: Python<'py>, t: &Tensor) -> PyResult<Bound<'py, PyAny>> {
    crate::layers::parts::check_plain(t, "tolist")?;
    if t.storage().is_fake() {
        return build(py, &readable(t, "")?, 0, 0);
    }
    let real =
        readable(t, "Cannot copy out of meta tensor; no data!").map_err(|e| match e.kind() {
            crate::ErrorKind::Runtime => PyNotImplementedError::new_err(e.message().to_owned()),
            _ => e.into(),
        })?;
    let real = crate::ops::helpers::resolve(&real)?;
    if t.ndim() == 0 || !real.is_contiguous() {
        return build(py, &real, 0, 0);
    }
    if t.dtype() == DType::Bool {
        // Any byte but 0 is true.
        let truths = |all: &[u8]| PyList::new(py, all.iter().map(|&b| b != 0));
        let bytes = cpu::reduce::bytes(&real);
        return Ok(list_of(py, cpu::slice::<u8>(&bytes), real.shape(), &truths)?.into_any());
    }
    crate::with_dtype!(t.dtype(), [int uint half float complex] => T, {
        let list = list_of(py, cpu::slice::<T>(&real), real.shape(), &|all| numbers(py, all))?;
        return Ok(list.into_any());
    }, else {});
    build(py, &real, 0, 0)
}

/// The nested list of a row-major tensor's elements, of which there is a dimension; `line` makes a list of no lists.
fn list_of<'py, T>(
    py: Python<'py>,
    all: &[T],
    shape: &[i64],
    line: &impl Fn(&[T]) -> PyResult<Bound<'py, PyList>>,
) -> PyResult<Bound<'py, PyList>> {
    let [n, inner @ ..] = shape else {
        return line(all);
    };
    if inner.is_empty() {
        return line(all);
    }
    let each = all.len().checked_div(*n as usize).unwrap_or(0);
    let parts = (0..*n as usize).map(|i| list_of(py, &all[i * each..(i + 1) * each], inner, line));
    let parts: Vec<_> = parts.collect::<PyResult<_>>()?;
    PyList::new(py, parts)
}

/// A list of Python's numbers.
fn numbers<'py, T: Element>(py: Python<'py>, all: &[T]) -> PyResult<Bound<'py, PyList>> {
    let numbers = all.iter().map(|v| v.to_scalar());
    match T::DTYPE {
        d if d.is_complex() => PyList::new(py, numbers.map(Scalar::to_c64)),
        d if d.is_float() => PyList::new(py, numbers.map(Scalar::to_f64)),
        DType::U64 => PyList::new(py, numbers.map(|n| n.to_i64() as u64)),
        _ => PyList::new(py, numbers.map(Scalar::to_i64)),
    }
}

fn build<'py>(py: Python<'py>, t: &Tensor, dim: usize, offset: i64) -> PyResult<Bound<'py, PyAny>> {
    if dim == t.ndim() {
        return scalar(py, cpu::read_scalar(t, offset)?);
    }
    let list = PyList::empty(py);
    for i in 0..t.shape()[dim] {
        list.append(build(py, t, dim + 1, offset + i * t.strides()[dim])?)?;
    }
    Ok(list.into_any())
}

/// Reads a list of numbers into a fresh row-major tensor.
///
/// # Errors
/// If the dtype cannot hold numbers.
fn from_scalars(values: &[Scalar], shape: &[i64], dtype: DType) -> CoreResult<Tensor> {
    let out = Tensor::empty(shape, dtype, Device::CPU)?;
    crate::with_dtype!(dtype, [bool int uint half float complex] => T, {
        let to = cpu::slice_mut::<T>(&out);
        for (o, v) in to.iter_mut().zip(values) {
            *o = T::from_scalar(*v);
        }
        return Ok(out);
    }, else {});
    if dtype.is_float() || dtype.is_complex() {
        let wide = from_scalars(
            values,
            shape,
            if dtype.is_complex() {
                DType::C64
            } else {
                DType::F32
            },
        )?;
        cpu::copy::copy(&out, &wide)?;
        return Ok(out);
    }
    crate::bail!(
        NotImplemented,
        "tensors of {dtype} cannot be made from numbers"
    )
}
