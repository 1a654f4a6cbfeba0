/*
 * Handles that close while events pour in, in a child after fork() too, and
 * daemons that die then: storm.c HANDLES [die]
 */

#include "report.h"
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>

static atomic_bool enough;
static atomic_long written;

static void *write_events(void *unused)
{
    struct xs_handle *h = must_open(0);

    (void)unused;
    while (!atomic_load(&enough) && xs_write(h, XBT_NULL, "/storm/node", "", 0))
        atomic_fetch_add(&written, 1);
    xs_close(h);
    return NULL;
}

static void *take_events(void *h)
{
    unsigned int count;
    char **event;
    long taken = 0;

    while ((event = xs_read_watch(h, &count))) {
        free(event);
        taken++;
    }
    return (void *)taken;
}

/* A child frees what it has of the handle; the parent's goes on. */
static bool let_go_in_a_child(struct xs_handle *h)
{
    int status = -1;
    pid_t child = fork();

    if (child == 0) {
        xs_daemon_destroy_postfork(h);
        _exit(0);
    }
    return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

int main(int argc, char **argv)
{
    long handles = argc > 1 ? atol(argv[1]) : 0, failures = 0;
    pthread_t writer, taker;
    struct xs_handle *h;
    unsigned int count;

    if (pthread_create(&writer, NULL, write_events, NULL))
        return 2;
    for (long i = 0; i < handles; i++) {
        h = must_open(i % 2 ? XS_UNWATCH_FILTER : 0);
        failures += !xs_watch(h, "/storm", "a") + !xs_watch(h, "/storm", "b");
        for (long n = i % 7; n > 0; n--)
            free(xs_read_watch(h, &count));
        if (i % 3 == 0)
            failures += xs_fileno(h) < 0;
        if (i % 11 == 0)
            failures += !let_go_in_a_child(h);
        if (i % 5 == 0)
            failures += !xs_unwatch(h, "/storm", "a");
        xs_close(h);
    }
    tell_number("failures", failures);
    if (argc > 2) {
        h = must_open(0);
        failures += !xs_watch(h, "/storm", "a");
        if (pthread_create(&taker, NULL, take_events, h))
            return 2;
        let_the_test("end the daemon");
        pthread_join(taker, NULL);
        puts("the taker returned");
        xs_close(h);
    }
    atomic_store(&enough, true);
    pthread_join(writer, NULL);
    puts("the writer returned");
    return 0;
}
