//! Domains that come, start anew, shut down and go.

use crate::scene::{
    OK, Scene, ask, is_introduced, make_home, nodes_of, perms, pipeline, refused, set_perms, write, write_in,
};
use nix::sys::signal::Signal;
use rstest::rstest;
use std::time::Duration;
use xen_sim::{DomainOptions, ShutdownReason, Word};
use xenstore_wire::Op;
use xenstored_tests::wait::{PATIENCE, until};
use xenstored_tests::{Client, Event, Setting, process};

fn gone() -> Event {
    Event::new("@releaseDomain", "gone")
}

/// INTRODUCE as a toolstack sends it, with this frame number and port.
fn introduce(dom0: &mut Client, domid: u16, gfn: u64, port: u32) -> Result<Vec<u8>, String> {
    ask(dom0, Op::Introduce, &[&domid.to_string(), &gfn.to_string(), &port.to_string()])
}

#[test]
fn a_domain_that_gets_a_dead_ones_number_gets_none_of_its_rights() {
    let scene = Scene::with(&[5]);
    let mut dom0 = scene.dom0();
    dom0.write("/x", b"secret");
    set_perms(&mut dom0, "/x", &["n0", "r5"]);
    dom0.write("/kept", b"for whoever comes next");
    for special in ["@introduceDomain", "@releaseDomain"] {
        set_perms(&mut dom0, special, &["n0", "r5"]);
    }
    scene.destroy(5);
    for path in ["/x", "@introduceDomain", "@releaseDomain"] {
        assert_eq!(perms(&mut dom0, path).unwrap(), "n0", "{path}");
    }
    assert_eq!(dom0.read("/local/domain/5"), refused("ENOENT"));
    scene.host.create(5).unwrap();
    set_perms(&mut dom0, "/kept", &["n0", "r5"]);
    scene.host.introduce(5).unwrap();
    let mut guest = scene.guest(5);
    assert_eq!(guest.read("/x"), refused("EACCES"));
    assert_eq!(guest.read("/kept"), Ok(b"for whoever comes next".to_vec()), "given before it was introduced");
    guest.watch("@introduceDomain", "new");
    guest.watch("@releaseDomain", "gone");
    scene.add(6);
    scene.destroy(6);
    assert_eq!(guest.settled_events(), []);
}

#[test]
fn rights_given_before_a_domain_is_introduced_are_kept() {
    let scene = Scene::with(&[]);
    let mut dom0 = scene.dom0();
    scene.host.create(5).unwrap();
    dom0.write("/x", b"for the new one");
    set_perms(&mut dom0, "/x", &["n0", "r5"]);
    make_home(&mut dom0, 5);
    scene.host.introduce(5).unwrap();
    let mut guest = scene.guest(5);
    assert_eq!(guest.read("/x"), Ok(b"for the new one".to_vec()));
    assert_eq!(write(&mut guest, "data", b"x"), Ok(OK.to_vec()));
}

#[test]
fn nodes_outside_its_home_go_with_a_domain_and_memory_comes_back() {
    let scene = Scene::with(&[]);
    let mut dom0 = scene.dom0();
    dom0.write("/pool", b"");
    set_perms(&mut dom0, "/pool", &["b0"]);
    let mut first = 0;
    for round in 0..100 {
        scene.add(1);
        let requests = (0..450).map(|node| (Op::Write, format!("/pool/{node}/child\0value").into_bytes()));
        pipeline(&mut scene.ring_client(1), requests, |node, reply| {
            assert_eq!(reply.payload, OK, "round {round}, node {node}");
        });
        assert_eq!(nodes_of(&mut dom0, 1), 900);
        scene.destroy(1);
        assert_eq!(ask(&mut dom0, Op::Directory, &["/pool"]), Ok(vec![]));
        // The second, since the first finds the daemon's memory never used.
        if round == 1 {
            first = process::anonymous_kib(scene.pid());
        }
    }
    let last = process::anonymous_kib(scene.pid());
    assert!(last <= first + first / 10, "{first} KiB after the second round, {last} after the last");
}

