/* Tables of rules, to be recognised in the flow statistics of a switch. */
#ifndef HYDRA_TABLES_H
#define HYDRA_TABLES_H

#include <stddef.h>
#include <stdint.h>

typedef struct Table Table;

typedef enum { TABLE_NO_MEMORY, TABLE_MALFORMED } TableError;

/* Rules added by flow-mods, each alone or in a bundle. In cookies, only the bits in `cookie_mask`
   count. Returns NULL, with the error, on failure. */
Table *table_of(const uint8_t *messages, size_t size, uint64_t cookie_mask, TableError *error);
void table_free(Table *table);
size_t table_count(const Table *table);

/* 1 if the reply's entries are the rules of both tables, each once, and no others; 0 if not, or if
   the entries' lengths do not add up; -1 without memory. Both tables have the same cookie mask. */
int tables_held(const Table *common, const Table *own, const uint8_t *body, size_t size);

/* Adds the octets counted by each entry of the reply to the total of its subject: the bits of its
   cookie in `mask`, from 1 to `count`; other entries are passed over. A total is UINT64_MAX if the
   octets of any entry are not available. Returns the age in s of the oldest entry, 0 if there is
   none; -1, with some totals changed, if the entries' lengths do not add up. */
double octets_by_subject(const uint8_t *body, size_t size, uint64_t mask, uint64_t *totals,
                         size_t count);

#endif
