//! The command line, shared by the `torchlike` program and the wheel's command of that name.

mod convert;
mod diff;
mod fingerprint;
mod inspect;
mod output;
pub(crate) mod progress;
mod scan;
mod tree;
mod verify;

use crate::Error;
use lexopt::{Arg, Parser, ValueExt};
use std::ffi::OsString;
use std::io::Write;

/// All is well; what was compared is the same.
const GOOD: i32 = 0;
/// What was compared differs, what was verified is damaged.
const BAD: i32 = 1;
/// The command is wrong, or a file cannot be read or written.
const FAILED: i32 = 2;

/// A command: its name, what it does in a few words, its help, and itself.
struct Command {
    name: &'static str,
    summary: &'static str,
    help: &'static str,
    run: fn(&mut Parser, &mut Terminal<'_>) -> Result<i32, Failure>,
}

const COMMANDS: &[Command] = &[
    inspect::COMMAND,
    tree::COMMAND,
    diff::COMMAND,
    verify::COMMAND,
    scan::COMMAND,
    convert::CONVERT,
    convert::EXTRACT,
    fingerprint::COMMAND,
];

/// Where a command writes to.
struct Terminal<'a> {
    out: &'a mut dyn Write,
    errors: &'a mut dyn Write,
}

/// Why a command did not do what it should.
enum Failure {
    /// It was called wrongly.
    Usage(String),
    /// A file could not be read or written.
    Error(Error),
    /// Nobody reads what it writes any more, which is no failure.
    Closed,
    /// `--help` was asked for.
    Help,
}

impl From<lexopt::Error> for Failure {
    fn from(e: lexopt::Error) -> Self {
        Self::Usage(e.to_string())
    }
}

impl From<Error> for Failure {
    fn from(e: Error) -> Self {
        Self::Error(e)
    }
}

impl From<std::io::Error> for Failure {
    fn from(e: std::io::Error) -> Self {
        match e.kind() {
            std::io::ErrorKind::BrokenPipe => Self::Closed,
            _ => Self::Error(e.into()),
        }
    }
}

impl From<serde_json::Error> for Failure {
    fn from(e: serde_json::Error) -> Self {
        std::io::Error::from(e).into()
    }
}

fn usage(text: impl Into<String>) -> Failure {
    Failure::Usage(text.into())
}

/// Runs the command line with these arguments (without the program's name), and gives the exit code:
/// 0 if all is well, 1 if files differ or are damaged, 2 for a wrong command and files that cannot be read or written.
pub fn main(
    args: impl IntoIterator<Item = impl Into<OsString>>,
    out: &mut impl Write,
    errors: &mut impl Write,
) -> i32 {
    let mut parser = Parser::from_args(args.into_iter().map(Into::into).collect::<Vec<_>>());
    let mut terminal = Terminal { out, errors };
    let (command, done) = dispatch(&mut parser, &mut terminal);
    let done = done.and_then(|code| {
        terminal.out.flush()?;
        Ok(code)
    });
    let name = command.map(|c| format!(" {}", c.name)).unwrap_or_default();
    // An error that cannot be shown is still an exit code.
    match done {
        Ok(code) => code,
        Err(Failure::Closed) => GOOD,
        Err(Failure::Help) => {
            let text = command.map_or_else(help, |c| c.help.to_owned());
            let _ = terminal.out.write_all(text.as_bytes());
            let _ = terminal.out.flush();
            GOOD
        }
        Err(Failure::Usage(e)) => {
            let _ = writeln!(
                terminal.errors,
                "torchlike{name}: {e}\nTry 'torchlike{name} --help'."
            );
            FAILED
        }
        Err(Failure::Error(e)) => {
            let _ = writeln!(terminal.errors, "torchlike{name}: {e}");
            FAILED
        }
    }
}

fn dispatch(
    parser: &mut Parser,
    terminal: &mut Terminal<'_>,
) -> (Option<&'static Command>, Result<i32, Failure>) {
    let first = match parser.next() {
        Ok(Some(first)) => first,
        Ok(None) => return (None, Err(usage("no command given"))),
        Err(e) => return (None, Err(e.into())),
    };
    let name = match first {
        Arg::Short('h') | Arg::Long("help") => return (None, Err(Failure::Help)),
        Arg::Short('V') | Arg::Long("version") => {
            let done = writeln!(terminal.out, "torchlike {}", env!("CARGO_PKG_VERSION"));
            return (None, done.map(|()| GOOD).map_err(Into::into));
        }
        Arg::Value(name) => name.string(),
        other => return (None, Err(other.unexpected().into())),
    };
    let name = match name {
        Ok(name) => name,
        Err(e) => return (None, Err(e.into())),
    };
    match COMMANDS.iter().find(|c| c.name == name) {
        Some(command) => (Some(command), (command.run)(parser, terminal)),
        None => (None, Err(usage(format!("unknown command '{name}'")))),
    }
}

fn help() -> String {
    let mut text = String::from(
        "torchlike: look into checkpoints without loading them, and without executing anything in them\n\n\
         Usage: torchlike COMMAND [OPTIONS] FILE...\n\nCommands:\n",
    );
    for c in COMMANDS {
        text.push_str(&format!("  {:<12} {}\n", c.name, c.summary));
    }
    text.push_str(
        "\nEach takes --json, to print one JSON object in place of text, and --help.\n\
         Options:\n  -h, --help\n  -V, --version\n\n\
         Exit codes: 0 all is well, 1 files differ or are damaged, 2 the command is wrong or a file cannot be read or written\n",
    );
    text
}
