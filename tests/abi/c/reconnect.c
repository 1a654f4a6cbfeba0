/*
 * Programs that work on while daemons die and come back: reconnect.c PLAYERS
 *
 * Each player has a handle of its own that connects again. It counts up a node
 * of its own, a node that all share together with its own account of that, and
 * follows the node of the next player by a watch. A request that failed is made
 * again only where it is seen not to have been carried out.
 */

#include "report.h"
#include <pthread.h>
#include <stdatomic.h>

#define SHARED "/library/shared"

static atomic_bool over;
static atomic_long wrong, broken;
static pthread_barrier_t all_have_written;

struct player {
    pthread_t thread;
    long number, next;
    struct xs_handle *h;
    /* What was acknowledged. */
    long written, counted;
    /* The value of the other's node after the last event. */
    long seen;
    long end;
};

static void complain(const struct player *p, const char *what, long got, long want)
{
    if (atomic_fetch_add(&wrong, 1) < 20)
        printf("player %ld: %s is %ld, not %ld (%s)\n", p->number, what, got, want, error_name(errno));
}

static void path_of(char *path, size_t size, long number, const char *name)
{
    snprintf(path, size, "/library/%ld/%s", number, name);
}

/* A number in a node; -1 where it cannot be read, which the daemon's death may be the reason for. */
static long number_at(struct player *p, xs_transaction_t t, const char *path)
{
    unsigned int size;
    char *value = TRY(xs_read(p->h, t, path, &size));
    long number = value ? atol(value) : -1;

    free(value);
    return number;
}

/* The same, as soon as there is a daemon. Nobody removes any of these nodes. */
static long number_in(struct player *p, const char *path)
{
    for (long i = 0; i < 60000; i++) {
        long number = number_at(p, XBT_NULL, path);

        if (number >= 0)
            return number;
        if (errno == ENOENT)
            break;
        usleep(1000);
    }
    complain(p, path, -1, 0);
    return -1;
}

static bool put_number(struct player *p, xs_transaction_t t, const char *path, long number)
{
    char text[32];
    int size = snprintf(text, sizeof(text), "%ld", number);

    return TRY(xs_write(p->h, t, path, text, size));
}

static void write_next(struct player *p)
{
    char path[64];
    long next = p->written + 1;

    path_of(path, sizeof(path), p->number, "written");
    while (!put_number(p, XBT_NULL, path, next)) {
        long found = number_in(p, path);

        atomic_fetch_add(&broken, 1);
        if (found == next || found < 0)
            break;
        if (found != p->written)
            complain(p, "what was written", found, p->written);
    }
    p->written = next;
}

/* Whether it is counted, as far as the answer tells: 1, 0, or -1 for what must be found out. */
static int try_to_count(struct player *p, const char *own)
{
    xs_transaction_t t = TRY(xs_transaction_start(p->h));
    long all, mine;

    if (t == XBT_NULL)
        return 0;
    all = number_at(p, t, SHARED);
    mine = number_at(p, t, own);
    if (all < 0 || mine < 0 || !put_number(p, t, SHARED, all + 1) || !put_number(p, t, own, mine + 1)) {
        xs_transaction_end(p->h, t, true);
        return 0;
    }
    if (mine != p->counted)
        complain(p, "what was counted", mine, p->counted);
    if (TRY(xs_transaction_end(p->h, t, false)))
        return 1;
    return errno == EAGAIN ? 0 : -1;
}

static void count(struct player *p)
{
    char own[64];
    int counted;

    path_of(own, sizeof(own), p->number, "counted");
    counted = try_to_count(p, own);
    if (counted < 0) {
        long found = number_in(p, own);

        atomic_fetch_add(&broken, 1);
        if (found != p->counted && found != p->counted + 1)
            complain(p, "what may have been counted", found, p->counted);
        counted = found == p->counted + 1;
    }
    p->counted += counted;
}

static void take_events(struct player *p)
{
    char path[64], **event;

    path_of(path, sizeof(path), p->next, "written");
    while ((event = TRY(xs_check_watch(p->h)))) {
        long found;

        if (strcmp(event[XS_WATCH_PATH], path) || strcmp(event[XS_WATCH_TOKEN], "token"))
            complain(p, event[XS_WATCH_PATH], -1, 0);
        free(event);
        found = number_in(p, path);
        if (found < p->seen)
            complain(p, "what is seen", found, p->seen);
        p->seen = found;
    }
}

static void *play(void *argument)
{
    struct player *p = argument;
    char path[64];

    while (!atomic_load(&over)) {
        write_next(p);
        count(p);
        take_events(p);
    }
    p->end = p->written;
    pthread_barrier_wait(&all_have_written);

    path_of(path, sizeof(path), p->number, "written");
    if (number_in(p, path) != p->written)
        complain(p, "what was written last", number_in(p, path), p->written);
    path_of(path, sizeof(path), p->number, "counted");
    if (number_in(p, path) != p->counted)
        complain(p, "what was counted last", number_in(p, path), p->counted);
    /* The last write was told of, or will be. */
    p -= p->number;
    {
        struct player *me = argument;
        long last = p[me->next].end;

        while (me->seen < last && readable(xs_fileno(me->h), 20000))
            take_events(me);
        if (me->seen != last)
            complain(me, "what was told of last", me->seen, last);
        xs_close(me->h);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    long count_of_players = argc > 1 ? atol(argv[1]) : 1, written = 0, counted = 0;
    struct player *players = calloc(count_of_players, sizeof(*players));
    struct player last = {.h = must_open(XS_OPEN_RECONNECT)};
    char path[64];

    if (!players || pthread_barrier_init(&all_have_written, NULL, count_of_players))
        return 2;
    put_number(&last, XBT_NULL, SHARED, 0);
    for (long i = 0; i < count_of_players; i++) {
        players[i] = (struct player){.number = i, .next = (i + 1) % count_of_players};
        for (int n = 0; n < 2; n++) {
            path_of(path, sizeof(path), i, n ? "counted" : "written");
            if (!put_number(&last, XBT_NULL, path, 0))
                return 2;
        }
    }
    for (long i = 0; i < count_of_players; i++) {
        path_of(path, sizeof(path), players[i].next, "written");
        players[i].h = must_open(XS_OPEN_RECONNECT);
        if (!xs_watch(players[i].h, path, "token"))
            return 2;
    }
    for (long i = 0; i < count_of_players; i++)
        if (pthread_create(&players[i].thread, NULL, play, players + i))
            return 2;
    let_the_test("kill daemons");
    atomic_store(&over, true);
    for (long i = 0; i < count_of_players; i++) {
        pthread_join(players[i].thread, NULL);
        written += players[i].written;
        counted += players[i].counted;
    }
    tell_number("wrong", atomic_load(&wrong));
    tell_answer("everything counted once", number_in(&last, SHARED) == counted);
    tell_answer("everybody wrote", written >= count_of_players);
    tell_answer("some requests were cut off", atomic_load(&broken) > 0);
    xs_close(last.h);
    free(players);
    return 0;
}
