//! C compilers, which build programs with the library that cargo built for this test.

use std::path::{Path, PathBuf};
use std::process::{self, Command, Stdio};
use std::{env, fs};

/// How the library is linked.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Library {
    /// As a shared object.
    Shared,
    /// As an archive.
    Static,
}

/// Whether a program is installed.
pub(crate) fn is_there(program: &str) -> bool {
    let mut command = Command::new(program);
    command.arg("--version");
    let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

/// Returns the installed C compilers.
pub(crate) fn compilers() -> Vec<&'static str> {
    let named = ["gcc", "clang"].into_iter();
    let mut found: Vec<_> = named.filter(|name| is_there(name)).collect();
    if found.is_empty() && is_there("cc") {
        found.push("cc");
    }
    found
}

/// Returns this crate's folder.
pub(crate) fn home() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the folder of the library that cargo built.
pub(crate) fn libraries() -> PathBuf {
    let test = env::current_exe().expect("the test's own path");
    test.parent().expect("a folder").to_owned()
}

/// Compiles and links a program, or returns the messages of the compiler.
pub(crate) fn build(
    compiler: &str,
    source: &str,
    library: Library,
    flags: &[&str],
) -> Result<PathBuf, String> {
    let name = format!("{source} {compiler} {library:?} {}", flags.join(" "));
    let name: String = name
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .collect();
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    // Another test run may build the same: each writes its own file, and the last one stays.
    let written = program.with_extension(process::id().to_string());
    let libraries = libraries();
    let mut command = Command::new(compiler);
    command
        .args([
            "-std=c11",
            "-Wall",
            "-Wextra",
            "-Wpedantic",
            "-Werror",
            "-pthread",
        ])
        .args(flags)
        .arg("-I")
        .arg(home().join("include"))
        .arg(home().join(source))
        .arg("-o")
        .arg(&written);
    match library {
        Library::Shared => command
            .arg("-L")
            .arg(&libraries)
            .arg("-lfairlane_c")
            .arg(format!("-Wl,-rpath,{}", libraries.display())),
        // As `rustc --print native-static-libs` says.
        Library::Static => command.arg(libraries.join("libfairlane_c.a")).args([
            "-lgcc_s",
            "-lutil",
            "-lrt",
            "-lpthread",
            "-lm",
            "-ldl",
        ]),
    };
    let output = command.output().map_err(|error| error.to_string())?;
    match output.status.success() {
        true => fs::rename(written, &program)
            .map(|()| program)
            .map_err(|error| error.to_string()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}
