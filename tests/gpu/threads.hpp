#pragma once
#include "emulator.hpp"

// A kernel that takes the addresses of its arguments.
typedef void (*Kernel)(void** args);

// What kernels see of the emulator.
Emulator* shared_with_kernels();

// Runs a grid of blocks; what went wrong, or null.
const char* run(Kernel kernel, Dim grid, Dim block, void** args);
