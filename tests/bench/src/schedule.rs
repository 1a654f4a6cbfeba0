//! Who plays when: what is compared most closely is measured closest in time.

use crate::daemon::Kind;
use crate::rows::Scene;

/// How often a scene is played in each run by ours and the floor. The speed of a shared machine changes by the second
/// and targets are multiples of the floor, so that the cheap scenes alternate between both.
fn repeats(scene: Scene) -> usize {
    match scene {
        Scene::Small | Scene::Idle(_) | Scene::Wide => 5,
        Scene::Watchers
        | Scene::FanTokens
        | Scene::FanConnections
        | Scene::Guests
        | Scene::Deaf
        | Scene::Flood
        | Scene::Storm => 3,
        Scene::Journal => 2,
        Scene::BigStore | Scene::Death | Scene::Restart => 1,
    }
}

/// The plays of one scene in one run. The order changes with the run; the floor stands beside ours; the peers, which
/// are far away from any target, play once.
pub(crate) fn plays(scene: Scene, daemons: &[Kind], run: usize) -> Vec<Kind> {
    let daemons = daemons.iter().copied().filter(|kind| *kind == Kind::Ours || !scene.is_of_ours());
    let (near, mut peers): (Vec<Kind>, Vec<Kind>) = daemons.partition(|kind| matches!(kind, Kind::Ours | Kind::Floor));
    let turned = |kinds: &[Kind], turns: usize| {
        let mut kinds = kinds.to_vec();
        let turns = turns % kinds.len().max(1);
        kinds.rotate_left(turns);
        kinds
    };
    peers = turned(&peers, run);
    let mut order = Vec::new();
    for repeat in 0..repeats(scene) {
        order.extend(turned(&near, run + repeat));
    }
    if run.is_multiple_of(2) {
        order.extend(peers);
    } else {
        order.splice(0..0, peers);
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use Kind::{C, Floor, O, Ours};

    #[test]
    fn the_order_changes_with_the_run_and_the_floor_stays_beside_ours() {
        assert_eq!(plays(Scene::BigStore, &Kind::ALL, 0), [Ours, Floor, C, O]);
        assert_eq!(plays(Scene::BigStore, &Kind::ALL, 1), [O, C, Floor, Ours]);
    }

    #[test]
    fn cheap_scenes_alternate_between_ours_and_the_floor() {
        let order = plays(Scene::Small, &[Ours, C, Floor], 0);
        assert_eq!(order, [Ours, Floor, Floor, Ours, Ours, Floor, Floor, Ours, Ours, Floor, C]);
    }

    #[test]
    fn what_no_other_does_is_played_by_ours_alone() {
        assert_eq!(plays(Scene::Restart, &Kind::ALL, 1), [Ours]);
    }

    #[test]
    fn nobody_plays_nothing() {
        assert_eq!(plays(Scene::Small, &[], 3), []);
    }
}
