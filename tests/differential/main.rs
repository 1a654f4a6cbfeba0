//! The same requests to our daemon and to its peers.
