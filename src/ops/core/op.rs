//! The vocabulary of the op table: what an operator is.
//!
//! An [`OpDef`] is one value. Its schema text names the arguments, their kinds and defaults; its forms say
//! where it appears; its body is the layout rule with the kernels behind it. The Python binding, the stubs,
//! the docs and the table test are read from these values and nowhere repeated.

use crate::cpu::room::Room;
pub use crate::ops::core::amp::{Amp, Cast};
use crate::ops::core::args::{Args, OwnedArgs};
pub use crate::ops::core::forms::*;
pub use crate::ops::core::ret::{Ret, Value};
pub use crate::ops::core::rows::{becomes, compose, forward, kernel, view};
use crate::ops::core::schema::Schema;
pub use crate::ops::core::whole::{Batch, Hidden};
pub use crate::plan::{OutSpec, Plan, Views};
use crate::{DType, Result, Tensor};

/// One operator (one overload of one public name).
pub struct OpDef {
    /// `name` or `name#overload`, with a path for names below the module: `linalg.inv`, `max#dim`.
    pub name: &'static str,
    /// `(Tensor self, int dim, *, bool keepdim=False) -> Tensor`; see [`Schema`].
    pub schema: &'static str,
    /// Where it appears: a sum of [`F`], [`M`], [`I`], [`O`] and what tells these forms apart.
    pub forms: u16,
    /// What it computes.
    pub body: Body,
    /// One sentence for `help()` and the docs page.
    pub doc: &'static str,
    /// Small calls that cover its overloads, types and edges; see `docs/adding_an_op.md` for the notation.
    pub samples: &'static str,
    /// Its gradient.
    pub grad: Grad,
    /// How it runs on a batch.
    pub batch: Batch,
    /// What it computes in under automatic mixed precision.
    pub amp: Amp,
    /// Argument positions (bits) with which a target may share no memory.
    pub apart: u16,
    /// Argument positions (bits) that lie exactly as a target, or share no memory with it; all of a pointwise row do.
    pub alike: u16,
}

/// The gradient of a row; see `layers::autograd`.
#[derive(Clone, Copy, Debug)]
pub enum Grad {
    /// Nobody has said. Composed rows are differentiated by what they are made of.
    Unstated,
    /// Its results never want one.
    Zero,
    /// There is none: PyTorch's text says so when it is asked for.
    Refused,
    /// Differentiated by this composition while gradients are recorded.
    Through(fn(&Args) -> Result<Ret>),
    /// A text: `self: grad * other.conj(); other: grad * self.conj()`.
    Rule(&'static str),
}

impl OpDef {
    /// With the text of its gradient.
    #[must_use]
    pub const fn grad(mut self, text: &'static str) -> Self {
        self.grad = Grad::Rule(text);
        self
    }

    /// Its results never want a gradient.
    #[must_use]
    pub const fn no_grad(mut self) -> Self {
        self.grad = Grad::Zero;
        self
    }

    /// There is no gradient.
    #[must_use]
    pub const fn refused(mut self) -> Self {
        self.grad = Grad::Refused;
        self
    }

    /// Differentiated by a composition.
    #[must_use]
    pub const fn through(mut self, f: fn(&Args) -> Result<Ret>) -> Self {
        self.grad = Grad::Through(f);
        self
    }

    /// Runs on batches in this way.
    #[must_use]
    pub const fn batch(mut self, how: Batch) -> Self {
        self.batch = how;
        self
    }

    /// Computes in this under automatic mixed precision, on the CPU and on GPUs.
    #[must_use]
    pub const fn amp(mut self, cpu: Cast, cuda: Cast) -> Self {
        self.amp = Amp { cpu, cuda };
        self
    }

    /// A target may share no memory with these arguments (bits of their positions).
    #[must_use]
    pub const fn apart(mut self, bits: u16) -> Self {
        self.apart = bits;
        self
    }

