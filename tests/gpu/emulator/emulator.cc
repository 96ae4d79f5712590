/* Runs a kernel's blocks one after another, the threads of a block as fibers in a ring. A fiber runs until it waits for
 * others; DRAFTSMITH_EMULATOR_ORDER=backward turns the ring around, and the blocks' order: a result that a missing
 * barrier leaves to chance differs then. With DRAFTSMITH_EMULATOR_TSAN, ThreadSanitizer takes each fiber for a thread,
 * and only barriers and atomics order them: it finds races within a block, in shared and in global memory. This file
 * itself is compiled without it. One launch at a time. */
#include "cuda_runtime.h"

#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <sys/mman.h>
#include <ucontext.h>

#if defined(DRAFTSMITH_EMULATOR_TSAN)
#include <sanitizer/tsan_interface.h>
#endif

namespace draftsmith {
/* Dynamic shared memory, by the name that the kernel gives it. */
alignas(16) thread_local unsigned char memory[227 * 1024];
} // namespace draftsmith

namespace emulator {

Index thread_index, block_index, block_size;

namespace {

enum { WARP = 32, STACK_BYTES = 256 * 1024, UNWRITTEN = 0xA5 };

/* Something that runs on a stack of its own. */
struct Place {
    ucontext_t context;
#if defined(DRAFTSMITH_EMULATOR_TSAN)
    void *seen;
#else
    std::jmp_buf buffer;
    bool is_begun;
#endif
};

#if defined(DRAFTSMITH_EMULATOR_TSAN)
void begin(Place &place) { place.seen = __tsan_create_fiber(0); }
void end(Place &place) { __tsan_destroy_fiber(place.seen); }
void become(Place &place) { place.seen = __tsan_get_current_fiber(); }
void publish(char &what) { __tsan_release(&what); }
void observe(char &what) { __tsan_acquire(&what); }

void change(Place &from, Place &to)
{
    __tsan_switch_to_fiber(to.seen, __tsan_switch_to_fiber_no_sync);
    swapcontext(&from.context, &to.context);
}
#else
void begin(Place &place) { place.is_begun = false; }
void end(Place &) {}
void become(Place &place) { place.is_begun = true; }
void publish(char &) {}
void observe(char &) {}

/* Without the system calls of swapcontext. */
void change(Place &from, Place &to)
{
    if (_setjmp(from.buffer))
        return;
    if (to.is_begun)
        _longjmp(to.buffer, 1);
    to.is_begun = true;
    setcontext(&to.context);
}
#endif

/* Where threads wait for each other; `round` counts how often all have come. */
struct Meeting {
    unsigned num_here = 0, round = 0;
};

/* What lanes bring is kept for an even and an odd round: one of them may be a round ahead. */
struct Warp {
    Meeting meeting;
    Exchange kind = SHUFFLE;
    uint64_t words[2][WARP] = {};
};

struct Fiber {
    Place place;
    void *stack;
    bool is_done;
};

[[noreturn]] void fail(const char *what)
{
    std::fprintf(stderr, "emulator: block %u, thread %u: %s\n", block_index.x, thread_index.x, what);
    std::abort();
}

class Block {
  public:
    Block(unsigned size, bool is_backward, const std::function<void()> &thread);
    ~Block();

    void run();
    bool meet(bool value);
    const uint64_t *exchange(Exchange kind, uint64_t word);

  private:
    static void live();
    void go_on();
    void wait(Meeting &meeting, unsigned num_wanted);

