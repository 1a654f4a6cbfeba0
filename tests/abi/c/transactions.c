/* Transactions: what they see, how they end: transactions.c CHILDREN */

#include "report.h"

int main(int argc, char **argv)
{
    struct xs_handle *h = must_open(0), *other = must_open(0);
    struct xs_permissions perm = {0, XS_PERM_READ};
    xs_transaction_t t, second;

    if (argc != 2)
        return 2;

    tell_bool("write", xs_write(h, XBT_NULL, "/t/a", "old", 3));
    t = TRY(xs_transaction_start(h));
    tell_answer("a number", t != XBT_NULL);
    tell_bool("write inside", TRY(xs_write(h, t, "/t/a", "new", 3)));
    tell_read("inside", h, t, "/t/a");
    tell_read("outside", h, XBT_NULL, "/t/a");
    tell_read("of another connection", other, t, "/t/a");
    tell_bool("end", TRY(xs_transaction_end(h, t, false)));
    tell_read("afterwards", h, XBT_NULL, "/t/a");
    tell_bool("end again", TRY(xs_transaction_end(h, t, false)));
    tell_read("in what has ended", h, t, "/t/a");

    t = xs_transaction_start(h);
    tell_bool("mkdir inside", TRY(xs_mkdir(h, t, "/t/b/c")));
    tell_bool("rm inside", TRY(xs_rm(h, t, "/t/a")));
    tell_bool("set permissions inside", TRY(xs_set_permissions(h, t, "/t/b", &perm, 1)));
    tell_list("list inside", h, t, "/t");
    tell_list("list outside", h, XBT_NULL, "/t");
    tell_rights("permissions inside", h, t, "/t/b");
    tell_bool("abort", TRY(xs_transaction_end(h, t, true)));
    tell_list("list afterwards", h, XBT_NULL, "/t");

    t = xs_transaction_start(h);
    tell_read("inside", h, t, "/t/a");
    tell_bool("another writes", TRY(xs_write(other, XBT_NULL, "/t/a", "theirs", 6)));
    tell_bool("write on what was read", TRY(xs_write(h, t, "/t/a", "ours", 4)));
    tell_bool("end", TRY(xs_transaction_end(h, t, false)));
    tell_read("afterwards", h, XBT_NULL, "/t/a");

    t = xs_transaction_start(h);
    second = xs_transaction_start(h);
    tell_answer("two at once", t != second && second != XBT_NULL);
    tell_bool("end one", TRY(xs_transaction_end(h, second, true)));
    tell_bool("end the other", TRY(xs_transaction_end(h, t, true)));
    tell_bool("end none", TRY(xs_transaction_end(h, XBT_NULL, false)));
    tell_bool("end a stranger's", TRY(xs_transaction_end(h, 4711, false)));

    t = xs_transaction_start(h);
    for (int i = 0; i < atoi(argv[1]); i++) {
        char path[32];

        snprintf(path, sizeof(path), "/t/many/%04d", i);
        if (!xs_write(h, t, path, path, (unsigned int)strlen(path)))
            tell_bool(path, false);
    }
    tell_long_list("many inside", h, t, "/t/many");
    tell_bool("end", TRY(xs_transaction_end(h, t, false)));
    tell_long_list("many afterwards", h, XBT_NULL, "/t/many");
    xs_close(other);
    xs_close(h);
    return 0;
}
