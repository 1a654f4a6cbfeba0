/* SPDX-License-Identifier: MIT OR Apache-2.0 */

/*
 * Types, limits and functions of libxenstore that need no connection.
 *
 * Programs include <xenstore.h>, which includes this. Both may stand in one
 * file together with the headers of Xen itself; types that these have made
 * known already are not made again.
 */

#ifndef XENSTORE_RS_LIB_H
#define XENSTORE_RS_LIB_H

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The protocol by Xen's own header, where that is installed. */
#if defined(__has_include)
#if __has_include(<xen/io/xs_wire.h>)
#include <xen/io/xs_wire.h>
#endif
#endif

#ifndef _XS_WIRE_H

/* The number of a message's kind: the first word of its header. */
enum xsd_sockmsg_type
{
    XS_CONTROL = 0,
    XS_DIRECTORY = 1,
    XS_READ = 2,
    XS_GET_PERMS = 3,
    XS_WATCH = 4,
    XS_UNWATCH = 5,
    XS_TRANSACTION_START = 6,
    XS_TRANSACTION_END = 7,
    XS_INTRODUCE = 8,
    XS_RELEASE = 9,
    XS_GET_DOMAIN_PATH = 10,
    XS_WRITE = 11,
    XS_MKDIR = 12,
    XS_RM = 13,
    XS_SET_PERMS = 14,
    XS_WATCH_EVENT = 15,
    XS_ERROR = 16,
    XS_IS_DOMAIN_INTRODUCED = 17,
    XS_RESUME = 18,
    XS_SET_TARGET = 19,
    /* 20 belonged to a request that no daemon knows any more. */
    XS_RESET_WATCHES = 21,
    XS_DIRECTORY_PART = 22,
    XS_GET_FEATURE = 23,
    XS_SET_FEATURE = 24,
    XS_GET_QUOTA = 25,
    XS_SET_QUOTA = 26,

    /* One more than the highest number in use. */
    XS_TYPE_COUNT = 27,

    /* No message will ever have this number. */
    XS_INVALID = 0xffff
};

/* The older name of XS_CONTROL. */
#define XS_DEBUG XS_CONTROL

/* What goes before each message, in the byte order of the host. */
struct xsd_sockmsg
{
    /* One of enum xsd_sockmsg_type. */
    uint32_t type;
    /* Chosen by the client; the reply has the same. */
    uint32_t req_id;
    /* The transaction, 0 for none. */
    uint32_t tx_id;
    /* Bytes that follow, at most XENSTORE_PAYLOAD_MAX. */
    uint32_t len;
};

/* Places in the vector of a watch event. */
enum xs_watch_type
{
    /* The path that changed. */
    XS_WATCH_PATH = 0,
    /* The token of the watch. */
    XS_WATCH_TOKEN = 1
};

/* Most bytes of one message, without its header. */
#define XENSTORE_PAYLOAD_MAX 4096

/* Most bytes of an absolute path, and of one relative to a domain's own. */
#define XENSTORE_ABS_PATH_MAX 3072
#define XENSTORE_REL_PATH_MAX 2048

#endif /* _XS_WIRE_H */

/* Bits of xs_get_features_supported() and its kin. */
#ifndef XENSTORE_SERVER_FEATURE_RECONNECTION
/* A guest may ask for its ring to be set up afresh. */
#define XENSTORE_SERVER_FEATURE_RECONNECTION 1
#endif
#ifndef XENSTORE_SERVER_FEATURE_ERROR
/* The ring page tells why it is served no more. */
#define XENSTORE_SERVER_FEATURE_ERROR 2
#endif
#ifndef XENSTORE_SERVER_FEATURE_WATCHDEPTH
/* Watches may have a depth: xs_watch_depth(). */
#define XENSTORE_SERVER_FEATURE_WATCHDEPTH 4
#endif
#ifndef XENSTORE_SERVER_FEATURE_DOMID_ANY
/* Permissions may be about every domain. */
#define XENSTORE_SERVER_FEATURE_DOMID_ANY 8
#endif

#ifndef XENSTORE_LIB_H

/*
 * One entry of a node's permissions. In a list, the first entry names the
 * owner, who may do everything, and what those may do whom no other entry
 * names; each further entry is about one domain.
 */
struct xs_permissions
{
    /* The domain. */
    unsigned int id;
    /* What it may: XS_PERM_* by bits. */
    unsigned int perms;
};

#endif /* XENSTORE_LIB_H */

#define XS_PERM_NONE 0x00
#define XS_PERM_READ 0x01
#define XS_PERM_WRITE 0x02
/* Used by daemons among themselves: */
#define XS_PERM_ENOENT_OK 0x04
#define XS_PERM_OWNER 0x08
/* The entry is about a domain that has gone. */
#define XS_PERM_IGNORE 0x10

/* Bytes that an integer of x's type may need as decimal text, NUL included. */
#define MAX_STRLEN(x) ((sizeof(x) * CHAR_BIT + CHAR_BIT-1) / 10 * 3 + 2)

#ifdef __cplusplus
extern "C" {
#endif

/*
 * The run directory of the daemon: $XENSTORED_RUNDIR, or the default. The
 * text belongs to the environment or to the library.
 */
const char *xs_daemon_rundir(void);

/*
 * The socket of the daemon: $XENSTORED_PATH, or `socket` in the run
 * directory. The text belongs to the environment or to the library.
 */
const char *xs_daemon_socket(void);

/* The same. There has been no second socket, for reading only, for long. */
const char *xs_daemon_socket_ro(void);

/*
 * Writes all len bytes to a descriptor, in as many pieces as it takes.
 * Signals that interrupt are no failure. False with errno on failure.
 */
bool xs_write_all(int fd, const void *data, unsigned int len);

/*
 * Reads num permissions from as many strings, each ending with its NUL: a
 * letter (n, r, w, b) and the domain. False with EINVAL for others.
 */
bool xs_strings_to_perms(struct xs_permissions *perms,
                         unsigned int num,
                         const char *strings);

#ifdef __cplusplus
}
#endif

/* Xen's header, if it comes later, has nothing to add. */
#ifndef XENSTORE_LIB_H
#define XENSTORE_LIB_H
#endif

#endif /* XENSTORE_RS_LIB_H */
