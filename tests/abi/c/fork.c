/* A handle after fork(): the parent's. fork.c destroy|use */

#include "report.h"
#include <signal.h>
#include <sys/wait.h>

/* What a child does that was told to leave the handle alone. */
static int misuse(struct xs_handle *h)
{
    unsigned int n;

    tell_read("read in the child", h, XBT_NULL, "/");
    tell_bool("write in the child", TRY(xs_write(h, XBT_NULL, "/child", "", 0)));
    tell_bool("watch in the child", TRY(xs_watch(h, "/child", "t")));
    tell_event("event in the child", TRY(xs_check_watch(h)));
    tell_strings("waiting in the child", TRY(xs_read_watch(h, &n)), 2);
    tell_number("transaction in the child", (long)TRY(xs_transaction_start(h)));
    xs_close(h);
    puts("closed in the child");
    fflush(stdout);
    return 0;
}

static void parent_goes_on(struct xs_handle *h)
{
    unsigned int count = 77;
    char **event;

    tell_read("read in the parent", h, XBT_NULL, "/w");
    tell_bool("write in the parent", TRY(xs_write(h, XBT_NULL, "/w/x", "", 0)));
    event = TRY(xs_read_watch(h, &count));
    tell_strings("event in the parent", event, count);
    tell_event("no other", TRY(xs_check_watch(h)));
}

int main(int argc, char **argv)
{
    struct xs_handle *h = must_open(0);
    unsigned int count;
    int status;

    if (argc != 2)
        return 2;
    tell_answer("a descriptor", xs_fileno(h) >= 0);
    tell_bool("write", TRY(xs_write(h, XBT_NULL, "/w", "value", 5)));
    tell_bool("watch", TRY(xs_watch(h, "/w", "t")));
    free(xs_read_watch(h, &count));
    fflush(stdout);
    switch (fork()) {
    case -1:
        return 2;
    case 0:
        /* Whoever waits for ever is ended. */
        alarm(20);
        if (!strcmp(argv[1], "use"))
            _exit(misuse(h));
        xs_daemon_destroy_postfork(h);
        h = must_open(0);
        tell_read("read over the child's own", h, XBT_NULL, "/w");
        xs_close(h);
        fflush(stdout);
        _exit(0);
    }
    wait(&status);
    tell_number("end of the child", status);
    parent_goes_on(h);
    xs_close(h);
    return 0;
}
