/* The Python side of the kernels: buffers in, counts out. Every length and every index is checked
   here, not in the kernels; kernels run without the interpreter lock. */
#include "arguments.h"

#include "bits.h"
#include "checks.h"
#include "improve.h"
#include "matchings_module.h"
#include "multihop.h"
#include "serve.h"
#include "transit.h"
#include "vlan.h"

static PyObject *py_plan_paths(PyObject *self, PyObject *args)
{
    (void)self;
    Arguments a = {.args = args};
    Wiring w = {.n_ports = -1};
    /* A statement each: C leaves the order within an initialiser open. */
    w.n_racks = integer(&a, 0);
    w.n_planes = integer(&a, 0);
    w.n_classes = integer(&a, 1);
    w.port_rack = indices(&a, &w.n_ports, w.n_racks);
    w.port_plane = indices(&a, &w.n_ports, w.n_planes);
    w.port_class = indices(&a, &w.n_ports, w.n_classes - 1);
    w.port_mbps = doubles(&a, &w.n_ports);
    const uint8_t *is_free = next_array(&a, sizeof(uint8_t), &w.n_ports, 0);
    CircuitList standing = {.count = -1}, preferred = {.count = -1};
    standing.a = indices(&a, &standing.count, w.n_ports);
    standing.b = indices(&a, &standing.count, w.n_ports);
    preferred.a = indices(&a, &preferred.count, w.n_ports);
    preferred.b = indices(&a, &preferred.count, w.n_ports);
    PairList pairs = {.count = -1};
    pairs.src = indices(&a, &pairs.count, w.n_racks);
    pairs.dst = indices(&a, &pairs.count, w.n_racks);
    pairs.port_class = indices(&a, &pairs.count, w.n_classes);
    pairs.mbps = doubles(&a, &pairs.count);
    Rules rules = {.max_hops = integer(&a, 1)};
    rules.whole = integer(&a, 0);
    rules.partial = integer(&a, 0);
    rules.widest = integer(&a, 0);
    rules.direct_cap = indices(&a, &w.n_racks, INT32_MAX);
    rules.may_relay = next_array(&a, sizeof(uint8_t), &w.n_racks, 0);
    int32_t n_links = -1, n_hops = -1;
    Plan plan = {.link_a = integers_out(&a, &n_links)};
    plan.link_b = integers_out(&a, &n_links);
    plan.residual_mbps = doubles_out(&a, &n_links);
    plan.path_pair = integers_out(&a, &pairs.count);
    plan.path_hops = integers_out(&a, &pairs.count);
    plan.path_links = integers_out(&a, &n_hops);
    plan.path_mbps = doubles_out(&a, &pairs.count);
    if (!a.failed && n_links < (int64_t)standing.count + w.n_ports / 2)
        fail(&a, "leaves too little room for links");
    if (!a.failed && n_hops < (int64_t)pairs.count * rules.max_hops)
        fail(&a, "leaves too little room for hops");
    if (!a.failed) {
        PlanStatus status;
        Py_BEGIN_ALLOW_THREADS;
        status = plan_paths(&w, is_free, standing, preferred, pairs, &rules, &plan);
        Py_END_ALLOW_THREADS;
        if (status == PLAN_NO_MEMORY)
            PyErr_NoMemory();
        else if (status == PLAN_BROKEN)
            PyErr_SetString(PyExc_RuntimeError, "circuits that share a port");
        a.failed = status != PLAN_DONE;
    }
    release(&a);
    return a.failed ? NULL : Py_BuildValue("ii", plan.n_links, plan.n_paths);
}

