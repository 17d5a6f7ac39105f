#include "improve.h"

#include <stdlib.h>
#include <string.h>

/* Smallest gain, in Mbps, for which circuits are rewired. */
#define LEAST_GAIN 1e-6
/* Random rewirings at a time, when no single rewiring serves more. */
enum { KICKS = 3 };
/* Number of parts of the share of further paths: topology.problem.SLICES. */
enum { SLICES = 4 };

/* The paths of a pair, put aside. */
typedef struct {
    int32_t pair, n_paths;
    int32_t *hops, *links;
    double *given;
} Aside;

typedef struct {
    const Wiring *wiring;
    const uint8_t *is_free;
    DemandList demands;
    const Search *search;
    Links *links;
    Found *found;
    int32_t *slot_start, *slot_count; /* per rack */
    int32_t *slot_link, *slot_peer;
    int32_t *best; /* per two racks: the circuit between them with the most left, or -1 */
    double *residual;
    double *left;     /* per demand */
    int32_t *n_paths; /* per demand */
    int32_t *first;   /* per demand: the place of its first path; all its paths follow */
    int32_t *path_hops, *path_links; /* per place, LONGEST_PATH links each */
    double *given;                   /* per place: Mbps carried */
    Aside aside[2];
    double *turn_residual; /* per circuit, and per demand: Mbps left by paths in turn */
    double *unserved;
    int32_t *at_port; /* per port: its circuit, or -1 */
    int32_t *idle;    /* scratch: ports without a circuit */
    int32_t *plane_start, *plane_port; /* ports where circuits may end, by plane */
    int32_t *rack_start, *rack_port;   /* the same by rack */
    int32_t *kept_a, *kept_b; /* the best circuits so far */
    double *kept_mbps;
    int32_t kept_count;
    int32_t *short_of; /* demands not carried in full, the most wanting first */
    double *missing;
    int64_t used; /* circuits looked at */
    uint32_t random;
} Work;

static double lesser(double one, double other) { return one < other ? one : other; }

/* ---- routing ---------------------------------------------------------------------------------- */

static int32_t *best_between(const Work *w, int32_t one, int32_t other)
{
    return w->best + (size_t)one * w->wiring->n_racks + other;
}

static void find_best(Work *w, int32_t here, int32_t there)
{
    int32_t best = -1;
    int32_t end = w->slot_start[here] + w->slot_count[here];
    for (int32_t s = w->slot_start[here]; s < end; s++)
        if (w->slot_peer[s] == there &&
            (best < 0 || w->residual[w->slot_link[s]] > w->residual[best]))
            best = w->slot_link[s];
    *best_between(w, here, there) = *best_between(w, there, here) = best;
}

static void add_end(Work *w, int32_t here, int32_t there, int32_t link)
{
    int32_t slot = w->slot_start[here] + w->slot_count[here]++;
    w->slot_link[slot] = link;
    w->slot_peer[slot] = there;
}

static void lay_out(Work *w)
{
    const Wiring *f = w->wiring;
    Links *l = w->links;
    memset(w->slot_count, 0, f->n_racks * sizeof *w->slot_count);
    memset(w->best, -1, (size_t)f->n_racks * f->n_racks * sizeof *w->best);
    memcpy(w->residual, l->capacity_mbps, l->n_links * sizeof *w->residual);
    for (int32_t i = 0; i < l->n_links; i++) {
        int32_t one = f->port_rack[l->link_a[i]], other = f->port_rack[l->link_b[i]];
        add_end(w, one, other, i);
        add_end(w, other, one, i);
        int32_t best = *best_between(w, one, other);
        if (best < 0 || w->residual[i] > w->residual[best])
            *best_between(w, one, other) = *best_between(w, other, one) = i;
    }
}

/* Whether a pair has a path over these circuits: two alike would not be an even spread. */
static bool has_path(const Work *w, int32_t pair, int32_t hops, const int32_t *links)
{
    for (int32_t path = w->first[pair]; path < w->first[pair] + w->n_paths[pair]; path++)
        if (w->path_hops[path] == hops && !memcmp(w->path_links + (size_t)path * LONGEST_PATH, links,
                                                  hops * sizeof *links))
            return true;
    return false;
}

