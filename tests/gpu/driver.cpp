// The CUDA driver's functions that torchlike calls, for GPUs that are memory and threads of this process. Device memory cannot be
// touched while no kernel runs, so that a host that reads it by mistake dies as it would with a GPU; nor can what lies behind a block.
#include "threads.hpp"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <map>
#include <mutex>
#include <string>
#include <sys/mman.h>
#include <unistd.h>

namespace {
enum Result { SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, INVALID_DEVICE = 101, INVALID_IMAGE = 200, NOT_FOUND = 500, LAUNCH_FAILED = 719 };
typedef uint64_t Address;

// Each device has a region of addresses. Blocks are cut from it; all else, and a page at least between neighbours, shows a file without
// content, which nobody can read or write whatever the protection: that of a whole region is then changed at once.
constexpr size_t MEMORY = size_t(4) << 30, PAGE = 4096;
constexpr int MOST = 8;

struct Device {
    char* memory = nullptr;
    size_t used = 0;
    std::map<size_t, size_t> blocks;   // offsets and lengths of what is handed out
} devices[MOST];

std::recursive_mutex locked;
thread_local Device* current = nullptr;
typedef std::lock_guard<std::recursive_mutex> Guard;

int count() {
    const char* given = getenv("EMULATED_GPUS");
    const int n = given ? atoi(given) : 1;
    return n < 0 ? 0 : n > MOST ? MOST : n;
}

char* mapped(char* at, size_t bytes, int protection, bool memory) {
    static const int nothing = memfd_create("nothing", MFD_CLOEXEC);
    const int kind = memory ? MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE : MAP_SHARED;
    void* p = mmap(at, bytes, protection, kind | (at ? MAP_FIXED : 0), memory ? -1 : nothing, 0);
    if (p == MAP_FAILED) abort();
    return (char*)p;
}

Device* opened(int k) {
    Device& d = devices[k];
    if (!d.memory) d.memory = mapped(nullptr, MEMORY, PROT_NONE, false);
    return &d;
}

int users = 0;
int protection() { return users ? PROT_READ | PROT_WRITE : PROT_NONE; }

void protect() {
    for (const Device& d : devices)
        if (!d.blocks.empty() && mprotect(d.memory, d.blocks.rbegin()->first + d.blocks.rbegin()->second, protection())) abort();
}

// Device memory can be used while this lives.
struct Open {
    Guard guard{locked};
    Open() {
        if (!users++) protect();
    }
    ~Open() {
        if (!--users) protect();
    }
};

Result copied(void* to, const void* from, size_t bytes) {
    Open open;
    memmove(to, from, bytes);
    return SUCCESS;
}
}   // namespace

