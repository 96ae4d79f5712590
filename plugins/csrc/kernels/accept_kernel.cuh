/* LossyAccept in one launch: scan, sum up, walk (accept_job.h). Each type of logits has a file of its own. */
#ifndef DRAFTSMITH_ACCEPT_KERNEL_CUH
#define DRAFTSMITH_ACCEPT_KERNEL_CUH

#include "accept_scan.cuh"
#include "accept_summary.cuh"
#include "accept_walk.cuh"

namespace draftsmith {

/* Whether this block is the last of `num_blocks`; the counter is 0 again then. */
__device__ __forceinline__ bool take_ticket(unsigned *counter, unsigned num_blocks, int *shared)
{
    __syncthreads();
    if (num_blocks == 1)
        return true;
    if (threadIdx.x == 0) {
        __threadfence(); /* what the block wrote comes before the ticket, and the others' before what follows */
        const bool is_last = atomicAdd(counter, 1u) == num_blocks - 1;
        if (is_last) {
            *counter = 0;
            __threadfence();
        }
        *shared = is_last;
    }
    __syncthreads();
    return *shared != 0;
}

/* Whether a row's chunks are to be drawn from: not where a sampled child decides. Every thread of the block. */
__device__ __forceinline__ bool draws_shared(const AcceptJob &job, const RowParams &params, int request, int node,
                                             int num_nodes, const int *parents)
{
    if (params.is_greedy || !params.is_shared)
        return false;
    if (!params.is_sampled)
        return true;
    bool is_parent = false;
    const int32_t *const tokens = job.arguments.token_ids + (size_t)request * job.shape.max_nodes;
    for (int m = node + 1 + (int)threadIdx.x; m < num_nodes; m += ACCEPT_THREADS)
        is_parent |= parents[m] == node && tokens[m] >= 0 && tokens[m] < job.shape.num_vocab;
    return !__syncthreads_or(is_parent);
}

/* Grid: B * N * slices. */
template <class T> __global__ void __launch_bounds__(ACCEPT_THREADS, 2)
    lossy_accept(const __grid_constant__ AcceptJob job)
{
    extern __shared__ __align__(16) unsigned char memory[];
    __shared__ BlockScratch scratch;
    __shared__ int ticket;
    __shared__ unsigned known;
    const unsigned row_index = blockIdx.x / job.num_slices, slice = blockIdx.x % job.num_slices;
    const int request = (int)(row_index / job.shape.max_nodes), node = (int)(row_index % job.shape.max_nodes);
    const SliceChunks chunks(job, (int)slice);
    ChunkPart<T> part; /* on its way while the parameters come */
    if (chunks.first < chunks.end)
        part.load(LogitRow<T>(job, row_index), chunks.first);
    const int num_nodes = count_nodes(job, request);
    if (node >= num_nodes)
        return;
    const RowParams params(job, request);
    int *const parents = reinterpret_cast<int *>(memory);
    bool has_noise = false;
    uint64_t noise = 0;
    if (params.is_shared && !params.is_greedy) {
        for (int m = threadIdx.x; m < num_nodes; m += ACCEPT_THREADS)
            parents[m] = job.arguments.parents[(size_t)request * job.shape.max_nodes + m];
        if (threadIdx.x == 0)
            known = 0;
        __syncthreads();
        has_noise = draws_shared(job, params, request, node, num_nodes, parents);
        noise = noise_base(position_key(params.seed, params.position + find_depth(parents, node)));
    }
    const float inverse = 1 / params.temperature;
    const ScanPlan plan = {params.wants_sums(), params.wants_moments(), has_noise && !params.is_truncated, inverse,
                           inverse * 1.44269504088896f, noise};
    scan_slice(job, row_index, chunks, part, plan, &known);
    if (!take_ticket(job.node_tickets + row_index, (unsigned)job.num_slices, &ticket))
        return;
    summarize_node<T>(job, request, row_index, has_noise, noise, *reinterpret_cast<CutShared *>(memory), scratch);
    if (!take_ticket(job.request_tickets + request, (unsigned)num_nodes, &ticket))
        return;
    walk_tree<T>(job, request, memory, scratch);
}

template <class T>
cudaError_t launch_typed(const AcceptJob &job, int num_blocks, size_t shared_bytes, cudaStream_t stream)
{
    if (shared_bytes > 48 * 1024) {
        const cudaError_t error = cudaFuncSetAttribute(lossy_accept<T>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                       (int)shared_bytes);
        if (error != cudaSuccess)
            return error;
    }
    void *arguments[] = {const_cast<AcceptJob *>(&job)};
    return cudaLaunchKernel(lossy_accept<T>, dim3(num_blocks), dim3(ACCEPT_THREADS), arguments, shared_bytes, stream);
}

} // namespace draftsmith

#endif