static PyObject *py_serve_paths(PyObject *self, PyObject *args)
{
    (void)self;
    Arguments a = {.args = args};
    int32_t n_links = -1, n_paths = 0, n_hops = 0, n_order = -1, n_pairs = -1;
    double *residual = doubles_out(&a, &n_links);
    const int32_t *start = starts(&a, &n_paths, &n_hops);
    const int32_t *link = indices(&a, &n_hops, n_links);
    const int32_t *order = indices(&a, &n_order, n_paths);
    const int32_t *pair = next_array(&a, sizeof(int32_t), &n_paths, 0);
    const double *share = doubles(&a, &n_pairs);
    double *given = doubles_out(&a, &n_paths);
    for (int32_t i = 0; !a.failed && i < n_order; i++)
        check_range(&a, pair + order[i], 1, 0, n_pairs);
    if (!a.failed) {
        Py_BEGIN_ALLOW_THREADS;
        serve_paths(start, link, order, n_order, pair, residual, share, given);
        Py_END_ALLOW_THREADS;
    }
    return ended(&a);
}

static PyObject *py_walk_paths(PyObject *self, PyObject *args)
{
    (void)self;
    Arguments a = {.args = args};
    int32_t n_racks = integer(&a, 0), n_ports = -1, n_hops = 0;
    const int32_t *port_rack = indices(&a, &n_ports, n_racks);
    Hops paths = {.count = 0};
    paths.start = starts(&a, &paths.count, &n_hops);
    paths.a = indices(&a, &n_hops, n_ports);
    paths.b = indices(&a, &n_hops, n_ports);
    const int32_t *src = indices(&a, &paths.count, n_racks);
    const int32_t *dst = indices(&a, &paths.count, n_racks);
    int32_t n_visits = n_hops + paths.count;
    int32_t *rack = integers_out(&a, &n_visits);
    uint8_t *is_broken = next_array(&a, sizeof(uint8_t), &paths.count, 1);
    if (!a.failed) {
        Py_BEGIN_ALLOW_THREADS;
        walk_paths(port_rack, paths, src, dst, rack, is_broken);
        Py_END_ALLOW_THREADS;
    }
    return ended(&a);
}

static PyObject *py_pack_paths(PyObject *self, PyObject *args)
{
    (void)self;
    Arguments a = {.args = args};
    Ground ground = {.n_racks = integer(&a, 0), .n_circuits = integer(&a, 0)};
    if (ground.n_racks > UINT16_MAX)
        fail(&a, "is more racks than the VLAN tables hold (65535)");
    if (ground.n_circuits > INT32_MAX / 2)
        fail(&a, "is more circuits than the VLAN tables hold");
    int32_t n_ends = a.failed ? -1 : 2 * ground.n_circuits, n_hops = 0;
    ground.rivals = next_array(&a, sizeof(int32_t), &n_ends, 0);
    check_range(&a, ground.rivals, a.failed ? 0 : n_ends, -1, ground.n_circuits);
    PathList paths = {.count = 0};
    paths.start = starts(&a, &paths.count, &n_hops);
    paths.circuit = indices(&a, &n_hops, ground.n_circuits);
    int32_t n_visits = n_hops + paths.count;
    paths.rack = indices(&a, &n_visits, ground.n_racks);
    int32_t n_residents = -1, n_order = -1;
    const int32_t *residents = indices(&a, &n_residents, paths.count);
    int32_t n_occupied = integer(&a, 0);
    const int32_t *order = indices(&a, &n_order, paths.count);
    int32_t *bin_of = integers_out(&a, &paths.count);
    for (int32_t i = 0; !a.failed && i < n_residents; i++)
        check_range(&a, bin_of + residents[i], 1, 0, n_occupied);
    int32_t n_bins = 0;
    if (!a.failed) {
        Py_BEGIN_ALLOW_THREADS;
        n_bins = pack_paths(&ground, paths, residents, n_residents, n_occupied, order, n_order,
                            bin_of);
        Py_END_ALLOW_THREADS;
        if (n_bins < 0)
            fail_for_memory(&a);
    }
    release(&a);
    return a.failed ? NULL : PyLong_FromLong(n_bins);
}

/* Bit sets of `n` elements, one for each of `n_owners`; or NULL. */
static word *bit_sets(Arguments *a, int32_t n_owners, int32_t n, int32_t *words)
{
    int32_t length = -1;
    *words = words_for(n);
    word *sets = next_array(a, sizeof(word), &length, 1);
    if (!a->failed && length != (int64_t)n_owners * *words)
        fail(a, "has the wrong length");
    return a->failed ? NULL : sets;
}

