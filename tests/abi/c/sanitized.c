/*
 * Names by which code that Rust's compiler checks for races calls these; the C
 * compiler's library of checks has them by their usual names alone.
 */

#include <string.h>

void *__tsan_memcpy(void *to, const void *from, size_t size);
void *__tsan_memmove(void *to, const void *from, size_t size);
void *__tsan_memset(void *to, int byte, size_t size);

void *__tsan_memcpy(void *to, const void *from, size_t size)
{
    return memcpy(to, from, size);
}

void *__tsan_memmove(void *to, const void *from, size_t size)
{
    return memmove(to, from, size);
}

void *__tsan_memset(void *to, int byte, size_t size)
{
    return memset(to, byte, size);
}