/* The best path of a search, and its width in Mbps. */
typedef struct {
    double width;
    int32_t links[LONGEST_PATH];
} Widest;

static void consider(const Work *w, int32_t pair, int32_t hops, Widest *best, double width,
                     const int32_t *links)
{
    if (width > best->width && !has_path(w, pair, hops, links)) {
        best->width = width;
        memcpy(best->links, links, hops * sizeof *links);
    }
}

/* The widest path of `hops` circuits that is new for a pair; of width 0 if there is none. */
static Widest widest_path(Work *w, int32_t pair, int32_t hops)
{
    int32_t src = w->demands.src[pair], dst = w->demands.dst[pair];
    int32_t end = w->slot_start[src] + w->slot_count[src];
    Widest best = {.width = 0};
    w->used += hops == 1 && !w->n_paths[pair] ? 1 : 1 + w->slot_count[src];
    if (hops == 1 && !w->n_paths[pair]) {
        int32_t link = *best_between(w, src, dst);
        if (link >= 0)
            consider(w, pair, 1, &best, w->residual[link], &link);
        return best;
    }
    for (int32_t s = w->slot_start[src]; s < end; s++) {
        int32_t first = w->slot_link[s], relay = w->slot_peer[s];
        double width = w->residual[first];
        if (width <= best.width || (hops == 1) != (relay == dst))
            continue;
        if (hops == 1)
            consider(w, pair, 1, &best, width, &first);
        if (hops == 2) {
            int32_t last = *best_between(w, relay, dst);
            if (last >= 0)
                consider(w, pair, 2, &best, lesser(width, w->residual[last]),
                         (int32_t[]){first, last});
        }
        if (hops < 3)
            continue;
        int32_t stop = w->slot_start[relay] + w->slot_count[relay];
        w->used += w->slot_count[relay];
        for (int32_t t = w->slot_start[relay]; t < stop; t++) {
            int32_t middle = w->slot_link[t], next = w->slot_peer[t];
            int32_t last = *best_between(w, next, dst);
            if (last < 0 || next == src || next == dst)
                continue;
            double there = lesser(lesser(width, w->residual[middle]), w->residual[last]);
            consider(w, pair, 3, &best, there, (int32_t[]){first, middle, last});
        }
    }
    return best;
}

/* Mbps offered to each path of a pair with `n_new` new paths: switches spread a pair's flows
   evenly. */
static double share_of(const Work *w, int32_t pair, int32_t n_new)
{
    return w->demands.mbps[pair] / (w->demands.standing_paths[pair] + n_new);
}

/* Mbps lost by a pair's standing paths beside `n_new` new paths. */
static double standing_loss(const Work *w, int32_t pair, int32_t n_new)
{
    const DemandList *d = &w->demands;
    if (!n_new || !d->standing_paths[pair])
        return 0;
    double carried = d->mbps[pair] - d->open_mbps[pair];
    double then = d->standing_paths[pair] * share_of(w, pair, n_new);
    return carried > then ? carried - then : 0;
}

/* Whether a pair gains by a further path of this width. */
static bool carries_more(const Work *w, int32_t pair, double width)
{
    int32_t n = w->n_paths[pair];
    double share = share_of(w, pair, n + 1), lost = standing_loss(w, pair, n + 1);
    lost -= standing_loss(w, pair, n);
    for (int32_t path = w->first[pair]; path < w->first[pair] + n; path++)
        lost += w->given[path] > share ? w->given[path] - share : 0;
    return lesser(share, width) > lost + RATE_TOLERANCE_MBPS;
}

static int32_t most_paths(const Work *w, int32_t pair)
{
    return w->first[pair + 1] - w->first[pair];
}

/* Take `mbps` from the circuits of a path, or give back if negative. */
static void book(Work *w, const int32_t *links, int32_t hops, double mbps)
{
    const Links *l = w->links;
    for (int32_t i = 0; i < hops; i++) {
        w->residual[links[i]] -= mbps;
        find_best(w, w->wiring->port_rack[l->link_a[links[i]]],
                  w->wiring->port_rack[l->link_b[links[i]]]);
    }
}

