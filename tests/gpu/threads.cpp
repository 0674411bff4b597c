// Blocks of threads, one at a time: threads are contexts of one processor's thread that give up their turn where they wait.
#include "threads.hpp"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <setjmp.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <vector>

namespace {
constexpr size_t STACK = 256 << 10;
constexpr unsigned MOST = 1024;

enum class State { Ready, AtWarp, AtBarrier, Done };

struct Copy {
    char* to;
    const char* from;
    int bytes;
};

struct Thread {
    jmp_buf here;
    bool begun = false;
    State state = State::Done;
    std::vector<std::vector<Copy>> groups;   // copies that were committed, and last those that were not
};

Emulator emulator;
Thread threads[MOST];
ucontext_t contexts[MOST], scheduler_context;
jmp_buf scheduler;
unsigned running;
Kernel kernel;
void** arguments;
bool shuffled;
uint64_t dice = 1;

uint64_t roll() {
    dice ^= dice << 13, dice ^= dice >> 7, dice ^= dice << 17;
    return dice;
}

void give_up(State why) {
    Thread& t = threads[running];
    t.state = why;
    if (!_setjmp(t.here)) _longjmp(scheduler, 1);
}

void body() {
    for (;;) {
        kernel(arguments);
        give_up(State::Done);
    }
}

void resume(unsigned k) {
    running = k;
    emulator.thread = {k % emulator.threads.x, k / emulator.threads.x, 0};
    Thread& t = threads[k];
    t.state = State::Ready;
    if (_setjmp(scheduler)) return;
    if (t.begun) _longjmp(t.here, 1);
    t.begun = true;
    ucontext_t& c = contexts[k];
    getcontext(&c);
    void* stack = mmap(nullptr, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stack == MAP_FAILED) abort();
    c.uc_stack.ss_sp = stack;
    c.uc_stack.ss_size = STACK;
    c.uc_link = nullptr;
    makecontext(&c, body, 0);
    swapcontext(&scheduler_context, &c);
}

void barrier() { give_up(State::AtBarrier); }

void warp(unsigned mask) {
    if (mask != ~0u) {
        fprintf(stderr, "gpu emulator: a part of a warp waits for itself, which is not emulated\n");
        abort();
    }
    give_up(State::AtWarp);
}

void bring(const Copy& c) {
    memcpy(c.to, c.from, size_t(c.bytes));
    memset(c.to + c.bytes, 0, size_t(16 - c.bytes));
}

std::vector<std::vector<Copy>>& groups() {
    auto& all = threads[running].groups;
    if (all.empty()) all.emplace_back();
    return all;
}

void copy(void* to, const void* from, int bytes) { groups().back().push_back({(char*)to, (const char*)from, bytes}); }
void commit() { groups().emplace_back(); }

// Copies arrive as late as they may, so that whoever reads before waiting sees what was there before.
void wait(int left) {
    auto& all = groups();
    while (all.size() > size_t(left) + 1) {
        for (const Copy& c : all.front()) bring(c);
        all.erase(all.begin());
    }
}

// Runs each thread of a list that may go on, in order or not.
void turn(const unsigned* list, unsigned n) {
    unsigned order[MOST];
    memcpy(order, list, n * sizeof *list);
    if (shuffled)
        for (unsigned k = n; k > 1; k--) {
            const unsigned other = unsigned(roll() % k), kept = order[k - 1];
            order[k - 1] = order[other];
            order[other] = kept;
        }
    for (unsigned k = 0; k < n; k++) resume(order[k]);
}

const char* block(unsigned n) {
    unsigned list[MOST], counts[4];
    for (unsigned k = 0; k < n; k++) list[k] = k, threads[k].state = State::Ready, threads[k].groups.clear();
    turn(list, n);
    for (;;) {
        // Warps go on alone until all of their lanes are done or wait for the block.
        bool moved = false;
        unsigned waiting = 0;
        for (unsigned first = 0; first < n; first += 32) {
            const unsigned lanes = n - first < 32 ? n - first : 32;
            for (;;) {
                memset(counts, 0, sizeof counts);
                for (unsigned k = 0; k < lanes; k++) counts[unsigned(threads[first + k].state)]++;
                if (!counts[unsigned(State::AtWarp)]) break;
                if (counts[unsigned(State::AtWarp)] != lanes) return "lanes of a warp wait in different places";
                turn(list + first, lanes);
                moved = true;
            }
            waiting += counts[unsigned(State::AtBarrier)];
        }
        if (waiting) {
            // Threads that have ended are not waited for.
            unsigned go[MOST], many = 0;
            for (unsigned k = 0; k < n; k++)
                if (threads[k].state == State::AtBarrier) go[many++] = k;
            turn(go, many);
        } else if (!moved) {
            for (unsigned k = 0; k < n; k++)
                for (const auto& group : threads[k].groups)
                    if (!group.empty()) return "a thread ends before its copies have arrived";
            return nullptr;
        }
    }
}
}   // namespace

Emulator* shared_with_kernels() {
    emulator.barrier = barrier;
    emulator.warp = warp;
    emulator.copy = copy;
    emulator.commit = commit;
    emulator.wait = wait;
    return &emulator;
}

const char* run(Kernel f, Dim grid, Dim block_size, void** args) {
    const unsigned n = block_size.x * block_size.y * block_size.z;
    if (n > MOST || block_size.z != 1 || grid.z != 1) return "more threads or dimensions than there are";
    const char* order = getenv("EMULATED_ORDER");
    shuffled = order && !strcmp(order, "random");
    kernel = f;
    arguments = args;
    emulator.grid = grid;
    emulator.threads = block_size;
    const uint64_t blocks = uint64_t(grid.x) * grid.y;
    for (uint64_t b = 0; b < blocks; b++) {
        // Blocks have no order either: the last comes first.
        const uint64_t now = shuffled ? blocks - 1 - b : b;
        emulator.block = {unsigned(now % grid.x), unsigned(now / grid.x), 0};
        if (const char* wrong = block(n)) return wrong;
    }
    return nullptr;
}
