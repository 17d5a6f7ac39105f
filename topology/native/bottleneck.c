#include "bottleneck.h"

#include <stdlib.h>
#include <string.h>

#include "bits.h"

enum { NOBODY = -1 };

typedef struct {
    int32_t n, words;
    const int64_t *entry;
    int64_t level;      /* the smallest entry allowed */
    int64_t *row_level; /* level of each row's set of columns; 0: no set */
    word *columns;      /* per row: columns with an entry of at least row_level */
    word *free, *unseen;
    int32_t *column_of, *row_of;
    int32_t *via, *queue, n_seen; /* of the search: the row before a column, rows reached */
} Search;

static const word *columns_of(Search *s, int32_t row)
{
    word *set = s->columns + (int64_t)row * s->words;
    if (s->row_level[row] == s->level)
        return set;
    s->row_level[row] = s->level;
    const int64_t *entry = s->entry + (int64_t)row * s->n;
    for (int32_t w = 0; w < s->words; w++) {
        int32_t first = w * WORD_BITS;
        int32_t end = first + WORD_BITS < s->n ? first + WORD_BITS : s->n;
        word found = 0;
        for (int32_t j = first; j < end; j++)
            found |= (word)(entry[j] >= s->level) << (j - first);
        set[w] = found;
    }
    return set;
}

static void give(Search *s, int32_t row, int32_t column)
{
    s->column_of[row] = column;
    s->row_of[column] = row;
    drop(s->free, column);
}

/* Flips the path to a free column. */
static void augment(Search *s, int32_t column, int32_t start)
{
    drop(s->free, column);
    for (int32_t row = NOBODY; row != start;) {
        row = s->via[column];
        int32_t before = s->column_of[row];
        s->column_of[row] = column;
        s->row_of[column] = row;
        column = before;
    }
}

/* A free column reached from the rows in the queue, from the `done`th on; or NOBODY. */
static int32_t search(Search *s, int32_t done)
{
    for (; done < s->n_seen; done++) {
        int32_t row = s->queue[done];
        const word *columns = columns_of(s, row);
        for (int32_t w = 0; w < s->words; w++) {
            word found = columns[w] & s->unseen[w];
            if (found & s->free[w]) {
                int32_t column = w * WORD_BITS + lowest(found & s->free[w]);
                s->via[column] = row;
                return column;
            }
            s->unseen[w] &= ~found;
            for (; found; found &= found - 1) {
                int32_t column = w * WORD_BITS + lowest(found);
                s->via[column] = row;
                s->queue[s->n_seen++] = s->row_of[column];
            }
        }
    }
    return NOBODY;
}

/* The largest entry between a row reached and a column not reached: the next level, as the rows
   reached are one more than the columns. */
static int64_t way_out(const Search *s)
{
    int64_t largest = 0;
    for (int32_t i = 0; i < s->n_seen; i++) {
        const int64_t *entry = s->entry + (int64_t)s->queue[i] * s->n;
        for (int32_t w = 0; w < s->words; w++)
            for (word left = s->unseen[w]; left; left &= left - 1) {
                int64_t value = entry[w * WORD_BITS + lowest(left)];
                if (value > largest)
                    largest = value;
            }
    }
    return largest;
}

/* Whether a free row could be given a column, at a level of at least `least`. */
static bool match_row(Search *s, int32_t row, int64_t least)
{
    s->queue[0] = row;
    s->n_seen = 1;
    memset(s->unseen, 0, (size_t)s->words * sizeof(word));
    for (int32_t j = 0; j < s->n; j++)
        put(s->unseen, j);
    for (;;) {
        int32_t column = search(s, 0);
        if (column != NOBODY) {
            augment(s, column, row);
            return true;
        }
        int64_t level = s->level > least ? way_out(s) : 0;
        if (level < least)
            return false;
        s->level = level;
    }
}

/* Gives up entries below the level, and finds free rows and columns. */
static void begin(Search *s)
{
    memset(s->row_level, 0, (size_t)s->n * sizeof *s->row_level);
    memset(s->free, 0, (size_t)s->words * sizeof(word));
    for (int32_t j = 0; j < s->n; j++) {
        s->row_of[j] = NOBODY;
        put(s->free, j);
    }
    for (int32_t i = 0; i < s->n; i++) {
        int32_t column = s->column_of[i];
        if (column != NOBODY && s->entry[(int64_t)i * s->n + column] < s->level)
            s->column_of[i] = column = NOBODY;
        if (column != NOBODY)
            give(s, i, column);
    }
}

static int32_t match_all(Search *s, int64_t least, bool all_or_nothing)
{
    int32_t matched = 0;
    bool stopped = false;
    begin(s);
    for (int32_t i = 0; i < s->n; i++) {
        if (s->column_of[i] == NOBODY && !stopped && !match_row(s, i, least))
            stopped = all_or_nothing;
        matched += s->column_of[i] != NOBODY;
    }
    return matched;
}

int64_t widest_matching(int32_t n, const int64_t *entry, int64_t start, int64_t least,
                        bool all_or_nothing, int32_t *column_of, int32_t *matched)
{
    int32_t words = words_for(n);
    size_t size = (size_t)n + 1;
    word *sets = malloc((size_t)words * (size + 1) * sizeof *sets + sizeof *sets);
    int64_t *row_level = malloc(size * sizeof *row_level);
    int32_t *rooms = malloc(3 * size * sizeof *rooms);
    int64_t level = -1;
    if (sets && row_level && rooms) {
        Search s = {n, words, entry, start, row_level, sets, sets + (size_t)words * (size_t)n,
                    sets + (size_t)words * size, column_of, rooms, rooms + size, rooms + 2 * size,
                    0};
        *matched = match_all(&s, least, all_or_nothing);
        level = s.level;
    }
    free(sets);
    free(row_level);
    free(rooms);
    return level;
}

static void raise(int64_t *entry, int64_t *row_lacks, int64_t *column_lacks)
{
    int64_t more = *row_lacks < *column_lacks ? *row_lacks : *column_lacks;
    *entry += more;
    *row_lacks -= more;
    *column_lacks -= more;
}

void stuff(int32_t n, int64_t *entry, int64_t *row_lacks, int64_t *column_lacks)
{
    for (int pass = 0; pass < 2; pass++)
        for (int32_t i = 0; i < n; i++)
            for (int32_t j = 0; j < n && row_lacks[i] > 0; j++)
                if (column_lacks[j] > 0 && (pass || entry[(int64_t)i * n + j] > 0))
                    raise(entry + (int64_t)i * n + j, row_lacks + i, column_lacks + j);
}
