//! What guests, their domains and time can do to the daemon, one step after the other.

use arbitrary::Arbitrary;
use xen_sim::Word;

use crate::Request;

/// One of the guests that do what they like.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub struct Who(u8);

impl Who {
    /// Its place among `count` guests.
    #[must_use]
    pub fn index(self, count: usize) -> usize {
        usize::from(self.0) % count
    }
}

/// What a word of a ring page is set to.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum Index {
    /// This number.
    Exactly(u32),
    /// What it is, and so much more or less.
    Off(i16),
    /// So far from another word.
    From(u8, i16),
}

impl Index {
    /// The number, where `word` tells what words are.
    #[must_use]
    pub fn value(self, now: u32, word: impl Fn(Word) -> u32) -> u32 {
        match self {
            Self::Exactly(value) => value,
            Self::Off(by) => now.wrapping_add_signed(by.into()),
            Self::From(other, by) => word(nth_word(other)).wrapping_add_signed(by.into()),
        }
    }
}

/// A word behind the two rings.
#[must_use]
pub(crate) fn nth_word(number: u8) -> Word {
    Word::ALL[usize::from(number) % Word::ALL.len()]
}

/// One step.
#[derive(Arbitrary, Clone, Debug)]
pub enum RingStep {
    /// A guest asks as a kernel should, in the transaction of this number; without a signal if it forgets.
    Ask(Who, u8, bool, Request),
    /// A guest puts bytes where requests go.
    Send(Who, Vec<u8>),
    /// A guest takes so many reply bytes.
    Take(Who, u16),
    /// A guest writes a word of its page.
    Word(Who, u8, Index),
    /// A guest writes anywhere in its page.
    Scribble(Who, u16, Vec<u8>),
    /// A guest writes a word of its page between two accesses of the daemon, after so many.
    Between(u16, Who, u8, Index),
    /// A guest signals.
    Signal(Who),
    /// The daemon takes one turn.
    Turn,
    /// The daemon looks for guests that forgot to signal.
    LookForForgetful,
    /// Time passes: so many hundredths of a second.
    Wait(u16),
    /// A toolstack introduces the domain, perhaps with a new port as after kexec.
    Introduce(Who, bool),
    /// A toolstack releases the domain.
    Release(Who),
    /// The domain shuts down.
    ShutDown(Who),
    /// The domain runs again, and a toolstack tells of it.
    Resume(Who),
    /// The domain is destroyed, and its number given to a new one.
    Replace(Who),
}
