//! Layouts on meshes, as `torchlike._C._Mesh`.

use crate::dist::{self, Input, Layout, Mesh, Placement, Wanted};
use pyo3::prelude::*;

/// The three numbers of a placement.
type Code = (i64, i64, i64);
/// Placements, and whether strided shards stand for an order.
type Lies = (Vec<Code>, bool);

/// The sizes of a mesh and the position of a rank in it: what its tensors look like there.
#[pyclass(frozen, name = "_Mesh", module = "torchlike._C")]
struct PyMesh(Mesh);

fn placements(codes: Vec<Code>) -> PyResult<Vec<Placement>> {
    let all: crate::Result<_> = codes.into_iter().map(Placement::from_code).collect();
    Ok(all?)
}

impl PyMesh {
    fn layout(&self, lies: Lies, shape: &[i64]) -> PyResult<Layout> {
        let placements = placements(lies.0)?;
        self.0.admits(&placements, shape)?;
        Ok(Layout {
            placements,
            ordered: lies.1,
        })
    }
}

fn codes(placements: &[Placement]) -> Vec<Code> {
    placements.iter().map(|p| p.code()).collect()
}

#[pymethods]
impl PyMesh {
    /// A mesh of `sizes`, seen from `at`, of which `per_host` devices are in a host.
    #[new]
    fn new(sizes: Vec<i64>, at: Vec<i64>, per_host: i64) -> PyResult<Self> {
        Ok(Self(Mesh::new(sizes, at, per_host)?))
    }

    /// The shape of the part of a tensor that is here, and where its first element is in the whole.
    #[pyo3(signature = (shape, lies, ordered=true))]
    fn local(
        &self,
        shape: Vec<i64>,
        lies: Vec<Code>,
        ordered: bool,
    ) -> PyResult<(Vec<i64>, Vec<i64>)> {
        let layout = self.layout((lies, ordered), &shape)?;
        let local = dist::local_shape(&self.0, &layout, &shape)?;
        Ok((local, dist::offset_of(&self.0, &layout, &shape)?))
    }

    /// The dimensions of the mesh and their placements, in the order in which they cut a tensor of this shape.
    fn applied(&self, shape: Vec<i64>, lies: Lies) -> PyResult<Vec<(usize, Code)>> {
        let applied = self.layout(lies, &shape)?.applied(&self.0, shape.len());
        Ok(applied.into_iter().map(|(m, p)| (m, p.code())).collect())
    }

    /// `(dimension of the mesh, placement before, after, the shape that this dimension finds)` of each step.
    fn plan(
        &self,
        shape: Vec<i64>,
        itemsize: i64,
        from: Lies,
        to: Lies,
    ) -> PyResult<Vec<(usize, Code, Code, Vec<i64>)>> {
        let (from, to) = (self.layout(from, &shape)?, self.layout(to, &shape)?);
        let steps = dist::plan(&self.0, &shape, itemsize, &from, &to)?.into_iter();
        Ok(steps
            .map(|s| (s.dim, s.from.code(), s.to.code(), s.shape))
            .collect())
    }

    /// What a redistribution costs, in microseconds.
    fn cost(&self, shape: Vec<i64>, itemsize: i64, from: Lies, to: Lies) -> PyResult<f64> {
        let (from, to) = (self.layout(from, &shape)?, self.layout(to, &shape)?);
        Ok(dist::redistribution(&self.0, &shape, itemsize, &from, &to)?)
    }

    /// Chooses one of `rows` for each dimension: placements of results (or `None`) and of the arguments `inputs`, each
    /// `(placements, strided means order, shape, bytes of an element)`.
    fn choose(
        &self,
        inputs: Vec<(Vec<Code>, bool, Vec<i64>, i64)>,
        rows: Vec<Vec<Option<Code>>>,
        results: usize,
        in_place: bool,
        uneven: bool,
    ) -> PyResult<(Vec<Option<Vec<Code>>>, Vec<Vec<Code>>)> {
        let mut read = Vec::with_capacity(inputs.len());
        for (lies, ordered, shape, itemsize) in inputs {
            read.push(Input {
                layout: self.layout((lies, ordered), &shape)?,
                shape,
                itemsize,
            });
        }
        let row = |row: Vec<Option<Code>>| -> crate::Result<Vec<_>> {
            let placement = |c: Option<Code>| c.map(Placement::from_code).transpose();
            row.into_iter().map(placement).collect()
        };
        let rows: crate::Result<Vec<_>> = rows.into_iter().map(row).collect();
        let wanted = Wanted {
            results,
            in_place,
            uneven,
        };
        let chosen = dist::choose(&self.0, &read, &rows?, wanted)?;
        let of = |p: &Option<Vec<Placement>>| p.as_deref().map(codes);
        Ok((
            chosen.results.iter().map(of).collect(),
            chosen.inputs.iter().map(|p| codes(p)).collect(),
        ))
    }
}

/// Registers the class.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyMesh>()
}
