//! Module functions that are no ops: modes, seeds, threads, data exchange, recording.

use super::class;
use super::convert::PyGenerator;
use super::data::from_value;
use super::dispatch::{cut_off, fresh};
use super::error::heard;
use super::generator::seed_of;
use super::given;
use super::object::{PyTensor, tensor_ref, wrap};
use super::types::{PyDType, PyDevice, device, device_of, dtype};
use super::watch;
use super::wrappers;
use crate::layers::{self, record};
use crate::{DType, kernels, mode, random};
use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

/// Shows a call that makes a tensor of `data` to function modes, with what was given beside it.
fn shown_maker<'py>(
    name: &str,
    data: &Bound<'py, PyAny>,
    options: &[(&str, Option<&Bound<'py, PyAny>>)],
    flags: &[(&str, bool)],
) -> PyResult<Option<Bound<'py, PyAny>>> {
    if watch::state() & (watch::OFF | watch::MODES) != watch::MODES {
        return Ok(None);
    }
    let kwargs = PyDict::new(data.py());
    for (key, value) in options {
        value.map_or(Ok(()), |v| kwargs.set_item(key, v))?;
    }
    for (key, _) in flags.iter().filter(|(_, on)| *on) {
        kwargs.set_item(key, true)?;
    }
    let function = data.py().import("torchlike")?.getattr(name)?;
    let args = PyTuple::new(data.py(), [data])?;
    let kwargs = (!kwargs.is_empty()).then_some(&kwargs);
    super::modes::shown(&function, &format!("torch.{name}"), &args, kwargs)
}

/// A tensor with the values of a Python object, copied.
#[pyfunction]
#[pyo3(signature = (*placed, data=None, dtype=None, device=None, requires_grad=false, pin_memory=false))]
#[pyo3(
    text_signature = "(data, *, dtype=None, device=None, requires_grad=False, pin_memory=False)"
)]
fn tensor<'py>(
    placed: &Bound<'py, PyTuple>,
    data: Option<&Bound<'py, PyAny>>,
    dtype: Option<&Bound<'py, PyAny>>,
    device: Option<&Bound<'py, PyAny>>,
    requires_grad: bool,
    pin_memory: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let data = &given::only("tensor", "data", placed, data)?;
    let options = [("dtype", dtype), ("device", device)];
    let flags = [("requires_grad", requires_grad), ("pin_memory", pin_memory)];
    if let Some(made) = shown_maker("tensor", data, &options, &flags)? {
        return Ok(made);
    }
    let d = given::dtype(dtype, "tensor")?;
    let dev = given::device(device, "tensor")?;
    let py = data.py();
    if let Some(t) = tensor_ref(data) {
        let text = "To copy construct from a tensor, it is recommended to use sourceTensor.detach().clone() or sourceTensor.detach().clone().requires_grad_(True), rather than torch.tensor(sourceTensor).";
        py.import("warnings")?.call_method1("warn", (text,))?;
        let target = dev.or_else(mode::device_override).unwrap_or(t.device());
        let values = crate::f::detach(t)?;
        let copy = crate::ops::helpers::to_copy(&values, d.unwrap_or(t.dtype()), target)?;
        return wrap(
            py,
            if requires_grad {
                super::gradient::require_grad(copy)?
            } else {
                copy
            },
        );
    }
    let t = cut_off(from_value(
        data,
        d,
        dev.unwrap_or_else(mode::default_device),
    )?)?;
    heard(wrap(
        py,
        if requires_grad {
            super::gradient::require_grad(t)?
        } else {
            t
        },
    ))
}

