/*
 * Our headers and those of Xen in one file: what both declare must be the
 * same, or the compiler says so. Xen's know nothing of C++.
 */

#ifdef __cplusplus
extern "C" {
#endif

#ifdef OURS_FIRST
#include OURS
#endif
#include THEIRS_LIB
#include THEIRS
#ifndef OURS_FIRST
#include OURS
#endif

#ifdef __cplusplus
}
#endif

#include "facts.h"

int main(void)
{
    return 0;
}