extern "C" {
// For the other libraries of the emulator.
void* emulator_open() { return new Open; }
void emulator_close(void* p) { delete (Open*)p; }

Result cuInit(unsigned) { return SUCCESS; }
Result cuDeviceGetCount(int* n) { return *n = count(), SUCCESS; }
Result cuDeviceGet(int* device, int k) {
    if (k < 0 || k >= count()) return INVALID_DEVICE;
    return *device = k, SUCCESS;
}
Result cuDeviceGetName(char* name, int room, int) { return snprintf(name, size_t(room), "Emulated GPU"), SUCCESS; }
Result cuDeviceTotalMem_v2(size_t* bytes, int) { return *bytes = MEMORY, SUCCESS; }
Result cuDeviceGetAttribute(int* value, int which, int) {
    // The numbers of CUdevice_attribute, and an H100's answers; few processors keep grids small.
    switch (which) {
    case 75: return *value = 9, SUCCESS;     // COMPUTE_CAPABILITY_MAJOR
    case 76: return *value = 0, SUCCESS;     // COMPUTE_CAPABILITY_MINOR
    case 16: return *value = 8, SUCCESS;     // MULTIPROCESSOR_COUNT
    case 39: return *value = 2048, SUCCESS;  // MAX_THREADS_PER_MULTIPROCESSOR
    default: return INVALID_VALUE;
    }
}
Result cuDevicePrimaryCtxRetain(void** context, int k) {
    Guard guard{locked};
    return *context = opened(k), SUCCESS;
}
Result cuCtxGetCurrent(void** context) { return *context = current, SUCCESS; }
Result cuCtxSetCurrent(void* context) { return current = (Device*)context, SUCCESS; }
Result cuStreamCreate(void** stream, unsigned) { return *stream = (void*)1, SUCCESS; }
Result cuStreamSynchronize(void*) { return SUCCESS; }

Result cuMemGetInfo_v2(size_t* free, size_t* total) {
    Guard guard{locked};
    return *free = MEMORY - current->used, *total = MEMORY, SUCCESS;
}
Result cuMemAlloc_v2(Address* address, size_t bytes) {
    if (!bytes) return INVALID_VALUE;
    if (bytes > MEMORY) return OUT_OF_MEMORY;
    Guard guard{locked};
    Device& d = *current;
    const size_t whole = (bytes + 2 * PAGE - 1) / PAGE * PAGE;
    size_t at = 0;
    for (const auto& b : d.blocks) {
        if (b.first - at >= whole) break;
        at = b.first + b.second;
    }
    if (at + whole > MEMORY) return OUT_OF_MEMORY;
    Open open;
    mapped(d.memory + at, whole - PAGE, protection(), true);
    d.blocks[at] = whole;
    d.used += whole;
    *address = Address(d.memory + at);
    // What a GPU hands out holds anything: bytes that are no usual number.
    memset(d.memory + at, 0xcb, bytes);
    return SUCCESS;
}
Result cuMemFree_v2(Address address) {
    Guard guard{locked};
    for (Device& d : devices) {
        const auto b = d.memory ? d.blocks.find(size_t((char*)address - d.memory)) : d.blocks.end();
        if (b == d.blocks.end()) continue;
        mapped(d.memory + b->first, b->second - PAGE, PROT_NONE, false);
        d.used -= b->second;
        d.blocks.erase(b);
        return SUCCESS;
    }
    return INVALID_VALUE;
}
Result cuMemHostAlloc(void** p, size_t bytes, unsigned) { return *p = calloc(1, bytes), *p ? SUCCESS : OUT_OF_MEMORY; }
Result cuMemcpyHtoDAsync_v2(Address to, const void* from, size_t bytes, void*) { return copied((void*)to, from, bytes); }
Result cuMemcpyDtoHAsync_v2(void* to, Address from, size_t bytes, void*) { return copied(to, (const void*)from, bytes); }
Result cuMemcpyDtoDAsync_v2(Address to, Address from, size_t bytes, void*) { return copied((void*)to, (const void*)from, bytes); }
Result cuMemcpyPeerAsync(Address to, void*, Address from, void*, size_t bytes, void*) { return copied((void*)to, (const void*)from, bytes); }

// An image is a length and a shared library.
Result cuModuleLoadData(void** module, const void* image) {
    uint64_t bytes;
    memcpy(&bytes, image, sizeof bytes);
    // Each its own name: the loader takes libraries of one name for one.
    char path[] = "/tmp/emulated-gpu-XXXXXX";
    const int file = mkstemp(path);
    const bool written = file >= 0 && write(file, (const char*)image + sizeof bytes, bytes) == ssize_t(bytes);
    *module = written ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : nullptr;
    if (file >= 0) close(file), unlink(path);
    if (!written) return INVALID_IMAGE;
    if (!*module) return fprintf(stderr, "gpu emulator: %s\n", dlerror()), INVALID_IMAGE;
    *(Emulator**)dlsym(*module, "emulator") = shared_with_kernels();
    return SUCCESS;
}
Result cuModuleGetFunction(void** f, void* module, const char* name) {
    *f = dlsym(module, (std::string("call_") + name).c_str());
    return *f ? SUCCESS : NOT_FOUND;
}
Result cuFuncSetAttribute(void*, int, int) { return SUCCESS; }
Result cuLaunchKernel(void* f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned, void*, void** args, void**) {
    if (!gx || !gy || !gz || !bx || !by || !bz) return INVALID_VALUE;
    Open open;
    const char* wrong = run((Kernel)f, {gx, gy, gz}, {bx, by, bz}, args);
    if (!wrong) return SUCCESS;
    Dl_info info;
    fprintf(stderr, "gpu emulator: %s: %s\n", dladdr(f, &info) && info.dli_sname ? info.dli_sname : "a kernel", wrong);
    return LAUNCH_FAILED;
}

static const struct {
    Result code;
    const char *name, *text;
} TEXTS[] = {
    {SUCCESS, "CUDA_SUCCESS", "no error"},
    {INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
};
Result cuGetErrorName(Result code, const char** text) {
    for (const auto& t : TEXTS)
        if (t.code == code) return *text = t.name, SUCCESS;
    return INVALID_VALUE;
}
Result cuGetErrorString(Result code, const char** text) {
    for (const auto& t : TEXTS)
        if (t.code == code) return *text = t.text, SUCCESS;
    return INVALID_VALUE;
}
}