/// A tensor of a Python object, without a copy where possible.
#[pyfunction]
#[pyo3(signature = (*placed, data=None, dtype=None, device=None))]
#[pyo3(text_signature = "(data, *, dtype=None, device=None)")]
fn as_tensor<'py>(
    placed: &Bound<'py, PyTuple>,
    data: Option<&Bound<'py, PyAny>>,
    dtype: Option<&Bound<'py, PyAny>>,
    device: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let data = &given::only("as_tensor", "data", placed, data)?;
    let options = [("dtype", dtype), ("device", device)];
    if let Some(made) = shown_maker("as_tensor", data, &options, &[])? {
        return Ok(made);
    }
    let d = given::dtype(dtype, "as_tensor")?;
    let dev = given::device(device, "as_tensor")?;
    let py = data.py();
    if let Some(t) = tensor_ref(data) {
        let dev = dev
            .or_else(mode::device_override)
            .unwrap_or(t.device())
            .canonical();
        if d.is_none_or(|d| d == t.dtype()) && dev == t.device() {
            return Ok(data.clone());
        }
        return wrap(
            py,
            crate::ops::helpers::to_copy(t, d.unwrap_or(t.dtype()), dev)?,
        );
    }
    let dev = dev.unwrap_or_else(mode::default_device);
    if super::numpy::is_array(data) {
        let t = fresh(super::numpy::shared(data)?)?;
        let t = match d {
            Some(d) => t.to_dtype(d)?,
            None => t,
        };
        return heard(wrap(py, t.to_device(dev)?));
    }
    if !super::data::is_sequence(data)
        && let Some(t) = super::data::of_memory(data, d)?
    {
        return wrap(py, t.to_dtype(d.unwrap_or(t.dtype()))?.to_device(dev)?);
    }
    heard(wrap(py, from_value(data, d, dev)?))
}

/// A tensor on a NumPy array's memory.
#[pyfunction]
fn from_numpy<'py>(ndarray: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let t = super::numpy::shared(ndarray)?;
    heard(wrap(ndarray.py(), fresh(t)?))
}

/// A tensor on the memory of an object with the buffer protocol.
#[pyfunction]
#[pyo3(signature = (buffer, *, dtype, count=-1, offset=0, requires_grad=false))]
fn frombuffer<'py>(
    buffer: &Bound<'py, PyAny>,
    dtype: &PyDType,
    count: i64,
    offset: i64,
    requires_grad: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let t = super::numpy::from_buffer(buffer, dtype.0, count, offset)?;
    heard(wrap(
        buffer.py(),
        if requires_grad {
            super::gradient::require_grad(t)?
        } else {
            t
        },
    ))
}

/// True for tensors, and for what says that it is one by its `__class__`.
#[pyfunction]
fn is_tensor(obj: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(tensor_ref(obj).is_some() || obj.is_instance(obj.py().get_type::<PyTensor>().as_any())?)
}

#[pyfunction]
fn get_default_dtype(py: Python<'_>) -> PyResult<Py<PyDType>> {
    dtype(py, mode::default_dtype())
}

/// Sets the dtype of tensors made from Python floats.
#[pyfunction]
fn set_default_dtype(d: &Bound<'_, PyAny>) -> PyResult<()> {
    let Ok(d) = d.cast::<PyDType>() else {
        return Err(PyTypeError::new_err(
            "invalid dtype object: only floating-point types are supported as the default type",
        ));
    };
    if !d.get().0.is_float() {
        return Err(PyTypeError::new_err(
            "only floating-point types are supported as the default type",
        ));
    }
    mode::set_default_dtype(d.get().0);
    Ok(())
}

#[pyfunction]
fn get_default_device(py: Python<'_>) -> PyResult<Py<PyDevice>> {
    device(py, mode::default_device())
}

/// Sets the device of factories on this thread; None means the CPU.
#[pyfunction]
fn set_default_device(device: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
    let d = device.filter(|d| !d.is_none()).map(device_of).transpose()?;
    mode::set_default_device(d);
    Ok(())
}

#[pyfunction]
fn is_grad_enabled() -> bool {
    mode::grad_enabled()
}
/// Shows a call of a function of this module to those who watch.
fn shown<'py, const N: usize>(
    py: Python<'py>,
    name: &str,
    args: [&Bound<'py, PyAny>; N],
) -> PyResult<Option<Bound<'py, PyAny>>> {
    if !watch::watched(args) {
        return Ok(None);
    }
    let function = py.import("torchlike._C")?.getattr(name)?;
    let args = PyTuple::new(py, args)?;
    super::modes::shown(&function, &format!("torch.{name}"), &args, None)
}

#[pyfunction]
fn _set_grad_enabled(py: Python<'_>, on: bool) -> PyResult<bool> {
    let argument = on.into_pyobject(py)?.to_owned().into_any();
    match shown(py, "_set_grad_enabled", [&argument])? {
        Some(before) => before.extract(),
        None => Ok(mode::set_grad_enabled(on)),
    }
}
#[pyfunction]
fn is_inference_mode_enabled() -> bool {
    mode::inference()
}
#[pyfunction]
fn _set_inference(on: bool) -> bool {
    mode::set_inference(on)
}

#[pyfunction]
fn _default_generator() -> PyGenerator {
    PyGenerator(random::default_generator())
}