#[test]
fn a_number_used_again_has_all_its_nodes_to_make() {
    let scene = Scene::with(&[]);
    let mut dom0 = scene.dom0();
    for round in 0..20 {
        for count in [400, 900] {
            scene.add(7);
            make_home(&mut dom0, 7);
            let mut guest = scene.ring_client(7);
            // Below several nodes, since the names of one's children are part of its size.
            let path = |node: usize| format!("d{}/n{node}", node % 9);
            pipeline(
                &mut guest,
                (9..count).map(|node| (Op::Mkdir, format!("{}\0", path(node)).into_bytes())),
                |node, reply| {
                    assert_eq!(reply.payload, OK, "round {round}, node {node}");
                },
            );
            assert_eq!(nodes_of(&mut dom0, 7), count as u64 + 1);
            scene.destroy(7);
        }
    }
}

#[test]
fn a_release_is_told_at_shutdown_and_at_death_and_after_a_resume_again() {
    let scene = Scene::with(&[4, 5, 6]);
    let mut dom0 = scene.dom0();
    let mut other = scene.dom0();
    dom0.watch("@releaseDomain", "gone");
    scene.host.shutdown(4, ShutdownReason::Suspend).unwrap();
    assert_eq!(dom0.event(), Ok(gone()));
    scene.host.resume(4).unwrap();
    assert_eq!(ask(&mut other, Op::Resume, &["4"]), Ok(OK.to_vec()));
    scene.host.shutdown(4, ShutdownReason::Poweroff).unwrap();
    assert_eq!(dom0.event(), Ok(gone()));
    scene.host.begin_destroy(4).unwrap();
    scene.destroy(4);
    assert_eq!(dom0.event(), Ok(gone()), "one for dying and being gone");
    assert_eq!(ask(&mut other, Op::Resume, &["99"]), refused("ENOENT"));
    assert_eq!(dom0.settled_events(), [], "three in all");
}

#[test]
fn domains_that_end_at_once_are_one_event_or_one_for_each_level_below() {
    let scene = Scene::with(&[4, 5]);
    let (mut generic, mut each, mut one) = (scene.dom0(), scene.dom0(), scene.dom0());
    generic.watch("@releaseDomain", "gone");
    assert_eq!(ask(&mut each, Op::Watch, &["@releaseDomain", "each", "1"]), Ok(OK.to_vec()));
    assert_eq!(each.event(), Ok(Event::new("@releaseDomain", "each")));
    one.watch("@releaseDomain/5", "one");
    scene.signal(Signal::SIGSTOP);
    scene.host.shutdown(4, ShutdownReason::Poweroff).unwrap();
    scene.host.shutdown(5, ShutdownReason::Poweroff).unwrap();
    scene.signal(Signal::SIGCONT);
    assert_eq!(generic.event(), Ok(gone()));
    assert_eq!(generic.settled_events(), []);
    let mut got = each.settled_events();
    got.sort();
    assert_eq!(got, [Event::new("@releaseDomain/4", "each"), Event::new("@releaseDomain/5", "each")]);
    assert_eq!(one.settled_events(), [Event::new("@releaseDomain/5", "one")]);
}

#[test]
fn a_device_model_has_its_targets_rights_only_while_both_live() {
    let scene = Scene::with(&[7, 8]);
    let mut dom0 = scene.dom0();
    let mut model = scene.guest(8);
    assert_eq!(ask(&mut dom0, Op::SetTarget, &["8", "7"]), Ok(OK.to_vec()));
    assert_eq!(write(&mut model, "/local/domain/7/device", b"x"), Ok(OK.to_vec()));
    scene.destroy(7);
    scene.add(7);
    make_home(&mut dom0, 7);
    assert_eq!(model.read("/local/domain/7"), refused("EACCES"));
    scene.host.create(9).unwrap();
    for (there, missing) in [(["8", "9"], ["8", "99"]), (["9", "7"], ["99", "7"])] {
        assert_eq!(ask(&mut dom0, Op::SetTarget, &there), refused("EINVAL"), "not introduced: {there:?}");
        assert_eq!(ask(&mut dom0, Op::SetTarget, &missing), refused("ENOENT"), "no such domain: {missing:?}");
    }
}

