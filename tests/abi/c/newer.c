/*
 * What came with 4.21 and 4.22: features, quotas, watches with a depth. Domain
 * 3 exists and is not introduced; 4 is.
 */

#include "report.h"

static void features(struct xs_handle *h, const char *what, unsigned int domid)
{
    unsigned int bits = 77;

    if (tell_bool(what, TRY(xs_get_features_domain(h, domid, &bits))))
        tell_number("features", bits);
}

static void global(struct xs_handle *h, const char *name)
{
    unsigned int value = 77;

    if (tell_bool(name, TRY(xs_get_global_quota(h, name, &value))))
        tell_number("global", value);
}

static void of_domain(struct xs_handle *h, unsigned int domid, const char *name)
{
    unsigned int value = 77;

    printf("domain %u ", domid);
    if (tell_bool(name, TRY(xs_get_domain_quota(h, domid, name, &value))))
        tell_number("its own", value);
}

static void names(struct xs_handle *h)
{
    unsigned int count = 77;
    const char **all = TRY(xs_get_quota_names(h, &count));

    tell_strings("quota names", (char **)all, count);
}

/* Events that wait, once all that the daemon sent before is here. */
static void drain(struct xs_handle *h)
{
    unsigned int size;

    free(xs_read(h, XBT_NULL, "/", &size));
    while (tell_event("event", TRY(xs_check_watch(h))))
        ;
}

static void depths(struct xs_handle *h)
{
    static const char *const paths[] = {"/d", "/d/e", "/d/e/f", "/d/e/f/g"};

    tell_bool("watch at depth 0", TRY(xs_watch_depth(h, "/d", "0", 0)));
    tell_bool("watch at depth 1", TRY(xs_watch_depth(h, "/d", "1", 1)));
    tell_bool("watch at depth 2, if possible", TRY(xs_watch_try_depth(h, "/d", "2", 2)));
    tell_bool("the same again", TRY(xs_watch_try_depth(h, "/d", "2", 2)));
    drain(h);
    for (size_t i = 0; i < sizeof(paths) / sizeof(*paths); i++) {
        tell_bool(paths[i], TRY(xs_write(h, XBT_NULL, paths[i], "", 0)));
        drain(h);
    }
    tell_bool("unwatch 0", TRY(xs_unwatch(h, "/d", "0")));
    tell_bool("unwatch 1", TRY(xs_unwatch(h, "/d", "1")));
    tell_bool("unwatch 2", TRY(xs_unwatch(h, "/d", "2")));
    tell_bool("watch nowhere", TRY(xs_watch_depth(h, "//", "0", 0)));
}

int main(void)
{
    struct xs_handle *h = must_open(0);
    unsigned int bits = 77;

    xs_mkdir(h, XBT_NULL, "/d/e/f");
    if (tell_bool("features", TRY(xs_get_features_supported(h, &bits))))
        tell_number("features", bits);
    features(h, "of 3", 3);
    tell_bool("set features of 3", TRY(xs_set_features_domain(h, 3, 4)));
    features(h, "of 3", 3);
    tell_bool("set features of 4", TRY(xs_set_features_domain(h, 4, 4)));
    features(h, "of 4", 4);
    features(h, "of a domain that is not there", 999);
    tell_bool("set them", TRY(xs_set_features_domain(h, 999, 4)));
    tell_bool("set features that are none", TRY(xs_set_features_domain(h, 3, 1u << 31)));
    names(h);
    global(h, "nodes");
    tell_bool("set", TRY(xs_set_global_quota(h, "nodes", 4321)));
    global(h, "nodes");
    tell_bool("set unlimited", TRY(xs_set_global_quota(h, "nodes", 0)));
    global(h, "nodes");
    tell_bool("set too much", TRY(xs_set_global_quota(h, "nodes", 4294967295u)));
    global(h, "bogus");
    tell_bool("set bogus", TRY(xs_set_global_quota(h, "bogus", 1)));
    of_domain(h, 4, "watches");
    tell_bool("set", TRY(xs_set_domain_quota(h, 4, "watches", 17)));
    of_domain(h, 4, "watches");
    of_domain(h, 4, "bogus");
    of_domain(h, 999, "watches");
    tell_bool("set", TRY(xs_set_domain_quota(h, 999, "watches", 1)));
    depths(h);
    xs_close(h);
    return 0;
}
