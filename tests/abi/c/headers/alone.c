/* All four headers by themselves. Each has what it needs, in any order. */

#ifdef OLD_NAMES
#include <xs_lib.h>
#include <xs.h>
#else
#include <xenstore.h>
#include <xenstore_lib.h>
#endif

#include "facts.h"

int main(void)
{
    return 0;
}
