// Types of elements, and the instructions of a GPU that C++ has no words for. Compiled without any header. The emulator of
// `tests/gpu` defines EMULATED and has such instructions of its own.

typedef signed char i8;
typedef unsigned char u8;
typedef short i16;
typedef unsigned short u16;
typedef int i32;
typedef unsigned int u32;
typedef long long i64;
typedef unsigned long long u64;

#define FN __device__ __forceinline__

struct __align__(2) f16 { u16 bits; };
struct __align__(2) bf16 { u16 bits; };

#ifndef EMULATED
FN float single_of(f16 x) {
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
    return y;
}
FN void round_to(f16& y, float x) { asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x)); }
FN void round_to(bf16& y, float x) {
#if __CUDA_ARCH__ >= 800
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
#else
    const u32 b = __float_as_uint(x);
    y.bits = x != x ? u16(0x7fc0) : u16((b + 0x7fff + ((b >> 16) & 1)) >> 16);
#endif
}

// 2^x, nearly.
FN float power_of_two(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// What products of tiles do by the type of their elements. `pair` is two elements in a word; `multiply` adds to a lane's four of 16 x 8
// sums the products of 16 x 16 and 16 x 8 elements of its warp.
template <class T> struct Tiles;
#define TILES(T, NAME) \
    template <> struct Tiles<T> { \
        static FN u32 pair(float low, float high) { \
            u32 r; \
            asm("cvt.rn." NAME "x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low)); \
            return r; \
        } \
        static FN void multiply(float* c, const u32* a, u32 b0, u32 b1) { \
            asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." NAME "." NAME ".f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};" \
                         : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1)); \
        } \
    };
TILES(f16, "f16")
TILES(bf16, "bf16")
#undef TILES

// Where something lies in shared memory.
FN u32 shared_address(const void* p) { return u32(__cvta_generic_to_shared(p)); }

// Starts a copy of 16 bytes into shared memory; those behind the first `bytes` become zeros. Copies since the last `commit` are a
// group; `wait_copies<N>` waits for all but the last N groups.
FN void copy_16(u32 to, const void* from, int bytes) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}
FN void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> FN void wait_copies() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }

// Four 8 x 8 squares of 16-bit elements in shared memory, of which each lane names a row, as they lie or turned.
FN void load_squares(u32* r, u32 from, bool turned) {
    if (turned)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(from) : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(from) : "memory");
}
#endif
