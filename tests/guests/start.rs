//! Domains that are there before the daemon.

use crate::scene::{OK, Scene, ask, is_introduced, refused};
use xenstore_wire::Op;
use xenstored_tests::Event;
use xenstored_tests::wait::PATIENCE;

#[test]
fn the_privileged_domain_is_served_from_the_start_and_never_introduced() {
    let scene = Scene::with(&[1]);
    let mut dom0 = scene.dom0();
    let mut kernel = scene.ring_client(0);
    assert_eq!(kernel.request(Op::Watch, 0, b"/watched\0t\0").unwrap().payload, OK);
    kernel.event(PATIENCE).unwrap().unwrap();
    for of in [0, 1] {
        let (gfn, port) = scene.host.domain(of).map(|domain| (domain.gfn, domain.port)).unwrap();
        assert_eq!(ask(&mut dom0, Op::Introduce, &["0", &gfn.to_string(), &port.to_string()]), refused("EINVAL"));
    }
    assert_eq!(ask(&mut dom0, Op::Release, &["0"]), refused("EINVAL"));
    dom0.write("/watched", b"");
    assert_eq!(kernel.event(PATIENCE).unwrap().unwrap(), ("/watched".into(), "t".into()), "its watch is there");
    assert!(is_introduced(&mut dom0, 0) && is_introduced(&mut dom0, 1));
}

#[test]
fn domains_that_run_before_the_daemon_and_tell_their_port_are_taken_in_at_its_start() {
    let scene = Scene::with_running(&[3, 4]);
    let mut dom0 = scene.dom0();
    for domid in [3, 4] {
        assert!(is_introduced(&mut dom0, domid));
        let mut guest = scene.ring_client(domid);
        let own = format!("/local/domain/{domid}\0").into_bytes();
        assert_eq!(guest.request(Op::GetDomainPath, 0, format!("{domid}\0").as_bytes()).unwrap().payload, own);
    }
    dom0.watch("@releaseDomain", "gone");
    scene.destroy(3);
    assert_eq!(dom0.event(), Ok(Event::new("@releaseDomain", "gone")));
    assert!(is_introduced(&mut dom0, 4));
}
