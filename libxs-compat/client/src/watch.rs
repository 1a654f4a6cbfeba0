//! Watches: events from the connection to those who wait for them.

use crate::client::Client;
use crate::error::{Cause, Error};
use crate::link::Sink;
use crate::nodes::string;
use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};
use xenstore_wire::payload;

/// A watched node, or one below it, changed, or may have changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    path: Box<[u8]>,
}

impl Event {
    /// What changed, in the form in which the watch was registered: relative for a relative watch.
    #[must_use]
    pub fn path(&self) -> &[u8] {
        &self.path
    }

    /// The same for reading; a path is ASCII.
    #[must_use]
    pub fn path_text(&self) -> String {
        String::from_utf8_lossy(&self.path).into_owned()
    }
}

/// How a watch is registered.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct WatchOptions {
    token: Option<Vec<u8>>,
    depth: Option<u16>,
    bound: Option<usize>,
}

impl WatchOptions {
    /// The client's own token, all depths, the client's bound.
    pub fn new() -> Self {
        Self::default()
    }

    /// Uses this token with the daemon. Events do not show it; it is for those who look at the daemon from outside.
    pub fn token(mut self, token: impl Into<Vec<u8>>) -> Self {
        self.token = Some(token.into());
        self
    }

    /// Sees at most so many levels below the path; 0 is the path alone. `@introduceDomain` and `@releaseDomain` with
    /// depth 1 tell which domain. The daemon must offer [`crate::Features::WATCH_DEPTH`].
    pub fn depth(mut self, depth: u16) -> Self {
        self.depth = Some(depth);
        self
    }

    /// Keeps at most so many events that were not taken yet.
    pub fn bound(mut self, bound: usize) -> Self {
        self.bound = Some(bound);
        self
    }
}

/// The watches of a link, by token.
#[derive(Debug, Default)]
pub(crate) struct Table {
    by_token: HashMap<Box<[u8]>, Vec<Entry>>,
    last_id: u64,
}

/// One watch and what came for it.
#[derive(Debug)]
struct Entry {
    id: u64,
    path: Box<[u8]>,
    events: VecDeque<Event>,
    bound: usize,
    /// Events that came on top of the bound.
    lost: usize,
}

impl Entry {
    /// Whether an event for `path` can be this watch's.
    fn sees(&self, path: &[u8]) -> bool {
        path.strip_prefix(&*self.path).is_some_and(|below| below.is_empty() || below[0] == b'/' || *self.path == *b"/")
    }

    fn push(&mut self, path: &[u8]) {
        if self.events.len() < self.bound {
            self.events.push_back(Event { path: path.into() });
        } else {
            self.lost += 1;
        }
    }

    /// The next thing to tell: an event, or that some are missing behind the last.
    fn take(&mut self) -> Option<Result<Event, Error>> {
        if let Some(event) = self.events.pop_front() {
            return Some(Ok(event));
        }
        let lost = std::mem::take(&mut self.lost);
        (lost > 0).then_some(Err(Error::Overflow { lost }))
    }
}

impl Table {
    /// A number for a new watch, and a token if it has none.
    fn add(&mut self, path: &[u8], token: Option<Vec<u8>>, bound: usize) -> (u64, Box<[u8]>) {
        self.last_id += 1;
        let id = self.last_id;
        let token: Box<[u8]> = token.unwrap_or_else(|| format!("watch-{id}").into_bytes()).into();
        let entry = Entry { id, path: path.into(), events: VecDeque::new(), bound, lost: 0 };
        self.by_token.entry(token.clone()).or_default().push(entry);
        (id, token)
    }

    fn remove(&mut self, token: &[u8], id: u64) {
        if let Some(entries) = self.by_token.get_mut(token) {
            entries.retain(|entry| entry.id != id);
            if entries.is_empty() {
                self.by_token.remove(token);
            }
        }
    }

    fn take(&mut self, token: &[u8], id: u64) -> Option<Result<Event, Error>> {
        self.by_token.get_mut(token)?.iter_mut().find(|entry| entry.id == id)?.take()
    }
}

impl Sink for Table {
    fn event(&mut self, payload: &[u8]) -> Result<(), Cause> {
        let mut strings = payload::strings(payload);
        let (Some(path), Some(token)) = (strings.next(), strings.next()) else { return Err(Cause::MalformedEvent) };
        // Events may still come for a watch that was just dropped.
        for entry in self.by_token.get_mut(token).into_iter().flatten().filter(|entry| entry.sees(path)) {
            entry.push(path);
        }
        Ok(())
    }

    fn broken(&mut self) {}
}

/// A watch that is registered. It yields its events as an iterator, which ends after the error that says that the
/// connection is closed. Dropping it unregisters it; [`Watch::unwatch`] does so and says how it went.
///
/// Events that are not taken are kept up to a bound; then one [`Error::Overflow`] says how many are missing. After that, and after
/// the connection was renewed, what was read before may be out of date.
#[derive(Debug)]
pub struct Watch {
    client: Client,
    path: Box<[u8]>,
    token: Box<[u8]>,
    id: u64,
    registered: bool,
    ended: bool,
}

