#define _GNU_SOURCE
#include "lines.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    ECHO_REQUEST = 2,
    ECHO_REPLY = 3,
    MOST_UNANSWERED = 16,
    READ_BYTES = 65536,
    EVENTS = 128,
    LAST_VERSION = 15, /* OpenFlow has 1 to 6; TLS begins with 22, text with 32 or more */
    SENT_BESIDE = 16, /* lines written in a turn while other lines wait for a read */
    TICK_MS = 250,
    MOST_ECHOED = 65536, /* bytes of echo replies that a switch does not read */
    NICE = -10 /* an echo must not wait for the interpreter's computations */
};
static const uint64_t WAKE = 0; /* no line has this name */

typedef struct {
    uint8_t *data;
    size_t at, end, room; /* the content is from `at` to `end` */
} Buffer;

typedef struct Line {
    uint64_t name; /* low half: place, from 1 on; high half: number of earlier uses of the place */
    int descriptor;
    LineEnd end;
    int error;
    Buffer partial; /* the beginning of a message */
    Buffer ready;   /* whole messages for lines_take() */
    Buffer out;
    size_t under_way; /* bytes taken from `out` that are being written without the lock */
    size_t echoed;   /* bytes in `out`, at most, of echo replies */
    uint32_t events; /* the events requested from epoll */
    int is_queued, is_due, is_last;
    int is_openflow; /* true once the first byte of a message was OpenFlow's */
    int is_ignored; /* an unknown switch: only its echoes count */
    double credit;  /* messages allowed before the line pauses; at 0 or below, the line is paused */
    struct Line *next_ready, *next_due;
    double echo_due_s, progress_s;
    uint32_t next_xid, asked[MOST_UNANSWERED];
    int unanswered;
} Line;

struct Lines {
    Limits limits;
    pthread_mutex_t lock;   /* held for one system call on one line at most */
    pthread_cond_t is_sent; /* signalled when `sending` becomes NULL */
    const Line *sending;    /* the line being written by the thread without the lock; NULL: none */
    pthread_t thread;
    pid_t process; /* the process of the thread; a forked child has no thread */
    int epoll, wake, told;
    int over, woken, is_told;
    Line **line; /* by place - 1; NULL for a free place */
    uint32_t *uses;
    uint32_t places;
    uint32_t free_from; /* all places before this one are in use */
    size_t ready_bytes;
    Line *first_ready, *last_ready, *first_due, *last_due;
    uint8_t scratch[HEADER_BYTES + READ_BYTES];
};

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static uint16_t big16(const uint8_t *p) { return (uint16_t)(p[0] << 8 | p[1]); }

