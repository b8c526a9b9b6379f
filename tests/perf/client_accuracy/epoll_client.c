/* The limit: what reading, framing and stamping every event costs when nothing else is done.
 *
 *   epoll_client PORT CONCURRENCY TOKENS WAVES PATH   writes a line of JSON (cpu_s, wall_s) and then five int64 an
 *                                                     event: request, sent, received, and the two halves of the id
 */
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { BUFFER = 1 << 17 };

typedef struct { int fd, size, left; int64_t request, sent; char *buffer; } Stream;
typedef struct { int64_t request, sent, received, server_read, server_sent; } Record;

static char wire[4096];
static int wire_size;
static int64_t requests;

static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static double cpu_s(void) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return used.ru_utime.tv_sec + used.ru_stime.tv_sec + (used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1e-6;
}

static int64_t digits16(const char *at) {
    int64_t value = 0;
    for (int i = 0; i < 16; i++) value = value * 10 + (at[i] - '0');
    return value;
}

static void ask(Stream *s) {
    s->left--;
    s->size = 0;
    s->request = requests++;
    s->sent = now();
    if (send(s->fd, wire, wire_size, 0) != wire_size) { perror("send"); exit(1); }
}

static void make_request(const char *path, const char *tokens) {
    char body[2048];
    int openai = strncmp(path, "/v1", 3) == 0;
    int size = openai
        ? sprintf(body, "{\"prompt\":\"%0512d\",\"max_tokens\":%s,\"stream\":true}", 0, tokens)
        : sprintf(body, "{\"text\":\"%0512d\",\"sampling_params\":{\"max_new_tokens\":%s},\"stream\":true}", 0, tokens);
    wire_size = sprintf(wire, "POST %s HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s",
                        path, size, body);
}

/* Takes the complete events out of the buffer; returns 1 at the end of the reply. */
static int take(Stream *s, int64_t stamp, Record *records, int64_t *count) {
    char *at = s->buffer, *end = s->buffer + s->size, *blank;
    while ((blank = memmem(at, end - at, "\n\n", 2))) {
        char *id = memmem(at, blank - at, "\"id\":\"", 6);
        if (id) records[(*count)++] = (Record){s->request, s->sent, stamp, digits16(id + 6), digits16(id + 22)};
        at = blank + 2;
    }
    int done = end - at >= 7 && !memcmp(end - 7, "\r\n0\r\n\r\n", 7);
    memmove(s->buffer, at, end - at);
    s->size = end - at;
    return done;
}

int main(int count, char **arguments) {
    if (count != 6) return fprintf(stderr, "usage: epoll_client PORT CONCURRENCY TOKENS WAVES PATH\n"), 2;
    int concurrency = atoi(arguments[2]), tokens = atoi(arguments[3]), waves = atoi(arguments[4]), one = 1;
    make_request(arguments[5], arguments[3]);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(arguments[1])),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int poller = epoll_create1(0), active = concurrency;
    Stream *streams = calloc(concurrency, sizeof *streams);
    Record *records = malloc(sizeof *records * ((int64_t)concurrency * tokens * waves));
    int64_t seen = 0;
    for (int i = 0; i < concurrency; i++) {
        Stream *s = &streams[i];
        *s = (Stream){.fd = socket(AF_INET, SOCK_STREAM, 0), .left = waves, .buffer = malloc(BUFFER)};
        if (connect(s->fd, (void *)&address, sizeof address)) { perror("connect"); return 1; }
        setsockopt(s->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = s};
        epoll_ctl(poller, EPOLL_CTL_ADD, s->fd, &event);
    }
    struct epoll_event ready[512];
    double used = cpu_s();
    int64_t began = now();
    for (int i = 0; i < concurrency; i++) ask(&streams[i]);
    while (active) {
        int found = epoll_wait(poller, ready, 512, -1);
        for (int i = 0; i < found; i++) {
            Stream *s = ready[i].data.ptr;
            ssize_t got = recv(s->fd, s->buffer + s->size, BUFFER - s->size, MSG_DONTWAIT);
            if (got < 0 && errno == EAGAIN) continue;
            if (got <= 0) { perror("recv"); return 1; }
            s->size += got;
            if (!take(s, now(), records, &seen)) continue;
            if (s->left) ask(s);
            else active--;
        }
    }
    printf("{\"cpu_s\": %.6f, \"wall_s\": %.6f}\n", cpu_s() - used, (now() - began) * 1e-9);
    fwrite(records, sizeof *records, seen, stdout);
    return 0;
}