static void add_path(Work *w, int32_t pair, int32_t hops, const int32_t *links, double given)
{
    int32_t n = w->n_paths[pair]++, path = w->first[pair] + n;
    for (int32_t i = 0; i < LONGEST_PATH; i++)
        w->path_links[(size_t)path * LONGEST_PATH + i] = i < hops ? links[i] : -1;
    w->path_hops[path] = hops;
    w->given[path] = given;
    w->left[pair] += standing_loss(w, pair, n + 1) - standing_loss(w, pair, n) - given;
    book(w, links, hops, given);
}

/* Lower the load of a pair's paths to the share beside a further path. */
static void make_room(Work *w, int32_t pair)
{
    double share = share_of(w, pair, w->n_paths[pair] + 1);
    for (int32_t path = w->first[pair]; path < w->first[pair] + w->n_paths[pair]; path++) {
        double above = w->given[path] - share;
        if (above > 0) {
            book(w, w->path_links + (size_t)path * LONGEST_PATH, w->path_hops[path], -above);
            w->given[path] = share;
            w->left[pair] += above;
        }
    }
}

static void drop_paths(Work *w, int32_t pair)
{
    for (int32_t n = 0; n < w->n_paths[pair]; n++) {
        int32_t path = w->first[pair] + n;
        book(w, w->path_links + (size_t)path * LONGEST_PATH, w->path_hops[path], -w->given[path]);
    }
    w->n_paths[pair] = 0;
    w->left[pair] = w->demands.open_mbps[pair];
}

/* Add a path of `hops` circuits for a pair; false if the pair would gain nothing. */
static bool serve_once(Work *w, int32_t pair, int32_t hops)
{
    if (w->left[pair] <= RATE_TOLERANCE_MBPS || w->n_paths[pair] >= most_paths(w, pair))
        return false;
    Widest best = widest_path(w, pair, hops);
    if (best.width <= RATE_TOLERANCE_MBPS)
        return false;
    if (w->search->whole ? best.width < w->left[pair] - RATE_TOLERANCE_MBPS
                         : !carries_more(w, pair, best.width))
        return false;
    make_room(w, pair);
    add_path(w, pair, hops, best.links, lesser(best.width, share_of(w, pair, w->n_paths[pair] + 1)));
    return true;
}

/* Below 0 if circuit `one` comes before `other` in the order of paths, above 0 if after `other`. */
static int32_t compare_links(const Work *w, int32_t one, int32_t other)
{
    const Links *l = w->links;
    const int32_t *plane = w->wiring->port_plane;
    int32_t by_plane = plane[l->link_a[one]] - plane[l->link_a[other]];
    if (by_plane)
        return by_plane;
    int32_t by_port = l->link_a[one] - l->link_a[other];
    return by_port ? by_port : l->link_b[one] - l->link_b[other];
}

static bool goes_before(const Work *w, int32_t one, int32_t other)
{
    if (w->path_hops[one] != w->path_hops[other])
        return w->path_hops[one] < w->path_hops[other];
    const int32_t *a = w->path_links + (size_t)one * LONGEST_PATH;
    const int32_t *b = w->path_links + (size_t)other * LONGEST_PATH;
    for (int32_t i = 0; i < w->path_hops[one]; i++) {
        int32_t by_link = a[i] == b[i] ? 0 : compare_links(w, a[i], b[i]);
        if (by_link)
            return by_link < 0;
    }
    return false;
}

/* Put a pair's paths into the order of their turns. */
static void sort_paths(Work *w, int32_t pair)
{
    int32_t first = w->first[pair];
    for (int32_t i = first + 1; i < first + w->n_paths[pair]; i++)
        for (int32_t k = i; k > first && goes_before(w, k, k - 1); k--) {
            int32_t *a = w->path_links + (size_t)k * LONGEST_PATH, *b = a - LONGEST_PATH;
            int32_t hops = w->path_hops[k];
            double given = w->given[k];
            for (int32_t n = 0; n < LONGEST_PATH; n++) {
                int32_t link = a[n];
                a[n] = b[n];
                b[n] = link;
            }
            w->path_hops[k] = w->path_hops[k - 1];
            w->path_hops[k - 1] = hops;
            w->given[k] = w->given[k - 1];
            w->given[k - 1] = given;
        }
}

/* Each pair's path number `turn` takes `part` of its share, limited by the capacity left; returns
   the sum in Mbps. Whether any pair has more paths goes to *more. */
