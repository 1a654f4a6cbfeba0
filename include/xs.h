/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The old name of xenstore.h. */
#include <xenstore.h>
