/* Whether a switch holds exactly the given rules.

   Rules have the same form whether they come as flow-mods, or as entries of a reply to OFPMP_FLOW:
   table, priority, flags, time-outs, masked cookie, the fields of the match in order, instructions.
   Then rules are compared byte by byte. A mask of all ones counts as no mask, as in Open vSwitch's
   reports.

   Layouts: OpenFlow Switch Specification 1.3.5, sections 7.2, 7.3.4.1 and 7.3.5.2. */
#include "tables.h"

#include <stdlib.h>
#include <string.h>

/* An unavailable counter (OpenFlow 1.3.5, section 5.8). */
#define NOT_COUNTED UINT64_MAX

enum {
    HEADER_BYTES = 8,
    HEAD_BYTES = 48, /* before the match, in a flow-mod as in an entry */
    BUNDLED_BYTES = 24, /* before a message in a bundle */
    LEAST_BYTES = HEAD_BYTES + 8,
    FIXED_BYTES = 19,
    MOST_FIELDS = 64,
    FLOW_MOD = 14,
    EXPERIMENTER = 4,
    COMMAND_AT = 25,
    ADD = 0,
};

typedef struct {
    uint64_t hash;
    size_t at; /* position of the rule's bytes */
    size_t size;
} Rule;

struct Table {
    uint64_t cookie_mask;
    uint8_t *bytes;
    size_t size;
    size_t room;
    Rule *rules;
    size_t count;
    size_t rules_room;
    uint32_t *slots; /* number of a rule + 1, by hash; 0: none */
    size_t slot_mask;
};

static size_t two_bytes(const uint8_t *at) { return (size_t)at[0] << 8 | at[1]; }

static uint64_t number(const uint8_t *at, int bytes)
{
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++)
        value = value << 8 | at[i];
    return value;
}

static uint64_t eight_bytes(const uint8_t *at) { return number(at, 8); }

static uint64_t hash_of(const uint8_t *bytes, size_t size)
{
    const uint64_t factor = 0x9E3779B97F4A7C15u;
    uint64_t hash = size * factor;
    while (size) {
        uint64_t word = 0;
        size_t some = size < 8 ? size : 8;
        memcpy(&word, bytes, some);
        hash = (hash ^ word) * factor;
        hash ^= hash >> 29;
        bytes += some;
        size -= some;
    }
    return hash;
}

/* A field, without its mask if the mask is all ones; returns the bytes written. */
static size_t put_field(const uint8_t *field, uint8_t *to)
{
    size_t size = field[3];
    memcpy(to, field, 4 + size);
    if (!(field[2] & 1) || size % 2)
        return 4 + size;
    for (size_t i = size / 2; i < size; i++)
        if (field[4 + i] != 0xFF)
            return 4 + size;
    to[2] &= 0xFE;
    to[3] = (uint8_t)(size / 2);
    return 4 + size / 2;
}

/* Fields of a match in the order of their headers; 0 if their lengths do not add up. */
static int put_fields(const uint8_t *match, size_t size, uint8_t *to, size_t *written)
{
    const uint8_t *fields[MOST_FIELDS];
    size_t count = 0, at = 0;
    while (at < size) {
        if (count == MOST_FIELDS || size - at < 4 || size - at - 4 < match[at + 3])
            return 0;
        const uint8_t *field = match + at;
        size_t place = count++;
        for (; place && memcmp(fields[place - 1], field, 3) > 0; place--)
            fields[place] = fields[place - 1];
        fields[place] = field;
        at += 4 + (size_t)field[3];
    }
    *written = 0;
    for (size_t i = 0; i < count; i++)
        *written += put_field(fields[i], to + *written);
    return 1;
}

/* The rule in its common form, from the parts of its head and the bytes after the head; 0 if
   malformed. `to` has room for FIXED_BYTES and all bytes after the head. */
static size_t put_rule(const uint8_t *head, int is_entry, size_t length, uint64_t mask, uint8_t *to)
{
    /* Positions in an entry of flow statistics, and in a flow-mod. */
    const uint8_t *cookie = head + (is_entry ? 24 : 8);
    const uint8_t *table = head + (is_entry ? 2 : 24);
    const uint8_t *priority = head + (is_entry ? 12 : 30);
    const uint8_t *timeouts = head + (is_entry ? 14 : 26);
    const uint8_t *flags = head + (is_entry ? 18 : 44);
    const uint8_t *match = head + HEAD_BYTES;
    size_t match_bytes = two_bytes(match + 2), padded = (match_bytes + 7) / 8 * 8;
    if (match_bytes < 4 || padded > length - HEAD_BYTES)
        return 0;
    uint64_t masked = eight_bytes(cookie) & mask;
    size_t fields;
    if (!put_fields(match + 4, match_bytes - 4, to + FIXED_BYTES, &fields))
        return 0;
    to[0] = *table;
    memcpy(to + 1, priority, 2);
    memcpy(to + 3, timeouts, 4);
    memcpy(to + 7, flags, 2);
    memcpy(to + 9, &masked, 8);
    to[17] = (uint8_t)(fields >> 8);
    to[18] = (uint8_t)fields;
    size_t instructions = length - HEAD_BYTES - padded;
    memcpy(to + FIXED_BYTES + fields, match + padded, instructions);
    return FIXED_BYTES + fields + instructions;
}