static PyObject *py_carry_vlans(PyObject *self, PyObject *args)
{
    (void)self;
    Arguments a = {.args = args};
    int32_t n_ports = integer(&a, 0), n_hops = 0;
    PortVlans ports = {.n_vlans = integer(&a, 0)};
    VlanPaths paths = {.count = 0};
    paths.start = starts(&a, &paths.count, &n_hops);
    paths.hop_a = indices(&a, &n_hops, n_ports);
    paths.hop_b = indices(&a, &n_hops, n_ports);
    paths.vlan = indices(&a, &paths.count, ports.n_vlans);
    ports.sets = bit_sets(&a, n_ports, ports.n_vlans, &ports.words);
    if (!a.failed) {
        Py_BEGIN_ALLOW_THREADS;
        carry_vlans(paths, ports);
        Py_END_ALLOW_THREADS;
    }
    return ended(&a);
}

static PyObject *py_hold_circuits_back(PyObject *self, PyObject *args)
{
    (void)self;
    Arguments a = {.args = args};
    Change change = {.n_racks = integer(&a, 0), .n_circuits = -1};
    int32_t n_ports = -1;
    change.port_rack = indices(&a, &n_ports, change.n_racks);
    change.a = indices(&a, &change.n_circuits, n_ports);
    change.b = indices(&a, &change.n_circuits, n_ports);
    change.is_fixed = next_array(&a, sizeof(uint8_t), &change.n_circuits, 0);
    PortVlans ports = {.n_vlans = integer(&a, 0)};
    ports.sets = bit_sets(&a, n_ports, ports.n_vlans, &ports.words);
    uint8_t *is_held = next_array(&a, sizeof(uint8_t), &change.n_circuits, 1);
    if (!a.failed) {
        bool done;
        Py_BEGIN_ALLOW_THREADS;
        done = hold_circuits_back(&change, ports, is_held);
        Py_END_ALLOW_THREADS;
        if (!done)
            fail_for_memory(&a);
    }
    return ended(&a);
}

static PyObject *py_find_loops(PyObject *self, PyObject *args)
{
    (void)self;
    Arguments a = {.args = args};
    int32_t n_racks = integer(&a, 0), n_ports = -1, n_circuits = 0;
    const int32_t *port_rack = indices(&a, &n_ports, n_racks);
    Domains domains = {.count = 0};
    domains.start = starts(&a, &domains.count, &n_circuits);
    domains.a = indices(&a, &n_circuits, n_ports);
    domains.b = indices(&a, &n_circuits, n_ports);
    int32_t *closes = integers_out(&a, &n_circuits);
    if (!a.failed) {
        bool done;
        Py_BEGIN_ALLOW_THREADS;
        done = find_loops(n_racks, port_rack, domains, closes);
        Py_END_ALLOW_THREADS;
        if (!done)
            fail_for_memory(&a);
    }
    return ended(&a);
}

static PyObject *py_tag_ports(PyObject *self, PyObject *args)
{
    (void)self;
    Arguments a = {.args = args};
    Membership ports = {.n_ports = integer(&a, 0)};
    int32_t n_vlans = integer(&a, 0), n_hops = 0;
    Tagged paths = {.count = 0};
    paths.start = starts(&a, &paths.count, &n_hops);
    paths.hop_a = next_array(&a, sizeof(int32_t), &n_hops, 0);
    paths.hop_b = next_array(&a, sizeof(int32_t), &n_hops, 0);
    const int32_t *vlan = indices(&a, &paths.count, n_vlans);
    ports.bits = bit_sets(&a, ports.n_ports, n_vlans, &ports.words);
    if (!a.failed) {
        Py_BEGIN_ALLOW_THREADS;
        tag_ports(paths, vlan, ports);
        Py_END_ALLOW_THREADS;
    }
    return ended(&a);
}

