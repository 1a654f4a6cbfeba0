/* Every function with a handle that is NULL, as after an xs_open() that failed. */

#include "report.h"

static char no_data[] = "";

int main(void)
{
    struct xs_permissions perm = {0, XS_PERM_READ};
    unsigned int n = 0;

    tell_read("read", NULL, XBT_NULL, "/");
    tell_list("directory", NULL, XBT_NULL, "/");
    tell_rights("get_permissions", NULL, XBT_NULL, "/");
    tell_bool("write", TRY(xs_write(NULL, XBT_NULL, "/", "", 0)));
    tell_bool("mkdir", TRY(xs_mkdir(NULL, XBT_NULL, "/a")));
    tell_bool("rm", TRY(xs_rm(NULL, XBT_NULL, "/a")));
    tell_bool("restrict", TRY(xs_restrict(NULL, 1)));
    tell_bool("set_permissions", TRY(xs_set_permissions(NULL, XBT_NULL, "/", &perm, 1)));
    tell_bool("watch", TRY(xs_watch(NULL, "/", "t")));
    tell_bool("unwatch", TRY(xs_unwatch(NULL, "/", "t")));
    tell_number("fileno", TRY(xs_fileno(NULL)));
    tell_number("fileno's errno is EINVAL", errno == EINVAL);
    tell_event("check_watch", TRY(xs_check_watch(NULL)));
    tell_event("read_watch", TRY(xs_read_watch(NULL, &n)));
    tell_bool("transaction_start", TRY(xs_transaction_start(NULL)));
    tell_bool("transaction_end", TRY(xs_transaction_end(NULL, 1, false)));
    tell_bool("introduce_domain", TRY(xs_introduce_domain(NULL, 1, 1, 1)));
    tell_bool("set_target", TRY(xs_set_target(NULL, 1, 1)));
    tell_bool("resume_domain", TRY(xs_resume_domain(NULL, 1)));
    tell_bool("release_domain", TRY(xs_release_domain(NULL, 1)));
    tell_text("get_domain_path", TRY(xs_get_domain_path(NULL, 1)));
    tell_bool("is_domain_introduced", TRY(xs_is_domain_introduced(NULL, 1)));
    tell_text("control_command", TRY(xs_control_command(NULL, "help", no_data, 0)));
    tell_text("debug_command", TRY(xs_debug_command(NULL, "help", no_data, 0)));
    xs_close(NULL);
    xs_daemon_close(NULL);
    xs_daemon_destroy_postfork(NULL);
    puts("closed");

    tell_bool("watch_depth", TRY(xs_watch_depth(NULL, "/", "t", 1)));
    tell_bool("watch_try_depth", TRY(xs_watch_try_depth(NULL, "/", "t", 1)));
    tell_bool("get_features_supported", TRY(xs_get_features_supported(NULL, &n)));
    tell_bool("get_features_domain", TRY(xs_get_features_domain(NULL, 1, &n)));
    tell_bool("set_features_domain", TRY(xs_set_features_domain(NULL, 1, 1)));
    tell_answer("get_quota_names", TRY(xs_get_quota_names(NULL, &n)) != NULL);
    tell_bool("get_global_quota", TRY(xs_get_global_quota(NULL, "nodes", &n)));
    tell_bool("set_global_quota", TRY(xs_set_global_quota(NULL, "nodes", 1)));
    tell_bool("get_domain_quota", TRY(xs_get_domain_quota(NULL, 1, "nodes", &n)));
    tell_bool("set_domain_quota", TRY(xs_set_domain_quota(NULL, 1, "nodes", 1)));
    return 0;
}
