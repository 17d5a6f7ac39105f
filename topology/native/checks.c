/* For the independent checks: shares no code with the planners' kernels. */
#include "checks.h"

#include <stdlib.h>
#include <string.h>

static void tag(Membership ports, int32_t port, int32_t vlan)
{
    if (port >= 0 && port < ports.n_ports)
        ports.bits[(size_t)port * ports.words + vlan / 64] |= (uint64_t)1 << vlan % 64;
}

void tag_ports(Tagged paths, const int32_t *vlan, Membership ports)
{
    for (int32_t p = 0; p < paths.count; p++)
        for (int32_t hop = paths.start[p]; hop < paths.start[p + 1]; hop++) {
            tag(ports, paths.hop_a[hop], vlan[p]);
            tag(ports, paths.hop_b[hop], vlan[p]);
        }
}

bool find_strays(int32_t n_racks, int32_t n_ports, const int32_t *port_rack, Tagged paths,
                 const int32_t *src, const int32_t *dst, uint8_t *is_stray)
{
    int32_t *visit = calloc(n_racks ? n_racks : 1, sizeof *visit); /* the last path here, from 1 */
    for (int32_t p = 0; visit && p < paths.count; p++) {
        int32_t at = src[p];
        bool whole = at >= 0 && at < n_racks;
        if (whole)
            visit[at] = p + 1;
        for (int32_t hop = paths.start[p]; whole && hop < paths.start[p + 1]; hop++) {
            int32_t a = paths.hop_a[hop], b = paths.hop_b[hop];
            whole = a >= 0 && b >= 0 && a < n_ports && b < n_ports &&
                    (port_rack[a] == at || port_rack[b] == at);
            if (whole) {
                at = port_rack[a] == at ? port_rack[b] : port_rack[a];
                whole = visit[at] != p + 1;
                visit[at] = p + 1;
            }
        }
        is_stray[p] = !whole || at != dst[p];
    }
    free(visit);
    return visit != NULL;
}

int64_t list_domains(Membership ports, int32_t n_vlans, int32_t n_circuits, const int32_t *a,
                     const int32_t *b, int32_t *start, int32_t room, int32_t *circuit)
{
    int64_t count = 0;
    for (int32_t word = 0; word < ports.words; word++) {
        int32_t first = 64 * word, in_word[64] = {0};
        int32_t last = n_vlans - first < 64 ? n_vlans - first : 64;
        uint64_t known = last < 64 ? ((uint64_t)1 << last) - 1 : ~(uint64_t)0;
        for (int32_t c = 0; c < n_circuits; c++) {
            uint64_t both = known & ports.bits[(size_t)a[c] * ports.words + word] &
                            ports.bits[(size_t)b[c] * ports.words + word];
            for (; both; both &= both - 1)
                in_word[__builtin_ctzll(both)]++;
        }
        for (int32_t v = 0; v < last; v++) {
            start[first + v] = (int32_t)count;
            count += in_word[v];
            in_word[v] = start[first + v];
        }
        for (int32_t c = 0; count <= room && c < n_circuits; c++) {
            uint64_t both = known & ports.bits[(size_t)a[c] * ports.words + word] &
                            ports.bits[(size_t)b[c] * ports.words + word];
            for (; both; both &= both - 1)
                circuit[in_word[__builtin_ctzll(both)]++] = c;
        }
    }
    start[n_vlans] = (int32_t)count;
    return count;
}

typedef struct {
    const int32_t *port_rack;
    const int32_t *a, *b;   /* ports of the circuits of a domain */
    int32_t *at_rack;       /* per rack: the last end of a circuit there, or -1 */
    int32_t *before;        /* per end, 2c or 2c + 1: the end before at the same rack, or -1 */
    int32_t *mark;          /* per rack: twice the last circuit whose search reached the rack, plus
                               1 from the circuit's second end; or -1 */
    int32_t *stack;         /* racks reached and not left yet, of either side */
    int32_t n_racks;
    int32_t *island;        /* per rack: the next rack on the way to the root of its island */
} Flood;

static int32_t island_of(const Flood *f, int32_t rack)
{
    while (f->island[rack] != rack)
        rack = f->island[rack] = f->island[f->island[rack]];
    return rack;
}

