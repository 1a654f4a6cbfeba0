/* SPDX-License-Identifier: MIT OR Apache-2.0 */

/*
 * libxenstore: connections to the xenstore of a Xen host.
 *
 * The store is a tree of nodes. A node has a name, a value of any bytes,
 * permissions and children, and is named by its path. Every call is one
 * request to the store daemon and waits for the reply; a handle may be used
 * by many threads, one request at a time.
 *
 * Unless said otherwise, a call that fails returns NULL, false or 0 and sets
 * errno: to what the daemon answered, or to what went wrong on the way. A
 * NULL handle is EINVAL; a handle whose connection has ended is EBADF. What a
 * call returns by pointer is one block of malloc(), for the caller to free().
 *
 * The protocol and its limits: docs/misc/xenstore.txt of Xen.
 */

#ifndef XENSTORE_RS_H
#define XENSTORE_RS_H

#include <xenstore_lib.h>

/* The transaction of those who have none. */
#define XBT_NULL 0

/* Flags of xs_open(). The first two were meaningful once; they are ignored. */
#define XS_OPEN_READONLY (1UL<<0)
#define XS_OPEN_SOCKETONLY (1UL<<1)

/*
 * After xs_unwatch(), no event of that watch is handed out any more, not even
 * one that has arrived already. Known by token and path: do not watch a path
 * and one below it with the same token.
 */
#define XS_UNWATCH_FILTER (1UL<<2)

/*
 * This library's own: when the daemon goes away, connect to the next one and
 * register the watches there. XENSTORE_RECONNECT=1 in the environment does the
 * same. Requests that were on their way fail and are not sent again;
 * transactions end with EAGAIN.
 */
#define XS_OPEN_RECONNECT (1UL<<16)

/* A connection. */
struct xs_handle;

/* The number of a transaction. */
#ifndef XENSTORE_H
typedef uint32_t xs_transaction_t;
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Opening and closing */

/*
 * Connects to the daemon's socket, or else through the kernel: $XENSTORED_PATH
 * or /dev/xen/xenbus. flags: XS_OPEN_* and XS_UNWATCH_FILTER. NULL if nobody is
 * there.
 *
 * After fork(), only the parent may use the handle.
 */
struct xs_handle *xs_open(unsigned long flags);

/*
 * Ends the connection and frees the handle. NULL is allowed. Calls of other
 * threads that are inside the library with it end with an error first; none may
 * begin any more.
 */
void xs_close(struct xs_handle *xsh);

/* Older names of xs_open(0). */
struct xs_handle *xs_daemon_open(void);
struct xs_handle *xs_domain_open(void);
struct xs_handle *xs_daemon_open_readonly(void);

/* Older name of xs_close(). */
void xs_daemon_close(struct xs_handle *h);

/*
 * Frees, in a child after fork(), a handle of the parent, whose connection
 * goes on. NULL is allowed.
 */
void xs_daemon_destroy_postfork(struct xs_handle *h);

/* Nodes. t is a transaction, or XBT_NULL. */

/*
 * The names of a node's children; how many in *num. A node without children
 * gives a pointer that is not NULL.
 */
char **xs_directory(struct xs_handle *h,
                    xs_transaction_t t,
                    const char *path,
                    unsigned int *num);

/*
 * The value of a node; its bytes in *len, unless len is NULL. A NUL that does
 * not count follows them.
 */
void *xs_read(struct xs_handle *h,
              xs_transaction_t t,
              const char *path,
              unsigned int *len);

/* Sets the value of a node, which is made with its parents if missing. */
bool xs_write(struct xs_handle *h,
              xs_transaction_t t,
              const char *path,
              const void *data,
              unsigned int len);

/* Makes a node, with its parents, unless it exists. */
bool xs_mkdir(struct xs_handle *h, xs_transaction_t t, const char *path);

/* Removes a node and all below it. True too if only the node is missing. */
bool xs_rm(struct xs_handle *h, xs_transaction_t t, const char *path);

/* The permissions of a node; how many entries in *num. */
struct xs_permissions *xs_get_permissions(struct xs_handle *h,
                                          xs_transaction_t t,
                                          const char *path,
                                          unsigned int *num);

/* Sets the permissions of a node: the owner's entry first. */
bool xs_set_permissions(struct xs_handle *h,
                        xs_transaction_t t,
                        const char *path,
                        struct xs_permissions *perms,
                        unsigned int num_perms);

/* Nothing can be restricted. Always false. */
bool xs_restrict(struct xs_handle *h, unsigned int domid);

/* Watches */

/*
 * Asks for an event with each change of a node or of one below it, and for one
 * at once. path may be @introduceDomain or @releaseDomain too. The token comes
 * back with each event.
 */
bool xs_watch(struct xs_handle *h, const char *path, const char *token);

