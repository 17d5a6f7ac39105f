/* Connections to OpenFlow switches, read and written by one thread of its own.

   A line is a connected TCP socket of a switch. The thread frames what comes in, answers and asks
   for echoes, and writes what is waiting. All else that comes in waits, whole messages in order,
   until it is taken. A line that has ended stays, with what came before, until it is released; its
   descriptor belongs to the caller, and may be closed from then on only. Every function may be
   called from any thread, and none waits for a switch. */
#ifndef HYDRA_LINES_H
#define HYDRA_LINES_H

#include <stddef.h>
#include <stdint.h>

enum { HEADER_BYTES = 8, OPENFLOW_1_3 = 4 };

typedef struct Lines Lines;

typedef struct {
    double echo_s;      /* between two requests for an echo */
    int unanswered;     /* of them, the most that a line may leave so */
    double stalled_s;   /* the longest that something waits while a switch reads nothing */
    size_t most_ready;  /* bytes of a line that wait to be taken, before it is read no more */
    size_t most_ready_in_all;
    size_t most_waiting; /* bytes that wait for a switch to read them */
    double messages_per_s; /* of a line, echoes apart; those beyond wait, and then it is not read */
    double burst;          /* messages that a line may say at once after a silence */
} Limits;

typedef enum {
    LINE_OPEN,
    LINE_CLOSED,   /* by the switch, or by shutdown() */
    LINE_FAILED,   /* `error` says how */
    LINE_SILENT,   /* left too many requests for an echo unanswered */
    LINE_STALLED,  /* read nothing for too long */
    LINE_FLOODED,  /* more waits for it than it may */
    LINE_MALFORMED, /* sent a message that is shorter than its header; `error` is its length */
    LINE_FOREIGN /* began with what is no version of OpenFlow; `error` is that byte */
} LineEnd;

typedef struct {
    uint64_t line;
    uint8_t *messages; /* whole ones; the taker's, to free() */
    size_t size;
    LineEnd end; /* LINE_OPEN, or why nothing comes after these */
    int error;
} Taken;

/* NULL, with errno set, if the thread or a descriptor can't be had. */
Lines *lines_open(const Limits *limits);
/* End the thread and forget all lines; their descriptors stay open. */
void lines_close(Lines *lines);
/* Readable while there is something to take. */
int lines_descriptor(const Lines *lines);
/* Begin with a line: `greeting` goes out first, then a request for an echo. 0 with errno set if it
   can't be. The descriptor is made non-blocking. */
uint64_t lines_adopt(Lines *lines, int descriptor, const void *greeting, size_t size);
/* Send, after what was sent before. With `last`, nothing more can be sent, and the switch is told so
   once it has read all. 0 if the line has ended. */
int lines_send(Lines *lines, uint64_t line, const void *data, size_t size, int last);
/* Hear no more of a line than its echoes, and these four times a second. */
void lines_ignore(Lines *lines, uint64_t line);
/* Forget a line; afterwards its descriptor may be closed. */
void lines_release(Lines *lines, uint64_t line);
/* Take up to so many messages of the line whose turn it is; 0 if no line has any. */
int lines_take(Lines *lines, int most, Taken *taken);

#endif
