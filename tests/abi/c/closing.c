/*
 * Handles that are closed while threads wait inside the library with them:
 * closing.c HANDLES. Only our library allows that.
 */

#include "report.h"
#include <pthread.h>
#include <stdatomic.h>
#include <sys/syscall.h>

#define WAITERS 4

static struct xs_handle *h;
static atomic_int waiting[WAITERS];

static void *wait_for_an_event(void *thread)
{
    unsigned int count;
    char **event;
    void *told;

    atomic_store((atomic_int *)thread, (int)syscall(SYS_gettid));
    event = TRY(xs_read_watch(h, &count));
    told = !event && errno == EINVAL ? NULL : thread;
    free(event);
    return told;
}

/* A thread that sleeps after it has told its number is inside the library. */
static void until_it_sleeps(atomic_int *thread)
{
    char path[64], line[256], *state;
    FILE *file;

    for (;;) {
        snprintf(path, sizeof(path), "/proc/self/task/%d/stat", atomic_load(thread));
        file = fopen(path, "r");
        if (file) {
            state = fgets(line, sizeof(line), file) ? strrchr(line, ')') : NULL;
            fclose(file);
            if (state && !strncmp(state, ") S", 3))
                return;
        }
        usleep(100);
    }
}

int main(int argc, char **argv)
{
    long handles = argc > 1 ? atol(argv[1]) : 0, failures = 0;
    pthread_t threads[WAITERS];
    unsigned int count;
    void *told;

    for (long i = 0; i < handles; i++) {
        h = must_open(0);
        /* With the library's thread, and without. */
        if (i % 2) {
            failures += !xs_watch(h, "/closing", "t");
            free(xs_read_watch(h, &count));
        }
        for (int n = 0; n < WAITERS; n++) {
            atomic_store(waiting + n, 0);
            if (pthread_create(threads + n, NULL, wait_for_an_event, waiting + n))
                return 2;
        }
        for (int n = 0; n < WAITERS; n++)
            until_it_sleeps(waiting + n);
        xs_close(h);
        for (int n = 0; n < WAITERS; n++) {
            pthread_join(threads[n], &told);
            failures += told != NULL;
        }
    }
    tell_number("failures", failures);
    return 0;
}
