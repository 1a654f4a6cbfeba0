/* Nodes: values, lists, permissions, and what is refused: nodes.c MOST CHILDREN */

#include "report.h"

/* MOST: bytes of the largest value that the daemon takes. */
static void values(struct xs_handle *h, unsigned int most)
{
    static const unsigned char odd[] = {0, 7, 8, 9, 10, 13, 0x1f, ' ', '"', '\\', '~', 0x7f, 0x80, 0xff};
    static char big[5000];
    void *value;

    memset(big, 'v', sizeof(big));
    tell_bool("write", TRY(xs_write(h, XBT_NULL, "/a/b", "value", 5)));
    tell_read("read", h, XBT_NULL, "/a/b");
    tell_read("parent made with it", h, XBT_NULL, "/a");
    tell_bool("write nothing", TRY(xs_write(h, XBT_NULL, "/a/b", NULL, 0)));
    tell_read("read nothing", h, XBT_NULL, "/a/b");
    tell_bool("write odd bytes", TRY(xs_write(h, XBT_NULL, "/a/odd", odd, sizeof(odd))));
    tell_read("read odd bytes", h, XBT_NULL, "/a/odd");
    value = TRY(xs_read(h, XBT_NULL, "/a/odd", NULL));
    tell_value("read without a length", value, sizeof(odd));
    tell_bool("most", TRY(xs_write(h, XBT_NULL, "/a/most", big, most)));
    tell_read("read most", h, XBT_NULL, "/a/most");
    tell_bool("what fits a message", TRY(xs_write(h, XBT_NULL, "/a/most", big, 4096 - sizeof("/a/most"))));
    tell_bool("one too many", TRY(xs_write(h, XBT_NULL, "/a/most", big, 4097 - sizeof("/a/most"))));
    tell_bool("far too many", TRY(xs_write(h, XBT_NULL, "/a/most", big, sizeof(big))));
    tell_read("the handle goes on", h, XBT_NULL, "/a/b");
}

static void paths(struct xs_handle *h)
{
    static const char *const bad[] = {
        "", "//", "/a/", "/a//b", "/a b", "/a.b", "@special", "/\xff", "/a\n", "relative", "relative/path", "/a/b/c/d", "/",
    };
    char path[4200];

    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        printf("%s\n", bad[i]);
        tell_read("read", h, XBT_NULL, bad[i]);
        tell_long_list("list", h, XBT_NULL, bad[i]);
        tell_rights("permissions", h, XBT_NULL, bad[i]);
    }
    tell_bool("write a bad path", TRY(xs_write(h, XBT_NULL, "/a b", "x", 1)));
    tell_bool("mkdir a bad path", TRY(xs_mkdir(h, XBT_NULL, "/a//b")));
    tell_bool("rm a bad path", TRY(xs_rm(h, XBT_NULL, "/a/")));
    tell_bool("write relative", TRY(xs_write(h, XBT_NULL, "rel/x", "y", 1)));
    tell_read("read relative", h, XBT_NULL, "rel/x");
    tell_read("read it by its full path", h, XBT_NULL, "/local/domain/0/rel/x");

    memset(path, 'p', sizeof(path));
    path[0] = '/';
    for (size_t length = 3071; length <= 4097; length++) {
        if (length == 3074)
            length = 4093;
        path[length] = '\0';
        printf("path of %zu: ", length);
        tell_bool("mkdir", TRY(xs_mkdir(h, XBT_NULL, path)));
        path[length] = 'p';
    }
    tell_read("the handle goes on", h, XBT_NULL, "/a/b");
}

