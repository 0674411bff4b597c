// One pointwise operator. Before this text: T (compute type), TO, TA, TB, TC (storage types), GET_A, GET_B, GET_C of elements IN_A,
// IN_B, IN_C, RESULT (expressions), INDEX, PACK (neighbours that a thread takes at once), and how operands lie:
// FLAT: all densely, one after the other;
// TILE: the result densely along its first dimension, those with TURN_A ... densely along its second;
// otherwise PACK elements of the first dimension, along which those with ALONG_A ... are dense and others do not move if PACK > 1.

struct Layout {
    i64 n;
    i64 dims;
    i64 shape[8];
    i64 stride[4][8];
};
// Operands that are not there are not read.
template <int N, class S> FN Packed<S, N> read(const S* p, i64 at) { return p ? packed<N>(p + at) : Packed<S, N>(); }

#define WRITE(place) \
    const T a = GET_A, b = GET_B, c = GET_C; \
    (void)a, (void)b, (void)c; \
    place = Down<TO>::of(to<Up<TO>::type>(RESULT))

extern "C" __global__ void __launch_bounds__(256) kernel(
    TO* out, const TA* pa, const TB* pb, const TC* pc, const Layout layout, const Numbers numbers) {
    const T f0 = Number<T>::of(numbers, 0), f1 = Number<T>::of(numbers, 1), f2 = Number<T>::of(numbers, 2);
    const T alpha = f0;
    (void)alpha, (void)f1, (void)f2;
#if FLAT
    const u64 first = (u64(blockIdx.x) * 256 + threadIdx.x) * PACK;
    if (first + PACK <= u64(layout.n)) {
        const Packed<TA, PACK> as = read<PACK>(pa, first);
        const Packed<TB, PACK> bs = read<PACK>(pb, first);
        const Packed<TC, PACK> cs = read<PACK>(pc, first);
        (void)as, (void)bs, (void)cs;
        Packed<TO, PACK> results;
#pragma unroll
        for (int u = 0; u < PACK; u++) {
#define IN_A as.x[u]
#define IN_B bs.x[u]
#define IN_C cs.x[u]
            WRITE(results.x[u]);
#undef IN_A
#undef IN_B
#undef IN_C
        }
        packed<PACK>(out + first) = results;
        return;
    }
    for (u64 at = first; at < u64(layout.n); at++) {
#define IN_A pa[at]
#define IN_B pb[at]
#define IN_C pc[at]
        WRITE(out[at]);
    }
#elif TILE
    i64 rest = blockIdx.x;
    const i64 many = (layout.shape[0] + TILE - 1) / TILE, few = (layout.shape[1] + TILE - 1) / TILE;
    const i64 first = rest % many * TILE, second = rest / many % few * TILE;
    rest = rest / many / few;
    i64 base = 0, base_a = 0, base_b = 0, base_c = 0;
    for (int k = 2; k < layout.dims; k++) {
        const i64 next = rest / layout.shape[k], step = rest - next * layout.shape[k];
        rest = next;
        base += step * layout.stride[0][k];
        base_a += step * layout.stride[1][k];
        base_b += step * layout.stride[2][k];
        base_c += step * layout.stride[3][k];
    }
    const int lane = threadIdx.x % TILE, row = threadIdx.x / TILE;
    // Brought to shared memory along the second dimension, taken from it along the first.
#define AT(k, i, j) ((first + (i)) * layout.stride[k][0] + (second + (j)) * layout.stride[k][1])
#define TURNED(S, tile, p, base, k) \
    __shared__ S tile[TILE][TILE + 1]; \
    _Pragma("unroll") for (int r = row; r < TILE; r += 256 / TILE) \
        if (first + r < layout.shape[0] && second + lane < layout.shape[1]) tile[r][lane] = p[base + AT(k, r, lane)];
#if TURN_A
    TURNED(TA, tile_a, pa, base_a, 1)
#define IN_A tile_a[lane][r]
#else
#define IN_A pa[base_a + AT(1, lane, r)]
#endif
#if TURN_B
    TURNED(TB, tile_b, pb, base_b, 2)
#define IN_B tile_b[lane][r]
#else
#define IN_B pb[base_b + AT(2, lane, r)]
#endif
#if TURN_C
    TURNED(TC, tile_c, pc, base_c, 3)
#define IN_C tile_c[lane][r]
#else
#define IN_C pc[base_c + AT(3, lane, r)]
#endif
    (void)base_a, (void)base_b, (void)base_c;
    __syncthreads();
    if (first + lane >= layout.shape[0]) return;
#pragma unroll
    for (int r = row; r < TILE; r += 256 / TILE) {
        if (second + r >= layout.shape[1]) return;
        WRITE(out[base + AT(0, lane, r)]);
    }
#else
#define WIDTH(along) ((along) ? PACK : 1)
#define STEPS (PACK > 1 ? 1 : 4)
#pragma unroll
    for (int s = 0; s < STEPS; s++) {
        const INDEX i = INDEX(blockIdx.x) * (256 * STEPS) + s * 256 + threadIdx.x;
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
        const Packed<TA, WIDTH(ALONG_A)> as = read<WIDTH(ALONG_A)>(pa, at_a);
        const Packed<TB, WIDTH(ALONG_B)> bs = read<WIDTH(ALONG_B)>(pb, at_b);
        const Packed<TC, WIDTH(ALONG_C)> cs = read<WIDTH(ALONG_C)>(pc, at_c);
        (void)as, (void)bs, (void)cs;
        Packed<TO, PACK> results;
#pragma unroll
        for (int u = 0; u < PACK; u++) {
#define IN_A as.x[ALONG_A ? u : 0]
#define IN_B bs.x[ALONG_B ? u : 0]
#define IN_C cs.x[ALONG_C ? u : 0]
            WRITE(results.x[u]);
        }
        packed<PACK>(out + at) = results;
    }
#endif
}