static int32_t rack_of_end(const Flood *f, int32_t end)
{
    return f->port_rack[end % 2 ? f->b[end / 2] : f->a[end / 2]];
}

static bool shares_port(const Flood *f, int32_t one, int32_t other)
{
    return f->a[one] == f->a[other] || f->a[one] == f->b[other] || f->b[one] == f->a[other] ||
           f->b[one] == f->b[other];
}

/* Floods from both racks of the circuit over existing circuits, a rack of each side in turn, until
   the floods meet or one side has nowhere left to go. */
static bool joined_without(Flood *f, int32_t circuit)
{
    if (island_of(f, rack_of_end(f, 2 * circuit)) != island_of(f, rack_of_end(f, 2 * circuit + 1)))
        return false; /* no circuits at all lead from rack to rack */
    int32_t *stack[2] = {f->stack, f->stack + f->n_racks}, height[2] = {1, 1};
    for (int32_t side = 0; side < 2; side++) {
        stack[side][0] = rack_of_end(f, 2 * circuit + side);
        f->mark[stack[side][0]] = 2 * circuit + side;
    }
    for (int32_t side = 0; height[side]; side = 1 - side) {
        int32_t rack = stack[side][--height[side]];
        for (int32_t end = f->at_rack[rack]; end >= 0; end = f->before[end]) {
            int32_t next = rack_of_end(f, end ^ 1);
            if (f->mark[next] == 2 * circuit + side || shares_port(f, circuit, end / 2))
                continue;
            if (f->mark[next] == 2 * circuit + 1 - side)
                return true;
            f->mark[next] = 2 * circuit + side;
            stack[side][height[side]++] = next;
        }
    }
    return false;
}

static void put(Flood *f, int32_t end)
{
    int32_t rack = rack_of_end(f, end);
    f->before[end] = f->at_rack[rack];
    f->at_rack[rack] = end;
}

bool find_loops(int32_t n_racks, const int32_t *port_rack, Domains domains, int32_t *closes)
{
    int32_t largest = 1;
    for (int32_t d = 0; d < domains.count; d++)
        if (domains.start[d + 1] - domains.start[d] > largest)
            largest = domains.start[d + 1] - domains.start[d];
    size_t racks = n_racks ? n_racks : 1;
    Flood f = {.port_rack = port_rack, .n_racks = n_racks};
    f.at_rack = malloc(racks * sizeof(int32_t));
    f.mark = malloc(racks * sizeof(int32_t));
    f.stack = malloc(2 * racks * sizeof(int32_t));
    f.island = malloc(racks * sizeof(int32_t));
    f.before = malloc(2 * (size_t)largest * sizeof(int32_t));
    bool ready = f.at_rack && f.mark && f.stack && f.island && f.before;
    for (int32_t d = 0; ready && d < domains.count; d++) {
        f.a = domains.a + domains.start[d];
        f.b = domains.b + domains.start[d];
        memset(f.at_rack, -1, racks * sizeof(int32_t));
        memset(f.mark, -1, racks * sizeof(int32_t));
        for (int32_t rack = 0; rack < n_racks; rack++)
            f.island[rack] = rack;
        for (int32_t c = 0; c < domains.start[d + 1] - domains.start[d]; c++) {
            closes[domains.start[d] + c] = joined_without(&f, c);
            put(&f, 2 * c);
            put(&f, 2 * c + 1);
            f.island[island_of(&f, rack_of_end(&f, 2 * c))] =
                island_of(&f, rack_of_end(&f, 2 * c + 1));
        }
    }
    free(f.at_rack);
    free(f.mark);
    free(f.stack);
    free(f.island);
    free(f.before);
    return ready;
}

void book_turns(const int32_t *start, const int32_t *circuit, Turns turns, const double *share,
                double *left, double *given)
{
    for (int32_t t = 0; t < turns.count; t++) {
        int32_t p = turns.path[t];
        double takes = turns.part[t] * share[p];
        for (int32_t hop = start[p]; hop < start[p + 1]; hop++)
            takes = left[circuit[hop]] < takes ? left[circuit[hop]] : takes;
        for (int32_t hop = start[p]; hop < start[p + 1]; hop++)
            left[circuit[hop]] -= takes;
        given[p] += takes;
    }
}
