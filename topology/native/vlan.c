#include "vlan.h"

#include <stdbool.h>
#include <stdlib.h>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "bits.h"

void walk_paths(const int32_t *port_rack, Hops paths, const int32_t *src, const int32_t *dst,
                int32_t *rack, uint8_t *is_broken)
{
    for (int32_t path = 0; path < paths.count; path++) {
        int32_t here = src[path];
        bool broken = false;
        rack[paths.start[path] + path] = here;
        for (int32_t h = paths.start[path]; h < paths.start[path + 1]; h++) {
            int32_t one = port_rack[paths.a[h]], other = port_rack[paths.b[h]];
            broken |= one != here && other != here;
            here = one == here ? other : one;
            rack[h + path + 1] = here;
        }
        is_broken[path] = broken || here != dst[path];
    }
}

/* 64 bins, a bit or a column each. In every bin the racks form a forest; a rack's `tree` is the
   number of a rack of its tree, the same for all racks of the tree. */
typedef struct {
    uint16_t *tree; /* (rack, bin) */
    uint16_t *next; /* (rack, bin): the next rack of the same tree, in a ring of all */
    uint16_t *size; /* (tree, bin): racks of the tree */
    int32_t n_trees[WORD_BITS];
    word spanning; /* bins in which all racks are one tree */
    word *lacking; /* of the path at hand: bins by the number of missing circuits */
    word loopless; /* bins that stay a forest with the path at hand */
} Block;

typedef struct {
    const Ground *ground;
    PathList paths;
    Block *blocks;
    int32_t n_blocks, n_bins;
    word *carries; /* (circuit, block): bins with the circuit */
    int32_t room;  /* blocks that `carries` has room for */
    int32_t longest; /* hops of the longest path */
} Packing;

static size_t cell(int32_t rack, int32_t column) { return (size_t)rack * WORD_BITS + column; }

static word *carried(const Packing *p, int32_t circuit, int32_t block)
{
    return p->carries + (size_t)circuit * p->room + block;
}

/* Makes room for another block. A circuit's blocks are side by side: most are read together. */
static bool make_room(Packing *p)
{
    if (p->n_blocks < p->room)
        return true;
    Packing wider = *p;
    wider.room = p->room ? 2 * p->room : 2;
    wider.carries = calloc((size_t)p->ground->n_circuits * wider.room + 1, sizeof(word));
    if (!wider.carries)
        return false;
    for (int32_t circuit = 0; circuit < p->ground->n_circuits; circuit++)
        for (int32_t block = 0; block < p->n_blocks; block++)
            *carried(&wider, circuit, block) = *carried(p, circuit, block);
    free(p->carries);
    *p = wider;
    return true;
}

static bool open_block(Packing *p)
{
    if (!make_room(p))
        return false;
    Block *grown = realloc(p->blocks, (p->n_blocks + 1) * sizeof *grown);
    if (!grown)
        return false;
    p->blocks = grown;
    Block *block = grown + p->n_blocks++;
    size_t racks = p->ground->n_racks ? p->ground->n_racks : 1;
    block->tree = malloc(racks * WORD_BITS * sizeof(uint16_t));
    block->next = malloc(racks * WORD_BITS * sizeof(uint16_t));
    block->size = malloc(racks * WORD_BITS * sizeof(uint16_t));
    block->lacking = malloc(((size_t)p->longest + 1) * sizeof(word));
    block->spanning = 0;
    if (!block->tree || !block->next || !block->size || !block->lacking)
        return false;
    for (int32_t rack = 0; rack < p->ground->n_racks; rack++)
        for (int32_t column = 0; column < WORD_BITS; column++) {
            block->tree[cell(rack, column)] = block->next[cell(rack, column)] = (uint16_t)rack;
            block->size[cell(rack, column)] = 1;
        }
    for (int32_t column = 0; column < WORD_BITS; column++)
        block->n_trees[column] = p->ground->n_racks;
    return true;
}

static void release(Packing *p)
{
    for (int32_t i = 0; i < p->n_blocks; i++) {
        free(p->blocks[i].tree);
        free(p->blocks[i].next);
        free(p->blocks[i].size);
        free(p->blocks[i].lacking);
    }
    free(p->blocks);
    free(p->carries);
}

static bool open_bin(Packing *p)
{
    return p->n_bins++ < p->n_blocks * WORD_BITS || open_block(p);
}

/* Joins the trees of two racks: the smaller tree takes the name of the other, and the rings
   join. */