static void lists(struct xs_handle *h, int children)
{
    char path[64];

    tell_bool("mkdir", TRY(xs_mkdir(h, XBT_NULL, "/d")));
    tell_bool("mkdir again", TRY(xs_mkdir(h, XBT_NULL, "/d")));
    tell_list("list nothing", h, XBT_NULL, "/d");
    for (int i = 0; i < children; i++) {
        snprintf(path, sizeof(path), "/d/%04d", i);
        if (!xs_write(h, XBT_NULL, path, path, (unsigned int)strlen(path)))
            tell_bool(path, false);
        /* Around the size of one message, and of two, and at the end. */
        if ((i >= 815 && i <= 822) || i == 1637 || i == children - 1)
            tell_long_list("list", h, XBT_NULL, "/d");
    }
    tell_bool("rm one", TRY(xs_rm(h, XBT_NULL, "/d/0250")));
    tell_long_list("list", h, XBT_NULL, "/d");
    tell_bool("rm it again", TRY(xs_rm(h, XBT_NULL, "/d/0250")));
    tell_bool("rm all", TRY(xs_rm(h, XBT_NULL, "/d")));
    tell_bool("rm all again", TRY(xs_rm(h, XBT_NULL, "/d")));
    tell_bool("rm without a parent", TRY(xs_rm(h, XBT_NULL, "/d/x/y")));
    tell_list("list what is gone", h, XBT_NULL, "/d");
    tell_list("list of one", h, XBT_NULL, "/a/b");
    tell_bool("mkdir deep", TRY(xs_mkdir(h, XBT_NULL, "/m/n/o")));
    tell_list("list", h, XBT_NULL, "/m");
}

static void rights(struct xs_handle *h)
{
    struct xs_permissions perms[41];

    tell_rights("permissions of a new node", h, XBT_NULL, "/a/b");
    for (unsigned int i = 0; i < 41; i++) {
        perms[i].id = i;
        perms[i].perms = i % 4;
    }
    tell_bool("set one", TRY(xs_set_permissions(h, XBT_NULL, "/a/b", perms + 3, 1)));
    tell_rights("get one", h, XBT_NULL, "/a/b");
    tell_bool("set four", TRY(xs_set_permissions(h, XBT_NULL, "/a/b", perms, 4)));
    tell_rights("get four", h, XBT_NULL, "/a/b");
    tell_bool("set 41", TRY(xs_set_permissions(h, XBT_NULL, "/a/b", perms, 41)));
    tell_rights("get 41", h, XBT_NULL, "/a/b");
    tell_bool("set none", TRY(xs_set_permissions(h, XBT_NULL, "/a/b", perms, 0)));
    perms[1].perms = XS_PERM_READ | XS_PERM_IGNORE;
    tell_bool("set an ignored entry", TRY(xs_set_permissions(h, XBT_NULL, "/a/b", perms, 2)));
    tell_rights("get it", h, XBT_NULL, "/a/b");
    for (unsigned int bit = 4; bit <= 64; bit *= 2) {
        perms[1].perms = bit;
        printf("bit %u: ", bit);
        tell_bool("set", TRY(xs_set_permissions(h, XBT_NULL, "/a/b", perms, 2)));
    }
    perms[1].perms = XS_PERM_READ;
    perms[1].id = 65535;
    tell_bool("set a high domain", TRY(xs_set_permissions(h, XBT_NULL, "/a/b", perms, 2)));
    tell_rights("get it", h, XBT_NULL, "/a/b");
    tell_bool("set nowhere", TRY(xs_set_permissions(h, XBT_NULL, "/none", perms, 1)));
    tell_rights("special node", h, XBT_NULL, "@releaseDomain");
    tell_answer("xs_restrict", xs_restrict(h, 5));
    tell_read("the handle goes on", h, XBT_NULL, "/a/most");
}

int main(int argc, char **argv)
{
    struct xs_handle *h = must_open(0);

    if (argc != 3)
        return 2;
    values(h, (unsigned int)strtoul(argv[1], NULL, 10));
    paths(h);
    lists(h, atoi(argv[2]));
    rights(h);
    tell_read("in no transaction of ours", h, 4711, "/a");
    xs_close(h);
    return 0;
}