static uint32_t big32(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/* -- buffers ------------------------------------------------------------------------------------ */

static size_t held(const Buffer *b) { return b->end - b->at; }

static void drop(Buffer *b)
{
    free(b->data);
    *b = (Buffer){0};
}

/* Room for `more` bytes at the end; 0 without memory. */
static int make_room(Buffer *b, size_t more)
{
    if (b->room - b->end >= more)
        return 1;
    size_t used = held(b);
    if (more > SIZE_MAX / 4 || used > SIZE_MAX / 4)
        return 0;
    if (b->at && used) /* frees the space of sent bytes */
        memmove(b->data, b->data + b->at, used);
    b->at = 0;
    b->end = used;
    if (b->room - used >= more)
        return 1;
    size_t room = used + more > 2 * b->room ? used + more : 2 * b->room;
    uint8_t *data = realloc(b->data, room);
    if (!data)
        return 0;
    b->data = data;
    b->room = room;
    return 1;
}

static int put(Buffer *b, const void *data, size_t size)
{
    if (!size)
        return 1;
    if (!make_room(b, size))
        return 0;
    memcpy(b->data + b->end, data, size);
    b->end += size;
    return 1;
}

/* -- one line; called with the lock -------------------------------------------------------------- */

static Line *find(Lines *all, uint64_t name)
{
    uint32_t place = (uint32_t)name;
    if (place == 0 || place > all->places)
        return NULL;
    Line *line = all->line[place - 1];
    return line && line->name == name ? line : NULL;
}

static void tell(Lines *all)
{
    if (!all->is_told) {
        all->is_told = 1;
        (void)!write(all->told, &(uint64_t){1}, sizeof(uint64_t));
    }
}

/* Queue a line to be taken in its turn, unless the line is out of credit: an end is always
   queued. */
static void queue(Lines *all, Line *line)
{
    if (line->credit <= 0 && line->end == LINE_OPEN)
        return;
    if (!line->is_queued) {
        line->is_queued = 1;
        line->next_ready = NULL;
        if (all->last_ready)
            all->last_ready->next_ready = line;
        else
            all->first_ready = line;
        all->last_ready = line;
    }
    tell(all);
}

static void end_line(Lines *all, Line *line, LineEnd end, int error)
{
    if (line->end != LINE_OPEN)
        return;
    line->end = end;
    line->error = error;
    epoll_ctl(all->epoll, EPOLL_CTL_DEL, line->descriptor, NULL);
    drop(&line->out);
    drop(&line->partial);
    queue(all, line);
}

static int may_be_read(const Lines *all, const Line *line)
{
    size_t ready = held(&line->ready);
    return !line->is_ignored && ready < all->limits.most_ready && line->echoed < MOST_ECHOED &&
           (ready == 0 || all->ready_bytes < all->limits.most_ready_in_all);
}

/* Update the events requested from epoll. */
static void look(Lines *all, Line *line)
{
    if (line->end != LINE_OPEN)
        return;
    uint32_t events = (may_be_read(all, line) ? EPOLLIN : 0u) | (held(&line->out) ? EPOLLOUT : 0u);
    if (events == line->events)
        return;
    struct epoll_event event = {.events = events, .data.u64 = line->name};
    if (epoll_ctl(all->epoll, EPOLL_CTL_MOD, line->descriptor, &event))
        end_line(all, line, LINE_FAILED, errno);
    else
        line->events = events;
}

static void flush(Lines *all, Line *line)
{
    Buffer *out = &line->out;
    while (line->end == LINE_OPEN && held(out)) {
        ssize_t sent = send(line->descriptor, out->data + out->at, held(out),
                            MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return;
        if (sent < 0) {
            end_line(all, line, LINE_FAILED, errno);
            return;
        }
        out->at += (size_t)sent;
        line->progress_s = now_s();
    }
    if (line->end == LINE_OPEN) {
        drop(out);
        line->echoed = 0;
        if (line->is_last)
            shutdown(line->descriptor, SHUT_WR);
    }
}

static int append(Lines *all, Line *line, const void *data, size_t size)
{
    if (line->end != LINE_OPEN || line->is_last)
        return 0;
    size_t waiting = held(&line->out) + line->under_way;
    if (!waiting)
        line->progress_s = now_s();
    if (size > all->limits.most_waiting - waiting) {
        end_line(all, line, LINE_FLOODED, 0);
        return 0;
    }
    if (!put(&line->out, data, size)) {
        end_line(all, line, LINE_FAILED, ENOMEM);
        return 0;
    }
    return 1;
}

static int ask_for_echo(Lines *all, Line *line)
{
    uint32_t xid = line->next_xid++;
    uint8_t request[HEADER_BYTES] = {
        OPENFLOW_1_3, ECHO_REQUEST, 0, HEADER_BYTES,
        (uint8_t)(xid >> 24), (uint8_t)(xid >> 16), (uint8_t)(xid >> 8), (uint8_t)xid,
    };
    line->asked[line->unanswered++] = xid;
    return append(all, line, request, sizeof request);
}

/* True for the reply to one of the thread's own echo requests. */
static int is_answered(Line *line, uint32_t xid)
{
    for (int i = 0; i < line->unanswered; i++)
        if (line->asked[i] == xid) {
            line->unanswered--;
            memmove(line->asked + i, line->asked + i + 1,
                    (size_t)(line->unanswered - i) * sizeof *line->asked);
            return 1;
        }
    return 0;
}

/* A whole message. */
static void receive(Lines *all, Line *line, const uint8_t *message, size_t size)
{
    if (message[0] == OPENFLOW_1_3 && message[1] == ECHO_REQUEST) {
        size_t at = held(&line->out);
        if (append(all, line, message, size)) {
            line->out.data[line->out.at + at + 1] = ECHO_REPLY;
            line->echoed += size;
        }
        return;
    }
    int is_reply = message[0] == OPENFLOW_1_3 && message[1] == ECHO_REPLY;
    if (is_reply && is_answered(line, big32(message + 4)))
        return;
    if (line->is_ignored && !is_reply) /* Python may also have sent an echo request */
        return;
    if (!put(&line->ready, message, size)) {
        end_line(all, line, LINE_FAILED, ENOMEM);
        return;
    }
    all->ready_bytes += size;
    queue(all, line);
}

/* Handle all complete messages; returns the number of their bytes. */
static size_t receive_all(Lines *all, Line *line, const uint8_t *data, size_t size)
{
    size_t at = 0;
    if (!line->is_openflow && size) {
        if (data[0] == 0 || data[0] > LAST_VERSION) {
            end_line(all, line, LINE_FOREIGN, data[0]);
            return 0;
        }
        line->is_openflow = 1;
    }
    while (line->end == LINE_OPEN && size - at >= HEADER_BYTES) {
        size_t length = big16(data + at + 2);
        if (length < HEADER_BYTES) {
            end_line(all, line, LINE_MALFORMED, (int)length);
            break;
        }
        if (size - at < length)
            break;
        receive(all, line, data + at, length);
        at += length;
    }
    return at;
}

/* Read once. The beginning of a message is kept and completed by later reads, without further
   copies. */
static void read_line(Lines *all, Line *line)
{
    Buffer *partial = &line->partial;
    size_t kept = held(partial), wanted = READ_BYTES;
    uint8_t *to = all->scratch + HEADER_BYTES;
    if (kept >= HEADER_BYTES) { /* then the length is known, and exceeds the bytes so far */
        wanted = big16(partial->data + 2) - kept;
        to = partial->data + kept; /* with room for the whole message */
    }
    ssize_t got = recv(line->descriptor, to, wanted, MSG_DONTWAIT);
    if (got < 0) {
        if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)
            end_line(all, line, LINE_FAILED, errno);
        return;
    }
    if (got == 0) {
        end_line(all, line, LINE_CLOSED, 0);
        return;
    }
    if (kept >= HEADER_BYTES) {
        partial->end += (size_t)got;
        if ((size_t)got < wanted)
            return;
        Buffer whole = *partial;
        *partial = (Buffer){0};
        receive(all, line, whole.data, whole.end);
        drop(&whole);
        return;
    }
    uint8_t *data = to - kept;
    if (kept)
        memcpy(data, partial->data, kept);
    partial->end = 0;
    size_t size = kept + (size_t)got, done = receive_all(all, line, data, size);
    if (line->end != LINE_OPEN)
        return;
    size_t rest = size - done;
    if (!rest) {
        drop(partial);
        return;
    }
    size_t room = rest < HEADER_BYTES ? HEADER_BYTES : big16(data + done + 2);
    if (!make_room(partial, room)) {
        end_line(all, line, LINE_FAILED, ENOMEM);
        return;
    }
    put(partial, data + done, rest);
}

static void settle(Lines *all, Line *line)
{
    flush(all, line);
    look(all, line);
}

static void forget(Lines *all, Line *line)
{
    if (line->end == LINE_OPEN)
        epoll_ctl(all->epoll, EPOLL_CTL_DEL, line->descriptor, NULL);
    if (line->is_queued) {
        Line *before = NULL, *one = all->first_ready;
        while (one != line) {
            before = one;
            one = one->next_ready;
        }
        *(before ? &before->next_ready : &all->first_ready) = line->next_ready;
        if (all->last_ready == line)
            all->last_ready = before;
    }
    if (line->is_due) {
        Line *before = NULL, *one = all->first_due;
        while (one != line) {
            before = one;
            one = one->next_due;
        }
        *(before ? &before->next_due : &all->first_due) = line->next_due;
        if (all->last_due == line)
            all->last_due = before;
    }
    all->ready_bytes -= held(&line->ready);
    drop(&line->partial);
    drop(&line->ready);
    drop(&line->out);
    uint32_t place = (uint32_t)line->name - 1;
    all->line[place] = NULL;
    if (place < all->free_from)
        all->free_from = place;
    free(line);
}

/* -- the thread ---------------------------------------------------------------------------------- */

static void tick(Lines *all, double at_s, double since_s)
{
    for (uint32_t i = 0; i < all->places; i++) {
        Line *line = all->line[i];
        if (!line || line->end != LINE_OPEN)
            continue;
        if (line->credit < all->limits.burst) {
            line->credit += since_s * all->limits.messages_per_s;
            if (line->credit > all->limits.burst)
                line->credit = all->limits.burst;
            if (held(&line->ready))
                queue(all, line);
        }
        if (line->is_ignored) { /* once a tick: further bytes wait in the switch's own buffers */
            if (held(&line->ready) < all->limits.most_ready && line->echoed < MOST_ECHOED)
                read_line(all, line);
            settle(all, line);
            if (line->end != LINE_OPEN)
                continue;
        }
        if (held(&line->out) && at_s - line->progress_s > all->limits.stalled_s) {
            end_line(all, line, LINE_STALLED, 0);
        } else if (at_s >= line->echo_due_s) {
            if (line->unanswered > all->limits.unanswered) {
                end_line(all, line, LINE_SILENT, 0);
                continue;
            }
            line->echo_due_s = at_s + all->limits.echo_s;
            ask_for_echo(all, line);
            settle(all, line);
        }
    }
}

static void serve(Lines *all, uint64_t name, uint32_t events)
{
    Line *line = find(all, name);
    if (!line || line->end != LINE_OPEN)
        return; /* the line has ended since epoll reported events */
    if (events & EPOLLIN)
        read_line(all, line);
    else if (events & (EPOLLHUP | EPOLLERR))
        end_line(all, line, LINE_CLOSED, 0); /* paused lines, too: else epoll reports it again */
    settle(all, line);
}

/* Write waiting bytes; other threads may append to any line meanwhile. */
static void send_unlocked(Lines *all, Line *line)
{
    Buffer out = line->out;
    line->out = (Buffer){0};
    all->sending = line;
    line->under_way = held(&out);
    pthread_mutex_unlock(&all->lock);
    ssize_t sent = send(line->descriptor, out.data + out.at, held(&out), MSG_NOSIGNAL | MSG_DONTWAIT);
    int error = errno;
    pthread_mutex_lock(&all->lock);
    all->sending = NULL;
    line->under_way = 0;
    pthread_cond_broadcast(&all->is_sent);
    if (sent > 0) {
        out.at += (size_t)sent;
        line->progress_s = now_s();
    }
    if (line->end != LINE_OPEN || !held(&out)) {
        drop(&out);
    } else { /* bytes appended meanwhile follow */
        int done = put(&out, line->out.data + line->out.at, held(&line->out));
        drop(&line->out);
        line->out = out;
        if (!done)
            end_line(all, line, LINE_FAILED, ENOMEM);
    }
    if (sent < 0 && error != EINTR && error != EAGAIN && error != EWOULDBLOCK)
        end_line(all, line, LINE_FAILED, error);
}

/* Write to some of the lines with waiting bytes; 1 if further lines wait. */
static int send_some(Lines *all, int most)
{
    for (int i = 0; i < most && all->first_due; i++) {
        Line *line = all->first_due;
        all->first_due = line->next_due;
        line->is_due = 0;
        if (line->end == LINE_OPEN && held(&line->out))
            send_unlocked(all, line);
        settle(all, line);
        pthread_mutex_unlock(&all->lock); /* let other threads take the lock */
        pthread_mutex_lock(&all->lock);
    }
    return all->first_due != NULL;
}

/* 1 if the thread should end. */
static int hear(Lines *all, const struct epoll_event *event)
{
    if (event->data.u64 == WAKE) {
        uint64_t some;
        (void)!read(all->wake, &some, sizeof some);
        all->woken = 0;
        return all->over;
    }
    serve(all, event->data.u64, event->events);
    return 0;
}

/* Reads alternate with writes: an echo does not wait for a large change. */
static void *run(void *of)
{
    Lines *all = of;
    (void)setpriority(PRIO_PROCESS, (id_t)gettid(), NICE); /* where permitted */
    struct epoll_event event[EVENTS];
    double tick_s = now_s();
    for (int more = 0, over = 0; !over;) {
        int count = epoll_wait(all->epoll, event, EVENTS, more ? 0 : TICK_MS);
        for (int i = 0; i < count; i++) {
            pthread_mutex_lock(&all->lock);
            over |= hear(all, &event[i]);
            pthread_mutex_unlock(&all->lock);
        }
        double at_s = now_s();
        pthread_mutex_lock(&all->lock);
        more = send_some(all, count == EVENTS ? SENT_BESIDE : EVENTS);
        if (at_s - tick_s >= TICK_MS * 1e-3) {
            tick(all, at_s, at_s - tick_s);
            tick_s = at_s;
        }
        pthread_mutex_unlock(&all->lock);
    }
    return NULL;
}

static void wake(Lines *all)
{
    if (!all->woken) {
        all->woken = 1;
        (void)!write(all->wake, &(uint64_t){1}, sizeof(uint64_t));
    }
}

static void add_due(Lines *all, Line *line)
{
    line->is_due = 1;
    line->next_due = NULL;
    if (all->first_due)
        all->last_due->next_due = line;
    else
        all->first_due = line;
    all->last_due = line;
    wake(all);
}

static int start(Lines *all)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = WAKE};
    if (all->epoll < 0 || all->wake < 0 || all->told < 0 ||
        epoll_ctl(all->epoll, EPOLL_CTL_ADD, all->wake, &event))
        return errno;
    sigset_t every, before;
    sigfillset(&every);
    pthread_sigmask(SIG_BLOCK, &every, &before); /* signals are for the interpreter's threads */
    int error = pthread_create(&all->thread, NULL, run, all);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

