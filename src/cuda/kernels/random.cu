// Fills from a Philox 4x32-10 stream. Before this text: TO (storage type), R (float or double), WIDE (64-bit integers),
// MODE (0 uniform, 1 normal, 2 integers) and RESULT, an expression of `x` (R, or u64 for integers) and p0, p1, i0, i1.

struct Draw {
    i64 n;
    u64 seed, offset;
    double p0, p1;
    i64 i0;
    u64 i1;
};

struct Four {
    u32 x, y, z, w;
};

FN Four philox(u64 seed, u64 counter, u64 stream) {
    u32 k0 = u32(seed), k1 = u32(seed >> 32);
    Four c = {u32(counter), u32(counter >> 32), u32(stream), u32(stream >> 32)};
#pragma unroll
    for (int round = 0; round < 10; round++) {
        const u32 h0 = __umulhi(0xD2511F53u, c.x), l0 = 0xD2511F53u * c.x;
        const u32 h1 = __umulhi(0xCD9E8D57u, c.z), l1 = 0xCD9E8D57u * c.z;
        const Four next = {h1 ^ c.y ^ k0, l1, h0 ^ c.w ^ k1, l0};
        c = next;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return c;
}

// (0, 1], by 32 and by 53 bits.
FN float unit(u32 x) { return x * 2.3283064e-10f + (2.3283064e-10f / 2.0f); }
FN double unit(u32 x, u32 y) {
    const u64 z = u64(x) ^ (u64(y) << (53 - 32));
    return z * 1.1102230246251565e-16 + (1.1102230246251565e-16 / 2.0);
}
FN void box_muller(u32 x, u32 y, float& a, float& b) {
    const float u = unit(x), v = y * (2.3283064e-10f * 6.2831855f) + (2.3283064e-10f * 6.2831855f / 2.0f);
    const float s = sqrtf(-2.0f * logf(u));
    __sincosf(v, &a, &b);
    a *= s;
    b *= s;
}
FN void box_muller(Four r, double& a, double& b) {
    const double u = unit(r.x, r.y);
    const u64 zy = u64(r.z) ^ (u64(r.w) << (53 - 32));
    const double v = zy * (1.1102230246251565e-16 * 2.0) + 1.1102230246251565e-16;
    const double s = sqrt(-2.0 * log(u));
    sincospi(v, &a, &b);
    a *= s;
    b *= s;
}

template <class N> struct Values;
template <> struct Values<float> {
    enum { COUNT = 4 };
    static FN void of(Four r, float* v) {
#if MODE == 1
        box_muller(r.x, r.y, v[0], v[1]);
        box_muller(r.z, r.w, v[2], v[3]);
#else
        v[0] = unit(r.x), v[1] = unit(r.y), v[2] = unit(r.z), v[3] = unit(r.w);
#endif
    }
};
template <> struct Values<double> {
    enum { COUNT = 2 };
    static FN void of(Four r, double* v) {
#if MODE == 1
        box_muller(r, v[0], v[1]);
#else
        v[0] = unit(r.x, r.y), v[1] = unit(r.z, r.w);
#endif
    }
};
template <> struct Values<u64> {
    enum { COUNT = WIDE ? 2 : 4 };
    static FN void of(Four r, u64* v) {
#if WIDE
        v[0] = (u64(r.x) << 32) | r.y, v[1] = (u64(r.z) << 32) | r.w;
#else
        v[0] = r.x, v[1] = r.y, v[2] = r.z, v[3] = r.w;
#endif
    }
};

// The upper bound, reached by rounding, is the lower one.
template <class N> FN N reverse(N value, N from, N to_) {
    const N rounded = N(up(Down<TO>::of(to<Up<TO>::type>(value))));
    return rounded == to_ ? from : value;
}

extern "C" __global__ void __launch_bounds__(256) kernel(TO* __restrict__ out, const Draw draw) {
    const u64 threads = u64(gridDim.x) * blockDim.x, thread = u64(blockIdx.x) * blockDim.x + threadIdx.x;
    const u64 round = threads * Values<R>::COUNT, n = u64(draw.n);
    const double p0 = draw.p0, p1 = draw.p1;
    const i64 i0 = draw.i0;
    const u64 i1 = draw.i1;
    (void)p0, (void)p1, (void)i0, (void)i1;
    u64 counter = draw.offset / 4;
    for (u64 at = thread; at < (n + round - 1) / round * round; at += round, counter++) {
        R values[Values<R>::COUNT];
        Values<R>::of(philox(draw.seed, counter, thread), values);
#pragma unroll
        for (int k = 0; k < Values<R>::COUNT; k++) {
            const u64 i = at + threads * k;
            const R x = values[k];
            if (i < n) out[i] = Down<TO>::of(to<Up<TO>::type>(RESULT));
        }
    }
}
