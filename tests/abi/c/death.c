/* The daemon dies: everybody who waits is told, and nothing of others is closed. */

#include "report.h"
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

#define READERS 10

static struct xs_handle *h;
static atomic_bool died;
static atomic_int reads;

static void *read_until_death(void *unused)
{
    unsigned int size;
    void *value;

    (void)unused;
    while ((value = xs_read(h, XBT_NULL, "/", &size))) {
        free(value);
        atomic_fetch_add(&reads, 1);
    }
    return NULL;
}

static void *wait_until_death(void *unused)
{
    unsigned int count;
    char **event;

    (void)unused;
    while ((event = xs_read_watch(h, &count)))
        free(event);
    return NULL;
}

/* A stranger's files, opened and closed while the library closes its own. */
static void *open_files(void *unused)
{
    long foreign = 0;

    (void)unused;
    while (!atomic_load(&died)) {
        int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

        if (fd >= 0 && close(fd))
            foreign++;
    }
    return (void *)foreign;
}

int main(void)
{
    pthread_t readers[READERS], waiter, opener;
    void *foreign;
    int fd;

    signal(SIGPIPE, SIG_DFL);
    h = must_open(0);
    fd = xs_fileno(h);
    if (!xs_watch(h, "/w", "t"))
        return 2;
    for (int i = 0; i < READERS; i++) {
        if (pthread_create(readers + i, NULL, read_until_death, NULL))
            return 2;
    }
    if (pthread_create(&waiter, NULL, wait_until_death, NULL) || pthread_create(&opener, NULL, open_files, NULL))
        return 2;
    while (atomic_load(&reads) < 100)
        usleep(1000);
    let_the_test("end the daemon");
    for (int i = 0; i < READERS; i++)
        pthread_join(readers[i], NULL);
    puts("all readers returned");
    pthread_join(waiter, NULL);
    puts("the waiter returned");
    tell_answer("the descriptor is readable", readable(fd, 20000));
    atomic_store(&died, true);
    pthread_join(opener, &foreign);
    tell_number("files of others closed", (long)foreign);
    tell_read("read", h, XBT_NULL, "/");
    tell_bool("write", TRY(xs_write(h, XBT_NULL, "/", "", 0)));
    tell_bool("watch", TRY(xs_watch(h, "/w", "u")));
    tell_event("event", TRY(xs_check_watch(h)));
    tell_number("transaction", (long)TRY(xs_transaction_start(h)));
    xs_close(h);
    puts("closed");
    return 0;
}
