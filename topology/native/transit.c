#include "transit.h"

#include <stdlib.h>

/* The circuits of a VLAN as a graph on racks, grown circuit by circuit. */
typedef struct {
    const Change *change;
    int32_t *parent;   /* per rack: towards the root of its component */
    int32_t *first;    /* per rack: its first arc, or -1 */
    int32_t *next_arc; /* per arc */
    int32_t *circuit;  /* per arc */
    int32_t *to;       /* per arc: a rack */
    int32_t n_arcs;
    int32_t *seen; /* per rack: number of the last search at the rack, and one more from the goal */
    int32_t search;
    int32_t *queue; /* racks reached from the start, then racks reached from the goal */
} Graph;

static int32_t root(Graph *g, int32_t rack)
{
    while (g->parent[rack] != rack) {
        g->parent[rack] = g->parent[g->parent[rack]];
        rack = g->parent[rack];
    }
    return rack;
}

static void clear(Graph *g)
{
    g->n_arcs = 0;
    for (int32_t rack = 0; rack < g->change->n_racks; rack++) {
        g->parent[rack] = rack;
        g->first[rack] = -1;
    }
}

static void add_arc(Graph *g, int32_t from, int32_t to, int32_t circuit)
{
    int32_t arc = g->n_arcs++;
    g->next_arc[arc] = g->first[from];
    g->circuit[arc] = circuit;
    g->to[arc] = to;
    g->first[from] = arc;
}

static bool closes_loop(Graph *g, int32_t circuit)
{
    const Change *change = g->change;
    int32_t a = change->a[circuit], b = change->b[circuit];
    int32_t from = change->port_rack[a], goal = change->port_rack[b];
    if (root(g, from) != root(g, goal))
        return false;
    /* From both racks in turn: the search ends with the smaller side. */
    int32_t racks = change->n_racks, done[2] = {0, racks}, found[2] = {1, racks + 1};
    g->search += 2;
    g->seen[g->queue[0] = from] = g->search;
    g->seen[g->queue[racks] = goal] = g->search + 1;
    for (int32_t side = 0; done[side] < found[side]; side ^= 1)
        for (int32_t arc = g->first[g->queue[done[side]++]]; arc >= 0; arc = g->next_arc[arc]) {
            int32_t other_a = change->a[g->circuit[arc]], other_b = change->b[g->circuit[arc]];
            if (other_a == a || other_a == b || other_b == a || other_b == b)
                continue;
            int32_t to = g->to[arc];
            if (g->seen[to] == g->search + (side ^ 1))
                return true;
            if (g->seen[to] != g->search + side) {
                g->seen[to] = g->search + side;
                g->queue[found[side]++] = to;
            }
        }
    return false;
}

static void add(Graph *g, int32_t circuit)
{
    int32_t one = g->change->port_rack[g->change->a[circuit]];
    int32_t other = g->change->port_rack[g->change->b[circuit]];
    add_arc(g, one, other, circuit);
    add_arc(g, other, one, circuit);
    g->parent[root(g, one)] = root(g, other);
}

void carry_vlans(VlanPaths paths, PortVlans ports)
{
    for (int32_t path = 0; path < paths.count; path++)
        for (int32_t h = paths.start[path]; h < paths.start[path + 1]; h++) {
            put(ports.sets + (size_t)paths.hop_a[h] * ports.words, paths.vlan[path]);
            put(ports.sets + (size_t)paths.hop_b[h] * ports.words, paths.vlan[path]);
        }
}

/* VLANs, of those of a word, on both ports of a circuit that is not held back. */
static word shared(const Change *change, PortVlans ports, const uint8_t *is_held, int32_t circuit,
                   int32_t of_word)
{
    if (is_held[circuit])
        return 0;
    return ports.sets[(size_t)change->a[circuit] * ports.words + of_word] &
           ports.sets[(size_t)change->b[circuit] * ports.words + of_word];
}

static void hold_in_vlan(Graph *g, const int32_t *circuits, int32_t count, uint8_t *is_held)
{
    clear(g);
    for (int32_t i = 0; i < count; i++) {
        int32_t circuit = circuits[i];
        if (is_held[circuit])
            continue;
        if (!g->change->is_fixed[circuit] && closes_loop(g, circuit))
            is_held[circuit] = 1;
        else
            add(g, circuit);
    }
}

/* The VLANs of a word, lowest first. False if memory runs out. */
static bool hold_in_word(Graph *g, PortVlans ports, int32_t of_word, uint8_t *is_held)
{
    int32_t start[WORD_BITS + 1] = {0}, total = 0, filled[WORD_BITS];
    for (int32_t c = 0; c < g->change->n_circuits; c++)
        for (word w = shared(g->change, ports, is_held, c, of_word); w; w &= w - 1)
            start[lowest(w) + 1]++;
    for (int32_t v = 0; v < WORD_BITS; v++) {
        filled[v] = total;
        total = start[v + 1] += total;
    }
    int32_t *circuits = malloc((total ? total : 1) * sizeof(int32_t));
    if (!circuits)
        return false;
    for (int32_t c = 0; c < g->change->n_circuits; c++)
        for (word w = shared(g->change, ports, is_held, c, of_word); w; w &= w - 1)
            circuits[filled[lowest(w)]++] = c;
    for (int32_t v = 0; v < WORD_BITS; v++)
        if (start[v + 1] > start[v])
            hold_in_vlan(g, circuits + start[v], start[v + 1] - start[v], is_held);
    free(circuits);
    return true;
}

bool hold_circuits_back(const Change *change, PortVlans ports, uint8_t *is_held)
{
    size_t racks = change->n_racks ? change->n_racks : 1;
    size_t arcs = 2 * (size_t)(change->n_circuits ? change->n_circuits : 1);
    Graph g = {.change = change};
    g.parent = malloc(racks * sizeof(int32_t));
    g.first = malloc(racks * sizeof(int32_t));
    g.seen = calloc(racks, sizeof(int32_t));
    g.queue = malloc(2 * racks * sizeof(int32_t));
    g.next_arc = malloc(arcs * sizeof(int32_t));
    g.circuit = malloc(arcs * sizeof(int32_t));
    g.to = malloc(arcs * sizeof(int32_t));
    bool ready = g.parent && g.first && g.seen && g.queue && g.next_arc && g.circuit && g.to;
    for (int32_t w = 0; ready && w < ports.words; w++)
        ready = hold_in_word(&g, ports, w, is_held);
    free(g.parent);
    free(g.first);
    free(g.seen);
    free(g.queue);
    free(g.next_arc);
    free(g.circuit);
    free(g.to);
    return ready;
}
