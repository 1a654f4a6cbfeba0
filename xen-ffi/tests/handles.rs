//! The wrappers over stand-ins of the C functions. A program's own definition of a function goes before a shared
//! library's, so the wrappers call these, which note each call and fail on request. No hypervisor is needed.

mod stand_in;

use std::{
    fs::File,
    os::fd::{AsFd as _, AsRawFd as _, OwnedFd},
};

use stand_in::{calls, fail};
use xen_ffi::{
    DomId, Error, GrantRef, Port,
    event_channel::{AcrossExec, EventChannels, Virq},
    foreign_memory::ForeignMemory,
    grant_table::GrantTable,
};

fn channels() -> EventChannels {
    EventChannels::open(AcrossExec::Close).unwrap()
}

#[test]
fn event_channels_are_opened_and_closed_once() {
    drop(channels());
    assert_eq!(calls(), ["xenevtchn_open 0", "xenevtchn_close"]);
}

#[test]
fn a_descriptor_for_the_next_program_is_asked_for() {
    drop(EventChannels::open(AcrossExec::Keep).unwrap());
    assert_eq!(calls(), ["xenevtchn_open 1", "xenevtchn_close"]);
}

#[test]
fn a_port_is_unbound_once_and_before_the_handle_closes() {
    let channels = channels();
    let port = channels.bind_interdomain(DomId(7), Port(3)).unwrap();
    let number = port.port();
    drop(channels);
    drop(port);
    assert_eq!(
        calls(),
        [
            "xenevtchn_open 0",
            "xenevtchn_bind_interdomain 7 3",
            &format!("xenevtchn_unbind {number}"),
            "xenevtchn_close"
        ]
    );
}

#[test]
fn a_port_that_is_unbound_by_hand_is_not_unbound_again() {
    let channels = channels();
    let port = channels.bind_virq(Virq::DOMAIN_STATE).unwrap();
    port.unbind().unwrap();
    drop(channels);
    assert_eq!(calls(), ["xenevtchn_open 0", "xenevtchn_bind_virq 3", "xenevtchn_unbind 1", "xenevtchn_close"]);
}

#[test]
fn a_port_whose_unbinding_fails_is_not_unbound_again() {
    let channels = channels();
    let port = channels.adopt(Port(9));
    fail("xenevtchn_unbind", libc::EINVAL);
    assert_eq!(port.unbind().unwrap_err().errno(), Some(libc::EINVAL));
    assert_eq!(calls(), ["xenevtchn_open 0", "xenevtchn_unbind 9"]);
}

#[test]
fn a_released_port_stays_bound_and_can_be_adopted() {
    let channels = channels();
    let port = channels.bind_interdomain(DomId(1), Port(2)).unwrap().release();
    assert_eq!(calls(), ["xenevtchn_open 0", "xenevtchn_bind_interdomain 1 2"]);
    let port = channels.adopt(port);
    port.notify().unwrap();
    port.unmask().unwrap();
    drop(port);
    assert_eq!(calls(), ["xenevtchn_notify 1", "xenevtchn_unmask 1", "xenevtchn_unbind 1"]);
}

#[test]
fn a_port_of_before_is_adopted_only_while_it_is_bound() {
    let channels = channels();
    let port = channels.adopt_if_bound(Port(7)).unwrap();
    fail("xenevtchn_notify", libc::ENOTCONN);
    assert!(channels.adopt_if_bound(Port(8)).is_none());
    drop(port);
    assert_eq!(calls(), ["xenevtchn_open 0", "xenevtchn_notify 7", "xenevtchn_notify 8", "xenevtchn_unbind 7"]);
}

#[test]
fn a_descriptor_is_taken_over_and_shown() {
    let file = File::open("/dev/null").unwrap();
    let number = file.as_raw_fd();
    let channels = EventChannels::from_fd(OwnedFd::from(file)).unwrap();
    assert_eq!(channels.as_fd().as_raw_fd(), number);
    drop(channels);
    assert_eq!(calls(), [&format!("xenevtchn_fdopen {number}"), "xenevtchn_close"]);
}

