/* The switches of a whole fabric in one process: OpenFlow 1.3 connections, flow tables, light.

   usage: fabric CONFIGURATION SOCKET

   CONFIGURATION has a line for each thing, racks and servers counted from 0 in its order:
     controller HOST PORT   of the switches that follow, until the next such line
     planes COUNT PORTS
     tor DATAPATH SERVERS
     vswitch DATAPATH RACK MAC

   ToRs have the ports server1, server2, ... and, after them, optical1, optical2, ..., one for each
   plane. On plane P, rack R (from 0) sends into ingress R + 1 and receives from egress PORTS + R + 1.
   Vswitches have the ports host, optical and electrical: 1, 2, 3.

   Each switch keeps its tables as OpenFlow 1.3.5 says, with bundles (ONF extension 230), meters and
   roles. Frames that the controller sends out are carried if they are probes: over the ToR's VLANs
   and the planes' light, through the tables at the other end, and back by packet-in. ToRs know where
   addresses are, as if they had learnt them, and flood nothing: loops are those on a probe's way. Other frames are counted. No traffic flows but that, so counters of rules stand still.

   It ends with its standard input. Commands come by lines over SOCKET, each is answered by a line:
     start                    connect all switches, and keep them connected
     vlans RACK PORT LIST     the VLANs of a ToR's port: 5,100-199, or all
     light PLANE LIST         the cross-connects of a plane that stand: 1:321,2:322
     carrier                  RACK:PORT of each ToR's port that has light
     count                    name=number ...
     echoes                   round trips of echo requests since the last such line, and those due:
                              until the switch had the answer, and until its messages had their turn
     tardy SILENT SLOW MS     so many vswitches read nothing, and others MS late; 0 0 0: none
     walk FILE                see below
     rules DATAPATH           the table of a switch, as flow statistics in hexadecimal digits

   walk: FILE holds packets of 64 bytes, and FILE.out gets a verdict of 8 bytes for each, both in
   this machine's byte order: what comes of the packet in the tables of one switch. */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;

enum { HELLO, ERROR, ECHO_REQUEST, ECHO_REPLY, EXPERIMENTER, FEATURES_REQUEST, FEATURES_REPLY,
       GET_CONFIG_REQUEST, GET_CONFIG_REPLY, SET_CONFIG, PACKET_IN, FLOW_REMOVED, PORT_STATUS,
       PACKET_OUT, FLOW_MOD, MULTIPART_REQUEST = 18, MULTIPART_REPLY, BARRIER_REQUEST,
       BARRIER_REPLY, ROLE_REQUEST = 24, ROLE_REPLY, GET_ASYNC_REQUEST, GET_ASYNC_REPLY, SET_ASYNC,
       METER_MOD };
enum { MP_DESC, MP_FLOW, MP_AGGREGATE, MP_TABLE, MP_PORT_STATS, MP_METER = 9, MP_METER_CONFIG,
       MP_METER_FEATURES, MP_PORT_DESC = 13 };
enum { FC_ADD, FC_MODIFY, FC_MODIFY_STRICT, FC_DELETE, FC_DELETE_STRICT };
enum { BUNDLE_OPEN = 0, BUNDLE_CLOSE = 2, BUNDLE_COMMIT = 4, BUNDLE_DISCARD = 6 };
enum { EQUAL = 1, MASTER, SLAVE };
enum { ET_BAD_REQUEST = 1, ET_BAD_ACTION, ET_BAD_INSTRUCTION, ET_BAD_MATCH, ET_FLOW_MOD,
       ET_ROLE = 11, ET_METER = 12, ET_EXPERIMENTER = 0xffff };
#define ONF 0x4f4e4600u
#define NO_GENERATION (~0ull)
#define PORT_ANY 0xffffffffu
#define PORT_MAX 0xffffff00u
#define PORT_IN 0xfffffff8u
#define PORT_NORMAL 0xfffffffau
#define PORT_CONTROLLER 0xfffffffdu
#define PORT_LOCAL 0xfffffffeu
#define NO_ENTRY 0xffffffffu
#define TELLS_END 1u
enum { MULTIPATH = 10, RESUBMIT_TABLE = 14, FIN_TIMEOUT = 19 };
#define PROBE_TYPE 0x88b5
#define RECONNECT_S 1.0
#define ECHO_EVERY_S 0.01
#define LENT_S 0.25
#define PART 65000

static void die(const char *what) { perror(what); exit(1); }
static void *grown(void *old, size_t bytes) {
  void *new = realloc(old, bytes);
  if (!new) die("memory");
  return new;
}
static double now_s(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + t.tv_nsec * 1e-9;
}
static u16 g16(const u8 *p) { return (u16)(p[0] << 8 | p[1]); }
static u32 g32(const u8 *p) { return (u32)p[0] << 24 | (u32)p[1] << 16 | (u32)p[2] << 8 | p[3]; }
static u64 g64(const u8 *p) { return (u64)g32(p) << 32 | g32(p + 4); }
static void p16(u8 *p, u16 v) { p[0] = (u8)(v >> 8); p[1] = (u8)v; }
static void p32(u8 *p, u32 v) { p16(p, (u16)(v >> 16)); p16(p + 2, (u16)v); }
static void p64(u8 *p, u64 v) { p32(p, (u32)(v >> 32)); p32(p + 4, (u32)v); }

/* -- buffers --------------------------------------------------------------------------------- */

typedef struct { u8 *data; size_t start, end, room; } Buffer;

static void put(Buffer *b, const void *data, size_t n) {
  if (b->start == b->end) b->start = b->end = 0;
  if (b->end + n > b->room) {
    if (b->start) {
      memmove(b->data, b->data + b->start, b->end - b->start);
      b->end -= b->start;
      b->start = 0;
    }
    if (b->end + n > b->room) b->data = grown(b->data, b->room = (b->end + n) * 3 / 2 + 64);
  }
  memcpy(b->data + b->end, data, n);
  b->end += n;
}
static void release(Buffer *b) { free(b->data); memset(b, 0, sizeof *b); }

/* -- byte strings that many switches share, each stored once ---------------------------------- */

typedef struct { u8 **blob; u32 *length, *slot, n, room, slots; } Pool;

static u64 hash_of(const u8 *p, size_t n) {
  u64 h = 0x9e3779b97f4a7c15ull ^ n;
  for (; n >= 8; p += 8, n -= 8) { u64 w; memcpy(&w, p, 8); h = (h ^ w) * 0xff51afd7ed558ccdull; h ^= h >> 32; }
  u64 w = 0;
  memcpy(&w, p, n);
  h = (h ^ w) * 0xc4ceb9fe1a85ec53ull;
  return h ^ h >> 29;
}
static u32 intern(Pool *pool, const u8 *p, u32 n) {
  if (pool->n * 2 >= pool->slots) {
    u32 slots = pool->slots ? pool->slots * 2 : 1024;
    pool->slot = grown(pool->slot, slots * sizeof(u32));
    memset(pool->slot, 0xff, slots * sizeof(u32));
    pool->slots = slots;
    for (u32 i = 0; i < pool->n; i++) {
      u32 at = (u32)hash_of(pool->blob[i], pool->length[i]) & (slots - 1);
      while (pool->slot[at] != NO_ENTRY) at = (at + 1) & (slots - 1);
      pool->slot[at] = i;
    }
  }
  u32 at = (u32)hash_of(p, n) & (pool->slots - 1);
  for (u32 i; (i = pool->slot[at]) != NO_ENTRY; at = (at + 1) & (pool->slots - 1))
    if (pool->length[i] == n && !memcmp(pool->blob[i], p, n)) return i;
  if (pool->n == pool->room) {
    pool->room = pool->room ? pool->room * 2 : 1024;
    pool->blob = grown(pool->blob, pool->room * sizeof(u8 *));
    pool->length = grown(pool->length, pool->room * sizeof(u32));
  }
  pool->blob[pool->n] = memcpy(grown(NULL, n + 1), p, n);
  pool->length[pool->n] = n;
  return pool->slot[at] = pool->n++;
}

/* -- matches ----------------------------------------------------------------------------------- */

enum { F_IN_PORT, F_ETH_SRC, F_ETH_DST, F_ETH_TYPE, F_VLAN, F_IPV4_SRC, F_IPV4_DST, F_IPV6_SRC, F_IPV6_DST,
       F_DSCP, F_PROTO, F_TCP_SRC, F_TCP_DST, F_ICMP6, F_ND_TARGET, F_ARP_SPA, F_REG0, F_METADATA, FIELDS };
/* In the order in which Open vSwitch writes them. */
static const struct { u16 class; u8 code, size, at; } FIELD[FIELDS] = {
    {0x8000, 0, 4, 0},   {0x8000, 4, 6, 80},  {0x8000, 3, 6, 16},  {0x8000, 5, 2, 22},  {0x8000, 6, 2, 24},
    {0x8000, 11, 4, 28}, {0x8000, 12, 4, 32}, {0x8000, 26, 16, 40}, {0x8000, 27, 16, 56},
    {0x8000, 8, 1, 26},  {0x8000, 10, 1, 27}, {0x8000, 13, 2, 36}, {0x8000, 14, 2, 38},
    {0x8000, 29, 1, 72}, {0x8000, 31, 16, 92}, {0x8000, 22, 4, 88}, {0x0001, 0, 4, 76},  {0x8000, 2, 8, 8}};
typedef struct { u8 byte[108]; } Packet; /* its fields, each where FIELD says, in network order */

typedef struct { u8 field; u8 value[16], mask[16]; } Term;
typedef struct { u8 n; Term term[10]; } Match;

/* A key: table, priority (2), then for each field, in the order of FIELD: number, value, mask. */
static Pool keys, instructions, shapes;
static u32 *shape_of_key; /* equal for keys with the same table, fields and masks */

