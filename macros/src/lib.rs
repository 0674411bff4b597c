//! `#[operators]`: typed arguments and functions from the rows of an operator table.
//!
//! A row is a call or macro with a name and a schema among its literals: `kernel("trace", "(Tensor self)", ...)`. For
//! each row of the table below it the attribute makes
//!
//! * a struct with one field a parameter, named after the row in capitals (`Trace`; `max#dim` is `MaxDim`, `linalg.inv` is
//!   `LinalgInv`), with `new` (parameters without default), a setter for each parameter with one, `call`, `call_` and
//!   `call_out`, which pass the door, and `read`, which takes it from the dynamic arguments of a call;
//! * a function with the parameters that have no default (`trace(&x)`, in the module `functions`).
//!
//! Inside a row, `body!(rule, cpu, ...)` becomes a kernel body whose functions take that struct, `typed!(f)` a function of
//! the dynamic arguments that calls `f` with it, and so does the function of a `compose` or `view` row.

mod emit;
mod rows;
mod schema;

use proc_macro::TokenStream;

/// Typed arguments and functions for the rows of the table below; see the crate's page.
#[proc_macro_attribute]
pub fn operators(_: TokenStream, table: TokenStream) -> TokenStream {
    match rows::expand(table) {
        Ok(tokens) => tokens,
        Err(text) => format!("compile_error!({text:?});")
            .parse()
            .unwrap_or_default(),
    }
}
