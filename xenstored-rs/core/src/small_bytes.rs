//! Names and values in sixteen bytes.

use std::rc::Rc;

/// Bytes of a name or a value: short ones in place, longer ones shared.
///
/// Most names and values of a xenstore are shorter than fifteen bytes, and there are two in every node.
#[derive(Clone, Debug)]
pub(crate) enum SmallBytes {
    /// Up to [`SmallBytes::INLINE`] bytes.
    Short { len: u8, bytes: [u8; Self::INLINE] },
    /// Anything longer; a copy of the node shares it.
    Long(Rc<Box<[u8]>>),
}

impl SmallBytes {
    /// Most bytes that need no memory of their own.
    const INLINE: usize = 14;

    /// No bytes.
    pub(crate) fn empty() -> Self {
        Self::Short { len: 0, bytes: [0; Self::INLINE] }
    }

    /// The bytes.
    pub(crate) fn as_slice(&self) -> &[u8] {
        match self {
            Self::Short { len, bytes } => &bytes[..usize::from(*len)],
            Self::Long(bytes) => bytes,
        }
    }

    /// Number of bytes.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Short { len, .. } => usize::from(*len),
            Self::Long(bytes) => bytes.len(),
        }
    }
}

impl From<&[u8]> for SmallBytes {
    fn from(slice: &[u8]) -> Self {
        match u8::try_from(slice.len()) {
            Ok(len) if slice.len() <= Self::INLINE => {
                let mut bytes = [0; Self::INLINE];
                bytes[..slice.len()].copy_from_slice(slice);
                Self::Short { len, bytes }
            }
            _ => Self::Long(Rc::new(slice.into())),
        }
    }
}

impl std::borrow::Borrow<[u8]> for SmallBytes {
    fn borrow(&self) -> &[u8] {
        self.as_slice()
    }
}

impl PartialEq for SmallBytes {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for SmallBytes {}

impl PartialOrd for SmallBytes {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for SmallBytes {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.as_slice().cmp(other.as_slice())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sixteen_bytes_hold_it() {
        assert_eq!(size_of::<SmallBytes>(), 16);
    }

    #[test]
    fn every_length_comes_back() {
        for len in 0..40 {
            let bytes: Vec<u8> = (0..len).collect();
            let small = SmallBytes::from(bytes.as_slice());
            assert_eq!(small.as_slice(), bytes);
            assert_eq!(small.len(), bytes.len());
        }
    }
}