#[test]
fn a_target_lends_its_rights_to_its_device_model_alone() {
    let scene = Scene::with(&[6, 7, 8, 9]);
    let mut dom0 = scene.dom0();
    let (mut target, mut model, mut third) = (scene.guest(7), scene.guest(8), scene.guest(9));
    for pair in [["8", "7"], ["9", "8"]] {
        assert_eq!(ask(&mut dom0, Op::SetTarget, &pair), Ok(OK.to_vec()));
    }
    assert_eq!(write(&mut model, "/local/domain/7/device", b"x"), Ok(OK.to_vec()));
    assert_eq!(target.read("/local/domain/8"), refused("EACCES"), "not the other way round");
    assert_eq!(third.read("/local/domain/8"), Ok(vec![]));
    assert_eq!(third.read("/local/domain/7"), refused("EACCES"), "not that of its target's target");
    // Another target takes the first one's place.
    assert_eq!(ask(&mut dom0, Op::SetTarget, &["8", "6"]), Ok(OK.to_vec()));
    assert_eq!(model.read("/local/domain/6"), Ok(vec![]));
    assert_eq!(model.read("/local/domain/7"), refused("EACCES"));
    // With the privileged domain for a target it has that one's nodes, and may ask no more than before.
    assert_eq!(ask(&mut dom0, Op::SetTarget, &["8", "0"]), Ok(OK.to_vec()));
    assert_eq!(model.read("/tool"), Ok(vec![]));
    for (op, arguments) in [(Op::IsDomainIntroduced, &["7"][..]), (Op::SetTarget, &["8", "7"]), (Op::Release, &["7"])] {
        assert_eq!(ask(&mut model, op, arguments), refused("EACCES"), "{}", op.name());
    }
    assert_eq!(model.read("/local/domain/7"), refused("EACCES"), "owned by another");
}

#[rstest]
#[case::in_one_look(&[7, 8], true)]
#[case::the_target_first(&[7, 8], false)]
#[case::the_device_model_first(&[8, 7], false)]
fn a_device_model_and_its_target_die(#[case] order: &[u16], #[case] at_once: bool) {
    let mut scene = Scene::with(&[]);
    let mut dom0 = scene.dom0();
    assert_eq!(ask(&mut dom0, Op::Watch, &["@releaseDomain", "each", "1"]), Ok(OK.to_vec()));
    assert_eq!(dom0.event(), Ok(Event::new("@releaseDomain", "each")));
    let mut first = 0;
    for round in 0..30 {
        for domid in [7, 8] {
            scene.add(domid);
            make_home(&mut dom0, domid);
        }
        assert_eq!(ask(&mut dom0, Op::SetTarget, &["8", "7"]), Ok(OK.to_vec()));
        let requests = (0..100).map(|node| (Op::Write, format!("/local/domain/7/model/{node}\0value").into_bytes()));
        pipeline(&mut scene.ring_client(8), requests, |_, reply| assert_eq!(reply.payload, OK));
        if at_once {
            scene.signal(Signal::SIGSTOP);
            order.iter().for_each(|&domid| scene.host.destroy(domid).unwrap());
            scene.signal(Signal::SIGCONT);
        } else {
            order.iter().for_each(|&domid| scene.destroy(domid));
        }
        let mut got = [dom0.event().unwrap(), dom0.event().unwrap()];
        got.sort();
        assert_eq!(got, [Event::new("@releaseDomain/7", "each"), Event::new("@releaseDomain/8", "each")]);
        assert_eq!(dom0.settled_events(), []);
        assert_eq!(ask(&mut dom0, Op::Directory, &["/local/domain"]), Ok(vec![]));
        if round == 1 {
            first = process::anonymous_kib(scene.pid());
        }
    }
    let last = process::anonymous_kib(scene.pid());
    assert!(last <= first + first / 10, "{first} KiB after the second round, {last} after the last");
    scene.assert_alive();
}