static void let_go(Lines *all)
{
    for (int *one = (int[]){all->epoll, all->wake, all->told, -2}; *one != -2; one++)
        if (*one >= 0)
            close(*one);
    pthread_mutex_destroy(&all->lock);
    pthread_cond_destroy(&all->is_sent);
    free(all->line);
    free(all->uses);
    free(all);
}

/* -- for other threads --------------------------------------------------------------------------- */

Lines *lines_open(const Limits *limits)
{
    if (limits->unanswered < 0 || limits->unanswered >= MOST_UNANSWERED) {
        errno = EINVAL;
        return NULL;
    }
    Lines *all = calloc(1, sizeof *all);
    if (!all)
        return NULL;
    all->limits = *limits;
    pthread_mutex_init(&all->lock, NULL);
    pthread_cond_init(&all->is_sent, NULL);
    all->process = getpid();
    all->epoll = epoll_create1(EPOLL_CLOEXEC);
    all->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    all->told = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int error = start(all);
    if (error) {
        let_go(all);
        errno = error;
        return NULL;
    }
    return all;
}

void lines_close(Lines *all)
{
    if (getpid() != all->process)
        return; /* after a fork: the thread is in the parent, and may have held the lock */
    pthread_mutex_lock(&all->lock);
    all->over = 1;
    wake(all);
    pthread_mutex_unlock(&all->lock);
    pthread_join(all->thread, NULL);
    for (uint32_t i = 0; i < all->places; i++)
        if (all->line[i])
            forget(all, all->line[i]);
    let_go(all);
}

