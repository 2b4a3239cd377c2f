/* The vector instructions that the kernels use, in plain C, for tests on any 64-bit little-endian
 * machine.
 *
 * The tests compile the kernels with this folder first on the include path, so that this file takes
 * the place of the compiler's own <immintrin.h>. The sources of the kernels are the shipped ones, to
 * the last byte. This file lies among the tests: no wheel holds it, and no installation uses it.
 *
 * Meaning of each instruction: Intel's Intrinsics Guide; for AES also FIPS 197, section 5.1. Only what
 * the kernels use is here; a kernel that uses more does not compile.
 */
#ifndef SECAGG_TESTS_IMMINTRIN_H
#define SECAGG_TESTS_IMMINTRIN_H

#include <stddef.h>
#include <stdint.h>
#include <string.h> /* before the macros below */

/* The kernels mark functions with __attribute__((target("..."))) and ask the processor whether it can
 * run them. Here they need nothing special. */
#define target(features)
#define __builtin_cpu_init() ((void)0)
#define __builtin_cpu_supports(feature) 1

typedef union {
    uint64_t q[8];
    uint32_t d[16];
    uint8_t b[64];
} __attribute__((aligned(64))) __m512i;
typedef union {
    uint32_t d[4];
    uint8_t b[16];
} __attribute__((aligned(16))) __m128i;
typedef uint8_t __mmask8;
typedef uint64_t __mmask64;

/* Define a function by element i of its result; `part` says of how many bits an element is. */
#define VECTOR(type, name, part, parameters, element)                     \
    static inline type name parameters                                    \
    {                                                                     \
        type out;                                                         \
        for (size_t i = 0; i < sizeof out.part / sizeof out.part[0]; i++) \
            out.part[i] = (element);                                      \
        return out;                                                       \
    }
#define MASK(name, parameters, element)      \
    static inline __mmask8 name parameters   \
    {                                        \
        unsigned out = 0;                    \
        for (size_t i = 0; i < 8; i++)       \
            out |= (unsigned)(element) << i; \
        return (__mmask8)out;                \
    }
typedef __m512i V; /* short, for the definitions below */
typedef __m128i W;

/* Arithmetic of 64 bits. */
#define LOW_52(x) ((x) & 0xfffffffffffff)
#define PRODUCT(x, y) ((unsigned __int128)LOW_52(x) * LOW_52(y))
VECTOR(V, _mm512_setzero_si512, q, (void), 0)
VECTOR(V, _mm512_set1_epi64, q, (long long x), (uint64_t)x)
VECTOR(V, _mm512_add_epi64, q, (V x, V y), x.q[i] + y.q[i])
VECTOR(V, _mm512_sub_epi64, q, (V x, V y), x.q[i] - y.q[i])
VECTOR(V, _mm512_and_si512, q, (V x, V y), x.q[i] & y.q[i])
VECTOR(V, _mm512_xor_si512, q, (V x, V y), x.q[i] ^ y.q[i])
VECTOR(V, _mm512_srli_epi64, q, (V x, unsigned n), x.q[i] >> n)
VECTOR(V, _mm512_srai_epi64, q, (V x, unsigned n), (uint64_t)((int64_t)x.q[i] >> n))
VECTOR(V, _mm512_madd52lo_epu64, q, (V sum, V x, V y), sum.q[i] + (uint64_t)LOW_52(PRODUCT(x.q[i], y.q[i])))
VECTOR(V, _mm512_madd52hi_epu64, q, (V sum, V x, V y), sum.q[i] + (uint64_t)(PRODUCT(x.q[i], y.q[i]) >> 52))

/* Comparison and choice. */
#define CHOSEN(mask) ((mask) >> i & 1)
MASK(_mm512_cmpeq_epi64_mask, (V x, V y), x.q[i] == y.q[i])
MASK(_mm512_cmplt_epu64_mask, (V x, V y), x.q[i] < y.q[i])
VECTOR(V, _mm512_mask_mov_epi64, q, (V other, __mmask8 m, V x), CHOSEN(m) ? x.q[i] : other.q[i])
VECTOR(V, _mm512_mask_add_epi64, q, (V other, __mmask8 m, V x, V y), CHOSEN(m) ? x.q[i] + y.q[i] : other.q[i])
VECTOR(V, _mm512_mask_sub_epi64, q, (V other, __mmask8 m, V x, V y), CHOSEN(m) ? x.q[i] - y.q[i] : other.q[i])

/* Rearrangement: in each half of 128 bits, or of whole such blocks. */
VECTOR(V, _mm512_unpacklo_epi64, q, (V x, V y), (i % 2 ? y : x).q[i & ~(size_t)1])
VECTOR(V, _mm512_unpackhi_epi64, q, (V x, V y), (i % 2 ? y : x).q[i | 1])
VECTOR(V, _mm512_shuffle_i64x2, q, (V x, V y, unsigned from),
       (i < 4 ? x : y).q[2 * (from >> i / 2 * 2 & 3) + i % 2])
