/*
 * What the test programs share: each call of the library is reported on a line
 * of its own, with its result, its errno if it failed, and whether what it
 * returned is one block of malloc(), which is then freed by one free().
 */

#ifndef REPORT_H
#define REPORT_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <malloc.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xenstore.h>

/* Sets errno to something that no call leaves by itself, then evaluates. */
#define TRY(call) (errno = 0, (call))

static inline const char *error_name(int error)
{
    const char *name = strerrorname_np(error);

    return name ? name : "no error";
}

/* Bytes as text: whatever is not printable as a number. */
static inline void put_bytes(const void *bytes, size_t size)
{
    const unsigned char *byte = bytes;

    putchar('"');
    for (size_t i = 0; i < size; i++) {
        if (isprint(byte[i]) && byte[i] != '"' && byte[i] != '\\')
            putchar(byte[i]);
        else
            printf("\\x%02x", byte[i]);
    }
    putchar('"');
}

/* Whether size bytes at part are inside the block of malloc() at block. */
static inline bool inside(const void *block, const void *part, size_t size)
{
    uintptr_t begin = (uintptr_t)block, from = (uintptr_t)part;

    return from >= begin && from + size <= begin + malloc_usable_size((void *)block);
}

static inline void put_outside(bool all_inside)
{
    if (!all_inside)
        printf(" NOT IN ONE BLOCK");
}

static inline void put_failure(void)
{
    printf("fails: %s\n", error_name(errno));
}

static inline bool tell_bool(const char *what, bool result)
{
    printf("%s: ", what);
    if (result)
        puts("true");
    else
        put_failure();
    fflush(stdout);
    return result;
}

/* A bool that is no success or failure. */
static inline void tell_answer(const char *what, bool result)
{
    printf("%s: %s\n", what, result ? "yes" : "no");
    fflush(stdout);
}

static inline void tell_number(const char *what, long result)
{
    printf("%s: %ld\n", what, result);
    fflush(stdout);
}

/* A value with its length and the NUL that must follow it. */
static inline void tell_value(const char *what, void *value, unsigned int size)
{
    printf("%s: ", what);
    if (!value) {
        put_failure();
    } else {
        printf("%u bytes ", size);
        put_bytes(value, size);
        put_outside(inside(value, value, (size_t)size + 1));
        if (((char *)value)[size] != '\0')
            printf(" NO NUL");
        putchar('\n');
        free(value);
    }
    fflush(stdout);
}

static inline void tell_text(const char *what, char *text)
{
    printf("%s: ", what);
    if (!text) {
        put_failure();
    } else {
        put_bytes(text, strlen(text));
        put_outside(inside(text, text, strlen(text) + 1));
        putchar('\n');
        free(text);
    }
    fflush(stdout);
}

/* A vector of strings, all in one block. */
static inline void tell_strings(const char *what, char **strings, unsigned int count)
{
    bool all_inside = true;

    printf("%s: ", what);
    if (!strings) {
        put_failure();
        return;
    }
    printf("%u:", count);
    for (unsigned int i = 0; i < count; i++) {
        all_inside &= inside(strings, strings + i, sizeof(*strings));
        all_inside &= inside(strings, strings[i], strlen(strings[i]) + 1);
        putchar(' ');
        put_bytes(strings[i], strlen(strings[i]));
    }
    put_outside(all_inside);
    putchar('\n');
    free(strings);
    fflush(stdout);
}

/* The same for vectors too long to print: count, and a sum over all bytes. */
static inline void tell_many(const char *what, char **strings, unsigned int count)
{
    bool all_inside = true;
    uint64_t sum = 14695981039346656037u;

    printf("%s: ", what);
    if (!strings) {
        put_failure();
        return;
    }
    for (unsigned int i = 0; i < count; i++) {
        all_inside &= inside(strings, strings + i, sizeof(*strings));
        all_inside &= inside(strings, strings[i], strlen(strings[i]) + 1);
        for (const char *c = strings[i];; c++) {
            sum = (sum ^ (unsigned char)*c) * 1099511628211u;
            if (!*c)
                break;
        }
    }
    printf("%u, sum %016" PRIx64, count, sum);
    put_outside(all_inside);
    putchar('\n');
    free(strings);
    fflush(stdout);
}

static inline void tell_permissions(const char *what, struct xs_permissions *perms, unsigned int count)
{
    printf("%s: ", what);
    if (!perms) {
        put_failure();
        return;
    }
    printf("%u:", count);
    for (unsigned int i = 0; i < count; i++)
        printf(" %u=%u", perms[i].id, perms[i].perms);
    put_outside(inside(perms, perms, count * sizeof(*perms)));
    putchar('\n');
    free(perms);
    fflush(stdout);
}

/* An event of xs_read_watch() or xs_check_watch(). */
static inline bool tell_event(const char *what, char **event)
{
    bool came = event != NULL;

    tell_strings(what, event, 2);
    return came;
}

/* The calls that return something by a second pointer. */

static inline void tell_read(const char *what, struct xs_handle *h, xs_transaction_t t, const char *path)
{
    unsigned int size = 77;
    void *value = TRY(xs_read(h, t, path, &size));

    tell_value(what, value, size);
}

static inline void tell_list(const char *what, struct xs_handle *h, xs_transaction_t t, const char *path)
{
    unsigned int count = 77;
    char **names = TRY(xs_directory(h, t, path, &count));

    tell_strings(what, names, count);
}

static inline void tell_long_list(const char *what, struct xs_handle *h, xs_transaction_t t, const char *path)
{
    unsigned int count = 77;
    char **names = TRY(xs_directory(h, t, path, &count));

    tell_many(what, names, count);
}

static inline void tell_rights(const char *what, struct xs_handle *h, xs_transaction_t t, const char *path)
{
    unsigned int count = 77;
    struct xs_permissions *perms = TRY(xs_get_permissions(h, t, path, &count));

    tell_permissions(what, perms, count);
}

/* Whether a descriptor can be read within so many milliseconds. */
static inline bool readable(int fd, int patience)
{
    struct pollfd poll_fd = {fd, POLLIN, 0};

    return poll(&poll_fd, 1, patience) == 1 && (poll_fd.revents & POLLIN);
}

/* Tells the test to do its part and waits until it has: the end of standard input. */
static inline void let_the_test(const char *what)
{
    char byte;

    printf("> %s\n", what);
    fflush(stdout);
    while (read(0, &byte, 1) > 0)
        ;
}

/* Opens a connection or ends the program. */
static inline struct xs_handle *must_open(unsigned long flags)
{
    struct xs_handle *h = TRY(xs_open(flags));

    if (!h) {
        printf("xs_open: ");
        put_failure();
        exit(1);
    }
    return h;
}

#endif
