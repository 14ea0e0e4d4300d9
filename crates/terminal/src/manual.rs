//! `fairlane manual`: pages of the manual, from the program's own definition.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Args, Command};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use crate::output;

const HELP: &str = "\
Made from the program's own definition, so that they have every command and option of this
version. A page is named as its command: fairlane.1, fairlane-run.1, fairlane-ctl-set.1.

Examples:
  fairlane manual --out /usr/local/share/man/man1     then: man fairlane, man fairlane-ctl
  fairlane manual | man -l -";

/// Options of `fairlane manual`.
#[derive(Clone, Debug, Args)]
#[command(after_help = HELP)]
pub struct Options {
    /// Write a page for each command into this folder, which is made if need be, instead of the
    /// program's own page to standard output
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Prints or writes the pages of a program with this definition.
pub fn run(options: &Options, program: Command) -> Result<()> {
    let mut program = without_help(program);
    program.build();
    let pages = Pages {
        name: program.get_name().to_owned(),
        version: program.get_version().unwrap_or_default().to_owned(),
    };
    let Some(folder) = &options.out else {
        let text = pages.text(&program, None).context("making the page")?;
        return output::line(text.trim_end());
    };
    let made = fs::create_dir_all(folder);
    made.with_context(|| format!("making the folder {}", folder.display()))?;
    let count = pages.write(&program, None, folder)?;
    output::line(format_args!("{count} pages: {}", folder.display()))
}

/// Without the command `help`, which has a page for every other one.
fn without_help(command: Command) -> Command {
    command
        .disable_help_subcommand(true)
        .mut_subcommands(without_help)
}

struct Pages {
    name: String,
    version: String,
}

impl Pages {
    /// Writes the pages of a command and all below it; how many.
    fn write(&self, command: &Command, above: Option<&Command>, folder: &Path) -> Result<usize> {
        let path = folder.join(format!("{}.1", page(command)));
        let text = self.text(command, above);
        let written = text.and_then(|text| fs::write(&path, text));
        written.with_context(|| format!("writing {}", path.display()))?;
        let mut count = 1;
        for below in command.get_subcommands() {
            count += self.write(below, Some(command), folder)?;
        }
        Ok(count)
    }

    /// The page of a command.
    fn text(&self, command: &Command, above: Option<&Command>) -> io::Result<String> {
        let man = Man::new(command.clone())
            .source(format!("{} {}", self.name, self.version))
            .manual("Fairlane")
            // None, in quotes: else what follows would be taken for it.
            .date("\"\"");
        let mut text = Vec::new();
        man.render_title(&mut text)?;
        man.render_name_section(&mut text)?;
        man.render_synopsis_section(&mut text)?;
        man.render_description_section(&mut text)?;
        man.render_options_section(&mut text)?;
        if command.has_subcommands() {
            man.render_subcommands_section(&mut text)?;
        }
        let mut rest = Roff::default();
        if let Some(help) = command.get_after_long_help().or(command.get_after_help()) {
            notes(&mut rest, &help.to_string());
        }
        if let Some(above) = above {
            rest.control("SH", ["SEE ALSO"]);
            rest.text([bold(page(above)), roman("(1)")]);
        }
        rest.to_writer(&mut text)?;
        // Each section brings the definitions that the page needs once.
        let definitions = Roff::new().render();
        let text = String::from_utf8_lossy(&text).replace(&definitions, "");
        Ok(definitions + &text)
    }
}

/// The name of a command's page.
fn page(command: &Command) -> String {
    let name = command.get_display_name();
    name.unwrap_or_else(|| command.get_name()).to_owned()
}

/// What help says after the options: paragraphs are filled, what is indented stays as it is.
fn notes(page: &mut Roff, help: &str) {
    let is_example = |block: &&str| block.starts_with("Examples:\n");
    let blocks: Vec<_> = help
        .split("\n\n")
        .map(|block| block.trim_matches('\n'))
        .collect();
    let (examples, notes): (Vec<&str>, Vec<&str>) = blocks.iter().copied().partition(is_example);
    for (heading, blocks) in [("NOTES", notes), ("EXAMPLES", examples)] {
        if blocks.is_empty() {
            continue;
        }
        page.control("SH", [heading]);
        for (at, block) in blocks.iter().enumerate() {
            if at > 0 {
                page.control("PP", []);
            }
            let block = block.strip_prefix("Examples:\n").unwrap_or(block);
            let stays = block.lines().any(|line| line.starts_with(' '));
            if stays {
                page.control("nf", []);
            }
            for line in block.lines() {
                page.text([roman(line)]);
            }
            if stays {
                page.control("fi", []);
            }
        }
    }
}