#[test]
fn signals_are_taken_until_there_is_none() {
    let channels = channels();
    stand_in::signal(4);
    stand_in::signal(2);
    assert_eq!(channels.pending().unwrap(), Some(Port(4)));
    assert_eq!(channels.pending().unwrap(), Some(Port(2)));
    assert_eq!(channels.pending().unwrap(), None);
    channels.unmask(Port(4)).unwrap();
}

#[test]
fn an_interrupted_wait_is_taken_up_again() {
    let channels = channels();
    stand_in::signal(4);
    fail("xenevtchn_pending", libc::EINTR);
    assert_eq!(channels.pending().unwrap(), Some(Port(4)));
}

#[test]
fn lost_signals_are_told() {
    let channels = channels();
    fail("xenevtchn_pending", libc::EFBIG);
    assert_eq!(channels.pending().unwrap_err().errno(), Some(libc::EFBIG));
}

#[test]
fn failures_name_their_call_and_keep_its_errno() {
    type Call<'a> = &'a dyn Fn() -> Result<(), Error>;
    let channels = channels();
    let grants = GrantTable::open().unwrap();
    let memory = ForeignMemory::open().unwrap();
    let cases: [(&str, Call<'_>); 9] = [
        ("xenevtchn_open", &|| EventChannels::open(AcrossExec::Close).map(drop)),
        ("xenevtchn_bind_interdomain", &|| channels.bind_interdomain(DomId(1), Port(1)).map(drop)),
        ("xenevtchn_bind_virq", &|| channels.bind_virq(Virq::DOMAIN_STATE).map(drop)),
        ("xenevtchn_unmask", &|| channels.unmask(Port(1))),
        ("xengnttab_open", &|| GrantTable::open().map(drop)),
        ("xengnttab_map_grant_ref", &|| grants.map(DomId(1), GrantRef::XENSTORE).map(drop)),
        ("xengnttab_set_max_grants", &|| grants.set_max_grants(1)),
        ("xenforeignmemory_open", &|| ForeignMemory::open().map(drop)),
        ("xenforeignmemory_map", &|| memory.map(DomId(1), 1).map(drop)),
    ];
    for (place, (name, call)) in cases.into_iter().enumerate() {
        call().unwrap();
        let errno = libc::EPERM + i32::try_from(place).unwrap();
        fail(name, errno);
        let error = call().unwrap_err();
        assert_eq!((error.call(), error.errno()), (name, Some(errno)));
    }
}

#[test]
fn a_grant_is_mapped_and_unmapped_once_and_keeps_the_device_open() {
    let grants = GrantTable::open().unwrap();
    let page = grants.map(DomId(5), GrantRef::XENSTORE).unwrap();
    page.write_u32(2048, 1);
    assert_eq!(page.read_u32(2048), 1);
    drop(grants);
    assert_eq!(calls(), ["xengnttab_open 0", "xengnttab_map_grant_ref 5 1 3"]);
    drop(page);
    assert_eq!(calls(), ["xengnttab_unmap 1", "xengnttab_close"]);
}

#[test]
fn a_kernel_without_a_limit_of_grants_is_no_error() {
    let grants = GrantTable::open().unwrap();
    fail("xengnttab_set_max_grants", libc::ENOTTY);
    grants.set_max_grants(32_752).unwrap();
    fail("xengnttab_set_max_grants", libc::EBUSY);
    assert_eq!(grants.set_max_grants(32_752).unwrap_err().errno(), Some(libc::EBUSY));
}

#[test]
fn a_foreign_frame_is_mapped_and_unmapped_once_and_keeps_the_device_open() {
    let memory = ForeignMemory::open().unwrap();
    let page = memory.map(DomId(5), 0x1234).unwrap();
    drop(memory);
    assert_eq!(calls(), ["xenforeignmemory_open 0", "xenforeignmemory_map 5 3 1 4660"]);
    drop(page);
    assert_eq!(calls(), ["xenforeignmemory_unmap 1", "xenforeignmemory_close"]);
}
