/*
 * What loopback TCP gives on this machine, with nothing in the way.
 *
 *   limits stream CHUNK MIB               one process sends, the other receives and forgets
 *   limits echo SIZE COUNT GAP_US spin    round trips, one each GAP_US; both sides poll
 *   limits echo SIZE COUNT GAP_US block   the same; both sides sleep in between
 *   limits echo SIZE COUNT GAP_US apart   the same as block, each side on a core of its own
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define RECEIVE_BYTES (256 << 10)
#define WARM_UP 500

static void require(int holds, const char *what) {
    if (!holds) {
        perror(what);
        exit(1);
    }
}

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void send_at_once(int fd) {
    int on = 1;
    require(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) == 0, "TCP_NODELAY");
}

/* Forks; both processes get their end of one connection. Returns 0 in the child. */
static pid_t connected_pair(int *fd) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    require(bind(listener, (void *)&address, sizeof address) == 0, "bind");
    require(listen(listener, 1) == 0, "listen");
    getsockname(listener, (void *)&address, &length);
    pid_t child = fork();
    require(child >= 0, "fork");
    if (child == 0) {
        *fd = socket(AF_INET, SOCK_STREAM, 0);
        require(connect(*fd, (void *)&address, sizeof address) == 0, "connect");
    } else {
        *fd = accept(listener, NULL, NULL);
        require(*fd >= 0, "accept");
    }
    close(listener);
    send_at_once(*fd);
    return child;
}

static void send_whole(int fd, const char *data, size_t length) {
    while (length > 0) {
        ssize_t sent = send(fd, data, length, 0);
        require(sent > 0, "send");
        data += sent;
        length -= sent;
    }
}

/* Returns 0 when the other side has closed. */
static int receive_whole(int fd, char *data, size_t length, int flags) {
    while (length > 0) {
        ssize_t got = recv(fd, data, length, flags);
        if (got < 0 && errno == EAGAIN)
            continue;
        require(got >= 0, "recv");
        if (got == 0)
            return 0;
        data += got;
        length -= got;
    }
    return 1;
}

static void stream(size_t chunk, size_t mib) {
    int fd;
    size_t total = mib << 20, received = 0;
    pid_t child = connected_pair(&fd);
    if (child == 0) {
        char *data = malloc(chunk);
        memset(data, 1, chunk);
        for (size_t sent = 0; sent < total; sent += chunk)
            send_whole(fd, data, chunk);
        exit(0);
    }
    char *data = malloc(RECEIVE_BYTES);
    int64_t began = now_ns();
    for (ssize_t got; (got = recv(fd, data, RECEIVE_BYTES, 0)) > 0; received += got)
        ;
    printf("gb_per_s %.4f\n", received / (double)(now_ns() - began));
    waitpid(child, NULL, 0);
}

static int compare(const void *one, const void *other) {
    int64_t a = *(const int64_t *)one, b = *(const int64_t *)other;
    return (a > b) - (a < b);
}

static void wait_until(int64_t due, int spins) {
    struct timespec t = {.tv_sec = due / 1000000000, .tv_nsec = due % 1000000000};
    if (spins)
        while (now_ns() < due)
            ;
    else
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
}

/* Keeps this process on one of the cores that it may use: the first, or the last. */
static void stay_on_core(int is_last) {
    cpu_set_t may, one;
    int found = -1;
    require(sched_getaffinity(0, sizeof may, &may) == 0, "affinity");
    for (int core = 0; core < CPU_SETSIZE; core++)
        if (CPU_ISSET(core, &may) && (found < 0 || is_last))
            found = core;
    CPU_ZERO(&one);
    CPU_SET(found, &one);
    require(sched_setaffinity(0, sizeof one, &one) == 0, "affinity");
}

static void echo(size_t size, int count, int gap_us, int spins, int is_apart) {
    int fd, flags = spins ? MSG_DONTWAIT : 0;
    char *data = calloc(1, size);
    int64_t *delays = malloc(count * sizeof *delays);
    pid_t child = connected_pair(&fd);
    if (is_apart)
        stay_on_core(child == 0);
    if (child == 0) {
        while (receive_whole(fd, data, size, flags))
            send_whole(fd, data, size);
        exit(0);
    }
    int64_t due = now_ns();
    for (int i = -WARM_UP; i < count; i++, due += gap_us * 1000LL) {
        wait_until(due, spins);
        int64_t began = now_ns();
        send_whole(fd, data, size);
        receive_whole(fd, data, size, flags);
        if (i >= 0)
            delays[i] = now_ns() - began;
    }
    close(fd);
    waitpid(child, NULL, 0);
    qsort(delays, count, sizeof *delays, compare);
    printf("p50_us %.2f p90_us %.2f p99_us %.2f\n", delays[count / 2] / 1e3,
           delays[(int64_t)count * 9 / 10] / 1e3, delays[(int64_t)count * 99 / 100] / 1e3);
}

int main(int count, char **words) {
    if (count == 4 && strcmp(words[1], "stream") == 0)
        stream(atol(words[2]), atol(words[3]));
    else if (count == 6 && strcmp(words[1], "echo") == 0)
        echo(atol(words[2]), atoi(words[3]), atoi(words[4]), strcmp(words[5], "spin") == 0,
             strcmp(words[5], "apart") == 0);
    else
        return 2;
    return 0;
}
