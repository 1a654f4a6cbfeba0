/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The old name of xenstore_lib.h. */
#include <xenstore_lib.h>