static void unite(Block *block, int32_t column, int32_t one, int32_t other)
{
    uint16_t *tree = block->tree, *next = block->next;
    int32_t small = one, large = other;
    if (tree[cell(one, column)] == tree[cell(other, column)])
        return;
    if (block->size[cell(tree[cell(one, column)], column)] >
        block->size[cell(tree[cell(other, column)], column)]) {
        small = other;
        large = one;
    }
    uint16_t name = tree[cell(large, column)];
    block->size[cell(name, column)] += block->size[cell(tree[cell(small, column)], column)];
    int32_t rack = small;
    do {
        tree[cell(rack, column)] = name;
        rack = next[cell(rack, column)];
    } while (rack != small);
    uint16_t after = next[cell(small, column)];
    next[cell(small, column)] = next[cell(large, column)];
    next[cell(large, column)] = after;
    if (--block->n_trees[column] == 1)
        block->spanning |= bit(column);
}

static void add(Packing *p, int32_t path, int32_t bin)
{
    Block *block = p->blocks + bin / WORD_BITS;
    int32_t column = bin % WORD_BITS;
    for (int32_t h = p->paths.start[path]; h < p->paths.start[path + 1]; h++) {
        word *bins = carried(p, p->paths.circuit[h], bin / WORD_BITS);
        if (*bins & bit(column))
            continue;
        *bins |= bit(column);
        unite(block, column, p->paths.rack[h + path], p->paths.rack[h + path + 1]);
    }
}

static bool on_path(PathList paths, int32_t path, int32_t circuit)
{
    for (int32_t h = paths.start[path]; h < paths.start[path + 1]; h++)
        if (paths.circuit[h] == circuit)
            return true;
    return false;
}

/* Bins of a block with a rival of a circuit of the path that is not on the path. */
static word rivalled(const Packing *p, int32_t block, int32_t path)
{
    word bins = 0;
    for (int32_t h = p->paths.start[path]; h < p->paths.start[path + 1]; h++)
        for (int32_t end = 0; end < 2; end++) {
            int32_t rival = p->ground->rivals[2 * p->paths.circuit[h] + end];
            if (rival >= 0 && !on_path(p->paths, path, rival))
                bins |= *carried(p, rival, block);
        }
    return bins;
}

/* Bins of a block in which two racks are in the same tree. */
static word in_one_tree(const Block *block, int32_t one, int32_t other)
{
    const uint16_t *trees = block->tree + cell(one, 0), *others = block->tree + cell(other, 0);
    word bins = 0;
#ifdef __SSE2__
    for (int32_t first = 0; first < WORD_BITS; first += 16) {
        __m128i equal[2];
        for (int32_t half = 0; half < 2; half++) {
            const void *here = trees + first + 8 * half, *there = others + first + 8 * half;
            equal[half] = _mm_cmpeq_epi16(_mm_loadu_si128(here), _mm_loadu_si128(there));
        }
        bins |= (word)_mm_movemask_epi8(_mm_packs_epi16(equal[0], equal[1])) << first;
    }
#else
    uint8_t equal[WORD_BITS];
    for (int32_t column = 0; column < WORD_BITS; column++)
        equal[column] = trees[column] == others[column];
    for (int32_t first = 0; first < WORD_BITS; first += 8) {
        word bytes = 0;
        for (int32_t i = 0; i < 8; i++)
            bytes |= (word)equal[first + i] << (8 * i);
        bins |= (bytes * 0x0102040810204080u >> 56) << first; /* the lowest bit of each byte */
    }
#endif
    return bins;
}

/* Bins of a block in which two racks of the path are in the same tree already, while a circuit
   between them along the path is not in the bin: the circuit would join them twice. */
static word closing_loops(const Packing *p, int32_t block, int32_t path)
{
    int32_t start = p->paths.start[path], end = p->paths.start[path + 1];
    const int32_t *rack = p->paths.rack + path;
    word bins = 0;
    for (int32_t i = start; i < end; i++) {
        word all_held = ~(word)0;
        for (int32_t j = i; j < end; j++) {
            all_held &= *carried(p, p->paths.circuit[j], block);
            bins |= in_one_tree(p->blocks + block, rack[i], rack[j + 1]) & ~all_held;
        }
    }
    return bins;
}

static word opened(const Packing *p, int32_t block)
{
    int32_t bins = p->n_bins - block * WORD_BITS;
    return bins >= WORD_BITS ? ~(word)0 : bit(bins) - 1;
}

