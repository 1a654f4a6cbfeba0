/*
 * Every kind of call by a thread with the least stack that the system allows:
 * little.c CHILDREN
 */

#include "report.h"
#include <limits.h>
#include <pthread.h>

static struct xs_handle *h;
static int children;

static void *call(void *unused)
{
    struct xs_permissions perms[41];
    char word[] = "bogus";
    unsigned int count = 0;
    xs_transaction_t t;
    char path[64];
    char **names;

    (void)unused;
    tell_bool("write", TRY(xs_write(h, XBT_NULL, "/little/a", "value", 5)));
    tell_read("read", h, XBT_NULL, "/little/a");
    tell_read("read what is not there", h, XBT_NULL, "/none");
    tell_bool("mkdir", TRY(xs_mkdir(h, XBT_NULL, "/little/b")));
    for (int i = 0; i < children; i++) {
        snprintf(path, sizeof(path), "/little/d/%04d", i);
        if (!xs_mkdir(h, XBT_NULL, path))
            tell_bool(path, false);
    }
    names = xs_directory(h, XBT_NULL, "/little/d", &count);
    free(names);
    tell_number("children", count);
    for (unsigned int i = 0; i < 41; i++) {
        perms[i].id = i;
        perms[i].perms = i % 4;
    }
    tell_bool("set permissions", TRY(xs_set_permissions(h, XBT_NULL, "/little/a", perms, 41)));
    tell_rights("permissions", h, XBT_NULL, "/little/a");
    t = xs_transaction_start(h);
    tell_bool("write in a transaction", TRY(xs_write(h, t, "/little/c", "", 0)));
    tell_bool("commit", TRY(xs_transaction_end(h, t, false)));
    tell_bool("watch", TRY(xs_watch(h, "/little", "t")));
    free(xs_read_watch(h, &count));
    tell_answer("descriptor", xs_fileno(h) >= 0);
    tell_event("no event", TRY(xs_check_watch(h)));
    tell_bool("unwatch", TRY(xs_unwatch(h, "/little", "t")));
    tell_text("domain path", TRY(xs_get_domain_path(h, 7)));
    tell_answer("introduced", xs_is_domain_introduced(h, 7));
    tell_text("control", TRY(xs_control_command(h, word, NULL, 0)));
    tell_bool("rm", TRY(xs_rm(h, XBT_NULL, "/little")));
    xs_close(h);
    h = TRY(xs_open(0));
    tell_bool("open", h != NULL);
    xs_close(h);
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_attr_t attributes;
    pthread_t thread;

    if (argc != 2)
        return 2;
    children = atoi(argv[1]);
    /* What is allocated once by the system's own functions is no matter of the library. */
    printf("%s\n", error_name(ENOENT));
    h = must_open(0);
    pthread_attr_init(&attributes);
    if (pthread_attr_setstacksize(&attributes, PTHREAD_STACK_MIN))
        return 2;
    if (pthread_create(&thread, &attributes, call, NULL))
        return 2;
    pthread_join(thread, NULL);
    puts("returned");
    return 0;
}