/*
 * The same for changes at most depth levels below the node. Needs
 * XENSTORE_SERVER_FEATURE_WATCHDEPTH.
 */
bool xs_watch_depth(struct xs_handle *h,
                    const char *path,
                    const char *token,
                    unsigned int depth);

/*
 * xs_watch_depth() where the daemon can do that, xs_watch() where it cannot.
 * For special watches (@...) use neither.
 */
bool xs_watch_try_depth(struct xs_handle *h,
                        const char *path,
                        const char *token,
                        unsigned int depth);

/* Ends a watch. See XS_UNWATCH_FILTER for events that have arrived already. */
bool xs_unwatch(struct xs_handle *h, const char *path, const char *token);

/*
 * A descriptor to poll, readable while events wait or the connection has
 * ended. It belongs to the handle. -1 on failure.
 */
int xs_fileno(struct xs_handle *h);

/*
 * The next event: [XS_WATCH_PATH] and [XS_WATCH_TOKEN]. Does not wait: NULL
 * with EAGAIN if there is none.
 */
char **xs_check_watch(struct xs_handle *h);

/* The next event, waited for; *num is 2. NULL if the connection ends. */
char **xs_read_watch(struct xs_handle *h, unsigned int *num);

/* Transactions */

/* Begins a transaction. XBT_NULL on failure. */
xs_transaction_t xs_transaction_start(struct xs_handle *h);

/*
 * Ends a transaction, which is gone afterwards: its changes are made, all or
 * none, or with abort nothing is. False with EAGAIN if others changed what it
 * was built on: do it all again.
 */
bool xs_transaction_end(struct xs_handle *h, xs_transaction_t t, bool abort);

/* Domains: for toolstacks */

/* Tells the daemon of a new domain: frame of its ring, event channel. */
bool xs_introduce_domain(struct xs_handle *h,
                         unsigned int domid,
                         unsigned long mfn,
                         unsigned int eventchn);

/* Gives a domain the rights of another. */
bool xs_set_target(struct xs_handle *h,
                   unsigned int domid,
                   unsigned int target);

/* A domain that had shut down runs again. */
bool xs_resume_domain(struct xs_handle *h, unsigned int domid);

/* A domain has gone. */
bool xs_release_domain(struct xs_handle *h, unsigned int domid);

/* Whether a domain is known to the daemon. False on failure too. */
bool xs_is_domain_introduced(struct xs_handle *h, unsigned int domid);

/* The path that a domain's relative paths are below. */
char *xs_get_domain_path(struct xs_handle *h, unsigned int domid);

/*
 * The event channel on which a domain wants to be told to suspend, from its
 * node device/suspend/event-channel. Uses a connection of its own. -1 if there
 * is none.
 */
int xs_suspend_evtchn_port(int domid);

/*
 * Whether child is parent or below it, by their text alone. Only "/" is below
 * "/".
 */
bool xs_path_is_subpath(const char *parent, const char *child);

/* Features: XENSTORE_SERVER_FEATURE_* by bits */

/* What the daemon can do for this connection. */
bool xs_get_features_supported(struct xs_handle *h, unsigned int *features);

/* What the daemon offers to a domain. */
bool xs_get_features_domain(struct xs_handle *h,
                            unsigned int domid,
                            unsigned int *features);

/* Sets that, before the domain is introduced. */
bool xs_set_features_domain(struct xs_handle *h,
                            unsigned int domid,
                            unsigned int features);

/* Quotas: what unprivileged domains may use */

/* The names of all quotas; how many in *num. */
const char **xs_get_quota_names(struct xs_handle *h, unsigned int *num);

/* One quota of the domains that have none of their own. 0 is unlimited. */
bool xs_get_global_quota(struct xs_handle *h,
                         const char *quota,
                         unsigned int *value);
bool xs_set_global_quota(struct xs_handle *h,
                         const char *quota,
                         unsigned int value);

/* One quota of one domain. 0 is unlimited. */
bool xs_get_domain_quota(struct xs_handle *h,
                         unsigned int domid,
                         const char *quota,
                         unsigned int *value);
bool xs_set_domain_quota(struct xs_handle *h,
                         unsigned int domid,
                         const char *quota,
                         unsigned int value);

/* The daemon itself */

/*
 * Gives the daemon a command, with len bytes of arguments, each ending with
 * its NUL. What it answers, as text.
 */
char *xs_control_command(struct xs_handle *h,
                         const char *cmd,
                         void *data,
                         unsigned int len);

/* Older name of xs_control_command(). */
char *xs_debug_command(struct xs_handle *h,
                       const char *cmd,
                       void *data,
                       unsigned int len);

#ifdef __cplusplus
}
#endif

/* Xen's header, if it comes later, has nothing to add. */
#ifndef XENSTORE_H
#define XENSTORE_H
#endif

#endif /* XENSTORE_RS_H */
