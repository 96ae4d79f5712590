/* Which kernels this processor gets. DRAFTSMITH_CPU (generic, avx2, avxvnni, avx512vnni, amx) asks for others: tests. */
#include <cpuid.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "linear_tiles.h"

extern const struct kernels kernels_generic, kernels_avx2, kernels_avxvnni, kernels_avx512vnni;

enum { REQUEST_TILE_PERMISSION = 0x1023, TILE_DATA = 18 };

struct features {
    bool avx2, avxvnni, avx512vnni, amx;
};

static bool bit(unsigned value, int index) { return value >> index & 1; }

/* Registers that the operating system saves (XCR0). */
static unsigned saved_registers(void)
{
    unsigned low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

static struct features find_features(void)
{
    struct features found = {0};
    unsigned a, b, c, d, b7, c7, d7, a71 = 0, unused;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !bit(c, 27) || !__get_cpuid_count(7, 0, &unused, &b7, &c7, &d7))
        return found;
    if (unused >= 1)
        __get_cpuid_count(7, 1, &a71, &unused, &unused, &unused);
    const unsigned saved = saved_registers();
    found.avx2 = (saved & 0x6) == 0x6 && bit(c, 12) && bit(b7, 5);
    found.avxvnni = found.avx2 && bit(a71, 4);
    const bool wide = (saved & 0xe6) == 0xe6 && bit(b7, 16) && bit(b7, 17) && bit(b7, 30) && bit(b7, 31);
    found.avx512vnni = found.avx2 && wide && bit(c7, 11);
    found.amx = found.avx512vnni && (saved & 0x60000) == 0x60000 && bit(d7, 24) && bit(d7, 25) &&
                syscall(SYS_arch_prctl, REQUEST_TILE_PERMISSION, TILE_DATA) == 0;
    return found;
}

const struct kernels *choose_kernels(void)
{
    static struct kernels tiles;
    const struct features found = find_features();
    tiles = kernels_avx512vnni;
    tiles.name = "amx";
    tiles.multiply_panels = multiply_panels_tiles;
    tiles.multiply_vocabulary = multiply_vocabulary_tiles;
    const struct { const struct kernels *table; bool runs; } choices[] = {
        {&tiles, found.amx},
        {&kernels_avx512vnni, found.avx512vnni},
        {&kernels_avxvnni, found.avxvnni},
        {&kernels_avx2, found.avx2},
        {&kernels_generic, true},
    };
    const char *wanted = getenv("DRAFTSMITH_CPU");
    for (size_t i = 0; i < sizeof choices / sizeof *choices; i++)
        if (choices[i].runs && (!wanted || !*wanted || !strcmp(wanted, choices[i].table->name)))
            return choices[i].table;
    return NULL;
}
