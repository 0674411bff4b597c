//! The op table: every operator, named once.
//!
//! A family file holds its rows; [`FAMILIES`] lists the families. Everything else (Python functions and methods,
//! stubs, docs, the table test) is derived by walking [`table()`].

pub(crate) mod arrange;
pub(crate) mod batch;
pub(crate) mod cast;
pub(crate) mod copy;
pub(crate) mod core;
pub(crate) mod create;
pub(crate) mod fft;
pub(crate) mod grad;
pub(crate) mod index;
pub(crate) mod linalg;
mod methods;
pub(crate) mod nn;
pub(crate) mod optim;
pub(crate) mod pointwise;
pub(crate) mod quantize;
pub(crate) mod random;
pub(crate) mod reduce;
pub(crate) mod resize;
pub(crate) mod sample;
pub(crate) mod sort;
pub(crate) mod sparse;
pub(crate) mod view;

pub use core::args::{Arg, Args, OwnedArg, OwnedArgs};
pub use core::call::{Call, Form};
pub use core::op::{Op, OpDef, Ret, Value};
pub(crate) use core::{args, dispatch, helpers, lookup, op, schema};

use std::collections::HashMap;
use std::sync::LazyLock;

/// Every operator as a function of Rust, and its arguments as a struct with setters for those that have a default:
/// `f::softmax(&x, -1)?`, `f::Softmax::new(&x, -1).dtype(DType::F64).call()?`.
pub mod f {
    pub use super::arrange::copies::calls::*;
    pub use super::arrange::grid::calls::*;
    pub use super::arrange::join::calls::*;
    pub use super::arrange::pad::calls::*;
    pub use super::arrange::repeat::calls::*;
    pub use super::arrange::triangle::calls::*;
    pub use super::cast::calls::*;
    pub use super::copy::calls::*;
    pub use super::create::factory::calls::*;
    #[allow(unused_imports)]
    pub use super::create::periodic::calls::*;
    #[allow(unused_imports)]
    pub use super::create::range::calls::*;
    pub use super::create::window::calls::*;
    pub use super::fft::calls::*;
    pub use super::fft::functions::calls::*;
    pub use super::fft::short_time::calls::*;
    pub use super::grad::activation::calls::*;
    pub use super::grad::attention::calls::*;
    pub use super::grad::conv::calls::*;
    pub use super::grad::ctc::calls::*;
    pub use super::grad::distance::calls::*;
    pub use super::grad::eigen::calls::*;
    pub use super::grad::embedding::calls::*;
    pub use super::grad::fft::calls::*;
    pub use super::grad::grid::calls::*;
    pub use super::grad::index::calls::*;
    pub use super::grad::layout::calls::*;
    pub use super::grad::linalg::calls::*;
    pub use super::grad::loss::calls::*;
    pub use super::grad::norm::calls::*;
    pub use super::grad::pad::calls::*;
    pub use super::grad::pointwise::calls::*;
    pub use super::grad::pool::calls::*;
    pub use super::grad::products::calls::*;
    pub use super::grad::recurrent::calls::*;
    pub use super::grad::reduce::calls::*;
    pub use super::grad::reflections::calls::*;
    pub use super::grad::resize::calls::*;
    pub use super::grad::softmax::calls::*;
    pub use super::grad::special::calls::*;
    pub use super::grad::spectral::calls::*;
    pub use super::grad::tangent::calls::*;
    pub use super::index::advanced::calls::*;
    pub use super::index::along::calls::*;
    pub use super::index::mask::calls::*;
    pub use super::index::masked::calls::*;
    pub use super::index::nonzero::calls::*;
    pub use super::index::scatter::calls::*;
    pub use super::index::slices::calls::*;
    pub use super::index::take::calls::*;
    pub use super::linalg::addmm::calls::*;
    pub use super::linalg::cholesky::calls::*;
    pub use super::linalg::contract::calls::*;
    pub use super::linalg::eigen::calls::*;
    pub use super::linalg::einsum::calls::*;
    pub use super::linalg::grouped::calls::*;
    pub use super::linalg::indefinite::calls::*;
    pub use super::linalg::lstsq::calls::*;
    pub use super::linalg::lu::calls::*;
    pub use super::linalg::matrix::calls::*;
    pub use super::linalg::norm::calls::*;
    pub use super::linalg::packed::calls::*;
    pub use super::linalg::power::calls::*;
    pub use super::linalg::rank::calls::*;
    pub use super::linalg::reflections::calls::*;
    pub use super::linalg::solve::calls::*;
    pub use super::linalg::spectral::calls::*;
    pub use super::linalg::triangular::calls::*;
    pub use super::linalg::vectors::calls::*;
    pub use super::nn::activation::calls::*;
    pub use super::nn::adaptive_pool::calls::*;
    pub use super::nn::attention::calls::*;
    pub use super::nn::avg_pool::calls::*;
    pub use super::nn::bag::calls::*;
    pub use super::nn::batch_norm::calls::*;
    pub use super::nn::classes::calls::*;
    pub use super::nn::conv::calls::*;
    pub use super::nn::conv_tbc::calls::*;
    pub use super::nn::ctc::calls::*;
    pub use super::nn::distance::calls::*;
    pub use super::nn::dropout::calls::*;
    pub use super::nn::fold::calls::*;
    pub use super::nn::fractional_pool::calls::*;
    pub use super::nn::gated::calls::*;
    pub use super::nn::grid::calls::*;
    pub use super::nn::in_place::calls::*;
    pub use super::nn::likelihood::calls::*;
    pub use super::nn::loss::calls::*;
    pub use super::nn::lstm::calls::*;
    pub use super::nn::margin_loss::calls::*;
    pub use super::nn::max_pool::calls::*;
    pub use super::nn::norm::calls::*;
    pub use super::nn::recurrent::calls::*;
    pub use super::nn::reduced_loss::calls::*;
    pub use super::nn::resize::calls::*;
    pub use super::nn::response::calls::*;
    pub use super::nn::unpool::calls::*;
    pub use super::optim::amp::calls::*;
    pub use super::optim::fused::calls::*;
    pub use super::optim::rows::calls::*;
    pub use super::pointwise::binary::calls::*;
    pub use super::pointwise::bounds::calls::*;
    pub use super::pointwise::compare::calls::*;
    pub use super::pointwise::parts::calls::*;
    pub use super::pointwise::special::calls::*;
    pub use super::pointwise::unary::calls::*;
    pub use super::quantize::elements::calls::*;
    pub use super::quantize::fake::calls::*;
    pub use super::quantize::products::calls::*;
    pub use super::quantize::steps::calls::*;
    pub use super::quantize::tensors::calls::*;
    pub use super::quantize::windows::calls::*;
    pub use super::random::calls::*;
    pub use super::reduce::extreme::calls::*;
    pub use super::reduce::gradient::calls::*;
    pub use super::reduce::hash::calls::*;
    pub use super::reduce::moments::calls::*;
    pub use super::reduce::order::calls::*;
    pub use super::reduce::scan::calls::*;
    pub use super::reduce::segments::calls::*;
    pub use super::reduce::statistics::calls::*;
    pub use super::reduce::sums::calls::*;
    pub use super::resize::calls::*;
    pub use super::sample::calls::*;
    pub use super::sort::histogram::calls::*;
    pub use super::sort::histogram_nd::calls::*;
    pub use super::sort::order::calls::*;
    pub use super::sort::search::calls::*;
    pub use super::sort::unique::calls::*;
    pub use super::sparse::convert::calls::*;
    pub use super::sparse::gradients::calls::*;
    pub use super::sparse::products::calls::*;
    pub use super::sparse::resize::calls::*;
    pub use super::sparse::sums::calls::*;
    pub use super::view::complex::calls::*;
    pub use super::view::order::calls::*;
    pub use super::view::part::calls::*;
    pub use super::view::shape::calls::*;
    pub use super::view::split::calls::*;
}

