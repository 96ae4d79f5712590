#include "head_general.h"
#include "status_detail.h"

namespace draftsmith {

namespace {

size_t round_up(size_t value, size_t step) { return (value + step - 1) / step * step; }

/* Hands out parts of the workspace one behind the other. */
class Layout {
  public:
    explicit Layout(void *base) : base_(static_cast<char *>(base)) {}

    template <class T> void take(T *&part, size_t count)
    {
        part = reinterpret_cast<T *>(base_ ? base_ + num_bytes_ : nullptr);
        num_bytes_ += round_up(count * sizeof(T), DRAFTSMITH_WORKSPACE_ALIGNMENT);
    }

    size_t num_bytes() const { return num_bytes_; }

  private:
    char *base_;
    size_t num_bytes_ = 0;
};

} // namespace

GeneralWorkspace lay_out_general(const draftsmith_head_shape &shape, void *base)
{
    GeneralWorkspace part{};
    part.num_ranked = num_ranked(shape);
    part.num_kept = num_kept(shape);
    part.num_slices = (part.num_ranked + SLICE - 1) / SLICE;
    part.key_stride = part.num_slices * SLICE;
    const size_t num_rows = shape.num_rows, num_slices = part.num_slices, num_items = num_slices * SLICE;
    const size_t most_entries = num_rows * part.num_kept, num_all = part.num_ranked;
    part.max_slots = round_up((most_entries < num_all ? most_entries : num_all) * shape.group_size, 64);
    Layout layout(base);
    layout.take(part.num_done, 2 * num_rows + 1);
    layout.take(part.rows, num_rows);
    layout.take(part.projected, num_rows * shape.rank);
    layout.take(part.keys, num_rows * num_items);
    layout.take(part.upper_counts, num_rows * num_slices * NUM_BINS);
    layout.take(part.lower_counts, num_rows * num_slices * NUM_BINS);
    layout.take(part.ties_below, num_rows * num_slices);
    layout.take(part.entry_items, num_items);
    layout.take(part.entry_masks, num_items);
    layout.take(part.slice_counts, num_slices);
    layout.take(part.slice_starts, num_slices + 1);
    layout.take(part.slot_tokens, part.max_slots);
    layout.take(part.slot_masks, part.max_slots);
    layout.take(part.slot_logits, num_rows * part.max_slots);
    part.num_bytes = layout.num_bytes();
    return part;
}

size_t general_workspace_bytes(const draftsmith_head_shape &shape, const Device &)
{
    return lay_out_general(shape, nullptr).num_bytes;
}

draftsmith_status general_launch(const draftsmith_head_shape &shape, const draftsmith_head_arguments &arguments,
                                 const Device &device, cudaStream_t stream)
{
    const GeneralJob job = {shape, arguments, lay_out_general(shape, arguments.workspace), device, stream};
    launch_projection(job);
    launch_ranking(job);
    launch_counting(job);
    launch_refinement(job);
    launch_compaction(job);
    if (arguments.chosen_ids)
        launch_chosen_listing(job);
    launch_logits(job);
    launch_outputs(job);
    const cudaError_t error = cudaGetLastError();
    if (error != cudaSuccess)
        return fail(DRAFTSMITH_CUDA_ERROR, "general path: launch failed: %s", cudaGetErrorString(error));
    return DRAFTSMITH_OK;
}

} // namespace draftsmith
