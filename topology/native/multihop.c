#include "multihop.h"

#include <stdlib.h>
#include <string.h>

#include "bits.h"

/* A pair's requirement for every hop. */
typedef struct {
    double mbps; /* 0: anything above zero will do */
    int32_t port_class;
    bool detour; /* the pair may have no new circuit of its own */
} Need;

/* The auxiliary graph: racks are joined by free ports on a plane of both, and by links with
   capacity left. The graph only ever loses edges, so a pair not joined by h hops is never joined by
   h later. */
typedef struct {
    const Wiring *wiring;
    int32_t rack_words, plane_words;
    bool *is_free;       /* per port */
    int32_t *port_start; /* ports in order of rack, plane and number: (rack, plane) begins here */
    int32_t *port_order;
    word *racks_on;  /* (class, plane): racks with a free port of the class or a faster class */
    word *planes_of; /* (class, rack): the same the other way round */
    word *open;      /* (class): racks with any such port */
    Plan *plan;
    int32_t *slot_start; /* per rack: as many slots for links as ports */
    int32_t *slot_count;
    int32_t *slot_link, *slot_peer;
    bool *has_twins; /* per rack: two links lead to the same rack */
    word *live; /* per rack: its neighbours over links with anything left */
    CircuitList preferred;
    int32_t *preferred_next; /* the next of the same lower rack, or -1 */
    int32_t *preferred_first;
    int32_t *direct_left; /* per rack: ports still open to round 1 */
    word *relays;          /* racks open to relaying */
    word *near, *near_dst; /* scratch: sets of racks */
    word *level;           /* scratch: a set of racks per hop */
    word *level_planes;
    double *width_src, *width_dst; /* scratch: most left on a link to each rack */
    int32_t *racks;                /* the path found last */
} Graph;

/* ---- memory ----------------------------------------------------------------------------------- */

static void *zeroed(bool *failed, size_t count, size_t size)
{
    void *memory = calloc(count ? count : 1, size);
    *failed |= memory == NULL;
    return memory;
}

#define ZEROED(failed, pointer, count) ((pointer) = zeroed(failed, count, sizeof *(pointer)))

