//! libxenstore as C programs see it: headers, symbols, results, errors and memory, beside Debian's libxenstore4; and
//! bindings of other languages.

mod compiler;
mod headers;