static double take_turn(Work *w, int32_t turn, double part, bool *more)
{
    double served = 0;
    *more = false;
    for (int32_t pair = 0; pair < w->demands.count; pair++) {
        if (turn >= w->n_paths[pair])
            continue;
        int32_t path = w->first[pair] + turn;
        const int32_t *links = w->path_links + (size_t)path * LONGEST_PATH;
        double given = part * share_of(w, pair, w->n_paths[pair]);
        for (int32_t i = 0; i < w->path_hops[path]; i++)
            given = lesser(given, w->turn_residual[links[i]]);
        for (int32_t i = 0; i < w->path_hops[path]; i++)
            w->turn_residual[links[i]] -= given;
        w->unserved[pair] -= given;
        served += given;
        *more |= turn + 1 < w->n_paths[pair];
    }
    return served;
}

/* Mbps served if paths take turns as in topology.problem.serve; notes unserved demands. */
static double served_in_turn(Work *w)
{
    const DemandList *d = &w->demands;
    double served = 0;
    bool more, further;
    w->used += d->count / 4;
    memcpy(w->turn_residual, w->links->capacity_mbps,
           w->links->n_links * sizeof *w->turn_residual);
    for (int32_t pair = 0; pair < d->count; pair++) {
        double lost = standing_loss(w, pair, w->n_paths[pair]);
        w->unserved[pair] = d->open_mbps[pair] + lost;
        served -= lost;
    }
    served += take_turn(w, 0, 1, &further);
    for (int32_t slice = 0; further && slice < SLICES; slice++) {
        more = true;
        for (int32_t turn = 1; more; turn++)
            served += take_turn(w, turn, 1.0 / SLICES, &more);
    }
    return served;
}

/* Worth of the circuits in Mbps: short paths first, the largest demands first. */
static double route(Work *w)
{
    const DemandList *d = &w->demands;
    double worth = 0;
    w->used += w->links->n_links + d->count + w->wiring->n_racks * w->wiring->n_racks / 16;
    lay_out(w);
    memcpy(w->left, d->open_mbps, d->count * sizeof *w->left);
    memset(w->n_paths, 0, d->count * sizeof *w->n_paths);
    for (int32_t hops = 1; hops <= w->search->max_hops; hops++)
        for (int32_t pair = 0; pair < d->count; pair++)
            while (serve_once(w, pair, hops))
                ;
    for (int32_t pair = 0; pair < d->count; pair++)
        sort_paths(w, pair);
    worth += served_in_turn(w);
    if (w->search->disturbance_mbps > 0)
        for (int32_t i = w->links->n_fixed; i < w->links->n_links; i++)
            if (w->search->mate[w->links->link_a[i]] == w->links->link_b[i])
                worth += w->search->disturbance_mbps;
    return worth;
}

/* ---- rerouting -------------------------------------------------------------------------------- */

static void put_aside(const Work *w, int32_t pair, Aside *aside)
{
    size_t first = w->first[pair], count = w->n_paths[pair];
    aside->pair = pair;
    aside->n_paths = w->n_paths[pair];
    memcpy(aside->hops, w->path_hops + first, count * sizeof *aside->hops);
    memcpy(aside->given, w->given + first, count * sizeof *aside->given);
    memcpy(aside->links, w->path_links + first * LONGEST_PATH,
           count * LONGEST_PATH * sizeof *aside->links);
}

static void put_back(Work *w, const Aside *aside)
{
    for (int32_t n = 0; n < aside->n_paths; n++)
        add_path(w, aside->pair, aside->hops[n], aside->links + (size_t)n * LONGEST_PATH,
                 aside->given[n]);
}

static void serve_pair(Work *w, int32_t pair)
{
    for (int32_t hops = 1; hops <= w->search->max_hops; hops++)
        while (serve_once(w, pair, hops))
            ;
    sort_paths(w, pair);
}

