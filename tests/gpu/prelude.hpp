// What a kernel's text finds before it when the emulator compiles it: CUDA's words in C++.
#pragma once
#include "emulator.hpp"

extern "C" Emulator* emulator;
Emulator* emulator;

#define EMULATED 1
#define __CUDA_ARCH__ 900
#define __device__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __shared__ static   // one block runs at a time
#define threadIdx (emulator->thread)
#define blockIdx (emulator->block)
#define gridDim (emulator->grid)
#define blockDim (emulator->threads)

inline void __syncthreads() { emulator->barrier(); }
inline void __syncwarp(unsigned mask = ~0u) { emulator->warp(mask); }

template <class To, class From> inline To same_bits(From x) {
    static_assert(sizeof(To) == sizeof(From), "another size");
    To y;
    __builtin_memcpy(&y, &x, sizeof y);
    return y;
}
inline unsigned __float_as_uint(float x) { return same_bits<unsigned>(x); }
inline int __float_as_int(float x) { return same_bits<int>(x); }
inline float __uint_as_float(unsigned x) { return same_bits<float>(x); }
inline float __int_as_float(int x) { return same_bits<float>(x); }
inline long long __double_as_longlong(double x) { return same_bits<long long>(x); }
inline double __longlong_as_double(long long x) { return same_bits<double>(x); }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline unsigned __umulhi(unsigned a, unsigned b) { return unsigned((unsigned long long)a * b >> 32); }

