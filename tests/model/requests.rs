//! Requests about nodes.

use crate::{
    adapter::Conn,
    choice,
    model::{Model, Origin},
    path,
    permission::{OWNER, Permission, READ, WRITE, show},
    store::{Change, INTRODUCE_DOMAIN, Node, RELEASE_DOMAIN, Tree},
    transaction::{Reliance, Transaction},
    watch::Fired,
};
use xenstore_wire::{OK, XsError, payload};

/// What a request gives back: the reply's payload.
pub(crate) type Answer = Result<Vec<u8>, XsError>;

impl Model {
    /// The absolute path that the caller means, special names included.
    pub(crate) fn any_path(&self, conn: Conn, path: &[u8]) -> Result<Vec<u8>, XsError> {
        let most = self.caller_limit(conn, "path-max").map_or(usize::MAX, |most| most.try_into().unwrap());
        path::canonical(path, self.caller(conn).domid, most)
    }

    /// The absolute path of a node; special names are refused.
    fn node_path(&self, conn: Conn, path: &[u8]) -> Result<Vec<u8>, XsError> {
        let path = self.any_path(conn, path)?;
        if path::is_special(&path) { Err(XsError::Inval) } else { Ok(path) }
    }

    /// Lets nodes and the two special nodes through.
    fn refuse_unknown_special(path: &[u8]) -> Result<(), XsError> {
        let known = !path::is_special(path) || path == INTRODUCE_DOMAIN || path == RELEASE_DOMAIN;
        if known { Ok(()) } else { Err(choice::UNKNOWN_SPECIAL) }
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
    /// `ENOSPC` when the transaction would touch too many nodes, `ENOMEM` when the paths of all that the caller's
    /// transactions touched would take more memory than it may have; it is poisoned then.
    fn rely(&mut self, origin: Origin, path: &[u8], on: Reliance) -> Result<(), XsError> {
        let most = self.caller_limit(origin.conn, "transaction-nodes");
        let too_much = self.transactions_hold_too_much(origin, choice::touched_bytes(path));
        let Some(transaction) = self.transaction(origin) else { return Ok(()) };
        let touched = transaction.touched();
        let new = on.named && !touched.contains(path);
        if new && most.is_some_and(|most| touched.len() as u64 >= most) {
            transaction.poisoned = true;
            return Err(XsError::NoSpc);
        }
        if new && too_much {
            transaction.poisoned = true;
            return Err(XsError::NoMem);
        }
        transaction.rely(path, on);
        Ok(())
    }

    /// Whether all transactions of a caller would hold too much of its domain's memory with `more` bytes in this one.
    fn transactions_hold_too_much(&self, origin: Origin, more: u64) -> bool {
        let Some(connection) = self.connections.get(&origin.conn) else { return false };
        let held: u64 = connection.transactions.values().map(Transaction::bytes).sum();
        let most = self.caller_limit(origin.conn, "memory");
        more > 0 && connection.transactions.contains_key(&origin.tx_id) && most.is_some_and(|most| held + more > most)
    }

    /// Whether a node whose value will have `len` bytes is too much for the transaction that changes it.
    fn change_is_too_much(&self, origin: Origin, path: &[u8], len: usize) -> bool {
        let transactions = self.connections.get(&origin.conn).map(|connection| &connection.transactions);
        let held = transactions.and_then(|open| open.get(&origin.tx_id)).map_or(0, |open| open.held(path));
        self.transactions_hold_too_much(origin, (len as u64).saturating_sub(held))
    }

    /// With the permissions too, where the caller needs them.
    fn with_the_right(&self, origin: Origin, on: Reliance) -> Reliance {
        Reliance { permissions: choice::relies_on_permissions(self.caller(origin.conn).privileged), ..on }
    }

    fn transaction(&mut self, origin: Origin) -> Option<&mut Transaction> {
        self.connections.get_mut(&origin.conn)?.transactions.get_mut(&origin.tx_id)
    }

    /// Makes a request's changes where it asked for them, and tells of them unless a transaction holds them back.
    pub(crate) fn perform(&mut self, origin: Origin, changes: Vec<Change>, fired: Vec<Fired>) -> Answer {
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
        let path = self.any_path(origin.conn, payload::one_string(args)?)?;
        self.rely(origin, &path, Reliance::NODE)?;
        Self::refuse_unknown_special(&path)?;
        Ok(show(&self.look_up(self.view(origin), origin.conn, &path, READ)?.permissions))
    }

    /// `DIRECTORY path`.
    pub(crate) fn directory(&mut self, origin: Origin, args: &[u8]) -> Answer {
        let path = self.node_path(origin.conn, payload::one_string(args)?)?;
        self.rely(origin, &path, self.with_the_right(origin, Reliance::LIST))?;
        self.look_up(self.view(origin), origin.conn, &path, READ)?;
        Ok(self.view(origin).list(&path))
    }

    /// `DIRECTORY_PART path offset`: the list's generation and as many whole names as fit; an empty one ends the list.
    pub(crate) fn directory_part(&mut self, origin: Origin, args: &[u8]) -> Answer {
        let [path, offset] = payload::exactly(args)?;
        let path = self.node_path(origin.conn, path)?;
        let offset: u64 = payload::number(offset)?;
        self.rely(origin, &path, self.with_the_right(origin, Reliance::LIST))?;
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
        self.put(origin, &path, Some(value))
    }

    /// `MKDIR path`.
    pub(crate) fn mkdir(&mut self, origin: Origin, args: &[u8]) -> Answer {
        let path = self.node_path(origin.conn, payload::one_string(args)?)?;
        self.put(origin, &path, None)
    }

    /// Gives a node a value, or makes sure that it is there.
    fn put(&mut self, origin: Origin, path: &[u8], value: Option<&[u8]>) -> Answer {
        let fired = vec![Fired::subtree(path)];
        let tree = self.view(origin).clone();
        if tree.get(path).is_none() {
            return self.create(origin, &tree, path, value);
        }
        self.look_up(&tree, origin.conn, path, WRITE)?;
        self.rely(origin, path, self.with_the_right(origin, Reliance::EXISTENCE))?;
        let Some(value) = value else { return self.perform(origin, Vec::new(), Vec::new()) };
        let changes = vec![Change::Value { path: path.to_vec(), value: value.to_vec() }];
        let mut after = tree.clone();
        after.apply(&changes[0]);
        if self.size_is_refused(origin.conn, &after, path) {
            return self.refuse(origin, XsError::NoSpc);
        }
        if self.memory_is_refused(origin, &tree, &after) || self.change_is_too_much(origin, path, value.len()) {
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
        match self.look_up(tree, origin.conn, path, WRITE) {
            Err(XsError::NoEnt) => {}
            Err(error) => return Err(error),
            Ok(_) => unreachable!("the node is missing"),
        }
        // With the first missing node all others are missing too.
        self.rely(origin, &nearest, Reliance::PERMISSIONS)?;
        self.rely(origin, &missing[0], Reliance::EXISTENCE)?;
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
        if missing.iter().chain([&nearest]).any(|path| self.size_is_refused(origin.conn, &after, path)) {
            return self.refuse(origin, XsError::NoSpc);
        }
        if self.memory_is_refused(origin, tree, &after) {
            return self.refuse(origin, XsError::Io);
        }
        if self.transactions_hold_too_much(origin, value.map_or(0, <[u8]>::len) as u64) {
            return self.refuse(origin, XsError::NoMem);
        }
        self.perform(origin, changes, vec![Fired::subtree(path)])
    }

    /// Whether a node is larger than the caller may make one.
    fn size_is_refused(&self, conn: Conn, after: &Tree, path: &[u8]) -> bool {
        self.caller_limit(conn, "node-size").is_some_and(|limit| after.size(path) as u64 > limit)
    }

    /// `RM path`.
    pub(crate) fn rm(&mut self, origin: Origin, args: &[u8]) -> Answer {
        let path = self.node_path(origin.conn, payload::one_string(args)?)?;
        let tree = self.view(origin).clone();
        match self.look_up(&tree, origin.conn, &path, WRITE) {
            Err(XsError::NoEnt) => {
                let parent = path::parent(&path).expect("the root is there");
                let there = tree.get(parent).is_some();
                if there {
                    self.rely(origin, &path, Reliance::EXISTENCE)?;
                }
                self.rely(origin, parent, Reliance::EXISTENCE)?;
                if !there {
                    return Err(XsError::NoEnt);
                }
                return self.perform(origin, Vec::new(), Vec::new());
            }
            Err(error) => return Err(error),
            Ok(_) if path == b"/" => return Err(XsError::Inval),
            Ok(_) => {}
        }
        let gone = tree.leaves_first(&path);
        self.rely(origin, &path, Reliance::ALL)?;
        for below in &gone {
            self.rely(origin, below, Reliance { named: false, ..Reliance::ALL })?;
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
        let path = self.any_path(origin.conn, path)?;
        let mut permissions = entries.iter().map(|entry| Permission::parse(entry)).collect::<Result<Vec<_>, _>>()?;
        if self.caller_limit(origin.conn, "node-permissions").is_some_and(|most| entries.len() as u64 > most) {
            return Err(XsError::NoSpc);
        }
        self.mark_unknown(origin.conn, &mut permissions)?;
        Self::refuse_unknown_special(&path)?;
        let tree = self.view(origin).clone();
        let old_owner = self.look_up(&tree, origin.conn, &path, WRITE | OWNER)?.owner();
        if !self.caller(origin.conn).privileged && permissions[0].domid != old_owner {
            return Err(XsError::Perm);
        }
        self.rely(origin, &path, self.with_the_right(origin, Reliance::EXISTENCE))?;
        let changes = vec![Change::Permissions { path: path.clone(), permissions }];
        let mut after = tree.clone();
        after.apply(&changes[0]);
        if self.size_is_refused(origin.conn, &after, &path) {
            return self.refuse(origin, XsError::NoSpc);
        }
        let len = tree.get(&path).map_or(0, |node| node.value.len());
        if self.memory_is_refused(origin, &tree, &after) || self.change_is_too_much(origin, &path, len) {
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
}