static PyObject *py_find_strays(PyObject *self, PyObject *args)
{
    (void)self;
    Arguments a = {.args = args};
    int32_t n_racks = integer(&a, 0), n_ports = -1, n_hops = 0;
    const int32_t *port_rack = indices(&a, &n_ports, n_racks);
    Tagged paths = {.count = 0};
    paths.start = starts(&a, &paths.count, &n_hops);
    paths.hop_a = next_array(&a, sizeof(int32_t), &n_hops, 0);
    paths.hop_b = next_array(&a, sizeof(int32_t), &n_hops, 0);
    const int32_t *src = next_array(&a, sizeof(int32_t), &paths.count, 0);
    const int32_t *dst = next_array(&a, sizeof(int32_t), &paths.count, 0);
    uint8_t *is_stray = next_array(&a, sizeof(uint8_t), &paths.count, 1);
    if (!a.failed) {
        bool done;
        Py_BEGIN_ALLOW_THREADS;
        done = find_strays(n_racks, n_ports, port_rack, paths, src, dst, is_stray);
        Py_END_ALLOW_THREADS;
        if (!done)
            fail_for_memory(&a);
    }
    return ended(&a);
}

static PyObject *py_list_domains(PyObject *self, PyObject *args)
{
    (void)self;
    Arguments a = {.args = args};
    Membership ports = {.n_ports = integer(&a, 0)};
    int32_t n_vlans = integer(&a, 0), n_circuits = -1, room = -1;
    ports.bits = bit_sets(&a, ports.n_ports, n_vlans, &ports.words);
    const int32_t *one = indices(&a, &n_circuits, ports.n_ports);
    const int32_t *other = indices(&a, &n_circuits, ports.n_ports);
    int32_t n_starts = n_vlans < INT32_MAX ? n_vlans + 1 : n_vlans;
    int32_t *start = integers_out(&a, &n_starts);
    int32_t *circuit = integers_out(&a, &room);
    int64_t count = 0;
    if (!a.failed) {
        Py_BEGIN_ALLOW_THREADS;
        count = list_domains(ports, n_vlans, n_circuits, one, other, start, room, circuit);
        Py_END_ALLOW_THREADS;
        if (count > INT32_MAX)
            fail_for_memory(&a);
    }
    release(&a);
    return a.failed ? NULL : PyLong_FromLongLong(count);
}

static PyObject *py_book_turns(PyObject *self, PyObject *args)
{
    (void)self;
    Arguments a = {.args = args};
    int32_t n_paths = 0, n_hops = 0, n_left = -1;
    double *left = doubles_out(&a, &n_left);
    const int32_t *start = starts(&a, &n_paths, &n_hops);
    const int32_t *circuit = indices(&a, &n_hops, n_left);
    Turns turns = {.count = -1};
    turns.path = indices(&a, &turns.count, n_paths);
    turns.part = doubles(&a, &turns.count);
    const double *share = doubles(&a, &n_paths);
    double *given = doubles_out(&a, &n_paths);
    if (!a.failed) {
        Py_BEGIN_ALLOW_THREADS;
        book_turns(start, circuit, turns, share, left, given);
        Py_END_ALLOW_THREADS;
    }
    return ended(&a);
}