#[test]
fn a_kernel_that_replaces_another_gets_nothing_of_it() {
    let domids: Vec<u16> = (3..=53).collect();
    let mut scene = Scene::with(&domids);
    let mut dom0 = scene.dom0();
    let mut busy: Vec<_> = domids[1..].iter().map(|&domid| scene.ring_client(domid)).collect();
    let gfn = scene.host.domain(3).unwrap().gfn.to_string();
    let port = scene.host.domain(3).unwrap().port.to_string();
    for round in 0..1000 {
        let mut old = scene.ring_client(3);
        old.request(Op::Watch, 0, b"data\0old\0").unwrap();
        for _ in 0..5 {
            old.send(Op::Write, 0, b"data\0of the old kernel").unwrap();
        }
        for guest in &mut busy {
            guest.send(Op::Write, 0, b"data\0of another").unwrap();
        }
        for (op, payload) in [
            (Op::Release, "3\0".to_owned()),
            (Op::IsDomainIntroduced, "3\0".to_owned()),
            (Op::Introduce, format!("3\0{gfn}\0{port}\0")),
            (Op::IsDomainIntroduced, "3\0".to_owned()),
        ] {
            dom0.send(op.number(), 0, payload.as_bytes()).unwrap();
        }
        for wanted in [OK, b"F\0", OK, b"T\0"] {
            assert_eq!(dom0.reply().unwrap().payload, wanted, "round {round}");
        }
        make_home(&mut dom0, 3);
        let mut new = scene.ring_client(3);
        assert_eq!(new.guest().word(Word::RspProd), new.guest().word(Word::RspCons), "an empty ring");
        assert_eq!(new.request(Op::Unwatch, 0, b"data\0old\0").unwrap().error(), Some(&b"ENOENT"[..]));
        assert_eq!(new.event(Duration::ZERO).unwrap(), None, "round {round}");
        busy.iter_mut().for_each(|guest| assert_eq!(guest.reply().unwrap().payload, OK));
    }
    scene.assert_alive();
}

#[test]
fn a_domain_introduced_again_is_served_at_its_new_port_from_a_clean_ring() {
    let scene = Scene::with(&[4]);
    let mut dom0 = scene.dom0();
    let mut old = scene.ring_client(4);
    old.request(Op::Watch, 0, b"data\0old\0").unwrap();
    old.event(PATIENCE).unwrap().unwrap();
    let tx = old.request(Op::TransactionStart, 0, b"\0").unwrap().payload;
    let tx: u32 = String::from_utf8(tx).unwrap().trim_end_matches('\0').parse().unwrap();
    let domain = scene.host.domain(4).unwrap();
    for (round, gfn) in [domain.gfn, domain.gfn + 1000].into_iter().enumerate() {
        let port = scene.host.renew_port(4).unwrap();
        assert!(!scene.ring(4).is_bound());
        assert_eq!(introduce(&mut dom0, 4, gfn, port), Ok(OK.to_vec()), "round {round}");
        let mut new = scene.ring_client(4);
        assert!(new.guest().is_bound());
        assert_eq!(new.guest().word(Word::ReqProd), 0);
        assert_eq!(new.request(Op::TransactionEnd, tx, b"T\0").unwrap().error(), Some(&b"ENOENT"[..]));
        dom0.write("/local/domain/4/data", b"changed");
        assert_eq!(new.request(Op::Read, 0, b"data\0").unwrap().payload, b"changed");
        assert_eq!(new.event(Duration::ZERO).unwrap(), None);
        assert!(is_introduced(&mut dom0, 4));
    }
}

