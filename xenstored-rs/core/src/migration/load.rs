//! From a state to an engine.

use super::state::{Peer, SavedConnection, SavedNode, State};
use crate::{
    config::Config,
    connection::ConnectionKind,
    engine::Engine,
    id::{ConnId, DomId},
    path::{Path, WatchPath, home},
    permission::Permissions,
    quota::Limit,
    watch::NewWatch,
};

/// A state that no store can have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} {}", name.escape_ascii())]
pub struct LoadError {
    /// What is wrong.
    pub what: &'static str,
    /// With what.
    pub name: Vec<u8>,
}

impl LoadError {
    fn new(what: &'static str, name: &[u8]) -> Self {
        Self { what, name: name.to_vec() }
    }
}

/// An engine, and who is connected to it.
#[derive(Debug)]
pub struct Loaded {
    /// The engine. [`Engine::resume`] has it go on with what was under way.
    pub engine: Engine,
    /// The connections of the state, in their order.
    pub connections: Vec<ConnId>,
}

impl Engine {
    /// An engine with these settings and the store of another daemon. Quotas are not enforced meanwhile: what is there is
    /// there, and only more is refused.
    ///
    /// # Errors
    /// For a path, a watch or a domain that cannot be.
    pub fn load(config: Config, state: &State) -> Result<Loaded, LoadError> {
        let mut engine = Self::new(config);
        for (name, value) in &state.quotas {
            if let Some(limit) = limit(name) {
                engine.domains.limits.set(limit, *value);
            }
        }
        engine.load_nodes(&state.nodes)?;
        let mut connections = Vec::with_capacity(state.connections.len());
        for saved in &state.connections {
            connections.push(engine.load_connection(saved)?);
        }
        for saved in &state.domains {
            let domain = engine.domains.entry(saved.domid);
            if let Some(features) = saved.features {
                domain.features = features;
            }
            for (name, value) in &saved.quotas {
                if let Some(limit) = limit(name) {
                    domain.limits.set(limit, *value);
                }
            }
        }
        Ok(Loaded { engine, connections })
    }

    fn load_nodes(&mut self, nodes: &[SavedNode]) -> Result<(), LoadError> {
        // A fresh store has nodes that the other may not have had.
        let generation = self.next_generation();
        if let Some(root) = self.store.remove(b"/tool", generation) {
            self.store.bury(root);
        }
        for SavedNode { path, value, permissions } in nodes {
            let wrong = |what| LoadError::new(what, path);
            let (owner, others) = permissions.split_first().ok_or_else(|| wrong("no permissions at"))?;
            let permissions = self.permissions.shared(Permissions::new(*owner, others.to_vec()));
            let generation = self.next_generation();
            let there = if path.first() == Some(&b'@') {
                Some(self.store.special(path).ok_or_else(|| wrong("no such special node:"))?)
            } else {
                let parsed = Path::parse(path, self.config.store_domid);
                if path.first() != Some(&b'/') || parsed.is_err() {
                    return Err(wrong("no path:"));
                }
                self.store.find(path)
            };
            match there {
                Some(id) => {
                    self.store.set_permissions(id, path.len(), permissions, generation);
                    self.store.set_value(id, value[..].into(), generation);
                }
                None => self.store.create(path, value, &permissions, generation),
            }
        }
        Ok(())
    }

    fn load_connection(&mut self, saved: &SavedConnection) -> Result<ConnId, LoadError> {
        let kind = match saved.peer {
            Peer::Socket { .. } => ConnectionKind::Socket,
            Peer::Ring { domid, .. } => ConnectionKind::Domain(domid),
        };
        let conn = self.open(kind);
        if let Peer::Ring { domid, target, .. } = saved.peer {
            let domain = self.domains.entry(domid);
            if domain.connection.is_some() || !domid.is_ordinary() {
                return Err(LoadError::new("no domain, or told of twice:", domid.to_string().as_bytes()));
            }
            domain.exists = true;
            domain.introduced = true;
            domain.connection = Some(conn);
            domain.target = target;
        }
        let domid = self.domid(conn);
        for watch in &saved.watches {
            self.load_watch(conn, domid, &watch.path, &watch.token, watch.depth)?;
        }
        if let Some(connection) = self.connections.get_mut(conn.index()) {
            if !saved.input.is_empty() {
                connection.input = self.pool.take();
                connection.input.extend_from_slice(&saved.input);
            }
            connection.output.load(&saved.output, saved.partial, &mut self.pool);
        }
        self.settle(conn);
        Ok(conn)
    }

    fn load_watch(
        &mut self,
        conn: ConnId,
        domid: DomId,
        raw: &[u8],
        token: &[u8],
        depth: Option<u16>,
    ) -> Result<(), LoadError> {
        let path = WatchPath::parse(raw, domid).map_err(|_| LoadError::new("no path of a watch:", raw))?;
        let absolute = matches!(raw.first(), Some(b'/' | b'@'));
        let hidden = if absolute { 0 } else { home(domid).len() + 1 };
        // The other daemon may have told twice of what is one watch here.
        if self.watches.register(&NewWatch { conn, path: &path, token, hidden, depth }).is_some()
            && let Some(connection) = self.connections.get_mut(conn.index())
        {
            connection.watches += 1;
            connection.watch_bytes += path.as_bytes().len() + token.len();
        }
        Ok(())
    }
}

/// The limit of that name; none where it is another daemon's.
fn limit(name: &[u8]) -> Option<Limit> {
    Limit::all().find(|limit| limit.name().as_bytes() == name)
}
