/* Products of arrays of long integers, their conversion from and to bytes. Sources, layout, bounds
 * and the statement on time are in ifma.h. Numbers come in groups of eight. Nothing is
 * checked here: lanes.py and modular.py keep to the lengths and bounds, and align every array to 64
 * bytes.
 */
#include "ifma.h"

#include <string.h>

/* Whether processor and operating system (its saving of the 512-bit registers, which the compiler's
 * library reads from XCR0) can run what is marked IFMA. */
__attribute__((visibility("default"))) int secagg_ifma_supported(void)
{
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512ifma");
}

/* Which sources this was compiled from; see setup.py. */
__attribute__((visibility("default"))) uint64_t secagg_ifma_sources(void) { return SECAGG_SOURCES; }

/* x[groups][n] = numbers of `size` little-endian bytes; lanes past `count` are zero. */
EXPORT void secagg_ifma_load(vec *x, size_t n, const uint8_t *bytes, size_t size, size_t count)
{
    uint64_t *digits = (uint64_t *)x;
    size_t groups = (count + LANES - 1) / LANES;
    memset(x, 0, groups * n * sizeof(vec));
    for (size_t i = 0; i < count; i++) {
        uint64_t *lane = digits + (i / LANES) * n * LANES + i % LANES;
        const uint8_t *number = bytes + i * size;
        for (size_t j = 0; j < n; j++) {
            size_t bit = j * DIGIT_BITS, first = bit / 8;
            uint64_t window = 0; /* bits beyond the number are zero */
            if (first < size)
                memcpy(&window, number + first, size - first < 8 ? size - first : 8);
            lane[j * LANES] = window >> bit % 8 & ((1ULL << DIGIT_BITS) - 1);
        }
    }
}

/* bytes = the first `count` numbers of x[groups][n], whole digits, as `size` little-endian bytes. */
EXPORT void secagg_ifma_store(uint8_t *bytes, size_t size, size_t count, const vec *x, size_t n)
{
    const uint64_t *digits = (const uint64_t *)x;
    for (size_t i = 0; i < count; i++) {
        const uint64_t *lane = digits + (i / LANES) * n * LANES + i % LANES;
        uint8_t *number = bytes + i * size;
        uint64_t pending = 0;
        size_t have = 0, at = 0; /* bits in `pending`, bytes written */
        for (size_t j = 0; j < n; j++) {
            pending |= lane[j * LANES] << have; /* have is 0 or 4: 56 bits at most */
            have += DIGIT_BITS;
            for (; have >= 8; have -= 8, pending >>= 8)
                if (at < size)
                    number[at++] = (uint8_t)pending;
        }
        if (at < size)
            number[at++] = (uint8_t)pending;
        memset(number + at, 0, size - at);
    }
}

/* out[groups][n] = a b / 2^(52 k) modulo r, below a b / 2^(52 k) + r; k = na + nb - n digits.
 * b advances by `b_step` vectors a group: nb, or 0 for one factor in common. out may be a or b. */
EXPORT void secagg_ifma_multiply(vec *out, const vec *a, size_t na, const vec *b, size_t nb, size_t b_step,
                                 const modulus *r, size_t groups)
{
    const size_t n = r->n, k = na + nb - n;
    vec t[4 * MAX_DIGITS], q[4 * MAX_DIGITS];
    for (size_t g = 0; g < groups; g++, out += n, a += na, b += b_step) {
        clear(t, na + nb);
        accumulate(t, a, na, b, nb);
        reduce(t, k, r, q);
        normalise(out, t + k, n);
    }
}

/* out[groups][n] = a b + c, where b of nb digits is common to all. The sums fit into n digits;
 * n and nc are at most na + nb. */
EXPORT void secagg_ifma_multiply_add(vec *out, size_t n, const vec *a, size_t na, const vec *b, size_t nb,
                                     const vec *c, size_t nc, size_t groups)
{
    vec t[4 * MAX_DIGITS];
    for (size_t g = 0; g < groups; g++, out += n, a += na, c += nc) {
        copy(t, c, nc);
        clear(t + nc, na + nb - nc);
        accumulate(t, a, na, b, nb);
        normalise(out, t, n);
    }
}

/* x[groups][n], columns below 2^63 of numbers below `times` + 1 times r, to numbers below r. */
EXPORT void secagg_ifma_canonical(vec *x, const modulus *r, size_t times, size_t groups)
{
    for (size_t g = 0; g < groups; g++, x += r->n) {
        normalise(x, x, r->n);
        for (size_t i = 0; i < times; i++)
            subtract_once(x, r);
    }
}
