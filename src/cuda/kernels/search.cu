// Where values would be put into sorted lists. Before this text: T (values and edges), O (of the result), RIGHT.

KERNEL(search)(O* out, const T* edges, const i64* sorter, const T* values, i64 total, i64 n, i64 each, i64 shared, u32* flag) {
    EACH(i, total);
    const i64 line = shared ? 0 : i / each * n;
    const TV x = up(values[i]);
    i64 low = 0, high = n;
    while (low < high) {
        const i64 middle = low + (high - low) / 2, at = sorter ? sorter[line + middle] : middle;
        if (at < 0 || at >= n) {
            fault(flag);
            return;
        }
        const TV edge = up(edges[line + at]);
        // NaN is larger than all numbers.
        const bool after = RIGHT ? !(edge > x || (edge != edge && x == x)) : edge < x || (x != x && edge == edge);
        if (after) low = middle + 1;
        else high = middle;
    }
    out[i] = make<O>(low);
}
