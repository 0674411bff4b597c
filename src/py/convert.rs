//! One conversion for each kind of argument. A conversion that fails says only that it does: the parser writes the message.

#![allow(unsafe_code, reason = "reads Python containers without copies")]

use super::object::tensor_ref;
use super::types::{PyDType, PyDevice, PyFormat, PyLayout};
use crate::ops::args::Arg;
use crate::ops::schema::Kind;
use crate::parts::Layout;
use crate::random::SharedGenerator;
use crate::{Device, Dims, Scalar, Tensor};
use num_complex::Complex64;
use pyo3::exceptions::{PyNotImplementedError, PyOverflowError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyComplex, PyFloat, PyInt, PyList, PySlice, PyString, PyTuple, PyType};

/// Why an argument could not be converted.
pub enum Failure {
    /// Another type was expected.
    Kind,
    /// An integer that 64 bits do not hold.
    Large,
    /// A real error, to be raised as it is.
    Error(PyErr),
}

impl Failure {
    /// The error to be raised, unless another type was expected.
    pub fn raised(self) -> Option<PyErr> {
        match self {
            Self::Kind => None,
            Self::Large => Some(PyValueError::new_err(TOO_LARGE)),
            Self::Error(e) => Some(e),
        }
    }
}

/// What is said of an integer that 64 bits do not hold.
pub const TOO_LARGE: &str = "Overflow when unpacking long long";

impl From<PyErr> for Failure {
    fn from(e: PyErr) -> Self {
        Self::Error(e)
    }
}

impl From<crate::Error> for Failure {
    fn from(e: crate::Error) -> Self {
        Self::Error(e.into())
    }
}

type Converted<T> = Result<T, Failure>;

/// `torchlike.Generator` of the CPU.
#[pyclass(frozen, name = "Generator", module = "torchlike._C", subclass)]
pub struct PyGenerator(pub SharedGenerator);

/// A Python number, if it is one: exact types first, then NumPy scalars by their protocols.
pub fn number(o: &Bound<'_, PyAny>) -> Option<Scalar> {
    if o.is_exact_instance_of::<PyFloat>() {
        return o.extract().ok().map(Scalar::Float);
    }
    if o.is_exact_instance_of::<PyInt>() {
        return integer(o);
    }
    if o.is_exact_instance_of::<PyBool>() {
        return o.extract().ok().map(Scalar::Bool);
    }
    if o.is_instance_of::<PyComplex>() {
        return o.extract::<Complex64>().ok().map(Scalar::Complex);
    }
    if o.is_instance_of::<PyFloat>() {
        return o.extract().ok().map(Scalar::Float);
    }
    if o.is_instance_of::<PyInt>() {
        return integer(o);
    }
    if o.is_instance_of::<PyTuple>()
        || o.is_instance_of::<PyList>()
        || o.is_instance_of::<PyString>()
        || o.is_none()
    {
        return None;
    }
    numpy_number(o)
}

#[cold]
fn numpy_number(o: &Bound<'_, PyAny>) -> Option<Scalar> {
    let class = o.get_type();
    let module = class.module().ok()?;
    if module.to_cow().ok()? != "numpy" || class.name().ok()?.to_cow().ok()? == "ndarray" {
        return None;
    }
    let item = o.call_method0("item").ok()?;
    if item.get_type().is(&class) {
        None
    } else {
        number(&item)
    }
}

fn integer(o: &Bound<'_, PyAny>) -> Option<Scalar> {
    match o.extract::<i64>() {
        Ok(i) => Some(Scalar::Int(i)),
        Err(_) => o.extract::<u64>().ok().map(Scalar::UInt),
    }
}

/// Start, stop and step of a slice as Python reads them: an end that is left out is the outermost number.
pub fn slice(s: &Bound<'_, PySlice>) -> PyResult<[i64; 3]> {
    let [mut start, mut stop, mut step] = [0; 3];
    // SAFETY: the object is alive and a slice, and the numbers are there to be written.
    let failed = unsafe {
        ffi::PySlice_Unpack(s.as_ptr(), &raw mut start, &raw mut stop, &raw mut step) < 0
    };
    match failed {
        true => Err(PyErr::fetch(s.py())),
        false => Ok([start, stop, step].map(|n| n as i64)),
    }
}

