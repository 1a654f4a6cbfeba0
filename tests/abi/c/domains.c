/*
 * Requests of toolstacks, with a domain that exists and one that does not:
 * domains.c DOMID FRAME PORT
 */

#include "report.h"

static void introduced(struct xs_handle *h, unsigned int domid)
{
    printf("domain %u ", domid);
    tell_answer("is introduced", xs_is_domain_introduced(h, domid));
}

static void commands(struct xs_handle *h)
{
    static char words[] = "one\0two";

    tell_text("control", TRY(xs_control_command(h, "print", words, 4)));
    tell_text("control without data", TRY(xs_control_command(h, "bogus", NULL, 0)));
    tell_text("control by its old name", TRY(xs_debug_command(h, "bogus", words, sizeof(words))));
}

int main(int argc, char **argv)
{
    struct xs_handle *h = must_open(0);
    unsigned int domid, port;
    unsigned long frame;

    if (argc != 4)
        return 2;
    domid = (unsigned int)strtoul(argv[1], NULL, 10);
    frame = strtoul(argv[2], NULL, 10);
    port = (unsigned int)strtoul(argv[3], NULL, 10);

    tell_text("path of 0", TRY(xs_get_domain_path(h, 0)));
    tell_text("path of one that exists", TRY(xs_get_domain_path(h, domid)));
    tell_text("path of one that does not", TRY(xs_get_domain_path(h, 999)));
    tell_text("path of the last", TRY(xs_get_domain_path(h, 65535)));
    introduced(h, 0);
    introduced(h, domid);
    introduced(h, 999);
    introduced(h, 0x7ff0);
    tell_bool("release before", TRY(xs_release_domain(h, domid)));
    tell_bool("resume before", TRY(xs_resume_domain(h, domid)));
    tell_bool("introduce", TRY(xs_introduce_domain(h, domid, frame, port)));
    introduced(h, domid);
    tell_bool("introduce again", TRY(xs_introduce_domain(h, domid, frame, port)));
    tell_bool("resume", TRY(xs_resume_domain(h, domid)));
    tell_bool("target", TRY(xs_set_target(h, domid, 999)));
    tell_bool("introduce what does not exist", TRY(xs_introduce_domain(h, 999, 1, 1)));
    tell_bool("release", TRY(xs_release_domain(h, domid)));
    introduced(h, domid);

    tell_number("no port for suspending", xs_suspend_evtchn_port((int)domid));
    xs_write(h, XBT_NULL, "/local/domain/3/device/suspend/event-channel", "17", 2);
    tell_number("a port for suspending", xs_suspend_evtchn_port(3));
    xs_write(h, XBT_NULL, "/local/domain/3/device/suspend/event-channel", "", 0);
    tell_number("an empty one", xs_suspend_evtchn_port(3));
    xs_write(h, XBT_NULL, "/local/domain/3/device/suspend/event-channel", "junk", 4);
    tell_number("junk for one", xs_suspend_evtchn_port(3));
    xs_write(h, XBT_NULL, "/local/domain/3/device/suspend/event-channel", " 12x", 4);
    tell_number("a number with junk", xs_suspend_evtchn_port(3));
    tell_number("of a strange domain", xs_suspend_evtchn_port(-1));
    commands(h);
    xs_close(h);
    return 0;
}
