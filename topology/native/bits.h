/* Sets as words: bit i of word i / 64. */
#ifndef HYDRA_BITS_H
#define HYDRA_BITS_H

#include <stdbool.h>
#include <stdint.h>

typedef uint64_t word;

enum { WORD_BITS = 64 };

static inline int32_t words_for(int32_t bits) { return (bits + WORD_BITS - 1) / WORD_BITS; }

static inline word bit(int32_t i) { return (word)1 << (i % WORD_BITS); }

static inline bool has(const word *set, int32_t i) { return set[i / WORD_BITS] & bit(i); }

static inline void put(word *set, int32_t i) { set[i / WORD_BITS] |= bit(i); }

static inline void drop(word *set, int32_t i) { set[i / WORD_BITS] &= ~bit(i); }

static inline int32_t lowest(word w) { return __builtin_ctzll(w); }

static inline void add_all(word *set, const word *others, int32_t words)
{
    for (int32_t w = 0; w < words; w++)
        set[w] |= others[w];
}

static inline void keep_all(word *set, const word *others, int32_t words)
{
    for (int32_t w = 0; w < words; w++)
        set[w] &= others[w];
}

static inline void drop_all(word *set, const word *others, int32_t words)
{
    for (int32_t w = 0; w < words; w++)
        set[w] &= ~others[w];
}

static inline bool meet(const word *one, const word *other, int32_t words)
{
    word common = 0; /* all words are read, so that the compiler compares several at a time */
    for (int32_t w = 0; w < words; w++)
        common |= one[w] & other[w];
    return common;
}

/* The lowest element of both sets, or -1. */
static inline int32_t first_common(const word *one, const word *other, int32_t words)
{
    for (int32_t w = 0; w < words; w++)
        if (one[w] & other[w])
            return w * WORD_BITS + lowest(one[w] & other[w]);
    return -1;
}

/* The lowest element of a set from `from` on, or -1. */
static inline int32_t next_in(const word *set, int32_t from, int32_t words)
{
    int32_t w = from / WORD_BITS;
    if (w >= words)
        return -1;
    word left = set[w] & (~(word)0 << (from % WORD_BITS));
    while (!left) {
        if (++w == words)
            return -1;
        left = set[w];
    }
    return w * WORD_BITS + lowest(left);
}

#define FOR_EACH(i, set, words)                                                                    \
    for (int32_t i = next_in(set, 0, words); i >= 0; i = next_in(set, i + 1, words))

#endif