    /// A target lies exactly as these arguments (bits of their positions), or shares no memory with them.
    #[must_use]
    pub const fn alike(mut self, bits: u16) -> Self {
        self.alike = bits;
        self
    }

    /// With small calls for the tests.
    #[must_use]
    pub const fn samples(mut self, calls: &'static str) -> Self {
        self.samples = calls;
        self
    }

    /// With a result that lies in memory in another way than its operands say.
    #[must_use]
    pub const fn lies(mut self, how: Lies) -> Self {
        if let Body::Kernel(k) = &mut self.body {
            k.traits.lies = how;
        }
        self
    }

    /// A pointwise row whose own checks come before that of its operands' shapes.
    #[must_use]
    pub const fn checked_first(mut self) -> Self {
        if let Body::Kernel(k) = &mut self.body {
            k.traits.checked_first = true;
        }
        self
    }

    /// As [`KernelBody::unmeasured`].
    #[must_use]
    pub const fn unmeasured(mut self) -> Self {
        if let Body::Kernel(k) = &mut self.body {
            k.traits.unmeasured = true;
        }
        self
    }

    /// Marked as writing in place even where elements share memory.
    #[must_use]
    pub const fn overlaps(self) -> Self {
        self.shares(Shared::Written)
    }

    /// As [`Self::overlaps`], with a word that PyTorch will refuse it one day.
    #[must_use]
    pub const fn overlaps_still(self, example: &'static str) -> Self {
        self.shares(Shared::Still(example))
    }

    const fn shares(mut self, how: Shared) -> Self {
        if let Body::Kernel(k) = &mut self.body {
            k.traits.overlaps = how;
        }
        self
    }
}

/// What an operator does.
#[derive(Clone, Copy)]
pub enum Body {
    /// A layout rule, and a kernel that fills what the rule allocated.
    Kernel(KernelBody),
    /// Another look at the storage of argument 0; needs no kernel on any device.
    View(fn(&Args) -> Result<Views>),
    /// Gives argument 0 another storage or size; an in-place form alone.
    Become(fn(&Args) -> Result<Tensor>),
    /// A call of another operator, in the form it was called in.
    Forward(fn(&Args) -> Result<OwnedArgs>),
    /// Made of other operators.
    Compose(fn(&Args) -> Result<Ret>),
}

/// A layout rule and its kernels.
#[derive(Clone, Copy)]
pub struct KernelBody {
    /// Reads the arguments, runs the rule, and hands its plan and the kernels to whoever places the results.
    pub run: fn(&Args, &mut Finish<'_>) -> Result<Ret>,
    /// Floating-point operations of a call, a multiplication and an addition each counted, where PyTorch counts them.
    pub flops: Option<fn(&Args) -> Result<u64>>,
    /// How the dispatcher may use it.
    pub traits: Traits,
    /// Rows of a family keep what tells them apart here.
    pub row: Row,
}

/// What takes a plan and the kernels that can fill it.
pub type Finish<'f> = dyn FnMut(Plan, &Exec<'_>) -> Result<Ret> + 'f;

/// The kernels of one call, with its arguments and what its rule found.
pub struct Exec<'e> {
    /// Checks that need the values of the arguments; runs where there are values.
    pub values: &'e dyn Fn() -> Result<()>,
    /// Fills the results from host memory; may not change their shapes.
    pub cpu: &'e dyn Fn(&[Tensor]) -> Result<()>,
    /// Fills the results on a GPU; absent: a clear error.
    pub cuda: Option<&'e dyn Fn(&[Tensor]) -> Result<()>>,
    /// Follows what the kernel for host memory takes besides its results.
    pub scratch: &'e dyn Fn(&[Tensor], &mut Room) -> Result<()>,
}

/// What a rule gives: a plan, and perhaps what it found for the kernels.
pub trait Ruled {
    /// What the rule found.
    type Found;
    /// Plan and findings apart.
    fn split(self) -> (Plan, Self::Found);
}

impl Ruled for Plan {
    type Found = ();
    fn split(self) -> (Plan, ()) {
        (self, ())
    }
}

