/* Connections to OpenFlow switches, read and written by a separate thread. A line is a connected
   TCP socket of a switch. The thread frames incoming bytes, answers and sends echo requests, and
   writes waiting bytes. All other messages wait, complete and in order, until they are taken. An
   ended line stays, with its remaining messages, until released; its descriptor belongs to the
   caller, and may be closed only afterwards. Every function may be called from any thread, and
   no function waits for a switch. */
#ifndef HYDRA_LINES_H
#define HYDRA_LINES_H

#include <stddef.h>
#include <stdint.h>

enum { HEADER_BYTES = 8, OPENFLOW_1_3 = 4 };

typedef struct Lines Lines;

typedef struct {
    double echo_s;      /* time between two echo requests */
    int unanswered;     /* largest number of unanswered echo requests */
    double stalled_s;   /* longest time that bytes wait while a switch reads none */
    size_t most_ready;  /* bytes of a line waiting to be taken; beyond, the line is not read */
    size_t most_ready_in_all;
    size_t most_waiting; /* largest number of bytes waiting for a switch to read */
    double messages_per_s; /* limit for a line, without echoes; beyond, the line is not read */
    double burst;          /* messages that a line may send at once after a silence */
} Limits;

typedef enum {
    LINE_OPEN,
    LINE_CLOSED,   /* by the switch, or by shutdown() */
    LINE_FAILED,   /* `error` is the reason */
    LINE_SILENT,   /* too many unanswered echo requests */
    LINE_STALLED,  /* the switch read no bytes for too long */
    LINE_FLOODED,  /* too many bytes wait for the switch */
    LINE_MALFORMED, /* a message shorter than its header; `error` is the length */
    LINE_FOREIGN /* the first byte is no version of OpenFlow; `error` is the byte */
} LineEnd;

typedef struct {
    uint64_t line;
    uint8_t *messages; /* complete messages; the caller has to free() them */
    size_t size;
    LineEnd end; /* LINE_OPEN, or the reason why no further messages follow */
    int error;
} Taken;

/* Returns NULL, with errno set, if the thread or a descriptor is not available. */
Lines *lines_open(const Limits *limits);
/* End the thread and drop all lines; their descriptors stay open. */
void lines_close(Lines *lines);
/* Readable while messages or ends wait to be taken. */
int lines_descriptor(const Lines *lines);
/* Add a line: `greeting` is sent first, then an echo request. Returns 0 with errno set on
   failure. The descriptor is made non-blocking. */
uint64_t lines_adopt(Lines *lines, int descriptor, const void *greeting, size_t size);
/* Send after all earlier bytes. With `last`, nothing more can be sent, and the connection's
   sending side is shut down once all bytes are sent. Returns 0 if the line has ended. */
int lines_send(Lines *lines, uint64_t line, const void *data, size_t size, int last);
/* From now on, handle only the line's echoes, four times a second. */
void lines_ignore(Lines *lines, uint64_t line);
/* Drop a line; afterwards its descriptor may be closed. */
void lines_release(Lines *lines, uint64_t line);
/* Take up to `most` messages of the next line in turn; returns 0 if no line has any. */
int lines_take(Lines *lines, int most, Taken *taken);

#endif
