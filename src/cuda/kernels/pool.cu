// Pooling of windows that tables describe. Before this text: T (elements), V (what is computed), O (of the result), MAX.

struct Window {
    i64 start, end, step, padded;
};
struct Sizes {
    i64 size[3], out[3];
    i64 shared;   // all planes have the same windows
    i64 divisor;  // 0: the number of elements, with padding if `padding`
    i64 padding;
};

FN void windows_of(const Window* table, const Sizes& s, i64 plane, u32 p, Window* w) {
    const i64 base = s.shared ? 0 : plane * (s.out[0] + s.out[1] + s.out[2]);
    const u32 wide = u32(s.out[2]), high = u32(s.out[1]), row = p / wide, o0 = row / high;
    w[0] = table[base + o0];
    w[1] = table[base + s.out[0] + row - o0 * high];
    w[2] = table[base + s.out[0] + s.out[1] + p - row * wide];
}
// Which plane an element of so many positions each is of, and which position there it is.
FN i64 plane_of(i64 i, i64 positions, u32& p) {
    const i64 plane = i < 0x7fffffff ? i64(u32(i) / u32(positions)) : i / positions;
    p = u32(i - plane * positions);
    return plane;
}
FN i64 counted(const Sizes& s, const Window* w) {
    if (s.divisor) return s.divisor;
    i64 n = 1;
    for (int d = 0; d < 3; d++) n *= s.padding ? w[d].padded : w[d].end - w[d].start;
    return n;
}

KERNEL(pool)(O* out, i64* at, const T* x, const Window* table, i64 n, Sizes s) {
    EACH(i, n);
    u32 p;
    const i64 plane = plane_of(i, s.out[0] * s.out[1] * s.out[2], p);
    Window w[3];
    windows_of(table, s, plane, p, w);
    const T* const from = x + plane * s.size[0] * s.size[1] * s.size[2];
#if MAX
    V best = V(0);
    i64 place = -1;
#else
    V sum = V(0);
#endif
    for (i64 a = w[0].start; a < w[0].end; a += w[0].step)
        for (i64 b = w[1].start; b < w[1].end; b += w[1].step)
            for (i64 c = w[2].start; c < w[2].end; c += w[2].step) {
                const i64 j = (a * s.size[1] + b) * s.size[2] + c;
                const V v = V(up(from[j]));
#if MAX
                if (place < 0 || v > best || v != v) {
                    best = v;
                    place = j;
                }
#else
                sum += v;
#endif
            }
#if MAX
    out[i] = make<O>(place < 0 ? least<V>() : best);
    if (at) at[i] = place < 0 ? 0 : place;
#else
    out[i] = make<O>(sum / V(counted(s, w)));
#endif
}

// Gradients on their way back: to the places of maxima, or evenly to all elements of a window.
KERNEL(back)(V* x, const T* g, const i64* at, const Window* table, i64 n, Sizes s, u32* flag) {
    EACH(i, n);
    u32 p;
    const i64 plane = plane_of(i, s.out[0] * s.out[1] * s.out[2], p), size = s.size[0] * s.size[1] * s.size[2];
    (void)p;
    V* const to = x + plane * size;
#if MAX
    const i64 place = at[i];
    if (place == -1) return;
    if (place < 0 || place >= size) {
        fault(flag);
        return;
    }
    atomic_add(to + place, V(up(g[i])));
#else
    Window w[3];
    windows_of(table, s, plane, p, w);
    const V own = V(up(g[i])) / V(counted(s, w));
    for (i64 a = w[0].start; a < w[0].end; a += w[0].step)
        for (i64 b = w[1].start; b < w[1].end; b += w[1].step)
            for (i64 c = w[2].start; c < w[2].end; c += w[2].step) atomic_add(to + (a * s.size[1] + b) * s.size[2] + c, own);
#endif
}
