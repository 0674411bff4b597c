// One pointwise operator. Before this text: T (compute type), TO, TA, TB, TC (storage types), INDEX, FLAT, PACK (elements that a
// thread reads at once, if all operands are dense), and GET_A, GET_B, GET_C of elements IN_A, IN_B, IN_C, RESULT (expressions).

struct Layout {
    i64 n;
    i64 dims;
    i64 shape[8];
    i64 stride[4][8];
};
#if FLAT
// Operands that are not there are not read.
template <class S> FN Packed<S, PACK> read(const S* p, u64 at) { return p ? packed<PACK>(p + at) : Packed<S, PACK>(); }
#endif

extern "C" __global__ void __launch_bounds__(256) kernel(
    TO* out, const TA* pa, const TB* pb, const TC* pc, const Layout layout, const Numbers numbers) {
    const T f0 = Number<T>::of(numbers, 0), f1 = Number<T>::of(numbers, 1), f2 = Number<T>::of(numbers, 2);
    const T alpha = f0;
    (void)alpha, (void)f1, (void)f2;
#if FLAT
    const u64 first = (u64(blockIdx.x) * 256 + threadIdx.x) * PACK;
    if (first + PACK <= u64(layout.n)) {
        const Packed<TA, PACK> as = read(pa, first);
        const Packed<TB, PACK> bs = read(pb, first);
        const Packed<TC, PACK> cs = read(pc, first);
        (void)as, (void)bs, (void)cs;
        Packed<TO, PACK> results;
#pragma unroll
        for (int u = 0; u < PACK; u++) {
#define IN_A as.x[u]
#define IN_B bs.x[u]
#define IN_C cs.x[u]
            const T a = GET_A, b = GET_B, c = GET_C;
#undef IN_A
#undef IN_B
#undef IN_C
            (void)a, (void)b, (void)c;
            results.x[u] = Down<TO>::of(to<Up<TO>::type>(RESULT));
        }
        packed<PACK>(out + first) = results;
        return;
    }
    for (u64 at = first; at < u64(layout.n); at++) {
        const u64 at_a = at, at_b = at, at_c = at;
#else
#pragma unroll
    for (int u = 0; u < 4; u++) {
        const INDEX i = INDEX(blockIdx.x) * 1024 + u * 256 + threadIdx.x;
        if (i >= INDEX(layout.n)) return;
        INDEX rest = i;
        i64 at = 0, at_a = 0, at_b = 0, at_c = 0;
#pragma unroll
        for (int k = 0; k < 8; k++) {
            if (k >= layout.dims) break;
            const INDEX size = INDEX(layout.shape[k]), next = rest / size;
            const i64 step = i64(rest - next * size);
            rest = next;
            at += step * layout.stride[0][k];
            at_a += step * layout.stride[1][k];
            at_b += step * layout.stride[2][k];
            at_c += step * layout.stride[3][k];
        }
#endif
        (void)at_a, (void)at_b, (void)at_c;
#define IN_A pa[at_a]
#define IN_B pb[at_b]
#define IN_C pc[at_c]
        const T a = GET_A, b = GET_B, c = GET_C;
        (void)a, (void)b, (void)c;
        out[at] = Down<TO>::of(to<Up<TO>::type>(RESULT));
    }
}
