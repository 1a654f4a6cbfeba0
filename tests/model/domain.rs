//! Domains: how they come, what they are offered, and what their end takes along.

use crate::{
    adapter::{Conn, HostEvent},
    choice,
    model::{ALL_FEATURES, Connection, Model},
    permission::{Permission, READ},
    quota::Values,
    store::{Change, INTRODUCE_DOMAIN, RELEASE_DOMAIN},
    watch::Fired,
};
use xenstore_wire::{OK, XsError, payload};

/// What is known of one domain.
#[derive(Clone, Debug)]
pub(crate) struct Domain {
    /// It has a ring that is served.
    pub(crate) introduced: bool,
    /// Feature bits that it is offered.
    pub(crate) features: u32,
    /// Quota values of its own.
    pub(crate) quotas: Values,
    /// Its shutdown was told of already.
    pub(crate) shutdown_told: bool,
    /// The domain whose rights it has besides its own.
    pub(crate) target: Option<u16>,
}

impl Default for Domain {
    fn default() -> Self {
        Self { introduced: false, features: ALL_FEATURES, quotas: Values::new(), shutdown_told: false, target: None }
    }
}

impl Model {
    /// Whether the host has the domain, or the store has dealt with it.
    pub(crate) fn is_known(&self, domid: u16) -> bool {
        self.host.contains(&domid) || self.domains.contains_key(&domid)
    }

    /// Whether the domain has a ring that is served.
    pub(crate) fn is_introduced(&self, domid: u16) -> bool {
        (domid == 0 && choice::DOM0_IS_INTRODUCED) || self.domains.get(&domid).is_some_and(|domain| domain.introduced)
    }

    /// The record of a domain, made at its first use.
    pub(crate) fn record(&mut self, domid: u16) -> &mut Domain {
        self.domains.entry(domid).or_default()
    }

    /// `INTRODUCE domid gfn port`: the domain is served from now on; one that was already starts afresh.
    pub(crate) fn introduce(&mut self, args: &[u8]) -> Result<Vec<u8>, XsError> {
        let strings: Vec<_> = payload::strings(args).collect();
        let [domid, gfn, port, ..] = strings.as_slice() else { return Err(XsError::Inval) };
        let domid: u16 = payload::number(domid)?;
        let _: u64 = payload::number(gfn)?;
        let port: u32 = payload::number(port)?;
        if port == 0 || domid == 0 || domid >= choice::FIRST_RESERVED {
            return Err(XsError::Inval);
        }
        if !self.host.contains(&domid) {
            return Err(choice::INTRODUCE_UNKNOWN);
        }
        let conn = Conn::Domain(domid);
        if self.is_introduced(domid) {
            self.reset_watches(conn)?;
        } else {
            self.record(domid).introduced = true;
            self.connections.insert(conn, Connection::new());
            self.tell_of_domain(INTRODUCE_DOMAIN, None);
            self.tell_of_domain(INTRODUCE_DOMAIN, Some(domid));
        }
        Ok(OK.to_vec())
    }

    /// The domain that `RELEASE` and its like are about: one that is introduced, and not domain 0.
    fn introduced_domain(&self, domid: &[u8]) -> Result<u16, XsError> {
        let domid = payload::number(domid)?;
        if domid == 0 {
            Err(XsError::Inval)
        } else if domid >= choice::FIRST_RESERVED {
            Err(choice::RESERVED_DOMID)
        } else if self.is_introduced(domid) {
            Ok(domid)
        } else {
            Err(XsError::NoEnt)
        }
    }

    /// `RELEASE domid`: forgets the domain and all that was its own.
    pub(crate) fn release(&mut self, args: &[u8]) -> Result<Vec<u8>, XsError> {
        let domid = self.introduced_domain(payload::one_string(args)?)?;
        self.depart(domid);
        Ok(OK.to_vec())
    }

    /// `GET_DOMAIN_PATH domid`, of any number.
    pub(crate) fn get_domain_path(args: &[u8]) -> Result<Vec<u8>, XsError> {
        let domid: u16 = payload::number(payload::one_string(args)?)?;
        Ok(format!("/local/domain/{domid}\0").into_bytes())
    }

    /// `IS_DOMAIN_INTRODUCED domid`.
    pub(crate) fn is_domain_introduced(&self, args: &[u8]) -> Result<Vec<u8>, XsError> {
        let domid = payload::number(payload::one_string(args)?)?;
        let yes = domid == choice::DOMID_SELF || self.is_introduced(domid);
        Ok(if yes { b"T\0".to_vec() } else { b"F\0".to_vec() })
    }

    /// `RESUME domid`: the next shutdown is told of again.
    pub(crate) fn resume(&mut self, args: &[u8]) -> Result<Vec<u8>, XsError> {
        let domid = self.introduced_domain(payload::one_string(args)?)?;
        self.record(domid).shutdown_told = false;
        Ok(OK.to_vec())
    }

    /// `SET_TARGET domid tdomid`: the first gets the rights of the second besides its own.
    pub(crate) fn set_target(&mut self, args: &[u8]) -> Result<Vec<u8>, XsError> {
        let [domid, target] = payload::exactly(args)?;
        let (domid, target): (u16, u16) = (payload::number(domid)?, payload::number(target)?);
        for end in [domid, target] {
            if end == 0 && choice::DOM0_IS_INTRODUCED {
                return Err(choice::TARGET_WITHOUT_RING);
            }
            if !self.is_introduced(end) {
                return Err(if self.is_known(end) { choice::TARGET_WITHOUT_RING } else { XsError::NoEnt });
            }
        }
        self.record(domid).target = Some(target);
        Ok(OK.to_vec())
    }

