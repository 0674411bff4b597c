// What kernels with launchers of their own share: layouts, sums of a block, atomic changes.

struct View {
    char* p;
    i64 dims;
    i64 shape[8];
    i64 stride[8];
};

// The offset of an element, by its number in row-major order.
FN i64 offset(const View& v, i64 i) {
    if (v.dims == 1) return i * v.stride[0];
    i64 at = 0;
    if (i < 0x7fffffff) {
        u32 rest = u32(i);
        for (int d = int(v.dims) - 1; d > 0; d--) {
            const u32 size = u32(v.shape[d]), next = rest / size;
            at += i64(rest - next * size) * v.stride[d];
            rest = next;
        }
        return at + i64(rest) * (v.dims ? v.stride[0] : 0);
    }
    for (int d = int(v.dims) - 1; d >= 0; d--) {
        const i64 next = i / v.shape[d];
        at += (i - next * v.shape[d]) * v.stride[d];
        i = next;
    }
    return at;
}
template <class T> FN T& element(const View& v, i64 i) { return ((T*)v.p)[offset(v, i)]; }
template <class T> FN typename Up<T>::type get(const View& v, i64 i) { return up(element<T>(v, i)); }
template <class T, class F> FN T make(F x) { return Down<T>::of(to<typename Up<T>::type>(x)); }

// Neighbouring elements that are read and written at once.
template <class S, int N> struct __align__(sizeof(S) * N) Packed { S x[N]; };
template <int N, class S> FN const Packed<S, N>& packed(const S* p) { return *(const Packed<S, N>*)p; }
template <int N, class S> FN Packed<S, N>& packed(S* p) { return *(Packed<S, N>*)p; }

#define EACH(i, n) const i64 i = i64(blockIdx.x) * blockDim.x + threadIdx.x; if (i >= (n)) return
#define KERNEL(name) extern "C" __global__ void __launch_bounds__(256) name

// The sum, or the largest, of a value of each thread of a block, for all of them. `T` is up to 16 bytes.
struct Add { template <class T> static FN T join(T a, T b) { return a + b; } };
struct Most { template <class T> static FN T join(T a, T b) { return max_(a, b); } };
template <class How, class T> FN T over_block(T x) {
    __shared__ T parts[256];
    __syncthreads();
    parts[threadIdx.x] = x;
    for (u32 half = blockDim.x / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) parts[threadIdx.x] = How::join(parts[threadIdx.x], parts[threadIdx.x + half]);
    }
    __syncthreads();
    return parts[0];
}

// Count, mean and squared deviations of some numbers, joined as Chan, Golub and LeVeque do.
template <class V> struct Moments {
    V n, mean, square;
};
template <int N, class V, class S> FN Moments<V> moments_of(const S* x) {
    Moments<V> m = {V(N), V(0), V(0)};
#pragma unroll
    for (int k = 0; k < N; k++) m.mean += to<V>(up(x[k]));
    m.mean *= V(1) / V(N);
#pragma unroll
    for (int k = 0; k < N; k++) {
        const V apart = to<V>(up(x[k])) - m.mean;
        m.square += apart * apart;
    }
    return m;
}
template <class V> FN Moments<V> operator+(Moments<V> a, Moments<V> b) {
    const V n = a.n + b.n;
    if (n == V(0)) return a;
    const V part = b.n / n, delta = b.mean - a.mean;
    a.mean += delta * part;
    a.square += b.square + delta * delta * a.n * part;
    a.n = n;
    return a;
}

// The same of `lanes` neighbouring threads, a power of two, for all of them: joined in one order, so that all have the same bits.
template <class T> FN T shuffled(T x, u32 lane) { return __shfl_xor_sync(0xffffffff, x, lane); }
template <class V> FN Moments<V> shuffled(Moments<V> m, u32 lane) {
    const Moments<V> other = {shuffled(m.n, lane), shuffled(m.mean, lane), shuffled(m.square, lane)};
    return other;
}
template <class How, class T> FN T over_lanes(T x, u32 lanes) {
    for (u32 half = lanes < 32 ? lanes / 2 : 16; half > 0; half /= 2) {
        const T other = shuffled(x, half);
        x = threadIdx.x & half ? How::join(other, x) : How::join(x, other);
    }
    if (lanes <= 32) return x;
    __shared__ T parts[8];
    const u32 warps = lanes / 32, warp = threadIdx.x / 32, first = warp / warps * warps;
    __syncthreads();
    if (threadIdx.x % 32 == 0) parts[warp] = x;
    __syncthreads();
    x = parts[first];
    for (u32 k = 1; k < warps; k++) x = How::join(x, parts[first + k]);
    return x;
}

