//! Values one by one, without an engine.

use std::{collections::BTreeSet, time::Duration};

use proptest::prelude::{ProptestConfig, any, prop_assert_eq, proptest};
use rstest::rstest;

use super::*;
use crate::{
    CloseReason, Question,
    id::{DomId, Time},
    permission::{Access, Permission, Permissions},
    quota::{Limit, Limits, OwnLimits, Quota},
};

/// An image of one section with what `save` writes.
fn image(save: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut sink = |piece: &[u8]| bytes.extend_from_slice(piece);
    let mut out = Writer::new(&mut sink);
    out.section(Tag::Engine);
    save(&mut out);
    out.finish();
    bytes
}

/// What `restore` reads of such an image, all of which it must read.
fn read<'b, T>(
    image: &'b [u8],
    restore: impl FnOnce(&mut Reader<'b>) -> Result<T, ImageError>,
) -> Result<T, ImageError> {
    let mut input = Reader::new(image)?;
    input.section(Tag::Engine)?;
    let value = restore(&mut input)?;
    input.finish()?;
    Ok(value)
}

/// A value that was written and read.
fn there_and_back<T: Stored>(value: &T) -> T {
    read(&image(|out| value.save(out)), Reader::get).unwrap()
}

#[rstest]
#[case::nothing(0, 1)]
#[case::largest_of_one_byte(127, 1)]
#[case::smallest_of_two(128, 2)]
#[case::largest_of_two(16_383, 2)]
#[case::word(u64::from(u32::MAX), 5)]
#[case::largest_of_nine(u64::MAX >> 1, 9)]
#[case::largest(u64::MAX, 10)]
fn numbers_take_seven_bits_a_byte(#[case] number: u64, #[case] len: usize) {
    let image = image(|out| number.save(out));
    assert_eq!(image.len(), START + FRAME + len + SUM);
    assert_eq!(read(&image, Reader::get), Ok(number));
}

#[rstest]
#[case::more_than_64_bits(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02])]
#[case::eleven_bytes(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x81, 0x00])]
fn numbers_have_64_bits_at_most(#[case] bytes: &[u8]) {
    let image = image(|out| bytes.iter().for_each(|byte| out.byte(*byte)));
    let error = read(&image, Reader::get::<u64>).unwrap_err();
    assert_eq!(error.fault, ImageFault::Value("a number"));
}

#[test]
fn a_number_must_fit_its_type() {
    let image = image(|out| 65_536u32.save(out));
    assert_eq!(read(&image, Reader::get::<u16>).unwrap_err().fault, ImageFault::Value("a number"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { ProptestConfig::default().cases }))]

    #[test]
    fn plain_values_come_back(
        numbers in any::<(u16, u32, u64, i64, usize)>(),
        flags in any::<(bool, Option<bool>)>(),
        bytes in any::<Vec<u8>>(),
        text in any::<String>(),
        time in any::<Duration>(),
        set in any::<BTreeSet<u64>>(),
    ) {
        let (two, four, eight, signed, size) = numbers;
        prop_assert_eq!(there_and_back(&two), two);
        prop_assert_eq!(there_and_back(&four), four);
        prop_assert_eq!(there_and_back(&eight), eight);
        prop_assert_eq!(there_and_back(&signed), signed);
        prop_assert_eq!(there_and_back(&size), size);
        prop_assert_eq!(there_and_back(&flags.0), flags.0);
        prop_assert_eq!(there_and_back(&flags.1), flags.1);
        prop_assert_eq!(&*there_and_back(&bytes.clone().into_boxed_slice()), &*bytes);
        prop_assert_eq!(there_and_back(&text), text);
        prop_assert_eq!(there_and_back(&Time(time)), Time(time));
        prop_assert_eq!(there_and_back(&set), set);
    }

    #[test]
    fn many_bytes_come_back_whatever_stands_before(before in 0usize..2 * PIECE, count in 0usize..3 * PIECE) {
        let many: Vec<u8> = (0..=250).cycle().take(count).collect();
        let image = image(|out| {
            (0..before).for_each(|_| out.byte(7));
            out.many_bytes(&many);
            out.record();
            out.byte(9);
        });
        let got = read(&image, |input| {
            input.take(before)?;
            let many = input.many_bytes()?;
            input.record()?;
            Ok((many, input.byte()?))
        });
        prop_assert_eq!(got, Ok((many, 9)));
    }
}

/// What is wrong with bytes that should be such a value.
fn wrong<T: Stored>(bytes: &[u8]) -> ImageFault {
    let image = image(|out| bytes.iter().for_each(|byte| out.byte(*byte)));
    let error = read(&image, Reader::get::<T>).err().expect("it cannot be");
    assert!((START + FRAME..=image.len() - SUM).contains(&error.offset), "{error}");
    error.fault
}

