//! Small lists of numbers on a device, kept so that a call that needs the same list again does not wait for it.

use super::copy;
use crate::{Device, Result, Tensor};
use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};

/// Lists that are kept, and how long they may be.
const KEPT: usize = 64;
const LONGEST: usize = 1 << 14;

/// A list by its device.
type Key = (i8, Vec<i64>);
static LISTS: LazyLock<Mutex<HashMap<Key, Tensor>>> = LazyLock::new(Mutex::default);

/// A list on a device.
///
/// # Errors
/// If memory cannot be had.
pub fn there(list: Vec<i64>, device: Device) -> Result<Tensor> {
    let make = |list: &[i64]| -> Result<Tensor> {
        let host = Tensor::from_slice(list, &[list.len() as i64])?;
        let made = Tensor::empty(host.shape(), host.dtype(), device)?;
        copy(&made, &host)?;
        Ok(made)
    };
    if list.len() > LONGEST {
        return make(&list);
    }
    let mut lists = LISTS.lock().unwrap_or_else(PoisonError::into_inner);
    let key = (device.index, list);
    if let Some(t) = lists.get(&key) {
        return Ok(t.clone());
    }
    let made = make(&key.1)?;
    if lists.len() >= KEPT {
        lists.clear();
    }
    lists.insert(key, made.clone());
    Ok(made)
}
