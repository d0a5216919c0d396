/* The limit: hash + insert of a whole column as well as we can write it in C, for bench/kernels.py to measure against.
 *
 * gcc -O3 -march=native -shared -fPIC limit.c -o limit.so
 *
 * With AVX-512DQ: eight keys in lanes, strings of one length in four groups of eight, two blocks an insert. Without:
 * keys one by one, AVX2 (or what gcc makes of the plain loop) for the block. Keys of mixed lengths go one by one.
 */
#include <stdint.h>
#include <string.h>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

#define BATCH 1024
#define PRIME_1 0x9E3779B185EBCA87ULL
#define PRIME_2 0xC2B2AE3D27D4EB4FULL
#define PRIME_3 0x165667B19E3779F9ULL
#define PRIME_4 0x85EBCA77C2B2AE63ULL
#define PRIME_5 0x27D4EB2F165667C5ULL

typedef struct {
  uint8_t *filters;
  uint64_t num_blocks, rows_per_zone;
} Zones;

/* --- one key ------------------------------------------------------------------------------------------------------ */

static inline uint64_t rotate(uint64_t x, int bits) { return x << bits | x >> (64 - bits); }

static inline uint64_t read_64(const uint8_t *at) {
  uint64_t word;
  memcpy(&word, at, 8);
  return word;
}

static inline uint32_t read_32(const uint8_t *at) {
  uint32_t word;
  memcpy(&word, at, 4);
  return word;
}

static inline uint64_t round_64(uint64_t acc, uint64_t word) { return rotate(acc + word * PRIME_2, 31) * PRIME_1; }

static inline uint64_t merge(uint64_t hash, uint64_t acc) { return (hash ^ round_64(0, acc)) * PRIME_1 + PRIME_4; }

static inline uint64_t avalanche(uint64_t hash) {
  hash = (hash ^ hash >> 33) * PRIME_2;
  hash = (hash ^ hash >> 29) * PRIME_3;
  return hash ^ hash >> 32;
}

static inline uint64_t hash_u64(uint64_t word) {
  return avalanche(rotate((PRIME_5 + 8) ^ round_64(0, word), 27) * PRIME_1 + PRIME_4);
}

static inline uint64_t hash_bytes(const uint8_t *at, uint64_t length) {
  const uint8_t *end = at + length;
  uint64_t hash = PRIME_5;
  if (length >= 32) {
    uint64_t a = PRIME_1 + PRIME_2, b = PRIME_2, c = 0, d = -PRIME_1;
    for (; at + 32 <= end; at += 32) {
      a = round_64(a, read_64(at));
      b = round_64(b, read_64(at + 8));
      c = round_64(c, read_64(at + 16));
      d = round_64(d, read_64(at + 24));
    }
    hash = rotate(a, 1) + rotate(b, 7) + rotate(c, 12) + rotate(d, 18);
    hash = merge(merge(merge(merge(hash, a), b), c), d);
  }
  hash += length;
  for (; at + 8 <= end; at += 8) hash = rotate(hash ^ round_64(0, read_64(at)), 27) * PRIME_1 + PRIME_4;
  if (at + 4 <= end) {
    hash = rotate(hash ^ read_32(at) * PRIME_1, 23) * PRIME_2 + PRIME_3;
    at += 4;
  }
  for (; at < end; at++) hash = rotate(hash ^ *at * PRIME_5, 11) * PRIME_1;
  return avalanche(hash);
}

/* --- keys in lanes ------------------------------------------------------------------------------------------------ */

#if defined(__AVX512DQ__)

#define LANES(x) _mm512_set1_epi64((long long)(x))
#define TIMES(x, prime) _mm512_mullo_epi64(x, LANES(prime))

static inline __m512i round_lanes(__m512i acc, __m512i word) {
  return TIMES(_mm512_rol_epi64(_mm512_add_epi64(acc, TIMES(word, PRIME_2)), 31), PRIME_1);
}

static inline __m512i merge_lanes(__m512i hash, __m512i acc) {
  __m512i mixed = _mm512_xor_si512(hash, round_lanes(_mm512_setzero_si512(), acc));
  return _mm512_add_epi64(TIMES(mixed, PRIME_1), LANES(PRIME_4));
}

static inline __m512i mix_64(__m512i hash, __m512i word) {
  hash = _mm512_xor_si512(hash, round_lanes(_mm512_setzero_si512(), word));
  return _mm512_add_epi64(TIMES(_mm512_rol_epi64(hash, 27), PRIME_1), LANES(PRIME_4));
}

static inline __m512i mix_32(__m512i hash, __m512i word) {
  hash = _mm512_xor_si512(hash, TIMES(word, PRIME_1));
  return _mm512_add_epi64(TIMES(_mm512_rol_epi64(hash, 23), PRIME_2), LANES(PRIME_3));
}

static inline __m512i mix_8(__m512i hash, __m512i byte) {
  return TIMES(_mm512_rol_epi64(_mm512_xor_si512(hash, TIMES(byte, PRIME_5)), 11), PRIME_1);
}