/* Whether a path of `other` uses a circuit of one of the racks of `pair`. */
static bool in_the_way(const Work *w, int32_t pair, int32_t other)
{
    int32_t src = w->demands.src[pair], dst = w->demands.dst[pair];
    const int32_t *rack = w->wiring->port_rack;
    for (int32_t n = 0; n < w->n_paths[other]; n++) {
        int32_t path = w->first[other] + n;
        for (int32_t i = 0; i < w->path_hops[path]; i++) {
            int32_t link = w->path_links[(size_t)path * LONGEST_PATH + i];
            int32_t a = rack[w->links->link_a[link]], b = rack[w->links->link_b[link]];
            if (a == src || a == dst || b == src || b == dst)
                return true;
        }
    }
    return false;
}

/* Route `pair` anew, then `other`. True, with the new rate, if more is served, else nothing changed. */
static bool give_way(Work *w, int32_t pair, int32_t other, double *served)
{
    put_aside(w, pair, &w->aside[0]);
    put_aside(w, other, &w->aside[1]);
    drop_paths(w, pair);
    drop_paths(w, other);
    serve_pair(w, pair);
    serve_pair(w, other);
    double then = served_in_turn(w);
    if (then > *served + LEAST_GAIN) {
        *served = then;
        return true;
    }
    drop_paths(w, pair);
    drop_paths(w, other);
    put_back(w, &w->aside[0]);
    put_back(w, &w->aside[1]);
    return false;
}

/* Demands not served in full by the last routing, the most wanting first; returns their number. */
static int32_t list_short(Work *w)
{
    int32_t count = 0;
    for (int32_t pair = 0; pair < w->demands.count; pair++)
        if (w->unserved[pair] > RATE_TOLERANCE_MBPS) {
            w->short_of[count] = pair;
            w->missing[count++] = w->unserved[pair];
        }
    for (int32_t gap = count / 2; gap > 0; gap /= 2) /* Shell's sort */
        for (int32_t i = gap; i < count; i++) {
            int32_t pair = w->short_of[i], k = i;
            double missing = w->missing[i];
            for (; k >= gap && w->missing[k - gap] < missing; k -= gap) {
                w->short_of[k] = w->short_of[k - gap];
                w->missing[k] = w->missing[k - gap];
            }
            w->short_of[k] = pair;
            w->missing[k] = missing;
        }
    return count;
}

/* Let unserved demands go before others, two at a time, while more is served; returns the gain in
   Mbps. */
static double reroute(Work *w)
{
    const DemandList *d = &w->demands;
    int64_t last = w->used + w->search->reroute_steps;
    double before = served_in_turn(w), served = before;
    bool better = true;
    while (better && w->used < last) {
        better = false;
        int32_t count = list_short(w);
        for (int32_t i = 0; i < count; i++)
            for (int32_t other = 0; other < d->count; other++) {
                int32_t pair = w->short_of[i];
                if (w->used >= last)
                    break;
                if (other != pair && w->n_paths[other] && in_the_way(w, pair, other))
                    better |= give_way(w, pair, other, &served);
            }
        served_in_turn(w);
    }
    return served - before;
}

/* ---- rewiring --------------------------------------------------------------------------------- */

static void place(Work *w, int32_t link, int32_t one, int32_t other)
{
    const double *mbps = w->wiring->port_mbps;
    w->links->link_a[link] = one < other ? one : other;
    w->links->link_b[link] = one < other ? other : one;
    w->links->capacity_mbps[link] = lesser(mbps[one], mbps[other]);
    w->at_port[one] = w->at_port[other] = link;
}

static int32_t partner(const Work *w, int32_t port)
{
    int32_t link = w->at_port[port];
    if (link < 0)
        return -1;
    return w->links->link_a[link] == port ? w->links->link_b[link] : w->links->link_a[link];
}

static void cut(Work *w, int32_t port)
{
    Links *l = w->links;
    int32_t link = w->at_port[port], last = l->n_links - 1;
    if (link < 0)
        return;
    w->at_port[l->link_a[link]] = w->at_port[l->link_b[link]] = -1;
    if (link != last) {
        l->link_a[link] = l->link_a[last];
        l->link_b[link] = l->link_b[last];
        l->capacity_mbps[link] = l->capacity_mbps[last];
        w->at_port[l->link_a[link]] = w->at_port[l->link_b[link]] = link;
    }
    l->n_links = last;
}

static bool may_join(const Work *w, int32_t one, int32_t other)
{
    return one >= 0 && other >= 0 && w->wiring->port_rack[one] != w->wiring->port_rack[other];
}