/// The families of the table.
static FAMILIES: &[&[OpDef]] = &[
    pointwise::unary::OPS,
    grad::layout::OPS,
    grad::eigen::OPS,
    grad::linalg::OPS,
    grad::pointwise::OPS,
    grad::products::OPS,
    grad::recurrent::OPS,
    grad::reduce::OPS,
    grad::reflections::OPS,
    grad::special::OPS,
    grad::spectral::OPS,
    grad::tangent::OPS,
    pointwise::binary::OPS,
    copy::OPS,
    resize::OPS,
    cast::OPS,
    create::periodic::OPS,
    create::window::OPS,
    fft::OPS,
    fft::functions::OPS,
    fft::short_time::OPS,
    nn::bag::OPS,
    create::factory::OPS,
    create::range::OPS,
    view::shape::OPS,
    view::order::OPS,
    view::complex::OPS,
    view::part::OPS,
    reduce::sums::OPS,
    reduce::extreme::OPS,
    reduce::moments::OPS,
    reduce::statistics::OPS,
    reduce::order::OPS,
    reduce::scan::OPS,
    reduce::segments::OPS,
    sort::order::OPS,
    sort::unique::OPS,
    sort::search::OPS,
    sort::histogram::OPS,
    sort::histogram_nd::OPS,
    // Overloads of `normal`: tensors come before numbers.
    sample::OPS,
    random::OPS,
    nn::ctc::OPS,
    nn::recurrent::OPS,
    nn::reduced_loss::OPS,
    index::along::OPS,
    index::slices::OPS,
    index::scatter::OPS,
    index::take::OPS,
    index::advanced::OPS,
    index::mask::OPS,
    index::masked::OPS,
    index::nonzero::OPS,
    nn::activation::OPS,
    nn::in_place::OPS,
    nn::gated::OPS,
    nn::dropout::OPS,
    arrange::join::OPS,
    arrange::grid::OPS,
    view::split::OPS,
    arrange::repeat::OPS,
    arrange::copies::OPS,
    arrange::triangle::OPS,
    arrange::pad::OPS,
    pointwise::bounds::OPS,
    pointwise::compare::OPS,
    pointwise::parts::OPS,
    pointwise::special::OPS,
    nn::norm::OPS,
    nn::batch_norm::OPS,
    nn::loss::OPS,
    nn::likelihood::OPS,
    nn::lstm::OPS,
    nn::margin_loss::OPS,
    nn::distance::OPS,
    nn::classes::OPS,
    linalg::matrix::OPS,
    linalg::contract::OPS,
    linalg::vectors::OPS,
    linalg::power::OPS,
    linalg::addmm::OPS,
    linalg::einsum::OPS,
    nn::conv::OPS,
    nn::conv_tbc::OPS,
    nn::fold::OPS,
    nn::max_pool::OPS,
    nn::avg_pool::OPS,
    nn::unpool::OPS,
    nn::fractional_pool::OPS,
    nn::adaptive_pool::OPS,
    nn::resize::OPS,
    nn::response::OPS,
    nn::grid::OPS,
    nn::attention::OPS,
    linalg::solve::OPS,
    linalg::triangular::OPS,
    linalg::cholesky::OPS,
    linalg::reflections::OPS,
    linalg::lu::OPS,
    linalg::spectral::OPS,
    linalg::eigen::OPS,
    linalg::indefinite::OPS,
    linalg::lstsq::OPS,
    sparse::convert::OPS,
    sparse::products::OPS,
    sparse::sums::OPS,
    sparse::gradients::OPS,
    sparse::resize::OPS,
    quantize::elements::OPS,
    quantize::products::OPS,
    quantize::steps::OPS,
    quantize::tensors::OPS,
    quantize::windows::OPS,
    quantize::fake::OPS,
    linalg::packed::OPS,
    linalg::grouped::OPS,
    reduce::gradient::OPS,
    reduce::hash::OPS,
    linalg::rank::OPS,
    linalg::norm::OPS,
    grad::index::OPS,
    grad::conv::OPS,
    grad::attention::OPS,
    grad::fft::OPS,
    grad::grid::OPS,
    grad::pool::OPS,
    grad::pad::OPS,
    grad::resize::OPS,
    grad::activation::OPS,
    grad::ctc::OPS,
    grad::distance::OPS,
    grad::embedding::OPS,
    grad::loss::OPS,
    grad::norm::OPS,
    grad::softmax::OPS,
    optim::amp::OPS,
    optim::fused::OPS,
    optim::rows::OPS,
];