static inline __m512i avalanche_lanes(__m512i hash) {
  hash = TIMES(_mm512_xor_si512(hash, _mm512_srli_epi64(hash, 33)), PRIME_2);
  hash = TIMES(_mm512_xor_si512(hash, _mm512_srli_epi64(hash, 29)), PRIME_3);
  return _mm512_xor_si512(hash, _mm512_srli_epi64(hash, 32));
}

static inline void load_columns(const uint8_t *at, uint64_t stride, __m512i columns[4]) {
  __m512i pairs[4];
  for (int i = 0; i < 4; i++) {
    __m256i low = _mm256_loadu_si256((const __m256i *)(at + i * stride));
    __m256i high = _mm256_loadu_si256((const __m256i *)(at + (i + 4) * stride));
    pairs[i] = _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
  }
  __m512i even_0 = _mm512_unpacklo_epi64(pairs[0], pairs[1]), odd_0 = _mm512_unpackhi_epi64(pairs[0], pairs[1]);
  __m512i even_1 = _mm512_unpacklo_epi64(pairs[2], pairs[3]), odd_1 = _mm512_unpackhi_epi64(pairs[2], pairs[3]);
  const __m512i low = _mm512_set_epi64(13, 12, 5, 4, 9, 8, 1, 0), high = _mm512_set_epi64(15, 14, 7, 6, 11, 10, 3, 2);
  columns[0] = _mm512_permutex2var_epi64(even_0, low, even_1);
  columns[1] = _mm512_permutex2var_epi64(odd_0, low, odd_1);
  columns[2] = _mm512_permutex2var_epi64(even_0, high, even_1);
  columns[3] = _mm512_permutex2var_epi64(odd_0, high, odd_1);
}

#define ROWS(read) \
  _mm512_set_epi64(read(at + 7 * stride), read(at + 6 * stride), read(at + 5 * stride), read(at + 4 * stride), \
                   read(at + 3 * stride), read(at + 2 * stride), read(at + stride), read(at))
#define READ_8(p) (*(p))
static inline __m512i rows_64(const uint8_t *at, uint64_t stride) { return ROWS(read_64); }
static inline __m512i rows_32(const uint8_t *at, uint64_t stride) { return ROWS(read_32); }
static inline __m512i rows_8(const uint8_t *at, uint64_t stride) { return ROWS(READ_8); }

#define GROUPS 4
#define EACH_GROUP for (int g = 0; g < GROUPS; g++)

static inline void hash_32_equal_keys(const uint8_t *at, uint64_t length, uint64_t *hashes) {
  __m512i hash[GROUPS], a[GROUPS], b[GROUPS], c[GROUPS], d[GROUPS];
  const uint64_t group_bytes = 8 * length;
  uint64_t rest = length;
  EACH_GROUP hash[g] = LANES(PRIME_5);
  if (length >= 32) {
    EACH_GROUP {
      a[g] = LANES(PRIME_1 + PRIME_2), b[g] = LANES(PRIME_2), c[g] = LANES(0), d[g] = LANES(-PRIME_1);
    }
    for (; rest >= 32; rest -= 32, at += 32) EACH_GROUP {
        __m512i words[4];
        load_columns(at + g * group_bytes, length, words);
        a[g] = round_lanes(a[g], words[0]), b[g] = round_lanes(b[g], words[1]);
        c[g] = round_lanes(c[g], words[2]), d[g] = round_lanes(d[g], words[3]);
      }
    EACH_GROUP {
      __m512i left = _mm512_add_epi64(_mm512_rol_epi64(a[g], 1), _mm512_rol_epi64(b[g], 7));
      hash[g] = _mm512_add_epi64(left, _mm512_add_epi64(_mm512_rol_epi64(c[g], 12), _mm512_rol_epi64(d[g], 18)));
    }
    EACH_GROUP hash[g] = merge_lanes(hash[g], a[g]);
    EACH_GROUP hash[g] = merge_lanes(hash[g], b[g]);
    EACH_GROUP hash[g] = merge_lanes(hash[g], c[g]);
    EACH_GROUP hash[g] = merge_lanes(hash[g], d[g]);
  }
  EACH_GROUP hash[g] = _mm512_add_epi64(hash[g], LANES(length));
  for (; rest >= 8; rest -= 8, at += 8) EACH_GROUP hash[g] = mix_64(hash[g], rows_64(at + g * group_bytes, length));
  if (rest >= 4) {
    EACH_GROUP hash[g] = mix_32(hash[g], rows_32(at + g * group_bytes, length));
    rest -= 4, at += 4;
  }
  for (; rest; rest--, at++) EACH_GROUP hash[g] = mix_8(hash[g], rows_8(at + g * group_bytes, length));
  EACH_GROUP _mm512_storeu_si512(hashes + 8 * g, avalanche_lanes(hash[g]));
}

#endif

static inline void hash_equal_keys(const uint8_t *data, uint64_t length, uint64_t count, uint64_t *hashes) {
  uint64_t i = 0;
#if defined(__AVX512DQ__)
  for (; i + 32 <= count; i += 32) hash_32_equal_keys(data + i * length, length, hashes + i);
#endif
  for (; i < count; i++) hashes[i] = hash_bytes(data + i * length, length);
}

