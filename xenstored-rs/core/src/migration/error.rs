//! Why bytes are no migration stream.

/// What is wrong with a stream, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("byte {offset} of the stream: {fault}")]
pub struct StreamError {
    /// Bytes from the stream's beginning to the record or field that is wrong.
    pub offset: usize,
    /// What is wrong there.
    pub fault: Fault,
}

/// What can be wrong with a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// It does not begin as one.
    #[error("this is no migration stream")]
    NotAStream,
    /// A version that is not known.
    #[error("version {0}, where 1 and 2 are known")]
    Version(u32),
    /// The numbers are of a machine of another byte order.
    #[error("numbers of the other byte order")]
    ByteOrder,
    /// It ends in the middle of a record, or without the record of its end.
    #[error("the stream is cut")]
    Short,
    /// Something follows the record of its end.
    #[error("something follows the end")]
    Long,
    /// A type of record that is not known.
    #[error("a record of unknown type {0}")]
    Type(u32),
    /// A record's fields do not fit into its length.
    #[error("a record that is too short for what it tells")]
    Record,
    /// A value that cannot be.
    #[error("{0} that cannot be")]
    Value(&'static str),
}