/// Other names of operators: `(alias, name)`, with all their forms.
pub static ALIASES: &[(&str, &str)] = &[
    ("_segment_reduce", "segment_reduce"),
    ("absolute", "abs"),
    ("negative", "neg"),
    ("arcsin", "asin"),
    ("arccos", "acos"),
    ("arctan", "atan"),
    ("arcsinh", "asinh"),
    ("arccosh", "acosh"),
    ("arctanh", "atanh"),
    ("arctan2", "atan2"),
    ("fix", "trunc"),
    ("subtract", "sub"),
    ("multiply", "mul"),
    ("divide", "div"),
    ("true_divide", "div"),
    ("greater", "gt"),
    ("greater_equal", "ge"),
    ("less", "lt"),
    ("less_equal", "le"),
    ("not_equal", "ne"),
    ("special.expit", "sigmoid"),
    ("special.exp2", "exp2"),
    ("special.expm1", "expm1"),
    ("special.log1p", "log1p"),
    ("special.erf", "erf"),
    ("special.erfc", "erfc"),
    ("special.erfinv", "erfinv"),
    ("special.gammaln", "lgamma"),
    ("special.psi", "digamma"),
    ("special.digamma", "digamma"),
    ("special.xlogy", "xlogy"),
    ("special.round", "round"),
    ("special.logsumexp", "logsumexp"),
    ("swapaxes", "transpose"),
    ("swapdims", "transpose"),
    ("moveaxis", "movedim"),
    ("special.i0", "i0"),
    ("special.logit", "logit"),
    ("special.sinc", "sinc"),
    ("special.polygamma", "polygamma"),
    ("special.multigammaln", "mvlgamma"),
    ("special.gammainc", "igamma"),
    ("special.gammaincc", "igammac"),
    ("clip", "clamp"),
    ("concat", "cat"),
    ("concatenate", "cat"),
    ("row_stack", "vstack"),
    ("nn.functional.selu_", "selu_"),
    ("nn.functional.celu_", "celu_"),
    ("nn.functional.threshold_", "threshold_"),
    ("nn.functional.rms_norm", "rms_norm"),
    ("nn.functional.cosine_similarity", "cosine_similarity"),
    ("nn.functional.pairwise_distance", "pairwise_distance"),
    ("nn.functional.pdist", "pdist"),
    ("nn.functional.conv1d", "conv1d"),
    ("nn.functional.conv2d", "conv2d"),
    ("nn.functional.conv3d", "conv3d"),
    ("nn.functional.conv_tbc", "conv_tbc"),
    ("nn.functional.conv_transpose1d", "conv_transpose1d"),
    ("nn.functional.conv_transpose2d", "conv_transpose2d"),
    ("nn.functional.conv_transpose3d", "conv_transpose3d"),
    ("nn.functional.adaptive_avg_pool1d", "adaptive_avg_pool1d"),
    ("nn.functional.bilinear", "bilinear"),
    ("nn.functional.pixel_shuffle", "pixel_shuffle"),
    ("nn.functional.pixel_unshuffle", "pixel_unshuffle"),
    ("nn.functional.channel_shuffle", "channel_shuffle"),
    ("native_channel_shuffle", "channel_shuffle"),
    ("nn.functional.native_channel_shuffle", "channel_shuffle"),
    ("ger", "outer"),
    ("dsmm", "spmm"),
    ("hsmm", "hspmm"),
];

