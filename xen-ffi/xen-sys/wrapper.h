/* What xen-sys binds. libxenctrl is not among it: its ABI belongs to one Xen version. */
#include <stdint.h>

#include <xen/xen.h>
#include <xen/event_channel.h>
#include <xen/grant_table.h>
#include <xen/io/xs_wire.h>
#include <xenevtchn.h>
#include <xenforeignmemory.h>
#include <xengnttab.h>
#include <xentoolcore.h>

#ifdef XEN_SYS_MANAGE
#include <xenmanage.h>
#endif
