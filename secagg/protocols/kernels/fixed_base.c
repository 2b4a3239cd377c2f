/* Many powers of one base modulo a square r^2, eight at a time. fixed_base.py, among the protocols,
 * names the sources, explains the split form u (1 + v r) of a factor, and makes the tables; layout and
 * bounds are in ifma.h. r has n digits, its square 2 n.
 *
 * Time. Which table entries are read depends on the exponents, each of which serves one ciphertext:
 * whoever shares the machine's caches may learn parts of them. Nothing else depends on them.
 */
#include "ifma.h"

#include <string.h>

/* Numbers of `size` little-endian bytes, the last three zero, eight a group, in digits of `window`
 * bits, of `bits` bits in all. */
typedef struct {
    const uint8_t *bytes;
    size_t size, bits, window;
} exponents;

/* Digit i of the eight exponents of group g. */
INLINE void digits_of(uint16_t *digits, const exponents *e, size_t i, size_t g)
{
    const size_t bit = i * e->window, left = e->bits - bit, width = left < e->window ? left : e->window;
    for (size_t k = 0; k < LANES; k++) {
        uint32_t bytes;
        memcpy(&bytes, e->bytes + (g * LANES + k) * e->size + bit / 8, sizeof bytes);
        digits[k] = (uint16_t)(bytes >> bit % 8 & ((1u << width) - 1));
    }
}

/* x[0 .. n) = entries[digit of lane i][0 .. n) for the lanes i; n is a multiple of eight. */
INLINE void gather(vec *x, const uint64_t *table, size_t n, const uint16_t *digits)
{
    for (size_t j = 0; j < n; j += LANES) {
        vec row[LANES], pair[LANES], quad[LANES];
#pragma GCC unroll 8
        for (size_t i = 0; i < LANES; i++)
            row[i] = _mm512_loadu_si512(table + digits[i] * n + j);
        /* The transpose of an 8 x 8 matrix: of 1 x 1, then 2 x 2, then 4 x 4 blocks. */
#pragma GCC unroll 4
        for (size_t i = 0; i < LANES; i += 2) {
            pair[i] = _mm512_unpacklo_epi64(row[i], row[i + 1]);
            pair[i + 1] = _mm512_unpackhi_epi64(row[i], row[i + 1]);
        }
#pragma GCC unroll 4
        for (size_t i = 0; i < 4; i++) {
            const size_t at = i / 2 * 4 + i % 2; /* 0, 1, 4, 5 */
            quad[at] = _mm512_shuffle_i64x2(pair[at], pair[at + 2], 0x88);
            quad[at + 2] = _mm512_shuffle_i64x2(pair[at], pair[at + 2], 0xDD);
        }
#pragma GCC unroll 4
        for (size_t i = 0; i < 4; i++) {
            x[j + i] = _mm512_shuffle_i64x2(quad[i], quad[i + 4], 0x88);
            x[j + i + 4] = _mm512_shuffle_i64x2(quad[i], quad[i + 4], 0xDD);
        }
    }
}

/* x[groups][2 n] = base^a (1 + r)^log modulo r^2, below 2 r^2, for each exponent a and each log.
 *
 * Digit d of position i of an exponent stands for the factor u (1 + v r) / R, R = 2^(52 n), where u
 * and v are entry i 2^window + d of `units` and `logs`; an entry is `row` numbers of 64 bits, the
 * first n of them digits. The second parts are summed first, the log included: at most 2^12 numbers,
 * so that no column passes 2^64, and the sum stays below 2^12 r. From x = 1 + (sum) r the first
 * product gives less than (2^12 r^2 + 1) r / R + r^2 < 2 r^2, since R > 2^16 r. */
EXPORT void secagg_ifma_fixed_base(vec *x, const vec *log, const uint64_t *units, const uint64_t *logs,
                                   size_t row, const uint8_t *bytes, size_t size, size_t bits, size_t window,
                                   const modulus *r, const modulus *square_of_r, size_t groups)
{
    const exponents e = {bytes, size, bits, window};
    const size_t n = r->n, positions = (bits + window - 1) / window, position = row << window;
    uint16_t digits[LANES];
    vec factor[MAX_DIGITS + LANES], sum[MAX_DIGITS], t[4 * MAX_DIGITS], q[MAX_DIGITS];
    for (size_t g = 0; g < groups; g++)
        copy(x + g * 2 * n, log + g * n, n);
    for (size_t i = 0; i < positions; i++)
        for (size_t g = 0; g < groups; g++) {
            vec *total = x + g * 2 * n;
            digits_of(digits, &e, i, g);
            gather(factor, logs + i * position, row, digits);
            for (size_t j = 0; j < n; j++)
                total[j] = add(total[j], factor[j]);
        }
    for (size_t g = 0; g < groups; g++) {
        clear(t, 2 * n);
        t[0] = _mm512_set1_epi64(1);
        normalise(sum, x + g * 2 * n, n);
        accumulate(t, sum, n, r->digits, n);
        normalise(x + g * 2 * n, t, 2 * n);
    }
    for (size_t i = 0; i < positions; i++)
        for (size_t g = 0; g < groups; g++) {
            vec *product = x + g * 2 * n;
            digits_of(digits, &e, i, g);
            gather(factor, units + i * position, row, digits);
            clear(t, 3 * n);
            accumulate(t, product, 2 * n, factor, n);
            reduce(t, n, square_of_r, q);
            normalise(product, t + n, 2 * n);
        }
}