#[test]
fn a_domain_whose_ring_cannot_be_mapped_is_not_known_until_it_can() {
    let scene = Scene::with(&[]);
    let mut dom0 = scene.dom0();
    scene.host.create_with(6, &DomainOptions { granted: false, ..DomainOptions::default() }).unwrap();
    let domain = scene.host.domain(6).unwrap();
    let name = introduce(&mut dom0, 6, domain.gfn + 1000, domain.port).unwrap_err();
    assert!(["EINVAL", "ENOENT", "EIO"].contains(&name.as_str()), "{name}");
    assert!(!is_introduced(&mut dom0, 6));
    let name = introduce(&mut dom0, 6, domain.gfn, domain.port + 1).unwrap_err();
    assert!(["EINVAL", "ENOENT", "EIO"].contains(&name.as_str()), "no such port: {name}");
    assert!(!is_introduced(&mut dom0, 6));
    assert_eq!(introduce(&mut dom0, 6, domain.gfn, domain.port), Ok(OK.to_vec()));
    assert_eq!(scene.ring_client(6).request(Op::Read, 0, b"/nowhere\0").unwrap().error(), Some(&b"EACCES"[..]));
    // One that is introduced keeps its port where a new one cannot be had.
    let before = introduce(&mut dom0, 6, domain.gfn, domain.port + 1).unwrap_err();
    assert!(["EINVAL", "ENOENT", "EIO"].contains(&before.as_str()), "no such port: {before}");
    assert!(is_introduced(&mut dom0, 6) && scene.ring(6).is_bound());
    assert_eq!(scene.ring_client(6).request(Op::Read, 0, b"/nowhere\0").unwrap().error(), Some(&b"EACCES"[..]));
    assert!(introduce(&mut dom0, 7, domain.gfn, 1).is_err(), "there is no domain 7");
    assert!(!is_introduced(&mut dom0, 7));
}

#[test]
fn a_guest_that_starts_as_soon_as_it_may_is_answered() {
    let scene = Scene::with(&[]);
    let mut dom0 = scene.dom0();
    for domid in 1..=50 {
        let domain = scene.host.create(domid).unwrap();
        let mut guest = scene.ring_client(domid);
        guest.guest().set_word(Word::Connection, 1);
        let payload = format!("{domid}\0{}\0{}\0", domain.gfn, domain.port);
        dom0.send(Op::Introduce.number(), 0, payload.as_bytes()).unwrap();
        while guest.guest().word(Word::Connection) == 1 {
            std::hint::spin_loop();
        }
        assert_eq!(guest.request(Op::Read, 0, b"/nowhere\0").unwrap().error(), Some(&b"EACCES"[..]), "{domid}");
        assert_eq!(dom0.reply().unwrap().payload, OK);
    }
}

#[test]
fn a_release_then_a_death_with_output_waiting_unmaps_once() {
    let mut scene = Scene::with(&[3]);
    let mut dom0 = scene.dom0();
    dom0.watch("@releaseDomain", "gone");
    dom0.write("/big", &[b'x'; 3000]);
    set_perms(&mut dom0, "/big", &["r0"]);
    let mut guest = scene.ring_client(3);
    guest.request(Op::Watch, 0, b"data\0t\0").unwrap();
    for _ in 0..3 {
        guest.send(Op::Read, 0, b"/big\0").unwrap();
    }
    assert_eq!(ask(&mut dom0, Op::Release, &["3"]), Ok(OK.to_vec()));
    assert_eq!(dom0.event(), Ok(gone()));
    let before = guest.guest().word(Word::RspProd);
    scene.host.begin_destroy(3).unwrap();
    scene.host.destroy(3).unwrap();
    dom0.write("/local/domain/3/data", b"changed");
    scene.assert_alive();
    assert_eq!(guest.guest().word(Word::RspProd), before, "the page is touched no more");
    assert_eq!(dom0.settled_events(), [], "it was told already");
    assert_eq!(ask(&mut dom0, Op::Release, &["3"]), refused("ENOENT"));
}

