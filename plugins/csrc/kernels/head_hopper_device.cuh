/* Of SM 9.0 and later: bulk copies that complete on a barrier in shared memory, and barriers of the whole grid. */
#ifndef DRAFTSMITH_HEAD_HOPPER_DEVICE_CUH
#define DRAFTSMITH_HEAD_HOPPER_DEVICE_CUH

#include "head_hopper.h"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

namespace draftsmith {

__device__ __forceinline__ uint32_t shared_address(const void *pointer)
{
    return (uint32_t)__cvta_generic_to_shared(pointer);
}

/* A build that is being developed stops instead of hanging. */
struct Patience {
#ifdef DRAFTSMITH_HEAD_BOUNDED
    unsigned left = 1u << 22;
    __device__ __forceinline__ void spend()
    {
        if (--left == 0)
            __trap();
    }
#else
    __device__ __forceinline__ void spend() {}
#endif
};

__device__ __forceinline__ void init_copy_barrier(uint32_t barrier)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barrier) : "memory");
}

__device__ __forceinline__ void publish_copy_barriers()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void expect_bytes(uint32_t barrier, int num_bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(num_bytes) : "memory");
}

__device__ __forceinline__ void wait_for_copies(uint32_t barrier, int phase)
{
    Patience patience;
    uint32_t is_done;
    do {
        asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                     : "=r"(is_done)
                     : "r"(barrier), "r"(phase)
                     : "memory");
        patience.spend();
    } while (!is_done);
}

/* What is read once should leave the cache first. */
__device__ __forceinline__ uint64_t read_once_policy()
{
    uint64_t policy;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

/* All 16-byte aligned, as is num_bytes. */
__device__ __forceinline__ void copy_once(uint32_t target, const void *source, int num_bytes, uint32_t barrier,
                                          uint64_t policy)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
                 "[%0], [%1], %2, [%3], %4;" ::"r"(target),
                 "l"(source), "r"(num_bytes), "r"(barrier), "l"(policy)
                 : "memory");
}

__device__ __forceinline__ void copy_bulk(uint32_t target, const void *source, int num_bytes, uint32_t barrier)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1], %2, [%3];" ::"r"(target),
                 "l"(source), "r"(num_bytes), "r"(barrier)
                 : "memory");
}

/* For readers that wait for the copies beside it; a later copy may take its place. */
__device__ __forceinline__ void store_eight(uint32_t target, uint2 value)
{
    asm volatile("st.shared.v2.u32 [%0], {%1, %2};\nfence.proxy.async.shared::cta;" ::"r"(target), "r"(value.x),
                 "r"(value.y)
                 : "memory");
}

__device__ __forceinline__ void count_up(unsigned *counter)
{
    asm volatile("red.relaxed.gpu.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
}

__device__ __forceinline__ void raise_to(unsigned *word, unsigned value)
{
    asm volatile("red.relaxed.gpu.global.max.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory");
}

__device__ __forceinline__ unsigned *arrival_word(const FusedJob &job, Arrival which)
{
    return job.workspace.arrivals + (int)which * ARRIVAL_STRIDE;
}

/* By one thread, after a barrier of its block (or warp) behind what it publishes. */
__device__ __forceinline__ void arrive(const FusedJob &job, Arrival which)
{
    asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(arrival_word(job, which)) : "memory");
}

/* By one thread; a barrier of its block follows. */
__device__ __forceinline__ void wait_for_all(const FusedJob &job, Arrival which)
{
    Patience patience;
    unsigned num_arrived;
    do {
        asm volatile("ld.acquire.gpu.global.u32 %0, [%1];"
                     : "=r"(num_arrived)
                     : "l"(arrival_word(job, which))
                     : "memory");
        patience.spend();
    } while (num_arrived < gridDim.x);
}

/* By all threads of all blocks. */
__device__ __forceinline__ void meet_all(const FusedJob &job, Arrival which)
{
    __syncthreads();
    if (threadIdx.x == 0) {
        arrive(job, which);
        wait_for_all(job, which);
    }
    __syncthreads();
}

enum class Moment {
    START,
    PROJECTED,
    MET,
    LOADED,
    FIRST_TILE,
    SAMPLED,
    STREAMED,
    ARRIVED,
    GUESSED,
    COUNTED,
    FOUND,
    LISTED,
    GATHERED,
    DONE,
    MERGING,
    END
};

__device__ __forceinline__ void note_time(const FusedJob &job, Moment moment)
{
#ifdef DRAFTSMITH_HEAD_TIMES
    if (threadIdx.x == 0) {
        uint64_t time;
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(time)::"memory");
        job.workspace.times[blockIdx.x * 16 + (int)moment] = time;
    }
#endif
}

} // namespace draftsmith

#endif

#endif
