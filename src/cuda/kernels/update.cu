// One step of an optimizer for many parameters. Before this text: T (elements), EACH_ROUNDED (rounding after every operation, not
// at the end alone), STATES, SETS, STEP (statements that change p and s0 to s2 by g and v).

typedef TV V;

struct Set {
    T* p;
    const T* g;
    T* s[3];
    i64 n, first;
    double v[12];
};
struct Sets {
    Set set[SETS];
};

FN V r(V x) {
#if EACH_ROUNDED
    return up(make<T>(x));
#else
    return x;
#endif
}
FN V added(double x) { return r(V(x)); }
FN V lerp(V x, V y, double w) { return r(fabs(w) < 0.5 ? V(w) * (y - x) + x : (x - y) * (V(1) - V(w)) + y); }
FN V squares(V v, V g, double keep) { return r(V(1 - keep) * g * g + r(v * V(keep))); }
FN V addcdiv(V p, V x, V y, double value) { return r(p + V(value) * x / y); }
FN V larger(V x, V y) { return x > y || x != x ? x : y; }

KERNEL(step)(const Sets sets) {
    int k = 0;
    while (k + 1 < SETS && sets.set[k + 1].first <= blockIdx.x) k++;
    const Set& set = sets.set[k];
    const double* const v = set.v + 4;
    const i64 begin = (i64(blockIdx.x) - set.first) * 2048 + threadIdx.x;
#pragma unroll
    for (int u = 0; u < 8; u++) {
        const i64 i = begin + u * 256;
        if (i >= set.n) return;
        V p = up(set.p[i]), g = up(set.g[i]), s0 = 0, s1 = 0, s2 = 0;
        if (STATES > 0) s0 = up(set.s[0][i]);
        if (STATES > 1) s1 = up(set.s[1][i]);
        if (STATES > 2) s2 = up(set.s[2][i]);
        if (set.v[0] != 0) g = -g;
        if (set.v[2] != 0) p = r(p * V(set.v[3]));
        if (set.v[1] != 0) g = r(p * added(set.v[1]) + g);
        STEP
        set.p[i] = make<T>(p);
        if (STATES > 0) set.s[0][i] = make<T>(s0);
        if (STATES > 1) set.s[1][i] = make<T>(s1);
        if (STATES > 2) set.s[2][i] = make<T>(s2);
    }
}
