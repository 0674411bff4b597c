// Reading and writing elements at positions. Before this text: T (elements), I (positions), AXES (how many dimensions are
// indexed), WRAP (negative positions count from the end), HOW (what a write does).

struct Axes {
    View at[AXES];
    i64 step[AXES];
    i64 size[AXES];
};

// The offset that the positions of element `i` add; false if one of them is out of bounds.
FN bool place(const Axes& axes, i64 i, i64& step, u32* flag) {
#pragma unroll
    for (int k = 0; k < AXES; k++) {
        const i64 n = axes.size[k];
        i64 at = i64(element<I>(axes.at[k], i));
#if WRAP
        if (at < 0) at += n;
#endif
        if (at < 0 || at >= n) {
            fault(flag);
            return false;
        }
        step += at * axes.step[k];
    }
    return true;
}

// A thread has several elements, so that their positions, and then they, are read at the same time.
#define ITEMS 4
KERNEL(take)(i64 n, View out, View base, Axes axes, u32* flag) {
    i64 step[ITEMS] = {};
    bool there[ITEMS];
    T got[ITEMS];
#define ITEM(u) (i64(blockIdx.x) * (256 * ITEMS) + (u) * 256 + threadIdx.x)
#pragma unroll
    for (int u = 0; u < ITEMS; u++) there[u] = ITEM(u) < n && place(axes, ITEM(u), step[u], flag);
#pragma unroll
    for (int u = 0; u < ITEMS; u++)
        if (there[u]) got[u] = ((const T*)base.p)[offset(base, ITEM(u)) + step[u]];
#pragma unroll
    for (int u = 0; u < ITEMS; u++)
        if (there[u]) element<T>(out, ITEM(u)) = got[u];
}

#ifdef HOW
typedef TV V;
struct Merge {
    V x;
    FN T operator()(T old) const {
        const V a = up(old), b = x;
        return make<T>(HOW);
    }
};

KERNEL(put)(i64 n, View base, View src, Axes axes, u32* flag) {
    EACH(i, n);
    i64 step = 0;
    if (!place(axes, i, step, flag)) return;
    T* const to = (T*)base.p + offset(base, i) + step;
    const T x = element<T>(src, i);
#if SET
    *to = x;
#elif ADD
    atomic_add(to, up(x));
#else
    Merge merge;
    merge.x = up(x);
    change(to, merge);
#endif
}
#endif

KERNEL(copy)(i64 n, View out, View in) {
    EACH(i, n);
    element<T>(out, i) = element<T>(in, i);
}