static void join(Work *w, int32_t one, int32_t other)
{
    place(w, w->links->n_links++, one, other);
}

/* Join two ports of a plane, and their former partners; false if nothing changed. */
static bool rewire(Work *w, int32_t one, int32_t other)
{
    int32_t left = partner(w, one), right = partner(w, other);
    if (left == other || !may_join(w, one, other))
        return false;
    cut(w, one);
    cut(w, other);
    join(w, one, other);
    if (may_join(w, left, right))
        join(w, left, right);
    return true;
}

static void undo(Work *w, int32_t one, int32_t other, int32_t left, int32_t right)
{
    cut(w, one);
    if (left >= 0)
        cut(w, left);
    if (left >= 0)
        join(w, one, left);
    if (right >= 0)
        join(w, other, right);
}

static void keep(Work *w)
{
    const Links *l = w->links;
    w->kept_count = l->n_links;
    memcpy(w->kept_a, l->link_a, l->n_links * sizeof *w->kept_a);
    memcpy(w->kept_b, l->link_b, l->n_links * sizeof *w->kept_b);
    memcpy(w->kept_mbps, l->capacity_mbps, l->n_links * sizeof *w->kept_mbps);
}

static void restore(Work *w)
{
    Links *l = w->links;
    for (int32_t i = l->n_fixed; i < l->n_links; i++)
        w->at_port[l->link_a[i]] = w->at_port[l->link_b[i]] = -1;
    l->n_links = w->kept_count;
    memcpy(l->link_a, w->kept_a, l->n_links * sizeof *w->kept_a);
    memcpy(l->link_b, w->kept_b, l->n_links * sizeof *w->kept_b);
    memcpy(l->capacity_mbps, w->kept_mbps, l->n_links * sizeof *w->kept_mbps);
    for (int32_t i = l->n_fixed; i < l->n_links; i++)
        w->at_port[l->link_a[i]] = w->at_port[l->link_b[i]] = i;
}

/* ---- search ----------------------------------------------------------------------------------- */

static bool time_is_up(const Work *w) { return w->used >= w->search->steps; }

/* True, with the new worth, if joining two ports of a plane serves more; else nothing changed. */
static bool try_to_join(Work *w, int32_t one, int32_t other, double *worth)
{
    int32_t left = partner(w, one), right = partner(w, other);
    if (!rewire(w, one, other))
        return false;
    double then = route(w);
    if (then > *worth + LEAST_GAIN) {
        *worth = then;
        return true;
    }
    undo(w, one, other, left, right);
    return false;
}

/* One pass over the unserved demands: a circuit between their racks, on each plane. True if more
   was served. */
static bool mend(Work *w, double *worth)
{
    const Wiring *f = w->wiring;
    bool better = false;
    route(w);
    int32_t count = list_short(w);
    for (int32_t i = 0; i < count; i++) {
        int32_t src = w->demands.src[w->short_of[i]], dst = w->demands.dst[w->short_of[i]];
        for (int32_t s = w->rack_start[src]; s < w->rack_start[src + 1]; s++)
            for (int32_t t = w->rack_start[dst]; t < w->rack_start[dst + 1]; t++) {
                int32_t one = w->rack_port[s], other = w->rack_port[t];
                if (f->port_plane[one] != f->port_plane[other])
                    continue;
                if (time_is_up(w))
                    return better;
                better |= try_to_join(w, one, other, worth);
            }
    }
    return better;
}

/* One pass over all two ports of each plane; true if any rewiring served more. */
static bool sweep(Work *w, double *worth)
{
    bool better = false;
    for (int32_t plane = 0; plane < w->wiring->n_planes; plane++)
        for (int32_t i = w->plane_start[plane]; i < w->plane_start[plane + 1]; i++)
            for (int32_t j = i + 1; j < w->plane_start[plane + 1]; j++) {
                if (time_is_up(w))
                    return better;
                better |= try_to_join(w, w->plane_port[i], w->plane_port[j], worth);
            }
    return better;
}

static uint32_t draw(Work *w, uint32_t below)
{
    w->random ^= w->random << 13;
    w->random ^= w->random >> 17;
    w->random ^= w->random << 5;
    return w->random % below;
}

