/* One exponent, many bases: powers modulo r, or modulo r^2 in half-length arithmetic. Sources, layout
 * and bounds are in ifma.h; r has n digits, R = 2^(52 n). Fixed windows, as in Gueron and Krasnov.
 *
 * Pairs. Modulo a square one can work with numbers as long as r, at little more than half the cost:
 * x is kept as a pair (c, d) with x = c + d r modulo r^2. If c c' + q r = R c'' (a Montgomery
 * reduction, which finds q on its way), then
 *
 *     (c + d r) (c' + d' r) / R = c'' + r (c d' + c' d - q) / R   modulo r^2,
 *
 * and the bracket is reduced modulo r like any product: 10 n^2 digit products (7 n^2 for a square)
 * where full length takes 16 n^2 (12 n^2). No digit is ever lost by c and d not being reduced, since
 * x = c + d r holds all the same.
 *
 * Bounds. For c, c', d, d' < 2 r the new d is below 8 r^2 / R + r < 2 r, as ifma.h demands R > 2^16 r.
 * Subtracting q, digit by digit from the columns that a reduction is about to clear, may make some of
 * them negative (modulo 2^64), but not for long: when the reduction has come to such a column, its sum
 * is a multiple of 2^52, and above -2^52, since only one digit was taken from it and carries are not
 * negative (by induction). So it is not negative, and no carry is ever wrong. In the same way the
 * result is not negative: it is whole, and above -1.
 *
 * Time. These functions serve secret exponents that live long (p - 1, shares of a key): which
 * instructions run and which addresses are read depends on the exponent's length only. Each window
 * costs the same squarings and one product, also where it is zero, and a table entry is selected by
 * reading all of them.
 */
#include "ifma.h"

/* out = a b / R modulo r; out may be a or b. */
static IFMA void multiply_number(vec *out, const vec *a, const vec *b, const modulus *r)
{
    vec q[MAX_DIGITS], t[2 * MAX_DIGITS];
    clear(t, 2 * r->n);
    accumulate(t, a, r->n, b, r->n);
    reduce(t, r->n, r, q);
    normalise(out, t + r->n, r->n);
}

/* x = x^2 / R modulo r. */
static IFMA void square_number(vec *x, const modulus *r)
{
    vec q[MAX_DIGITS], t[2 * MAX_DIGITS];
    square(t, x, r->n);
    reduce(t, r->n, r, q);
    normalise(x, t + r->n, r->n);
}

/* d = (t - q) / R modulo r, given the columns t[0 .. 2 n) of c d' + c' d. */
INLINE void second_part(vec *d, vec *t, const vec *q, const modulus *r)
{
    vec unused[MAX_DIGITS];
    for (size_t j = 0; j < r->n; j++)
        t[j] = subtract(t[j], q[j]);
    reduce(t, r->n, r, unused);
    normalise(d, t + r->n, r->n);
}

/* out = a b / R modulo r^2; all are pairs, (c, d) = x[0 .. n), x[n .. 2 n). out may be a or b. */
static IFMA void multiply_pair(vec *out, const vec *a, const vec *b, const modulus *r)
{
    const size_t n = r->n;
    vec c[MAX_DIGITS], q[MAX_DIGITS], t[2 * MAX_DIGITS];
    clear(t, 2 * n);
    accumulate(t, a, n, b, n);
    reduce(t, n, r, q);
    normalise(c, t + n, n);
    clear(t, 2 * n);
    accumulate(t, a, n, b + n, n);
    accumulate(t, a + n, n, b, n);
    second_part(out + n, t, q, r);
    copy(out, c, n);
}

/* x = x^2 / R modulo r^2; x is a pair. */
static IFMA void square_pair(vec *x, const modulus *r)
{
    const size_t n = r->n;
    vec c[MAX_DIGITS], q[MAX_DIGITS], t[2 * MAX_DIGITS];
    square(t, x, n);
    reduce(t, n, r, q);
    normalise(c, t + n, n);
    clear(t, 2 * n);
    accumulate(t, x, n, x + n, n);
    for (size_t j = 0; j < 2 * n; j++)
        t[j] = add(t[j], t[j]);
    second_part(x + n, t, q, r);
    copy(x, c, n);
}

