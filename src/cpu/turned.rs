//! Short lines as the columns of a tile: side by side, they fill vectors.

/// Elements of the longest line that is worth turning.
pub const LONGEST: usize = 24;
/// Lines of a tile.
pub const WIDTH: usize = 64;
/// Columns that are computed at once.
const VECTOR: usize = 16;

/// Room for so many lines, one a column.
pub type Tile<T> = [T; LONGEST * WIDTH];

/// Up to [`WIDTH`] lines of `n` elements as columns; gives how many columns the tile has, with those that fill up the last vector.
#[inline(always)]
pub fn turned<T: Copy>(x: &[T], n: usize, tile: &mut Tile<T>) -> usize {
    let width = (x.len() / n).next_multiple_of(VECTOR).min(WIDTH);
    for (j, column) in tile.chunks_exact_mut(width).take(n).enumerate() {
        for (to, line) in column.iter_mut().zip(x.chunks_exact(n)) {
            *to = line[j];
        }
    }
    width
}

/// The columns of a tile, so many, as lines of `n` elements again.
#[inline(always)]
pub fn returned<T: Copy>(tile: &Tile<T>, [n, width]: [usize; 2], out: &mut [T]) {
    for (j, column) in tile.chunks_exact(width).take(n).enumerate() {
        for (&v, line) in column.iter().zip(out.chunks_exact_mut(n)) {
            line[j] = v;
        }
    }
}