static int field_of(u16 class, u8 code) {
  for (int f = 0; f < FIELDS; f++)
    if (FIELD[f].class == class && FIELD[f].code == code) return f;
  return -1;
}
/* False if a field is unknown, or lengths do not add up. */
static bool read_match(const u8 *p, size_t n, Match *m) {
  bool seen[FIELDS] = {0};
  Term terms[FIELDS];
  m->n = 0;
  for (size_t at = 0; at < n;) {
    if (n - at < 4) return false;
    int f = field_of(g16(p + at), p[at + 2] >> 1);
    bool masked = p[at + 2] & 1;
    if (f < 0 || seen[f] || p[at + 3] != FIELD[f].size << masked || at + 4 + p[at + 3] > n) return false;
    u8 size = FIELD[f].size;
    terms[f].field = (u8)f;
    memcpy(terms[f].value, p + at + 4, size);
    if (masked) memcpy(terms[f].mask, p + at + 4 + size, size);
    else memset(terms[f].mask, 0xff, size);
    for (int i = 0; i < size; i++)
      if (terms[f].value[i] & ~terms[f].mask[i]) return false;
    seen[f] = true;
    at += 4 + p[at + 3];
  }
  for (int f = 0; f < FIELDS; f++)
    if (seen[f]) {
      if (m->n == 10) return false;
      m->term[m->n++] = terms[f];
    }
  return true;
}
static u32 key_of(u8 table, u16 priority, const Match *m) {
  u8 key[400], shape[400];
  u32 n = 3, s = 1;
  key[0] = shape[0] = table;
  p16(key + 1, priority);
  for (int t = 0; t < m->n; t++) {
    const Term *one = &m->term[t];
    u8 size = FIELD[one->field].size;
    key[n++] = shape[s++] = one->field;
    memcpy(key + n, one->value, size);
    memcpy(key + n + size, one->mask, size);
    memcpy(shape + s, one->mask, size);
    n += 2 * size;
    s += size;
  }
  u32 before = keys.n, id = intern(&keys, key, n);
  if (keys.n != before) {
    shape_of_key = grown(shape_of_key, keys.room * sizeof(u32));
    shape_of_key[id] = intern(&shapes, shape, s);
  }
  return id;
}
/* True if every packet that the key takes is one that `m` takes, too. */
static bool within(u32 key, const Match *m) {
  const u8 *p = keys.blob[key] + 3, *end = keys.blob[key] + keys.length[key];
  for (int t = 0; t < m->n; t++) {
    const Term *one = &m->term[t];
    while (p < end && *p < one->field) p += 1 + 2 * FIELD[*p].size;
    if (p == end || *p != one->field) return false;
    u8 size = FIELD[*p].size;
    for (int i = 0; i < size; i++)
      if ((one->mask[i] & ~p[1 + size + i]) || (p[1 + i] & one->mask[i]) != one->value[i]) return false;
  }
  return true;
}
static bool takes(u32 key, const Packet *packet) {
  const u8 *p = keys.blob[key] + 3, *end = keys.blob[key] + keys.length[key];
  while (p < end) {
    u8 size = FIELD[*p].size;
    const u8 *held = packet->byte + FIELD[*p].at;
    for (int i = 0; i < size; i++)
      if ((held[i] & p[1 + size + i]) != p[1 + i]) return false;
    p += 1 + 2 * size;
  }
  return true;
}

/* -- switches ---------------------------------------------------------------------------------- */

typedef struct { u64 cookie; u32 key, instructions; float since_s; } Entry;
typedef struct { u32 number, flags, kbps, burst; float since_s; } Meter;
typedef struct { u64 rx_frames, tx_frames, rx_bytes, tx_bytes; } Counters;
typedef struct Bundle { u32 id; u16 flags; bool closed, failed; Buffer messages; struct Bundle *next; } Bundle;

typedef struct {
  u64 datapath, generation;
  int rack, place; /* a ToR's place is -1 */
  u8 mac[6];
  u32 ports;
  Counters *counters;
  Entry *entry; /* sorted by shape if `sorted` */
  u32 n, room, *index, slots;
  bool sorted;
  Meter *meter;
  u32 meters;
  int socket, role;
  struct sockaddr_in controller;
  bool connecting, greeted;
  double retry_s, echoed_s; /* echoed_s: when the echo was sent that is due; 0: none */
  double late_s, read_at_s; /* how late it reads, and when it does next; 0: at once */
  Buffer in, out;
  Bundle *bundles;
  bool lent, returned;            /* to and from the thread that waits for an echo's answer */
  size_t looked, heard;           /* bytes of `in` that it has looked through, and has read */
  double lent_s, came_s;          /* when it was lent, and when the answer had come; 0: not yet */
} Switch;

typedef struct { u8 member[512]; } Vlans;

/* What epoll tells of, beside switches by their number. */
enum { ENDED = 0xffffff00u, DOOR, RETURNED, CLIENT };

static Switch *sw;
static u32 switches, racks, vswitches;
static u32 *tor_of, *server_at; /* switches by rack; by rack * most + place */
static u32 most_servers, planes, plane_ports, tor_servers;
static u64 *passed; /* by rack: number of the last probe there; if it comes again, that is a loop */
static u32 *lit_from, *lights; /* by plane * racks + rack: the rack whose light arrives; leads to */
static Vlans *vlans;           /* by rack * (servers + planes) + port - 1 */
static int epoll;
static bool started;
static double begin_s;
static struct {
  u64 flow_mods, rules_added, rules_removed, bundles, requests, errors, probes_sent, probes_lost,
      probes_in, other_frames, loops, bytes_in, bytes_out, connects, losses;
} total;
static u32 connected;
static float *round_trips, *readings; /* ms: until they came, and until they were read */
static u32 round_trips_n, round_trips_room;
static pthread_mutex_t lending = PTHREAD_MUTEX_INITIALIZER;
static int lent_epoll, some_returned;
static u32 *returned, returned_n; /* switches that come back from the thread */
static struct { u32 number; double at_s; } *lendings; /* a ring of `switches` places */
static u32 lendings_first, lendings_n;

static u32 ports_of_tor(void) { return tor_servers + planes; }

static void rebuild(Switch *s) {
  u32 slots = 16;
  while (slots < s->room * 3 / 2) slots *= 2;
  if (slots != s->slots) s->index = grown(s->index, (s->slots = slots) * sizeof(u32));
  memset(s->index, 0xff, slots * sizeof(u32));
  for (u32 i = 0; i < s->n; i++) {
    u32 at = (s->entry[i].key * 2654435761u) & (slots - 1);
    while (s->index[at] != NO_ENTRY) at = (at + 1) & (slots - 1);
    s->index[at] = i;
  }
}
static u32 find(Switch *s, u32 key) {
  if (!s->slots) return NO_ENTRY;
  u32 at = (key * 2654435761u) & (s->slots - 1);
  for (u32 i; (i = s->index[at]) != NO_ENTRY; at = (at + 1) & (s->slots - 1))
    if (s->entry[i].key == key) return i;
  return NO_ENTRY;
}
static void add(Switch *s, u32 key, u32 its_instructions, u64 cookie) {
  float since_s = (float)(now_s() - begin_s);
  u32 i = find(s, key);
  if (i == NO_ENTRY) {
    if (s->n == s->room) {
      s->room = s->room ? s->room * 3 / 2 : 16;
      s->entry = grown(s->entry, s->room * sizeof(Entry));
      rebuild(s);
    }
    i = s->n++;
    u32 at = (key * 2654435761u) & (s->slots - 1);
    while (s->index[at] != NO_ENTRY) at = (at + 1) & (s->slots - 1);
    s->index[at] = i;
    s->sorted = false;
  }
  s->entry[i] = (Entry){cookie, key, its_instructions, since_s};
  total.rules_added++;
}
static bool outputs_to(u32 id, u32 port) {
  if (port == PORT_ANY) return true;
  const u8 *p = instructions.blob[id], *end = p + instructions.length[id];
  for (; p < end; p += g16(p + 2))
    if (g16(p) == 3 || g16(p) == 4)
      for (const u8 *a = p + 8; a < p + g16(p + 2); a += g16(a + 2))
        if (g16(a) == 0 && g32(a + 4) == port) return true;
  return false;
}
/* Lengths of instructions and their actions add up, and they are of kinds that are played here. */
/* Open vSwitch's own: rules that end once a TCP segment with FIN meets them (nicira-ext.h). */
static bool is_nicira(const u8 *action, u16 subtype) {
  return g16(action) == 0xffff && g32(action + 4) == 0x2320 && g16(action + 8) == subtype;
}
static bool ends_on_fin(u32 id) {
  const u8 *p = instructions.blob[id], *end = p + instructions.length[id];
  for (; p < end; p += g16(p + 2))
    for (const u8 *a = p + 8; g16(p) == 4 && a < p + g16(p + 2); a += g16(a + 2))
      if (is_nicira(a, FIN_TIMEOUT)) return true;
  return false;
}

static int bad_instructions(const Switch *s, const u8 *p, size_t n, u16 *code) {
  for (size_t at = 0; at < n; at += g16(p + at + 2)) {
    if (n - at < 8 || g16(p + at + 2) < 8 || g16(p + at + 2) % 8 || at + g16(p + at + 2) > n)
      return *code = 6, ET_BAD_REQUEST;
    u16 kind = g16(p + at), length = g16(p + at + 2);
    if (kind == 6) {
      bool known = false;
      for (u32 i = 0; i < s->meters; i++) known |= s->meter[i].number == g32(p + at + 4);
      if (!known) return *code = 2, ET_METER;
    } else if (kind == 4) {
      for (size_t a = at + 8; a < at + length; a += g16(p + a + 2)) {
        u16 action = g16(p + a);
        if (at + length - a < 8 || g16(p + a + 2) < 8 || a + g16(p + a + 2) > at + length)
          return *code = 1, ET_BAD_ACTION;
        if (action != 0 && action != 17 && action != 18 && action != 25 && action != 0xffff)
          return *code = 0, ET_BAD_ACTION;
        if (action == 25 && field_of(g16(p + a + 4), p[a + 6] >> 1) < 0) return *code = 14, ET_BAD_ACTION;
      }
    } else if (kind != 1 && kind != 2) {
      return *code = 0, ET_BAD_INSTRUCTION;
    }
  }
  return 0;
}