/// An integer: a Python or NumPy one, or a tensor with one integer element.
pub fn int(o: &Bound<'_, PyAny>) -> Converted<i64> {
    if o.is_exact_instance_of::<PyInt>() {
        let mut overflow = 0;
        // SAFETY: the object is alive and an integer.
        let i = unsafe { ffi::PyLong_AsLongLongAndOverflow(o.as_ptr(), &raw mut overflow) };
        if overflow == 0 {
            return Ok(i);
        }
        return Err(Failure::Large);
    }
    if o.is_instance_of::<PyBool>() || o.is_instance_of::<PyFloat>() {
        return Err(Failure::Kind);
    }
    if let Some(t) = tensor_ref(o) {
        if t.dtype().is_integral(false) && t.ndim() == 0 {
            return Ok(t.item()?.to_i64());
        }
        return Err(Failure::Kind);
    }
    match number(o) {
        Some(Scalar::Int(i)) => Ok(i),
        Some(_) => Err(Failure::Kind),
        None if o.hasattr("__index__").unwrap_or(false) => {
            Ok(o.call_method0("__index__")?.extract()?)
        }
        None => Err(Failure::Kind),
    }
}

/// A size or a place: an integer, or a tensor of any shape with one.
pub fn size(o: &Bound<'_, PyAny>) -> Converted<i64> {
    match int(o) {
        Err(Failure::Kind) => match tensor_ref(o) {
            Some(t) if t.numel() == 1 && t.dtype().is_integral(false) => Ok(t.item()?.to_i64()),
            _ => Err(Failure::Kind),
        },
        found => found,
    }
}

/// An item of a list of sizes: only the first may not be a truth value, as in PyTorch.
pub fn size_at(place: usize, o: &Bound<'_, PyAny>) -> Converted<i64> {
    match size(o) {
        Err(Failure::Kind) if place > 0 && o.is_exact_instance_of::<PyBool>() => {
            Ok(i64::from(o.extract::<bool>()?))
        }
        found => found,
    }
}

fn float(o: &Bound<'_, PyAny>) -> Converted<f64> {
    match number(o) {
        Some(Scalar::Float(f)) => Ok(f),
        // Python's truth values are integers, which are numbers to PyTorch.
        Some(Scalar::Bool(b)) if o.is_exact_instance_of::<PyBool>() => Ok(f64::from(u8::from(b))),
        Some(Scalar::Complex(_)) | Some(Scalar::Bool(_)) => Err(Failure::Kind),
        Some(s) => Ok(s.to_f64()),
        None if o.is_instance_of::<PyInt>() => Ok(o.extract()?),
        None => match tensor_ref(o) {
            Some(t) if t.ndim() == 0 && !t.dtype().is_complex() && !t.requires_grad() => {
                Ok(t.item()?.to_f64())
            }
            _ => Err(Failure::Kind),
        },
    }
}

fn truth(o: &Bound<'_, PyAny>) -> Converted<bool> {
    if o.is_exact_instance_of::<PyBool>() {
        return Ok(o.extract()?);
    }
    match numpy_number(o) {
        Some(Scalar::Bool(b)) => Ok(b),
        _ => Err(Failure::Kind),
    }
}

fn scalar(o: &Bound<'_, PyAny>) -> Converted<Scalar> {
    if let Some(s) = number(o) {
        return Ok(s);
    }
    match tensor_ref(o) {
        Some(t) if t.ndim() == 0 && !t.requires_grad() => Ok(t.item()?),
        _ => Err(no_number(o)),
    }
}