/* Sorts the bins of a block by the number of missing circuits of the path: lacking[0 .. hops]. */
static void sort_by_lacking(const Packing *p, int32_t block, int32_t path)
{
    word *lacking = p->blocks[block].lacking;
    lacking[0] = opened(p, block);
    int32_t start = p->paths.start[path], end = p->paths.start[path + 1];
    for (int32_t h = start; h < end; h++) {
        word held = *carried(p, p->paths.circuit[h], block);
        lacking[h - start + 1] = lacking[h - start] & ~held;
        for (int32_t n = h - start; n > 0; n--)
            lacking[n] = (lacking[n] & held) | (lacking[n - 1] & ~held);
        lacking[0] &= held;
    }
}

/* Bins of a block with all circuits of the path. */
static word complete(const Packing *p, int32_t block, int32_t path)
{
    word bins = opened(p, block);
    for (int32_t h = p->paths.start[path]; h < p->paths.start[path + 1]; h++)
        bins &= *carried(p, p->paths.circuit[h], block);
    return bins;
}

/* The first bin with all circuits of the path, or -1. */
static int32_t find_complete(const Packing *p, int32_t path)
{
    for (int32_t b = 0; b < p->n_blocks; b++) {
        word bins = complete(p, b, path);
        if (bins)
            return b * WORD_BITS + lowest(bins);
    }
    return -1;
}

/* Among bins that stay a forest, the first with the fewest missing circuits, or -1. */
static int32_t find_bin(Packing *p, int32_t path)
{
    int32_t hops = p->paths.start[path + 1] - p->paths.start[path];
    for (int32_t b = 0; b < p->n_blocks; b++) {
        Block *block = p->blocks + b;
        block->loopless = ~block->spanning & ~rivalled(p, b, path);
        if (block->loopless)
            block->loopless &= ~closing_loops(p, b, path);
        if (block->loopless)
            sort_by_lacking(p, b, path);
    }
    for (int32_t n = 1; n <= hops; n++)
        for (int32_t b = 0; b < p->n_blocks; b++) {
            word bins = p->blocks[b].loopless ? p->blocks[b].lacking[n] & p->blocks[b].loopless : 0;
            if (bins)
                return b * WORD_BITS + lowest(bins);
        }
    return -1;
}

static int32_t longest(PathList paths)
{
    int32_t most = 0;
    for (int32_t i = 0; i < paths.count; i++)
        if (paths.start[i + 1] - paths.start[i] > most)
            most = paths.start[i + 1] - paths.start[i];
    return most;
}

enum { AHEAD = 8 };

/* Asks for the data of coming paths: the order jumps about in arrays larger than the cache. */
static void fetch_ahead(const Packing *p, const int32_t *order, int32_t left)
{
    PathList paths = p->paths;
    if (left > 3 * AHEAD) {
        __builtin_prefetch(paths.start + order[3 * AHEAD]);
        int32_t hop = paths.start[order[2 * AHEAD]];
        __builtin_prefetch(paths.circuit + hop);
        __builtin_prefetch(paths.rack + hop + order[2 * AHEAD]);
        int32_t next = order[AHEAD];
        for (int32_t h = paths.start[next]; h < paths.start[next + 1]; h++)
            __builtin_prefetch(carried(p, paths.circuit[h], 0));
    }
}

int32_t pack_paths(const Ground *ground, PathList paths, const int32_t *residents,
                   int32_t n_residents, int32_t n_occupied, const int32_t *order, int32_t n_order,
                   int32_t *bin_of)
{
    Packing p = {.ground = ground, .paths = paths, .longest = longest(paths)};
    bool ready = true;
    while (ready && p.n_bins < n_occupied)
        ready = open_bin(&p);
    for (int32_t i = 0; ready && i < n_residents; i++)
        add(&p, residents[i], bin_of[residents[i]]);
    for (int32_t i = 0; ready && i < n_order; i++) {
        fetch_ahead(&p, order + i, n_order - i);
        int32_t path = order[i];
        int32_t bin = find_complete(&p, path);
        if (bin < 0) {
            bin = find_bin(&p, path);
            if (bin < 0) {
                bin = p.n_bins;
                ready = open_bin(&p);
            }
            if (ready)
                add(&p, path, bin);
        }
        bin_of[path] = bin;
    }
    release(&p);
    return ready ? p.n_bins : -1;
}