/* -- what is sent ------------------------------------------------------------------------------ */

static void watch(Switch *s) {
  struct epoll_event e = {(s->read_at_s || s->lent ? 0 : EPOLLIN) | (s->connecting || s->out.start < s->out.end ? EPOLLOUT : 0),
                          {.u32 = (u32)(s - sw)}};
  epoll_ctl(epoll, EPOLL_CTL_MOD, s->socket, &e);
}
static void lose(Switch *s) {
  if (s->socket < 0) return;
  if (s->greeted) connected--, total.losses++;
  pthread_mutex_lock(&lending);
  s->lent = s->returned = false;
  close(s->socket);
  pthread_mutex_unlock(&lending);
  s->socket = -1;
  s->connecting = s->greeted = false;
  s->retry_s = now_s() + RECONNECT_S * (0.5 + drand48() / 2);
  s->echoed_s = s->read_at_s = 0;
  release(&s->in);
  release(&s->out);
  while (s->bundles) {
    Bundle *b = s->bundles;
    s->bundles = b->next;
    release(&b->messages);
    free(b);
  }
}
static bool flush(Switch *s) {
  bool waited = false;
  while (s->out.start < s->out.end) {
    ssize_t n = send(s->socket, s->out.data + s->out.start, s->out.end - s->out.start, MSG_NOSIGNAL);
    if (n < 0) {
      if (errno == EAGAIN) { waited = true; break; }
      lose(s);
      return false;
    }
    s->out.start += (size_t)n;
    total.bytes_out += (u64)n;
  }
  if (!waited && s->out.room) release(&s->out);
  watch(s);
  return true;
}
static void head(Switch *s, u8 type, u32 length, u32 xid) {
  u8 h[8] = {4, type};
  p16(h + 2, (u16)length);
  p32(h + 4, xid);
  put(&s->out, h, 8);
}
static void say(Switch *s, u8 type, u32 xid, const void *body, size_t n) {
  head(s, type, (u32)(8 + n), xid);
  put(&s->out, body, n);
}
static void refuse(Switch *s, u16 type, u16 code, const u8 *message) {
  u8 body[76];
  u16 n = g16(message + 2) < 64 ? g16(message + 2) : 64;
  size_t at = 4;
  p16(body, type);
  p16(body + 2, code);
  if (type == ET_EXPERIMENTER) p32(body + 4, ONF), at = 8;
  memcpy(body + at, message, n);
  say(s, ERROR, g32(message + 4), body, at + n);
  total.errors++;
}

static bool port_is_down(const Switch *s, u32 port) {
  if (s->place >= 0 || port <= tor_servers || port > ports_of_tor()) return false;
  return lit_from[(port - tor_servers - 1) * racks + (u32)s->rack] == NO_ENTRY;
}
static void describe_port(const Switch *s, u32 port, u8 *p) {
  static const char *names[] = {"host", "optical", "electrical"};
  memset(p, 0, 64);
  p32(p, port);
  u8 mac[6] = {0x0a, (u8)(s->datapath >> 24), (u8)(s->datapath >> 16), (u8)(s->datapath >> 8),
               (u8)s->datapath, (u8)port};
  memcpy(p + 8, mac, 6);
  char *name = (char *)p + 16;
  if (port == PORT_LOCAL) snprintf(name, 16, s->place < 0 ? "tor" : "vswitch");
  else if (s->place >= 0) snprintf(name, 16, "%s", names[port - 1]);
  else if (port <= tor_servers) snprintf(name, 16, "server%u", port);
  else snprintf(name, 16, "optical%u", (port - tor_servers) & 0xffff);
  if (port == PORT_LOCAL) p32(p + 32, 1); /* switched off, as Open vSwitch leaves it */
  if (port == PORT_LOCAL || port_is_down(s, port)) p32(p + 36, 1);
}
static void tell_port(Switch *s, u32 port) {
  if (!s->greeted || s->role == SLAVE) return;
  u8 body[72] = {2};
  describe_port(s, port, body + 8);
  say(s, PORT_STATUS, 0, body, 72);
  watch(s);
}

/* A reply of any number of parts: the last is ended by end_parts. */
static Buffer part;
static void end_part(Switch *s, u32 xid, u16 kind, bool more) {
  u8 h[8] = {0};
  p16(h, kind);
  p16(h + 2, more);
  head(s, MULTIPART_REPLY, (u32)(16 + part.end), xid);
  put(&s->out, h, 8);
  put(&s->out, part.data, part.end);
  part.start = part.end = 0;
}
static void add_part(Switch *s, u32 xid, u16 kind, const u8 *p, size_t n) {
  if (part.end + n > PART) end_part(s, xid, kind, true);
  put(&part, p, n);
}

static size_t write_match(u32 key, u8 *p) {
  const u8 *k = keys.blob[key] + 3, *end = keys.blob[key] + keys.length[key];
  size_t n = 4;
  while (k < end) {
    u8 size = FIELD[*k].size;
    bool masked = false;
    for (int i = 0; i < size; i++) masked |= k[1 + size + i] != 0xff;
    p16(p + n, FIELD[*k].class);
    p[n + 2] = (u8)(FIELD[*k].code << 1 | masked);
    p[n + 3] = (u8)(size << masked);
    memcpy(p + n + 4, k + 1, (size_t)size << masked);
    n += 4u + ((size_t)size << masked);
    k += 1 + 2 * size;
  }
  p16(p, 1);
  p16(p + 2, (u16)n);
  while (n % 8) p[n++] = 0;
  return n;
}
static size_t write_entry(const Entry *e, double at_s, u8 *p) {
  memset(p, 0, 48);
  size_t n = 48 + write_match(e->key, p + 48);
  memcpy(p + n, instructions.blob[e->instructions], instructions.length[e->instructions]);
  n += instructions.length[e->instructions];
  double age_s = at_s - begin_s - e->since_s;
  if (age_s < 0) age_s = 0;
  p16(p, (u16)n);
  p[2] = keys.blob[e->key][0];
  p32(p + 4, (u32)age_s);
  p32(p + 8, (u32)((age_s - (u32)age_s) * 1e9));
  p16(p + 12, g16(keys.blob[e->key] + 1));
  p16(p + 18, ends_on_fin(e->instructions) ? TELLS_END : 0);
  p64(p + 24, e->cookie);
  return n;
}
static int by_shape(const void *a, const void *b) {
  const Entry *x = a, *y = b;
  u8 tx = keys.blob[x->key][0], ty = keys.blob[y->key][0];
  if (tx != ty) return tx < ty ? -1 : 1;
  u16 px = g16(keys.blob[x->key] + 1), py = g16(keys.blob[y->key] + 1);
  if (px != py) return px > py ? -1 : 1;
  u32 sx = shape_of_key[x->key], sy = shape_of_key[y->key];
  if (sx != sy) return sx < sy ? -1 : 1;
  return x->key < y->key ? -1 : x->key > y->key;
}
/* By table, then priority, highest first; within a priority, rules of one mask stand together. */
static void sort(Switch *s) {
  if (s->sorted) return;
  qsort(s->entry, s->n, sizeof(Entry), by_shape);
  rebuild(s);
  s->sorted = true;
}

static void multipart(Switch *s, const u8 *m, u16 length) {
  if (length < 16) { refuse(s, ET_BAD_REQUEST, 6, m); return; }
  u16 kind = g16(m + 8), size = length - 16;
  u32 xid = g32(m + 4);
  const u8 *body = m + 16;
  static u8 p[4096];
  double at_s = now_s();
  part.start = part.end = 0;
  if (kind == MP_DESC) {
    memset(p, 0, 1056);
    strcpy((char *)p, "HydRA benchmarks");
    snprintf((char *)p + 256, 256, "simulated %s", s->place < 0 ? "ToR" : "vswitch");
    add_part(s, xid, kind, p, 1056);
  } else if (kind == MP_FLOW || kind == MP_AGGREGATE) {
    Match m13;
    if (size < 40 || g16(body + 34) < 4 || g16(body + 34) + 32 > size ||
        !read_match(body + 36, g16(body + 34) - 4u, &m13)) { refuse(s, ET_BAD_MATCH, 6, m); return; }
    u8 table = body[0];
    u32 port = g32(body + 4), count = 0;
    u64 cookie = g64(body + 16), mask = g64(body + 24);
    sort(s);
    for (u32 i = 0; i < s->n; i++) {
      const Entry *e = &s->entry[i];
      u8 its = keys.blob[e->key][0];
      if (table != 0xff && its > table) break;
      if ((table != 0xff && its != table) || ((e->cookie ^ cookie) & mask) ||
          (m13.n && !within(e->key, &m13)) || !outputs_to(e->instructions, port)) continue;
      count++;
      if (kind == MP_FLOW) add_part(s, xid, kind, p, write_entry(e, at_s, p));
    }
    if (kind == MP_AGGREGATE) {
      memset(p, 0, 24);
      p32(p + 16, count);
      add_part(s, xid, kind, p, 24);
    }
  } else if (kind == MP_PORT_STATS) {
    if (size < 8) { refuse(s, ET_BAD_REQUEST, 6, m); return; }
    u32 asked = g32(body);
    for (u32 port = 1; port <= s->ports; port++) {
      if (asked != PORT_ANY && asked != port) continue;
      const Counters *c = &s->counters[port - 1];
      memset(p, 0, 112);
      p32(p, port);
      p64(p + 8, c->rx_frames);
      p64(p + 16, c->tx_frames);
      p64(p + 24, c->rx_bytes);
      p64(p + 32, c->tx_bytes);
      p32(p + 104, (u32)(at_s - begin_s));
      add_part(s, xid, kind, p, 112);
    }
  } else if (kind == MP_PORT_DESC) {
    for (u32 port = 1; port <= s->ports + 1; port++) {
      describe_port(s, port <= s->ports ? port : PORT_LOCAL, p);
      add_part(s, xid, kind, p, 64);
    }
  } else if (kind == MP_METER) {
    u32 asked = size >= 4 ? g32(body) : PORT_ANY;
    for (u32 i = 0; i < s->meters; i++) {
      if (asked != PORT_ANY && asked != s->meter[i].number) continue;
      u32 rules = 0, seconds = (u32)(at_s - begin_s - s->meter[i].since_s);
      for (u32 e = 0; e < s->n; e++) {
        u32 id = s->entry[e].instructions;
        const u8 *q = instructions.blob[id], *end = q + instructions.length[id];
        for (; q < end; q += g16(q + 2)) rules += g16(q) == 6 && g32(q + 4) == s->meter[i].number;
      }
      memset(p, 0, 56);
      p32(p, s->meter[i].number);
      p16(p + 4, 56);
      p32(p + 12, rules);
      p32(p + 32, seconds);
      add_part(s, xid, kind, p, 56);
    }
  } else {
    refuse(s, ET_BAD_REQUEST, 2, m);
    return;
  }
  end_part(s, xid, kind, false);
}

