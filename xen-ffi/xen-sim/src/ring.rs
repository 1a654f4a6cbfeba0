//! Where things are in a ring page (`struct xenstore_domain_interface`).

/// Bytes of each of the two rings.
pub const RING_SIZE: usize = 1024;

/// Where the ring of requests begins.
pub(crate) const REQUESTS: usize = 0;

/// Where the ring of replies and events begins.
pub(crate) const RESPONSES: usize = RING_SIZE;

/// A word behind the two rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// Up to where the daemon has read requests.
    ReqCons,
    /// Up to where the guest has written requests.
    ReqProd,
    /// Up to where the guest has read replies.
    RspCons,
    /// Up to where the daemon has written replies.
    RspProd,
    /// What the daemon can do, a bit each.
    Features,
    /// 0 connected, 1 when the guest asks to be connected anew.
    Connection,
    /// Why the daemon serves this ring no more, 0 while it does.
    Error,
    /// The port that the hypervisor put here for a domain without a toolstack, else 0.
    EvtchnPort,
}

impl Word {
    /// All of them, in the order of the page.
    pub const ALL: [Self; 8] = [
        Self::ReqCons,
        Self::ReqProd,
        Self::RspCons,
        Self::RspProd,
        Self::Features,
        Self::Connection,
        Self::Error,
        Self::EvtchnPort,
    ];

    /// Its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ReqCons => "req_cons",
            Self::ReqProd => "req_prod",
            Self::RspCons => "rsp_cons",
            Self::RspProd => "rsp_prod",
            Self::Features => "features",
            Self::Connection => "connection",
            Self::Error => "error",
            Self::EvtchnPort => "evtchn_port",
        }
    }

    /// The word of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|word| word.name() == name)
    }

    /// Its byte offset in the page.
    #[must_use]
    pub fn offset(self) -> usize {
        2 * RING_SIZE + 4 * self as usize
    }
}

/// The pieces in which `len` bytes from index `index` on lie in a ring: place in the ring and length, each.
pub(crate) fn pieces(index: u32, len: usize) -> [(usize, usize); 2] {
    let start = index as usize % RING_SIZE;
    let first = len.min(RING_SIZE - start);
    [(start, first), (0, len - first)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_stand_where_the_interface_says() {
        let offsets: Vec<_> = Word::ALL.iter().map(|word| word.offset()).collect();
        assert_eq!(offsets, [2048, 2052, 2056, 2060, 2064, 2068, 2072, 2076]);
    }

    #[test]
    fn bytes_wrap_at_the_end_of_the_ring_and_of_the_numbers() {
        assert_eq!(pieces(1000, 24), [(1000, 24), (0, 0)]);
        assert_eq!(pieces(1000, 30), [(1000, 24), (0, 6)]);
        assert_eq!(pieces(u32::MAX, 2), [(1023, 1), (0, 1)]);
        assert_eq!(pieces(5, 1024), [(5, 1019), (0, 5)]);
    }
}
