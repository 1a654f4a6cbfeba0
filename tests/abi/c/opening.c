/* Opening and closing, and what of a process they change. */

#include "report.h"
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>

/* The highest descriptor that is looked at. */
#define HIGHEST 256

static bool is_open[HIGHEST];

static void remember(void)
{
    for (int fd = 0; fd < HIGHEST; fd++)
        is_open[fd] = fcntl(fd, F_GETFD) >= 0;
}

/* Descriptors since remember(): all must close themselves on exec. */
static void compare(const char *what)
{
    int more = 0, leaky = 0, less = 0;

    for (int fd = 0; fd < HIGHEST; fd++) {
        int flags = fcntl(fd, F_GETFD);

        more += flags >= 0 && !is_open[fd];
        leaky += flags >= 0 && !is_open[fd] && !(flags & FD_CLOEXEC);
        less += flags < 0 && is_open[fd];
    }
    printf("%s: %s", what, more ? "more descriptors" : "no more descriptors");
    printf(", %d that survive exec, %d lost\n", leaky, less);
}

static bool same_mask(const sigset_t *before)
{
    sigset_t now;

    sigprocmask(SIG_BLOCK, NULL, &now);
    for (int signal = 1; signal < NSIG; signal++) {
        if (sigismember(before, signal) != sigismember(&now, signal))
            return false;
    }
    return true;
}

static void on_pipe(int signal)
{
    (void)signal;
}

int main(void)
{
    static struct xs_handle *(*const openers[])(void) = {xs_daemon_open, xs_daemon_open_readonly, xs_domain_open};
    struct xs_handle *h;
    struct sigaction before, after;
    sigset_t mask;

    memset(&before, 0, sizeof(before));
    before.sa_handler = on_pipe;
    sigaction(SIGPIPE, &before, NULL);
    sigprocmask(SIG_BLOCK, NULL, &mask);
    remember();
    xs_close(NULL);
    h = TRY(xs_open(0));
    tell_bool("open", h != NULL);
    if (h) {
        compare("opened");
        tell_read("read", h, XBT_NULL, "/");
        compare("used");
        tell_answer("descriptor", xs_fileno(h) >= 0);
        compare("with a descriptor");
        tell_bool("watch", TRY(xs_watch(h, "/w", "t")));
        compare("with a watch");
        tell_answer("signals blocked as before", same_mask(&mask));
        xs_close(h);
    }
    compare("closed");
    for (unsigned long flags = 0; flags < 16; flags++) {
        h = TRY(xs_open(flags));
        printf("flags %lu ", flags);
        tell_bool("open", h != NULL);
        xs_close(h);
    }
    for (size_t i = 0; i < sizeof(openers) / sizeof(*openers); i++) {
        h = TRY(openers[i]());
        tell_bool("open by an old name", h != NULL);
        if (h) {
            tell_bool("write", TRY(xs_write(h, XBT_NULL, "/old", "name", 4)));
            xs_daemon_close(h);
        }
    }
    compare("all closed");
    sigaction(SIGPIPE, NULL, &after);
    tell_answer("the handler of SIGPIPE is as before", after.sa_handler == on_pipe);
    return 0;
}
