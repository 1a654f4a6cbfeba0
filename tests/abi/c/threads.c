/* Many threads share a handle, with events among the replies: threads.c THREADS REQUESTS */

#include "report.h"
#include <pthread.h>

static struct xs_handle *h;
static long requests;

static void *work(void *number)
{
    long wrong = 0, me = (long)number;
    char path[64], value[64];

    snprintf(path, sizeof(path), "/threads/%ld", me);
    for (long i = 0; i < requests; i++) {
        unsigned int size = 0;
        char *back;
        int length = snprintf(value, sizeof(value), "%ld of %ld", i, me);

        wrong += !xs_write(h, XBT_NULL, path, value, (unsigned int)length);
        back = xs_read(h, XBT_NULL, path, &size);
        wrong += !back || strcmp(back, value);
        free(back);
        if (i % 16 == 0) {
            xs_transaction_t t = xs_transaction_start(h);

            wrong += t == XBT_NULL || !xs_transaction_end(h, t, i % 32 == 0);
        }
        errno = 0;
        back = xs_read(h, XBT_NULL, "/threads/none", &size);
        wrong += back != NULL || errno != ENOENT;
    }
    return (void *)wrong;
}

static void *take_events(void *expected)
{
    unsigned int count;
    long taken = 0, wanted = (long)expected;

    while (taken < wanted) {
        char **event = xs_read_watch(h, &count);

        if (!event)
            break;
        taken += strncmp(event[XS_WATCH_PATH], "/threads/", 9) == 0;
        free(event);
    }
    return (void *)taken;
}

int main(int argc, char **argv)
{
    long threads = argc > 1 ? atol(argv[1]) : 0, wrong = 0;
    pthread_t workers[64], taker;
    void *result;

    if (argc != 3 || threads > 64)
        return 2;
    requests = atol(argv[2]);
    h = must_open(0);
    if (!xs_watch(h, "/threads", "t"))
        return 2;
    if (pthread_create(&taker, NULL, take_events, (void *)(threads * requests)))
        return 2;
    for (long i = 0; i < threads; i++) {
        if (pthread_create(workers + i, NULL, work, (void *)i))
            return 2;
    }
    for (long i = 0; i < threads; i++) {
        pthread_join(workers[i], &result);
        wrong += (long)result;
    }
    pthread_join(taker, &result);
    tell_number("wrong", wrong);
    tell_number("events", (long)result);
    xs_close(h);
    return 0;
}