static TABLE: LazyLock<Vec<Op>> = LazyLock::new(|| {
    let rows = FAMILIES.iter().flat_map(|f| f.iter());
    rows.enumerate()
        .map(|(id, def)| Op {
            def,
            schema: schema::Schema::parse(def.schema),
            id,
        })
        .collect()
});

static INDEX: LazyLock<HashMap<&'static str, &'static Op>> =
    LazyLock::new(|| table().iter().map(|op| (op.def.name, op)).collect());

/// All operators.
#[must_use]
pub fn table() -> &'static [Op] {
    &TABLE
}

/// An operator by its full name (`max#dim`).
///
/// # Errors
/// If there is none.
pub fn find(name: &str) -> crate::Result<&'static Op> {
    INDEX
        .get(name)
        .copied()
        .ok_or_else(|| crate::err!(Attribute, "torchlike has no operator '{name}'"))
}

/// Calls an operator by name with values in schema order: how Rust programs without a typed helper reach the table.
///
/// # Errors
/// If there is no such operator, or the call fails.
pub fn invoke(name: &str, values: &[Arg]) -> crate::Result<Ret> {
    dispatch::run(find(name)?, values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_aliases_lead_somewhere() {
        assert_eq!(INDEX.len(), table().len());
        for (alias, name) in ALIASES {
            assert!(
                table().iter().any(|op| op.path() == *name),
                "{alias} -> {name}"
            );
        }
    }
}