/// Why an object is no number: an integer is too large for one.
#[cold]
pub fn no_number(o: &Bound<'_, PyAny>) -> Failure {
    if !o.is_instance_of::<PyInt>() {
        return Failure::Kind;
    }
    let text = match o.lt(0) {
        Ok(true) => "can't convert negative int to unsigned",
        _ => "int too big to convert",
    };
    Failure::Error(PyOverflowError::new_err(text))
}

/// Calls `f` on each item of a tuple or list; other types are not accepted.
pub fn each<'py>(
    o: &Bound<'py, PyAny>,
    mut f: impl FnMut(&Bound<'py, PyAny>) -> Converted<()>,
) -> Converted<()> {
    if let Ok(t) = o.cast::<PyTuple>() {
        for i in 0..t.len() {
            f(&t.get_item(i)?)?;
        }
        Ok(())
    } else if let Ok(l) = o.cast::<PyList>() {
        for i in 0..l.len() {
            f(&l.get_item(i)?)?;
        }
        Ok(())
    } else {
        Err(Failure::Kind)
    }
}

/// The items of a tuple or list, each converted.
fn all<'py, T>(
    o: &Bound<'py, PyAny>,
    one: impl Fn(&Bound<'py, PyAny>) -> Converted<T>,
) -> Converted<Vec<T>> {
    let mut out = Vec::new();
    each(o, |item| {
        out.push(one(item)?);
        Ok(())
    })?;
    Ok(out)
}

/// A list of integers.
pub fn ints(o: &Bound<'_, PyAny>) -> Converted<Dims> {
    if let Ok(t) = o.cast::<PyTuple>()
        && t.len() <= 6
    {
        let mut buf = [0i64; 6];
        for (i, slot) in buf.iter_mut().enumerate().take(t.len()) {
            *slot = size_at(i, &t.get_item(i)?)?;
        }
        return Ok(Dims::new(&buf[..t.len()]));
    }
    listed(o, size_at)
}

/// Integers of a list, each by its place.
fn listed(
    o: &Bound<'_, PyAny>,
    one: impl Fn(usize, &Bound<'_, PyAny>) -> Converted<i64>,
) -> Converted<Dims> {
    let mut items = Vec::new();
    each(o, |item| {
        items.push(one(items.len(), item)?);
        Ok(())
    })?;
    Ok(Dims::new(&items))
}

/// A list of integers with gaps; an integer alone is a list of one.
fn ints_with_gaps(o: &Bound<'_, PyAny>) -> Converted<Dims> {
    let one = |place: usize, o: &Bound<'_, PyAny>| match o.is_none() {
        true => Ok(crate::ops::schema::NONE),
        false => size_at(place, o),
    };
    match one(0, o) {
        Err(Failure::Kind) => listed(o, one),
        single => single.map(|i| Dims::new(&[i])),
    }
}

/// A string.
pub fn text<'a>(o: &'a Bound<'_, PyAny>) -> Converted<&'a str> {
    let s = o.cast::<PyString>().map_err(|_| Failure::Kind)?;
    let mut len = 0isize;
    // SAFETY: the string object caches its UTF-8 form and outlives the call.
    unsafe {
        let p = ffi::PyUnicode_AsUTF8AndSize(s.as_ptr(), &raw mut len);
        if p.is_null() {
            return Err(Failure::Error(PyErr::fetch(o.py())));
        }
        let bytes = std::slice::from_raw_parts(p.cast(), len as usize);
        Ok(std::str::from_utf8_unchecked(bytes))
    }
}

/// A dtype; Python's float, int, bool and complex stand for some.
fn dtype(o: &Bound<'_, PyAny>) -> Converted<crate::DType> {
    match o.cast::<PyDType>() {
        Ok(d) => Ok(d.get().0),
        Err(_) if o.is_instance_of::<PyType>() => python_type(o).ok_or(Failure::Kind),
        Err(_) => Err(Failure::Kind),
    }
}

fn layout<'a>(o: &'a Bound<'_, PyAny>) -> Converted<Arg<'a>> {
    let given = o.cast::<PyLayout>().map_err(|_| Failure::Kind)?.get().0;
    if let Some(layout) = Layout::of(given) {
        return Ok(Arg::Layout(layout));
    }
    let text = format!("factories make no tensors of layout {given}");
    Err(Failure::Error(PyNotImplementedError::new_err(text)))
}

