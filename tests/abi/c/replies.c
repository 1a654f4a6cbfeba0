/*
 * One call against a server that answers as the test wants, then another, which
 * shows whether the connection is still good: replies.c CALL [watching]
 */

#include "report.h"

static char no_data[] = "";

static void wait_for_event(struct xs_handle *h)
{
    unsigned int count = 77;
    char **event = TRY(xs_read_watch(h, &count));

    tell_strings("wait_for_event", event, count);
}

static void call(struct xs_handle *h, const char *name)
{
    struct xs_permissions perm = {0, XS_PERM_READ};

    if (!strcmp(name, "read"))
        tell_read(name, h, XBT_NULL, "/a");
    else if (!strcmp(name, "directory"))
        tell_list(name, h, XBT_NULL, "/a");
    else if (!strcmp(name, "get_permissions"))
        tell_rights(name, h, XBT_NULL, "/a");
    else if (!strcmp(name, "write"))
        tell_bool(name, TRY(xs_write(h, XBT_NULL, "/a", "v", 1)));
    else if (!strcmp(name, "mkdir"))
        tell_bool(name, TRY(xs_mkdir(h, XBT_NULL, "/a")));
    else if (!strcmp(name, "rm"))
        tell_bool(name, TRY(xs_rm(h, XBT_NULL, "/a")));
    else if (!strcmp(name, "set_permissions"))
        tell_bool(name, TRY(xs_set_permissions(h, XBT_NULL, "/a", &perm, 1)));
    else if (!strcmp(name, "watch"))
        tell_bool(name, TRY(xs_watch(h, "/a", "t")));
    else if (!strcmp(name, "unwatch"))
        tell_bool(name, TRY(xs_unwatch(h, "/a", "t")));
    else if (!strcmp(name, "transaction_start"))
        tell_number(name, (long)TRY(xs_transaction_start(h)));
    else if (!strcmp(name, "transaction_end"))
        tell_bool(name, TRY(xs_transaction_end(h, 7, false)));
    else if (!strcmp(name, "introduce_domain"))
        tell_bool(name, TRY(xs_introduce_domain(h, 7, 8, 9)));
    else if (!strcmp(name, "release_domain"))
        tell_bool(name, TRY(xs_release_domain(h, 7)));
    else if (!strcmp(name, "resume_domain"))
        tell_bool(name, TRY(xs_resume_domain(h, 7)));
    else if (!strcmp(name, "set_target"))
        tell_bool(name, TRY(xs_set_target(h, 7, 8)));
    else if (!strcmp(name, "is_domain_introduced"))
        tell_answer(name, TRY(xs_is_domain_introduced(h, 7)));
    else if (!strcmp(name, "get_domain_path"))
        tell_text(name, TRY(xs_get_domain_path(h, 7)));
    else if (!strcmp(name, "control_command"))
        tell_text(name, TRY(xs_control_command(h, "help", no_data, 0)));
    else if (!strcmp(name, "wait_for_event"))
        wait_for_event(h);
    else
        exit(2);
}

int main(int argc, char **argv)
{
    struct xs_handle *h = must_open(0);

    if (argc < 2)
        return 2;
    /* From now on the library has a thread that reads. */
    if (argc > 2)
        tell_bool("watch first", TRY(xs_watch(h, "/watched", "w")));
    call(h, argv[1]);
    tell_read("afterwards", h, XBT_NULL, "/afterwards");
    tell_event("event", TRY(xs_check_watch(h)));
    tell_event("event", TRY(xs_check_watch(h)));
    xs_close(h);
    return 0;
}
