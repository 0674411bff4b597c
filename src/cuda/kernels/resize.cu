// Weighted sums of few elements along a dimension. Before this text: T (elements), O (of the result). The sum for element i of a
// line is over entries starts[i] to starts[i + 1] of `places` and `weights`.

KERNEL(along)(O* out, const T* x, const i64* starts, const i64* places, const double* weights, i64 n, i64 size, i64 count, i64 inner) {
    EACH(i, n);
    const i64 rest = i / inner, j = rest % count, base = rest / count * size * inner + i % inner;
    OV sum = 0;
    for (i64 k = starts[j]; k < starts[j + 1]; k++) sum += OV(up(x[base + places[k] * inner])) * OV(weights[k]);
    out[i] = make<O>(sum);
}
