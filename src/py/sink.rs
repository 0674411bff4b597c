//! Where bytes come from and go to when tensors are saved: storages wherever they are, and Python file objects.

use crate::layers::record;
use crate::{Device, Result, Storage, Tensor, err};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::io::Write;

/// The bytes of a storage on the host; those of a meta storage are read or computed aside.
pub fn host(storage: &Storage) -> Result<Storage> {
    if !storage.device().is_meta() {
        return storage.on(Device::CPU);
    }
    let source = storage
        .source()
        .ok_or_else(|| err!(NotImplemented, "Cannot copy out of meta tensor; no data!"))?;
    Ok(record::peek(&Tensor::bytes_of(storage), &source)?
        .storage()
        .clone())
}

/// A Python file object as something to write to.
pub struct PyFile {
    file: Py<PyAny>,
    /// What a call of it raised.
    raised: Option<PyErr>,
}

impl Write for PyFile {
    fn write(&mut self, buf: &[u8]) -> std::io::Result<usize> {
        let written = Python::attach(|py| -> PyResult<usize> {
            let written = self
                .file
                .bind(py)
                .call_method1("write", (PyBytes::new(py, buf),))?;
            // Some say nothing, and have taken it all.
            if written.is_none() {
                return Ok(buf.len());
            }
            match written.extract::<usize>()? {
                n if n <= buf.len() => Ok(n),
                n => Err(PyValueError::new_err(format!(
                    "write() says that it wrote {n} of {} bytes",
                    buf.len()
                ))),
            }
        });
        written.map_err(|e| {
            self.raised = Some(e);
            std::io::Error::other("a file object raised an exception")
        })
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Lets `write` write to a Python file object, in large pieces and without the interpreter lock in between.
pub fn to_file(
    file: &Bound<'_, PyAny>,
    write: impl FnOnce(&mut dyn Write) -> Result<()> + Send,
) -> PyResult<()> {
    let mut out = std::io::BufWriter::with_capacity(
        1 << 20,
        PyFile {
            file: file.clone().unbind(),
            raised: None,
        },
    );
    let done = file.py().detach(|| {
        write(&mut out)?;
        Ok::<_, crate::Error>(out.flush()?)
    });
    let (file, _) = out.into_parts();
    match (file.raised, done) {
        (Some(e), _) => Err(e),
        (None, done) => Ok(done?),
    }
}
