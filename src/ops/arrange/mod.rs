//! Elements in other places: joined, repeated, padded, cut to triangles.

pub mod copies;
pub mod grid;
pub mod join;
pub mod pad;
pub mod repeat;
pub mod triangle;
