/* What the domain builder needs of libxenctrl and libxenguest. */
#define __XEN_TOOLS__ 1
#include <xenctrl.h>
#include <xenguest.h>