/// Seeds the default generator and returns it.
#[pyfunction]
fn manual_seed(seed: &Bound<'_, PyAny>) -> PyResult<PyGenerator> {
    let g = random::default_generator();
    let seed = seed.py().get_type::<pyo3::types::PyInt>().call1((seed,))?;
    let seed = seed_of(&seed)?;
    g.manual_seed(seed);
    if kernels::device_count() > 0 {
        kernels::accelerator()?.seed(seed);
    }
    Ok(PyGenerator(g))
}

#[pyfunction]
fn get_num_threads() -> usize {
    crate::cpu::pool::num_threads()
}
#[pyfunction]
fn set_num_threads(n: &Bound<'_, PyAny>) -> PyResult<()> {
    let Ok(n) = n.extract::<i64>() else {
        return Err(PyRuntimeError::new_err(format!(
            "set_num_threads expects an int, but got {}",
            super::types::type_name(n)
        )));
    };
    if n < 1 {
        return Err(PyRuntimeError::new_err(
            "set_num_threads expects a positive integer",
        ));
    }
    crate::cpu::pool::set_num_threads(n as usize);
    Ok(())
}

/// The dtype that operands of an op are computed in.
#[pyfunction]
fn result_type<'py>(
    tensor1: &Bound<'py, PyAny>,
    tensor2: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    if let Some(answer) = shown(tensor1.py(), "result_type", [tensor1, tensor2])? {
        return Ok(answer);
    }
    use crate::ops::schema::Kind::Operand;
    let wrong = || {
        use super::messages::{invalid_combination, written};
        let lines = written(&[
            "Tensor tensor, Tensor other",
            "Number scalar, Tensor tensor",
            "Tensor tensor, Number other",
            "Number scalar1, Number scalar2",
        ]);
        let given = [tensor1.clone(), tensor2.clone()];
        PyTypeError::new_err(invalid_combination("result_type", &lines, &given, &[]))
    };
    let a = super::convert::convert(Operand, false, tensor1).map_err(|_| wrong())?;
    let b = super::convert::convert(Operand, false, tensor2).map_err(|_| wrong())?;
    let found = dtype(
        tensor1.py(),
        crate::ops::pointwise::rule::result_type(&[a, b])?,
    )?;
    Ok(found.into_bound(tensor1.py()).into_any())
}

