//! What an operator is, and how a call finds its kernel.

pub mod args;
pub mod call;
pub mod composite;
pub mod dispatch;
pub mod either;
pub mod op;
pub mod refusal;
pub mod rules;
pub mod schema;
