//! Recorded programs, as `torchlike._C._Program`.

use super::module::collect::collect;
use super::object::tensor_ref;
use super::wrappers;
use crate::layers::program::Recorder;
use crate::mixed::Map;
use crate::program::{Bytes, Class, Phase, Program};
use crate::{Device, Result, Tensor, cpu};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// The leaves that run between `start` and `stop`, and the storages that live then.
#[pyclass(frozen, name = "_Program", module = "torchlike._C")]
struct PyProgram {
    recorder: Arc<Recorder>,
    /// The numbers of modules' names, by address.
    modules: Mutex<Map<usize, u32>>,
    done: OnceLock<Program>,
}

/// `(operator, phase, scope, flops, read, wrote)`.
type Step<'a> = (&'a str, u8, &'a str, u64, u64, u64);

/// `(bytes, dtype, shape, device, born, died, class, name)`.
type Value = (
    u64,
    String,
    Vec<i64>,
    String,
    Option<u32>,
    Option<u32>,
    u8,
    Option<String>,
);

impl PyProgram {
    fn done(&self) -> PyResult<&Program> {
        self.done
            .get()
            .ok_or_else(|| PyRuntimeError::new_err("the recording goes on"))
    }
}

/// How a device's allocator counts a request for bytes.
fn sizes(allocator: &str) -> PyResult<fn(u64) -> u64> {
    Ok(match allocator {
        "requested" => |n| n,
        "torchlike-cpu" => |n| cpu::alloc::size_class(n as usize) as u64,
        "torch-cuda" => |n| n.next_multiple_of(512),
        other => {
            return Err(PyValueError::new_err(format!(
                "unknown allocator '{other}': one of requested, torchlike-cpu, torch-cuda"
            )));
        }
    })
}

fn class_of(number: usize) -> PyResult<Class> {
    let found = Class::ALL.get(number).copied();
    found.ok_or_else(|| PyValueError::new_err("no such class"))
}

fn device(text: &str) -> Result<Device> {
    Ok(Device::parse(text)?.canonical())
}

impl PyProgram {
    /// What a tensor's storage is for, or that of the piece which the rank that is played has.
    fn label_as(&self, o: &Bound<'_, PyAny>, class: Class, name: String) {
        if let Some(t) = tensor_ref(o) {
            self.label_tensor(t, class, name);
        }
    }

    fn label_tensor(&self, t: &Tensor, class: Class, name: String) {
        let pieces = match t.is_python() {
            true => wrappers::pieces(t.storage()),
            false => None,
        };
        let piece = pieces.as_ref().and_then(|p| p.locals.first());
        self.recorder.label(piece.unwrap_or(t), class, name);
    }
}

/// A name below another.
fn dotted(name: &str, below: &str) -> String {
    [name, ".", below].concat()
}

fn class_name(module: &Bound<'_, PyAny>) -> PyResult<String> {
    Ok(module.get_type().name()?.to_str()?.to_owned())
}

#[pymethods]
impl PyProgram {
    #[new]
    fn new() -> Self {
        Self {
            recorder: Arc::default(),
            modules: Mutex::default(),
            done: OnceLock::new(),
        }
    }