// The sum of what the threads of a block before this one have.
template <class T> FN T before_all(T own) {
    __shared__ T sums[256];
    __syncthreads();
    sums[threadIdx.x] = own;
    for (u32 step = 1; step < 256; step *= 2) {
        __syncthreads();
        const T left = threadIdx.x >= step ? sums[threadIdx.x - step] : 0;
        __syncthreads();
        sums[threadIdx.x] += left;
    }
    __syncthreads();
    return sums[threadIdx.x] - own;
}

// Numbers of a list become the sums of those before them, by one block, whose threads have EACH at a time. The sum of all.
template <int EACH, class T> FN T sums_before(T* list, i64 n) {
    __shared__ T all;
    T before = 0;
    for (i64 start = 0; start < n; start += 256 * EACH) {
        const i64 first = start + i64(threadIdx.x) * EACH;
        T many[EACH], sum = 0;
#pragma unroll
        for (int k = 0; k < EACH; k++) sum += many[k] = first + k < n ? list[first + k] : 0;
        T at = before + before_all(sum);
        if (threadIdx.x == 255) all = at + sum;
#pragma unroll
        for (int k = 0; k < EACH; k++) {
            if (first + k < n) list[first + k] = at;
            at += many[k];
        }
        __syncthreads();
        before = all;
    }
    return before;
}

// Atomic changes by comparing and swapping the word that holds an element.
template <class T, int SIZE> struct Word;
template <class T> struct Word<T, 8> {
    template <class F> static FN void change(T* p, F f) {
        u64* w = (u64*)p;
        u64 seen = *w, was;
        do {
            was = seen;
            T t = f(*(T*)&was);
            seen = atomicCAS(w, was, *(u64*)&t);
        } while (seen != was);
    }
};
template <class T> struct Word<T, 4> {
    template <class F> static FN void change(T* p, F f) {
        u32* w = (u32*)p;
        u32 seen = *w, was;
        do {
            was = seen;
            T t = f(*(T*)&was);
            seen = atomicCAS(w, was, *(u32*)&t);
        } while (seen != was);
    }
};
template <class T, class Bits> struct Part {
    template <class F> static FN void change(T* p, F f) {
        const u64 address = (u64)p;
        u32* w = (u32*)(address & ~u64(3));
        const u32 shift = u32(address & 3) * 8, mask = u32(Bits(~Bits(0))) << shift;
        u32 seen = *w, was;
        do {
            was = seen;
            Bits now = Bits((was & mask) >> shift);
            T t = f(*(T*)&now);
            seen = atomicCAS(w, was, (was & ~mask) | (u32(*(Bits*)&t) << shift));
        } while (seen != was);
    }
};
template <class T> struct Word<T, 2> : Part<T, u16> {};
template <class T> struct Word<T, 1> : Part<T, u8> {};
template <class T, class F> FN void change(T* p, F f) { Word<T, sizeof(T)>::change(p, f); }

template <class T> struct Plus {
    typename Up<T>::type x;
    FN T operator()(T old) const { return make<T>(up(old) + x); }
};
template <class T> FN void atomic_add(T* p, typename Up<T>::type x) {
    Plus<T> f;
    f.x = x;
    change(p, f);
}
FN void atomic_add(float* p, float x) { atomicAdd(p, x); }
FN void atomic_add(double* p, double x) { atomicAdd(p, x); }
FN void atomic_add(i32* p, i32 x) { atomicAdd(p, x); }
FN void atomic_add(u32* p, u32 x) { atomicAdd(p, x); }
FN void atomic_add(i64* p, i64 x) { atomicAdd((u64*)p, (u64)x); }
FN void atomic_add(u64* p, u64 x) { atomicAdd(p, x); }
FN void atomic_add(bool* p, bool x) { if (x) *p = true; }
FN void atomic_add(cf* p, cf x) { atomicAdd(&p->re, x.re); atomicAdd(&p->im, x.im); }
FN void atomic_add(cd* p, cd x) { atomicAdd(&p->re, x.re); atomicAdd(&p->im, x.im); }

// Says to the host that an index was out of bounds.
FN void fault(u32* flag) { *flag = 1; }
