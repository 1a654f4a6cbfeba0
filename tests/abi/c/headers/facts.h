/*
 * What programs were built with: layouts and constants, checked by the
 * compiler. An array of -1 elements does not compile.
 */

#define FACT(name, holds) \
    typedef char fact_##name[(holds) ? 1 : -1]; \
    struct needs_a_semicolon_##name

FACT(permissions_size, sizeof(struct xs_permissions) == 8);
FACT(permissions_id, offsetof(struct xs_permissions, id) == 0);
FACT(permissions_perms, offsetof(struct xs_permissions, perms) == 4);
FACT(transaction, sizeof(xs_transaction_t) == 4 && (xs_transaction_t)-1 > 0);
FACT(no_transaction, XBT_NULL == 0);
FACT(flags, XS_OPEN_READONLY == 1UL && XS_OPEN_SOCKETONLY == 2UL &&
            XS_UNWATCH_FILTER == 4UL);
FACT(flags_size, sizeof(XS_UNWATCH_FILTER) == sizeof(unsigned long));
FACT(permissions, XS_PERM_NONE == 0 && XS_PERM_READ == 1 &&
                  XS_PERM_WRITE == 2 && XS_PERM_ENOENT_OK == 4 &&
                  XS_PERM_OWNER == 8 && XS_PERM_IGNORE == 16);
FACT(event, XS_WATCH_PATH == 0 && XS_WATCH_TOKEN == 1);
FACT(text, MAX_STRLEN(unsigned int) == 11 && MAX_STRLEN(uint64_t) == 23);
FACT(limits, XENSTORE_PAYLOAD_MAX == 4096 && XENSTORE_ABS_PATH_MAX == 3072 &&
             XENSTORE_REL_PATH_MAX == 2048);
FACT(features, XENSTORE_SERVER_FEATURE_RECONNECTION == 1 &&
               XENSTORE_SERVER_FEATURE_ERROR == 2 &&
               XENSTORE_SERVER_FEATURE_WATCHDEPTH == 4 &&
               XENSTORE_SERVER_FEATURE_DOMID_ANY == 8);
FACT(message, sizeof(struct xsd_sockmsg) == 16 &&
              offsetof(struct xsd_sockmsg, type) == 0 &&
              offsetof(struct xsd_sockmsg, req_id) == 4 &&
              offsetof(struct xsd_sockmsg, tx_id) == 8 &&
              offsetof(struct xsd_sockmsg, len) == 12);
FACT(requests, XS_CONTROL == 0 && XS_DEBUG == 0 && XS_DIRECTORY == 1 &&
               XS_READ == 2 && XS_GET_PERMS == 3 && XS_WATCH == 4 &&
               XS_UNWATCH == 5 && XS_TRANSACTION_START == 6 &&
               XS_TRANSACTION_END == 7 && XS_INTRODUCE == 8 &&
               XS_RELEASE == 9 && XS_GET_DOMAIN_PATH == 10 &&
               XS_WRITE == 11 && XS_MKDIR == 12 && XS_RM == 13 &&
               XS_SET_PERMS == 14 && XS_WATCH_EVENT == 15 && XS_ERROR == 16 &&
               XS_IS_DOMAIN_INTRODUCED == 17 && XS_RESUME == 18 &&
               XS_SET_TARGET == 19 && XS_RESET_WATCHES == 21 &&
               XS_DIRECTORY_PART == 22 && XS_INVALID == 0xffff);
#ifdef NO_XEN
/* Only our own text has these; that of Xen 4.17 is older. */
FACT(newer_requests, XS_GET_FEATURE == 23 && XS_SET_FEATURE == 24 &&
                     XS_GET_QUOTA == 25 && XS_SET_QUOTA == 26 &&
                     XS_TYPE_COUNT == 27);
#endif
