//! `fairlane manual`: the pages of the manual, from the program's own definition and the schema of site files.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Args, Command};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, italic, roman};
use fairlane_config::schema;
use serde_json::Value;

use crate::output;

const HELP: &str = "\
Made from the program's own definition and from the schema of site files, so that they have every
command, option and key of this version. A page is named as its command: fairlane.1,
fairlane-bench.1, fairlane-run.8, fairlane-ctl-set.8. Section 8 has the commands of an
administrator, and fairlane.toml.5 the keys of a site file.

Examples:
  fairlane manual --out /usr/local/share/man     then: man fairlane-ctl, man 5 fairlane.toml
  fairlane manual | man -l -";

/// Commands for administrators: they and their subcommands are in section 8.
const ADMINISTRATION: [&str; 5] = ["check", "ctl", "init", "run", "top"];
/// The page of the file format.
const FORMAT: &str = "fairlane.toml";

/// Options of `fairlane manual`.
#[derive(Clone, Debug, Args)]
#[command(after_help = HELP)]
pub struct Options {
    /// Write all pages below this folder, into man1, man5 and man8, which are made if need be, instead
    /// of the program's own page to standard output
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
        let text = pages.text(&program, None, '1').context("making the page")?;
        return output::line(text.trim_end());
    };
    let count = pages.write(&program, None, '1', folder)?;
    write(folder, FORMAT, '5', pages.format())?;
    output::line(format_args!("{} pages: {}", count + 1, folder.display()))
}

/// Writes a page into the directory of its section.
fn write(folder: &Path, name: &str, section: char, text: io::Result<String>) -> Result<()> {
    let folder = folder.join(format!("man{section}"));
    let made = fs::create_dir_all(&folder);
    made.with_context(|| format!("making the folder {}", folder.display()))?;
    let path = folder.join(format!("{name}.{section}"));
    let written = text.and_then(|text| fs::write(&path, text));
    written.with_context(|| format!("writing {}", path.display()))
}

/// Returns the section of a command whose parent is in `above`.
fn section(command: &Command, above: char) -> char {
    match ADMINISTRATION.contains(&command.get_name()) {
        true => '8',
        false => above,
    }
}

/// Removes the subcommand `help`, which would have a page for every other command.
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
    /// Writes the pages of a command and its subcommands, and returns their number.
    fn write(
        &self,
        command: &Command,
        above: Option<(&Command, char)>,
        section_number: char,
        folder: &Path,
    ) -> Result<usize> {
        let text = self.text(command, above, section_number);
        write(folder, &page(command), section_number, text)?;
        let mut count = 1;
        for below in command.get_subcommands() {
            let above = Some((command, section_number));
            count += self.write(below, above, section(below, section_number), folder)?;
        }
        Ok(count)
    }

    /// Returns the page of a command.
    fn text(
        &self,
        command: &Command,
        above: Option<(&Command, char)>,
        section_number: char,
    ) -> io::Result<String> {
        let man = Man::new(command.clone())
            .section(section_number)
            .source(format!("{} {}", self.name, self.version))
            .manual("Fairlane")
            // An empty date must be quoted, or the next argument would be taken for it.
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
        let above = above.map(|(above, section)| (page(above), section));
        let format = (section_number == '8').then(|| (FORMAT.to_owned(), '5'));
        see_also(&mut rest, above.into_iter().chain(format));
        rest.to_writer(&mut text)?;
        // Each section repeats definitions that the page needs once.
        let definitions = Roff::new().render();
        let mut text = String::from_utf8_lossy(&text).replace(&definitions, "");
        // The generator names subcommands as if they were in the section of this page.
        for below in command.get_subcommands() {
            let name = page(below).replace('-', "\\-");
            let of = |section: char| format!("{name}({section})");
            text = text.replace(&of(section_number), &of(section(below, section_number)));
        }
        Ok(definitions + &text)
    }

    /// Returns the page of the file format: every table and key of its schema.
    fn format(&self) -> io::Result<String> {
        let schema: Value = serde_json::from_str(schema())?;
        let mut page = Roff::default();
        let source = format!("{} {}", self.name, self.version);
        page.control("TH", [FORMAT, "5", "", &source, "Fairlane"]);
        page.control("SH", ["NAME"]);
        page.text([roman(format!("{FORMAT} - the site file of Fairlane"))]);
        page.control("SH", ["SYNOPSIS"]);
        page.text([
            roman("/etc/fairlane/site.toml, /etc/fairlane/"),
            italic("NAME"),
            roman(".toml"),
        ]);
        page.control("SH", ["DESCRIPTION"]);
        let description = schema["description"].as_str().unwrap_or_default();
        page.text([roman(description)]);
        page.control("PP", []);
        page.text([roman(DESCRIPTION)]);
        tables(&mut page, &schema, "", &schema["properties"]);
        let more = ["check", "ctl", "init", "run"];
        let more = more.map(|command| (format!("{}-{command}", self.name), '8'));
        see_also(
            &mut page,
            [(self.name.clone(), '1')].into_iter().chain(more),
        );
        Ok(page.render())
    }
}

