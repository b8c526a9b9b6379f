/* A server that sends tokens exactly on time and says when it did.
 *
 *   paced_server INTERVAL_US TOKENS_PER_EVENT LOG   listens on a free loopback port, prints it, serves until SIGTERM,
 *                                                   then prints a line of JSON about itself and writes LOG
 *
 * All streams get their token in one burst each step, as a decode batch does: the hardest case for a client. The id of
 * each event is 32 digits: when the request arrived (the kernel's stamp of its last segment, so that a server busy with
 * its burst does not count as a late client), and when this event was sent, both CLOCK_MONOTONIC ns. Events
 * look like SGLang's: POST /generate has all token ids so far, POST /v1/completions only the new text. The text is the
 * request's number, for clients that keep nothing else: LOG has four int64 an event, the request's number, when it
 * arrived, when the event was sent, and the tokens so far.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { MAX_FDS = 4096, MAX_TOKENS = 4096, MAX_LOGGED = 1 << 20, IN_BYTES = 65536, OUT_BYTES = 131072 };

typedef struct {
    int fd, streaming, openai, in_length, pending, sent_head;
    long tokens, made, told, number;
    uint64_t requested;
    char in[IN_BYTES], out[OUT_BYTES];
} Connection;

static Connection *connections[MAX_FDS];
static int poller, highest, active;
static long interval_us, tokens_per_event;
static int64_t offset;
static char ids[MAX_TOKENS * 8];
static int ids_end[MAX_TOKENS + 1];
static uint64_t worst_tick_ns, events, blocked;
static long requests;
static int64_t logged[MAX_LOGGED][4];
static volatile sig_atomic_t stopping;

static uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + t.tv_nsec;
}

/* Wall clock - monotonic clock, from the tightest of several readings. */
static int64_t wall_offset(void) {
    int64_t offset = 0, tightest = INT64_MAX;
    for (int i = 0; i < 32; i++) {
        struct timespec wall;
        int64_t before = now();
        clock_gettime(CLOCK_REALTIME, &wall);
        int64_t after = now();
        if (after - before >= tightest) continue;
        tightest = after - before;
        offset = wall.tv_sec * 1000000000 + wall.tv_nsec - (before + after) / 2;
    }
    return offset;
}

static void stop(int signal) { (void)signal; stopping = 1; }

static void make_ids(void) {
    for (int i = 0, at = 0; i < MAX_TOKENS; i++) {
        at += sprintf(ids + at, "%s%d", i ? "," : "", (int)(i * 7919u % 128000));
        ids_end[i + 1] = at;
    }
}

static void drop(Connection *c) {
    active -= c->streaming;
    connections[c->fd] = NULL;
    close(c->fd);
    free(c);
}

static void watch(Connection *c, int operation, uint32_t mask) {
    struct epoll_event event = {.events = mask, .data.fd = c->fd};
    epoll_ctl(poller, operation, c->fd, &event);
}

/* Sends what it can; keeps the rest for when the socket is writable again. Returns 0 when the connection is gone. */
static int send_all(Connection *c, const char *data, int size) {
    int sent = c->pending ? 0 : (int)send(c->fd, data, size, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) {
        if (errno != EAGAIN) { drop(c); return 0; }
        sent = 0;
    }
    if (sent < size) {
        if (c->pending + size - sent > OUT_BYTES) { drop(c); return 0; }
        memcpy(c->out + c->pending, data + sent, size - sent);
        c->pending += size - sent;
        blocked++;
        watch(c, EPOLL_CTL_MOD, EPOLLIN | EPOLLOUT);
    }
    return 1;
}

static void flush(Connection *c) {
    int sent = (int)send(c->fd, c->out, c->pending, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent <= 0) return;
    memmove(c->out, c->out + sent, c->pending - sent);
    c->pending -= sent;
    if (!c->pending) watch(c, EPOLL_CTL_MOD, EPOLLIN);
}

static int event_body(const Connection *c, char *out, uint64_t sending) {
    char id[33];
    int finished = c->made == c->tokens;
    sprintf(id, "%016llu%016llu", (unsigned long long)c->requested, (unsigned long long)sending);
    if (c->openai)
        return sprintf(out,
            "{\"id\":\"%s\",\"object\":\"text_completion\",\"created\":1764000000,\"model\":\"default\",\"choices\":["
            "{\"index\":0,\"text\":\"%08ld\",\"logprobs\":null,\"finish_reason\":%s,\"matched_stop\":null}],\"usage\":"
            "{\"prompt_tokens\":128,\"total_tokens\":%ld,\"completion_tokens\":%ld,\"prompt_tokens_details\":null}}",
            id, c->number, finished ? "\"length\"" : "null", 128 + c->made, c->made);
    return sprintf(out,
        "{\"text\":\"%08ld\",\"output_ids\":[%.*s],\"meta_info\":{\"id\":\"%s\",\"finish_reason\":%s,"
        "\"prompt_tokens\":128,\"weight_version\":\"default\",\"num_retractions\":0,\"reasoning_tokens\":0,\"completion_tokens\":%ld,"
        "\"cached_tokens\":0,\"cached_tokens_details\":null,\"dp_rank\":null}}",
        c->number, ids_end[c->made], ids, id, finished ? "{\"type\":\"length\",\"length\":128}" : "null", c->made);
}

