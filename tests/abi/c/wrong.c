/* Arguments that no program should pass, with a handle that is good. */

#include "report.h"
#include <limits.h>

static char word[] = "help";

static void strings(struct xs_handle *h)
{
    struct xs_permissions perm = {0, XS_PERM_READ};
    unsigned int n = 0;

    tell_read("read", h, XBT_NULL, NULL);
    tell_list("directory", h, XBT_NULL, NULL);
    tell_rights("get_permissions", h, XBT_NULL, NULL);
    tell_bool("write", TRY(xs_write(h, XBT_NULL, NULL, "", 0)));
    tell_bool("write no data", TRY(xs_write(h, XBT_NULL, "/a", NULL, 1)));
    tell_bool("mkdir", TRY(xs_mkdir(h, XBT_NULL, NULL)));
    tell_bool("rm", TRY(xs_rm(h, XBT_NULL, NULL)));
    tell_bool("set_permissions", TRY(xs_set_permissions(h, XBT_NULL, NULL, &perm, 1)));
    tell_bool("set no permissions", TRY(xs_set_permissions(h, XBT_NULL, "/a", NULL, 1)));
    tell_bool("watch no path", TRY(xs_watch(h, NULL, "t")));
    tell_bool("watch without a token", TRY(xs_watch(h, "/a", NULL)));
    tell_bool("unwatch no path", TRY(xs_unwatch(h, NULL, "t")));
    tell_bool("unwatch without a token", TRY(xs_unwatch(h, "/a", NULL)));
    tell_bool("watch_depth", TRY(xs_watch_depth(h, NULL, "t", 1)));
    tell_bool("watch_try_depth", TRY(xs_watch_try_depth(h, "/a", NULL, 1)));
    tell_text("control_command", TRY(xs_control_command(h, NULL, word, sizeof(word))));
    tell_text("control_command without data", TRY(xs_control_command(h, word, NULL, 1)));
    tell_text("debug_command", TRY(xs_debug_command(h, NULL, NULL, 0)));
    tell_bool("get_global_quota", TRY(xs_get_global_quota(h, NULL, &n)));
    tell_bool("set_global_quota", TRY(xs_set_global_quota(h, NULL, 1)));
    tell_bool("get_domain_quota", TRY(xs_get_domain_quota(h, 4, NULL, &n)));
    tell_bool("set_domain_quota", TRY(xs_set_domain_quota(h, 4, NULL, 1)));
    tell_bool("strings_to_perms", TRY(xs_strings_to_perms(NULL, 1, "r1")));
    tell_bool("no strings_to_perms", TRY(xs_strings_to_perms(&perm, 1, NULL)));
    tell_bool("below nothing", TRY(xs_path_is_subpath(NULL, "/a")));
    tell_bool("nothing below", TRY(xs_path_is_subpath("/a", NULL)));
}

/* They hold for any length that is too large, also where there are not so many bytes. */
static void lengths(struct xs_handle *h)
{
    struct xs_permissions perm = {0, XS_PERM_READ};
    char *path = malloc(1 << 20);

    memset(path, 'p', 1 << 20);
    path[0] = '/';
    path[(1 << 20) - 1] = '\0';
    tell_bool("write", TRY(xs_write(h, XBT_NULL, "/a", word, UINT_MAX)));
    tell_bool("set_permissions", TRY(xs_set_permissions(h, XBT_NULL, "/a", &perm, UINT_MAX)));
    tell_text("control_command", TRY(xs_control_command(h, "print", word, UINT_MAX)));
    tell_read("read a long path", h, XBT_NULL, path);
    tell_list("list it", h, XBT_NULL, path);
    tell_bool("watch it", TRY(xs_watch(h, path, "t")));
    tell_bool("watch with it as a token", TRY(xs_watch(h, "/a", path)));
    tell_bool("unwatch it", TRY(xs_unwatch(h, path, "t")));
    tell_text("a long command", TRY(xs_control_command(h, path, NULL, 0)));
    tell_bool("a long quota", TRY(xs_set_global_quota(h, path, 1)));
    free(path);
}

/* Places that the caller leaves out. */
static void places(struct xs_handle *h)
{
    xs_write(h, XBT_NULL, "/a/b", "v", 1);
    tell_text("value", TRY(xs_read(h, XBT_NULL, "/a/b", NULL)));
    free(xs_directory(h, XBT_NULL, "/a", NULL));
    free(xs_get_permissions(h, XBT_NULL, "/a", NULL));
    free(xs_get_quota_names(h, NULL));
    tell_bool("features", TRY(xs_get_features_supported(h, NULL)));
    tell_bool("features of a domain", TRY(xs_get_features_domain(h, 4, NULL)));
    tell_bool("quota", TRY(xs_get_global_quota(h, "nodes", NULL)));
    tell_bool("watch", TRY(xs_watch(h, "/a", "t")));
    tell_event("event", TRY(xs_read_watch(h, NULL)));
    tell_bool("nothing to write", TRY(xs_write_all(1, NULL, 0)));
    tell_bool("no strings", TRY(xs_strings_to_perms(NULL, 0, NULL)));
}

int main(void)
{
    struct xs_handle *h = must_open(0);

    strings(h);
    puts("lengths");
    lengths(h);
    puts("places");
    places(h);
    tell_read("the handle goes on", h, XBT_NULL, "/a/b");
    xs_close(h);
    return 0;
}
