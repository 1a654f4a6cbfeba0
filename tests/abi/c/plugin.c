/* The library is loaded and unloaded again and again, as by a plug-in: plugin.c ROUNDS */

#include "report.h"
#include <dlfcn.h>

typedef struct xs_handle *open_function(unsigned long flags);
typedef void close_function(struct xs_handle *h);
typedef bool watch_function(struct xs_handle *h, const char *path, const char *token);
typedef char **wait_function(struct xs_handle *h, unsigned int *count);

/* Lines of a file of /proc that have a word in them. */
static long lines(const char *path, const char *word)
{
    char line[4096];
    long count = 0;
    FILE *file = fopen(path, "r");

    while (file && fgets(line, sizeof(line), file))
        count += strstr(line, word) != NULL;
    if (file)
        fclose(file);
    return count;
}

/* ISO C knows no way from a pointer to a function. */
static void look_up(void *library, const char *name, void *function, size_t size)
{
    void *found = dlsym(library, name);

    if (!found) {
        printf("%s\n", dlerror());
        exit(1);
    }
    memcpy(function, &found, size);
}

int main(int argc, char **argv)
{
    long rounds = argc > 1 ? atol(argv[1]) : 0, failures = 0, maps = 0;

    for (long i = 0; i < rounds; i++) {
        void *library = dlopen("libxenstore.so.4", RTLD_NOW | RTLD_LOCAL);
        open_function *open;
        close_function *close;
        watch_function *watch;
        wait_function *wait;
        struct xs_handle *h;
        unsigned int count;
        char **event;

        if (!library) {
            printf("%s\n", dlerror());
            return 1;
        }
        look_up(library, "xs_open", &open, sizeof(open));
        look_up(library, "xs_close", &close, sizeof(close));
        look_up(library, "xs_watch", &watch, sizeof(watch));
        look_up(library, "xs_read_watch", &wait, sizeof(wait));
        h = open(0);
        failures += !h || !watch(h, "/plugin", "t");
        event = wait(h, &count);
        failures += !event;
        free(event);
        close(h);
        dlclose(library);
        if (i == rounds / 2)
            maps = lines("/proc/self/maps", "-");
    }
    tell_number("failures", failures);
    tell_number("parts of the library left", lines("/proc/self/maps", "libxenstore"));
    /* malloc() and threads leave some or other behind, but not in each round. */
    tell_answer("mappings pile up", lines("/proc/self/maps", "-") > maps + rounds / 10);
    return 0;
}
