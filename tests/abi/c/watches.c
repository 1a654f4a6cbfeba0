/* Watches, their events, and the descriptor that tells of them. */

#include "report.h"
#include <pthread.h>

/* Long enough for any machine, for what must come. */
#define SOON 20000

static void write_node(struct xs_handle *h, const char *path)
{
    if (!xs_write(h, XBT_NULL, path, "x", 1))
        tell_bool(path, false);
}

static void next_event(struct xs_handle *h)
{
    unsigned int count = 77;
    char **event = TRY(xs_read_watch(h, &count));

    tell_strings("event", event, count);
}

/* All events that wait. */
static void drain(struct xs_handle *h)
{
    while (tell_event("waiting event", TRY(xs_check_watch(h))))
        ;
}

/* Whatever the daemon sent before is in the handle's list when this returns. */
static void settle(struct xs_handle *h)
{
    unsigned int size;

    free(xs_read(h, XBT_NULL, "/", &size));
}

static void simple(struct xs_handle *h, struct xs_handle *other)
{
    tell_event("before any watch", TRY(xs_check_watch(h)));
    tell_bool("watch", TRY(xs_watch(h, "/w", "token")));
    next_event(h);
    tell_event("nothing more", TRY(xs_check_watch(h)));
    write_node(other, "/w");
    next_event(h);
    write_node(other, "/w/below/deeper");
    next_event(h);
    tell_bool("mkdir", TRY(xs_mkdir(other, XBT_NULL, "/w/new")));
    next_event(h);
    tell_bool("rm", TRY(xs_rm(other, XBT_NULL, "/w/below")));
    next_event(h);
    write_node(h, "/w/own");
    next_event(h);
    write_node(other, "/elsewhere");
    settle(h);
    tell_event("not of elsewhere", TRY(xs_check_watch(h)));
    tell_bool("watch again", TRY(xs_watch(h, "/w", "token")));
    tell_bool("watch with another token", TRY(xs_watch(h, "/w", "token2")));
    next_event(h);
    tell_bool("unwatch with a wrong token", TRY(xs_unwatch(h, "/w", "token3")));
    tell_bool("unwatch with a wrong path", TRY(xs_unwatch(h, "/w/x", "token")));
    tell_bool("unwatch", TRY(xs_unwatch(h, "/w", "token")));
    tell_bool("unwatch again", TRY(xs_unwatch(h, "/w", "token")));
    tell_bool("unwatch the other", TRY(xs_unwatch(h, "/w", "token2")));
    write_node(other, "/w");
    settle(h);
    tell_event("unwatched", TRY(xs_check_watch(h)));
}

static void odd(struct xs_handle *h, struct xs_handle *other)
{
    static const char *const paths[] = {"", "//", "/a b", "/w/", "@nothing", "@releaseDomain", "relative", "/"};
    char token[4200];

    for (size_t i = 0; i < sizeof(paths) / sizeof(*paths); i++) {
        printf("%s ", paths[i]);
        if (tell_bool("watch", TRY(xs_watch(h, paths[i], "odd"))))
            next_event(h);
    }
    write_node(other, "/local/domain/0/relative/below");
    next_event(h);
    next_event(h);
    for (size_t i = 0; i < sizeof(paths) / sizeof(*paths); i++) {
        printf("%s ", paths[i]);
        tell_bool("unwatch", TRY(xs_unwatch(h, paths[i], "odd")));
    }
    tell_bool("watch with an empty token", TRY(xs_watch(h, "/w", "")));
    next_event(h);
    tell_bool("unwatch it", TRY(xs_unwatch(h, "/w", "")));
    tell_bool("watch with blanks", TRY(xs_watch(h, "/w", " a b\n\xff")));
    next_event(h);
    tell_bool("unwatch it", TRY(xs_unwatch(h, "/w", " a b\n\xff")));
    memset(token, 't', sizeof(token));
    token[4092] = '\0';
    tell_bool("watch with the longest token", TRY(xs_watch(h, "/w", token)));
    token[4092] = 't';
    token[4093] = '\0';
    tell_bool("watch with one too long", TRY(xs_watch(h, "/w", token)));
    tell_bool("unwatch with one too long", TRY(xs_unwatch(h, "/w", token)));
    token[1000] = '\0';
    tell_bool("watch with a long token", TRY(xs_watch(h, "/w", token)));
    settle(h);
    drain(h);
    tell_bool("unwatch it", TRY(xs_unwatch(h, "/w", token)));
}