#[test]
fn what_cannot_be_is_refused_by_name() {
    assert_eq!(wrong::<bool>(&[2]), ImageFault::Value("a flag"));
    assert_eq!(wrong::<Option<bool>>(&[2, 0]), ImageFault::Value("a flag"));
    assert_eq!(wrong::<Time>(&[0, 0x80, 0x94, 0xeb, 0xdc, 0x03]), ImageFault::Value("a time"));
    assert_eq!(wrong::<String>(&[1, 0xff]), ImageFault::Value("a text"));
    assert_eq!(wrong::<Question>(&[99]), ImageFault::Value("a question"));
    assert_eq!(wrong::<CloseReason>(&[99]), ImageFault::Value("a reason to close"));
    assert_eq!(wrong::<Permission>(&[0, b'x', 0]), ImageFault::Value("an access"));
    assert_eq!(wrong::<Limits>(&[1, 5]), ImageFault::Value("a number of values"));
    let beyond = image(|out| out.byte(1));
    assert_eq!(read(&beyond, Reader::permissions).unwrap_err().fault, ImageFault::Value("a permission list"));
}

#[test]
fn a_count_of_more_than_there_are_bytes_is_short() {
    let image = image(|out| out.number(1 << 40));
    let short = |error: ImageError| error.fault == ImageFault::Short;
    assert!(read(&image, |input| input.bytes().map(<[u8]>::to_vec)).is_err_and(short));
    assert!(read(&image, Reader::get::<Vec<u64>>).is_err_and(short));
    assert!(read(&image, Reader::get::<String>).is_err_and(short));
    // Those may go on in another piece, and there is none.
    let ends = |error: ImageError| error.fault == ImageFault::Section { expected: Tag::Engine as u8 };
    assert!(read(&image, Reader::many_bytes).is_err_and(ends));
}

#[test]
fn another_section_or_more_than_is_read_is_told() {
    let image = image(|out| 5u64.save(out));
    let mut input = Reader::new(&image).unwrap();
    assert_eq!(input.section(Tag::Nodes).unwrap_err().fault, ImageFault::Section { expected: Tag::Nodes as u8 });
    let mut input = Reader::new(&image).unwrap();
    input.section(Tag::Engine).unwrap();
    assert_eq!(input.section(Tag::Domains).unwrap_err().fault, ImageFault::Long);
    assert_eq!(read(&image, |_| Ok(())).unwrap_err().fault, ImageFault::Long);
}

/// A list of a few entries that is like no other of another number.
fn list(number: u16) -> Permissions {
    let entry = |domid, access| Permission { domid: DomId(domid), access, ignored: number.is_multiple_of(3) };
    Permissions::new(entry(number, Access::None), vec![entry(7, Access::Read); usize::from(number % 4)])
}

#[test]
fn a_permission_list_is_written_once_wherever_it_stands_in_memory() {
    let one = image(|out| out.permissions(&list(2)));
    let thousand = image(|out| (0..1000).for_each(|_| out.permissions(&list(2))));
    assert_eq!(thousand.len(), one.len() + 999);
    let lists = read(&thousand, |input| (0..1000).map(|_| input.permissions()).collect::<Result<Vec<_>, _>>()).unwrap();
    assert!(lists.iter().all(|read| *read == list(2) && read.address() == lists[0].address()));
}

#[test]
fn many_permission_lists_are_told_apart() {
    let lists: Vec<Permissions> = (0..5000).map(list).collect();
    let image = image(|out| {
        for list in lists.iter().chain(lists.iter().rev()) {
            out.record();
            out.permissions(list);
        }
    });
    let got = read(&image, |input| {
        let mut got = Vec::new();
        for _ in 0..2 * lists.len() {
            input.record()?;
            got.push(input.permissions()?);
        }
        Ok(got)
    });
    assert_eq!(got.unwrap(), lists.iter().chain(lists.iter().rev()).cloned().collect::<Vec<_>>());
}

#[test]
fn limits_come_back() {
    let (mut all, mut own) = (Limits::default(), OwnLimits::default());
    for (number, limit) in (1..).zip(Limit::all()) {
        all.set(limit, number);
        assert_eq!(there_and_back(&all), all);
    }
    own.set(Limit::Hard(Quota::Memory), 5);
    own.set(Limit::SoftMemory, 0);
    assert_eq!(there_and_back(&own), own);
}

#[rstest]
#[case::introduce(Question::Introduce { domid: DomId(5), gfn: u64::MAX, port: 3 })]
#[case::exist(Question::Exist(vec![DomId(1), DomId(65_535)]))]
#[case::log(Question::Log(vec![b"on".to_vec(), Vec::new()]))]
#[case::log_file(Question::LogFile(b"/a b".to_vec()))]
#[case::report(Question::Report { file: None })]
#[case::report_to_a_file(Question::Report { file: Some(b"f".to_vec()) })]
#[case::turns(Question::Turns)]
#[case::live_update(Question::LiveUpdate(vec![b"-f".to_vec()]))]
fn questions_come_back(#[case] question: Question) {
    assert_eq!(there_and_back(&question), question);
}

#[rstest]
#[case::too_long(CloseReason::TooLong { len: u32::MAX })]
#[case::output(CloseReason::OutputFull { bytes: 5 })]
#[case::ring(CloseReason::RingIndex)]
#[case::gone(CloseReason::Gone)]
#[case::failed(CloseReason::Failed { what: "told to".to_owned(), op: 9 })]
fn reasons_come_back(#[case] reason: CloseReason) {
    assert_eq!(there_and_back(&reason), reason);
}