/* Join ports without a circuit, two of a plane at random. A detour over an idle rack takes two new
   circuits, either of which alone serves nothing: so the first has to appear by chance. */
static void join_idle_ports(Work *w)
{
    for (int32_t plane = 0; plane < w->wiring->n_planes; plane++) {
        int32_t count = 0;
        for (int32_t i = w->plane_start[plane]; i < w->plane_start[plane + 1]; i++)
            if (w->at_port[w->plane_port[i]] < 0)
                w->idle[count++] = w->plane_port[i];
        while (count > 1) {
            int32_t one = w->idle[--count], drawn = (int32_t)draw(w, count);
            int32_t other = w->idle[drawn];
            if (may_join(w, one, other)) {
                w->idle[drawn] = w->idle[--count];
                join(w, one, other);
            }
        }
    }
}

static void kick(Work *w)
{
    int32_t ports = w->plane_start[w->wiring->n_planes];
    for (int32_t n = 0; n < KICKS; n++) {
        int32_t one = w->plane_port[draw(w, ports)];
        int32_t plane = w->wiring->port_plane[one];
        int32_t first = w->plane_start[plane], count = w->plane_start[plane + 1] - first;
        rewire(w, one, w->plane_port[first + draw(w, count)]);
    }
    join_idle_ports(w);
}

static void *room(bool *failed, size_t count, size_t size)
{
    void *memory = calloc(count ? count : 1, size);
    *failed |= memory == NULL;
    return memory;
}

#define ROOM(failed, pointer, count) ((pointer) = room(failed, count, sizeof *(pointer)))

static bool set_up(Work *w)
{
    const Wiring *f = w->wiring;
    size_t links = (size_t)w->links->n_fixed + f->n_ports / 2 + 1;
    bool failed = false;
    ROOM(&failed, w->slot_start, (size_t)f->n_racks + 1);
    ROOM(&failed, w->slot_count, f->n_racks);
    ROOM(&failed, w->slot_link, 2 * links + f->n_ports);
    ROOM(&failed, w->slot_peer, 2 * links + f->n_ports);
    ROOM(&failed, w->best, (size_t)f->n_racks * f->n_racks);
    ROOM(&failed, w->residual, links);
    ROOM(&failed, w->turn_residual, links);
    ROOM(&failed, w->unserved, w->demands.count);
    ROOM(&failed, w->left, w->demands.count);
    ROOM(&failed, w->n_paths, w->demands.count);
    ROOM(&failed, w->at_port, f->n_ports);
    ROOM(&failed, w->idle, f->n_ports);
    ROOM(&failed, w->plane_start, (size_t)f->n_planes + 1);
    ROOM(&failed, w->plane_port, f->n_ports);
    ROOM(&failed, w->rack_start, (size_t)f->n_racks + 1);
    ROOM(&failed, w->rack_port, f->n_ports);
    ROOM(&failed, w->short_of, w->demands.count);
    ROOM(&failed, w->missing, w->demands.count);
    ROOM(&failed, w->kept_a, links);
    ROOM(&failed, w->kept_b, links);
    ROOM(&failed, w->kept_mbps, links);
    ROOM(&failed, w->first, (size_t)w->demands.count + 1);
    ROOM(&failed, w->path_hops, w->found->room);
    ROOM(&failed, w->path_links, (size_t)w->found->room * LONGEST_PATH);
    ROOM(&failed, w->given, w->found->room);
    if (failed)
        return false;
    int32_t widest = 0;
    for (int32_t pair = 0; pair < w->demands.count; pair++) {
        int32_t most = w->demands.open_paths[pair], room = w->found->room - w->first[pair];
        most = most > f->n_ports ? f->n_ports : most;
        most = most > room ? room : most;
        w->first[pair + 1] = w->first[pair] + most;
        widest = most > widest ? most : widest;
    }
    for (int32_t n = 0; n < 2; n++) {
        ROOM(&failed, w->aside[n].hops, widest);
        ROOM(&failed, w->aside[n].links, (size_t)widest * LONGEST_PATH);
        ROOM(&failed, w->aside[n].given, widest);
    }
    if (failed)
        return false;
    for (int32_t port = 0; port < f->n_ports; port++)
        w->slot_start[f->port_rack[port] + 1]++;
    for (int32_t rack = 0; rack < f->n_racks; rack++)
        w->slot_start[rack + 1] += w->slot_start[rack];
    int32_t count = 0;
    for (int32_t plane = 0; plane < f->n_planes; plane++) {
        w->plane_start[plane] = count;
        for (int32_t port = 0; port < f->n_ports; port++)
            if (w->is_free[port] && f->port_plane[port] == plane)
                w->plane_port[count++] = port;
    }
    w->plane_start[f->n_planes] = count;
    for (int32_t port = 0; port < f->n_ports; port++)
        if (w->is_free[port])
            w->rack_start[f->port_rack[port] + 1]++;
    for (int32_t rack = 0; rack < f->n_racks; rack++)
        w->rack_start[rack + 1] += w->rack_start[rack];
    for (int32_t port = f->n_ports - 1; port >= 0; port--)
        if (w->is_free[port]) {
            /* Filled from the back: in the end, the next rack's start is the rack's own. */
            int32_t rack = f->port_rack[port];
            w->rack_port[--w->rack_start[rack + 1]] = port;
        }
    memmove(w->rack_start, w->rack_start + 1, f->n_racks * sizeof *w->rack_start);
    w->rack_start[f->n_racks] = count;
    for (int32_t port = 0; port < f->n_ports; port++)
        w->at_port[port] = -1;
    for (int32_t i = w->links->n_fixed; i < w->links->n_links; i++)
        w->at_port[w->links->link_a[i]] = w->at_port[w->links->link_b[i]] = i;
    return true;
}

