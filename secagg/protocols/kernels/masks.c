/* Masks: AES-256 key streams added to a vector of ring elements, register by register.
 *
 * Block i of the stream of a seed is AES-256(seed, i + 2), the counter as 16 bytes, big-endian, of
 * which the last four count (see prg.py). The cipher and its key schedule follow FIPS 197, sections
 * 5.1 and 5.2; a round works on four blocks in a register (VAES), and WIDE registers at a time keep
 * the AES units busy while each waits for its round before.
 *
 * Time. No branch and no address depends on a seed, on the stream or on the vector. Key schedules are
 * wiped before the return; what the compiler kept of them in registers is not.
 */
#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

enum {
    ROUNDS = 14,
    SEED = 32,
    REGISTER = 64,
    WIDE = 8,
    BLOCK = 1 << 14, /* bytes of the vector that stay in the L1 cache while all masks are applied */
    GROUP = 32,      /* seeds that are expanded together */
};

/* Compiled for VAES wherever the rest of the program runs: called only after the check below. */
#define VAES __attribute__((target("avx512f,avx512bw,vaes,aes")))
#define INLINE static inline __attribute__((always_inline)) VAES
#define EXPORT __attribute__((visibility("default")))

typedef __m512i vec;

typedef struct {
    __m128i round[ROUNDS + 1];
} schedule;

/* Whether processor and operating system can run what is marked VAES. */
EXPORT int secagg_masks_supported(void)
{
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("vaes") && __builtin_cpu_supports("aes");
}

/* Which sources this was compiled from; see setup.py. */
EXPORT uint64_t secagg_masks_sources(void) { return SECAGG_SOURCES; }

/* Each word of x XORed with all words before it. */
INLINE __m128i prefixes(__m128i x)
{
    x = _mm_xor_si128(x, _mm_slli_si128(x, 4));
    return _mm_xor_si128(x, _mm_slli_si128(x, 8));
}

/* The next two round keys of the schedule, w[8 i / 2 ..]: SubWord(RotWord) and Rcon, then SubWord. */
#define EXPAND(i, rcon)                                                                               \
    do {                                                                                              \
        k[i] = _mm_xor_si128(prefixes(k[(i) - 2]),                                                    \
                             _mm_shuffle_epi32(_mm_aeskeygenassist_si128(k[(i) - 1], rcon), 0xff));   \
        k[(i) + 1] = _mm_xor_si128(prefixes(k[(i) - 1]),                                              \
                                   _mm_shuffle_epi32(_mm_aeskeygenassist_si128(k[i], 0), 0xaa));      \
    } while (0)

INLINE void expand(schedule *keys, const uint8_t *seed)
{
    __m128i k[ROUNDS + 2];
    k[0] = _mm_loadu_si128((const __m128i *)seed);
    k[1] = _mm_loadu_si128((const __m128i *)(seed + 16));
    EXPAND(2, 0x01);
    EXPAND(4, 0x02);
    EXPAND(6, 0x04);
    EXPAND(8, 0x08);
    EXPAND(10, 0x10);
    EXPAND(12, 0x20);
    EXPAND(14, 0x40); /* one key more than AES-256 has */
    for (int i = 0; i <= ROUNDS; i++)
        keys->round[i] = k[i];
}

/* v + m, or v - m, element by element. Of 128 bits, the low limb wrapped if the sum is below m, and
 * will borrow if v is: then the high limb, one lane further, takes the carry. */
INLINE vec combine(vec v, vec m, size_t bits, int subtract)
{
    if (bits == 32)
        return subtract ? _mm512_sub_epi32(v, m) : _mm512_add_epi32(v, m);
    vec result = subtract ? _mm512_sub_epi64(v, m) : _mm512_add_epi64(v, m);
    if (bits == 64)
        return result;
    __mmask8 wrapped = _mm512_cmplt_epu64_mask(subtract ? v : result, m);
    __mmask8 high = (__mmask8)(wrapped << 1) & 0xaa;
    vec one = _mm512_set1_epi64(1);
    return subtract ? _mm512_mask_sub_epi64(result, high, result, one)
                    : _mm512_mask_add_epi64(result, high, result, one);
}

