// Losses that read class numbers. Before this text: T (scores). Scores are (samples, classes, size), row-major.

typedef TV V;

KERNEL(nll)(V* losses, V* weights, const T* x, const i64* target, const T* w, i64 n, i64 classes, i64 size, i64 ignore, u32* flag) {
    EACH(i, n);
    const i64 t = target[i];
    V loss = 0, weight = 0;
    if (t != ignore) {
        if (t < 0 || t >= classes) {
            fault(flag);
        } else {
            weight = w ? up(w[t]) : V(1);
            loss = -weight * up(x[(i / size * classes + t) * size + i % size]);
        }
    }
    losses[i] = loss;
    weights[i] = weight;
}

KERNEL(nll_backward)(T* out, const T* g, const i64* target, const T* w, const T* total, i64 n, i64 classes, i64 size, i64 ignore, i64 one, u32* flag) {
    EACH(i, n);
    const i64 t = target[i];
    if (t == ignore) return;
    if (t < 0 || t >= classes) {
        fault(flag);
        return;
    }
    const V own = up(g[one ? 0 : i]) / (total ? up(*total) : V(1));
    out[(i / size * classes + t) * size + i % size] = make<T>(-own * (w ? up(w[t]) : V(1)));
}