VECTOR(V, _mm512_shuffle_epi8, b, (V x, V from), from.b[i] & 0x80 ? 0 : x.b[i / 16 * 16 + from.b[i] % 16])
VECTOR(V, _mm512_broadcast_i32x4, d, (W x), x.d[i % 4])

/* Memory, aligned or not. A mask names the bytes that are read or written; the others may not exist. */
static inline V _mm512_loadu_si512(const void *from)
{
    V out;
    memcpy(&out, from, sizeof out);
    return out;
}

static inline void _mm512_storeu_si512(void *to, V x) { memcpy(to, &x, sizeof x); }

VECTOR(V, _mm512_maskz_loadu_epi8, b, (__mmask64 m, const void *from),
       CHOSEN(m) ? ((const uint8_t *)from)[i] : 0)

static inline void _mm512_mask_storeu_epi8(void *to, __mmask64 m, V x)
{
    for (size_t i = 0; i < sizeof x; i++)
        if (CHOSEN(m))
            ((uint8_t *)to)[i] = x.b[i];
}

static inline W _mm_loadu_si128(const void *from)
{
    W out;
    memcpy(&out, from, sizeof out);
    return out;
}

/* Arithmetic of 32 bits, and vectors from numbers, of which the highest comes first. */
VECTOR(V, _mm512_add_epi32, d, (V x, V y), x.d[i] + y.d[i])
VECTOR(V, _mm512_sub_epi32, d, (V x, V y), x.d[i] - y.d[i])
VECTOR(W, _mm_setzero_si128, d, (void), 0)
VECTOR(W, _mm_xor_si128, d, (W x, W y), x.d[i] ^ y.d[i])
VECTOR(W, _mm_shuffle_epi32, d, (W x, unsigned from), x.d[from >> 2 * i & 3])
VECTOR(W, _mm_slli_si128, b, (W x, size_t n), i < n ? 0 : x.b[i - n])
#define PARAMETERS_4(t) t x3, t x2, t x1, t x0
#define PARAMETERS_16(t)                                                              \
    t x15, t x14, t x13, t x12, t x11, t x10, t x9, t x8, t x7, t x6, t x5, t x4, PARAMETERS_4(t)
#define LIST_16 x0, x1, x2, x3, x4, x5, x6, x7, x8, x9, x10, x11, x12, x13, x14, x15
VECTOR(W, _mm_set_epi32, d, (PARAMETERS_4(int)), (uint32_t)((int[]){x0, x1, x2, x3})[i])
VECTOR(W, _mm_set_epi8, b, (PARAMETERS_16(char)), (uint8_t)((char[]){LIST_16})[i])
VECTOR(V, _mm512_set_epi32, d, (PARAMETERS_16(int)), (uint32_t)((int[]){LIST_16})[i])

/* AES. A block is 16 bytes, the columns of the state one after the other. */
static inline uint8_t doubled(uint8_t x) { return (uint8_t)(x << 1 ^ (x & 0x80 ? 0x1b : 0)); }

static uint8_t substitute[256]; /* the S-box */

static __attribute__((constructor)) void fill_substitute(void)
{
    /* 3 generates the field's units: `power` and `inverse` run through 3^k and 3^-k. */
    uint8_t power = 1, inverse = 1;
    do {
        power ^= doubled(power);
        for (int k = 0; k < 254; k++) /* 3^-1 = 3^254 */
            inverse ^= doubled(inverse);
        const unsigned twice = inverse * 0x101u; /* so that a shift rotates */
        substitute[power] = (uint8_t)(twice ^ twice >> 4 ^ twice >> 5 ^ twice >> 6 ^ twice >> 7 ^ 0x63);
    } while (power != 1);
    substitute[0] = 0x63;
}

/* Byte i after SubBytes and ShiftRows: from row i % 4 of the column so many further. */
#define SHIFTED(x, i) substitute[(x).b[(i) / 16 * 16 + ((i) + 4 * ((i) % 4)) % 16]]
VECTOR(V, shifted, b, (V x), SHIFTED(x, i))
/* MixColumns: with a, b, c, d a column from row i on, 2 a + 3 b + c + d. */
#define ROW(x, k) (x).b[i / 4 * 4 + (i + (k)) % 4]
VECTOR(V, mixed, b, (V x), doubled(ROW(x, 0) ^ ROW(x, 1)) ^ ROW(x, 1) ^ ROW(x, 2) ^ ROW(x, 3))

static inline V _mm512_aesenc_epi128(V x, V key) { return _mm512_xor_si512(mixed(shifted(x)), key); }

static inline V _mm512_aesenclast_epi128(V x, V key) { return _mm512_xor_si512(shifted(x), key); }

/* Of words 1 and 3: SubWord in the even words of the result, RotWord of it and Rcon in the odd ones. */
static inline W _mm_aeskeygenassist_si128(W x, uint32_t rcon)
{
    W out;
    for (size_t i = 0; i < 16; i++)
        out.b[i] = substitute[x.b[i / 8 * 8 + 4 + (i / 4 % 2 + i) % 4]];
    out.d[1] ^= rcon;
    out.d[3] ^= rcon;
    return out;
}

#endif
