// Gradients without their scale, in place. Before this text: T (elements).

KERNEL(unscale)(i64 n, View t, double by, float* found) {
    EACH(i, n);
    T& x = element<T>(t, i);
    const TV v = up(x);
    if (!isfinite_(v)) *found = 1.0f;
    x = make<T>(v * TV(by));
}