const DESCRIPTION: &str = "It is TOML. An unknown key, a value that its key cannot have, and guarantees that \
    exceed the rate of their link are errors, with line and column. Each section below is a table; two brackets \
    mark one that a file may have several times. Keys that a table needs are marked as required.";

/// Adds a section for each of these properties that is a table, and for the tables within it.
fn tables(page: &mut Roff, schema: &Value, within: &str, properties: &Value) {
    for (name, property) in properties.as_object().into_iter().flatten() {
        let name = format!("{within}{name}");
        let (heading, reference) = match &property["items"]["$ref"] {
            Value::Null => (format!("[{name}]"), &property["$ref"]),
            several => (format!("[[{name}]]"), several),
        };
        let Some(table) = table(schema, reference) else {
            continue;
        };
        page.control("SH", [&*heading]);
        let text = |of: &Value| of["description"].as_str().unwrap_or_default().to_owned();
        page.text([roman(text(property))]);
        let required = table["required"].as_array();
        for (key, value) in table["properties"].as_object().into_iter().flatten() {
            page.control("TP", []);
            let needed = required.is_some_and(|keys| keys.iter().any(|name| name == key));
            page.text([bold(key), roman(if needed { " (required)" } else { "" })]);
            page.text([roman(text(value))]);
            let words = value["enum"].as_array().into_iter().flatten();
            let words: Vec<_> = words.map(Value::to_string).collect();
            if words.iter().any(|word| !text(value).contains(word)) {
                page.text([roman(format!("One of {}.", words.join(", ")))]);
            }
        }
        tables(page, schema, &format!("{name}."), &table["properties"]);
    }
}

/// Returns the definition of a table: the only alternative of a key that takes a word or a table.
fn table<'a>(schema: &'a Value, reference: &Value) -> Option<&'a Value> {
    let name = reference.as_str()?.strip_prefix("#/$defs/")?;
    let found = &schema["$defs"][name];
    match &found["anyOf"] {
        Value::Null => Some(found).filter(|found| found["properties"].is_object()),
        several => several
            .as_array()?
            .iter()
            .find_map(|one| table(schema, &one["$ref"])),
    }
}

fn see_also(page: &mut Roff, pages: impl IntoIterator<Item = (String, char)>) {
    let mut names = Vec::new();
    for (name, section) in pages {
        let comma = if names.is_empty() { "" } else { ", " };
        names.extend([roman(comma), bold(name), roman(format!("({section})"))]);
    }
    if !names.is_empty() {
        page.control("SH", ["SEE ALSO"]);
        page.text(names);
    }
}

/// Returns the name of a command's page.
fn page(command: &Command) -> String {
    let name = command.get_display_name();
    name.unwrap_or_else(|| command.get_name()).to_owned()
}

/// Adds the notes after the options in the help text: paragraphs are filled, indented lines are kept.
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