/* -- rules ------------------------------------------------------------------------------------- */

static void remove_if(Switch *s, bool (*goes)(const Entry *, const void *), const void *what) {
  u32 kept = 0;
  for (u32 i = 0; i < s->n; i++)
    if (!goes(&s->entry[i], what)) s->entry[kept++] = s->entry[i];
  if (kept == s->n) return;
  total.rules_removed += s->n - kept;
  s->n = kept;
  rebuild(s);
}
typedef struct { u8 table; u64 cookie, mask; u32 port; const Match *match; } Choice;
static bool chosen(const Entry *e, const void *what) {
  const Choice *c = what;
  return (c->table == 0xff || keys.blob[e->key][0] == c->table) &&
         !((e->cookie ^ c->cookie) & c->mask) && (!c->match->n || within(e->key, c->match)) &&
         outputs_to(e->instructions, c->port);
}
static bool has_key(const Entry *e, const void *what) { return e->key == *(const u32 *)what; }

/* Carry a flow-mod out, or with `only_check` find out whether that is possible. */
static int flow_mod(Switch *s, const u8 *m, u16 length, bool only_check, u16 *code) {
  Match match;
  if (length < 56) return *code = 6, ET_BAD_REQUEST;
  u64 cookie = g64(m + 8), mask = g64(m + 16);
  u8 table = m[24], command = m[25];
  u16 priority = g16(m + 30), flags = g16(m + 44), match_bytes = g16(m + 50);
  u32 port = g32(m + 36), group = g32(m + 40);
  size_t after = 48 + (match_bytes + 7u) / 8 * 8;
  if (g16(m + 48) != 1 || match_bytes < 4 || after > length) return *code = 1, ET_BAD_MATCH;
  if (!read_match(m + 52, match_bytes - 4u, &match)) return *code = 6, ET_BAD_MATCH;
  if (command > FC_DELETE_STRICT) return *code = 6, ET_FLOW_MOD;
  if (g16(m + 26) || g16(m + 28)) return *code = 5, ET_FLOW_MOD; /* time-outs are not played */
  if (flags & ~(4u | TELLS_END)) return *code = 7, ET_FLOW_MOD; /* nor overlaps found */
  if (group != PORT_ANY) return *code = 0, ET_FLOW_MOD;
  if (table == 0xff && command != FC_DELETE && command != FC_DELETE_STRICT) return *code = 2, ET_FLOW_MOD;
  if (command <= FC_MODIFY_STRICT) {
    int type = bad_instructions(s, m + after, length - after, code);
    if (type) return type;
    u32 id = intern(&instructions, m + after, (u32)(length - after));
    if (ends_on_fin(id) != !!(flags & TELLS_END)) return *code = 7, ET_FLOW_MOD; /* of others none is told */
  }
  if (only_check) return 0;
  total.flow_mods++;
  if (command == FC_ADD) {
    u32 new = intern(&instructions, m + after, (u32)(length - after));
    add(s, key_of(table, priority, &match), new, cookie);
    return 0;
  }
  Choice choice = {table, cookie, mask, command >= FC_DELETE ? port : PORT_ANY, &match};
  if (command == FC_DELETE) {
    remove_if(s, chosen, &choice);
  } else if (command == FC_DELETE_STRICT) {
    for (u32 t = table == 0xff ? 0 : table; t <= (table == 0xff ? 254u : table); t++) {
      u32 key = key_of((u8)t, priority, &match), i = find(s, key);
      if (i != NO_ENTRY && chosen(&s->entry[i], &choice)) remove_if(s, has_key, &key);
    }
  } else {
    u32 new = intern(&instructions, m + after, (u32)(length - after));
    u32 key = command == FC_MODIFY_STRICT ? key_of(table, priority, &match) : NO_ENTRY;
    for (u32 i = 0; i < s->n; i++)
      if ((key == NO_ENTRY || s->entry[i].key == key) && chosen(&s->entry[i], &choice))
        s->entry[i].instructions = new;
  }
  return 0;
}

static Bundle **bundle_of(Switch *s, u32 id) {
  Bundle **b = &s->bundles;
  while (*b && (*b)->id != id) b = &(*b)->next;
  return b;
}
static void drop(Bundle **b) {
  Bundle *gone = *b;
  *b = gone->next;
  release(&gone->messages);
  free(gone);
}
static void bundle(Switch *s, const u8 *m, u16 length) {
  u32 type = g32(m + 12), id;
  if (length < 24) { refuse(s, ET_BAD_REQUEST, 6, m); return; }
  id = g32(m + 16);
  Bundle **b = bundle_of(s, id);
  u16 flags = g16(m + 22), code = 0;
  if (type == 2301) {
    const u8 *inner = m + 24;
    if (length < 32 || g16(inner + 2) != length - 24) { refuse(s, ET_EXPERIMENTER, 2308, m); return; }
    if (!*b) { /* ONF 230: adding to a bundle that is not open opens it */
      *b = grown(NULL, sizeof(Bundle));
      memset(*b, 0, sizeof(Bundle));
      (*b)->id = id;
      (*b)->flags = flags;
    }
    if ((*b)->closed) code = 2304;
    else if ((*b)->flags != flags) code = 2307;
    else if (g32(inner + 4) != g32(m + 4)) code = 2309;
    else if (inner[1] != FLOW_MOD) code = 2310;
    if (code) { (*b)->failed = true; refuse(s, ET_EXPERIMENTER, code, m); return; }
    put(&(*b)->messages, inner, length - 24u);
    return;
  }
  if (type != 2300) { refuse(s, ET_BAD_REQUEST, 4, m); return; }
  u16 kind = g16(m + 20);
  if (kind == BUNDLE_OPEN) {
    if (*b) { drop(b); refuse(s, ET_EXPERIMENTER, 2303, m); return; }
    *b = grown(NULL, sizeof(Bundle));
    memset(*b, 0, sizeof(Bundle));
    (*b)->id = id;
    (*b)->flags = flags;
  } else if (!*b) {
    refuse(s, ET_EXPERIMENTER, 2302, m);
    return;
  } else if (kind == BUNDLE_CLOSE) {
    if ((*b)->closed) { refuse(s, ET_EXPERIMENTER, 2304, m); return; }
    (*b)->closed = true;
  } else if (kind == BUNDLE_DISCARD) {
    drop(b);
  } else if (kind == BUNDLE_COMMIT) {
    Buffer *all = &(*b)->messages;
    bool failed = (*b)->failed;
    for (int pass = 0; pass < 2 && !failed; pass++) /* all or nothing: first, none is carried out */
      for (size_t at = 0; at < all->end && !failed; at += g16(all->data + at + 2)) {
        int error = flow_mod(s, all->data + at, g16(all->data + at + 2), pass == 0, &code);
        if (error) { refuse(s, (u16)error, code, all->data + at); failed = true; }
      }
    drop(b);
    if (failed) { refuse(s, ET_EXPERIMENTER, 2313, m); return; }
    total.bundles++;
  } else {
    refuse(s, ET_EXPERIMENTER, 2306, m);
    return;
  }
  u8 reply[16];
  memcpy(reply, m + 8, 16);
  p16(reply + 12, kind + 1);
  say(s, EXPERIMENTER, g32(m + 4), reply, 16);
}

static bool of_meter(const Entry *e, const void *what) {
  const u8 *p = instructions.blob[e->instructions], *end = p + instructions.length[e->instructions];
  for (; p < end; p += g16(p + 2))
    if (g16(p) == 6 && g32(p + 4) == *(const u32 *)what) return true;
  return false;
}
static void meter_mod(Switch *s, const u8 *m, u16 length) {
  if (length < 16) { refuse(s, ET_BAD_REQUEST, 6, m); return; }
  u16 command = g16(m + 8), flags = g16(m + 10);
  u32 number = g32(m + 12), i = 0;
  while (i < s->meters && s->meter[i].number != number) i++;
  if (command == 2) {
    for (u32 j = s->meters; j-- > 0;)
      if (number == PORT_ANY || s->meter[j].number == number) {
        remove_if(s, of_meter, &s->meter[j].number);
        s->meter[j] = s->meter[--s->meters];
      }
    return;
  }
  if (command > 2) { refuse(s, ET_METER, 4, m); return; }
  if (length != 32 || g16(m + 16) != 1) { refuse(s, ET_METER, 8, m); return; }
  if (number == 0 || number > 0xffff0000u) { refuse(s, ET_METER, 2, m); return; }
  if (command == 0 && i < s->meters) { refuse(s, ET_METER, 1, m); return; }
  if (command == 1 && i == s->meters) { refuse(s, ET_METER, 3, m); return; }
  if (i == s->meters) {
    s->meter = grown(s->meter, ++s->meters * sizeof(Meter));
    s->meter[i].since_s = (float)(now_s() - begin_s);
  }
  s->meter[i].number = number;
  s->meter[i].flags = flags;
  s->meter[i].kbps = g32(m + 20);
  s->meter[i].burst = g32(m + 24);
}

