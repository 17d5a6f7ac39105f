#include "assignment.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Sweeps of augmenting row reduction; the first LOOKS sweeps tell easy matrices from skewed
   ones. */
enum { SWEEPS = 6, LOOKS = 2, NOBODY = -1 };

/* A matrix is skewed if the sweeps leave more rows free than FEW, and more than 1 in MANY. */
enum { FEW = 32, MANY = 8 };

/* Number of columns remembered for each row. */
enum { LISTED = 3 };

/* Columns whose gains are compared at once. */
enum { BLOCK = 8 };

/* Least raise of a price in the auction, `bit`: starts at a part of the largest weight, and gets
   finer, level by level. */
static const double FIRST_BID = 0.25, LAST_BID = 1e-9;
enum { FINER = 4, BIDS_PER_ROW = 4 };

typedef struct {
    int32_t n;
    const double *weight;
    double *price;
    int32_t *column_of, *row_of;
    /* rows without a column */
    int32_t *free, n_free;
    /* search for a path: the loss on the way to each column, the row before, and the columns:
       settled columns, then columns at the least loss, then the rest */
    double *loss;
    int32_t *via, *order;
    /* per row: the columns of largest gain when all were looked at, and the best gain of the other
       columns, an upper bound since prices only rise */
    int32_t *shortlist;
    double *beyond;
} Search;

/* The first of the columns that gain a row most, and the lead over any other column; -1 if a column
   outside the row's shortlist may gain as much. */
static int32_t best_listed(const Search *s, int32_t row, double *ahead)
{
    const double *weight = s->weight + (int64_t)row * s->n;
    const int32_t *listed = s->shortlist + (int64_t)row * LISTED;
    double best = -INFINITY, second = -INFINITY;
    int32_t column = NOBODY;
    for (int32_t k = 0; k < LISTED && k < s->n; k++) {
        int32_t j = listed[k];
        double gain = weight[j] - s->price[j];
        if (gain > best || (gain == best && j < column)) {
            second = best;
            best = gain;
            column = j;
        } else if (gain > second) {
            second = gain;
        }
    }
    *ahead = s->n > 1 ? best - second : 0;
    return best > s->beyond[row] && second >= s->beyond[row] ? column : NOBODY;
}

/* The largest of BLOCK gains, without a branch. */
static double most(const double *weight, const double *price)
{
    double gain[BLOCK];
    for (int32_t k = 0; k < BLOCK; k++)
        gain[k] = weight[k] - price[k];
    for (int32_t half = BLOCK / 2; half > 0; half /= 2)
        for (int32_t k = 0; k < half; k++)
            gain[k] = gain[k] > gain[k + half] ? gain[k] : gain[k + half];
    return gain[0];
}

/* Puts a column into a shortlist; the displaced gain goes behind the list's end. */
static void enter(int32_t column, double gain, int32_t *columns, double *gains)
{
    int32_t k = LISTED;
    if (gain <= gains[k])
        return;
    for (; k > 0 && gains[k - 1] < gain; k--) {
        gains[k] = gains[k - 1];
        columns[k] = columns[k - 1];
    }
    gains[k] = gain;
    columns[k] = column;
}

/* Like best_listed, from a look at all columns, which makes the row's shortlist; the first of equal
   columns come first. */
static int32_t list_best(Search *s, int32_t row, double *ahead)
{
    const double *weight = s->weight + (int64_t)row * s->n;
    double gains[LISTED + 1];
    int32_t columns[LISTED + 1] = {0};
    for (int32_t k = 0; k <= LISTED; k++)
        gains[k] = -INFINITY;
    for (int32_t first = 0; first < s->n; first += BLOCK) {
        int32_t size = s->n - first < BLOCK ? s->n - first : BLOCK;
        if (size == BLOCK && most(weight + first, s->price + first) <= gains[LISTED])
            continue;
        for (int32_t j = first; j < first + size; j++)
            enter(j, weight[j] - s->price[j], columns, gains);
    }
    memcpy(s->shortlist + (int64_t)row * LISTED, columns, LISTED * sizeof *columns);
    s->beyond[row] = gains[LISTED];
    *ahead = s->n > 1 ? gains[0] - gains[1] : 0;
    return columns[0];
}

/* The first of the columns that gain a row most, and the lead over any other column. */
static int32_t best_column(Search *s, int32_t row, double *ahead)
{
    int32_t column = best_listed(s, row, ahead);
    return column != NOBODY ? column : list_best(s, row, ahead);
}

/* Augmenting row reduction: a free row takes its best column and raises the price until the second
   best column is as good; the column's former row is free, and next. If both columns are equally
   good, and the best is taken, the row stays free. */
static void sweep(Search *s)
{
    int32_t still_free = 0, moves_left = 4 * s->n;
    for (int32_t position = 0; position < s->n_free;) {
        int32_t row = s->free[position++];
        double ahead;
        int32_t column = best_column(s, row, &ahead), loser = s->row_of[column];
        s->price[column] += ahead;
        if (loser != NOBODY && ahead == 0) {
            s->free[still_free++] = row;
            continue;
        }
        s->row_of[column] = row;
        s->column_of[row] = column;
        if (loser == NOBODY)
            continue;
        s->column_of[loser] = NOBODY;
        if (--moves_left > 0)
            s->free[--position] = loser;
        else
            s->free[still_free++] = loser;
    }
    s->n_free = still_free;
}

