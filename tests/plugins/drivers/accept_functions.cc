/* The device functions of LossyAccept that need no device: each line of stdin names one and its arguments; its results are
 * a line of stdout. */
#include <cinttypes>
#include <cstdio>
#include <cstring>

#include "accept_rules.cuh"

using namespace draftsmith;

int main()
{
    char name[32];
    while (std::scanf("%31s", name) == 1) {
        uint64_t seed;
        int64_t position;
        float a, b, c, d;
        int n;
        if (!std::strcmp(name, "key") && std::scanf("%" SCNu64 " %" SCNd64, &seed, &position) == 2)
            std::printf("%" PRIu64 "\n", position_key(seed, (uint64_t)position));
        else if (!std::strcmp(name, "uniform") && std::scanf("%" SCNu64 " %d", &seed, &n) == 2)
            std::printf("%.17g\n", position_uniform(seed, (RandomStream)n));
        else if (!std::strcmp(name, "noise") && std::scanf("%" SCNu64 " %d", &seed, &n) == 2)
            std::printf("%.9g\n", gumbel_noise(noise_base(seed), n));
        else if (!std::strcmp(name, "price") && std::scanf("%f %f %f", &a, &b, &c) == 3)
            std::printf("%.9g\n", price_rise(a, b, c));
        else if (!std::strcmp(name, "divergence") && std::scanf("%f %f %f", &a, &b, &c) == 3)
            std::printf("%.9g\n", raised_divergence(a, b, c));
        else if (!std::strcmp(name, "recovery") && std::scanf("%d %f", &n, &a) == 2)
            std::printf("%d\n", advance_recovery(n, a != 0));
        else if (!std::strcmp(name, "relax") && std::scanf("%d %f %f %f %f", &n, &a, &b, &c, &d) == 5) {
            const Strength strength = relax({n, a, b, c}, d);
            std::printf("%d %.9g %.9g\n", strength.rule, strength.first, strength.second);
        } else {
            return 1;
        }
    }
    return 0;
}
