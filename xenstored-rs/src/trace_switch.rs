//! What the trace shows: the switches of `--trace-control` and of the control command `log`.

/// A kind of trace lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TraceSwitch {
    /// Connections, watches and transactions that come and go.
    Obj,
    /// Messages in and out.
    Io,
    /// Write limiting of domains.
    Wrl,
    /// Accounting of domains.
    Acc,
    /// Accesses to the tree.
    Tdb,
}

impl TraceSwitch {
    /// Every switch, in the order in which they are listed.
    pub const ALL: [Self; 5] = [Self::Obj, Self::Io, Self::Wrl, Self::Acc, Self::Tdb];

    /// The name of the switch; its lines begin with it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Obj => "obj",
            Self::Io => "io",
            Self::Wrl => "wrl",
            Self::Acc => "acc",
            Self::Tdb => "tdb",
        }
    }

    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// A text that names no switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no such trace switch")]
pub struct UnknownTraceSwitch;

/// The set of switches that are on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceSwitches(u8);

impl Default for TraceSwitches {
    /// `obj` and `io`.
    fn default() -> Self {
        Self(TraceSwitch::Obj.bit() | TraceSwitch::Io.bit())
    }
}

impl TraceSwitches {
    /// Whether the switch is on.
    #[must_use]
    pub const fn is_on(self, switch: TraceSwitch) -> bool {
        self.0 & switch.bit() != 0
    }

    /// Takes a change as written on the command line: `+` or `-` and a name.
    ///
    /// # Errors
    /// If the text is anything else.
    pub fn change(&mut self, text: &str) -> Result<(), UnknownTraceSwitch> {
        let (sign, name) = text.split_at_checked(1).ok_or(UnknownTraceSwitch)?;
        let switch = TraceSwitch::ALL.into_iter().find(|switch| switch.name() == name).ok_or(UnknownTraceSwitch)?;
        match sign {
            "+" => self.0 |= switch.bit(),
            "-" => self.0 &= !switch.bit(),
            _ => return Err(UnknownTraceSwitch),
        }
        Ok(())
    }

    /// The answer of the control command `log`: a title, then one line a switch.
    #[must_use]
    pub fn listing(self) -> String {
        let mut text = String::from("Log switch settings:\n");
        for switch in TraceSwitch::ALL {
            let state = if self.is_on(switch) { "on" } else { "off" };
            text.push_str(&format!("{:<8}: {state}\n", switch.name()));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_and_messages_are_on_at_first() {
        assert_eq!(
            TraceSwitches::default().listing(),
            "Log switch settings:\nobj     : on\nio      : on\nwrl     : off\nacc     : off\ntdb     : off\n"
        );
    }

    #[test]
    fn a_change_touches_one_switch() {
        let mut switches = TraceSwitches::default();
        switches.change("+tdb").unwrap();
        switches.change("-obj").unwrap();
        switches.change("-obj").unwrap();
        let on: Vec<_> = TraceSwitch::ALL.into_iter().filter(|&switch| switches.is_on(switch)).collect();
        assert_eq!(on, [TraceSwitch::Io, TraceSwitch::Tdb]);
    }

    #[test]
    fn junk_is_refused_and_changes_nothing() {
        let mut switches = TraceSwitches::default();
        for junk in ["", "+", "io", "+IO", "*io", "+io ", "é", "++io"] {
            assert_eq!(switches.change(junk), Err(UnknownTraceSwitch), "{junk:?}");
        }
        assert_eq!(switches, TraceSwitches::default());
    }
}
