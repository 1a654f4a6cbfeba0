//! Why bytes are no image.

/// What is wrong with an image, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("byte {offset} of the engine's image: {fault}")]
pub struct ImageError {
    /// Bytes from the image's beginning to where it was noticed.
    pub offset: usize,
    /// What is wrong there.
    pub fault: ImageFault,
}

/// What can be wrong with an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImageFault {
    /// It does not begin as images do.
    #[error("this is no image of an engine")]
    NotAnImage,
    /// It was written by a later version.
    #[error("the format is version {found}, and this program reads up to version {known}")]
    Newer {
        /// The version that was found.
        found: u8,
        /// The newest that is known.
        known: u8,
    },
    /// Not all of it is there, or not as it was written.
    #[error("the checksum is wrong: something is missing or was altered")]
    Checksum,
    /// A section, or the image, ends in the middle of a value.
    #[error("it ends in the middle of a value")]
    Short,
    /// Another section was due.
    #[error("section {expected} should begin here")]
    Section {
        /// The tag of the section that was due.
        expected: u8,
    },
    /// Something follows the last value of a section, or the last section.
    #[error("it goes on where it should end")]
    Long,
    /// A value cannot be.
    #[error("{0} that cannot be")]
    Value(&'static str),
}