/// Converts one argument. Lists of tensors are the parser's: their items have to be held.
#[inline]
pub fn convert<'a>(kind: Kind, optional: bool, o: &'a Bound<'_, PyAny>) -> Converted<Arg<'a>> {
    if let Some(t) = tensor_ref(o)
        && matches!(kind, Kind::Tensor | Kind::Operand)
    {
        return Ok(Arg::Tensor(t));
    }
    if o.is_none() && kind != Kind::OptInts {
        return if optional {
            Ok(Arg::None)
        } else {
            Err(Failure::Kind)
        };
    }
    Ok(match kind {
        Kind::Tensor | Kind::Tensors | Kind::VarTensors | Kind::OptTensors => {
            return Err(Failure::Kind);
        }
        Kind::Operand => Arg::Scalar(number(o).ok_or_else(|| no_number(o))?),
        Kind::Int => Arg::Int(int(o)?),
        Kind::Ints | Kind::VarInts => Arg::Ints(ints(o)?),
        Kind::IntsOf(n) => match size(o) {
            Ok(i) => Arg::Ints(Dims::filled(n as usize, i)),
            Err(Failure::Kind) => Arg::Ints(ints(o)?),
            Err(e) => return Err(e),
        },
        Kind::OptInts => Arg::Ints(ints_with_gaps(o)?),
        Kind::Float => Arg::Float(float(o)?),
        Kind::Floats => Arg::Floats(match float(o) {
            Ok(one) => vec![one],
            Err(_) => all(o, float)?,
        }),
        Kind::Bool => Arg::Bool(truth(o)?),
        Kind::Bools => Arg::Bools(all(o, truth)?),
        Kind::Scalar => Arg::Scalar(scalar(o)?),
        Kind::Scalars => Arg::Scalars(all(o, scalar)?),
        Kind::Str => Arg::Str(text(o)?),
        Kind::DType => Arg::DType(dtype(o)?),
        Kind::Device => Arg::Device(device(o)?),
        Kind::Layout => layout(o)?,
        Kind::Format => Arg::Format(
            o.cast::<PyFormat>()
                .map_err(|_| Failure::Kind)?
                .get()
                .format(),
        ),
        Kind::Generator => Arg::Generator(
            o.cast::<PyGenerator>()
                .map_err(|_| Failure::Kind)?
                .get()
                .0
                .clone(),
        ),
    })
}

fn python_type(o: &Bound<'_, PyAny>) -> Option<crate::DType> {
    use crate::DType;
    let py = o.py();
    Some(if o.is(py.get_type::<PyFloat>()) {
        DType::F64
    } else if o.is(py.get_type::<PyBool>()) {
        DType::Bool
    } else if o.is(py.get_type::<PyInt>()) {
        DType::I64
    } else if o.is(py.get_type::<PyComplex>()) {
        DType::C128
    } else {
        return None;
    })
}

/// A device argument.
pub fn device(o: &Bound<'_, PyAny>) -> Converted<Device> {
    if let Ok(d) = o.cast::<PyDevice>() {
        return Ok(d.get().known()?);
    }
    if o.is_instance_of::<PyString>()
        || (o.is_instance_of::<PyInt>() && !o.is_instance_of::<PyBool>())
    {
        return Ok(super::types::device_of(o)?);
    }
    Err(Failure::Kind)
}

/// A tensor argument of a hand-written function.
pub fn tensor_arg<'a>(
    o: &'a Bound<'_, PyAny>,
    function: &str,
    argument: &str,
) -> PyResult<&'a Tensor> {
    tensor_ref(o).ok_or_else(|| {
        pyo3::exceptions::PyTypeError::new_err(format!(
            "{function}(): argument '{argument}' must be Tensor, not {}",
            super::types::type_name(o)
        ))
    })
}