// Without <math.h>, whose ten thousand lines are most of the time of a compilation.
#define ONE(name) \
    extern "C" double name(double); \
    extern "C" float name##f(float); \
    inline float name(float x) { return name##f(x); }
#define TWO(name) \
    extern "C" double name(double, double); \
    extern "C" float name##f(float, float); \
    inline float name(float x, float y) { return name##f(x, y); }
ONE(acos) ONE(acosh) ONE(asin) ONE(asinh) ONE(atan) ONE(atanh) ONE(ceil) ONE(cos) ONE(cosh) ONE(erf) ONE(erfc) ONE(exp) ONE(exp2) ONE(expm1)
ONE(fabs) ONE(floor) ONE(lgamma) ONE(log) ONE(log10) ONE(log1p) ONE(log2) ONE(nearbyint) ONE(rint) ONE(round) ONE(sin) ONE(sinh) ONE(sqrt)
ONE(tan) ONE(tanh) ONE(tgamma) ONE(trunc)
TWO(atan2) TWO(copysign) TWO(fmax) TWO(fmin) TWO(fmod) TWO(hypot) TWO(nextafter) TWO(pow)
extern "C" double fma(double, double, double);
extern "C" float fmaf(float, float, float);
extern "C" double frexp(double, int*);
extern "C" double ldexp(double, int);
inline float rsqrt(float x) { return 1 / sqrtf(x); }
inline double rsqrt(double x) { return 1 / sqrt(x); }
inline double sinpi(double x) { return sin(3.14159265358979323846 * (x - 2 * round(x / 2))); }
inline float sinpif(float x) { return float(sinpi(double(x))); }
template <class R> inline void sincos(R x, R* s, R* c) { *s = sin(x), *c = cos(x); }
inline void __sincosf(float x, float* s, float* c) { sincos(x, s, c); }
template <class R> inline void sincospi(R x, R* s, R* c) { *s = R(sinpi(double(x))), *c = R(sinpi(double(x) + 0.5)); }

// Functions that the C library lacks.
#define OF_DOUBLE(name) \
    inline float name(float x) { return float(name(double(x))); }
extern "C" {
double j0(double);
double j1(double);
double y0(double);
double y1(double);
}
inline double erfinv(double y) {
    if (!(y > -1 && y < 1)) return y == 1 || y == -1 ? y / 0.0 : 0.0 / 0.0;
    if (y < 0) return -erfinv(-y);
    // Winitzki's approximation, then Newton's steps.
    const double l = log((1 - y) * (1 + y)), h = 4.330746750799873 + l / 2;
    double x = sqrt(sqrt(h * h - l / 0.147) - h);
    for (int k = 0; k < 4; k++) x += (erfc(x) - (1 - y)) * exp(x * x) * 0.886226925452758014;
    return x;
}
inline double normcdf(double x) { return erfc(-x * 0.707106781186547524) / 2; }
inline double normcdfinv(double p) { return 1.41421356237309505 * erfinv(2 * p - 1); }
inline double erfcx(double x) {
    if (x < 25) return exp(x * x) * erfc(x);
    const double i = 1 / (2 * x * x);
    return 0.564189583547756287 / x * (1 - i * (1 - 3 * i * (1 - 5 * i)));
}
inline double cyl_bessel_i(int order, double x) {
    double term = order ? x / 2 : 1, sum = term;
    for (int k = 1; k < 4000 && term != 0 && fabs(term) > 1e-18 * fabs(sum); k++) sum += term *= x * x / 4 / k / (k + order);
    return sum;
}
inline double cyl_bessel_i0(double x) { return cyl_bessel_i(0, x); }
inline double cyl_bessel_i1(double x) { return cyl_bessel_i(1, x); }
OF_DOUBLE(j0) OF_DOUBLE(j1) OF_DOUBLE(y0) OF_DOUBLE(y1) OF_DOUBLE(erfinv) OF_DOUBLE(normcdf) OF_DOUBLE(normcdfinv) OF_DOUBLE(erfcx)
OF_DOUBLE(cyl_bessel_i0) OF_DOUBLE(cyl_bessel_i1)

// All lanes of a warp show a value and look at one.
inline unsigned of_thread() { return threadIdx.x + threadIdx.y * blockDim.x; }
template <class T, class F> inline auto among(unsigned mask, T value, F look) {
    static_assert(sizeof(T) <= 16, "a larger value");
    const unsigned t = of_thread();
    __builtin_memcpy(emulator->shown[t], &value, sizeof value);
    emulator->warp(mask);
    auto seen = look(emulator->shown + t / 32 * 32, t % 32);
    emulator->warp(mask);
    return seen;
}
template <class T> inline T shown_by(unsigned long long (*all)[2], unsigned lane) {
    T value;
    __builtin_memcpy(&value, all[lane % 32], sizeof value);
    return value;
}
template <class T> inline T __shfl_xor_sync(unsigned mask, T value, int by) {
    return among(mask, value, [=](auto* all, unsigned lane) { return shown_by<T>(all, lane ^ unsigned(by)); });
}
template <class T> inline T __shfl_sync(unsigned mask, T value, int from) {
    return among(mask, value, [=](auto* all, unsigned) { return shown_by<T>(all, unsigned(from)); });
}
template <class F> inline unsigned which(unsigned long long (*all)[2], F suits) {
    unsigned found = 0;
    for (unsigned k = 0; k < 32; k++) found |= unsigned(bool(suits(all, k))) << k;
    return found;
}
inline unsigned __ballot_sync(unsigned mask, int value) {
    return mask & among(mask, value, [](auto* all, unsigned) { return which(all, [](auto* a, unsigned k) { return shown_by<int>(a, k); }); });
}
template <class T> inline unsigned __match_any_sync(unsigned mask, T value) {
    return mask & among(mask, value, [=](auto* all, unsigned) { return which(all, [=](auto* a, unsigned k) { return shown_by<T>(a, k) == value; }); });
}

// One thread runs at a time, and gives up its turn only where it waits.
template <class T, class V> inline T atomicAdd(T* p, V x) {
    const T old = *p;
    *p = old + T(x);
    return old;
}
template <class T> inline T atomicCAS(T* p, T was, T now) {
    const T old = *p;
    if (old == was) *p = now;
    return old;
}

// The instructions of `machine.cuh`.
struct f16;
struct bf16;
inline float single_of(const f16& x) { return float((const _Float16&)x); }
inline void round_to(f16& y, float x) { (_Float16&)y = _Float16(x); }
inline void round_to(bf16& y, float x) {
    const unsigned b = __float_as_uint(x);
    (unsigned short&)y = x != x ? 0x7fff : (unsigned short)((b + 0x7fff + ((b >> 16) & 1)) >> 16);
}
inline float power_of_two(float x) { return exp2f(x); }

inline float element_of(const f16*, unsigned short bits) { return single_of((const f16&)bits); }
inline float element_of(const bf16*, unsigned short bits) { return __uint_as_float(unsigned(bits) << 16); }
template <class T> struct Tiles {
    static unsigned pair(float low, float high) {
        unsigned short l, h;
        round_to((T&)l, low);
        round_to((T&)h, high);
        return l | unsigned(h) << 16;
    }
    // What each lane has of the sides and sums of mma.m16n8k16: "Parallel Thread Execution ISA", matrix fragments.
    static void multiply(float* c, const unsigned* a, unsigned b0, unsigned b1) {
        struct Own {
            unsigned a[4];
        } left = {{a[0], a[1], a[2], a[3]}};
        struct Two {
            unsigned b[2];
        } right = {{b0, b1}};
        float rows[16][16], columns[8][16];
        among(~0u, left, [&](auto* all, unsigned) {
            for (unsigned lane = 0; lane < 32; lane++)
                for (unsigned e = 0; e < 8; e++)
                    rows[lane / 4 + e / 2 % 2 * 8][lane % 4 * 2 + e % 2 + e / 4 * 8] =
                        element_of((const T*)0, (unsigned short)(shown_by<Own>(all, lane).a[e / 2] >> e % 2 * 16));
            return 0;
        });
        among(~0u, right, [&](auto* all, unsigned) {
            for (unsigned lane = 0; lane < 32; lane++)
                for (unsigned e = 0; e < 4; e++)
                    columns[lane / 4][lane % 4 * 2 + e % 2 + e / 2 * 8] =
                        element_of((const T*)0, (unsigned short)(shown_by<Two>(all, lane).b[e / 2] >> e % 2 * 16));
            return 0;
        });
        const unsigned lane = of_thread() % 32;
        for (unsigned e = 0; e < 4; e++)
            for (unsigned k = 0; k < 16; k++) c[e] += rows[lane / 4 + e / 2 * 8][k] * columns[lane % 4 * 2 + e % 2][k];
    }
};

// Addresses in shared memory count from a place in this library.
static char origin;
inline unsigned shared_address(const void* p) { return unsigned((const char*)p - &origin); }
inline char* at_address(unsigned address) { return &origin + int(address); }
inline void copy_16(unsigned to, const void* from, int bytes) { emulator->copy(at_address(to), from, bytes); }
inline void commit_copies() { emulator->commit(); }
template <int N> inline void wait_copies() { emulator->wait(N); }

inline void load_squares(unsigned* r, unsigned from, bool turned) {
    const unsigned lane = of_thread() % 32;
    among(~0u, at_address(from), [&](auto* all, unsigned) {
        for (unsigned square = 0; square < 4; square++) {
            unsigned short two[2];
            for (unsigned e = 0; e < 2; e++) {
                const unsigned row = turned ? lane % 4 * 2 + e : lane / 4, column = turned ? lane / 4 : lane % 4 * 2 + e;
                two[e] = ((const unsigned short*)shown_by<char*>(all, square * 8 + row))[column];
            }
            r[square] = two[0] | unsigned(two[1]) << 16;
        }
        return 0;
    });
}

// Calls a kernel with the addresses of its arguments.
template <unsigned... K> struct Places {};
template <unsigned N, unsigned... K> struct Count : Count<N - 1, N - 1, K...> {};
template <unsigned... K> struct Count<0, K...> {
    typedef Places<K...> type;
};
template <class... A, unsigned... K> inline void call_at(void (*kernel)(A...), void** args, Places<K...>) { kernel(*(A*)args[K]...); }
template <class... A> inline void call(void (*kernel)(A...), void** args) { call_at(kernel, args, typename Count<sizeof...(A)>::type()); }