impl Watch {
    pub(crate) fn register(client: Client, path: &[u8], options: WatchOptions) -> Result<Self, Error> {
        let path: Box<[u8]> = string(path)?.into();
        if let Some(token) = &options.token {
            string(token)?;
        }
        let bound = options.bound.unwrap_or_else(|| client.bound());
        // It must be there before the first event comes, right behind the daemon's answer.
        let (id, token) = client.link().with_sink(|table| table.add(&path, options.token, bound))?;
        let mut watch = Self { client, path, token, id, registered: false, ended: false };
        let depth = options.depth.map(|depth| depth.to_string());
        let depth = depth.as_ref().map(String::as_bytes);
        watch.client.link().watch(&watch.path, &watch.token, depth, watch.client.until())?;
        watch.registered = true;
        Ok(watch)
    }

    /// The path that is watched.
    #[must_use]
    pub fn path(&self) -> &[u8] {
        &self.path
    }

    /// Waits for the next event.
    ///
    /// # Errors
    /// [`Error::Overflow`], after which it goes on; those of the connection.
    pub fn wait(&self) -> Result<Event, Error> {
        self.wait_until(None)
    }

    /// Waits for the next event for so long.
    ///
    /// # Errors
    /// [`Error::TimedOut`]; as [`Self::wait`].
    pub fn wait_for(&self, patience: Duration) -> Result<Event, Error> {
        self.wait_until(Some(Instant::now() + patience))
    }

    fn wait_until(&self, until: Option<Instant>) -> Result<Event, Error> {
        self.client.link().wait_for(until, |table| table.take(&self.token, self.id))?
    }

    /// The next event, if it has come already.
    ///
    /// # Errors
    /// As [`Self::wait`].
    pub fn try_next(&self) -> Result<Option<Event>, Error> {
        self.client.link().look_for(|table| table.take(&self.token, self.id))?.transpose()
    }

    /// Unregisters the watch; events that were not taken are gone.
    ///
    /// # Errors
    /// `ENOENT` when the daemon does not know it any more, as after [`Client::reset_watches`].
    pub fn unwatch(mut self) -> Result<(), Error> {
        self.registered = false;
        self.client.link().unwatch(&self.path, &self.token, self.client.until())
    }
}

impl Iterator for Watch {
    type Item = Result<Event, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let next = self.wait();
        self.ended = !matches!(next, Ok(_) | Err(Error::Overflow { .. }));
        Some(next)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // Neither a daemon that hangs nor one that is gone may keep anybody here; the latter has forgotten it.
        if self.client.link().with_sink(|table| table.remove(&self.token, self.id)).is_ok() && self.registered {
            let _sent = self.client.link().unwatch_unheard(&self.path, &self.token);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::itself("/a", "/a", true)]
    #[case::below("/a", "/a/b", true)]
    #[case::beside("/a", "/ab", false)]
    #[case::above("/a/b", "/a", false)]
    #[case::root("/", "/a", true)]
    #[case::relative("device", "device/vif", true)]
    #[case::special("@introduceDomain", "@introduceDomain/5", true)]
    fn a_watch_sees_its_path_and_what_is_below(#[case] watch: &str, #[case] path: &str, #[case] sees: bool) {
        let mut table = Table::default();
        let (id, token) = table.add(watch.as_bytes(), None, 1);
        table.event(format!("{path}\0{}\0", String::from_utf8_lossy(&token)).as_bytes()).unwrap();
        assert_eq!(table.take(&token, id).is_some(), sees);
    }

    #[test]
    fn watches_that_share_a_token_get_their_own_events() {
        let mut table = Table::default();
        let (a, token) = table.add(b"/a", Some(b"t".to_vec()), 9);
        let (b, _) = table.add(b"/b", Some(b"t".to_vec()), 9);
        table.event(b"/b/x\0t\0").unwrap();
        assert_eq!(table.take(&token, a), None);
        assert_eq!(table.take(&token, b), Some(Ok(Event { path: b"/b/x"[..].into() })));
        table.remove(&token, b);
        table.event(b"/b/x\0t\0").unwrap();
        assert_eq!(table.take(&token, b), None);
    }

    #[test]
    fn a_full_queue_says_how_many_events_are_missing() {
        let mut table = Table::default();
        let (id, token) = table.add(b"/a", None, 2);
        for _ in 0..5 {
            table.event(&[b"/a\0", &token[..], b"\0"].concat()).unwrap();
        }
        let told: Vec<_> = std::iter::from_fn(|| table.take(&token, id)).collect();
        let event = Ok(Event { path: b"/a"[..].into() });
        assert_eq!(told, [event.clone(), event, Err(Error::Overflow { lost: 3 })]);
    }
}
