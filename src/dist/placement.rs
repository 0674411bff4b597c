//! What one dimension of a mesh has of a tensor.

use crate::{Result, bail};

/// How pieces of a partial tensor become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reduce {
    /// Their sum.
    Sum,
    /// Their mean.
    Avg,
    /// Their product.
    Product,
    /// The least of them.
    Min,
    /// The greatest.
    Max,
    /// Bits set in all.
    Band,
    /// Bits set in any.
    Bor,
    /// Bits set in an odd number of them.
    Bxor,
}

impl Reduce {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 8] = [
        Self::Sum,
        Self::Avg,
        Self::Product,
        Self::Min,
        Self::Max,
        Self::Band,
        Self::Bor,
        Self::Bxor,
    ];
}

/// What the devices along one dimension of a mesh have of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Placement {
    /// Each the whole.
    Replicate,
    /// Each a part along a dimension, in order.
    Shard(usize),
    /// Each a part of each of `factor` equal pieces of a dimension.
    Strided {
        /// The dimension.
        dim: usize,
        /// Into how many pieces it is cut first.
        factor: i64,
    },
    /// Each a tensor of the whole's size; together they are reduced to it.
    Partial {
        /// How.
        reduce: Reduce,
        /// 0, or a number of its own for each kind that also masks or raises to a power.
        kind: i64,
    },
}

/// The most pieces of a strided shard.
const FACTOR: i64 = 1 << 24;

impl Placement {
    /// The dimension that is cut.
    #[must_use]
    pub fn dim(self) -> Option<usize> {
        match self {
            Self::Shard(dim) | Self::Strided { dim, .. } => Some(dim),
            _ => None,
        }
    }

    /// True for strided shards.
    #[must_use]
    pub fn is_strided(self) -> bool {
        matches!(self, Self::Strided { .. })
    }

    /// The placement of three numbers: 0 replicated, 1 a shard of a dimension, 2 a strided shard of a dimension by a
    /// factor, 3 partial by a reduction and a kind.
    ///
    /// # Errors
    /// If there is no such placement.
    pub fn from_code(code: (i64, i64, i64)) -> Result<Self> {
        let (class, a, b) = code;
        let Ok(number) = usize::try_from(a) else {
            bail!(
                Value,
                "a placement of dimension {a}, which has to be counted from the first"
            )
        };
        Ok(match class {
            0 => Self::Replicate,
            1 => Self::Shard(number),
            2 if (1..=FACTOR).contains(&b) => Self::Strided {
                dim: number,
                factor: b,
            },
            3 if number < Reduce::ALL.len() => Self::Partial {
                reduce: Reduce::ALL[number],
                kind: b,
            },
            _ => bail!(Value, "{code:?} is no placement"),
        })
    }

    /// Its three numbers.
    #[must_use]
    pub fn code(self) -> (i64, i64, i64) {
        match self {
            Self::Replicate => (0, 0, 0),
            Self::Shard(dim) => (1, dim as i64, 0),
            Self::Strided { dim, factor } => (2, dim as i64, factor),
            Self::Partial { reduce, kind } => (3, reduce as i64, kind),
        }
    }
}