static PyObject *py_improve_links(PyObject *self, PyObject *args)
{
    (void)self;
    Arguments a = {.args = args};
    Wiring w = {.n_ports = -1};
    w.n_racks = integer(&a, 0);
    w.n_planes = integer(&a, 0);
    w.port_rack = indices(&a, &w.n_ports, w.n_racks);
    w.port_plane = indices(&a, &w.n_ports, w.n_planes);
    w.port_mbps = doubles(&a, &w.n_ports);
    const uint8_t *is_free = next_array(&a, sizeof(uint8_t), &w.n_ports, 0);
    DemandList demands = {.count = -1};
    demands.src = indices(&a, &demands.count, w.n_racks);
    demands.dst = indices(&a, &demands.count, w.n_racks);
    demands.mbps = doubles(&a, &demands.count);
    demands.open_mbps = doubles(&a, &demands.count);
    demands.open_paths = indices(&a, &demands.count, INT32_MAX);
    demands.standing_paths = indices(&a, &demands.count, INT32_MAX);
    Search search = {.max_hops = integer(&a, 1)};
    search.whole = integer(&a, 0);
    search.mate = next_array(&a, sizeof(int32_t), &w.n_ports, 0);
    check_range(&a, search.mate, a.failed ? 0 : w.n_ports, -1, w.n_ports);
    int32_t single = 1;
    const double *disturbance = doubles(&a, &single);
    search.steps = integer(&a, 1);
    search.reroute_steps = integer(&a, 0);
    search.seed = integer(&a, 0);
    Links links = {.n_fixed = integer(&a, 0)};
    links.n_links = integer(&a, 0);
    int32_t n_room = -1, n_hops = -1;
    links.link_a = integers_out(&a, &n_room);
    links.link_b = integers_out(&a, &n_room);
    links.capacity_mbps = doubles_out(&a, &n_room);
    Found found = {.room = -1};
    found.pair = integers_out(&a, &found.room);
    found.hops = integers_out(&a, &found.room);
    found.links = integers_out(&a, &n_hops);
    double *worth = doubles_out(&a, &single);
    if (!a.failed && search.max_hops > LONGEST_PATH)
        fail(&a, "is more hops than a path may have here");
    if (!a.failed && (links.n_fixed > links.n_links ||
                      n_room < (int64_t)links.n_fixed + w.n_ports / 2 || n_room < links.n_links))
        fail(&a, "leaves too little room for links");
    if (!a.failed && n_hops < (int64_t)found.room * LONGEST_PATH)
        fail(&a, "leaves too little room for hops");
    check_range(&a, links.link_a, a.failed ? 0 : links.n_links, 0, w.n_ports);
    check_range(&a, links.link_b, a.failed ? 0 : links.n_links, 0, w.n_ports);
    int32_t used = 0;
    if (!a.failed) {
        search.disturbance_mbps = *disturbance;
        Py_BEGIN_ALLOW_THREADS;
        used = improve_links(&w, is_free, demands, &search, &links, &found, worth);
        Py_END_ALLOW_THREADS;
        if (used < 0)
            fail_for_memory(&a);
    }
    release(&a);
    return a.failed ? NULL : Py_BuildValue("iii", links.n_links, found.count, used);
}

static PyMethodDef methods[] = {
    {"plan_paths", py_plan_paths, METH_VARARGS, "The rounds of the HydRA heuristic."},
    {"improve_links", py_improve_links, METH_VARARGS, "Rewiring while that serves more."},
    {"serve_paths", py_serve_paths, METH_VARARGS, "What paths get of their demand, in turn."},
    {"walk_paths", py_walk_paths, METH_VARARGS, "The racks along paths."},
    {"pack_paths", py_pack_paths, METH_VARARGS, "First fit of paths into loop-free VLANs."},
    {"carry_vlans", py_carry_vlans, METH_VARARGS, "VLANs that ports may carry."},
    {"hold_circuits_back", py_hold_circuits_back, METH_VARARGS, "Circuits that could close loops."},
    {"find_loops", py_find_loops, METH_VARARGS, "For checks: circuits that close loops."},
    {"tag_ports", py_tag_ports, METH_VARARGS, "For checks: the VLANs of each port."},
    {"find_strays", py_find_strays, METH_VARARGS, "For checks: paths that break."},
    {"list_domains", py_list_domains, METH_VARARGS, "For checks: the circuits of each VLAN."},
    {"book_turns", py_book_turns, METH_VARARGS, "For checks: what paths get, turn by turn."},
    {"assign_rows", py_assign_rows, METH_VARARGS, "The heaviest assignment."},
    {"colour_edges", py_colour_edges, METH_VARARGS, "Edges of a bipartite graph, in colours."},
    {"improve_network", py_improve_network, METH_VARARGS, "The heaviest edges within degrees."},
    {"widest_matching", py_widest_matching, METH_VARARGS, "The largest smallest entry."},
    {"stuff", py_stuff, METH_VARARGS, "Equal sums of rows and columns."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "topology._native",
    .m_doc = "Compiled kernels of the topology engine.",
    .m_size = 0,
    .m_methods = methods,
};

PyMODINIT_FUNC PyInit__native(void) { return PyModuleDef_Init(&module); }
