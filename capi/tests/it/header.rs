//! The header matches the sources.

use std::{env, fs};

use crate::c;

#[test]
fn the_header_is_that_of_the_sources() {
    let config = cbindgen::Config::from_file(c::home().join("cbindgen.toml")).unwrap();
    let mut builder = cbindgen::Builder::new().with_config(config);
    for file in ["status", "pointers", "types", "scheduler", "client"] {
        builder = builder.with_src(c::home().join("src").join(file).with_extension("rs"));
    }
    let mut made = Vec::new();
    builder.generate().unwrap().write(&mut made);
    let made = String::from_utf8(made).unwrap();

    let header = c::home().join("include/fairlane.h");
    if env::var_os("FAIRLANE_WRITE_HEADER").is_some() {
        fs::write(header, made).unwrap();
        return;
    }
    let written = fs::read_to_string(header).unwrap();
    assert!(
        made == written,
        "the sources have changed: FAIRLANE_WRITE_HEADER=1 cargo test -p fairlane-capi header"
    );
    for function in functions_of_the_library() {
        assert!(written.contains(&format!("{function}(")), "{function}");
    }
}

/// Returns all exported functions according to the sources.
fn functions_of_the_library() -> Vec<String> {
    let mut functions = Vec::new();
    for entry in fs::read_dir(c::home().join("src")).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            continue;
        }
        let code = fs::read_to_string(path).unwrap();
        let exported = code.split("#[unsafe(no_mangle)]").skip(1);
        functions.extend(exported.map(|rest| {
            let (_, name) = rest.split_once("fn ").unwrap();
            name.split('(').next().unwrap().to_owned()
        }));
    }
    assert!(functions.len() > 10, "{functions:?}");
    functions
}