int lines_descriptor(const Lines *all) { return all->told; }

/* A place for a new line; `places` of them all without memory. */
static uint32_t free_place(Lines *all)
{
    uint32_t place = all->free_from;
    while (place < all->places && all->line[place])
        place++;
    all->free_from = place;
    if (place < all->places)
        return place;
    uint32_t places = all->places ? 2 * all->places : 64;
    if (places > UINT32_MAX / 4)
        return all->places;
    Line **line = realloc(all->line, places * sizeof *line);
    if (line)
        all->line = line;
    uint32_t *uses = realloc(all->uses, places * sizeof *uses);
    if (uses)
        all->uses = uses;
    if (!line || !uses)
        return all->places;
    memset(all->line + all->places, 0, (places - all->places) * sizeof *line);
    memset(all->uses + all->places, 0, (places - all->places) * sizeof *uses);
    all->places = places;
    return place;
}

static uint64_t adopt(Lines *all, Line *line, const void *greeting, size_t size)
{
    uint32_t place = free_place(all);
    if (place == all->places) {
        errno = ENOMEM;
        return 0;
    }
    line->name = (uint64_t)++all->uses[place] << 32 | (place + 1);
    line->next_xid = (uint32_t)line->name * 2654435761u;
    line->echo_due_s = now_s() + all->limits.echo_s;
    line->credit = all->limits.burst;
    line->events = EPOLLIN;
    struct epoll_event event = {.events = line->events, .data.u64 = line->name};
    if (epoll_ctl(all->epoll, EPOLL_CTL_ADD, line->descriptor, &event))
        return 0;
    all->line[place] = line;
    append(all, line, greeting, size);
    ask_for_echo(all, line);
    add_due(all, line);
    return line->name;
}

