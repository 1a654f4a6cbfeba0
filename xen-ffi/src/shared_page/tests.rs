use std::{cell::Cell, rc::Rc};

use rstest::rstest;

use super::*;

/// Two pages over the same memory, as two domains have; the first returned owns the memory.
fn twice_mapped() -> (SharedPage, SharedPage) {
    let owner = SharedPage::private();
    // SAFETY: the tests keep the owner at least as long, and pages access their memory atomically only.
    let other = unsafe { SharedPage::from_raw(owner.base, |_| {}) };
    (owner, other)
}

#[test]
fn a_page_is_given_back_once() {
    let given_back = Rc::new(Cell::new(0));
    let memory = SharedPage::private();
    let count = Rc::clone(&given_back);
    let base = memory.base;
    let release = move |address| {
        assert_eq!(address, base);
        count.set(count.get() + 1);
    };
    // SAFETY: `memory` outlives it.
    let page = unsafe { SharedPage::from_raw(memory.base, release) };
    let moved = [page];
    assert_eq!(given_back.get(), 0);
    drop(moved);
    assert_eq!(given_back.get(), 1);
    assert_eq!(Rc::strong_count(&given_back), 1, "the closure is gone too");
}

#[test]
fn a_private_page_is_zero() {
    let mut bytes = [1; PAGE_SIZE];
    SharedPage::private().copy_out(0, &mut bytes);
    assert_eq!(bytes, [0; PAGE_SIZE]);
}

#[test]
fn both_sides_see_what_either_writes() {
    let (server, guest) = twice_mapped();
    server.write_u32(2048, 0x0102_0304);
    assert_eq!(guest.read_u32(2048), 0x0102_0304);
    guest.copy_in(5, b"over");
    let mut bytes = [0; 6];
    server.copy_out(4, &mut bytes);
    assert_eq!(&bytes, b"\0over\0");
}

#[test]
fn numbers_are_in_the_order_of_the_machine() {
    let page = SharedPage::private();
    page.copy_in(8, &7_u32.to_ne_bytes());
    assert_eq!(page.read_u32(8), 7);
}

#[test]
fn every_alignment_and_length_copies_just_its_bytes() {
    let page = SharedPage::private();
    let blank = [0xee; 64];
    let text: Vec<u8> = (1..=40).collect();
    for offset in 0..2 * WORD {
        for len in 0..=text.len() {
            page.copy_in(0, &blank);
            page.copy_in(offset, &text[..len]);
            let mut expected = blank;
            expected[offset..offset + len].copy_from_slice(&text[..len]);
            let mut whole = [0; 64];
            page.copy_out(0, &mut whole);
            assert_eq!(whole, expected, "{len} bytes to {offset}");

            let mut out = vec![0; len];
            page.copy_out(offset, &mut out);
            assert_eq!(out, &text[..len], "{len} bytes from {offset}");
        }
    }
}

#[test]
fn the_last_bytes_of_a_page_are_reached() {
    let page = SharedPage::private();
    page.copy_in(PAGE_SIZE - 3, b"end");
    page.copy_in(PAGE_SIZE, b"");
    page.write_u32(0, 9);
    let mut bytes = [0; 3];
    page.copy_out(PAGE_SIZE - 3, &mut bytes);
    assert_eq!(&bytes, b"end");
    assert_eq!(page.read_u32(PAGE_SIZE - 4), u32::from_ne_bytes(*b"\0end"));
}

#[rstest]
#[case::behind_the_end(|page: &SharedPage| page.copy_in(PAGE_SIZE - 3, b"ends"))]
#[case::from_behind_the_end(|page: &SharedPage| page.copy_in(PAGE_SIZE + 1, b""))]
#[case::an_offset_that_wraps(|page: &SharedPage| page.copy_out(usize::MAX, &mut [0; 2]))]
#[case::a_number_behind_the_end(|page: &SharedPage| page.write_u32(PAGE_SIZE, 0))]
#[case::a_number_across_the_end(|page: &SharedPage| { let _ = page.read_u32(PAGE_SIZE - 2); })]
#[case::a_number_between_numbers(|page: &SharedPage| { let _ = page.read_u32(2); })]
#[should_panic]
fn what_does_not_fit_is_refused(#[case] access: fn(&SharedPage)) {
    access(&SharedPage::private());
}

#[test]
#[cfg_attr(miri, ignore = "maps a file for writing, which the interpreter does not do")]
fn a_mapped_file_shows_what_is_written() {
    use std::{io::Read as _, os::fd::AsFd as _};

    let mut file = tempfile::tempfile().unwrap();
    file.set_len(PAGE_SIZE as u64).unwrap();
    {
        let page = SharedPage::map_file(file.as_fd()).unwrap();
        page.copy_in(0, b"written through the page");
    }
    let mut bytes = [0; 24];
    file.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"written through the page");
}

#[test]
#[cfg_attr(miri, ignore = "maps a file for writing, which the interpreter does not do")]
fn a_file_that_cannot_be_mapped_says_why() {
    use std::os::fd::AsFd as _;

    let (reader, _writer) = std::io::pipe().unwrap();
    let error = SharedPage::map_file(reader.as_fd()).unwrap_err();
    assert_eq!(error.call(), "mmap");
    assert!(matches!(error.errno(), Some(libc::ENODEV | libc::EACCES)), "{error:?}");
}
