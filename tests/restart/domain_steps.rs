//! A daemon that is killed at each step of what comes to a domain.

use xen_sim::{ShutdownReason, Word};
use xenstore_wire::Op;
use xenstored_tests::scene::OK;
use xenstored_tests::{Event, wait};

use crate::party::Party;
use crate::shared_words::Shared;
use crate::stage::{Act, GUEST, Keep, Stage, at_each_step};

/// What comes to a domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Introduced,
    IntroducedAgain,
    IntroducedWithAnotherPort,
    Released,
    ShutDown,
    Gone,
}

/// One domain, several times.
#[derive(Debug)]
pub(crate) struct Domain(pub(crate) Fate);

impl Domain {
    fn introduce(stage: &mut Stage) {
        let domain = stage.scene.host.domain(GUEST).expect("it exists");
        let payload = format!("{GUEST}\0{}\0{}\0", domain.gfn, domain.port);
        stage.client.send(Op::Introduce, 0, payload.as_bytes());
    }

    /// Shows that the domain's requests are served.
    fn is_served(stage: &mut Stage) {
        let mut guest = Party::ring(stage.scene.ring_client(GUEST));
        assert!(guest.events().is_empty());
        assert!(guest.events().is_empty());
    }

    fn all_watchers_have(stage: &mut Stage, events: &[&str]) {
        let events: Vec<Event> = events.iter().map(|name| Event::new(name, "domains")).collect();
        assert_eq!(stage.client.events(), events);
        assert_eq!(stage.other.events(), events);
    }
}

impl Act for Domain {
    fn set_up(&mut self, stage: &mut Stage) {
        for name in ["@introduceDomain", "@releaseDomain"] {
            stage.client.watch(name, "domains");
            stage.other.watch(name, "domains");
        }
    }

    fn prepare(&mut self, stage: &mut Stage) {
        stage.scene.host.create(GUEST).expect("it is free");
        if self.0 != Fate::Introduced {
            Self::introduce(stage);
            assert_eq!(stage.client.answer(), Ok(OK.to_vec()));
            Self::all_watchers_have(stage, &["@introduceDomain"]);
            Self::is_served(stage);
        }
        if self.0 == Fate::IntroducedWithAnotherPort {
            stage.scene.host.renew_port(GUEST).expect("it exists");
        }
    }

    fn cue(&mut self, stage: &mut Stage, _: usize) {
        match self.0 {
            Fate::Introduced | Fate::IntroducedAgain | Fate::IntroducedWithAnotherPort => Self::introduce(stage),
            Fate::Released => stage.client.send(Op::Release, 0, format!("{GUEST}\0").as_bytes()),
            Fate::ShutDown => stage.scene.host.shutdown(GUEST, ShutdownReason::Poweroff).expect("it exists"),
            Fate::Gone => stage.scene.host.destroy(GUEST).expect("it exists"),
        }
    }

    fn shared(&self) -> Vec<Shared> {
        match self.0 {
            Fate::IntroducedAgain | Fate::IntroducedWithAnotherPort => {
                vec![
                    Shared::Tail,
                    Shared::Executing,
                    Shared::Ring(GUEST, Word::ReqCons),
                    Shared::Ring(GUEST, Word::RspProd),
                ]
            }
            _ => vec![Shared::Tail, Shared::Executing, Shared::Note],
        }
    }

    fn check(&mut self, stage: &mut Stage) {
        if !matches!(self.0, Fate::ShutDown | Fate::Gone) {
            assert_eq!(stage.client.answer(), Ok(OK.to_vec()));
        }
        match self.0 {
            Fate::Introduced | Fate::IntroducedAgain | Fate::IntroducedWithAnotherPort => {
                Self::is_served(stage);
                // Who is there already is not told of again.
                let first = if self.0 == Fate::Introduced { &["@introduceDomain"][..] } else { &[] };
                Self::all_watchers_have(stage, first);
            }
            Fate::Released | Fate::ShutDown | Fate::Gone => Self::all_watchers_have(stage, &["@releaseDomain"]),
        }
        match self.0 {
            Fate::Released => wait::until("the port is let go", || !stage.scene.ring(GUEST).is_bound()),
            Fate::ShutDown => Self::is_served(stage),
            Fate::Introduced | Fate::IntroducedAgain | Fate::IntroducedWithAnotherPort | Fate::Gone => {}
        }
        if self.0 == Fate::Gone {
            return;
        }
        stage.scene.destroy(GUEST);
        let last = if self.0 == Fate::Released { &[][..] } else { &["@releaseDomain"] };
        Self::all_watchers_have(stage, last);
    }
}

#[test]
fn an_introduction() {
    at_each_step(Domain(Fate::Introduced), Keep::All);
}

#[test]
fn an_introduction_of_a_domain_that_is_there() {
    at_each_step(Domain(Fate::IntroducedAgain), Keep::All);
}

#[test]
fn an_introduction_of_a_domain_that_has_another_port() {
    at_each_step(Domain(Fate::IntroducedWithAnotherPort), Keep::All);
}

#[test]
fn a_release() {
    at_each_step(Domain(Fate::Released), Keep::All);
}

#[test]
fn a_domain_that_shuts_down() {
    at_each_step(Domain(Fate::ShutDown), Keep::All);
}

#[test]
fn a_domain_that_goes() {
    at_each_step(Domain(Fate::Gone), Keep::All);
}