/* The descriptor can be read while events wait, and not otherwise. */
static void descriptor(struct xs_handle *h, struct xs_handle *other)
{
    int fd = xs_fileno(h);

    tell_answer("a descriptor", fd >= 0);
    tell_answer("the same again", fd == xs_fileno(h));
    tell_answer("readable at first", readable(fd, 0));
    tell_bool("watch", TRY(xs_watch(h, "/fd", "fd")));
    tell_answer("readable", readable(fd, SOON));
    for (int i = 0; i < 5; i++)
        write_node(other, "/fd");
    settle(h);
    for (int i = 0; i < 5; i++) {
        tell_event("waiting event", TRY(xs_check_watch(h)));
        tell_answer("still readable", readable(fd, 0));
    }
    next_event(h);
    tell_answer("readable when all are taken", readable(fd, 0));
    tell_event("none", TRY(xs_check_watch(h)));
    tell_answer("readable when none was found", readable(fd, 0));
    write_node(other, "/fd");
    tell_answer("readable again", readable(fd, SOON));
    settle(h);
    drain(h);
    tell_bool("unwatch", TRY(xs_unwatch(h, "/fd", "fd")));
}

/* Events that have arrived when their watch ends. */
static void filtered(unsigned long flags, struct xs_handle *other)
{
    struct xs_handle *h = must_open(flags);

    printf("flags %lu\n", flags);
    xs_watch(h, "/f", "t");
    xs_watch(h, "/f", "u");
    xs_watch(h, "/f/below", "t");
    xs_watch(h, "/fa", "t");
    settle(h);
    drain(h);
    write_node(other, "/f/below/x");
    write_node(other, "/fa");
    write_node(other, "/f");
    settle(h);
    tell_bool("unwatch", TRY(xs_unwatch(h, "/f", "t")));
    drain(h);
    write_node(other, "/f/below/x");
    settle(h);
    drain(h);
    tell_answer("the first descriptor with no event is not readable", !readable(xs_fileno(h), 0));
    xs_close(h);
    h = must_open(flags);
    xs_watch(h, "/f", "t");
    settle(h);
    tell_answer("a late descriptor is readable at once", readable(xs_fileno(h), 0));
    tell_bool("unwatch", TRY(xs_unwatch(h, "/f", "t")));
    tell_answer("still readable", readable(xs_fileno(h), 0));
    drain(h);
    xs_close(h);
}

static void *waiter(void *h)
{
    unsigned int count;

    return xs_read_watch(h, &count);
}

/* A thread waits for an event before there is a watch. */
static void early(struct xs_handle *other)
{
    struct xs_handle *h = must_open(0);
    pthread_t thread;
    void *event;

    if (pthread_create(&thread, NULL, waiter, h))
        exit(2);
    tell_bool("watch", TRY(xs_watch(h, "/early", "early")));
    pthread_join(thread, &event);
    tell_event("event", event);
    write_node(other, "/early/x");
    next_event(h);
    xs_close(h);
}

/* Many events keep their order. */
static void many(struct xs_handle *h, struct xs_handle *other)
{
    char path[32];
    int wrong = 0;

    xs_watch(h, "/many", "many");
    next_event(h);
    for (int i = 0; i < 3000; i++) {
        snprintf(path, sizeof(path), "/many/%d", i);
        write_node(other, path);
    }
    for (int i = 0; i < 3000; i++) {
        unsigned int count;
        char **event = xs_read_watch(h, &count);

        snprintf(path, sizeof(path), "/many/%d", i);
        wrong += !event || strcmp(event[XS_WATCH_PATH], path) || strcmp(event[XS_WATCH_TOKEN], "many");
        free(event);
    }
    tell_number("out of order", wrong);
    tell_event("no more", TRY(xs_check_watch(h)));
}

int main(void)
{
    struct xs_handle *h = must_open(0), *other = must_open(0);

    simple(h, other);
    odd(h, other);
    descriptor(h, other);
    filtered(0, other);
    filtered(XS_UNWATCH_FILTER, other);
    early(other);
    many(h, other);
    xs_close(h);
    xs_close(other);
    return 0;
}