static void set_all_free(Search *s)
{
    for (int32_t i = 0; i < s->n; i++) {
        s->column_of[i] = s->row_of[i] = NOBODY;
        s->free[i] = i;
    }
    s->n_free = s->n;
}

/* Free rows bid for their best columns: the lead over any other column, plus `bit`. */
static void hold_auction(Search *s, double bit)
{
    set_all_free(s);
    for (int64_t bids = (int64_t)BIDS_PER_ROW * s->n; s->n_free > 0 && bids > 0; bids--) {
        int32_t row = s->free[s->n_free - 1];
        double ahead;
        int32_t column = best_column(s, row, &ahead), loser = s->row_of[column];
        s->price[column] += ahead + bit;
        s->row_of[column] = row;
        s->column_of[row] = column;
        if (loser == NOBODY) {
            s->n_free--;
        } else {
            s->column_of[loser] = NOBODY;
            s->free[s->n_free - 1] = loser;
        }
    }
}

/* Prices near the optimum by an auction (Bertsekas and Castanon, Parallel Computing 17, 1991, on
   its levels), for matrices in which row reduction leaves nearly all the work to the search for
   paths: products of weights of rows and columns, for example. Each `bit` is whole, so that whole
   weights have whole prices. Only prices stay. */
static void find_prices(Search *s)
{
    double largest = 0;
    for (int64_t i = 0; i < (int64_t)s->n * s->n; i++)
        largest = s->weight[i] > largest ? s->weight[i] : largest;
    for (double bit = largest * FIRST_BID; bit > largest * LAST_BID && bit >= 1; bit /= FINER)
        hold_auction(s, floor(bit));
    set_all_free(s);
}

static void swap(int32_t *order, int32_t one, int32_t other)
{
    int32_t column = order[one];
    order[one] = order[other];
    order[other] = column;
}

/* Moves the columns of the least loss to order[done] .. order[level - 1]; returns `level`. */
static int32_t next_level(Search *s, int32_t done, double *least)
{
    int32_t level = done;
    *least = INFINITY;
    for (int32_t k = done; k < s->n; k++) {
        double loss = s->loss[s->order[k]];
        if (loss > *least)
            continue;
        if (loss < *least) {
            *least = loss;
            level = done;
        }
        swap(s->order, k, level++);
    }
    return level;
}

/* Dijkstra's algorithm from a free row; returns the free column reached. */
static int32_t shortest_path(Search *s, int32_t start, int32_t *settled, double *least)
{
    for (int32_t j = 0; j < s->n; j++) {
        s->loss[j] = s->price[j] - s->weight[(int64_t)start * s->n + j];
        s->via[j] = start;
        s->order[j] = j;
    }
    for (int32_t done = 0, level = 0;;) {
        if (done == level) {
            *settled = done;
            level = next_level(s, done, least);
            for (int32_t k = done; k < level; k++)
                if (s->row_of[s->order[k]] == NOBODY)
                    return s->order[k];
        }
        int32_t column = s->order[done++], row = s->row_of[column];
        const double *weight = s->weight + (int64_t)row * s->n;
        double offset = *least + weight[column] - s->price[column];
        for (int32_t k = level; k < s->n; k++) {
            int32_t j = s->order[k];
            double through = offset + s->price[j] - weight[j];
            if (through >= s->loss[j])
                continue;
            s->loss[j] = through;
            s->via[j] = row;
            if (through > *least)
                continue;
            if (s->row_of[j] == NOBODY)
                return j;
            swap(s->order, k, level++);
        }
    }
}

static void augment(Search *s, int32_t start)
{
    int32_t settled = 0;
    double least = 0;
    int32_t column = shortest_path(s, start, &settled, &least);
    for (int32_t k = 0; k < settled; k++)
        s->price[s->order[k]] += least - s->loss[s->order[k]];
    for (int32_t row = NOBODY; row != start;) {
        row = s->via[column];
        s->row_of[column] = row;
        int32_t before = s->column_of[row];
        s->column_of[row] = column;
        column = before;
    }
}

int assign_rows(int32_t n, const double *weight, double *price, int32_t *column_of)
{
    size_t size = (size_t)n + 1;
    int32_t *rooms = calloc((4 + LISTED) * size, sizeof *rooms);
    double *losses = malloc(2 * size * sizeof *losses);
    if (rooms && losses) {
        Search s = {n, weight, price, column_of, rooms, rooms + size, n,
                    losses, rooms + 2 * size, rooms + 3 * size, rooms + 4 * size, losses + size};
        for (int32_t i = 0; i < n; i++)
            s.beyond[i] = INFINITY; /* not looked at yet */
        set_all_free(&s);
        for (int i = 0; i < LOOKS; i++)
            sweep(&s);
        if (s.n_free > FEW && s.n_free > n / MANY)
            find_prices(&s);
        for (int i = 0; i < SWEEPS; i++)
            sweep(&s);
        for (int32_t i = 0; i < s.n_free; i++)
            augment(&s, s.free[i]);
    }
    int failed = !rooms || !losses;
    free(rooms);
    free(losses);
    return failed ? -1 : 0;
}
