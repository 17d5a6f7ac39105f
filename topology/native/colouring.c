#include "colouring.h"

#include <stdlib.h>

static int32_t *row_slot(const Colouring *c, int32_t row, int32_t colour)
{
    return c->at_row + (int64_t)row * c->n_colours + colour;
}

static int32_t *column_slot(const Colouring *c, int32_t column, int32_t colour)
{
    return c->at_column + (int64_t)column * c->n_colours + colour;
}

static void put(const Colouring *c, int32_t edge, int32_t colour)
{
    c->colour[edge] = colour;
    *row_slot(c, c->row[edge], colour) = edge;
    *column_slot(c, c->column[edge], colour) = edge;
}

static int32_t common_colour(const Colouring *c, int32_t row, int32_t column)
{
    for (int32_t colour = 0; colour < c->n_colours; colour++)
        if (*row_slot(c, row, colour) == COLOUR_FREE &&
            *column_slot(c, column, colour) == COLOUR_FREE)
            return colour;
    return -1;
}

/* The length of the path of colours here, there, here, ... from a column; 0 if a node bars the
   path. */
static int32_t alternate(const Colouring *c, int32_t column, int32_t here, int32_t there,
                         int32_t *path)
{
    int32_t length = 0;
    int32_t edge = *column_slot(c, column, here);
    while (edge >= 0) {
        path[length++] = edge;
        edge = length % 2 ? *row_slot(c, c->row[edge], there)
                          : *column_slot(c, c->column[edge], here);
    }
    return edge == COLOUR_ABSENT ? 0 : length;
}

static void swap(const Colouring *c, const int32_t *path, int32_t length, int32_t here,
                 int32_t there)
{
    for (int32_t k = 0; k < length; k++) {
        *row_slot(c, c->row[path[k]], c->colour[path[k]]) = COLOUR_FREE;
        *column_slot(c, c->column[path[k]], c->colour[path[k]]) = COLOUR_FREE;
    }
    for (int32_t k = 0; k < length; k++)
        put(c, path[k], k % 2 ? here : there);
}

/* Frees a colour at the column that is free at the row; -1 if no swap helps. */
static int32_t make_room(const Colouring *c, int32_t row, int32_t column, int32_t *path)
{
    for (int32_t here = 0; here < c->n_colours; here++) {
        if (*row_slot(c, row, here) != COLOUR_FREE || *column_slot(c, column, here) < 0)
            continue;
        for (int32_t there = 0; there < c->n_colours; there++) {
            if (*column_slot(c, column, there) != COLOUR_FREE || *row_slot(c, row, there) < 0)
                continue;
            int32_t length = alternate(c, column, here, there, path);
            if (length) {
                swap(c, path, length, here, there);
                return here;
            }
        }
    }
    return -1;
}

int colour_edges(const Colouring *c)
{
    int32_t *path = malloc(((size_t)c->n_edges + 1) * sizeof *path);
    if (!path)
        return -1;
    for (int32_t edge = 0; edge < c->n_edges; edge++) {
        int32_t colour = common_colour(c, c->row[edge], c->column[edge]);
        if (colour < 0)
            colour = make_room(c, c->row[edge], c->column[edge], path);
        if (colour >= 0)
            put(c, edge, colour);
    }
    free(path);
    return 0;
}
