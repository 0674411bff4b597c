//! The recorder of a [`Program`]: it stands where calls are counted, below autograd, and is told when storages go.

use super::tape::bytes_of;
use crate::mixed::Map;
use crate::ops::core::scratch::{self, Taken};
use crate::ops::core::writable::for_each_written;
use crate::ops::op::Body;
use crate::ops::{Call, Form, Ret};
use crate::program::{Class, Phase, Program, Step, Value};
use crate::storage::{Witness, watch};
use crate::tensor::Node;
use crate::{DType, Device, Dims, Result, Tensor, mode};
use smallvec::SmallVec;
use std::cell::RefCell;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

/// A recording that goes on.
#[derive(Default)]
pub struct Recorder {
    state: Mutex<State>,
    /// Storages tell it once it was started.
    begun: OnceLock<()>,
}

struct State {
    program: Program,
    /// Which value a living storage is.
    living: Map<usize, usize>,
    phase: Phase,
    scope: u32,
    names: HashMap<String, u32>,
    /// The modules at work, the innermost last.
    stack: Vec<u32>,
    /// The module at work from a node's number on.
    scopes: Vec<(u64, u32)>,
    /// The numbers of nodes among which the last one was that a walk visited, from and until, and their module.
    span: (u64, u64, u32),
}

fn value(t: &Tensor, born: Option<u32>, class: Class) -> Value {
    Value {
        bytes: bytes_of(t),
        dtype: t.dtype(),
        shape: t.shape().clone(),
        device: t.device(),
        born,
        died: None,
        class,
        name: None,
    }
}

impl Default for State {
    fn default() -> Self {
        let program = Program {
            scopes: vec![String::new()],
            ..Program::default()
        };
        Self {
            program,
            living: Map::default(),
            phase: Phase::Forward,
            scope: 0,
            names: HashMap::new(),
            stack: Vec::new(),
            scopes: Vec::new(),
            span: (0, 0, 0),
        }
    }
}

impl State {
    fn now(&self) -> u32 {
        self.program.steps.len() as u32
    }

    fn add(&mut self, t: &Tensor, born: Option<u32>, class: Class) -> usize {
        let at = self.program.values.len();
        self.living.insert(t.storage().id(), at);
        self.program.values.push(value(t, born, class));
        at
    }

    fn scope_of(&mut self, name: &str) -> u32 {
        if name.is_empty() {
            return 0;
        }
        if let Some(&at) = self.names.get(name) {
            return at;
        }
        let at = self.program.scopes.len() as u32;
        self.program.scopes.push(name.to_owned());
        self.names.insert(name.to_owned(), at);
        at
    }

    /// The nodes around one that a module made without a break, and which one that was.
    fn span_of(&self, seq: u64) -> (u64, u64, u32) {
        let next = self.scopes.partition_point(|(from, _)| *from <= seq);
        let (from, scope) = match next.checked_sub(1) {
            Some(at) => self.scopes[at],
            None => (0, 0),
        };
        let until = self.scopes.get(next).map_or(u64::MAX, |(from, _)| *from);
        (from, until, scope)
    }

    /// What runs, and is recorded for gradients, from now on belongs to a module.
    fn belongs(&mut self, scope: u32) {
        self.scope = scope;
        self.span = (0, 0, 0);
        let entry = (Node::next_seq(), scope);
        match self.scopes.last_mut() {
            Some(last) if last.0 == entry.0 => *last = entry,
            _ => self.scopes.push(entry),
        }
    }
}

impl Witness for Recorder {
    fn gone(&self, id: usize) {
        let mut state = self.state();
        let now = state.now();
        if let Some(at) = state.living.remove(&id) {
            state.program.values[at].died = Some(now);
        }
    }

    fn resized(&self, id: usize, nbytes: usize) {
        let mut state = self.state();
        let now = state.now();
        let Some(&at) = state.living.get(&id) else {
            return;
        };
        let mut other = state.program.values[at].clone();
        state.program.values[at].died = Some(now);
        (other.bytes, other.born) = (nbytes as u64, Some(now));
        let next = state.program.values.len();
        state.program.values.push(other);
        state.living.insert(id, next);
    }
}

thread_local! {
    static RECORDER: RefCell<Option<Arc<Recorder>>> = const { RefCell::new(None) };
}

fn current() -> Option<Arc<Recorder>> {
    RECORDER.with_borrow(Clone::clone)
}

impl Recorder {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts to record the leaves of this thread, in place of who did before.
    pub fn start(self: &Arc<Self>) {
        self.begun
            .get_or_init(|| watch::add(Arc::downgrade(self) as Weak<dyn Witness>));
        RECORDER.set(Some(self.clone()));
        mode::set_layers(mode::layers() | mode::COUNTING);
    }

    /// Ends the recording.
    pub fn stop() {
        RECORDER.set(None);
        super::tape::settle();
    }

    /// Says what part of a step comes next.
    pub fn phase(&self, phase: Phase) {
        self.state().phase = phase;
    }

    /// Says which module is at work; calls that are recorded for gradients from now on are its own.
    pub fn scope(&self, name: &str) {
        let mut state = self.state();
        let scope = state.scope_of(name);
        state.belongs(scope);
    }

    /// The number of a module's name.
    pub fn number(&self, name: &str) -> u32 {
        self.state().scope_of(name)
    }

    /// A module, by its number, begins to work.
    pub fn enter(&self, scope: u32) {
        let mut state = self.state();
        state.stack.push(scope);
        state.belongs(scope);
    }