/* -- packets ----------------------------------------------------------------------------------- */

typedef struct { u32 port; u16 vlan; u16 steps; } Verdict; /* port 0: dropped; vlan 0: untagged */

/* The packet's way through the tables of a switch, up to where it leaves. */
static Verdict run(Switch *s, Packet packet) {
  Verdict v = {0, 0, 0};
  sort(s);
  for (u32 table = 0, i = 0;;) {
    while (i < s->n && keys.blob[s->entry[i].key][0] < table) i++;
    while (i < s->n && keys.blob[s->entry[i].key][0] == table && !takes(s->entry[i].key, &packet)) i++;
    if (i == s->n || keys.blob[s->entry[i].key][0] != table) return v; /* OpenFlow: a miss is a drop */
    v.steps++;
    u32 id = s->entry[i].instructions, next = NO_ENTRY;
    const u8 *end = instructions.blob[id] + instructions.length[id];
    for (const u8 *p = instructions.blob[id]; p < end; p += g16(p + 2)) {
      if (g16(p) == 1) next = p[4];
      if (g16(p) == 2)
        for (int b = 0; b < 8; b++) {
          u8 *at = packet.byte + FIELD[F_METADATA].at + b;
          *at = (u8)((*at & ~p[16 + b]) | (p[8 + b] & p[16 + b]));
        }
      if (g16(p) != 4) continue;
      for (const u8 *a = p + 8; a < p + g16(p + 2); a += g16(a + 2)) {
        u8 *tag = packet.byte + FIELD[F_VLAN].at;
        if (g16(a) == 0) { v.port = g32(a + 4); v.vlan = g16(tag) & 0x1000 ? g16(tag) & 0xfff : 0; }
        if (g16(a) == 17) p16(tag, 0x1000);
        if (g16(a) == 18) p16(tag, 0);
        if (g16(a) == 25) {
          int f = field_of(g16(a + 4), a[6] >> 1);
          memcpy(packet.byte + FIELD[f].at, a + 8, FIELD[f].size);
        }
        if (is_nicira(a, MULTIPATH)) { /* into reg0 */
          u64 h = hash_of(packet.byte + FIELD[F_IPV4_SRC].at, 44);
          p32(packet.byte + FIELD[F_REG0].at, (u32)(h % (g16(a + 18) + 1u)));
        }
      }
    }
    if (next == NO_ENTRY) return v;
    if (next <= table) return (Verdict){0, 0, 0xffff};
    table = next;
  }
}

static void arrive(Switch *s, u32 port, const u8 *frame, u16 n) {
  Packet packet = {{0}};
  s->counters[port - 1].rx_frames++;
  s->counters[port - 1].rx_bytes += n;
  p32(packet.byte + FIELD[F_IN_PORT].at, port);
  memcpy(packet.byte + FIELD[F_ETH_DST].at, frame, 6);
  bool tagged = g16(frame + 12) == 0x8100;
  p16(packet.byte + FIELD[F_VLAN].at, tagged ? (g16(frame + 14) & 0xfff) | 0x1000 : 0);
  memcpy(packet.byte + FIELD[F_ETH_TYPE].at, frame + (tagged ? 16 : 12), 2);
  if (run(s, packet).port != PORT_CONTROLLER) { total.probes_lost++; return; }
  u8 h[40] = {0};
  p32(h, 0xffffffff);
  p16(h + 4, n);
  h[6] = 1; /* an action sent it */
  p16(h + 16, 1);
  p16(h + 18, 12);
  p32(h + 20, 0x80000004);
  p32(h + 24, port);
  head(s, PACKET_IN, 8 + 34 + n, 0);
  put(&s->out, h, 34);
  put(&s->out, frame, n);
  total.probes_in++;
  watch(s);
}
static bool carries(u32 rack, u32 port, u16 vlan) {
  return vlans[rack * ports_of_tor() + port - 1].member[vlan >> 3] >> (vlan & 7) & 1;
}
/* Where a ToR sent the last frame for an address in a VLAN: direct-mapped, so later ones displace. */
static struct Learned { u64 key; u32 port; } learned[1 << 20];
static struct Learned *learned_at(u32 rack, u16 vlan, const u8 *mac) {
  u64 key = ((u64)g16(mac) << 32 | g32(mac + 2)) * 0x9e3779b97f4a7c15ull ^ ((u64)rack << 16 | vlan) * 0xc2b2ae3d27d4eb4full;
  struct Learned *l = &learned[key >> 44];
  if (l->key != key) l->key = key, l->port = 0;
  return l;
}
static bool pass(u32 rack, u32 port, const u8 *frame, u16 n, u16 vlan);
static bool pass_out(u32 rack, u32 out, const u8 *frame, u16 n, u16 vlan) {
  Switch *tor = &sw[tor_of[rack]];
  if (!carries(rack, out, vlan)) return false;
  if (out <= tor_servers) {
    u32 server = server_at[rack * most_servers + out - 1];
    if (server == NO_ENTRY || memcmp(sw[server].mac, frame, 6)) return false;
    arrive(&sw[server], 2, frame, n);
  } else {
    if (port_is_down(tor, out)) return false; /* Open vSwitch sends nothing where there is no carrier */
    u32 to = lights[(out - tor_servers - 1) * racks + rack];
    if (to == NO_ENTRY || !pass(to, out, frame, n, vlan)) return false;
  }
  tor->counters[out - 1].tx_frames++;
  tor->counters[out - 1].tx_bytes += n;
  return true;
}
/* A probe comes in at a port of a rack's ToR, which sends it to where it has learnt that its receiver
   is, and finds that out first if need be; by light to others. False: it does not get there. */
static bool pass(u32 rack, u32 port, const u8 *frame, u16 n, u16 vlan) {
  Switch *tor = &sw[tor_of[rack]];
  if (!carries(rack, port, vlan)) return false;
  if (passed[rack] == total.probes_sent) { total.loops++; return false; }
  passed[rack] = total.probes_sent;
  Packet packet = {{0}};
  p32(packet.byte + FIELD[F_IN_PORT].at, port);
  memcpy(packet.byte + FIELD[F_ETH_DST].at, frame, 6);
  p16(packet.byte + FIELD[F_VLAN].at, vlan | 0x1000);
  p16(packet.byte + FIELD[F_ETH_TYPE].at, PROBE_TYPE);
  if (run(tor, packet).port != PORT_NORMAL) return false;
  struct Learned *l = learned_at(rack, vlan, frame);
  u32 known = l->port, out = known;
  bool reached = known && known != port && pass_out(rack, known, frame, n, vlan);
  for (u32 other = 1; !reached && other <= ports_of_tor(); other++)
    if (other != port && other != known) reached = pass_out(rack, out = other, frame, n, vlan);
  if (!reached) return false;
  learned_at(rack, vlan, frame)->port = out;
  tor->counters[port - 1].rx_frames++;
  tor->counters[port - 1].rx_bytes += n;
  return true;
}
/* An untagged probe comes in at a server's port: the servers of a rack share the native VLAN. */
static bool pass_untagged(u32 rack, u32 port, const u8 *frame, u16 n) {
  Switch *tor = &sw[tor_of[rack]];
  Packet packet = {{0}};
  p32(packet.byte + FIELD[F_IN_PORT].at, port);
  memcpy(packet.byte + FIELD[F_ETH_DST].at, frame, 6);
  p16(packet.byte + FIELD[F_ETH_TYPE].at, PROBE_TYPE);
  if (run(tor, packet).port != PORT_NORMAL) return false;
  for (u32 out = 1; out <= tor_servers; out++) {
    u32 server = server_at[rack * most_servers + out - 1];
    if (out == port || server == NO_ENTRY || memcmp(sw[server].mac, frame, 6)) continue;
    tor->counters[port - 1].rx_frames++;
    tor->counters[port - 1].rx_bytes += n;
    tor->counters[out - 1].tx_frames++;
    tor->counters[out - 1].tx_bytes += n;
    arrive(&sw[server], 2, frame, n);
    return true;
  }
  return false;
}
/* A FIN in IPv4 for one table: the rule of that port ends at once, since no flow is cached here. */
static void end_on_fin(Switch *s, u8 table, const u8 *frame, u16 n) {
  if (n < 54 || g16(frame + 12) != 0x0800 || frame[23] != 6 || !(frame[47] & 1)) return;
  Packet packet = {{0}};
  p16(packet.byte + FIELD[F_ETH_TYPE].at, 0x0800);
  packet.byte[FIELD[F_PROTO].at] = 6;
  memcpy(packet.byte + FIELD[F_TCP_DST].at, frame + 36, 2);
  sort(s);
  for (u32 i = 0; i < s->n; i++) {
    const Entry *e = &s->entry[i];
    u32 key = e->key;
    if (keys.blob[key][0] != table || !takes(key, &packet)) continue;
    if (!ends_on_fin(e->instructions)) return;
    u8 body[40] = {0};
    p64(body, e->cookie);
    memcpy(body + 8, keys.blob[key] + 1, 2);
    body[10] = 1; /* by its hard time-out */
    body[11] = table;
    p32(body + 12, (u32)(now_s() - begin_s - e->since_s));
    p16(body + 22, 1);
    u8 match[512];
    u32 size = (u32)write_match(key, match);
    head(s, FLOW_REMOVED, 8 + 40 + size, 0);
    put(&s->out, body, 40);
    put(&s->out, match, size);
    remove_if(s, has_key, &key);
    watch(s);
    return;
  }
}
static void packet_out(Switch *s, const u8 *m, u16 length) {
  if (length < 24 || 24 + g16(m + 16) > length) { refuse(s, ET_BAD_REQUEST, 6, m); return; }
  const u8 *frame = m + 24 + g16(m + 16);
  u16 n = (u16)(m + length - frame);
  for (const u8 *a = m + 24; a < frame; a += g16(a + 2)) {
    if (frame - a < 8 || g16(a + 2) < 8) { refuse(s, ET_BAD_ACTION, 1, m); return; }
    if (frame - a >= 16 && is_nicira(a, RESUBMIT_TABLE)) { end_on_fin(s, a[12], frame, n); continue; }
    if (g16(a) != 0) { refuse(s, ET_BAD_ACTION, 0, m); return; }
    u32 port = g32(a + 4);
    if (port < 1 || port > s->ports) { refuse(s, ET_BAD_ACTION, 4, m); return; }
    s->counters[port - 1].tx_frames++;
    s->counters[port - 1].tx_bytes += n;
    bool tagged = n >= 18 && g16(frame + 12) == 0x8100;
    if (n < 18 || g16(frame + (tagged ? 16 : 12)) != PROBE_TYPE || s->place < 0 || port != 2) {
      total.other_frames++;
      continue;
    }
    total.probes_sent++;
    u32 rack = (u32)s->rack, from = (u32)s->place + 1;
    u16 vlan = tagged ? g16(frame + 14) & 0xfff : 0;
    bool passes = vlan ? pass(rack, from, frame, n, vlan) : pass_untagged(rack, from, frame, n);
    if (!passes) total.probes_lost++;
  }
}

