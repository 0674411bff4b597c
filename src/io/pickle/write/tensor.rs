//! Tensors and their storages, as the functions of PyTorch that make them again.

use super::{Form, Used, Writer, numbered};
use crate::io::names;
use crate::io::tree::{Data, StorageRef, TensorClass, TensorRef, Value};
use crate::{DType, Result, ensure, err};

impl Writer<'_> {
    pub(super) fn storage_of(&self, number: u32) -> Result<&StorageRef> {
        numbered(&self.tree.storages, number, "storage")
    }

    pub(super) fn storage(&mut self, number: u32, dtype: Option<DType>) -> Result<()> {
        let storage = self.storage_of(number)?;
        ensure!(
            storage.data != Data::Meta,
            NotImplemented,
            "cannot save a meta storage by itself"
        );
        let (nbytes, location) = (storage.nbytes, storage.location.clone());
        let class = dtype
            .filter(|_| !self.untyped[number as usize])
            .and_then(|d| Some((names::storage_prefix(d)?, d.size() as u64)));
        let unit = class.map_or(1, |c| c.1);
        let key = *self.keys[number as usize].get_or_insert_with(|| {
            self.used.push(Used { number, unit });
            self.used.len() - 1
        });
        self.out.push(b'(');
        self.word("storage")?;
        match class {
            Some((prefix, _)) => self.global("torch", &format!("{prefix}Storage"))?,
            // PyTorch writes the name of the untyped ones there too, and cannot read it.
            None if self.form == Form::Legacy => self.global("torch", "ByteStorage")?,
            None => self.global("torch.storage", "UntypedStorage")?,
        }
        self.unicode(key.to_string().as_bytes())?;
        self.word(&location)?;
        let numel = nbytes / unit;
        self.int(i64::try_from(numel).map_err(|_| err!(Value, "a storage of {nbytes} bytes"))?);
        if self.form == Form::Legacy {
            self.value(Value::None)?;
        }
        self.out.extend_from_slice(b"tQ");
        Ok(())
    }

    /// A tensor: its data, within a parameter or an object with attributes if it is one.
    pub(super) fn tensor(&mut self, tensor: &TensorRef) -> Result<()> {
        let meta = self.storage_of(tensor.storage)?.data == Data::Meta;
        if let (false, Some(quant)) = (meta, &tensor.quant) {
            return self.quantized(tensor, quant, (tensor.shape(), tensor.stride()));
        }
        let attrs = tensor.attrs != Value::None;
        match (tensor.class, attrs) {
            (TensorClass::Parameter, true) => {
                self.wrapped("torch._utils", "_rebuild_parameter_with_state")?;
            }
            (TensorClass::Parameter, false) => {
                self.wrapped("torch._utils", "_rebuild_parameter")?
            }
            (TensorClass::Tensor, true) => {
                self.wrapped("torch._tensor", "_rebuild_from_type_v2")?
            }
            (TensorClass::Tensor, false) => {}
        }
        self.global("torch._utils", self.function(tensor, meta))?;
        if attrs && tensor.class == TensorClass::Tensor {
            self.global("torch", "Tensor")?;
        }
        self.out.push(b'(');
        if meta {
            self.meta_arguments(tensor)?;
        } else {
            self.arguments(tensor)?;
        }
        self.out.push(b't');
        if tensor.class == TensorClass::Parameter {
            self.out.push(b'R');
            self.value(Value::Bool(tensor.requires_grad))?;
            self.no_hooks()?;
        }
        if attrs {
            self.value(tensor.attrs)?;
        }
        let plain = tensor.class == TensorClass::Tensor && !attrs;
        self.out.extend_from_slice(if plain { b"R" } else { b"tR" });
        Ok(())
    }

    /// A function whose arguments follow.
    fn wrapped(&mut self, module: &str, name: &str) -> Result<()> {
        self.global(module, name)?;
        self.out.push(b'(');
        Ok(())
    }

    /// The function of PyTorch that makes the tensor.
    fn function(&self, tensor: &TensorRef, meta: bool) -> &'static str {
        match (meta, self.untyped[tensor.storage as usize]) {
            (true, _) => "_rebuild_meta_tensor_no_storage",
            (false, false) => "_rebuild_tensor_v2",
            (false, true) => "_rebuild_tensor_v3",
        }
    }

    fn layout(&mut self, tensor: &TensorRef) -> Result<()> {
        self.ints(tensor.shape());
        self.ints(tensor.stride());
        // A parameter says so itself, around this.
        let plain = tensor.class != TensorClass::Parameter;
        self.value(Value::Bool(tensor.requires_grad && plain))
    }

    fn meta_arguments(&mut self, tensor: &TensorRef) -> Result<()> {
        self.global("torch", tensor.dtype.name())?;
        self.layout(tensor)
    }

    fn arguments(&mut self, tensor: &TensorRef) -> Result<()> {
        let typed = !self.untyped[tensor.storage as usize];
        self.storage(tensor.storage, typed.then_some(tensor.dtype))?;
        self.int(tensor.offset);
        self.layout(tensor)?;
        self.no_hooks()?;
        if !typed {
            self.global("torch", tensor.dtype.name())?;
        }
        if tensor.conj || tensor.neg {
            self.out.extend_from_slice(b"}(");
            for (name, set) in [("conj", tensor.conj), ("neg", tensor.neg)] {
                if set {
                    self.word(name)?;
                    self.value(Value::Bool(true))?;
                }
            }
            self.out.push(b'u');
        }
        Ok(())
    }
}
