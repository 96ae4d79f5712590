/* Checks of LossyAccept's parameters, its workspace, and its launch. */
#include "accept_job.h"
#include "launch_checks.h"
#include "status_detail.h"

using namespace draftsmith;

namespace {

enum { WORKSPACE_ALIGNMENT = 256, BLOCKS_A_MULTIPROCESSOR = 2 };

draftsmith_status check_type(int32_t type, const Device &device)
{
    if (type != DRAFTSMITH_FLOAT16 && type != DRAFTSMITH_BFLOAT16 && type != DRAFTSMITH_FLOAT32)
        return fail(DRAFTSMITH_UNSUPPORTED_TYPE,
                    "logits_type: expected float16 (0), bfloat16 (1) or float32 (4), found %d", type);
    if (device.major * 10 + device.minor < 75)
        return fail(DRAFTSMITH_UNSUPPORTED_DEVICE, "device: expected compute capability 7.5 or later, found %d.%d",
                    device.major, device.minor);
    if (type == DRAFTSMITH_BFLOAT16 && device.major < 8)
        return fail(DRAFTSMITH_UNSUPPORTED_DEVICE,
                    "logits_type: bfloat16 needs compute capability 8.0 or later, found %d.%d", device.major,
                    device.minor);
    return DRAFTSMITH_OK;
}

draftsmith_status check_shape(const draftsmith_accept_shape *shape, Device &device)
{
    if (!shape)
        return fail(DRAFTSMITH_NULL_POINTER, "shape: expected a pointer, found null");
    if (const draftsmith_status status = find_device(device))
        return status;
    if (const draftsmith_status status = check_type(shape->logits_type, device))
        return status;
    const struct {
        const char *name;
        int value, least, most;
    } sizes[] = {{"num_requests", shape->num_requests, 1, DRAFTSMITH_ACCEPT_MAX_REQUESTS},
                 {"max_nodes", shape->max_nodes, 1, DRAFTSMITH_ACCEPT_MAX_NODES},
                 {"num_vocab", shape->num_vocab, 1, DRAFTSMITH_ACCEPT_MAX_VOCAB},
                 {"num_candidates", shape->num_candidates, 0, DRAFTSMITH_ACCEPT_MAX_CANDIDATES}};
    for (const auto &size : sizes)
        if (const draftsmith_status status = check_range(size.name, size.value, size.least, size.most))
            return status;
    if (shape->clean_counters != 0 && shape->clean_counters != 1)
        return fail(DRAFTSMITH_INVALID_PARAMETER, "clean_counters: expected 0 or 1, found %d", shape->clean_counters);
    const size_t shared_bytes = accept_shared_bytes(shape->num_candidates);
    if (shared_bytes > (size_t)device.max_shared_bytes)
        return fail(DRAFTSMITH_UNSUPPORTED_DEVICE,
                    "device: expected %zu bytes of shared memory a block for %d candidates, found %d", shared_bytes,
                    shape->num_candidates, device.max_shared_bytes);
    return DRAFTSMITH_OK;
}

/* Hands out parts of the workspace one behind the other. */
class Layout {
  public:
    explicit Layout(void *base) : base_(static_cast<char *>(base)) {}

    template <class T> void take(T *&part, size_t count)
    {
        part = reinterpret_cast<T *>(base_ ? base_ + num_bytes_ : nullptr);
        num_bytes_ += (count * sizeof(T) + WORKSPACE_ALIGNMENT - 1) / WORKSPACE_ALIGNMENT * WORKSPACE_ALIGNMENT;
    }

    size_t num_bytes() const { return num_bytes_; }