impl<P> Ruled for (Plan, P) {
    type Found = P;
    fn split(self) -> (Plan, P) {
        self
    }
}

/// What the dispatcher has to know about a kernel.
#[derive(Clone, Copy, Default)]
pub struct Traits {
    /// Every result element depends on the elements at its own place alone: the result may be written over an input.
    pub pointwise: bool,
    /// The kernel draws random numbers: how far it moves the generator, if that does not depend on values.
    pub random: Option<fn(&Args, &[Tensor], &mut crate::random::Generator) -> Result<()>>,
    /// True for kernels that draw random numbers at all.
    pub draws: bool,
    /// Argument positions where host tensors may index another device's (bits).
    pub index_args: u16,
    /// Such tensors may index a GPU's too; otherwise only those that are on meta until they are replayed.
    pub host_indices: bool,
    /// Argument positions that may be on another device than the rest (bits).
    pub any_device: u16,
    /// The shape of the result depends on values: impossible on meta.
    pub data_dependent: bool,
    /// Argument positions that the kernel writes (bits), tensors and lists of them; such rows have no results.
    pub mutates: u16,
    /// Argument 0 is what the kernel changes: where the result is that very memory, it writes the changes only.
    pub updates: bool,
    /// What happens in place where elements share memory.
    pub overlaps: Shared,
    /// In place, the tensor takes the shape of the result.
    pub grows: bool,
    /// The kernel understands lazily conjugated and negated inputs itself.
    pub lazy_aware: bool,
    /// How the result of a pointwise row lies in memory.
    pub lies: Lies,
    /// What a pointwise row checks of its operands itself comes before their shapes.
    pub checked_first: bool,
    /// Fresh results have no values.
    pub blank: bool,
    /// The kernel takes memory besides its results of which no function says how much.
    pub unmeasured: bool,
}

/// What happens in place where elements of the target share memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Shared {
    /// An error.
    #[default]
    Refused,
    /// Each is written with a value of its own alone.
    Written,
    /// They are written, and whoever listens is told that this will be refused; with the example of it.
    Still(&'static str),
}

/// How the result of a pointwise row lies in memory.
#[derive(Clone, Copy, Debug, Default)]
pub enum Lies {
    /// As its operands, the first of which is asked first where they disagree.
    #[default]
    Operands,
    /// As its tensors, as if numbers were no operands; row-major where a number comes first.
    Tensors,
    /// As its operands, the last of which is asked first.
    GradientLast,
    /// Row-major, in the second operand's type.
    Dense,
    /// As the second operand, in its shape and type.
    Second,
    /// As its operand, but row-major where that is complex.
    DenseOfComplex,
    /// As an empty tensor like its operand, where that is of some types.
    Like(fn(DType) -> bool),
}

