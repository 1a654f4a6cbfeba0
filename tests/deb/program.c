/* Writes a node, reads it back, and sees a watch fire. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xenstore.h>

int main(void)
{
    struct xs_handle *h = xs_open(0);
    char **event;
    void *value;
    unsigned int n;

    if (!h || !xs_write(h, XBT_NULL, "/program", "value", 5))
        return 1;
    value = xs_read(h, XBT_NULL, "/program", &n);
    if (!value || n != 5)
        return 2;
    printf("%s\n", (char *)value);
    free(value);
    if (!xs_watch(h, "/program/watched", "token"))
        return 3;
    event = xs_read_watch(h, &n);
    if (!event)
        return 4;
    printf("%s %s\n", event[XS_WATCH_PATH], event[XS_WATCH_TOKEN]);
    free(event);
    xs_close(h);
    return 0;
}