INLINE vec four(__m128i x) { return _mm512_broadcast_i32x4(x); }

/* Apply one mask to `size` bytes whose stream begins with block `counter`. */
INLINE void apply(uint8_t *at, size_t size, uint32_t counter, const schedule *keys, size_t bits, int subtract)
{
    const vec big_endian = four(_mm_set_epi8(12, 13, 14, 15, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0));
    const vec step = four(_mm_set_epi32(4, 0, 0, 0));
    vec count = _mm512_add_epi32(four(_mm_set_epi32((int)counter, 0, 0, 0)),
                                 _mm512_set_epi32(3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0));
    vec key[ROUNDS + 1], x[WIDE];
    for (int r = 0; r <= ROUNDS; r++)
        key[r] = four(keys->round[r]);
    for (size_t done = 0; done < size;) {
        for (int i = 0; i < WIDE; i++) {
            x[i] = _mm512_xor_si512(_mm512_shuffle_epi8(count, big_endian), key[0]);
            count = _mm512_add_epi32(count, step);
        }
        for (int r = 1; r < ROUNDS; r++)
            for (int i = 0; i < WIDE; i++)
                x[i] = _mm512_aesenc_epi128(x[i], key[r]);
        for (int i = 0; i < WIDE; i++)
            x[i] = _mm512_aesenclast_epi128(x[i], key[ROUNDS]);
        if (size - done >= WIDE * REGISTER) {
            for (int i = 0; i < WIDE; i++, done += REGISTER)
                _mm512_storeu_si512(at + done,
                                    combine(_mm512_loadu_si512(at + done), x[i], bits, subtract));
            continue;
        }
        for (int i = 0; i < WIDE && done < size; i++) { /* the end: bytes that are there, no others */
            size_t left = size - done < REGISTER ? size - done : REGISTER;
            __mmask64 there = ~(__mmask64)0 >> (REGISTER - left);
            vec v = _mm512_maskz_loadu_epi8(there, at + done);
            _mm512_mask_storeu_epi8(at + done, there, combine(v, x[i], bits, subtract));
            done += left;
        }
    }
}

INLINE void apply_all(uint8_t *vector, size_t size, size_t bits, const uint8_t *seeds, size_t added, size_t count)
{
    schedule keys[GROUP];
    for (size_t first = 0; first < count; first += GROUP) {
        size_t group = count - first < GROUP ? count - first : GROUP;
        for (size_t i = 0; i < group; i++)
            expand(&keys[i], seeds + SEED * (first + i));
        for (size_t at = 0; at < size; at += BLOCK) {
            size_t part = size - at < BLOCK ? size - at : BLOCK;
            uint32_t counter = (uint32_t)(at / 16) + 2;
            for (size_t i = 0; i < group; i++) {
                if (first + i < added)
                    apply(vector + at, part, counter, &keys[i], bits, 0);
                else
                    apply(vector + at, part, counter, &keys[i], bits, 1);
            }
        }
    }
    volatile __m128i *wiped = keys[0].round;
    for (size_t i = 0; i < GROUP * (ROUNDS + 1); i++)
        wiped[i] = _mm_setzero_si128();
}

/* Add the streams of the first `added` of `count` seeds to a vector of Z_2^bits, and subtract those of
 * the rest. `size` is in bytes, a multiple of bits / 8 and at most 16 (2^32 - 2). */
EXPORT VAES void secagg_masks_apply(uint8_t *vector, size_t size, size_t bits, const uint8_t *seeds,
                                    size_t added, size_t count)
{
    if (bits == 32)
        apply_all(vector, size, 32, seeds, added, count);
    else if (bits == 64)
        apply_all(vector, size, 64, seeds, added, count);
    else
        apply_all(vector, size, 128, seeds, added, count);
}
