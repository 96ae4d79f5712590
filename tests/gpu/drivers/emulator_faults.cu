/* Kernels with a fault each, and one with none, for the emulator to be tested by: the argument names one. */
#include <cstdio>
#include <cstring>

#include <cuda_runtime.h>

namespace {

enum Fault { NONE, NO_BARRIER, BARRIER_OF_FEW, EXCHANGE_OF_FEW, TWO_EXCHANGES, UNWRITTEN };
const char *const NAMES[] = {"none", "no_barrier", "barrier_of_few", "exchange_of_few", "two_exchanges", "unwritten"};
enum { THREADS = 64 };

struct Job {
    Fault fault;
    int *sums;
};

} // namespace

namespace draftsmith {

/* The sum of the threads' numbers, and of their neighbours', by block. */
__global__ void __launch_bounds__(THREADS) sum_up(const __grid_constant__ Job job)
{
    extern __shared__ __align__(16) unsigned char memory[];
    int *const numbers = reinterpret_cast<int *>(memory);
    const int thread = (int)threadIdx.x;
    if (job.fault != UNWRITTEN)
        numbers[thread] = thread;
    if (job.fault != NO_BARRIER && (job.fault != BARRIER_OF_FEW || thread != 3))
        __syncthreads();
    int sum = numbers[(thread + 1) % THREADS];
    if (job.fault == EXCHANGE_OF_FEW && thread == 3)
        return;
    for (int step = 1; step < 32; step *= 2)
        sum += job.fault == TWO_EXCHANGES && thread == 3 ? __shfl_sync(0xffffffffu, sum, thread ^ step)
                                                         : __shfl_xor_sync(0xffffffffu, sum, step);
    if (thread % 32 == 0)
        atomicAdd(reinterpret_cast<unsigned *>(job.sums + blockIdx.x), (unsigned)sum);
}

} // namespace draftsmith

int main(int argc, char **argv)
{
    int sums[2] = {};
    Job job = {NONE, sums};
    for (int i = 0; i < (int)(sizeof NAMES / sizeof *NAMES); i++)
        if (argc == 2 && !std::strcmp(argv[1], NAMES[i]))
            job.fault = (Fault)i;
    void *arguments[] = {&job};
    cudaLaunchKernel(draftsmith::sum_up, dim3(2), dim3(THREADS), arguments, THREADS * sizeof(int), nullptr);
    std::printf("%d %d\n", sums[0], sums[1]);
    return 0;
}