uint64_t lines_adopt(Lines *all, int descriptor, const void *greeting, size_t size)
{
    int flags = fcntl(descriptor, F_GETFL);
    if (flags < 0 || fcntl(descriptor, F_SETFL, flags | O_NONBLOCK))
        return 0;
    Line *line = calloc(1, sizeof *line);
    if (!line)
        return 0;
    line->descriptor = descriptor;
    pthread_mutex_lock(&all->lock);
    uint64_t name = adopt(all, line, greeting, size);
    int error = errno;
    pthread_mutex_unlock(&all->lock);
    if (!name) {
        free(line);
        errno = error;
    }
    return name;
}

int lines_send(Lines *all, uint64_t name, const void *data, size_t size, int last)
{
    pthread_mutex_lock(&all->lock);
    Line *line = find(all, name);
    int done = line && append(all, line, data, size);
    if (done && last)
        line->is_last = 1;
    if (done && !(line->events & EPOLLOUT) && !line->is_due)
        add_due(all, line);
    pthread_mutex_unlock(&all->lock);
    return done;
}

void lines_release(Lines *all, uint64_t name)
{
    pthread_mutex_lock(&all->lock);
    Line *line;
    while ((line = find(all, name)) && all->sending == line)
        pthread_cond_wait(&all->is_sent, &all->lock);
    if (line)
        forget(all, line);
    pthread_mutex_unlock(&all->lock);
}

