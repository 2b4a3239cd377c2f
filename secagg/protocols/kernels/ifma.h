/* Long integers, eight at a time, in digits of 52 bits: the arithmetic under the kernels.
 *
 * Sources: S. Gueron, V. Krasnov, "Software implementation of modular exponentiation, using advanced
 * vector instructions architectures" (WAIFI 2012), for radix 2^52 in vector lanes and "almost"
 * Montgomery products; P. L. Montgomery, "Modular multiplication without trial division"
 * (Mathematics of Computation 44, 1985).
 *
 * Layout. A vector register has eight lanes of 64 bits. Eight integers lie side by side: digit j of
 * integer i is lane i of x[j], x = sum of x[j] 2^(52 j). vpmadd52luq and vpmadd52huq add the low or
 * the high 52 bits of a 104-bit product of two digits (the low 52 bits of each lane) to a 64-bit lane.
 *
 * Carries wait. A column of a product sums less than 2^12 such parts: with at most MAX_DIGITS digits
 * in the shorter factor, at most 2 MAX_DIGITS parts from each product in it (there are at most two),
 * doubled at most once, 2 MAX_DIGITS from a reduction, and a few digits more: less than
 * 6 MAX_DIGITS + 8 < 2^12 of them, each below 2^52. So 64 bits hold a column, and `normalise` may
 * carry once at the end.
 *
 * Bounds. With r the modulus, L its digits, and R = 2^(52 L), the caller takes L so large that
 * r < 2^(52 L - SLACK), that is R > 2^16 r. A reduction of T by k digits returns
 * (T + q r) / 2^(52 k) with q < 2^(52 k), which is below T / 2^(52 k) + r. For T = a b, a, b < 2 r
 * and k = L that is below 4 r^2 / R + r < 2 r: products of products never need the final
 * subtraction, which is what "almost" means. `subtract_once` makes the representative unique at the
 * very end.
 *
 * Time. No branch and no address in this file depends on the value of a digit, and the instructions
 * used take the same time for all values as far as the processors' makers say.
 */
#ifndef SECAGG_IFMA_H
#define SECAGG_IFMA_H

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

enum {
    LANES = 8,
    DIGIT_BITS = 52,
    MAX_DIGITS = 160, /* of one factor: 8192 bits and SLACK */
    SLACK = 16,
    BLOCK = 4, /* digits of a factor that stay in registers while the other factor streams by */
};

/* Compiled for IFMA wherever the rest of the program runs: called only after the check in
 * `secagg_ifma_supported`. */
#define IFMA __attribute__((target("avx512f,avx512ifma")))
#define INLINE static inline __attribute__((always_inline)) IFMA
#define EXPORT __attribute__((visibility("default"))) IFMA

typedef __m512i vec;

INLINE vec low(vec sum, vec x, vec y) { return _mm512_madd52lo_epu64(sum, x, y); }

INLINE vec high(vec sum, vec x, vec y) { return _mm512_madd52hi_epu64(sum, x, y); }

INLINE vec add(vec x, vec y) { return _mm512_add_epi64(x, y); }

INLINE vec subtract(vec x, vec y) { return _mm512_sub_epi64(x, y); }

INLINE vec carry_of(vec x) { return _mm512_srli_epi64(x, DIGIT_BITS); }

INLINE vec digit_of(vec x) { return _mm512_and_si512(x, _mm512_set1_epi64((1LL << DIGIT_BITS) - 1)); }

INLINE void clear(vec *t, size_t n)
{
    for (size_t i = 0; i < n; i++)
        t[i] = _mm512_setzero_si512();
}

INLINE void copy(vec *to, const vec *from, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] = from[i];
}

/* t[from ..] += x[from .. n) y, where c holds the columns t[from .. from + width). Low and high parts
 * are summed apart: a chain of additions to one column would make each wait for the one before. */
INLINE void stream(vec *t, const vec *x, size_t from, size_t n, const vec *y, vec *c, const size_t width)
{
    vec e[BLOCK + 1]; /* high parts, of columns from + 1 .. */
#pragma GCC unroll 4
    for (size_t k = 0; k < width; k++)
        e[k] = _mm512_setzero_si512();
    for (size_t j = from; j < n; j++) {
#pragma GCC unroll 4
        for (size_t k = 0; k < width; k++)
            c[k] = low(c[k], x[j], y[k]);
        t[j] = add(c[0], e[0]);
#pragma GCC unroll 4
        for (size_t k = 0; k + 1 < width; k++)
            c[k] = c[k + 1];
        c[width - 1] = t[j + width];
        e[width] = _mm512_setzero_si512();
#pragma GCC unroll 4
        for (size_t k = 0; k < width; k++)
            e[k] = high(e[k + 1], x[j], y[k]);
    }
#pragma GCC unroll 4
    for (size_t k = 0; k < width; k++)
        t[n + k] = add(c[k], e[k]);
}

/* t[0 .. n + width) += x[0 .. n) y[0 .. width) for a constant width. */
INLINE void sweep(vec *t, const vec *x, size_t n, const vec *from_y, const size_t width)
{
    vec c[BLOCK + 1], y[BLOCK];
#pragma GCC unroll 4
    for (size_t k = 0; k < width; k++) {
        c[k] = t[k];
        y[k] = from_y[k];
    }
    stream(t, x, 0, n, y, c, width);
}

