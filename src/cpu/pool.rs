pub fn parallel_for(n: usize, _grain: usize, f: impl Fn(std::ops::Range<usize>) + Sync) { f(0..n) }
pub fn num_threads() -> usize { 1 }
pub fn set_num_threads(_n: usize) {}