#[test]
fn a_domain_that_has_shut_down_is_sent_no_more_events() {
    let scene = Scene::with(&[6, 7]);
    let mut dom0 = scene.dom0();
    let mut guest = scene.ring_client(6);
    for node in 0..50 {
        dom0.write(&format!("/local/domain/6/n{node}"), b"");
        guest.request(Op::Watch, 0, format!("n{node}\0t\0").as_bytes()).unwrap();
    }
    for _ in 0..50 {
        guest.event(PATIENCE).unwrap().unwrap();
    }
    dom0.watch("@releaseDomain", "gone");
    scene.host.shutdown(6, ShutdownReason::Poweroff).unwrap();
    assert_eq!(dom0.event(), Ok(gone()));
    let before = guest.guest().word(Word::RspProd);
    for node in 0..50 {
        assert_eq!(ask(&mut dom0, Op::Rm, &[&format!("/local/domain/6/n{node}")]), Ok(OK.to_vec()));
    }
    until("all is served", || scene.ring_client(7).request(Op::Read, 0, b"/\0").is_ok());
    assert_eq!(guest.guest().word(Word::RspProd), before);
    scene.destroy(6);
    assert_eq!(dom0.event(), Ok(gone()));
}

#[test]
fn what_the_dead_left_in_a_ring_is_not_taken_for_a_new_clients_request() {
    let mut scene = Scene::with(&[1, 2, 3]);
    scene.signal(Signal::SIGSTOP);
    for domid in 1..=3 {
        scene.ring_client(domid).send(Op::Write, 0, b"/forged\0x").unwrap();
        scene.host.destroy(domid).unwrap();
    }
    // They come in the same turn in which the deaths are seen.
    let mut clients: Vec<Client> = (0..6).map(|_| scene.dom0()).collect();
    scene.signal(Signal::SIGCONT);
    for client in &mut clients {
        assert_eq!(client.read("/forged"), refused("ENOENT"));
        assert_eq!(ask(client, Op::GetDomainPath, &["7"]), Ok(b"/local/domain/7\0".to_vec()));
    }
    scene.assert_alive();
}

#[test]
fn a_dead_domains_wish_for_a_new_connection_does_not_bring_it_back() {
    let mut scene = Scene::with(&[1]);
    let mut dom0 = scene.dom0();
    dom0.watch("@introduceDomain", "new");
    let guest = scene.ring(1);
    scene.signal(Signal::SIGSTOP);
    guest.set_word(Word::Connection, 1);
    guest.notify();
    scene.host.destroy(1).unwrap();
    scene.signal(Signal::SIGCONT);
    until("its nodes are gone", || dom0.read("/local/domain/1") == refused("ENOENT"));
    assert!(!is_introduced(&mut dom0, 1));
    assert_eq!(dom0.settled_events(), []);
    scene.assert_alive();
}

#[test]
fn an_introduction_and_a_release_of_one_turn_keep_their_order() {
    let scene = Scene::with(&[3]);
    let domain = scene.host.domain(3).unwrap();
    let (mut first, mut second) = (scene.dom0(), scene.dom0());
    let introduce = format!("3\0{}\0{}\0", domain.gfn, domain.port);
    for round in 0..20 {
        scene.signal(Signal::SIGSTOP);
        if round % 2 == 0 {
            first.send(Op::Introduce.number(), 0, introduce.as_bytes()).unwrap();
            second.send(Op::Release.number(), 0, b"3\0").unwrap();
        } else {
            first.send(Op::Release.number(), 0, b"3\0").unwrap();
            second.send(Op::Introduce.number(), 0, introduce.as_bytes()).unwrap();
        }
        scene.signal(Signal::SIGCONT);
        let (one, other) = (first.reply().unwrap(), second.reply().unwrap());
        assert!(one.error().is_none() && other.error().is_none(), "round {round}: {one:?} {other:?}");
        if round % 2 == 0 {
            assert!(!is_introduced(&mut first, 3), "round {round}");
            scene.host.introduce(3).unwrap();
        } else {
            assert!(is_introduced(&mut first, 3), "round {round}");
        }
        let reply = scene.ring_client(3).request(Op::GetDomainPath, 0, b"3\0").unwrap();
        assert_eq!(reply.payload, b"/local/domain/3\0", "round {round}");
    }
}