/// Family-specific data of a row.
#[derive(Clone, Copy)]
pub enum Row {
    /// None: the op has functions of its own.
    None,
    /// A pointwise operator.
    Map(&'static crate::ops::pointwise::rule::MapRow),
}

impl KernelBody {
    /// A body from the function that `body!` makes.
    #[must_use]
    pub const fn typed(run: fn(&Args, &mut Finish<'_>) -> Result<Ret>) -> Self {
        const NO: Traits = Traits {
            pointwise: false,
            random: None,
            draws: false,
            index_args: 0,
            host_indices: false,
            any_device: 0,
            data_dependent: false,
            mutates: 0,
            updates: false,
            overlaps: Shared::Refused,
            grows: false,
            lazy_aware: false,
            lies: Lies::Operands,
            checked_first: false,
            blank: false,
            unmeasured: false,
        };
        Self {
            run,
            flops: None,
            traits: NO,
            row: Row::None,
        }
    }

    /// With a count of floating-point operations.
    #[must_use]
    pub const fn flops(mut self, flops: fn(&Args) -> Result<u64>) -> Self {
        self.flops = Some(flops);
        self
    }

    /// With index arguments (bits of their positions).
    #[must_use]
    pub const fn index_args(mut self, bits: u16) -> Self {
        self.traits.index_args = bits;
        self
    }

    /// Index arguments on the host may index a GPU's tensors.
    #[must_use]
    pub const fn host_indices(mut self) -> Self {
        self.traits.host_indices = true;
        self
    }

    /// With arguments that may be on any device (bits of their positions).
    #[must_use]
    pub const fn any_device(mut self, bits: u16) -> Self {
        self.traits.any_device = bits;
        self
    }

    /// Marked as reading lazily conjugated and negated inputs itself.
    #[must_use]
    pub const fn lazy_aware(mut self) -> Self {
        self.traits.lazy_aware = true;
        self
    }

    /// With the row that the family's functions read.
    #[must_use]
    pub const fn row(mut self, row: Row) -> Self {
        self.row = row;
        self
    }

    /// Marked as writing results element by element.
    #[must_use]
    pub const fn pointwise(mut self) -> Self {
        self.traits.pointwise = true;
        self
    }

    /// Marked as changing argument 0, in its own memory if the result is that.
    #[must_use]
    pub const fn updates(mut self) -> Self {
        self.traits.updates = true;
        self
    }

    /// Marked as giving argument 0 the shape of the result, in place.
    #[must_use]
    pub const fn grows(mut self) -> Self {
        self.traits.grows = true;
        self
    }

    /// Marked as having a result shape that depends on values.
    #[must_use]
    pub const fn data_dependent(mut self) -> Self {
        self.traits.data_dependent = true;
        self
    }

    /// Marked as drawing random numbers; `advance` moves the generator as the kernel would, if that is known.
    #[must_use]
    pub const fn random(
        mut self,
        advance: Option<fn(&Args, &[Tensor], &mut crate::random::Generator) -> Result<()>>,
    ) -> Self {
        self.traits.draws = true;
        self.traits.random = advance;
        self
    }

    /// Marked as leaving fresh results without values.
    #[must_use]
    pub const fn blank(mut self) -> Self {
        self.traits.blank = true;
        self
    }

    /// Marked as taking memory of which no function says how much: a plan names it.
    #[must_use]
    pub const fn unmeasured(mut self) -> Self {
        self.traits.unmeasured = true;
        self
    }

    /// Marked as writing arguments instead of results (bits of their positions).
    #[must_use]
    pub const fn mutates(mut self, bits: u16) -> Self {
        self.traits.mutates = bits;
        self
    }

    /// The finished body.
    #[must_use]
    pub const fn body(self) -> Body {
        Body::Kernel(self)
    }
}

/// An op of the table with its parsed schema.
pub struct Op {
    /// The row.
    pub def: &'static OpDef,
    /// Its arguments.
    pub schema: Schema,
    /// Its number in the table.
    pub id: usize,
}

impl std::fmt::Debug for Op {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.def.name)
    }
}

impl Op {
    /// The public name: without path and overload (`max` of `max#dim`).
    #[must_use]
    pub fn public_name(&self) -> &'static str {
        let name = self.def.name;
        let name = name.split('#').next().unwrap_or(name);
        name.rsplit('.').next().unwrap_or(name)
    }

    /// The path with the public name, without overload: `linalg.inv`.
    #[must_use]
    pub fn path(&self) -> &'static str {
        self.def.name.split('#').next().unwrap_or(self.def.name)
    }

    /// True if its results are other looks at argument 0.
    #[must_use]
    pub fn is_view(&self) -> bool {
        matches!(self.def.body, Body::View(_))
    }

    /// True if its in-place form changes what storage and sizes argument 0 has.
    #[must_use]
    pub fn resizes(&self) -> bool {
        matches!(self.def.body, Body::Become(_))
    }

    /// Whether the op has a form.
    #[must_use]
    pub fn has(&self, form: u16) -> bool {
        self.def.forms & form != 0
    }
}