/// Two dtypes by position or keyword, with the messages that op functions give.
fn two_dtypes(
    function: &str,
    names: [&str; 2],
    args: [Option<&Bound<'_, PyAny>>; 2],
) -> PyResult<[DType; 2]> {
    let missing: Vec<String> = names
        .iter()
        .zip(args)
        .filter(|(_, a)| a.is_none())
        .map(|(n, _)| (*n).to_owned())
        .collect();
    if !missing.is_empty() {
        return Err(PyTypeError::new_err(super::python_names::missing(
            function, &missing,
        )));
    }
    let mut found = [DType::F32; 2];
    for (i, (name, arg)) in names.iter().zip(args).enumerate() {
        let Some(arg) = arg else { continue };
        let Ok(d) = arg.cast::<PyDType>() else {
            let got = super::types::type_name(arg);
            return Err(PyTypeError::new_err(format!(
                "{function}(): argument '{name}' (position {}) must be torch.dtype, not {got}",
                i + 1
            )));
        };
        found[i] = d.get().0;
    }
    Ok(found)
}

#[pyfunction]
#[pyo3(signature = (type1=None, type2=None))]
fn promote_types(
    py: Python<'_>,
    type1: Option<&Bound<'_, PyAny>>,
    type2: Option<&Bound<'_, PyAny>>,
) -> PyResult<Py<PyDType>> {
    let [a, b] = two_dtypes("promote_types", ["type1", "type2"], [type1, type2])?;
    match crate::dtype::promote(a, b) {
        Some(d) => dtype(py, d),
        None => Err(crate::ops::pointwise::rule::no_promotion(a, b).into()),
    }
}

#[pyfunction]
#[pyo3(signature = (from_=None, to=None))]
fn can_cast(from_: Option<&Bound<'_, PyAny>>, to: Option<&Bound<'_, PyAny>>) -> PyResult<bool> {
    let [a, b] = two_dtypes("can_cast", ["from_", "to"], [from_, to])?;
    Ok(crate::dtype::can_cast(a, b))
}

/// Enters or leaves the recording of factories.
#[pyfunction]
fn _record(enter: bool) {
    layers::record_factories(enter);
}
#[pyfunction]
fn _recording() -> bool {
    layers::recording()
}

/// Makes a meta tensor real in place.
#[pyfunction]
#[pyo3(signature = (t, keep_cache=false))]
fn _materialize(py: Python<'_>, t: &Bound<'_, PyTensor>, keep_cache: bool) -> PyResult<()> {
    let t = t.get().get().clone();
    Ok(py.detach(|| record::materialize(&t, keep_cache))?)
}
/// Makes meta tensors real in place, those from files at the same time.
#[pyfunction]
#[pyo3(signature = (tensors, keep_cache=false, device=None))]
fn _materialize_all(
    py: Python<'_>,
    tensors: Vec<Bound<'_, PyTensor>>,
    keep_cache: bool,
    device: Option<&Bound<'_, PyAny>>,
) -> PyResult<()> {
    let tensors: Vec<_> = tensors.iter().map(|t| t.get().get().clone()).collect();
    let device = device.map(super::types::device_of).transpose()?;
    Ok(py.detach(|| layers::partial::materialize_all(&tensors, keep_cache, device))?)
}

/// The elements of a view of a meta tensor as a real tensor; the view stays on meta.
#[pyfunction]
fn _extract<'py>(py: Python<'py>, t: &Bound<'py, PyTensor>) -> PyResult<Bound<'py, PyAny>> {
    let t = t.get().get().clone();
    let made = py.detach(|| layers::partial::extract(&t))?;
    wrap(py, made)
}
#[pyfunction]
fn _clear_meta_init_cache() {
    record::clear_cache();
}

/// Another tensor's contents in this object: `x` becomes what `y` is, identity kept.
#[pyfunction]
fn _assign(x: &Bound<'_, PyTensor>, y: &Bound<'_, PyTensor>) {
    let grad = x.get().get().requires_grad();
    x.get()
        .change(y.get().get().clone().with_requires_grad(grad));
}

/// Swaps the contents of two tensor objects.
#[pyfunction]
fn _swap(x: &Bound<'_, PyTensor>, y: &Bound<'_, PyTensor>) -> PyResult<()> {
    let (a, b) = (x.get().get().clone(), y.get().get().clone());
    x.get().set(b);
    y.get().set(a);
    class::move_object(x.get());
    class::move_object(y.get());
    for o in [x, y] {
        wrappers::exchanged(o.as_any(), o.get().get().storage())?;
    }
    Ok(())
}

/// How many tensor objects are views of this one.
#[pyfunction]
fn _viewers(t: &Bound<'_, PyTensor>) -> u32 {
    t.get().viewers()
}

/// A tensor on a storage, checked to lie within it.
#[pyfunction]
#[pyo3(signature = (storage, dtype, shape, stride, offset, requires_grad=false))]
fn _from_storage<'py>(
    py: Python<'py>,
    storage: &super::storage::PyStorage,
    dtype: &PyDType,
    shape: Vec<i64>,
    stride: Vec<i64>,
    offset: i64,
    requires_grad: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let t = crate::Tensor::checked(
        storage.0.clone(),
        shape.as_slice().into(),
        stride.as_slice().into(),
        offset,
        dtype.0,
    )?;
    wrap(
        py,
        if requires_grad {
            super::gradient::require_grad(t)?
        } else {
            t
        },
    )
}

/// Registers the functions.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    macro_rules! add {
        ($($f:ident)+) => { $(m.add_function(wrap_pyfunction!($f, m)?)?;)+ };
    }
    add!(tensor as_tensor from_numpy frombuffer is_tensor get_default_dtype set_default_dtype get_default_device set_default_device
        is_grad_enabled _set_grad_enabled is_inference_mode_enabled _set_inference _default_generator manual_seed get_num_threads
        set_num_threads result_type promote_types can_cast _record _recording _materialize _materialize_all _extract _clear_meta_init_cache _assign _swap _viewers
        _from_storage);
    m.add_function(wrap_pyfunction!(super::legacy::_legacy, m)?)?;
    m.add_function(wrap_pyfunction!(super::dlpack::from_dlpack, m)?)?;
    m.add_function(wrap_pyfunction!(super::load_file::_load, m)?)?;
    m.add_function(wrap_pyfunction!(super::load_file::_refused_globals, m)?)?;
    m.add_function(wrap_pyfunction!(super::load_file::_file_metadata, m)?)?;
    m.add_function(wrap_pyfunction!(super::save::_save, m)?)?;
    super::files::register(m)?;
    m.add("_has_cuda", cfg!(feature = "cuda"))
}
