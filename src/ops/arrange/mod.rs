//! Elements in other places: joined, repeated, padded, cut to triangles.

pub mod join;
pub mod pad;
pub mod repeat;
pub mod triangle;