    /// The module that began last is done: the one around it is at work.
    pub fn leave(&self) {
        let mut state = self.state();
        state.stack.pop();
        let scope = state.stack.last().copied().unwrap_or(0);
        state.belongs(scope);
    }

    /// The name of the module at work.
    #[must_use]
    pub fn module(&self) -> String {
        let state = self.state();
        let scope = state.stack.last().map_or(0, |s| *s as usize);
        state.program.scopes[scope].clone()
    }

    /// Says what a tensor's storage is for; one that is not known was there before.
    pub fn label(self: &Arc<Self>, t: &Tensor, class: Class, name: String) {
        let mut state = self.state();
        let at = match state.living.get(&t.storage().id()) {
            Some(&at) => {
                let value = &mut state.program.values[at];
                (value.shape, value.dtype) = (t.shape().clone(), t.dtype());
                at
            }
            None => {
                let born = Some(state.now()).filter(|now| *now > 0);
                t.storage().tell_all();
                state.add(t, born, class)
            }
        };
        let value = &mut state.program.values[at];
        (value.class, value.name) = (class, Some(name));
    }

    /// What was recorded, which is handed over: what comes next is another program.
    #[must_use]
    pub fn program(&self) -> Program {
        let mut program = std::mem::take(&mut *self.state()).program;
        program.classify();
        program
    }

    fn begin(&self, op: &'static str, flops: u64, read: u64) -> usize {
        let mut state = self.state();
        let (phase, scope) = (state.phase, state.scope);
        let at = state.program.steps.len();
        state.program.steps.push(Step {
            op,
            phase,
            scope,
            flops,
            read,
            wrote: 0,
        });
        at
    }
}

/// Bytes of a tensor's elements.
fn elements(t: &Tensor) -> u64 {
    t.numel() as u64 * t.dtype().size() as u64
}

impl State {
    /// A step wrote a tensor, which is a value from then on.
    fn wrote(&mut self, step: usize, t: &Tensor) {
        self.program.steps[step].wrote += elements(t);
        if let Entry::Vacant(place) = self.living.entry(t.storage().id()) {
            place.insert(self.program.values.len());
            self.program
                .values
                .push(value(t, Some(step as u32), Class::Temporary));
            t.storage().tell_all();
        }
    }

    /// What a step took besides its results lives while it runs.
    fn took(&mut self, step: usize, op: &'static str, taken: Taken) {
        let program = &mut self.program;
        if taken.is_unknown() && !program.unmeasured.contains(&op) {
            program.unmeasured.push(op);
        }
        // Copies that a call makes of its arguments are steps within it.
        let end = program.steps.len() as u32;
        for bytes in taken.into_blocks() {
            program.values.push(Value {
                bytes: bytes as u64,
                dtype: DType::U8,
                shape: Dims::from([bytes as i64]),
                device: Device::CPU,
                born: Some(step as u32),
                died: Some(end),
                class: Class::Temporary,
                name: Some(format!("memory of {op}")),
            });
        }
    }
}

/// Whether somebody records on this thread.
pub(super) fn is_on() -> bool {
    RECORDER.with_borrow(Option::is_some)
}

/// Runs a kernel as a step of the program, if somebody records.
#[inline]
pub(super) fn step(c: Call, flops: u64, below: impl FnOnce(Call) -> Result<Ret>) -> Result<Ret> {
    let Some(recorder) = current() else {
        return below(c);
    };
    let (args, target) = (c.args, c.form.target());
    let outs: SmallVec<[Tensor; 1]> = match &c.form {
        Form::Out(outs) => outs.iter().cloned().collect(),
        _ => SmallVec::new(),
    };
    let mut read = 0;
    args.for_each_tensor(|_, t| read += elements(t));
    let name = args.op.def.name;
    let step = recorder.begin(name, flops, read);
    let before = scratch::begin();
    let done = below(c);
    let taken = scratch::end(before);
    if let Ok(ret) = &done {
        let mut state = recorder.state();
        match ret {
            Ret::One(t) => state.wrote(step, t),
            ret => ret.look().iter().for_each(|t| state.wrote(step, t)),
        }
        outs.iter().chain(target).for_each(|t| state.wrote(step, t));
        if let Body::Kernel(k) = &args.op.def.body {
            for_each_written(args, &k.traits, |t| state.wrote(step, t));
        }
        if let Some(taken) = taken {
            state.took(step, name, *taken);
        }
    }
    done
}

/// A tensor was made by what is no operator: a step of its own.
pub fn made_by(what: &'static str, t: &Tensor) {
    if mode::layers() & mode::COUNTING == 0 {
        return;
    }
    if let Some(recorder) = current() {
        let step = recorder.begin(what, 0, 0);
        recorder.state().wrote(step, t);
    }
}

/// A tensor was made of numbers of the program, by no call.
pub fn made(t: &Tensor) {
    if mode::layers() & mode::COUNTING == 0 {
        return;
    }
    if let Some(recorder) = current() {
        t.storage().tell_all();
        let mut state = recorder.state();
        let now = state.now();
        state.add(t, Some(now), Class::Temporary);
    }
}

/// A walk visits a node: what comes next belongs to the module that made the node.
pub(super) fn visit(node: &Node) {
    if mode::layers() & mode::COUNTING == 0 {
        return;
    }
    if let Some(recorder) = current() {
        let mut state = recorder.state();
        let seq = node.seq();
        let (from, until, _) = state.span;
        if !(from..until).contains(&seq) {
            state.span = state.span_of(seq);
        }
        state.scope = state.span.2;
    }
}