static inline void hash_u64s(const uint64_t *keys, uint64_t count, uint64_t *hashes) {
  uint64_t i = 0;
#if defined(__AVX512DQ__)
  for (; i + 8 <= count; i += 8) {
    __m512i hash = mix_64(LANES(PRIME_5 + 8), _mm512_loadu_si512(keys + i));
    _mm512_storeu_si512(hashes + i, avalanche_lanes(hash));
  }
#endif
  for (; i < count; i++) hashes[i] = hash_u64(keys[i]);
}

/* --- inserting ---------------------------------------------------------------------------------------------------- */

static const uint32_t SALT[8] __attribute__((aligned(32))) = {0x47b6137bU, 0x44974d91U, 0x8824ad5bU, 0xa2b7289dU,
                                                              0x705495c7U, 0x2df1424bU, 0x9efc4947U, 0x5c6bfb31U};

static inline uint8_t *block_of(uint8_t *filter, uint64_t num_blocks, uint64_t hash) {
  return filter + ((hash >> 32) * num_blocks >> 32) * 32;
}

static inline void insert(uint8_t *filter, uint64_t num_blocks, uint64_t hash) {
  uint8_t *block = block_of(filter, num_blocks, hash);
#if defined(__AVX2__)
  __m256i bits = _mm256_srli_epi32(
      _mm256_mullo_epi32(_mm256_set1_epi32((int)hash), _mm256_load_si256((const __m256i *)SALT)), 27);
  __m256i mask = _mm256_sllv_epi32(_mm256_set1_epi32(1), bits);
  _mm256_storeu_si256((__m256i *)block, _mm256_or_si256(_mm256_loadu_si256((const __m256i *)block), mask));
#else
  for (int i = 0; i < 8; i++) {
    uint32_t word = read_32(block + 4 * i) | 1U << ((uint32_t)hash * SALT[i] >> 27);
    memcpy(block + 4 * i, &word, 4);
  }
#endif
}

static inline void insert_all(uint8_t *filter, uint64_t num_blocks, const uint64_t *hashes, uint64_t count) {
  for (uint64_t i = 0; i < count; i++) insert(filter, num_blocks, hashes[i]);
}

/* --- columns ------------------------------------------------------------------------------------------------------ */

/* Runs `hash_batch`, which fills hashes[0..count) for the rows from `row` on, and inserts what it filled. */
#define FOR_EACH_BATCH(hash_batch)                                                                     \
  uint64_t hashes[BATCH] __attribute__((aligned(64)));                                                 \
  for (uint64_t start = 0, zone = 0; start < num_rows; start += zones.rows_per_zone, zone++) {         \
    uint8_t *filter = zones.filters + zone * zones.num_blocks * 32;                                    \
    uint64_t stop = start + zones.rows_per_zone < num_rows ? start + zones.rows_per_zone : num_rows;   \
    memset(filter, 0, zones.num_blocks * 32);                                                          \
    for (uint64_t row = start; row < stop; row += BATCH) {                                             \
      uint64_t count = stop - row < BATCH ? stop - row : BATCH;                                        \
      hash_batch;                                                                                      \
      insert_all(filter, zones.num_blocks, hashes, count);                                             \
    }                                                                                                  \
  }

void insert_int64(const uint64_t *keys, uint64_t num_rows, Zones zones) {
  FOR_EACH_BATCH(hash_u64s(keys + row, count, hashes))
}

static inline void hash_strings(const uint8_t *data, const int32_t *offsets, uint64_t count, uint64_t *hashes) {
  int32_t length = offsets[1] - offsets[0], differences = 0;
  for (uint64_t i = 0; i < count; i++) differences |= (offsets[i + 1] - offsets[i]) ^ length;
  if (!differences) {
    hash_equal_keys(data + offsets[0], (uint64_t)length, count, hashes);
    return;
  }
  for (uint64_t i = 0; i < count; i++) hashes[i] = hash_bytes(data + offsets[i], (uint64_t)(offsets[i + 1] - offsets[i]));
}

void insert_strings(const uint8_t *data, const int32_t *offsets, uint64_t num_rows, Zones zones) {
  FOR_EACH_BATCH(hash_strings(data, offsets + row, count, hashes))
}

static inline void take(const uint64_t *values, const int32_t *indexes, uint64_t count, uint64_t *hashes) {
  for (uint64_t i = 0; i < count; i++) hashes[i] = values[indexes[i]];
}

void insert_dictionary(const uint8_t *data, const int32_t *offsets, uint64_t num_values, uint64_t *values,
                       const int32_t *indexes, uint64_t num_rows, Zones zones) {
  for (uint64_t i = 0; i < num_values; i++) values[i] = hash_bytes(data + offsets[i], (uint64_t)(offsets[i + 1] - offsets[i]));
  FOR_EACH_BATCH(take(values, indexes + row, count, hashes))
}
