//! Requests about nodes, watches and transactions.

use crate::{
    adapter::Conn,
    choice,
    model::{Model, Origin},
    path,
    permission::{OWNER, Permission, READ, WRITE, show},
    store::{Change, INTRODUCE_DOMAIN, Node, RELEASE_DOMAIN, Tree},
    transaction::{Reliance, Transaction},
    watch::{Fired, Watch},
};
use xenstore_wire::{OK, XsError, payload};

/// The reply of a request that gives nothing back.
type Answer = Result<Vec<u8>, XsError>;

impl Model {
    /// The absolute path that the caller means, special names included.
    fn any_path(&self, conn: Conn, path: &[u8]) -> Result<Vec<u8>, XsError> {
        let most = self.caller_limit(conn, "path-max").map_or(usize::MAX, |most| most.try_into().unwrap());
        path::canonical(path, self.caller(conn).domid, most)
    }

    /// The absolute path of a node; special names are refused.
    fn node_path(&self, conn: Conn, path: &[u8]) -> Result<Vec<u8>, XsError> {
        let path = self.any_path(conn, path)?;
        if path::is_special(&path) { Err(XsError::Inval) } else { Ok(path) }
    }

    /// The absolute path of a node or of one of the two special nodes.
    fn node_or_special_path(&self, conn: Conn, path: &[u8]) -> Result<Vec<u8>, XsError> {
        let path = self.any_path(conn, path)?;
        if path::is_special(&path) && path != INTRODUCE_DOMAIN && path != RELEASE_DOMAIN {
            return Err(choice::UNKNOWN_SPECIAL);
        }
        Ok(path)
    }

