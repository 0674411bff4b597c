//! The core without Python, from outside: one program, as linking several takes longer than running them.

mod accuracy;
mod accuracy64;
mod autograd;
#[cfg(feature = "cli")]
mod command_line;
mod corpus;
mod files;
mod io;
mod layouts;
mod special;
mod structure;
mod sums;
mod write;
