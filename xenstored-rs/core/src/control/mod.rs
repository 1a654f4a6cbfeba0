//! CONTROL: administration of the daemon by commands in words.

mod quota;
mod report;

use xenstore_wire::{XsError, payload};

use crate::{
    effect::{Effect, Note, Question},
    engine::Engine,
    request::{Outcome, Request, ask, ok},
};

/// Carries a command out; appends the text of the reply.
type Handler = fn(&mut Engine, &Request<'_>, &[&[u8]], &mut Vec<u8>) -> Outcome;

/// A command: its name, its arguments in words, and what serves it.
struct Command {
    name: &'static str,
    arguments: &'static str,
    handler: Handler,
}

/// Every command, in the order in which `help` names them.
const COMMANDS: &[Command] = &[
    Command { name: "check", arguments: "", handler: check },
    Command {
        name: "live-update",
        arguments: "[-c <cmdline>] [-F] [-t <timeout>] [-v <version>] <file>",
        handler: live_update,
    },
    Command { name: "log", arguments: "[on|off|+<switch>|-<switch>]", handler: log },
    Command { name: "logfile", arguments: "<file>", handler: logfile },
    Command { name: "memreport", arguments: "[<file>]", handler: memreport },
    Command { name: "print", arguments: "<string>", handler: print },
    Command { name: "quota", arguments: "[set <name> <val>|<domid>|max [-r]]", handler: quota::quota },
    Command { name: "quota-soft", arguments: "[set <name> <val>]", handler: quota::quota_soft },
    Command { name: "turns", arguments: "", handler: turns },
    Command { name: "help", arguments: "", handler: help },
];

/// CONTROL `command|argument|…`: one of the commands that `help` names.
pub(crate) fn control(engine: &mut Engine, request: &Request<'_>, out: &mut Vec<u8>) -> Outcome {
    let words: Vec<&[u8]> = payload::strings(request.payload).collect();
    let (name, arguments) = words.split_first().ok_or(XsError::Inval)?;
    let command = COMMANDS.iter().find(|command| command.name.as_bytes() == *name).ok_or(XsError::Inval)?;
    (command.handler)(engine, request, arguments, out)
}

/// Ends a text as replies end.
fn finish(out: &mut Vec<u8>, text: &str) -> Outcome {
    out.extend_from_slice(text.as_bytes());
    out.push(0);
    Ok(())
}

fn refuse_arguments(arguments: &[&[u8]]) -> Result<(), XsError> {
    if arguments.is_empty() { Ok(()) } else { Err(XsError::Inval) }
}

fn check(engine: &mut Engine, _request: &Request<'_>, arguments: &[&[u8]], out: &mut Vec<u8>) -> Outcome {
    refuse_arguments(arguments)?;
    if let Some(mended) = engine.store.mend_accounts() {
        engine.effects.push_back(Effect::Note(Note::Mended(mended)));
    }
    ok(out)
}

fn log(engine: &mut Engine, request: &Request<'_>, arguments: &[&[u8]], _out: &mut Vec<u8>) -> Outcome {
    if arguments.len() > 1 {
        return Err(XsError::Inval.into());
    }
    ask(engine, request, Question::Log(arguments.iter().map(|word| word.to_vec()).collect()))
}

fn logfile(engine: &mut Engine, request: &Request<'_>, arguments: &[&[u8]], _out: &mut Vec<u8>) -> Outcome {
    let [file] = arguments else { return Err(XsError::Inval.into()) };
    if file.is_empty() {
        return Err(XsError::Inval.into());
    }
    ask(engine, request, Question::LogFile(file.to_vec()))
}

/// Buffers at hand and highest values seen are of this process, so the report is the shell's answer: whatever is done again
/// after its death has it from there.
fn memreport(engine: &mut Engine, request: &Request<'_>, arguments: &[&[u8]], _out: &mut Vec<u8>) -> Outcome {
    match arguments {
        [] => ask(engine, request, Question::Report { file: None }),
        [file] if !file.is_empty() => ask(engine, request, Question::Report { file: Some(file.to_vec()) }),
        _ => Err(XsError::Inval.into()),
    }
}

fn print(engine: &mut Engine, _request: &Request<'_>, arguments: &[&[u8]], out: &mut Vec<u8>) -> Outcome {
    let [text] = arguments else { return Err(XsError::Inval.into()) };
    engine.effects.push_back(Effect::Note(Note::Print(text.to_vec())));
    ok(out)
}

fn live_update(engine: &mut Engine, request: &Request<'_>, arguments: &[&[u8]], _out: &mut Vec<u8>) -> Outcome {
    if arguments.is_empty() {
        return Err(XsError::Inval.into());
    }
    ask(engine, request, Question::LiveUpdate(arguments.iter().map(|word| word.to_vec()).collect()))
}

fn turns(engine: &mut Engine, request: &Request<'_>, arguments: &[&[u8]], _out: &mut Vec<u8>) -> Outcome {
    refuse_arguments(arguments)?;
    ask(engine, request, Question::Turns)
}

fn help(_engine: &mut Engine, _request: &Request<'_>, arguments: &[&[u8]], out: &mut Vec<u8>) -> Outcome {
    refuse_arguments(arguments)?;
    let lines: String =
        COMMANDS.iter().map(|command| format!("{:<15} {}\n", command.name, command.arguments)).collect();
    finish(out, &lines)
}