/* out[groups][2 n] = pairs of x / 2^(52 size) modulo r^2, for x[groups][size] of any value.
 * Reducing x by all its digits gives x + q r = 2^(52 size) c with c <= r, hence
 * x / 2^(52 size) = c - r q / 2^(52 size). */
EXPORT void secagg_ifma_split(vec *out, const vec *x, size_t size, const modulus *r, size_t groups)
{
    const size_t n = r->n;
    vec t[4 * MAX_DIGITS], q[2 * MAX_DIGITS];
    for (size_t g = 0; g < groups; g++, out += 2 * n, x += size) {
        copy(t, x, size);
        clear(t + size, n);
        reduce(t, size, r, q);
        normalise(out, t + size, n);
        for (size_t j = 0; j < size; j++)
            t[j] = subtract(_mm512_setzero_si512(), q[j]);
        clear(t + size, n);
        reduce(t, size, r, q);
        normalise(out + n, t + size, n);
    }
}

/* out[groups][2 n] = a b / R modulo r^2, pairs; b advances by `b_step` vectors: 2 n, or 0 for one
 * factor in common. */
EXPORT void secagg_ifma_multiply_pairs(vec *out, const vec *a, const vec *b, size_t b_step,
                                       const modulus *r, size_t groups)
{
    for (size_t g = 0; g < groups; g++, out += 2 * r->n, a += 2 * r->n, b += b_step)
        multiply_pair(out, a, b, r);
}

/* Pairs c, d < 2 r - 1 to those with c, d < r: an r taken from c is a one for d. */
EXPORT void secagg_ifma_canonical_pairs(vec *x, const modulus *r, size_t groups)
{
    const size_t n = r->n;
    for (size_t g = 0; g < groups; g++, x += 2 * n) {
        __mmask8 carried = subtract_once(x, r);
        x[n] = _mm512_mask_add_epi64(x[n], carried, x[n], _mm512_set1_epi64(1));
        normalise(x + n, x + n, n);
        subtract_once(x + n, r);
    }
}

/* x[0 .. size) = table[digit][0 .. size), reading every entry. */
INLINE void select_entry(vec *x, const vec *table, size_t entries, size_t size, unsigned digit)
{
    const vec wanted = _mm512_set1_epi64(digit);
    for (size_t j = 0; j < size; j++) {
        vec selected = _mm512_setzero_si512();
        for (size_t k = 0; k < entries; k++) {
            __mmask8 here = _mm512_cmpeq_epi64_mask(wanted, _mm512_set1_epi64((long long)k));
            selected = _mm512_mask_mov_epi64(selected, here, table[k * size + j]);
        }
        x[j] = selected;
    }
}

/* x[groups][n] = x^e / R^(e-1) modulo r; if `paired`, x[groups][2 n] are pairs, modulo r^2.
 *
 * windows[count]: e in digits of `bits` bits, highest first; one: R modulo r (or r^2), as x is.
 * table: scratch memory for 2^bits numbers (or pairs). */
EXPORT void secagg_ifma_power(vec *x, const uint8_t *windows, size_t count, size_t bits, const vec *one,
                              const modulus *r, size_t paired, vec *table, size_t groups)
{
    const size_t entries = (size_t)1 << bits, size = paired ? 2 * r->n : r->n;
    void (*const multiply)(vec *, const vec *, const vec *, const modulus *) =
        paired ? multiply_pair : multiply_number;
    void (*const square_it)(vec *, const modulus *) = paired ? square_pair : square_number;
    vec factor[2 * MAX_DIGITS];
    copy(table, one, size);
    for (size_t g = 0; g < groups; g++, x += size) {
        copy(table + size, x, size);
        for (size_t k = 2; k < entries; k++)
            multiply(table + k * size, table + (k - 1) * size, x, r);
        select_entry(x, table, entries, size, windows[0]);
        for (size_t i = 1; i < count; i++) {
            for (size_t b = 0; b < bits; b++)
                square_it(x, r);
            select_entry(factor, table, entries, size, windows[i]);
            multiply(x, x, factor, r);
        }
    }
}
