//! Storages that were made smaller: a tensor that reaches outside of its storage cannot be used.

use super::{Layer, Next};
use crate::Result;
use crate::ops::{Call, Form, Ret};

/// Checks that all tensors of a call lie within their storages.
pub struct Bounds;

impl Layer for Bounds {
    fn call(&self, c: Call, next: Next) -> Result<Ret> {
        let mut result = Ok(());
        // What is resized in place may reach outside before.
        let target = matches!(c.form, Form::InPlace(_)) && c.args.op.resizes();
        c.args.for_each_tensor(|i, t| {
            if result.is_ok() && !(target && i == 0) {
                result = t.check_inside();
            }
        });
        result?;
        if let Form::Out(outs) = &c.form {
            outs.iter().try_for_each(crate::Tensor::check_inside)?;
        }
        next.call(c)
    }
}