    std::vector<Fiber> fibers_;
    std::vector<Warp> warps_;
    const std::function<void()> &thread_;
    const bool is_backward_;
    Place host_;
    Meeting barrier_;
    bool votes_[2] = {};
    /* By their addresses, ThreadSanitizer knows what orders what; a thread may meet again before another has left. */
    char begun_ = 0, met_[2] = {}, ended_ = 0;
    unsigned num_left_ = 0, num_idle_ = 0;
};

Block *current;

Block::Block(unsigned size, bool is_backward, const std::function<void()> &thread)
    : fibers_(size), warps_(size / WARP), thread_(thread), is_backward_(is_backward)
{
    become(host_);
    for (Fiber &fiber : fibers_) {
        fiber.is_done = true;
        fiber.stack = mmap(nullptr, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (fiber.stack == MAP_FAILED || getcontext(&fiber.place.context))
            fail("no memory for a thread's stack");
        fiber.place.context.uc_stack.ss_sp = fiber.stack;
        fiber.place.context.uc_stack.ss_size = STACK_BYTES;
        fiber.place.context.uc_link = nullptr;
        makecontext(&fiber.place.context, &Block::live, 0);
        begin(fiber.place);
    }
}

Block::~Block()
{
    for (Fiber &fiber : fibers_) {
        end(fiber.place);
        munmap(fiber.stack, STACK_BYTES);
    }
}

/* A fiber's whole life: one thread of each block. */
void Block::live()
{
    for (;;) {
        Fiber &fiber = current->fibers_[thread_index.x];
        observe(current->begun_);
        current->thread_();
        publish(current->ended_);
        fiber.is_done = true;
        current->num_idle_ = 0;
        if (--current->num_left_ > 0)
            current->go_on();
        else
            change(fiber.place, current->host_);
    }
}

void Block::run()
{
    current = this;
    num_left_ = (unsigned)fibers_.size();
    for (Fiber &fiber : fibers_)
        fiber.is_done = false;
    thread_index.x = is_backward_ ? num_left_ - 1 : 0;
    publish(begun_);
    change(host_, fibers_[thread_index.x].place);
    observe(ended_);
}

/* Hands over to the next thread that is not done; returns when this one's turn comes again. */
void Block::go_on()
{
    const unsigned size = (unsigned)fibers_.size(), self = thread_index.x;
    if (++num_idle_ > 2 * size)
        fail("waits for threads that never come");
    unsigned next = self;
    do
        next = (next + (is_backward_ ? size - 1 : 1)) % size;
    while (fibers_[next].is_done);
    if (next == self)
        return;
    thread_index.x = next;
    change(fibers_[self].place, fibers_[next].place);
}

void Block::wait(Meeting &meeting, unsigned num_wanted)
{
    const unsigned round = meeting.round;
    if (++meeting.num_here == num_wanted) {
        meeting.num_here = num_idle_ = 0;
        meeting.round++;
        return;
    }
    while (meeting.round == round)
        go_on();
}

bool Block::meet(bool value)
{
    const unsigned round = barrier_.round;
    if (barrier_.num_here == 0)
        votes_[round % 2] = false;
    votes_[round % 2] |= value;
    publish(met_[round % 2]);
    wait(barrier_, (unsigned)fibers_.size());
    observe(met_[round % 2]);
    return votes_[round % 2];
}

const uint64_t *Block::exchange(Exchange kind, uint64_t word)
{
    Warp &warp = warps_[thread_index.x / WARP];
    uint64_t *const words = warp.words[warp.meeting.round % 2];
    if (warp.meeting.num_here == 0)
        warp.kind = kind;
    else if (warp.kind != kind)
        fail("exchanges otherwise than its warp's other lanes");
    words[thread_index.x % WARP] = word;
    wait(warp.meeting, WARP);
    return words;
}

} // namespace

void launch(unsigned num_blocks, unsigned size, size_t shared_bytes, const std::function<void()> &thread)
{
    const char *const order = std::getenv("DRAFTSMITH_EMULATOR_ORDER");
    const bool is_backward = order && !std::strcmp(order, "backward");
    if (shared_bytes > sizeof draftsmith::memory || size % WARP != 0)
        fail("no such block fits");
    block_size.x = size;
    Block block(size, is_backward, thread);
    for (unsigned i = 0; i < num_blocks; i++) {
        block_index.x = is_backward ? num_blocks - 1 - i : i;
        std::memset(draftsmith::memory, UNWRITTEN, shared_bytes);
        block.run();
    }
}

bool meet(bool value) { return current->meet(value); }

const uint64_t *exchange(Exchange kind, uint64_t word) { return current->exchange(kind, word); }

} // namespace emulator

cudaError_t cudaGetDevice(int *device)
{
    *device = 0;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int)
{
    switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor: *value = 9; break;
    case cudaDevAttrComputeCapabilityMinor: *value = 0; break;
    case cudaDevAttrMultiProcessorCount: *value = 132; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = sizeof draftsmith::memory; break;
    }
    return cudaSuccess;
}