static int has_room(Table *table, size_t more)
{
    if (table->size + more > table->room) {
        size_t room = 2 * (table->size + more);
        uint8_t *bytes = realloc(table->bytes, room);
        if (!bytes)
            return 0;
        table->bytes = bytes;
        table->room = room;
    }
    if (table->count == table->rules_room) {
        size_t room = 2 * table->rules_room + 16;
        Rule *rules = realloc(table->rules, room * sizeof *rules);
        if (!rules)
            return 0;
        table->rules = rules;
        table->rules_room = room;
    }
    return 1;
}

/* Frees memory set aside for more rules: a table is kept for as long as its rules are. */
static void shrink(Table *table)
{
    uint8_t *bytes = realloc(table->bytes, table->size + 1);
    Rule *rules = realloc(table->rules, (table->count + 1) * sizeof *rules);
    table->bytes = bytes ? bytes : table->bytes;
    table->rules = rules ? rules : table->rules;
}

static int fill_slots(Table *table)
{
    size_t slots = 16;
    while (slots < 2 * table->count)
        slots *= 2;
    table->slots = calloc(slots, sizeof *table->slots);
    table->slot_mask = slots - 1;
    if (!table->slots)
        return 0;
    for (size_t i = 0; i < table->count; i++) {
        size_t slot = table->rules[i].hash & table->slot_mask;
        while (table->slots[slot])
            slot = (slot + 1) & table->slot_mask;
        table->slots[slot] = (uint32_t)i + 1;
    }
    return 1;
}

Table *table_of(const uint8_t *messages, size_t size, uint64_t cookie_mask, TableError *error)
{
    *error = TABLE_NO_MEMORY;
    Table *table = calloc(1, sizeof *table);
    if (!table)
        return NULL;
    table->cookie_mask = cookie_mask;
    while (size) {
        size_t length = size < HEADER_BYTES ? 0 : two_bytes(messages + 2);
        size_t skipped = length && messages[1] == EXPERIMENTER ? BUNDLED_BYTES : 0;
        const uint8_t *mod = messages + skipped;
        if (length > size || length < skipped + LEAST_BYTES || mod[1] != FLOW_MOD ||
            mod[COMMAND_AT] != ADD)
            goto malformed;
        if (!has_room(table, length))
            goto failed;
        uint8_t *to = table->bytes + table->size;
        size_t put = put_rule(mod, 0, length - skipped, cookie_mask, to);
        if (!put)
            goto malformed;
        table->rules[table->count++] = (Rule){hash_of(to, put), table->size, put};
        table->size += put;
        messages += length;
        size -= length;
    }
    shrink(table);
    if (fill_slots(table))
        return table;
    goto failed;
malformed:
    *error = TABLE_MALFORMED;
failed:
    table_free(table);
    return NULL;
}

void table_free(Table *table)
{
    free(table->bytes);
    free(table->rules);
    free(table->slots);
    free(table);
}

size_t table_count(const Table *table) { return table->count; }

/* Marks the rule as seen; 0 if the rule is missing, or was seen before. */
static int note(const Table *table, uint8_t *seen, const uint8_t *rule, size_t size, uint64_t hash)
{
    for (size_t slot = hash & table->slot_mask; table->slots[slot];
         slot = (slot + 1) & table->slot_mask) {
        size_t number = table->slots[slot] - 1;
        const Rule *one = table->rules + number;
        if (one->hash == hash && one->size == size &&
            !memcmp(table->bytes + one->at, rule, size) && !seen[number]) {
            seen[number] = 1;
            return 1;
        }
    }
    return 0;
}

/* One entry at a time: whether each is a rule of either table. */
static int all_known(const Table *common, const Table *own, const uint8_t *body, size_t size,
                     uint8_t *seen, uint8_t *rule)
{
    while (size) {
        size_t length = size < LEAST_BYTES ? 0 : two_bytes(body);
        if (length < LEAST_BYTES || length > size)
            return 0;
        size_t put = put_rule(body, 1, length, common->cookie_mask, rule);
        if (!put)
            return 0;
        uint64_t hash = hash_of(rule, put);
        if (!note(common, seen, rule, put, hash) &&
            !note(own, seen + common->count, rule, put, hash))
            return 0;
        body += length;
        size -= length;
    }
    return 1;
}

int tables_held(const Table *common, const Table *own, const uint8_t *body, size_t size)
{
    size_t count = common->count + own->count;
    if (size < count * LEAST_BYTES)
        return 0;
    uint8_t *seen = calloc(count + 1, 1);
    uint8_t *rule = malloc(FIXED_BYTES + UINT16_MAX);
    int held = -1;
    if (seen && rule)
        held = all_known(common, own, body, size, seen, rule) && !memchr(seen, 0, count);
    free(seen);
    free(rule);
    return held;
}

double octets_by_subject(const uint8_t *body, size_t size, uint64_t mask, uint64_t *totals,
                         size_t count)
{
    double oldest_s = 0;
    while (size) {
        size_t length = size < LEAST_BYTES ? 0 : two_bytes(body);
        if (length < LEAST_BYTES || length > size)
            return -1;
        double age_s = (double)number(body + 4, 4) + (double)number(body + 8, 4) * 1e-9;
        uint64_t subject = eight_bytes(body + 24) & mask;
        if (subject && subject <= count) {
            uint64_t *total = &totals[subject - 1], octets = eight_bytes(body + 40);
            *total = *total == NOT_COUNTED || octets == NOT_COUNTED ? NOT_COUNTED : *total + octets;
        }
        if (age_s > oldest_s)
            oldest_s = age_s;
        body += length;
        size -= length;
    }
    return oldest_s;
}