/* One decode step of one stream. */
static void step(Connection *c) {
    static char body[65536], wire[70000];
    int size = 0, finished = ++c->made == c->tokens;
    if (c->made > 1 && !finished && c->made - c->told < tokens_per_event) return;
    c->told = c->made;
    if (!c->sent_head)
        size = sprintf(wire, "HTTP/1.1 200 OK\r\nserver: uvicorn\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
                             "transfer-encoding: chunked\r\n\r\n");
    c->sent_head = 1;
    uint64_t sending = now();
    int length = event_body(c, body, sending);
    size += sprintf(wire + size, "%x\r\ndata: %s\n\n\r\n", length + 8, body);
    if (finished) size += sprintf(wire + size, "e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n");
    if (events < MAX_LOGGED)
        memcpy(logged[events], (int64_t[]){c->number, c->requested, sending, c->made}, sizeof logged[0]);
    events++;
    if (send_all(c, wire, size) && finished) { c->streaming = 0; active--; }
}

static long number_after(const char *text, const char *key, long otherwise) {
    const char *at = strstr(text, key);
    return at ? strtol(at + strlen(key) + strspn(at + strlen(key), "\": "), NULL, 10) : otherwise;
}

/* Answers the request in the buffer once it is complete; clients here never pipeline. */
static void answer(Connection *c) {
    char *end = memmem(c->in, c->in_length, "\r\n\r\n", 4);
    if (!end) return;
    c->in[c->in_length] = 0;
    char *header = strcasestr(c->in, "\r\ncontent-length:");
    long length = header && header < end ? atol(header + 17) : 0;
    if (c->in_length < end + 4 - c->in + length) return;
    c->in_length = 0;
    if (strncmp(c->in, "POST", 4)) {
        send_all(c, "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}", 41);
        return;
    }
    c->openai = strncmp(c->in, "POST /v1", 8) == 0;
    c->tokens = number_after(end, c->openai ? "\"max_tokens\"" : "\"max_new_tokens\"", 16);
    if (c->tokens < 1 || c->tokens > MAX_TOKENS) { drop(c); return; }
    c->made = c->told = c->sent_head = 0;
    c->number = requests++;
    c->streaming = 1;
    active++;
}

static void receive(Connection *c) {
    char control[CMSG_SPACE(sizeof(struct timespec))];
    struct iovec buffer = {c->in + c->in_length, IN_BYTES - 1 - c->in_length};
    struct msghdr message = {.msg_iov = &buffer, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    ssize_t got = recvmsg(c->fd, &message, MSG_DONTWAIT);
    if (got > 0) {
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        struct timespec *arrived = header ? (struct timespec *)CMSG_DATA(header) : NULL;
        c->requested = arrived ? arrived->tv_sec * 1000000000 + arrived->tv_nsec - offset : (int64_t)now();
        c->in_length += got;
        answer(c);
    } else if (got == 0 || errno != EAGAIN) drop(c);
}

static void accept_all(int listener) {
    int one = 1, fd;
    while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
        if (fd >= MAX_FDS) { close(fd); continue; }
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &one, sizeof one);
        Connection *c = connections[fd] = calloc(1, sizeof *c);
        c->fd = fd;
        if (fd > highest) highest = fd;
        watch(c, EPOLL_CTL_ADD, EPOLLIN);
    }
}

static int listen_on_free_port(void) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (bind(listener, (void *)&address, size) || listen(listener, MAX_FDS)) { perror("paced_server"); exit(1); }
    getsockname(listener, (void *)&address, &size);
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    return listener;
}

static int write_log(const char *path) {
    FILE *log = fopen(path, "wb");
    size_t rows = events < MAX_LOGGED ? events : MAX_LOGGED;
    int whole = log && fwrite(logged, sizeof logged[0], rows, log) == rows && !fclose(log);
    if (!whole) perror(path);
    return !whole;
}

static void report(void) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    printf("{\"events\": %llu, \"blocked_sends\": %llu, \"worst_tick_us\": %.1f, \"cpu_s\": %.3f}\n",
           (unsigned long long)events, (unsigned long long)blocked, worst_tick_ns * 1e-3,
           used.ru_utime.tv_sec + used.ru_stime.tv_sec + (used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1e-6);
}

int main(int count, char **arguments) {
    if (count != 4) return fprintf(stderr, "usage: paced_server INTERVAL_US TOKENS_PER_EVENT LOG\n"), 2;
    interval_us = atol(arguments[1]);
    tokens_per_event = atol(arguments[2]);
    make_ids();
    offset = wall_offset();
    struct sigaction action = {.sa_handler = stop};
    sigaction(SIGTERM, &action, NULL);
    poller = epoll_create1(0);
    int listener = listen_on_free_port();
    struct epoll_event watched = {.events = EPOLLIN, .data.fd = listener}, ready[512];
    epoll_ctl(poller, EPOLL_CTL_ADD, listener, &watched);
    uint64_t tick = 0;
    while (!stopping) {
        uint64_t stamp = now();
        uint64_t wait = tick > stamp ? tick - stamp : 0;
        struct timespec left = {wait / 1000000000u, wait % 1000000000u};
        int was_active = active;
        int found = epoll_pwait2(poller, ready, 512, active ? &left : NULL, NULL);
        for (int i = 0; i < found; i++) {
            int fd = ready[i].data.fd;
            if (fd == listener) { accept_all(listener); continue; }
            if (connections[fd] && ready[i].events & EPOLLOUT) flush(connections[fd]);
            if (connections[fd] && ready[i].events & ~EPOLLOUT) receive(connections[fd]);
        }
        stamp = now();
        if (!was_active && active) tick = stamp + interval_us * 1000;
        if (!active || stamp < tick) continue;
        if (stamp - tick > worst_tick_ns) worst_tick_ns = stamp - tick;
        for (int fd = 0; fd <= highest; fd++)
            if (connections[fd] && connections[fd]->streaming) step(connections[fd]);
        tick += interval_us * 1000;
    }
    int failed = write_log(arguments[3]);
    report();
    return failed;
}