/* Do `action(i, width)` for the blocks of n digits that begin at i; all but the last are whole. */
#define FOR_BLOCKS(n, action)                  \
    do {                                       \
        size_t at = 0;                         \
        for (; at + BLOCK <= (n); at += BLOCK) \
            action(at, 4);                     \
        switch ((n) - at) {                    \
        case 3: action(at, 3); break;          \
        case 2: action(at, 2); break;          \
        case 1: action(at, 1); break;          \
        default: break;                        \
        }                                      \
    } while (0)

/* t[0 .. na + nb) += a b. */
static IFMA __attribute__((unused)) void accumulate(vec *t, const vec *a, size_t na, const vec *b, size_t nb)
{
#define ACTION(i, width) sweep(t + (i), a, na, b + (i), width)
    FOR_BLOCKS(nb, ACTION);
#undef ACTION
}

INLINE void square_block(vec *t, const vec *a, size_t n, size_t i, const size_t width)
{
#pragma GCC unroll 4
    for (size_t k = 0; k < width; k++)
#pragma GCC unroll 4
        for (size_t l = k + 1; l < width; l++) {
            vec *column = t + 2 * i + k + l;
            column[0] = low(column[0], a[i + k], a[i + l]);
            column[1] = high(column[1], a[i + k], a[i + l]);
        }
    sweep(t + 2 * i + width, a + i + width, n - i - width, a + i, width);
}

/* t[0 .. 2 n) = a^2: each product of two different digits once, doubled, then the squares. */
static IFMA __attribute__((unused)) void square(vec *t, const vec *a, size_t n)
{
    clear(t, 2 * n);
#define ACTION(i, width) square_block(t, a, n, i, width)
    FOR_BLOCKS(n, ACTION);
#undef ACTION
    for (size_t i = 0; i < n; i++) {
        t[2 * i] = low(add(t[2 * i], t[2 * i]), a[i], a[i]);
        t[2 * i + 1] = high(add(t[2 * i + 1], t[2 * i + 1]), a[i], a[i]);
    }
}

/* An odd modulus r of n >= BLOCK digits, each in all lanes; inverse = -1/r modulo 2^52. lanes.py has
 * the same structure. */
typedef struct {
    const vec *digits;
    size_t n;
    uint64_t inverse;
} modulus;

/* Add q r to t, q of `width` digits, such that the lowest `width` digits of t become zero. */
INLINE void reduce_block(vec *t, const modulus *r, vec *quotient, const size_t width)
{
    const vec *m = r->digits, inverse = _mm512_set1_epi64((long long)r->inverse);
    vec c[BLOCK + 1], q[BLOCK];
#pragma GCC unroll 5
    for (size_t k = 0; k <= width; k++)
        c[k] = t[k];
    /* The columns below `width` tell the digits of q one after the other ... */
#pragma GCC unroll 4
    for (size_t k = 0; k < width; k++) {
        q[k] = low(_mm512_setzero_si512(), c[k], inverse);
#pragma GCC unroll 4
        for (size_t l = k; l < width; l++)
            c[l] = low(c[l], q[k], m[l - k]);
#pragma GCC unroll 4
        for (size_t l = k + 1; l < width; l++)
            c[l] = high(c[l], q[k], m[l - k - 1]);
        c[k + 1] = add(c[k + 1], carry_of(c[k])); /* the rest of column k is zero */
        quotient[k] = q[k];
    }
    /* ... then come the other columns: first what the lowest digits of r still owe them. */
    c[0] = c[width];
#pragma GCC unroll 4
    for (size_t k = 1; k < width; k++)
        c[k] = t[width + k];
#pragma GCC unroll 4
    for (size_t j = 0; j < width; j++)
#pragma GCC unroll 4
        for (size_t k = 0; k < width; k++) {
            if (j + k >= width)
                c[j + k - width] = low(c[j + k - width], m[j], q[k]);
            if (j + k + 1 >= width)
                c[j + k + 1 - width] = high(c[j + k + 1 - width], m[j], q[k]);
        }
    stream(t, m, width, r->n, q, c, width);
}

/* Montgomery reduction: add q r to t[0 .. k + r->n) so that the lowest k digits vanish. What is left
 * in t[k ..] is (t + q r) / 2^(52 k); q[0 .. k) is in whole digits. */
static IFMA __attribute__((unused)) void reduce(vec *t, size_t k, const modulus *r, vec *q)
{
#define ACTION(i, width) reduce_block(t + (i), r, q + (i), width)
    FOR_BLOCKS(k, ACTION);
#undef ACTION
}

/* x[0 .. n) = t[0 .. n) in whole digits; the value must fit. */
INLINE void normalise(vec *x, const vec *t, size_t n)
{
    vec carry = _mm512_setzero_si512();
    for (size_t i = 0; i < n; i++) {
        vec sum = add(t[i], carry);
        x[i] = digit_of(sum);
        carry = carry_of(sum);
    }
}

/* Subtract r from those x that are not below r; return in which lanes. x: r->n whole digits. */
INLINE __mmask8 subtract_once(vec *x, const modulus *r)
{
    vec difference[2 * MAX_DIGITS], borrow = _mm512_setzero_si512();
    for (size_t i = 0; i < r->n; i++) {
        vec d = add(subtract(x[i], r->digits[i]), borrow);
        difference[i] = digit_of(d);
        borrow = _mm512_srai_epi64(d, 63);
    }
    __mmask8 enough = _mm512_cmpeq_epi64_mask(borrow, _mm512_setzero_si512());
    for (size_t i = 0; i < r->n; i++)
        x[i] = _mm512_mask_mov_epi64(x[i], enough, difference[i]);
    return enough;
}

#endif
