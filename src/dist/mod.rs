//! How tensors lie on meshes of devices: placements, sizes of shards, plans of redistribution, and which placements a
//! call is made with. Plain arithmetic: nothing here knows a tensor, an operator or a process.

mod choose;
mod cost;
mod local;
mod mesh;
mod path;
mod placement;
mod plan;
mod spec;
#[cfg(test)]
mod tests;

pub use choose::{Chosen, Input, Wanted, choose};
pub use cost::{redistribution, transition};
pub use local::{local_shape, offset_of, shard_size};
pub use mesh::Mesh;
pub use placement::{Placement, Reduce};
pub use plan::{Step, plan};
pub use spec::{Layout, Order};
