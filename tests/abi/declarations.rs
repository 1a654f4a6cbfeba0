//! The headers declare what the library defines: cbindgen makes the declarations afresh from its functions, and those in
//! the headers must be the same, letter by letter. `HEADERS=write` puts the new ones in place of the old.

use crate::compiler::{include, root};
use regex::Regex;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::Range;

const HEADERS: [&str; 2] = ["xenstore.h", "xenstore_lib.h"];

/// Set to `write`, this variable has the headers brought up to date.
const MODE: &str = "HEADERS";

/// The declarations by cbindgen, by the functions' names.
fn made() -> BTreeMap<String, String> {
    let library = root().join("libxs-compat");
    let mut config = cbindgen::Config {
        language: cbindgen::Language::C,
        style: cbindgen::Style::Tag,
        no_includes: true,
        documentation: false,
        line_length: 80,
        ..cbindgen::Config::default()
    };
    config.export.item_types = vec![cbindgen::ItemType::Functions];
    let bindings = cbindgen::Builder::new().with_crate(library).with_config(config).generate();
    let mut text = Vec::new();
    bindings.expect("cbindgen reads the library").write(&mut text);
    let text = String::from_utf8(text).expect("C is text");
    declarations(&text).into_iter().map(|(name, span)| (name, text[span].to_owned())).collect()
}

/// Where a C text declares functions: from the type to the semicolon, without comments and directives.
fn declarations(text: &str) -> Vec<(String, Range<usize>)> {
    let declaration = Regex::new(r"(?m)^[a-z][a-z_ ]* \**(xs_[a-z_]+)\([^;{]*\);").expect("a pattern");
    let found = declaration.captures_iter(text);
    found.map(|found| (found[1].to_owned(), found.get(0).expect("all of it").range())).collect()
}

#[test]
fn the_headers_declare_what_the_library_defines() {
    let made = made();
    assert_eq!(made.len(), 47, "{:?}", made.keys());
    let mut declared = BTreeSet::new();
    for header in HEADERS {
        let path = include().join(header);
        let mut text = fs::read_to_string(&path).expect("the header");
        let found = declarations(&text);
        for (name, span) in found.into_iter().rev() {
            let new = made.get(&name).unwrap_or_else(|| panic!("{header} declares {name}, which no function defines"));
            if std::env::var_os(MODE).is_some_and(|mode| mode == "write") {
                text.replace_range(span, new);
            } else {
                assert_eq!(&text[span], new, "{header}: left the header, right what cbindgen makes; see {MODE}=write");
            }
            assert!(declared.insert(name.clone()), "{name} is declared twice");
        }
        if std::env::var_os(MODE).is_some_and(|mode| mode == "write") {
            fs::write(&path, text).expect("the header can be written");
        }
    }
    let missing: Vec<_> = made.keys().filter(|name| !declared.contains(*name)).collect();
    assert!(missing.is_empty(), "no header declares {missing:?}: add them where they belong, with what they do");
}
