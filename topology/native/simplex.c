#include "simplex.h"

#include <math.h>
#include <stdbool.h>

enum { SLACK = -1, NONE = -1, LEAST_BLOCK = 64 };

#define UNLIMITED ((int64_t)1 << 60)

static void detach(Network *net, int32_t node)
{
    int32_t before = net->preceding[node], after = net->following[node];
    if (before != NONE)
        net->following[before] = after;
    else
        net->child[net->parent[node]] = after;
    if (after != NONE)
        net->preceding[after] = before;
}

static void attach(Network *net, int32_t node, int32_t parent)
{
    int32_t after = net->child[parent];
    net->parent[node] = parent;
    net->preceding[node] = NONE;
    net->following[node] = after;
    net->child[parent] = node;
    if (after != NONE)
        net->preceding[after] = node;
}

/* The tree is strongly feasible: flow could be sent from every node to the root. Rows hang there by
   their slack edges, and so do columns with spare degree; full columns hang on a taken edge. */
void start_greedily(Network *net)
{
    for (int32_t edge = 0; edge < net->n_edges; edge++) {
        int32_t row = net->tail[edge], column = net->head[edge];
        if (net->spare[row] > 0 && net->spare[column] > 0) {
            net->spare[row]--;
            net->spare[column]--;
            net->flow[edge] = 1;
            net->at[edge] = -1;
            net->via[column] = edge;
        }
    }
    int32_t root = net->n_nodes;
    for (int32_t node = net->n_nodes - 1; node >= 0; node--) {
        int32_t edge = net->via[node];
        if (edge == SLACK || net->spare[node] > 0) {
            net->via[node] = SLACK;
            net->depth[node] = 1;
            attach(net, node, root);
        } else {
            net->at[edge] = 0;
            net->depth[node] = 2;
            net->potential[node] = -net->gain[edge];
            attach(net, node, net->tail[edge]);
        }
    }
}

/* Gain of a unit of flow on an edge, or of removing the flow if the edge is taken. Slack edges are
   numbered after all other edges, by node. */
static int64_t worth_of(const Network *net, int32_t edge)
{
    if (edge < net->n_edges)
        return net->at[edge] * (net->gain[edge] - net->potential[net->tail[edge]] +
                                net->potential[net->head[edge]]);
    int32_t node = edge - net->n_edges;
    if (net->via[node] == SLACK)
        return 0;
    return node < net->n_rows ? -net->potential[node] : net->potential[node];
}

/* The edge that helps most, in the first block with such an edge, from `position` on; or NONE. */
static int32_t entering(const Network *net, int32_t *position, int64_t *rise)
{
    int32_t total = net->n_edges + net->n_nodes, enter = NONE;
    int32_t block = (int32_t)sqrt(total);
    if (block < LEAST_BLOCK)
        block = LEAST_BLOCK;
    *rise = 0;
    for (int32_t seen = 0; seen < total && enter == NONE;) {
        int32_t end = seen + block < total ? seen + block : total;
        for (; seen < end; seen++) {
            int64_t worth = worth_of(net, *position);
            if (worth > *rise) {
                *rise = worth;
                enter = *position;
            }
            if (++*position == total)
                *position = 0;
        }
    }
    return enter;
}

/* The cycle that an edge closes with the tree: from the join to `first`, over the edge to `second`,
   and back. */
typedef struct {
    int32_t enter, first, second, join;
} Cycle;

static Cycle cycle_of(const Network *net, int32_t enter)
{
    Cycle cycle = {.enter = enter};
    if (enter >= net->n_edges) {
        int32_t node = enter - net->n_edges, root = net->n_nodes;
        cycle.first = node < net->n_rows ? node : root;
        cycle.second = node < net->n_rows ? root : node;
    } else {
        cycle.first = net->at[enter] > 0 ? net->tail[enter] : net->head[enter];
        cycle.second = net->at[enter] > 0 ? net->head[enter] : net->tail[enter];
    }
    int32_t one = cycle.first, other = cycle.second;
    while (one != other) {
        if (net->depth[one] >= net->depth[other])
            one = net->parent[one];
        else
            other = net->parent[other];
    }
    cycle.join = one;
    return cycle;
}

