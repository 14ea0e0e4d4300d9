//! `fairlane completions`: completion scripts for shells.

use anyhow::Result;
use clap::{Args, Command};
use clap_complete::Shell;

use crate::output;

const HELP: &str = "\
Made from the program's own definition, so that they have every command and option of this
version.

Examples:
  fairlane completions bash > /usr/share/bash-completion/completions/fairlane
  fairlane completions zsh > /usr/local/share/zsh/site-functions/_fairlane
  fairlane completions fish > ~/.config/fish/completions/fairlane.fish
  source <(fairlane completions bash)         for this shell alone";

/// Options of `fairlane completions`.
#[derive(Clone, Debug, Args)]
#[command(after_help = HELP)]
pub struct Options {
    /// The shell
    shell: Shell,
}

/// Prints the completions of a program with this definition.
pub fn run(options: &Options, mut program: Command) -> Result<()> {
    let name = program.get_name().to_owned();
    let mut text = Vec::new();
    clap_complete::generate(options.shell, &mut program, name, &mut text);
    output::text(&text)
}