static void release(Work *w)
{
    void *all[] = {w->first,      w->path_hops,   w->path_links, w->given,
                   w->aside[0].hops, w->aside[0].links, w->aside[0].given,
                   w->aside[1].hops, w->aside[1].links, w->aside[1].given,
                   w->turn_residual, w->unserved,
                   w->rack_start, w->rack_port,   w->short_of,   w->missing,
                   w->slot_start, w->slot_count,  w->slot_link,  w->slot_peer, w->best,
                   w->residual,   w->left,        w->n_paths,    w->at_port,   w->idle,       w->plane_start,
                   w->plane_port, w->kept_a,      w->kept_b,     w->kept_mbps};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

static double all_wanted(const Work *w)
{
    double wanted = 0;
    for (int32_t pair = 0; pair < w->demands.count; pair++)
        wanted += w->demands.open_mbps[pair];
    return wanted - LEAST_GAIN;
}

static void write_paths(Work *w)
{
    Found *found = w->found;
    found->count = 0;
    for (int32_t pair = 0; pair < w->demands.count; pair++)
        for (int32_t n = 0; n < w->n_paths[pair]; n++) {
            int32_t path = w->first[pair] + n, to = found->count++;
            found->pair[to] = pair;
            found->hops[to] = w->path_hops[path];
            memcpy(found->links + (size_t)to * LONGEST_PATH,
                   w->path_links + (size_t)path * LONGEST_PATH,
                   LONGEST_PATH * sizeof *found->links);
        }
}

int32_t improve_links(const Wiring *wiring, const uint8_t *is_free, DemandList demands,
                      const Search *search, Links *links, Found *found, double *worth)
{
    Work work = {.wiring = wiring, .is_free = is_free, .demands = demands, .search = search,
                 .links = links, .found = found, .random = (uint32_t)search->seed * 2654435761u + 1};
    Work *w = &work;
    int32_t used = -1;
    if (set_up(w)) {
        double now = route(w), best = now, all = all_wanted(w);
        bool costly = search->disturbance_mbps > 0;
        keep(w);
        while (!time_is_up(w) && (costly || best < all)) {
            while (mend(w, &now) || sweep(w, &now))
                ;
            now = route(w);
            now += reroute(w);
            if (now > best + LEAST_GAIN) {
                best = now;
                keep(w);
            } else {
                restore(w);
            }
            if (!w->plane_start[wiring->n_planes])
                break;
            kick(w);
            now = time_is_up(w) ? best : route(w);
        }
        restore(w);
        used = w->used < INT32_MAX ? (int32_t)w->used : INT32_MAX;
        *worth = route(w);
        *worth += reroute(w);
        write_paths(w);
    }
    release(w);
    return used;
}
