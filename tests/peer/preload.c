/*
 * Lets Debian's xenstored and oxenstored 4.17 start where there is no hypervisor.
 *
 *     cc -shared -fPIC -O2 -o preload.so preload.c
 *     LD_PRELOAD=preload.so XENSTORED_RUNDIR=... xenstored -N --pid-file ...
 *
 * It answers the calls of libxenctrl, libxenevtchn and libxengnttab that a store daemon makes, so that a peer can be
 * compared over its socket. The host it shows never changes: every domain below DOMID_FIRST_RESERVED exists and runs,
 * no event channel ever fires, and a guest's ring is an empty page that nobody else sees. What it cannot do is play
 * a guest.
 *
 * The few types are written down here, as the 4.17 libraries lay them out, so that no Xen header is needed.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#define PAGE 4096
#define DOMID_FIRST_RESERVED 0x7FF0u
#define XENEVTCHN_NO_CLOEXEC 1u

/* One object stands for every handle: none of them holds anything that a daemon could tell apart. */
static int handle;
static int next_port = 1;

/* ---- libxenctrl: which domains there are ---- */

/* Head of xc_dominfo_t (112 bytes in 4.17). */
struct dominfo {
    uint32_t domid, ssidref, flags, shutdown_reason;
    unsigned char rest[96];
};
#define DOMINFO_RUNNING (1u << 5)

/* Head of xen_domctl_getdomaininfo (112 bytes in 4.17). */
struct domaininfo {
    uint16_t domid, pad;
    uint32_t flags;
    unsigned char rest[104];
};
#define DOMAININFO_RUNNING (1u << 5)

_Static_assert(sizeof(struct dominfo) == 112 && sizeof(struct domaininfo) == 112, "layouts of 4.17");

void *xc_interface_open(void *logger, void *dombuild_logger, unsigned flags)
{
    (void)logger, (void)dombuild_logger, (void)flags;
    return &handle;
}

int xc_interface_close(void *xch)
{
    (void)xch;
    return 0;
}

int xc_domain_getinfo(void *xch, uint32_t first, unsigned max, struct dominfo *info)
{
    unsigned n = 0;

    (void)xch;
    for (; n < max && first + n < DOMID_FIRST_RESERVED; n++) {
        memset(&info[n], 0, sizeof(info[n]));
        info[n].domid = first + n;
        info[n].flags = DOMINFO_RUNNING;
    }
    if (n == 0) {
        errno = ESRCH;
        return -1;
    }
    return (int)n;
}

int xc_domain_getinfolist(void *xch, uint32_t first, unsigned max, struct domaininfo *info)
{
    unsigned n = 0;

    (void)xch;
    for (; n < max && first + n < DOMID_FIRST_RESERVED; n++) {
        memset(&info[n], 0, sizeof(info[n]));
        info[n].domid = (uint16_t)(first + n);
        info[n].flags = DOMAININFO_RUNNING;
    }
    return (int)n;
}

static void *empty_page(void)
{
    void *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    return page == MAP_FAILED ? NULL : page;
}

void *xc_map_foreign_range(void *xch, uint32_t domid, int size, int prot, unsigned long frame)
{
    (void)xch, (void)domid, (void)size, (void)prot, (void)frame;
    return empty_page();
}

/* ---- libxengnttab: rings of guests ---- */

void *xengnttab_open(void *logger, unsigned flags)
{
    (void)logger, (void)flags;
    return &handle;
}

int xengnttab_close(void *xgt)
{
    (void)xgt;
    return 0;
}

int xengnttab_set_max_grants(void *xgt, uint32_t count)
{
    (void)xgt, (void)count;
    return 0;
}

void *xengnttab_map_grant_ref(void *xgt, uint32_t domid, uint32_t ref, int prot)
{
    (void)xgt, (void)domid, (void)ref, (void)prot;
    return empty_page();
}

int xengnttab_unmap(void *xgt, void *start, uint32_t count)
{
    (void)xgt;
    return munmap(start, (size_t)count * PAGE);
}

/* ---- libxenevtchn: event channels that stay silent ---- */

static int evtchn_fd = -1;

void *xenevtchn_open(void *logger, unsigned flags)
{
    (void)logger;
    evtchn_fd = eventfd(0, EFD_NONBLOCK | (flags & XENEVTCHN_NO_CLOEXEC ? 0 : EFD_CLOEXEC));
    return evtchn_fd < 0 ? NULL : &handle;
}

void *xenevtchn_fdopen(void *logger, int fd, unsigned flags)
{
    (void)logger, (void)flags;
    evtchn_fd = fd;
    return &handle;
}

int xenevtchn_close(void *xce)
{
    (void)xce;
    return close(evtchn_fd);
}

int xenevtchn_fd(void *xce)
{
    (void)xce;
    return evtchn_fd;
}

int xenevtchn_bind_interdomain(void *xce, uint32_t domid, uint32_t remote_port)
{
    (void)xce, (void)domid, (void)remote_port;
    return next_port++;
}

int xenevtchn_bind_virq(void *xce, unsigned virq)
{
    (void)xce, (void)virq;
    return next_port++;
}

int xenevtchn_unbind(void *xce, uint32_t port)
{
    (void)xce, (void)port;
    return 0;
}

int xenevtchn_notify(void *xce, uint32_t port)
{
    (void)xce, (void)port;
    return 0;
}

int xenevtchn_unmask(void *xce, uint32_t port)
{
    (void)xce, (void)port;
    return 0;
}

int xenevtchn_pending(void *xce)
{
    (void)xce;
    errno = EAGAIN;
    return -1;
}

/* ---- the kernel's own ring and its port ---- */

/* A descriptor for the file of that name, or -1 when `path` is none of the files that the kernel offers. */
static int kernel_file(const char *path)
{
    const char *content = NULL;
    int fd;

    if (strcmp(path, "/proc/xen/xsd_port") == 0)
        content = "1"; /* oxenstored takes no newline here */
    else if (strcmp(path, "/proc/xen/xsd_kva") != 0)
        return -1;
    fd = memfd_create("xenstore", MFD_CLOEXEC);
    if (fd < 0)
        return -1;
    if (content != NULL ? pwrite(fd, content, strlen(content), 0) < 0 : ftruncate(fd, PAGE) < 0) {
        close(fd);
        return -1;
    }
    return fd;
}

/* The mode argument of open() is there only when a file may be made. */
#define OPEN_LIKE(name)                                                         \
    int name(const char *path, int flags, ...)                                  \
    {                                                                           \
        static int (*real)(const char *, int, ...);                             \
        mode_t mode = 0;                                                        \
        int fd = kernel_file(path);                                             \
                                                                                \
        if (fd >= 0)                                                            \
            return fd;                                                          \
        if (flags & (O_CREAT | O_TMPFILE)) {                                    \
            va_list args;                                                       \
            va_start(args, flags);                                              \
            mode = va_arg(args, mode_t);                                        \
            va_end(args);                                                       \
        }                                                                       \
        if (real == NULL)                                                       \
            real = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, #name);    \
        return real(path, flags, mode);                                         \
    }

OPEN_LIKE(open)
OPEN_LIKE(open64)

/* oxenstored raises its limit of descriptors and gives up where it may not; the harness sets limits itself. */
int setrlimit(__rlimit_resource_t resource, const struct rlimit *limit)
{
    static int (*real)(__rlimit_resource_t, const struct rlimit *);

    if (real == NULL)
        real = (int (*)(__rlimit_resource_t, const struct rlimit *))dlsym(RTLD_NEXT, "setrlimit");
    (void)real(resource, limit);
    return 0;
}