static void release(Graph *g)
{
    void *all[] = {
        g->is_free,         g->port_start,   g->port_order, g->racks_on,  g->planes_of, g->open,
        g->slot_start,      g->slot_count,   g->slot_link,  g->slot_peer, g->live,
        g->preferred_next,  g->direct_left,  g->relays,     g->near,      g->near_dst,  g->level,
        g->preferred_first, g->level_planes, g->width_src,  g->width_dst, g->racks, g->has_twins,
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

static bool acquire(Graph *g, const Wiring *w, int32_t n_preferred, int32_t max_hops)
{
    size_t racks = w->n_racks, planes = w->n_planes, ports = w->n_ports, classes = w->n_classes;
    bool failed = false;
    g->wiring = w;
    g->rack_words = words_for(w->n_racks);
    g->plane_words = words_for(w->n_planes);
    ZEROED(&failed, g->is_free, ports);
    ZEROED(&failed, g->port_start, racks * planes + 1);
    ZEROED(&failed, g->port_order, ports);
    ZEROED(&failed, g->racks_on, classes * planes * g->rack_words);
    ZEROED(&failed, g->planes_of, classes * racks * g->plane_words);
    ZEROED(&failed, g->open, classes * g->rack_words);
    ZEROED(&failed, g->slot_start, racks + 1);
    ZEROED(&failed, g->slot_count, racks);
    ZEROED(&failed, g->slot_link, ports);
    ZEROED(&failed, g->has_twins, racks);
    ZEROED(&failed, g->slot_peer, ports);
    ZEROED(&failed, g->live, racks * g->rack_words);
    ZEROED(&failed, g->preferred_next, n_preferred);
    ZEROED(&failed, g->preferred_first, racks);
    ZEROED(&failed, g->direct_left, racks);
    ZEROED(&failed, g->relays, g->rack_words);
    ZEROED(&failed, g->near, g->rack_words);
    ZEROED(&failed, g->near_dst, g->rack_words);
    ZEROED(&failed, g->level, (size_t)max_hops * g->rack_words);
    ZEROED(&failed, g->level_planes, g->plane_words);
    ZEROED(&failed, g->width_src, racks);
    ZEROED(&failed, g->width_dst, racks);
    ZEROED(&failed, g->racks, (size_t)max_hops + 1);
    return !failed;
}

/* ---- free ports ------------------------------------------------------------------------------- */

static word *racks_on(const Graph *g, int32_t class, int32_t plane)
{
    return g->racks_on + ((size_t)class * g->wiring->n_planes + plane) * g->rack_words;
}

static word *planes_of(const Graph *g, int32_t class, int32_t rack)
{
    return g->planes_of + ((size_t)class * g->wiring->n_racks + rack) * g->plane_words;
}

static word *open_racks(const Graph *g, int32_t class)
{
    return g->open + (size_t)class * g->rack_words;
}

/* The lowest free port of the class or a faster class, or -1. */
static int32_t first_free(const Graph *g, int32_t rack, int32_t plane, int32_t class)
{
    size_t at = (size_t)rack * g->wiring->n_planes + plane;
    for (int32_t i = g->port_start[at]; i < g->port_start[at + 1]; i++) {
        int32_t port = g->port_order[i];
        if (g->is_free[port] && g->wiring->port_class[port] >= class)
            return port;
    }
    return -1;
}

static int32_t count_free(const Graph *g, int32_t rack, int32_t plane, int32_t class)
{
    size_t at = (size_t)rack * g->wiring->n_planes + plane;
    int32_t count = 0;
    for (int32_t i = g->port_start[at]; i < g->port_start[at + 1]; i++)
        count += g->is_free[g->port_order[i]] &&
                 g->wiring->port_class[g->port_order[i]] >= class;
    return count;
}

static void free_port(Graph *g, int32_t port)
{
    int32_t rack = g->wiring->port_rack[port], plane = g->wiring->port_plane[port];
    g->is_free[port] = true;
    for (int32_t class = 0; class <= g->wiring->port_class[port]; class++) {
        put(racks_on(g, class, plane), rack);
        put(planes_of(g, class, rack), plane);
        put(open_racks(g, class), rack);
    }
}

static void take_port(Graph *g, int32_t port)
{
    int32_t rack = g->wiring->port_rack[port], plane = g->wiring->port_plane[port];
    g->is_free[port] = false;
    for (int32_t class = g->wiring->port_class[port]; class >= 0; class--) {
        if (first_free(g, rack, plane, class) >= 0)
            break;
        drop(racks_on(g, class, plane), rack);
        drop(planes_of(g, class, rack), plane);
        if (next_in(planes_of(g, class, rack), 0, g->plane_words) < 0)
            drop(open_racks(g, class), rack);
    }
}

static void order_ports(Graph *g, const uint8_t *is_free)
{
    const Wiring *w = g->wiring;
    size_t groups = (size_t)w->n_racks * w->n_planes;
    for (int32_t port = 0; port < w->n_ports; port++)
        g->port_start[(size_t)w->port_rack[port] * w->n_planes + w->port_plane[port] + 1]++;
    for (size_t group = 0; group < groups; group++)
        g->port_start[group + 1] += g->port_start[group];
    for (int32_t port = w->n_ports - 1; port >= 0; port--) {
        size_t group = (size_t)w->port_rack[port] * w->n_planes + w->port_plane[port];
        /* Filled from the back: the counts of later groups are the ends of this group. */
        g->port_order[--g->port_start[group + 1]] = port;
    }
    /* Each start moved to its own group's begin, one place too far to the right. */
    memmove(g->port_start, g->port_start + 1, groups * sizeof *g->port_start);
    g->port_start[groups] = w->n_ports;
    for (int32_t rack = 0; rack < w->n_racks; rack++)
        g->slot_start[rack + 1] = g->port_start[((size_t)rack + 1) * w->n_planes];
    for (int32_t port = 0; port < w->n_ports; port++)
        if (is_free[port])
            free_port(g, port);
}

/* ---- links ------------------------------------------------------------------------------------ */

static bool usable(double residual_mbps) { return residual_mbps > RATE_TOLERANCE_MBPS; }

static word *live_of(const Graph *g, int32_t rack) { return g->live + (size_t)rack * g->rack_words; }

/* Among the links of two racks the link with the most left, the oldest if equal; or -1. */
static int32_t best_link(const Graph *g, int32_t here, int32_t there)
{
    const double *residual = g->plan->residual_mbps;
    int32_t best = -1;
    for (int32_t s = g->slot_start[here]; s < g->slot_start[here] + g->slot_count[here]; s++) {
        int32_t link = g->slot_link[s];
        if (g->slot_peer[s] == there && (best < 0 || residual[link] > residual[best])) {
            best = link;
            if (!g->has_twins[here])
                break;
        }
    }
    return best;
}

static void refresh(Graph *g, int32_t here, int32_t there)
{
    int32_t best = best_link(g, here, there);
    if (best >= 0 && usable(g->plan->residual_mbps[best])) {
        put(live_of(g, here), there);
        put(live_of(g, there), here);
    } else {
        drop(live_of(g, here), there);
        drop(live_of(g, there), here);
    }
}

/* False if more links end at a rack than the rack has ports. */
static bool add_slot(Graph *g, int32_t here, int32_t there, int32_t link)
{
    int32_t slot = g->slot_start[here] + g->slot_count[here];
    if (slot == g->slot_start[here + 1])
        return false;
    g->has_twins[here] |= best_link(g, here, there) >= 0;
    g->slot_count[here]++;
    g->slot_link[slot] = link;
    g->slot_peer[slot] = there;
    return true;
}

static bool join(Graph *g, int32_t link)
{
    int32_t here = g->wiring->port_rack[g->plan->link_a[link]];
    int32_t there = g->wiring->port_rack[g->plan->link_b[link]];
    if (!add_slot(g, here, there, link) || !add_slot(g, there, here, link))
        return false;
    refresh(g, here, there);
    return true;
}

static void chain_preferred(Graph *g, CircuitList preferred)
{
    g->preferred = preferred;
    for (int32_t rack = 0; rack < g->wiring->n_racks; rack++)
        g->preferred_first[rack] = -1;
    for (int32_t i = preferred.count - 1; i >= 0; i--) {
        int32_t a = g->wiring->port_rack[preferred.a[i]], b = g->wiring->port_rack[preferred.b[i]];
        int32_t lower = a < b ? a : b;
        g->preferred_next[i] = g->preferred_first[lower];
        g->preferred_first[lower] = i;
    }
}

/* Ports for a new circuit between two racks, written to ends[]; false without. */
static bool choose_ports(const Graph *g, int32_t here, int32_t there, int32_t class, int32_t ends[2])
{
    const int32_t *rack_of = g->wiring->port_rack, *class_of = g->wiring->port_class;
    int32_t plane =
        first_common(planes_of(g, class, here), planes_of(g, class, there), g->plane_words);
    if (plane < 0)
        return false;
    int32_t lower = here < there ? here : there, higher = here < there ? there : here;
    for (int32_t i = g->preferred_first[lower]; i >= 0; i = g->preferred_next[i]) {
        int32_t a = g->preferred.a[i], b = g->preferred.b[i];
        bool joins = rack_of[a] == higher || rack_of[b] == higher;
        if (joins && g->is_free[a] && g->is_free[b] && class_of[a] >= class &&
            class_of[b] >= class) {
            ends[0] = a;
            ends[1] = b;
            return true;
        }
    }
    int32_t one = first_free(g, here, plane, class), other = first_free(g, there, plane, class);
    ends[0] = one < other ? one : other;
    ends[1] = one < other ? other : one;
    return true;
}

static double rate_between(const Graph *g, const int32_t ends[2])
{
    double a = g->wiring->port_mbps[ends[0]], b = g->wiring->port_mbps[ends[1]];
    return a < b ? a : b;
}

static int32_t new_link(Graph *g, const int32_t ends[2])
{
    int32_t link = g->plan->n_links++;
    g->plan->link_a[link] = ends[0];
    g->plan->link_b[link] = ends[1];
    g->plan->residual_mbps[link] = rate_between(g, ends);
    take_port(g, ends[0]);
    take_port(g, ends[1]);
    return join(g, link) ? link : -1;
}

/* ---- searches --------------------------------------------------------------------------------- */

static void add_neighbours(const Graph *g, int32_t rack, Need need, word *found)
{
    FOR_EACH(plane, planes_of(g, need.port_class, rack), g->plane_words)
        add_all(found, racks_on(g, need.port_class, plane), g->rack_words);
    if (need.mbps <= 0) {
        add_all(found, live_of(g, rack), g->rack_words);
        return;
    }
    double enough = need.mbps - RATE_TOLERANCE_MBPS;
    for (int32_t s = g->slot_start[rack]; s < g->slot_start[rack] + g->slot_count[rack]; s++)
        if (g->plan->residual_mbps[g->slot_link[s]] >= enough)
            put(found, g->slot_peer[s]);
}

/* Whether a rack is one hop from any of a set, given with the planes of its free ports. */
static bool touches(const Graph *g, int32_t rack, const word *set, const word *set_planes, Need need)
{
    if (meet(planes_of(g, need.port_class, rack), set_planes, g->plane_words))
        return true;
    if (need.mbps <= 0)
        return meet(live_of(g, rack), set, g->rack_words);
    double enough = need.mbps - RATE_TOLERANCE_MBPS;
    for (int32_t s = g->slot_start[rack]; s < g->slot_start[rack] + g->slot_count[rack]; s++)
        if (has(set, g->slot_peer[s]) && g->plan->residual_mbps[g->slot_link[s]] >= enough)
            return true;
    return false;
}

static bool joined_by_link(const Graph *g, int32_t src, int32_t dst, Need need)
{
    if (need.mbps <= 0)
        return has(live_of(g, src), dst);
    int32_t best = best_link(g, src, dst);
    return best >= 0 && g->plan->residual_mbps[best] >= need.mbps - RATE_TOLERANCE_MBPS;
}

static bool joinable(const Graph *g, int32_t src, int32_t dst, int32_t class)
{
    return meet(planes_of(g, class, src), planes_of(g, class, dst), g->plane_words);
}

/* Both ends' neighbours that may relay, into g->near and g->near_dst, without the ends. */
static void look_around(Graph *g, int32_t src, int32_t dst, Need need)
{
    memset(g->near, 0, g->rack_words * sizeof *g->near);
    memset(g->near_dst, 0, g->rack_words * sizeof *g->near_dst);
    add_neighbours(g, src, need, g->near);
    add_neighbours(g, dst, need, g->near_dst);
    keep_all(g->near, g->relays, g->rack_words);
    keep_all(g->near_dst, g->relays, g->rack_words);
    drop(g->near, src);
    drop(g->near, dst);
    drop(g->near_dst, src);
    drop(g->near_dst, dst);
}

/* Whether every hop of the path in g->racks is possible, when each hop may take a port of a relay
   that the next hop needs. Only between racks kept apart, a hop can be impossible. */
static bool bookable(const Graph *g, int32_t hops, Need need)
{
    for (int32_t i = 1; i < hops; i++) {
        int32_t before = g->racks[i - 1], relay = g->racks[i], after = g->racks[i + 1];
        if (joined_by_link(g, relay, after, need))
            continue;
        int32_t ports = 0;
        bool contested = true;
        FOR_EACH(plane, planes_of(g, need.port_class, relay), g->plane_words)
            if (has(planes_of(g, need.port_class, after), plane)) {
                ports += count_free(g, relay, plane, need.port_class);
                contested &= has(planes_of(g, need.port_class, before), plane);
            }
        if (contested && ports < 2)
            return false;
    }
    return true;
}

static word *level(const Graph *g, int32_t distance)
{
    return g->level + (size_t)(distance - 1) * g->rack_words;
}

/* The racks at 1 .. distance hops from dst, a level each. Needs look_around() before. */
static void grow_levels(Graph *g, int32_t src, int32_t dst, int32_t distance, Need need)
{
    size_t size = g->rack_words * sizeof(word);
    memcpy(level(g, 1), g->near_dst, size);
    for (int32_t d = 2; d <= distance; d++) {
        memset(level(g, d), 0, size);
        FOR_EACH(rack, level(g, d - 1), g->rack_words)
            add_neighbours(g, rack, need, level(g, d));
        keep_all(level(g, d), g->relays, g->rack_words);
        drop(level(g, d), src);
        drop(level(g, d), dst);
        for (int32_t seen = 1; seen < d; seen++)
            drop_all(level(g, d), level(g, seen), g->rack_words);
    }
}

/* The planes of free ports of a set of racks, into g->level_planes. */
static void find_planes(Graph *g, const word *set, int32_t class)
{
    const word *open = open_racks(g, class);
    memset(g->level_planes, 0, g->plane_words * sizeof *g->level_planes);
    for (int32_t w = 0; w < g->rack_words; w++)
        for (word left = set[w] & open[w]; left; left &= left - 1)
            add_all(g->level_planes, planes_of(g, class, w * WORD_BITS + lowest(left)),
                    g->plane_words);
}

/* The lexicographically smallest path of exactly `hops` >= 3 hops between racks not joined by
   fewer, into g->racks. Levels grow from dst, so that a walk from src can descend them. */
static bool find_far(Graph *g, int32_t src, int32_t dst, int32_t hops, Need need)
{
    grow_levels(g, src, dst, hops - 2, need);
    if (need.detour) /* fewer hops may join the racks, over a relay whose last port both want */
        for (int32_t d = 1; d <= hops - 2; d++)
            drop_all(g->near, level(g, d), g->rack_words);
    for (int32_t step = 1; step < hops - 1; step++) {
        const word *goal = level(g, hops - 1 - step);
        find_planes(g, goal, need.port_class);
        int32_t next = -1;
        FOR_EACH(rack, g->near, g->rack_words)
            if (touches(g, rack, goal, g->level_planes, need)) {
                next = rack;
                break;
            }
        if (next < 0)
            return false;
        g->racks[step] = next;
        memset(g->near, 0, g->rack_words * sizeof *g->near);
        add_neighbours(g, next, need, g->near);
        keep_all(g->near, g->relays, g->rack_words);
    }
    g->racks[hops - 1] = first_common(g->near, level(g, 1), g->rack_words);
    return true;
}

/* The most left on a link to each rack, and the racks for which that is enough. */
static void measure_widths(const Graph *g, int32_t rack, double enough, double *width, word *wide)
{
    memset(wide, 0, g->rack_words * sizeof *wide);
    for (int32_t s = g->slot_start[rack]; s < g->slot_start[rack] + g->slot_count[rack]; s++) {
        double residual = g->plan->residual_mbps[g->slot_link[s]];
        if (residual > width[g->slot_peer[s]])
            width[g->slot_peer[s]] = residual;
        if (residual >= enough)
            put(wide, g->slot_peer[s]);
    }
    keep_all(wide, g->relays, g->rack_words);
}

static void forget_widths(const Graph *g, int32_t rack, double *width)
{
    for (int32_t s = g->slot_start[rack]; s < g->slot_start[rack] + g->slot_count[rack]; s++)
        width[g->slot_peer[s]] = 0;
}

static double lesser(double one, double other) { return one < other ? one : other; }

/* The widest path found so far, in g->racks; a path with less than `enough` is none. */
typedef struct {
    bool found;
    double enough, mbps;
} Widest;

static bool widens(const Widest *widest, double mbps)
{
    return widest->found ? mbps > widest->mbps : mbps >= widest->enough;
}

/* Through g->near, the racks with a wide enough link to src. */
static void widest_of_two(Graph *g, Widest *widest)
{
    FOR_EACH(relay, g->near, g->rack_words) {
        double mbps = lesser(g->width_src[relay], g->width_dst[relay]);
        if (widens(widest, mbps)) {
            *widest = (Widest){true, widest->enough, mbps};
            g->racks[1] = relay;
        }
    }
}

/* Through g->near, and then g->near_dst, the racks with a wide enough link to dst. */
static void widest_of_three(Graph *g, Widest *widest)
{
    FOR_EACH(relay, g->near, g->rack_words) {
        double first = g->width_src[relay];
        if (!widens(widest, first) || !meet(live_of(g, relay), g->near_dst, g->rack_words))
            continue;
        int32_t end = g->slot_start[relay] + g->slot_count[relay];
        for (int32_t s = g->slot_start[relay]; s < end; s++) {
            int32_t second = g->slot_peer[s];
            if (!has(g->near_dst, second))
                continue;
            double last = lesser(g->plan->residual_mbps[g->slot_link[s]], g->width_dst[second]);
            if (widens(widest, lesser(first, last))) {
                *widest = (Widest){true, widest->enough, lesser(first, last)};
                g->racks[1] = relay;
                g->racks[2] = second;
            }
        }
    }
}

/* Among the paths of two or three existing links with the whole demand left, the path whose
   scarcest link has the most left, into g->racks; of equal paths the first by relays. False if
   there is none. The racks must not be joined by fewer hops, so that no such path comes back to its
   ends. */
static bool find_widest(Graph *g, int32_t src, int32_t dst, int32_t hops, double wanted_mbps)
{
    double enough = wanted_mbps - RATE_TOLERANCE_MBPS;
    Widest widest = {.enough = enough > RATE_TOLERANCE_MBPS ? enough : RATE_TOLERANCE_MBPS};
    measure_widths(g, src, widest.enough, g->width_src, g->near);
    measure_widths(g, dst, widest.enough, g->width_dst, g->near_dst);
    if (hops == 2)
        widest_of_two(g, &widest);
    else
        widest_of_three(g, &widest);
    forget_widths(g, src, g->width_src);
    forget_widths(g, dst, g->width_dst);
    return widest.found;
}

/* ---- booking ---------------------------------------------------------------------------------- */

/* A link for a hop: a link with the whole demand left, else a new link, else any capacity left. A
   new link has ports of the class `wanted` or a faster class, else the fastest free ports, of
   `class` or more. */
static int32_t hop(Graph *g, int32_t here, int32_t there, double wanted_mbps, int32_t wanted,
                   int32_t class)
{
    int32_t ends[2];
    int32_t best = best_link(g, here, there);
    if (best >= 0 && g->plan->residual_mbps[best] >= wanted_mbps - RATE_TOLERANCE_MBPS)
        return best;
    for (; wanted >= class; wanted--)
        if (choose_ports(g, here, there, wanted, ends))
            return new_link(g, ends);
    return best;
}

/* Sets up the missing hops of the path in g->racks and takes the capacity. Two new hops that
   meet at a relay can't want its last port on a plane: then both outer racks had a free port on
   the plane, and the path through the relay would not be a shortest path. False if both want the
   port. */
static bool book(Graph *g, PairList pairs, int32_t pair, int32_t hops, int32_t max_hops, Need need)
{
    Plan *plan = g->plan;
    double given = pairs.mbps[pair];
    int32_t fastest = g->wiring->n_classes - 2;
    int32_t wanted = pairs.port_class[pair] < fastest ? pairs.port_class[pair] : fastest;
    int32_t *links = plan->path_links + (size_t)plan->n_paths * max_hops;
    for (int32_t i = 0; i < hops; i++) {
        links[i] = hop(g, g->racks[i], g->racks[i + 1], pairs.mbps[pair], wanted, need.port_class);
        if (links[i] < 0)
            return false;
        given = lesser(given, plan->residual_mbps[links[i]]);
    }
    for (int32_t i = 0; i < hops; i++) {
        plan->residual_mbps[links[i]] -= given;
        if (!usable(plan->residual_mbps[links[i]]))
            refresh(g, g->racks[i], g->racks[i + 1]);
    }
    plan->path_pair[plan->n_paths] = pair;
    plan->path_hops[plan->n_paths] = hops;
    plan->path_mbps[plan->n_paths] = given;
    plan->n_paths++;
    return true;
}

/* ---- rounds ----------------------------------------------------------------------------------- */

static bool find(Graph *g, int32_t src, int32_t dst, int32_t hops, Need need, double wanted_mbps,
                 bool widest)
{
    g->racks[0] = src;
    g->racks[hops] = dst;
    if (hops == 1)
        return (!need.detour && joinable(g, src, dst, need.port_class)) ||
               joined_by_link(g, src, dst, need);
    if (widest && hops <= 3 && find_widest(g, src, dst, hops, wanted_mbps))
        return true;
    look_around(g, src, dst, need);
    if (hops > 2)
        return find_far(g, src, dst, hops, need) && (!need.detour || bookable(g, hops, need));
    keep_all(g->near, g->near_dst, g->rack_words);
    FOR_EACH(relay, g->near, g->rack_words) {
        g->racks[1] = relay;
        if (!need.detour || bookable(g, 2, need))
            return true;
    }
    return false;
}

/* Round 1 leaves ports for later rounds where the rules say so. */
static bool direct_allowed(Graph *g, int32_t src, int32_t dst, Need need)
{
    if (joined_by_link(g, src, dst, need))
        return true;
    if (!g->direct_left[src] || !g->direct_left[dst])
        return false;
    g->direct_left[src]--;
    g->direct_left[dst]--;
    return true;
}

typedef enum { WAITS, SERVED, BROKEN } Fate;

static Fate serve(Graph *g, PairList pairs, int32_t pair, int32_t round, Need need,
                  const Rules *rules)
{
    int32_t src = pairs.src[pair], dst = pairs.dst[pair];
    int32_t hops = round;
    if (round == 2 && find(g, src, dst, 1, need, pairs.mbps[pair], false))
        hops = 1; /* turned away by round 1 */
    else if (!find(g, src, dst, hops, need, pairs.mbps[pair], rules->widest))
        return WAITS;
    if (round == 1 && !direct_allowed(g, src, dst, need))
        return WAITS;
    return book(g, pairs, pair, hops, rules->max_hops, need) ? SERVED : BROKEN;
}

/* Rounds h = 1 .. max_hops over the waiting pairs, `*count` of them; leaves pairs still waiting.
   False for a defect. */
static bool run_rounds(Graph *g, PairList pairs, int32_t *waiting, int32_t *count, bool whole,
                       const Rules *rules)
{
    for (int32_t round = 1; round <= rules->max_hops; round++) {
        int32_t left_over = 0;
        for (int32_t i = 0; i < *count; i++) {
            int32_t pair = waiting[i];
            bool scarce = !has(g->relays, pairs.src[pair]) && !has(g->relays, pairs.dst[pair]);
            bool fills = pairs.port_class[pair] == g->wiring->n_classes - 1;
            Need need = {whole ? pairs.mbps[pair] : 0, whole ? pairs.port_class[pair] : 0,
                         scarce && !fills};
            Fate fate = serve(g, pairs, pair, round, need, rules);
            if (fate == BROKEN)
                return false;
            if (fate == WAITS)
                waiting[left_over++] = pair;
        }
        *count = left_over;
    }
    return true;
}

static bool set_up(Graph *g, const uint8_t *is_free, CircuitList standing, CircuitList preferred,
                   const Rules *rules)
{
    Plan *plan = g->plan;
    order_ports(g, is_free);
    chain_preferred(g, preferred);
    for (int32_t rack = 0; rack < g->wiring->n_racks; rack++)
        if (rules->may_relay[rack])
            put(g->relays, rack);
    memcpy(g->direct_left, rules->direct_cap, g->wiring->n_racks * sizeof *rules->direct_cap);
    plan->n_paths = 0;
    plan->n_links = standing.count;
    for (int32_t link = 0; link < standing.count; link++) {
        plan->link_a[link] = standing.a[link];
        plan->link_b[link] = standing.b[link];
        if (!join(g, link))
            return false;
    }
    return true;
}

PlanStatus plan_paths(const Wiring *wiring, const uint8_t *is_free, CircuitList standing,
                      CircuitList preferred, PairList pairs, const Rules *rules, Plan *plan)
{
    Graph graph = {.plan = plan};
    int32_t count = pairs.count;
    int32_t *waiting = malloc((count ? count : 1) * sizeof *waiting);
    PlanStatus status = PLAN_NO_MEMORY;
    if (acquire(&graph, wiring, preferred.count, rules->max_hops) && waiting) {
        for (int32_t i = 0; i < count; i++)
            waiting[i] = i;
        bool sound = set_up(&graph, is_free, standing, preferred, rules);
        if (sound && rules->whole)
            sound = run_rounds(&graph, pairs, waiting, &count, true, rules);
        if (sound && rules->partial)
            sound = run_rounds(&graph, pairs, waiting, &count, false, rules);
        status = sound ? PLAN_DONE : PLAN_BROKEN;
    }
    free(waiting);
    release(&graph);
    return status;
}
