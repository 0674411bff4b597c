//! What an operator is, and how a call finds its kernel.

pub mod amp;
pub mod args;
pub mod by_host;
pub mod call;
pub mod dispatch;
pub mod fits;
pub mod forms;
pub mod helpers;
pub(crate) mod lookup;
pub mod misfit;
pub mod op;
pub mod place;
pub mod refusal;
pub mod ret;
pub mod rows;
pub mod rules;
pub mod schema;
pub mod scratch;
pub mod survey;
pub mod typed;
pub mod whole;
pub mod writable;

pub use crate::plan;
