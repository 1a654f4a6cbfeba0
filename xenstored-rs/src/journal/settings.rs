//! The settings that a daemon was started with, as the journal remembers them.
//!
//! A daemon that takes over after another follows its own command line where that differs from the other's; what was set
//! while the store ran is kept otherwise.

use std::time::Duration;

use xenstore_core::{Config, DomId, Existence, Limit};

/// What the settings of two starts differ in that cannot change while the store lives on.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("the store of before is that of a daemon with another {0}")]
pub(crate) struct Unchangeable(&'static str);

/// Whether a store that was served by `before` can be served by `now`.
///
/// # Errors
/// What cannot change.
pub(crate) fn check(before: &Config, now: &Config) -> Result<(), Unchangeable> {
    if before.store_domid != now.store_domid {
        return Err(Unchangeable("--master-domid"));
    }
    if before.priv_domid != now.priv_domid {
        return Err(Unchangeable("--priv-domid"));
    }
    if before.existence != now.existence {
        return Err(Unchangeable("--no-domain-init"));
    }
    Ok(())
}

/// The settings as lines of a name and a value.
pub(crate) fn encode(config: &Config) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: u64| text.push_str(&format!("{name} {value}\n"));
    line("store-domid", config.store_domid.0.into());
    line("priv-domid", config.priv_domid.0.into());
    line("existence", existence(config.existence));
    line("keep-orphans", config.keep_orphans.into());
    if let Some(timeout) = config.event_timeout {
        line("event-timeout", timeout.as_secs());
    }
    for limit in Limit::all() {
        line(limit.name(), config.limits.get(limit).into());
    }
    text
}

/// The settings that [`encode`] wrote; `None` where they are none. What a later version may have added is passed over.
pub(crate) fn decode(text: &[u8]) -> Option<Config> {
    let mut config = Config { event_timeout: None, ..Config::default() };
    for line in std::str::from_utf8(text).ok()?.lines() {
        let (name, value) = line.split_once(' ')?;
        let value: u64 = value.parse().ok()?;
        match name {
            "store-domid" => config.store_domid = DomId(value.try_into().ok()?),
            "priv-domid" => config.priv_domid = DomId(value.try_into().ok()?),
            "existence" => {
                let all = [Existence::Assumed, Existence::Told, Existence::Asked];
                config.existence = all.into_iter().find(|&known| existence(known) == value)?;
            }
            "keep-orphans" => config.keep_orphans = value != 0,
            "event-timeout" => config.event_timeout = Some(Duration::from_secs(value)),
            _ => {
                if let Some(limit) = Limit::all().find(|limit| limit.name() == name) {
                    config.limits.set(limit, value.try_into().ok()?);
                }
            }
        }
    }
    Some(config)
}

fn existence(existence: Existence) -> u64 {
    match existence {
        Existence::Assumed => 0,
        Existence::Told => 1,
        Existence::Asked => 2,
    }
}

#[cfg(test)]
mod tests {
    use xenstore_core::Quota;

    use super::*;

    #[test]
    fn settings_come_back() {
        let mut config = Config {
            store_domid: DomId(3),
            priv_domid: DomId(4),
            existence: Existence::Asked,
            keep_orphans: true,
            event_timeout: Some(Duration::from_secs(7)),
            ..Config::default()
        };
        config.limits.set(Limit::SoftMemory, 12);
        config.limits.set(Limit::Hard(Quota::Nodes), 0);
        assert_eq!(decode(encode(&config).as_bytes()), Some(config.clone()));
        config.event_timeout = None;
        assert_eq!(decode(encode(&config).as_bytes()), Some(config));
    }

    #[test]
    fn what_is_not_known_is_passed_over_and_what_is_damaged_refused() {
        assert_eq!(decode(b"later 3\n"), Some(Config { event_timeout: None, ..Config::default() }));
        for text in [&b"nodes\n"[..], b"nodes x\n", b"store-domid 65536\n", b"existence 9\n", b"\xff 1\n"] {
            assert_eq!(decode(text), None, "{text:?}");
        }
    }

    #[test]
    fn whose_store_it_is_cannot_change() {
        let config = Config::default();
        assert_eq!(check(&config, &config), Ok(()));
        let other = Config { priv_domid: DomId(9), ..config.clone() };
        assert_eq!(check(&config, &other), Err(Unchangeable("--priv-domid")));
    }
}