    /// The node at a path, if the caller has all the wanted rights.
    ///
    /// # Errors
    /// `ENOENT` and `EACCES`; where the caller has none of the wanted rights on the nearest node that exists,
    /// `EACCES` either way, so that nobody learns of what he may not see.
    fn look_up<'a>(&self, tree: &'a Tree, conn: Conn, path: &[u8], wanted: u8) -> Result<&'a Node, XsError> {
        let caller = self.caller(conn);
        let failure = match tree.get(path) {
            Some(node) if caller.access(&node.permissions) & wanted == wanted => return Ok(node),
            Some(_) => XsError::Access,
            None => XsError::NoEnt,
        };
        let nearest = tree.get(tree.nearest(path)).expect("the root is there");
        if caller.access(&nearest.permissions) & wanted == 0 { Err(XsError::Access) } else { Err(failure) }
    }

    /// Takes note of what a request in a transaction relies on.
    ///
    /// # Errors
    /// `ENOSPC` when the transaction would touch too many nodes; it is poisoned then.
    fn rely(&mut self, origin: Origin, path: &[u8], on: Reliance) -> Result<(), XsError> {
        let most = self.caller_limit(origin.conn, "transaction-nodes");
        let Some(transaction) = self.transaction(origin) else { return Ok(()) };
        let touched = transaction.relied.len() as u64 + u64::from(!transaction.relied.contains_key(path));
        if most.is_some_and(|most| touched > most) {
            transaction.poisoned = true;
            return Err(XsError::NoSpc);
        }
        transaction.rely(path, on);
        Ok(())
    }

    fn transaction(&mut self, origin: Origin) -> Option<&mut Transaction> {
        self.connections.get_mut(&origin.conn)?.transactions.get_mut(&origin.tx_id)
    }

    /// Makes a request's changes where it asked for them, and tells of them unless a transaction holds them back.
    fn perform(&mut self, origin: Origin, changes: Vec<Change>, fired: Vec<Fired>) -> Answer {
        if let Some(transaction) = self.transaction(origin) {
            transaction.wrote_idly |= changes.is_empty();
            transaction.perform(changes, fired);
        } else {
            let before = self.tree.clone();
            for change in &changes {
                self.tree.apply(change);
            }
            let after = self.tree.clone();
            self.fire(&fired, &before, &after);
        }
        Ok(OK.to_vec())
    }

    /// Gives the error of a change that a quota stopped, and poisons the transaction it was part of.
    fn refuse(&mut self, origin: Origin, error: XsError) -> Answer {
        if choice::poisons(error)
            && let Some(transaction) = self.transaction(origin)
        {
            transaction.poisoned = true;
        }
        Err(error)
    }

    /// `READ path`.
    pub(crate) fn read(&mut self, origin: Origin, args: &[u8]) -> Answer {
        let path = self.node_path(origin.conn, payload::one_string(args)?)?;
        self.rely(origin, &path, Reliance::NODE)?;
        Ok(self.look_up(self.view(origin), origin.conn, &path, READ)?.value.clone())
    }

    /// `GET_PERMS path`.
    pub(crate) fn get_perms(&mut self, origin: Origin, args: &[u8]) -> Answer {
        let path = self.node_or_special_path(origin.conn, payload::one_string(args)?)?;
        self.rely(origin, &path, Reliance::NODE)?;
        Ok(show(&self.look_up(self.view(origin), origin.conn, &path, READ)?.permissions))
    }

    /// `DIRECTORY path`.
    pub(crate) fn directory(&mut self, origin: Origin, args: &[u8]) -> Answer {
        let path = self.node_path(origin.conn, payload::one_string(args)?)?;
        self.rely(origin, &path, Reliance::LIST)?;
        self.look_up(self.view(origin), origin.conn, &path, READ)?;
        Ok(self.view(origin).list(&path))
    }

    /// `DIRECTORY_PART path offset`: the list's generation and as many whole names as fit; an empty one ends the list.
    pub(crate) fn directory_part(&mut self, origin: Origin, args: &[u8]) -> Answer {
        let [path, offset] = payload::exactly(args)?;
        let path = self.node_path(origin.conn, path)?;
        let offset: u64 = payload::number(offset)?;
        self.rely(origin, &path, Reliance::LIST)?;
        let tree = self.view(origin);
        let generation = self.look_up(tree, origin.conn, &path, READ)?.list_generation;
        let list = tree.list(&path);
        let mut reply = format!("{generation}\0").into_bytes();
        let rest = usize::try_from(offset).ok().and_then(|offset| list.get(offset..)).unwrap_or_default();
        let mut taken = 0;
        for name in rest.split_inclusive(|&byte| byte == 0) {
            if choice::part_is_full(reply.len() + name.len()) {
                break;
            }
            reply.extend_from_slice(name);
            taken += name.len();
        }
        if taken == rest.len() {
            reply.push(0);
        }
        Ok(reply)
    }

    /// `WRITE path value`.
    pub(crate) fn write(&mut self, origin: Origin, args: &[u8]) -> Answer {
        let (path, value) = payload::string_and_rest(args)?;
        let path = self.node_path(origin.conn, path)?;
        self.put(origin, path, Some(value))
    }

    /// `MKDIR path`.
    pub(crate) fn mkdir(&mut self, origin: Origin, args: &[u8]) -> Answer {
        let path = self.node_path(origin.conn, payload::one_string(args)?)?;
        self.put(origin, path, None)
    }

    /// Gives a node a value, or makes sure that it is there.
    fn put(&mut self, origin: Origin, path: Vec<u8>, value: Option<&[u8]>) -> Answer {
        let fired = vec![Fired::subtree(&path)];
        let tree = self.view(origin).clone();
        if tree.get(&path).is_none() {
            return self.create(origin, &tree, &path, value);
        }
        self.rely(origin, &path, Reliance::PERMISSIONS)?;
        let owner = self.look_up(&tree, origin.conn, &path, WRITE)?.owner();
        let Some(value) = value else { return self.perform(origin, Vec::new(), Vec::new()) };
        let changes = vec![Change::Value { path: path.clone(), value: value.to_vec() }];
        let mut after = tree.clone();
        after.apply(&changes[0]);
        if self.size_is_refused(origin.conn, &tree, &after, &path) {
            return self.refuse(origin, XsError::NoSpc);
        }
        if self.memory_is_refused(origin.conn, &tree, &after, owner) {
            return self.refuse(origin, XsError::NoMem);
        }
        self.perform(origin, changes, fired)
    }

    /// Makes a node and those that are missing above it, all with the permissions of the nearest one that exists;
    /// an unprivileged maker owns them.
    fn create(&mut self, origin: Origin, tree: &Tree, path: &[u8], value: Option<&[u8]>) -> Answer {
        let nearest = tree.nearest(path).to_vec();
        let mut missing = Vec::new();
        let mut here = path;
        while here != nearest {
            missing.insert(0, here.to_vec());
            here = path::parent(here).expect("the nearest node is above");
        }
        for new in &missing {
            self.rely(origin, new, Reliance::NODE)?;
        }
        self.rely(origin, &nearest, Reliance::PERMISSIONS)?;
        match self.look_up(tree, origin.conn, path, WRITE) {
            Err(XsError::NoEnt) => {}
            Err(error) => return Err(error),
            Ok(_) => unreachable!("the node is missing"),
        }
        let caller = self.caller(origin.conn);
        let mut permissions = tree.get(&nearest).expect("the nearest node is there").permissions.clone();
        if !caller.privileged {
            permissions[0] = Permission { domid: caller.domid, ignored: false, ..permissions[0] };
        }
        let owner = permissions[0].domid;
        let mut changes: Vec<_> = missing
            .iter()
            .map(|path| Change::Create { path: path.clone(), permissions: permissions.clone() })
            .collect();
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            changes.push(Change::Value { path: path.to_vec(), value: value.to_vec() });
        }
        let mut after = tree.clone();
        for change in &changes {
            after.apply(change);
        }
        if self.caller_limit(origin.conn, "nodes").is_some_and(|most| after.owned(owner) > most) {
            return self.refuse(origin, XsError::NoSpc);
        }
        if missing.iter().chain([&nearest]).any(|path| self.size_is_refused(origin.conn, tree, &after, path)) {
            return self.refuse(origin, XsError::NoSpc);
        }
        if self.memory_is_refused(origin.conn, tree, &after, owner) {
            return self.refuse(origin, XsError::Io);
        }
        self.perform(origin, changes, vec![Fired::subtree(path)])
    }

    /// Whether a change makes a node too large for the caller.
    fn size_is_refused(&self, conn: Conn, before: &Tree, after: &Tree, path: &[u8]) -> bool {
        let old = before.get(path).map_or(0, |_| before.size(path));
        let limit = self.caller_limit(conn, "node-size");
        limit.is_some_and(|limit| choice::node_size_is_refused(old, after.size(path), limit.try_into().unwrap()))
    }

    /// `RM path`.
    pub(crate) fn rm(&mut self, origin: Origin, args: &[u8]) -> Answer {
        let path = self.node_path(origin.conn, payload::one_string(args)?)?;
        let tree = self.view(origin).clone();
        if tree.get(&path).is_none() {
            self.rely(origin, &path, Reliance::NODE)?;
        }
        match self.look_up(&tree, origin.conn, &path, WRITE) {
            Err(XsError::NoEnt) if path::parent(&path).is_some_and(|parent| tree.get(parent).is_some()) => {
                return self.perform(origin, Vec::new(), Vec::new());
            }
            Err(error) => {
                self.rely(origin, &path, Reliance::PERMISSIONS)?;
                return Err(error);
            }
            Ok(_) if path == b"/" => return Err(XsError::Inval),
            Ok(_) => {}
        }
        let gone = tree.leaves_first(&path);
        for node in &gone {
            self.rely(origin, node, Reliance::ALL)?;
        }
        let fire = |gone: &Vec<u8>| if *gone == path { Fired::subtree(gone) } else { Fired::exact(gone) };
        let fired = gone.iter().map(fire).collect();
        self.perform(origin, vec![Change::Remove { path: path.clone() }], fired)
    }

    /// `SET_PERMS path permission…`.
    pub(crate) fn set_perms(&mut self, origin: Origin, args: &[u8]) -> Answer {
        let strings: Vec<_> = payload::strings(args).collect();
        let Some((path, entries)) = strings.split_first().filter(|(_, entries)| !entries.is_empty()) else {
            return Err(XsError::Inval);
        };
        if self.caller_limit(origin.conn, "node-permissions").is_some_and(|most| entries.len() as u64 > most) {
            return Err(XsError::NoSpc);
        }
        let mut permissions = entries.iter().map(|entry| Permission::parse(entry)).collect::<Result<Vec<_>, _>>()?;
        self.mark_unknown(origin.conn, &mut permissions)?;
        let path = self.node_or_special_path(origin.conn, path)?;
        self.rely(origin, &path, Reliance::PERMISSIONS)?;
        let tree = self.view(origin).clone();
        let old_owner = self.look_up(&tree, origin.conn, &path, WRITE | OWNER)?.owner();
        if !self.caller(origin.conn).privileged && permissions[0].domid != old_owner {
            return Err(XsError::Perm);
        }
        let changes = vec![Change::Permissions { path: path.clone(), permissions }];
        let mut after = tree.clone();
        after.apply(&changes[0]);
        if self.size_is_refused(origin.conn, &tree, &after, &path) {
            return self.refuse(origin, XsError::NoSpc);
        }
        if self.memory_is_refused(origin.conn, &tree, &after, old_owner) {
            return self.refuse(origin, XsError::NoMem);
        }
        // The watchers of a special node wait for domains, not for changes of the node.
        let fired = if path::is_special(&path) { Vec::new() } else { vec![Fired::subtree(&path)] };
        self.perform(origin, changes, fired)
    }

    /// Marks the entries of domains that do not exist, so that they never match.
    fn mark_unknown(&mut self, conn: Conn, permissions: &mut [Permission]) -> Result<(), XsError> {
        let any_offered = self.caller(conn).privileged || self.features(conn) & choice::FEATURE_DOMID_ANY != 0;
        for (place, entry) in permissions.iter_mut().enumerate() {
            if entry.domid != choice::DOMID_ANY {
                entry.ignored = !self.is_known(entry.domid);
            } else if place == 0 {
                entry.ignored = !choice::ANY_MAY_OWN;
            } else if !any_offered {
                return Err(choice::ANY_WITHOUT_FEATURE);
            }
        }
        if permissions[0].ignored { Err(XsError::NoEnt) } else { Ok(()) }
    }

    /// `WATCH path token [depth]`; the first event comes at once.
    pub(crate) fn watch(&mut self, conn: Conn, args: &[u8]) -> Answer {
        let strings: Vec<_> = payload::strings(args).collect();
        let (named, token, depth) = match strings.as_slice() {
            [path, token] => (*path, *token, None),
            [path, token, depth] if self.features(conn) & choice::FEATURE_WATCH_DEPTH != 0 => {
                (*path, *token, Some(payload::number(depth)?))
            }
            _ => return Err(XsError::Inval),
        };
        let path = self.any_path(conn, named)?;
        let too_deep = |depth: u32| {
            depth > choice::DEEPEST_WATCH || (path::is_special(&path) && !choice::special_depth_is_allowed(depth))
        };
        if depth.is_some_and(too_deep) {
            return Err(XsError::Inval);
        }
        let limit = self.caller_limit(conn, "watches");
        let memory = self.caller_limit(conn, "memory");
        let used = self.memory(&self.tree, self.caller(conn).domid);
        let watches = &mut self.connections.get_mut(&conn).expect("the caller is connected").watches;
        if watches.iter().any(|watch| watch.path == path && watch.token == token) {
            return Err(XsError::Exist);
        }
        if limit.is_some_and(|limit| watches.len() as u64 + 1 > limit) {
            return Err(XsError::NoSpc);
        }
        if memory.is_some_and(|memory| used + (path.len() + token.len()) as u64 > memory) {
            return Err(XsError::NoMem);
        }
        let cut = path.len() - named.len();
        watches.push(Watch { path, token: token.to_vec(), depth, cut });
        self.tell(conn, named.to_vec(), token.to_vec());
        Ok(OK.to_vec())
    }

    /// `UNWATCH path token`.
    pub(crate) fn unwatch(&mut self, conn: Conn, args: &[u8]) -> Answer {
        let [path, token] = payload::exactly(args)?;
        let path = self.any_path(conn, path)?;
        let watches = &mut self.connections.get_mut(&conn).expect("the caller is connected").watches;
        let found = watches.iter().position(|watch| watch.path == path && watch.token == token);
        watches.remove(found.ok_or(XsError::NoEnt)?);
        Ok(OK.to_vec())
    }

    /// `RESET_WATCHES`: the caller's watches and transactions go.
    pub(crate) fn reset_watches(&mut self, conn: Conn) -> Answer {
        let connection = self.connections.get_mut(&conn).expect("the caller is connected");
        connection.watches.clear();
        connection.transactions.clear();
        Ok(OK.to_vec())
    }

    /// `TRANSACTION_START`: all that the transaction reads is of this moment.
    pub(crate) fn transaction_start(&mut self, origin: Origin) -> Answer {
        if origin.tx_id != 0 {
            return Err(XsError::Busy);
        }
        let limit = self.caller_limit(origin.conn, "transactions");
        let connection = self.connections.get_mut(&origin.conn).expect("the caller is connected");
        if limit.is_some_and(|limit| connection.transactions.len() as u64 + 1 > limit) {
            return Err(XsError::NoSpc);
        }
        while connection.next_transaction == 0 || connection.transactions.contains_key(&connection.next_transaction) {
            connection.next_transaction = connection.next_transaction.wrapping_add(1);
        }
        let id = connection.next_transaction;
        connection.next_transaction = id.wrapping_add(1);
        connection.transactions.insert(id, Transaction::start(&self.tree));
        Ok(format!("{id}\0").into_bytes())
    }

    /// `TRANSACTION_END T` or `F`: whatever comes of it, the transaction is gone.
    pub(crate) fn transaction_end(&mut self, origin: Origin, args: &[u8]) -> Answer {
        let commit = match args {
            b"T\0" => true,
            b"F\0" => false,
            _ => return Err(XsError::Inval),
        };
        let connection = self.connections.get_mut(&origin.conn).expect("the caller is connected");
        let transaction = connection.transactions.remove(&origin.tx_id).ok_or(XsError::NoEnt)?;
        if !commit {
            return Ok(OK.to_vec());
        }
        if transaction.poisoned {
            return Err(XsError::NoMem);
        }
        if transaction.is_read_only() {
            return Ok(OK.to_vec());
        }
        let domid = self.caller(origin.conn).domid;
        let growth = transaction.working.owned(domid).saturating_sub(transaction.snapshot.owned(domid));
        let merged = self.tree.owned(domid) + growth;
        if growth > 0 && self.caller_limit(origin.conn, "nodes").is_some_and(|most| merged > most) {
            return Err(XsError::NoSpc);
        }
        if transaction.conflicts(&self.tree) {
            return Err(XsError::Again);
        }
        let outside = Origin { tx_id: 0, ..origin };
        self.perform(outside, transaction.log, transaction.fired)
    }
}
