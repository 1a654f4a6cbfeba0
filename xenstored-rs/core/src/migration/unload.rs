//! From an engine to a state.

use xenstore_wire::put_message;

use super::state::{Named, Peer, SavedConnection, SavedDomain, SavedNode, SavedWatch, State};
use crate::{
    connection::{Connection, ConnectionKind},
    domain::feature,
    engine::Engine,
    id::ConnId,
    node::Content,
    quota::Limit,
};

impl Engine {
    /// What another daemon must know to go on with this store. How connections are reached is the caller's to fill in:
    /// descriptors are -1 and ports 0 in it.
    ///
    /// Open transactions are not in it: see [`Engine::open_transactions`].
    #[must_use]
    pub fn unload(&self) -> State {
        let mut state = State::default();
        for limit in Limit::all() {
            state.quotas.push((limit.name().as_bytes().into(), self.domains.limits.get(limit)));
        }
        for (conn, kind) in self.connections() {
            if let Some(connection) = self.connections.get(conn.index()) {
                state.connections.push(self.unload_connection(conn, kind, connection));
            }
        }
        let node = |path: &[u8], content: &Content| SavedNode {
            path: path.into(),
            value: content.value.as_slice().into(),
            permissions: content.permissions.iter().copied().collect(),
        };
        let now = self.store.now();
        now.walk(self.store.root(), b"/", |path, id| state.nodes.push(node(path, now.content(id))));
        for (name, id) in self.store.specials() {
            state.nodes.push(node(name, now.content(id)));
        }
        for (domid, domain) in self.domains.iter() {
            let own = domain.limits.iter().map(|(limit, value)| (limit.name().as_bytes().into(), value));
            let quotas: Named = own.collect();
            if !quotas.is_empty() || domain.features != feature::OFFERED {
                state.domains.push(SavedDomain { domid, features: Some(domain.features), quotas });
            }
        }
        state
    }

    fn unload_connection(&self, conn: ConnId, kind: ConnectionKind, connection: &Connection) -> SavedConnection {
        let peer = match kind {
            ConnectionKind::Socket => Peer::Socket { fd: -1 },
            ConnectionKind::Domain(domid) => {
                let target = self.domains.get(domid).and_then(|domain| domain.target);
                Peer::Ring { domid, target, local_port: 0, remote_port: None, gfn: None }
            }
        };
        // A request whose answer is still looked for is the other daemon's to serve.
        let mut input = Vec::new();
        if let Some(asked) = &connection.asked {
            let header = asked.header;
            put_message(&mut input, header.op, header.req_id, header.tx_id, &asked.payload);
        }
        input.extend_from_slice(&connection.input);
        let (output, partial) = connection.output.unload();
        let watches = self.watches.of(conn).map(|watch| SavedWatch {
            path: watch.shown(&watch.path).into(),
            token: watch.token.clone(),
            depth: watch.depth,
        });
        SavedConnection {
            conn: Some(conn),
            peer,
            unique_id: None,
            watches: watches.collect(),
            input,
            output: output.to_vec(),
            partial,
        }
    }

    /// Who has transactions open: each connection with how many.
    #[must_use]
    pub fn open_transactions(&self) -> Vec<(ConnId, usize)> {
        let open = |(conn, _): (ConnId, ConnectionKind)| {
            let count = self.connections.get(conn.index())?.transactions.len();
            (count > 0).then_some((conn, count))
        };
        self.connections().filter_map(open).collect()
    }
}
