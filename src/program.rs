//! A program: the leaves that ran, one after the other, what they made, and how long that lived.
//!
//! Whatever is asked of a run without data (memory, FLOPs, who holds what) is a function of it.

use crate::{DType, Device, Dims};

/// What part of a step is at work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Phase {
    /// From inputs to the loss.
    Forward,
    /// From the loss to the gradients.
    Backward,
    /// From the gradients to other parameters.
    Optimizer,
}

/// What a storage is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Class {
    /// Of a model, and wants a gradient.
    Parameter,
    /// Of a model.
    Buffer,
    /// Given to the model.
    Input,
    /// Made in the forward pass, and alive in the backward pass or at the end.
    Activation,
    /// Of a parameter.
    Gradient,
    /// Of an optimizer.
    State,
    /// Anything else.
    Temporary,
}

impl Class {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 7] = [
        Self::Parameter,
        Self::Buffer,
        Self::Input,
        Self::Activation,
        Self::Gradient,
        Self::State,
        Self::Temporary,
    ];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Parameter => "parameters",
            Self::Buffer => "buffers",
            Self::Input => "inputs",
            Self::Activation => "activations",
            Self::Gradient => "gradients",
            Self::State => "optimizer states",
            Self::Temporary => "temporaries",
        }
    }
}

/// A leaf that ran.
#[derive(Clone, Debug)]
pub struct Step {
    /// The operator's name in the table.
    pub op: &'static str,
    /// What part of the step it belongs to.
    pub phase: Phase,
    /// The module that made the call, or whose call is differentiated: a position in [`Program::scopes`].
    pub scope: u32,
    /// Floating-point operations, where the row knows them.
    pub flops: u64,
    /// Bytes of its tensors that it read.
    pub read: u64,
    /// Bytes that it wrote.
    pub wrote: u64,
}

/// A storage that lived.
#[derive(Clone, Debug)]
pub struct Value {
    /// Its size.
    pub bytes: u64,
    /// The element type of the tensor that it was first seen as.
    pub dtype: DType,
    /// The shape of that tensor.
    pub shape: Dims,
    /// Where it is, or claims to be.
    pub device: Device,
    /// The step that made it; none if it was there before.
    pub born: Option<u32>,
    /// The first step that it did not live to see; none if it is alive at the end.
    pub died: Option<u32>,
    /// What it is for.
    pub class: Class,
    /// What the user calls it, if anything.
    pub name: Option<String>,
}

impl Value {
    /// True if it lives while a step runs.
    #[must_use]
    pub fn lives_at(&self, step: u32) -> bool {
        self.born.is_none_or(|b| b <= step) && self.died.is_none_or(|d| step < d)
    }
}

/// Bytes by class, in the order of [`Class::ALL`]: of many storages, each of which may have as many as 64 bits can say.
pub type Bytes = [u128; Class::ALL.len()];

/// What ran, and what lived.
#[derive(Clone, Debug, Default)]
pub struct Program {
    /// In the order in which they ran.
    pub steps: Vec<Step>,
    /// In the order in which they were made.
    pub values: Vec<Value>,
    /// Names of modules; the first is that of none.
    pub scopes: Vec<String>,
    /// Operators whose kernels take memory of which no function says how much: it is not among the values.
    pub unmeasured: Vec<&'static str>,
}

impl Program {
    /// The devices that storages are on, in the order in which they were met; meta, where nothing takes memory, if there is no other.
    #[must_use]
    pub fn devices(&self) -> Vec<Device> {
        let mut found: Vec<Device> = Vec::new();
        for v in &self.values {
            if !found.contains(&v.device) {
                found.push(v.device);
            }
        }
        if found.iter().any(|d| !d.is_meta()) {
            found.retain(|d| !d.is_meta());
        }
        found
    }

