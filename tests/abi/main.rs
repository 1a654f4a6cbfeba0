//! libxenstore as C programs see it: headers, symbols, results, errors and memory, beside Debian's libxenstore4; and
//! bindings of other languages.

mod bindings;
mod compiler;
mod declarations;
mod differential;
mod endings;
mod headers;
mod library;
mod memory;
mod newer;
mod places;
mod program;
mod reconnect;
mod replies;
mod stage;
mod symbols;
mod tools;
