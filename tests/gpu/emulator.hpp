// What kernels and the emulated driver share: where a thread is, and what it asks of the others of its block.
#pragma once

struct Dim {
    unsigned x, y, z;
};

struct Emulator {
    Dim thread, block, grid, threads;
    // What lanes of a warp show each other; a warp's are 32 words from its first thread's on.
    unsigned long long shown[1024][2];
    void (*barrier)();             // waits for all threads of the block
    void (*warp)(unsigned mask);   // waits for the lanes of the thread's warp
    void (*copy)(void* to, const void* from, int bytes);   // starts a copy of 16 bytes
    void (*commit)();
    void (*wait)(int groups);
};