    /// Names of classes, by number.
    #[staticmethod]
    fn classes() -> Vec<&'static str> {
        Class::ALL.iter().map(|c| c.name()).collect()
    }

    fn start(&self) {
        self.recorder.start();
    }

    /// Leaves out what comes before the next `start`.
    fn pause(&self) {
        Recorder::stop();
    }

    fn stop(&self) {
        Recorder::stop();
        self.done.get_or_init(|| self.recorder.program());
    }

    /// What part of a step comes next: 0 forward, 1 backward, 2 optimizer.
    fn phase(&self, number: u8) {
        self.recorder.phase(match number {
            0 => Phase::Forward,
            1 => Phase::Backward,
            _ => Phase::Optimizer,
        });
    }

    /// Which module is at work.
    fn scope(&self, name: &str) {
        self.recorder.scope(name);
    }

    /// Notes the names of a model's modules, and labels what it has. Gives its parameters.
    fn label_model<'py>(&self, model: &Bound<'py, PyAny>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let all = collect(model)?;
        let mut modules = self.modules.lock().unwrap_or_else(PoisonError::into_inner);
        for (name, module) in &all.modules {
            let scope = match name.is_empty() {
                true => self.recorder.number(&class_name(module)?),
                false => self.recorder.number(name),
            };
            modules.insert(module.as_ptr().addr(), scope);
        }
        drop(modules);
        for (name, p) in &all.parameters {
            self.label_as(p, Class::Parameter, name.clone());
        }
        for (name, b) in all.buffers {
            self.label_as(&b, Class::Buffer, name);
        }
        for (name, p) in &all.parameters {
            if let Some(grad) = tensor_ref(p).and_then(Tensor::grad) {
                self.label_tensor(&grad, Class::Gradient, dotted(name, "grad"));
            }
        }
        Ok(all.parameters.into_iter().map(|(_, p)| p).collect())
    }

    /// What a tensor's storage is for, and what it is called.
    fn label(&self, name: String, t: &Bound<'_, PyAny>, class: usize) -> PyResult<()> {
        self.label_as(t, class_of(class)?, name);
        Ok(())
    }

    /// Labels the gradients that a model's parameters have, and the tensors of an optimizer's state if there is one, a dictionary
    /// by parameter of dictionaries by name.
    #[pyo3(signature = (model, state=None))]
    fn label_gradients(
        &self,
        model: &Bound<'_, PyAny>,
        state: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<()> {
        let parameters = collect(model)?.parameters;
        for (name, p) in &parameters {
            if let Some(grad) = tensor_ref(p).and_then(Tensor::grad) {
                self.label_tensor(&grad, Class::Gradient, dotted(name, "grad"));
            }
        }
        let Some(state) = state else { return Ok(()) };
        let names = parameters.into_iter();
        let names: Map<usize, String> = names.map(|(n, p)| (p.as_ptr().addr(), n)).collect();
        for (p, entries) in state.iter() {
            let Ok(entries) = entries.cast_into::<PyDict>() else {
                continue;
            };
            let name = names.get(&p.as_ptr().addr()).map_or("None", String::as_str);
            for (key, t) in entries.iter() {
                if let Some(t) = tensor_ref(&t) {
                    let key = key.str()?;
                    self.label_tensor(t, Class::State, dotted(name, key.to_str()?));
                }
            }
        }
        Ok(())
    }

    /// A module begins to work.
    fn enter(&self, module: &Bound<'_, PyAny>) -> PyResult<()> {
        let modules = self.modules.lock().unwrap_or_else(PoisonError::into_inner);
        let known = modules.get(&module.as_ptr().addr()).copied();
        drop(modules);
        let scope = match known {
            Some(scope) => scope,
            None => self.recorder.number(&class_name(module)?),
        };
        self.recorder.enter(scope);
        Ok(())
    }

    /// The module that began last is done.
    fn leave(&self) {
        self.recorder.leave();
    }

    /// The name of the module at work, if any is.
    fn module(&self) -> String {
        self.recorder.module()
    }

    /// The devices of storages.
    fn devices(&self) -> PyResult<Vec<String>> {
        let devices = self.done()?.devices();
        Ok(devices.iter().map(Device::to_string).collect())
    }

    /// Bytes by class at each step, as an allocator counts them.
    fn timeline(&self, on: &str, allocator: &str) -> PyResult<Vec<Bytes>> {
        Ok(self.done()?.timeline(device(on)?, sizes(allocator)?))
    }

    /// The step at which most bytes live, and how many by class.
    fn peak(&self, on: &str, allocator: &str) -> PyResult<(u32, Bytes)> {
        Ok(self.done()?.peak(device(on)?, sizes(allocator)?))
    }

    /// How many bytes an allocator counts for each value.
    fn sizes(&self, allocator: &str) -> PyResult<Vec<u64>> {
        let size = sizes(allocator)?;
        Ok(self.done()?.values.iter().map(|v| size(v.bytes)).collect())
    }

    /// The numbers of the values that live at a step, the largest first.
    fn live(&self, on: &str, step: u32) -> PyResult<Vec<usize>> {
        Ok(self.done()?.live(device(on)?, step))
    }

    /// Operators whose kernels take memory of which no function says how much.
    fn unmeasured(&self) -> PyResult<Vec<&'static str>> {
        Ok(self.done()?.unmeasured.clone())
    }

    /// A step by its number.
    fn step(&self, at: usize) -> PyResult<Option<Step<'_>>> {
        let p = self.done()?;
        Ok(p.steps.get(at).map(|s| {
            let scope = p.scopes.get(s.scope as usize).map_or("", String::as_str);
            (s.op, s.phase as u8, scope, s.flops, s.read, s.wrote)
        }))
    }

    /// A value by its number.
    fn value(&self, at: usize) -> PyResult<Option<Value>> {
        Ok(self.done()?.values.get(at).map(|v| {
            (
                v.bytes,
                v.dtype.to_string(),
                v.shape.to_vec(),
                v.device.to_string(),
                v.born,
                v.died,
                v.class as u8,
                v.name.clone(),
            )
        }))
    }

    /// How many steps and values there are.
    fn counts(&self) -> PyResult<(usize, usize)> {
        let p = self.done()?;
        Ok((p.steps.len(), p.values.len()))
    }

    /// FLOPs by module and phase: `{module: (forward, backward, optimizer)}`.
    fn flops(&self) -> PyResult<std::collections::BTreeMap<&str, [u64; 3]>> {
        let p = self.done()?;
        let mut sums = std::collections::BTreeMap::<&str, [u64; 3]>::new();
        for s in &p.steps {
            let scope = p.scopes.get(s.scope as usize).map_or("", String::as_str);
            sums.entry(scope).or_default()[s.phase as usize] += s.flops;
        }
        Ok(sums)
    }
}

/// Registers the class.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyProgram>()
}