/* -- messages ---------------------------------------------------------------------------------- */

static void role(Switch *s, const u8 *m, u16 length) {
  if (length < 24) { refuse(s, ET_BAD_REQUEST, 6, m); return; }
  u32 asked = g32(m + 8);
  u64 generation = g64(m + 16);
  if (asked > SLAVE) { refuse(s, ET_ROLE, 2, m); return; }
  if (asked == MASTER || asked == SLAVE) {
    if (s->generation != NO_GENERATION && (int64_t)(generation - s->generation) < 0) {
      refuse(s, ET_ROLE, 0, m);
      return;
    }
    s->generation = generation;
  }
  if (asked) s->role = (int)asked;
  u8 body[16] = {0};
  p32(body, (u32)s->role);
  p64(body + 8, s->generation);
  say(s, ROLE_REPLY, g32(m + 4), body, 16);
}
static void noted(double came_after_s, double read_after_s) {
  if (round_trips_n == round_trips_room) {
    round_trips_room = round_trips_room * 2 + 1024;
    round_trips = grown(round_trips, round_trips_room * sizeof(float));
    readings = grown(readings, round_trips_room * sizeof(float));
  }
  round_trips[round_trips_n] = (float)(came_after_s * 1000);
  readings[round_trips_n++] = (float)(read_after_s * 1000);
}
static bool changes_state(u8 type) {
  return type == FLOW_MOD || type == METER_MOD || type == PACKET_OUT || type == EXPERIMENTER;
}
static bool message(Switch *s, const u8 *m, u16 length) {
  u32 xid = g32(m + 4);
  u16 code = 0;
  int error;
  total.requests++;
  if (m[0] != 4 && m[1] != HELLO) { refuse(s, ET_BAD_REQUEST, 0, m); return true; }
  if (s->role == SLAVE && changes_state(m[1])) { refuse(s, ET_BAD_REQUEST, 10, m); return true; }
  switch (m[1]) {
  case HELLO:
    if (!s->greeted) s->greeted = true, connected++, total.connects++;
    break;
  case ERROR: break;
  case ECHO_REQUEST: say(s, ECHO_REPLY, xid, m + 8, length - 8u); break;
  case ECHO_REPLY:
    if (s->echoed_s != 0) {
      double at_s = now_s();
      noted((s->came_s ? s->came_s : at_s) - s->echoed_s, at_s - s->echoed_s);
    }
    s->echoed_s = 0;
    break;
  case FEATURES_REQUEST: {
    u8 body[24] = {0};
    p64(body, s->datapath);
    body[12] = 254;
    p32(body + 16, 0x4f);
    say(s, FEATURES_REPLY, xid, body, 24);
    break;
  }
  case GET_CONFIG_REQUEST: say(s, GET_CONFIG_REPLY, xid, "\0\0\0\200", 4); break;
  case SET_CONFIG: break;
  case SET_ASYNC: break;
  case PACKET_OUT: packet_out(s, m, length); break;
  case FLOW_MOD:
    if ((error = flow_mod(s, m, length, false, &code))) refuse(s, (u16)error, code, m);
    break;
  case METER_MOD: meter_mod(s, m, length); break;
  case MULTIPART_REQUEST: multipart(s, m, length); break;
  case BARRIER_REQUEST: say(s, BARRIER_REPLY, xid, "", 0); break;
  case ROLE_REQUEST: role(s, m, length); break;
  case EXPERIMENTER:
    if (length >= 16 && g32(m + 8) == ONF) bundle(s, m, length);
    else refuse(s, ET_BAD_REQUEST, 3, m);
    break;
  default: refuse(s, ET_BAD_REQUEST, 1, m);
  }
  return s->socket >= 0;
}

/* The whole messages of `data`, which begins with what `in` holds, if that is anything. */
static void digest(Switch *s, const u8 *data, size_t left) {
  while (left >= 8 && left >= g16(data + 2)) {
    u16 length = g16(data + 2);
    if (length < 8) { lose(s); return; }
    if (!message(s, data, length)) return;
    data += length;
    left -= length;
  }
  if (left == 0) release(&s->in);
  else if (s->in.end) s->in.start = s->in.end - left;
  else put(&s->in, data, left);
  flush(s);
}
static void receive(Switch *s) {
  static u8 fresh[1 << 20];
  ssize_t n = recv(s->socket, fresh, sizeof fresh, 0);
  if (n <= 0) {
    if (n == 0 || errno != EAGAIN) lose(s);
    return;
  }
  total.bytes_in += (u64)n;
  if (!s->in.end) { digest(s, fresh, (size_t)n); return; }
  put(&s->in, fresh, (size_t)n);
  digest(s, s->in.data + s->in.start, s->in.end - s->in.start);
}

/* -- a thread that has an echo's answer when it comes ------------------------------------------- */

/* A switch of its own would read at once. One process for all of them reads each in its turn, and
   an answer would be as late as that. So a thread reads for the switch until it has the answer. */
static void give_back(Switch *s) {
  epoll_ctl(lent_epoll, EPOLL_CTL_DEL, s->socket, NULL);
  s->lent = false;
  s->returned = true;
  returned[returned_n++] = (u32)(s - sw);
  (void)!write(some_returned, &(u64){1}, sizeof(u64));
}
static void read_for(Switch *s) {
  static u8 fresh[1 << 16];
  ssize_t n = recv(s->socket, fresh, sizeof fresh, 0);
  if (n < 0 && errno == EAGAIN) return;
  if (n <= 0) { give_back(s); return; } /* what ended it will be met again */
  double at_s = now_s();
  s->heard += (size_t)n;
  put(&s->in, fresh, (size_t)n);
  const u8 *data = s->in.data + s->in.start;
  size_t size = s->in.end - s->in.start;
  while (size >= s->looked + 8) {
    const u8 *m = data + s->looked;
    if (g16(m + 2) < 8 || (m[1] == ECHO_REPLY && size >= s->looked + g16(m + 2))) {
      s->came_s = at_s;
      give_back(s);
      return;
    }
    s->looked += g16(m + 2);
  }
}
static void *wait_for_answers(void *unused) {
  struct epoll_event events[64];
  setpriority(PRIO_PROCESS, (id_t)gettid(), -10); /* where that is allowed */
  for (;;) {
    int n = epoll_wait(lent_epoll, events, 64, -1);
    for (int i = 0; i < n; i++) {
      Switch *s = &sw[events[i].data.u32];
      pthread_mutex_lock(&lending);
      if (s->lent) read_for(s);
      pthread_mutex_unlock(&lending);
    }
  }
  return unused;
}
static void lend(Switch *s) {
  if (lendings_n == switches) return;
  lendings[(lendings_first + lendings_n) % switches].number = (u32)(s - sw);
  lendings[(lendings_first + lendings_n++) % switches].at_s = s->lent_s = now_s();
  pthread_mutex_lock(&lending);
  s->lent = true;
  s->came_s = 0;
  s->looked = s->heard = 0;
  struct epoll_event e = {EPOLLIN, {.u32 = (u32)(s - sw)}};
  epoll_ctl(lent_epoll, EPOLL_CTL_ADD, s->socket, &e);
  pthread_mutex_unlock(&lending);
  watch(s);
}
static void take_back(void) {
  u64 some;
  (void)!read(some_returned, &some, sizeof some);
  for (;;) {
    pthread_mutex_lock(&lending);
    Switch *s = returned_n ? &sw[returned[--returned_n]] : NULL;
    bool is_here = s && s->returned;
    if (s) s->returned = false;
    pthread_mutex_unlock(&lending);
    if (!s) return;
    if (!is_here) continue; /* its connection was lost meanwhile */
    total.bytes_in += s->heard;
    digest(s, s->in.data + s->in.start, s->in.end - s->in.start);
  }
}
/* Whoever does not answer is not to keep the rest of what it says from being heard. */
static void end_lendings(double at_s) {
  for (; lendings_n && at_s - lendings[lendings_first].at_s > LENT_S; lendings_n--) {
    Switch *s = &sw[lendings[lendings_first].number];
    double lent_s = lendings[lendings_first].at_s;
    lendings_first = (lendings_first + 1) % switches;
    pthread_mutex_lock(&lending);
    if (s->lent && s->lent_s == lent_s) give_back(s);
    pthread_mutex_unlock(&lending);
  }
}
static void begin_lending(void) {
  pthread_t thread;
  returned = grown(NULL, 2 * switches * sizeof(u32));
  lendings = grown(NULL, switches * sizeof *lendings);
  lent_epoll = epoll_create1(EPOLL_CLOEXEC);
  some_returned = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  struct epoll_event e = {EPOLLIN, {.u32 = RETURNED}};
  epoll_ctl(epoll, EPOLL_CTL_ADD, some_returned, &e);
  if (pthread_create(&thread, NULL, wait_for_answers, NULL)) die("pthread_create");
}

