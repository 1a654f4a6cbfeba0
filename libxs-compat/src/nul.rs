//! Where strings end. A list of names is long and its names are short, so that it is looked through by words.

const LOW: u64 = 0x7f7f_7f7f_7f7f_7f7f;

/// A word with the top bit of each byte that is NUL in `word`, and no other bits.
fn marks(word: u64) -> u64 {
    // Adding carries into the top bit for every byte but 0 and 0x80, never beyond it.
    !((word & LOW).wrapping_add(LOW) | word | LOW)
}

/// The bytes as words, the first byte lowest, and those that are left over.
fn words(bytes: &[u8]) -> (impl Iterator<Item = u64>, &[u8]) {
    let (words, rest) = bytes.as_chunks::<8>();
    (words.iter().map(|word| u64::from_le_bytes(*word)), rest)
}

/// How many NULs there are.
pub(crate) fn count(bytes: &[u8]) -> usize {
    let (words, rest) = words(bytes);
    // A multiplication adds the eight bytes up in the highest.
    let in_words: u64 = words.map(|word| (marks(word) >> 7).wrapping_mul(0x0101_0101_0101_0101) >> 56).sum();
    let in_rest = rest.iter().filter(|&&byte| byte == 0).count();
    usize::try_from(in_words).unwrap_or(usize::MAX).saturating_add(in_rest)
}

/// Calls `found` with the place of each NUL, in their order.
pub(crate) fn each(bytes: &[u8], mut found: impl FnMut(usize)) {
    let (words, rest) = words(bytes);
    let mut place = 0usize;
    for word in words {
        let mut marks = marks(word);
        while marks != 0 {
            found(place.wrapping_add((marks.trailing_zeros() / 8) as usize));
            marks &= marks.wrapping_sub(1);
        }
        place = place.wrapping_add(8);
    }
    for (offset, &byte) in rest.iter().enumerate() {
        if byte == 0 {
            found(place.wrapping_add(offset));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::none(b"abc")]
    #[case::empty(b"")]
    #[case::in_a_word(b"ab\0cd\0ef")]
    #[case::in_the_rest(b"abcdefgh\0i\0")]
    #[case::all(&[0; 19])]
    #[case::around_other_bits(&[0x80, 0, 0x80, 1, 0xff, 0x7f, 0, 0x81, 0, 0x80])]
    fn each_nul_is_found_once(#[case] bytes: &[u8]) {
        let want: Vec<_> = bytes.iter().enumerate().filter(|(_, byte)| **byte == 0).map(|(place, _)| place).collect();
        let mut places = Vec::new();
        each(bytes, |place| places.push(place));
        assert_eq!((places, count(bytes)), (want.clone(), want.len()));
    }

    #[test]
    fn every_byte_beside_every_byte() {
        for first in 0..=255u8 {
            for second in 0..=255u8 {
                let bytes = [first, second, 1, first, second, first, 1, second];
                assert_eq!(count(&bytes), bytes.iter().filter(|&&byte| byte == 0).count());
            }
        }
    }
}