  private:
    char *base_;
    size_t num_bytes_ = 0;
};

/* Chunks of a slice, so that all blocks are done soonest: as a block takes about as long to begin and end as its warps
 * take for two chunks each, and BLOCKS_A_MULTIPROCESSOR run at a time. */
int plan_slices(int num_chunks, size_t num_rows, const Device &device)
{
    const size_t slots = (size_t)BLOCKS_A_MULTIPROCESSOR * device.num_multiprocessors;
    const int most_rounds = (num_chunks + ACCEPT_WARPS - 1) / ACCEPT_WARPS;
    int best = most_rounds;
    size_t least = SIZE_MAX;
    for (int rounds = most_rounds; rounds > 0; rounds--) {
        const size_t slices = (num_chunks + rounds * ACCEPT_WARPS - 1) / (rounds * ACCEPT_WARPS);
        const size_t cost = (num_rows * slices + slots - 1) / slots * (rounds + 2);
        if (cost < least) {
            least = cost;
            best = rounds;
        }
    }
    return best * ACCEPT_WARPS;
}

AcceptJob lay_out(const draftsmith_accept_shape &shape, const Device &device, void *base)
{
    AcceptJob job{};
    job.shape = shape;
    const size_t num_requests = shape.num_requests, num_rows = num_requests * shape.max_nodes;
    const int most_shift = shape.logits_type == DRAFTSMITH_FLOAT32 ? 3 : 7;
    job.num_chunks = (shape.num_vocab + most_shift + CHUNK - 1) / CHUNK;
    job.chunks_a_slice = plan_slices(job.num_chunks, num_rows, device);
    job.num_slices = (job.num_chunks + job.chunks_a_slice - 1) / job.chunks_a_slice;
    Layout layout(base);
    layout.take(job.node_tickets, num_rows);
    layout.take(job.request_tickets, num_requests);
    job.counter_bytes = layout.num_bytes();
    layout.take(job.chunks, num_rows * job.num_chunks);
    layout.take(job.noisy_ids, num_rows * job.num_chunks);
    layout.take(job.nodes, num_rows);
    layout.take(job.draw_sums, num_requests * job.num_chunks);
    job.num_bytes = layout.num_bytes();
    return job;
}

draftsmith_status check_arguments(const draftsmith_accept_shape &shape, const draftsmith_accept_arguments *arguments,
                                  size_t num_bytes)
{
    if (!arguments)
        return fail(DRAFTSMITH_NULL_POINTER, "arguments: expected a pointer, found null");
    const bool has_candidates = shape.num_candidates > 0;
    const uint32_t logit_bytes = shape.logits_type == DRAFTSMITH_FLOAT32 ? 4 : 2;
    const PointerCheck pointers[] = {{"logits", arguments->logits, true, logit_bytes},
                                     {"parents", arguments->parents, true, 4},
                                     {"token_ids", arguments->token_ids, true, 4},
                                     {"num_nodes", arguments->num_nodes, true, 4},
                                     {"candidate_ids", arguments->candidate_ids, has_candidates, 4},
                                     {"candidate_log_probs", arguments->candidate_log_probs, has_candidates, 4},
                                     {"row_floats", arguments->row_floats, true, 4},
                                     {"row_ints", arguments->row_ints, true, 4},
                                     {"row_keys", arguments->row_keys, true, 8},
                                     {"relaxation", arguments->relaxation, false, 4},
                                     {"accepted_nodes", arguments->accepted_nodes, true, 4},
                                     {"accepted_length", arguments->accepted_length, true, 4},
                                     {"bonus_token", arguments->bonus_token, true, 4},
                                     {"divergence", arguments->divergence, true, 4},
                                     {"regret_nats", arguments->regret_nats, true, 4},
                                     {"flags", arguments->flags, true, 4},
                                     {"recovery_state", arguments->recovery_state, true, 4},
                                     {"workspace", arguments->workspace, true, WORKSPACE_ALIGNMENT}};
    if (const draftsmith_status status = check_pointers(pointers))
        return status;
    return check_workspace(num_bytes, arguments->workspace_bytes);
}

} // namespace

extern "C" {

draftsmith_status draftsmith_accept_workspace_bytes(const draftsmith_accept_shape *shape, size_t *num_bytes,
                                                    size_t *counter_bytes)
{
    Device device;
    if (const draftsmith_status status = check_shape(shape, device))
        return status;
    if (!num_bytes)
        return fail(DRAFTSMITH_NULL_POINTER, "num_bytes: expected a pointer, found null");
    const AcceptJob job = lay_out(*shape, device, nullptr);
    *num_bytes = job.num_bytes;
    if (counter_bytes)
        *counter_bytes = job.counter_bytes;
    return DRAFTSMITH_OK;
}

draftsmith_status draftsmith_accept_launch(const draftsmith_accept_shape *shape,
                                           const draftsmith_accept_arguments *arguments, void *stream)
{
    Device device;
    if (const draftsmith_status status = check_shape(shape, device))
        return status;
    const size_t needed = lay_out(*shape, device, nullptr).num_bytes;
    if (const draftsmith_status status = check_arguments(*shape, arguments, needed))
        return status;
    AcceptJob job = lay_out(*shape, device, arguments->workspace);
    job.arguments = *arguments;
    const cudaStream_t queue = static_cast<cudaStream_t>(stream);
    cudaError_t error = cudaSuccess;
    if (!shape->clean_counters)
        error = cudaMemsetAsync(arguments->workspace, 0, job.counter_bytes, queue);
    const int num_blocks = shape->num_requests * shape->max_nodes * job.num_slices;
    const auto launch = shape->logits_type == DRAFTSMITH_FLOAT16    ? launch_accept_half
                        : shape->logits_type == DRAFTSMITH_BFLOAT16 ? launch_accept_bfloat16
                                                                    : launch_accept_float;
    if (error == cudaSuccess)
        error = launch(job, num_blocks, accept_shared_bytes(shape->num_candidates), queue);
    if (error != cudaSuccess)
        return fail(DRAFTSMITH_CUDA_ERROR, "accept: launch failed: %s", cudaGetErrorString(error));
    return DRAFTSMITH_OK;
}

} // extern "C"