void lines_ignore(Lines *all, uint64_t name)
{
    pthread_mutex_lock(&all->lock);
    Line *line = find(all, name);
    if (line && line->end == LINE_OPEN) {
        line->is_ignored = 1;
        all->ready_bytes -= held(&line->ready);
        drop(&line->ready);
        look(all, line);
    }
    pthread_mutex_unlock(&all->lock);
}

/* The first `most` ready messages, in a separate buffer. */
static int part(Line *line, int most, Taken *taken)
{
    Buffer *ready = &line->ready;
    size_t end = ready->at;
    int is_over = line->end != LINE_OPEN;
    for (int i = 0; i < most && end < ready->end && (line->credit > 0 || is_over); i++) {
        end += big16(ready->data + end + 2); /* at least a header, as checked before */
        line->credit--;
    }
    taken->size = end - ready->at;
    if (end == ready->end && ready->at == 0) {
        taken->messages = ready->data;
        *ready = (Buffer){0};
        return 1;
    }
    taken->messages = malloc(taken->size);
    if (!taken->messages)
        return 0;
    memcpy(taken->messages, ready->data + ready->at, taken->size);
    ready->at = end;
    if (ready->at == ready->end)
        drop(ready);
    return 1;
}

int lines_take(Lines *all, int most, Taken *taken)
{
    pthread_mutex_lock(&all->lock);
    *taken = (Taken){0};
    Line *line = all->first_ready;
    if (line) {
        all->first_ready = line->next_ready;
        if (!all->first_ready)
            all->last_ready = NULL;
        line->is_queued = 0;
        taken->line = line->name;
        if (held(&line->ready) && !part(line, most, taken))
            end_line(all, line, LINE_FAILED, ENOMEM);
        all->ready_bytes -= taken->size;
        if (held(&line->ready) && taken->size) {
            queue(all, line); /* otherwise the line is paused, and a tick queues it */
        } else {
            taken->end = line->end;
            taken->error = line->error;
        }
        look(all, line);
    } else if (all->is_told) {
        uint64_t some;
        (void)!read(all->told, &some, sizeof some);
        all->is_told = 0;
    }
    pthread_mutex_unlock(&all->lock);
    return line != NULL;
}