    /// What lives on a device while each step runs, by class; sizes are counted as `size` says.
    ///
    /// Linear in the number of steps and values.
    #[must_use]
    pub fn timeline(&self, device: Device, size: impl Fn(u64) -> u64) -> Vec<Bytes> {
        let n = self.steps.len().max(1);
        let mut change = vec![[0i128; Class::ALL.len()]; n + 1];
        self.for_each_life(device, |from, until, v| {
            let bytes = i128::from(size(v.bytes));
            change[from][v.class as usize] += bytes;
            change[until][v.class as usize] -= bytes;
        });
        let mut now = [0i128; Class::ALL.len()];
        change.truncate(n);
        let at = change.iter().map(|step| {
            now.iter_mut().zip(step).for_each(|(sum, by)| *sum += by);
            now.map(|bytes| bytes as u128)
        });
        at.collect()
    }

    /// The values on a device that live at all: the step that each lives from, and the first one that it does not live to see.
    fn for_each_life(&self, device: Device, mut f: impl FnMut(usize, usize, &Value)) {
        let n = self.steps.len().max(1);
        for v in self.values.iter().filter(|v| v.device == device) {
            let from = v.born.map_or(0, |b| b as usize).min(n);
            let until = v.died.map_or(n, |d| d as usize).min(n);
            if from < until {
                f(from, until, v);
            }
        }
    }

    /// The first step at which most bytes live on a device, and how many by class.
    #[must_use]
    pub fn peak(&self, device: Device, size: impl Fn(u64) -> u64) -> (u32, Bytes) {
        let mut change = vec![0i128; self.steps.len().max(1) + 1];
        self.for_each_life(device, |from, until, v| {
            let bytes = i128::from(size(v.bytes));
            change[from] += bytes;
            change[until] -= bytes;
        });
        let (mut at, mut most, mut now) = (0, 0, 0);
        for (i, by) in change.iter().enumerate() {
            now += by;
            if now > most {
                (at, most) = (i, now);
            }
        }
        let mut sums = Bytes::default();
        self.for_each_life(device, |from, until, v| {
            if (from..until).contains(&at) {
                sums[v.class as usize] += u128::from(size(v.bytes));
            }
        });
        (at as u32, sums)
    }

    /// The values that live on a device while a step runs, the largest first.
    #[must_use]
    pub fn live(&self, device: Device, step: u32) -> Vec<usize> {
        let here = |v: &Value| v.device == device && v.bytes > 0 && v.lives_at(step);
        let mut found: Vec<usize> = (0..self.values.len())
            .filter(|&i| here(&self.values[i]))
            .collect();
        found.sort_by_key(|&i| (std::cmp::Reverse(self.values[i].bytes), i));
        found
    }

    /// Tells activations from temporaries: what the forward pass made is one if the backward pass, or the end, finds it alive.
    pub(crate) fn classify(&mut self) {
        let end = self.steps.len() as u32;
        let turn = self.steps.iter().position(|s| s.phase != Phase::Forward);
        let turn = turn.map_or(end, |t| t as u32);
        for v in &mut self.values {
            if v.class == Class::Temporary
                && v.born.is_some_and(|b| b < turn)
                && v.died.is_none_or(|d| d > turn)
            {
                v.class = Class::Activation;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(bytes: u64, born: Option<u32>, died: Option<u32>) -> Value {
        Value {
            bytes,
            dtype: DType::U8,
            shape: Dims::from([bytes as i64]),
            device: Device::CPU,
            born,
            died,
            class: Class::Temporary,
            name: None,
        }
    }

    #[test]
    fn the_peak_is_where_most_lives() {
        let step = |phase| Step {
            op: "add",
            phase,
            scope: 0,
            flops: 0,
            read: 0,
            wrote: 0,
        };
        let mut p = Program {
            steps: vec![
                step(Phase::Forward),
                step(Phase::Backward),
                step(Phase::Backward),
            ],
            values: vec![
                value(10, None, None),
                value(5, Some(0), Some(2)),
                value(7, Some(1), Some(2)),
                value(100, Some(2), Some(2)),
            ],
            scopes: vec![String::new()],
            ..Program::default()
        };
        p.classify();
        assert_eq!(p.values[1].class, Class::Activation);
        let (at, bytes) = p.peak(Device::CPU, |n| n);
        assert_eq!((at, bytes.iter().sum::<u128>()), (1, 22));
        assert_eq!(p.live(Device::CPU, 1), [0, 2, 1]);
    }
}