    /// The feature bits that a connection is offered.
    pub(crate) fn features(&self, conn: Conn) -> u32 {
        match conn {
            Conn::Socket(_) => ALL_FEATURES,
            Conn::Domain(domid) => self.domains.get(&domid).map_or(ALL_FEATURES, |domain| domain.features),
        }
    }

    /// `GET_FEATURE`: the caller's own bits, or those of a domain.
    pub(crate) fn get_feature(&self, conn: Conn, args: &[u8]) -> Result<Vec<u8>, XsError> {
        let bits = if args.is_empty() {
            self.features(conn)
        } else if !self.caller(conn).privileged {
            return Err(XsError::Access);
        } else {
            let domid = payload::number(payload::one_string(args)?)?;
            if !self.is_known(domid) {
                return Err(XsError::NoEnt);
            }
            self.features(Conn::Domain(domid))
        };
        Ok(format!("{bits}\0").into_bytes())
    }

    /// `SET_FEATURE domid bits`, before the domain is introduced.
    pub(crate) fn set_feature(&mut self, args: &[u8]) -> Result<Vec<u8>, XsError> {
        let [domid, bits] = payload::exactly(args)?;
        let (domid, bits): (u16, u32) = (payload::number(domid)?, payload::number(bits)?);
        if bits & !ALL_FEATURES != 0 {
            return Err(XsError::Inval);
        }
        if !self.is_known(domid) {
            return Err(XsError::NoEnt);
        }
        if self.is_introduced(domid) {
            return Err(XsError::Busy);
        }
        self.record(domid).features = bits;
        Ok(OK.to_vec())
    }

    /// What the host says of a domain.
    pub(crate) fn host_reports(&mut self, event: HostEvent) {
        match event {
            HostEvent::Exists(domid) => {
                self.host.insert(domid);
            }
            HostEvent::Shutdown(domid) => {
                if self.is_introduced(domid) && !self.domains[&domid].shutdown_told {
                    self.record(domid).shutdown_told = true;
                    self.tell_of_domain(RELEASE_DOMAIN, Some(domid));
                    self.tell_of_domain(RELEASE_DOMAIN, None);
                }
            }
            HostEvent::Destroyed(domid) => {
                if self.host.remove(&domid) {
                    self.depart(domid);
                }
            }
        }
    }

    /// Takes away all that a domain leaves behind: its connection, its nodes with all below them, its entries in
    /// other nodes' permissions, its rights through others and others' through it. Then tells of it, if it was served.
    fn depart(&mut self, domid: u16) {
        let was_introduced = self.is_introduced(domid);
        self.connections.remove(&Conn::Domain(domid));
        if choice::TARGETS_END_FIRST {
            self.end_targets(domid);
        }
        let specials = [INTRODUCE_DOMAIN.to_vec(), RELEASE_DOMAIN.to_vec()];
        for path in self.tree.root_first(b"/").into_iter().chain(specials) {
            let Some(node) = self.tree.get(&path) else { continue };
            let before = self.tree.clone();
            if node.owner() == domid && path.starts_with(b"/") && path != b"/" {
                let mut fired: Vec<_> = before.leaves_first(&path).iter().map(|gone| Fired::exact(gone)).collect();
                fired.pop();
                fired.push(Fired::subtree(&path));
                self.tree.apply(&Change::Remove { path });
                let after = self.tree.clone();
                self.fire(&fired, &before, &after);
            } else {
                let mut left: Vec<Permission> = node.permissions.clone();
                let mut place = 0;
                left.retain(|entry| {
                    place += 1;
                    place == 1 || entry.domid != domid
                });
                if left[0].domid == domid {
                    // Neither the root nor a special node may go.
                    left[0].domid = 0;
                }
                if left != node.permissions {
                    self.tree.apply(&Change::Permissions { path, permissions: left });
                }
            }
        }
        for connection in self.connections.values_mut() {
            for transaction in connection.transactions.values_mut() {
                transaction.domain_died(domid);
            }
        }
        self.domains.remove(&domid);
        self.end_targets(domid);
        if was_introduced {
            self.tell_of_domain(RELEASE_DOMAIN, None);
            self.tell_of_domain(RELEASE_DOMAIN, Some(domid));
        }
    }

    fn end_targets(&mut self, domid: u16) {
        for domain in self.domains.values_mut().filter(|domain| domain.target == Some(domid)) {
            domain.target = None;
        }
    }

    /// Tells the watchers of a special node who may read it: those without a depth of the event as such, or those
    /// with a depth and those of the one domain of that domain.
    fn tell_of_domain(&mut self, special: &[u8], domid: Option<u16>) {
        let permissions = self.tree.get(special).expect("special nodes are never removed").permissions.clone();
        let of_one = domid.map(|domid| [special, format!("/{domid}").as_bytes()].concat());
        let mut heard = Vec::new();
        for (&conn, connection) in &self.connections {
            if self.caller(conn).access(&permissions) & READ == 0 {
                continue;
            }
            for watch in &connection.watches {
                let on_domain = special == RELEASE_DOMAIN || choice::INTRODUCE_HAS_DOMAIN_WATCHES;
                match &of_one {
                    None if watch.path == special && watch.depth.is_none() => {
                        heard.push((conn, special.to_vec(), watch.token.clone()));
                    }
                    Some(path)
                        if (watch.path == special && watch.depth.is_some()) || (on_domain && watch.path == *path) =>
                    {
                        heard.push((conn, path.clone(), watch.token.clone()));
                    }
                    _ => {}
                }
            }
        }
        for (conn, path, token) in heard {
            self.tell(conn, path, token);
        }
    }
}