/* Whether the edge between a node and its parent runs towards the root. */
static bool runs_up(const Network *net, int32_t node)
{
    int32_t edge = net->via[node];
    return edge == SLACK ? node < net->n_rows : net->tail[edge] == node;
}

/* How much more flow the edge above a node takes towards the root, or away from the root. */
static int64_t room_above(const Network *net, int32_t node, bool upwards)
{
    int32_t edge = net->via[node];
    if (runs_up(net, node) == upwards)
        return edge == SLACK ? UNLIMITED : 1 - net->flow[edge];
    return edge == SLACK ? net->spare[node] : net->flow[edge];
}

typedef enum { ENTERING_EDGE, TOWARDS_FIRST, FROM_SECOND } Side;

/* The node below the last edge around the cycle, from the join on, among the edges that limit the
   flow most. Such a choice keeps the tree strongly feasible. */
static int32_t leaving(const Network *net, const Cycle *cycle, Side *side, int64_t *step)
{
    int32_t leave = NONE;
    *step = cycle->enter < net->n_edges ? 1 : UNLIMITED;
    *side = ENTERING_EDGE;
    for (int32_t node = cycle->first; node != cycle->join; node = net->parent[node]) {
        int64_t room = room_above(net, node, false);
        if (room < *step) {
            *step = room;
            *side = TOWARDS_FIRST;
            leave = node;
        }
    }
    for (int32_t node = cycle->second; node != cycle->join; node = net->parent[node]) {
        int64_t room = room_above(net, node, true);
        if (room <= *step) {
            *step = room;
            *side = FROM_SECOND;
            leave = node;
        }
    }
    return leave;
}

static void add_above(Network *net, int32_t node, int64_t upwards)
{
    int64_t change = runs_up(net, node) ? upwards : -upwards;
    if (net->via[node] == SLACK)
        net->spare[node] += change;
    else
        net->flow[net->via[node]] += (int8_t)change;
}

static void push(Network *net, const Cycle *cycle, int64_t step)
{
    if (cycle->enter < net->n_edges)
        net->flow[cycle->enter] += (int8_t)(step * net->at[cycle->enter]);
    else
        net->spare[cycle->enter - net->n_edges] += step;
    for (int32_t node = cycle->first; node != cycle->join; node = net->parent[node])
        add_above(net, node, -step);
    for (int32_t node = cycle->second; node != cycle->join; node = net->parent[node])
        add_above(net, node, step);
}

/* Corrects depth and potential of a moved subtree. */
static void shift(Network *net, int32_t top, int64_t change)
{
    for (int32_t node = top;;) {
        net->potential[node] += change;
        net->depth[node] = net->depth[net->parent[node]] + 1;
        if (net->child[node] != NONE) {
            node = net->child[node];
            continue;
        }
        while (node != top && net->following[node] == NONE)
            node = net->parent[node];
        if (node == top)
            return;
        node = net->following[node];
    }
}

/* Moves the subtree cut off by the leaving edge, with `top` as its end of the entering edge, to the
   other end, `above`. */
static void rehang(Network *net, int32_t enter, int32_t leave, int32_t top, int32_t above)
{
    int32_t old = net->via[leave], via = SLACK;
    if (old != SLACK)
        net->at[old] = net->flow[old] ? -1 : 1;
    if (enter < net->n_edges) {
        net->at[enter] = 0;
        via = enter;
    }
    for (int32_t node = top;;) {
        int32_t old_parent = net->parent[node], old_via = net->via[node];
        detach(net, node);
        net->via[node] = via;
        attach(net, node, above);
        if (node == leave)
            return;
        above = node;
        via = old_via;
        node = old_parent;
    }
}

void improve(Network *net)
{
    int32_t position = 0, enter;
    int64_t rise;
    while ((enter = entering(net, &position, &rise)) != NONE) {
        Cycle cycle = cycle_of(net, enter);
        Side side;
        int64_t step;
        int32_t leave = leaving(net, &cycle, &side, &step);
        if (step > 0)
            push(net, &cycle, step);
        if (side == ENTERING_EDGE) {
            net->at[enter] = -net->at[enter];
        } else if (side == TOWARDS_FIRST) {
            rehang(net, enter, leave, cycle.first, cycle.second);
            shift(net, cycle.first, rise);
        } else {
            rehang(net, enter, leave, cycle.second, cycle.first);
            shift(net, cycle.second, -rise);
        }
    }
}