static void begin(Switch *s) {
  s->socket = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (s->socket < 0) die("socket");
  int one = 1;
  setsockopt(s->socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  if ((ntohl(s->controller.sin_addr.s_addr) >> 24) == 127) { /* racks have addresses of their own */
    struct sockaddr_in own = {.sin_family = AF_INET,
                              .sin_addr.s_addr = htonl(0x7f010001u + (u32)s->rack)};
    setsockopt(s->socket, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof one);
    if (bind(s->socket, (struct sockaddr *)&own, sizeof own)) die("bind");
  }
  struct epoll_event e = {EPOLLIN | EPOLLOUT, {.u32 = (u32)(s - sw)}};
  epoll_ctl(epoll, EPOLL_CTL_ADD, s->socket, &e);
  s->connecting = true;
  s->role = EQUAL;
  if (connect(s->socket, (struct sockaddr *)&s->controller, sizeof s->controller) && errno != EINPROGRESS) lose(s);
}
static void ready(Switch *s, u32 events) {
  if (s->socket < 0) return;
  if (s->connecting) {
    int error = 0;
    socklen_t size = sizeof error;
    getsockopt(s->socket, SOL_SOCKET, SO_ERROR, &error, &size);
    if (error) { lose(s); return; }
    s->connecting = false;
    say(s, HELLO, 0, "", 0);
    if (!flush(s)) return;
  }
  if (events & EPOLLOUT && !flush(s)) return;
  if (events & EPOLLIN && s->late_s && !(events & (EPOLLHUP | EPOLLERR))) {
    s->read_at_s = now_s() + s->late_s;
    watch(s);
    return;
  }
  if (s->lent) return; /* the thread meets it, too, and gives it back */
  if (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) receive(s);
}

/* -- commands ---------------------------------------------------------------------------------- */

static FILE *answer;

static void set_vlans(u32 rack, u32 port, const char *list) {
  if (rack >= racks || port < 1 || port > ports_of_tor()) { fprintf(answer, "error no such port\n"); return; }
  Vlans *v = &vlans[rack * ports_of_tor() + port - 1];
  memset(v, strcmp(list, "all") ? 0 : 0xff, sizeof *v);
  while (*list >= '0' && *list <= '9') {
    char *end;
    unsigned long first = strtoul(list, &end, 10), last = first;
    if (*end == '-') last = strtoul(end + 1, &end, 10);
    for (unsigned long id = first; id <= last && id < 4096; id++) v->member[id >> 3] |= (u8)(1 << (id & 7));
    list = *end == ',' ? end + 1 : end;
  }
  fprintf(answer, "ok\n");
}
static void set_light(u32 plane, const char *list) {
  if (plane >= planes) { fprintf(answer, "error no such plane\n"); return; }
  u32 *from = lit_from + plane * racks, *to = lights + plane * racks;
  u32 *before = grown(NULL, racks * sizeof(u32));
  memcpy(before, from, racks * sizeof(u32));
  memset(from, 0xff, racks * sizeof(u32));
  memset(to, 0xff, racks * sizeof(u32));
  while (*list >= '0' && *list <= '9') {
    char *end;
    unsigned long a = strtoul(list, &end, 10), b = *end == ':' ? strtoul(end + 1, &end, 10) : 0;
    if (a >= 1 && a <= racks && b > plane_ports && b <= plane_ports + racks) {
      to[a - 1] = (u32)(b - plane_ports - 1);
      from[b - plane_ports - 1] = (u32)(a - 1);
    }
    list = *end == ',' ? end + 1 : end;
  }
  for (u32 r = 0; r < racks; r++)
    if ((before[r] == NO_ENTRY) != (from[r] == NO_ENTRY)) tell_port(&sw[tor_of[r]], tor_servers + plane + 1);
  free(before);
  fprintf(answer, "ok\n");
}
static void tell_carrier(void) {
  fputs("ok", answer);
  for (u32 plane = 0; plane < planes; plane++)
    for (u32 r = 0; r < racks; r++)
      if (lit_from[plane * racks + r] != NO_ENTRY) fprintf(answer, " %u:%u", r, tor_servers + plane + 1);
  fprintf(answer, "\n");
}
/* Spread over the racks; nobody is both. */
static void be_tardy(u32 silent, u32 slow, double slow_s) {
  u32 vswitches = switches - racks, number = 0;
  for (u32 i = 0; i < switches; i++) {
    if (sw[i].place < 0) continue;
    bool is_slow = slow && number % (vswitches / slow) == 7 && number / (vswitches / slow) < slow;
    bool is_silent = silent && number % (vswitches / silent) == 4 && number / (vswitches / silent) < silent;
    number++;
    sw[i].late_s = is_silent ? 1e9 : is_slow ? slow_s : 0;
    if (!sw[i].late_s && sw[i].read_at_s) sw[i].read_at_s = 1; /* due */
  }
  fprintf(answer, "ok\n");
}
static int by_size(const void *a, const void *b) {
  float x = *(const float *)a, y = *(const float *)b;
  return x < y ? -1 : x > y;
}
static float of_hundred(float *times, u32 hundredth) {
  if (!round_trips_n) return 0;
  qsort(times, round_trips_n, sizeof(float), by_size);
  return times[(u64)(round_trips_n - 1) * hundredth / 100];
}
static void tell_echoes(void) {
  double at_s = now_s();
  u32 due = 0;
  for (u32 i = 0; i < switches; i++)
    if (sw[i].echoed_s != 0) noted(at_s - sw[i].echoed_s, at_s - sw[i].echoed_s), due++;
  fprintf(answer, "count=%u due=%u p50_ms=%.3f p99_ms=%.3f max_ms=%.3f read_p99_ms=%.3f\n", round_trips_n, due,
          of_hundred(round_trips, 50), of_hundred(round_trips, 99), of_hundred(round_trips, 100),
          of_hundred(readings, 99));
  round_trips_n = 0;
}
typedef struct {
  u64 datapath;
  u32 in_port;
  u16 eth_type, vlan; /* vlan: 0: untagged */
  u8 mac[6], proto, icmp6, src[16], dst[16], dscp, version, from[6];
} Asked;
_Static_assert(sizeof(Asked) == 64, "the walker's packets have 64 bytes");
static int by_datapath(const void *a, const void *b) {
  u64 x = sw[*(const u32 *)a].datapath, y = sw[*(const u32 *)b].datapath;
  return x < y ? -1 : x > y;
}
static u32 *ordered;
static Switch *switch_with(u64 datapath) {
  for (u32 low = 0, high = switches; low < high;) {
    u32 middle = (low + high) / 2;
    u64 its = sw[ordered[middle]].datapath;
    if (its == datapath) return &sw[ordered[middle]];
    if (its < datapath) low = middle + 1;
    else high = middle;
  }
  return NULL;
}
static void walk(const char *path) {
  char out[4096];
  snprintf(out, sizeof out, "%s.out", path);
  FILE *in = fopen(path, "rb"), *to = fopen(out, "wb");
  if (!in || !to) { fprintf(answer, "error %s\n", strerror(errno)); return; }
  Asked asked;
  u32 count = 0;
  while (fread(&asked, sizeof asked, 1, in) == 1) {
    Switch *s = switch_with(asked.datapath);
    Verdict v = {0, 0, 0xffff};
    if (s) {
      Packet p = {{0}};
      p32(p.byte + FIELD[F_IN_PORT].at, asked.in_port);
      memcpy(p.byte + FIELD[F_ETH_DST].at, asked.mac, 6);
      memcpy(p.byte + FIELD[F_ETH_SRC].at, asked.from, 6);
      p16(p.byte + FIELD[F_ETH_TYPE].at, asked.eth_type);
      p16(p.byte + FIELD[F_VLAN].at, asked.vlan ? asked.vlan | 0x1000 : 0);
      p.byte[FIELD[F_DSCP].at] = asked.dscp;
      p.byte[FIELD[F_PROTO].at] = asked.proto;
      p.byte[FIELD[F_ICMP6].at] = asked.icmp6;
      u32 size = asked.version == 4 ? 4 : 16;
      memcpy(p.byte + FIELD[asked.version == 4 ? F_IPV4_SRC : F_IPV6_SRC].at, asked.src, size);
      if (asked.eth_type == 0x0806) memcpy(p.byte + FIELD[F_ARP_SPA].at, asked.src, 4);
      memcpy(p.byte + FIELD[asked.version == 4 ? F_IPV4_DST : F_IPV6_DST].at, asked.dst, size);
      v = run(s, p);
    }
    fwrite(&v, sizeof v, 1, to);
    count++;
  }
  fclose(in);
  fclose(to);
  fprintf(answer, "ok %u\n", count);
}
static void tell_rules(u64 datapath) {
  Switch *s = switch_with(datapath);
  static u8 p[4096];
  if (!s) { fprintf(answer, "error no such switch\n"); return; }
  sort(s);
  fputs("ok ", answer);
  for (u32 i = 0; i < s->n; i++) {
    size_t n = write_entry(&s->entry[i], now_s(), p);
    for (size_t b = 0; b < n; b++) fprintf(answer, "%02x", p[b]);
  }
  fprintf(answer, "\n");
}
static void tell_counts(void) {
  u64 rules = 0, open = 0, meters = 0, due = 0;
  for (u32 i = 0; i < switches; i++) {
    rules += sw[i].n;
    meters += sw[i].meters;
    due += sw[i].out.end - sw[i].out.start;
    for (Bundle *b = sw[i].bundles; b; b = b->next) open++;
  }
  fprintf(answer, "switches=%u connected=%u rules=%lu meters=%lu open_bundles=%lu flow_mods=%lu added=%lu "
         "removed=%lu bundles=%lu messages=%lu errors=%lu probes=%lu arrived=%lu lost=%lu "
         "other_frames=%lu loops=%lu bytes_in=%lu bytes_out=%lu unsent=%lu connects=%lu losses=%lu\n",
         switches, connected, rules, meters, open, total.flow_mods, total.rules_added,
         total.rules_removed, total.bundles, total.requests, total.errors, total.probes_sent,
         total.probes_in, total.probes_lost, total.other_frames, total.loops, total.bytes_in,
         total.bytes_out, due, total.connects, total.losses);
}
static void command(char *line) {
  char *word = strsep(&line, " ");
  char *rest = line ? line : "";
  if (!strcmp(word, "start")) {
    started = true;
    for (u32 i = 0; i < switches; i++) sw[i].retry_s = now_s() + drand48() * RECONNECT_S;
    fprintf(answer, "ok\n");
  } else if (!strcmp(word, "vlans")) {
    u32 rack = (u32)strtoul(rest, &rest, 10), port = (u32)strtoul(rest, &rest, 10);
    set_vlans(rack, port, *rest == ' ' ? rest + 1 : rest);
  } else if (!strcmp(word, "light")) {
    u32 plane = (u32)strtoul(rest, &rest, 10);
    set_light(plane, *rest == ' ' ? rest + 1 : rest);
  } else if (!strcmp(word, "count")) tell_counts();
  else if (!strcmp(word, "carrier")) tell_carrier();
  else if (!strcmp(word, "echoes")) tell_echoes();
  else if (!strcmp(word, "tardy")) {
    u32 silent = (u32)strtoul(rest, &rest, 10), slow = (u32)strtoul(rest, &rest, 10);
    be_tardy(silent, slow, strtod(rest, NULL) / 1000);
  } else if (!strcmp(word, "walk")) walk(rest);
  else if (!strcmp(word, "rules")) tell_rules(strtoull(rest, NULL, 0));
  else fprintf(answer, "error no such command\n");
}

/* Those who give commands, by a socket of the file system. */
#define CLIENTS 8u
typedef struct { int socket; Buffer lines; } Client;
static Client client[CLIENTS];
static int door;

static void open_door(const char *path) {
  struct sockaddr_un own = {.sun_family = AF_UNIX};
  snprintf(own.sun_path, sizeof own.sun_path, "%s", path);
  door = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  unlink(path);
  if (bind(door, (struct sockaddr *)&own, sizeof own) || listen(door, CLIENTS)) die(path);
  struct epoll_event e = {EPOLLIN, {.u32 = DOOR}};
  epoll_ctl(epoll, EPOLL_CTL_ADD, door, &e);
  for (u32 i = 0; i < CLIENTS; i++) client[i].socket = -1;
}
static void let_in(void) {
  int new = accept4(door, NULL, NULL, SOCK_CLOEXEC);
  for (u32 i = 0; i < CLIENTS; i++)
    if (client[i].socket < 0) {
      struct epoll_event e = {EPOLLIN, {.u32 = CLIENT + i}};
      epoll_ctl(epoll, EPOLL_CTL_ADD, client[i].socket = new, &e);
      return;
    }
  close(new);
}
static void hear(Client *c) {
  static char text[1 << 16];
  ssize_t got = read(c->socket, text, sizeof text);
  if (got <= 0) {
    close(c->socket);
    c->socket = -1;
    release(&c->lines);
    return;
  }
  put(&c->lines, text, (size_t)got);
  char *said = NULL;
  size_t n = 0;
  answer = open_memstream(&said, &n);
  u8 *end;
  while (c->lines.start < c->lines.end &&
         (end = memchr(c->lines.data + c->lines.start, '\n', c->lines.end - c->lines.start))) {
    *end = 0;
    command((char *)c->lines.data + c->lines.start);
    c->lines.start = (size_t)(end - c->lines.data) + 1;
  }
  fclose(answer);
  for (size_t sent = 0; sent < n;) {
    ssize_t some = write(c->socket, said + sent, n - sent);
    if (some <= 0) break;
    sent += (size_t)some;
  }
  free(said);
}

/* -- start ------------------------------------------------------------------------------------- */

static void configure(const char *path) {
  FILE *f = fopen(path, "r");
  if (!f) die(path);
  char kind[16], host[64];
  unsigned long datapath;
  u32 port, a, b, room = 0;
  struct sockaddr_in controller = {0};
  while (fscanf(f, "%15s", kind) == 1) {
    if (!strcmp(kind, "controller")) {
      if (fscanf(f, "%63s %u", host, &port) != 2) break;
      controller.sin_family = AF_INET;
      controller.sin_port = htons((u16)port);
      if (inet_pton(AF_INET, host, &controller.sin_addr) != 1) die(host);
      continue;
    }
    if (!strcmp(kind, "planes")) {
      if (fscanf(f, "%u %u", &planes, &plane_ports) != 2) break;
      continue;
    }
    if (switches == room) sw = grown(sw, (room = room * 2 + 1024) * sizeof(Switch));
    Switch *s = memset(&sw[switches++], 0, sizeof(Switch));
    s->socket = -1;
    s->controller = controller;
    s->generation = NO_GENERATION;
    s->sorted = true;
    if (!strcmp(kind, "tor") && fscanf(f, "%lu %u", &datapath, &a) == 2) {
      s->rack = (int)racks++;
      s->place = -1;
      tor_servers = most_servers = a;
    } else if (!strcmp(kind, "vswitch") && fscanf(f, "%lu %u %u %63s", &datapath, &a, &b, host) == 4) {
      s->rack = (int)a;
      s->place = (int)b;
      for (int i = 0; i < 6; i++) s->mac[i] = (u8)strtoul(host + 3 * i, NULL, 16);
      vswitches++;
    } else {
      fprintf(stderr, "%s: not understood: %s\n", path, kind);
      exit(1);
    }
    s->datapath = datapath;
  }
  fclose(f);
  u32 ports = ports_of_tor();
  tor_of = grown(NULL, racks * sizeof(u32));
  passed = calloc(racks, sizeof *passed);
  server_at = grown(NULL, racks * most_servers * sizeof(u32));
  memset(server_at, 0xff, racks * most_servers * sizeof(u32));
  lit_from = grown(NULL, planes * racks * sizeof(u32) + 1);
  lights = grown(NULL, planes * racks * sizeof(u32) + 1);
  memset(lit_from, 0xff, planes * racks * sizeof(u32));
  memset(lights, 0xff, planes * racks * sizeof(u32));
  vlans = grown(NULL, racks * ports * sizeof(Vlans));
  memset(vlans, 0xff, racks * ports * sizeof(Vlans));
  ordered = grown(NULL, switches * sizeof(u32));
  for (u32 i = 0; i < switches; i++) {
    Switch *s = &sw[i];
    s->ports = s->place < 0 ? ports : 3;
    s->counters = grown(NULL, s->ports * sizeof(Counters));
    memset(s->counters, 0, s->ports * sizeof(Counters));
    if (s->place < 0) tor_of[s->rack] = i;
    else server_at[(u32)s->rack * most_servers + (u32)s->place] = i;
    ordered[i] = i;
  }
  qsort(ordered, switches, sizeof(u32), by_datapath);
}
static void keep_connected(double at_s) {
  for (u32 i = 0; i < switches; i++) {
    Switch *s = &sw[i];
    if (s->socket < 0 && at_s >= s->retry_s) begin(s);
    if (!s->read_at_s || at_s < s->read_at_s) continue;
    s->read_at_s = 0;
    receive(s);
    if (s->socket >= 0) watch(s);
  }
}
static void ask_for_echo(void) {
  static u32 next;
  for (u32 tried = 0; tried < switches; tried++) {
    Switch *s = &sw[next = (next + 1) % switches];
    if (!s->greeted || s->late_s || s->echoed_s != 0) continue;
    s->echoed_s = now_s();
    say(s, ECHO_REQUEST, 0, "whole", 5);
    if (flush(s)) lend(s);
    return;
  }
}
int main(int count, char **arguments) {
  if (count != 3) { fprintf(stderr, "usage: fabric CONFIGURATION SOCKET\n"); return 2; }
  signal(SIGPIPE, SIG_IGN);
  begin_s = now_s();
  srand48(1);
  configure(arguments[1]);
  struct rlimit most = {0, 0};
  getrlimit(RLIMIT_NOFILE, &most);
  if (most.rlim_max < switches + 64) {
    fprintf(stderr, "%u switches need as many descriptors, and ulimit -Hn is %lu: raise it\n", switches,
            (unsigned long)most.rlim_max);
    return 1;
  }
  most.rlim_cur = most.rlim_max;
  setrlimit(RLIMIT_NOFILE, &most);
  epoll = epoll_create1(EPOLL_CLOEXEC);
  struct epoll_event end = {EPOLLIN, {.u32 = ENDED}};
  epoll_ctl(epoll, EPOLL_CTL_ADD, 0, &end);
  open_door(arguments[2]);
  begin_lending();
  static struct epoll_event events[256];
  double looked_s = 0, echoed_s = 0;
  for (;;) {
    int n = epoll_wait(epoll, events, 256, 10);
    for (int i = 0; i < n; i++) {
      u32 what = events[i].data.u32;
      if (what < switches) ready(&sw[what], events[i].events);
      else if (what == ENDED) return 0; /* whoever started it has ended */
      else if (what == DOOR) let_in();
      else if (what == RETURNED) take_back();
      else hear(&client[what - CLIENT]);
    }
    double at_s = now_s();
    if (started && at_s - looked_s > 0.05) keep_connected(looked_s = at_s);
    if (started && at_s - echoed_s >= ECHO_EVERY_S) echoed_s = at_s, ask_for_echo();
    end_lendings(at_s);
  }
}