#[test]
fn a_domain_destroyed_while_its_devices_are_set_up_leaves_nothing_in_the_way() {
    const DOMID: u16 = 20;
    let mut scene = Scene::with(&[]);
    let mut dom0 = scene.dom0();
    let (home, backend) = (format!("/local/domain/{DOMID}"), format!("/local/domain/0/backend/vif/{DOMID}"));
    let mut driver = scene.dom0();
    driver.watch(&format!("{backend}/0/state"), "state");
    for round in 0..300 {
        scene.add(DOMID);
        make_home(&mut dom0, DOMID);
        let mut guest = scene.ring_client(DOMID);
        // Some rounds have a transaction of the toolstack open, some half of the nodes, some requests in the ring.
        dom0.write(&format!("{backend}/0/state"), b"1");
        set_perms(&mut dom0, &format!("{backend}/0"), &["n0", &format!("r{DOMID}")]);
        let tx = if round % 3 == 0 { dom0.start_transaction() } else { 0 };
        for name in ["frontend", "handle", "mac"].iter().take(round % 4) {
            assert_eq!(write_in(&mut dom0, tx, &format!("{backend}/0/{name}"), b"x"), Ok(OK.to_vec()));
        }
        for name in ["state", "tx-ring-ref", "event-channel"].iter().take(round % 3) {
            guest.send(Op::Write, 0, format!("device/vif/0/{name}\0x").as_bytes()).unwrap();
        }
        scene.host.destroy(DOMID).unwrap();
        for path in [&home, &backend] {
            let removed = ask(&mut dom0, Op::Rm, &[path]);
            // The home may have gone with its domain, and all above it with it, where it was the only one.
            assert!(removed == Ok(OK.to_vec()) || (path == &home && removed == refused("ENOENT")), "{removed:?}");
        }
        if tx != 0 {
            let ended = dom0.commit(tx);
            assert!(ended.is_ok() || ended == refused("EAGAIN"), "{ended:?}");
        }
        let told = driver.settled_events();
        assert!(told.len() >= 2, "round {round}: made and removed, at the least: {told:?}");
        until("its nodes are gone", || dom0.read(&home) == refused("ENOENT"));
        assert!(!is_introduced(&mut dom0, DOMID));
        // A commit may have made some of the backend's nodes again.
        let _ = ask(&mut dom0, Op::Rm, &[&backend]);
        driver.settled_events();
    }
    assert_eq!(ask(&mut dom0, Op::Control, &["quota", &DOMID.to_string()]), refused("ENOENT"), "nothing is left");
    scene.assert_alive();
}

#[test]
fn rings_beyond_what_the_kernel_lets_a_process_map_are_refused() {
    const MAPPINGS: u32 = 400;
    let mut scene = Scene::with_settings(&[Setting::Mappings(MAPPINGS)], &[]);
    let mut dom0 = scene.dom0();
    let introduce = |dom0: &mut Client, domid: u16| {
        let domain = scene.host.domain(domid).unwrap();
        introduce(dom0, domid, domain.gfn, domain.port)
    };
    let mut domid = 1;
    let refused_at = loop {
        scene.host.create(domid).unwrap();
        match introduce(&mut dom0, domid) {
            Ok(_) => domid += 1,
            Err(name) => {
                assert_eq!(name, "ENOMEM");
                break domid;
            }
        }
    };
    assert!((10..MAPPINGS / 2).contains(&u32::from(refused_at)), "the first that was refused is domain {refused_at}");
    assert!(!is_introduced(&mut dom0, refused_at));
    assert!(scene.log().contains("no more rings can be mapped"), "{}", scene.log());
    assert_eq!(introduce(&mut dom0, 1), Ok(OK.to_vec()), "one that is there may start anew");
    for served in [1, refused_at - 1] {
        let reply = scene.ring_client(served).request(Op::GetDomainPath, 0, b"1\0").unwrap();
        assert_eq!(reply.payload, b"/local/domain/1\0", "domain {served}");
    }
    assert_eq!(introduce(&mut dom0, refused_at), refused("ENOMEM"));
    assert_eq!(ask(&mut dom0, Op::Release, &["2"]), Ok(OK.to_vec()));
    assert_eq!(introduce(&mut dom0, refused_at), Ok(OK.to_vec()), "there is room again");
    assert!(scene.ring_client(refused_at).request(Op::GetDomainPath, 0, b"1\0").is_ok());
    scene.assert_alive();
}
