// Values that depend on where they are. Before this text: T (elements).

// Clears all columns of matrices but those of a triangle that ends at a diagonal.
KERNEL(triangle)(i64 n, View t, i64 rows, i64 columns, i64 diagonal, i64 lower) {
    EACH(i, n);
    const i64 c = i % columns, r = i / columns % rows;
    if (lower ? c > r + diagonal : c < r + diagonal) element<T>(t, i) = T();
}

// Equal steps: from the front, or by halves from both ends (`last` is then the last value).
KERNEL(range)(i64 n, View t, i64 first, i64 step, double start, double by) {
    EACH(i, n);
#if WHOLE
    element<T>(t, i) = make<T>(first + i * step);
#else
    element<T>(t, i) = make<T>(TV(start + double(i) * by));
#endif
}
