/* Functions that ask nobody: paths, permissions as text, places, writing. */

#include "report.h"
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void subpaths(void)
{
    static const char *const words[] = {
        "/", "/a", "/a/", "/ab", "/a/b", "/a/b/c", "//", "", "a", "a/b", "@releaseDomain", "/A",
    };
    size_t count = sizeof(words) / sizeof(*words);

    for (size_t i = 0; i < count; i++) {
        for (size_t j = 0; j < count; j++) {
            printf("%s above %s", words[i], words[j]);
            tell_answer("", xs_path_is_subpath(words[i], words[j]));
        }
    }
}

static void permissions(const char *strings, unsigned int count)
{
    struct xs_permissions perms[8];

    memset(perms, 0xee, sizeof(perms));
    printf("%u of %s: ", count, strings);
    if (!TRY(xs_strings_to_perms(perms, count, strings))) {
        put_failure();
        return;
    }
    for (unsigned int i = 0; i < count; i++)
        printf(" %u=%u", perms[i].id, perms[i].perms);
    putchar('\n');
}

static void all_permissions(void)
{
    static const char *const words[] = {
        "n0", "r1", "w2", "b3", "n65535", "n65536", "n4294967296", "n99999999999999999999", "r-1", "x1", "", "r", "r ",
        "r1x", "R1", "r 1", "r+1", "r0x10", "r010", "r09", "bb1",
    };

    for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
        permissions(words[i], 1);
    permissions("n0\0r1\0w2\0b3", 4);
    permissions("n0\0x1\0r2", 3);
    permissions("n0", 0);
}

static void places(void)
{
    const char *run = xs_daemon_rundir(), *socket = xs_daemon_socket(), *socket_ro = xs_daemon_socket_ro();

    printf("run directory %s\n", run);
    printf("socket %s\n", socket ? socket : "(none)");
    printf("socket for reading %s\n", socket_ro ? socket_ro : "(none)");
    tell_answer("the same again", socket == xs_daemon_socket());
}

/* A pipe is filled by one call while a child empties it slowly. */
static void writing(void)
{
    static char bytes[300000];
    int ends[2];
    char buffer[4096];
    ssize_t got;
    long total = 0;

    signal(SIGPIPE, SIG_IGN);
    tell_bool("write to nothing", TRY(xs_write_all(-1, "x", 1)));
    tell_bool("write nothing to nothing", TRY(xs_write_all(-1, "x", 0)));
    if (pipe(ends))
        exit(2);
    fflush(stdout);
    if (fork() == 0) {
        close(ends[0]);
        _exit(xs_write_all(ends[1], bytes, sizeof(bytes)) ? 0 : 1);
    }
    close(ends[1]);
    while ((got = read(ends[0], buffer, sizeof(buffer))) > 0)
        total += got;
    close(ends[0]);
    wait(NULL);
    tell_number("written", total);
    if (pipe(ends))
        exit(2);
    close(ends[0]);
    tell_bool("write to a broken pipe", TRY(xs_write_all(ends[1], "x", 1)));
    close(ends[1]);
    ends[0] = open("/dev/full", O_WRONLY);
    tell_bool("write to a full disk", TRY(xs_write_all(ends[0], "x", 1)));
    close(ends[0]);
}

int main(void)
{
    subpaths();
    all_permissions();
    places();
    writing();
    return 0;
}
