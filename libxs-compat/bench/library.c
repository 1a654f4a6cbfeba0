/*
 * What calls of libxenstore cost the program that makes them: its CPU time, of all its threads, in microseconds.
 * library.c CALLS: one line for each work, `name microseconds`. The daemon is that of the environment.
 */

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <xenstore.h>

#define CHILDREN 5000

static double used(void)
{
    struct rusage usage;

    getrusage(RUSAGE_SELF, &usage);
    return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1e6 + usage.ru_utime.tv_usec + usage.ru_stime.tv_usec;
}

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static void read_value(struct xs_handle *h, const char *name, long calls)
{
    double before = used();

    for (long i = 0; i < calls; i++) {
        void *value = xs_read(h, XBT_NULL, "/bench/value", NULL);

        if (!value)
            fail("xs_read");
        free(value);
    }
    printf("%s %.3f\n", name, (used() - before) / calls);
}

static void write_value(struct xs_handle *h, long calls)
{
    double before = used();

    for (long i = 0; i < calls; i++) {
        if (!xs_write(h, XBT_NULL, "/bench/value", "0123456789", 10))
            fail("xs_write");
    }
    printf("xs_write %.3f\n", (used() - before) / calls);
}

static void list_directory(struct xs_handle *h, long calls)
{
    unsigned int count = 0;
    char path[64];
    double before;

    for (int i = 0; i < CHILDREN; i++) {
        snprintf(path, sizeof(path), "/bench/wide/node-%d", i);
        if (!xs_mkdir(h, XBT_NULL, path))
            fail("xs_mkdir");
    }
    before = used();
    for (long i = 0; i < calls; i++) {
        char **names = xs_directory(h, XBT_NULL, "/bench/wide", &count);

        if (!names || count != CHILDREN)
            fail("xs_directory");
        free(names);
    }
    printf("xs_directory_of_5000 %.3f\n", (used() - before) / calls);
}

/* Another process writes so many nodes, one by one, and then the last. */
static pid_t start_writer(long events)
{
    pid_t writer = fork();

    if (writer == 0) {
        struct xs_handle *h = xs_open(0);
        char path[64];

        for (long i = 0; h && i < events; i++) {
            /* The daemon may leave out an event that equals one which still waits. */
            snprintf(path, sizeof(path), "/bench/events/%ld", i % CHILDREN);
            xs_write(h, XBT_NULL, path, "", 0);
        }
        xs_write(h, XBT_NULL, "/bench/events/last", "", 0);
        _exit(0);
    }
    return writer;
}

static int is_last(char **event)
{
    int last = !strcmp(event[XS_WATCH_PATH], "/bench/events/last");

    free(event);
    return last;
}

static void take_events(struct xs_handle *h, const char *name, int polled, long events)
{
    struct pollfd fd = { .fd = polled ? xs_fileno(h) : -1, .events = POLLIN };
    pid_t writer = start_writer(events);
    unsigned int count;
    double before = used();
    long taken = 0;
    int last = 0;

    while (!last) {
        char **event;

        if (polled && poll(&fd, 1, 20000) != 1)
            fail("poll");
        if (!polled) {
            event = xs_read_watch(h, &count);
            if (!event)
                fail("xs_read_watch");
            last = is_last(event);
            taken++;
            continue;
        }
        while ((event = xs_check_watch(h))) {
            last |= is_last(event);
            taken++;
        }
    }
    printf("%s %.3f\n", name, (used() - before) / taken);
    waitpid(writer, NULL, 0);
}

int main(int argc, char **argv)
{
    long calls = argc > 1 ? atol(argv[1]) : 20000;
    struct xs_handle *h = xs_open(0);
    unsigned int count;

    if (!h || calls < 100)
        fail("xs_open");
    write_value(h, calls);
    read_value(h, "xs_read", calls);
    list_directory(h, calls / 50);
    if (!xs_watch(h, "/bench/events", "token"))
        fail("xs_watch");
    free(xs_read_watch(h, &count));
    read_value(h, "xs_read_with_a_watch", calls);
    take_events(h, "event_by_xs_read_watch", 0, calls);
    take_events(h, "event_by_poll", 1, calls);
    xs_close(h);
    return 0;
}
