//! A crate's sources: modules, their items, and the meaning of their names. As on Linux, with every feature, and
//! outside of tests.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use proc_macro2::{Group, TokenStream, TokenTree};
use syn::punctuated::Punctuated;
use syn::{Attribute, Ident, Item, ItemMacro, Meta, Token, UseTree, Visibility};

/// One `use` of one name.
pub(crate) struct Import {
    pub(crate) is_public: bool,
    /// `*` for all names of a module.
    pub(crate) name: String,
    pub(crate) path: Vec<String>,
    pub(crate) attributes: Vec<Attribute>,
}

/// A module.
#[derive(Default)]
pub(crate) struct Module {
    pub(crate) items: Vec<Item>,
    pub(crate) imports: Vec<Import>,
    pub(crate) children: BTreeMap<String, usize>,
    parent: Option<usize>,
}

/// The meaning of a name: a module by its number, or an item of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Found {
    Module(usize),
    Item(usize, usize),
}

/// All modules of a crate, the root first.
pub(crate) struct Source {
    pub(crate) modules: Vec<Module>,
}

impl Source {
    /// Reads the crate in `folder`.
    pub(crate) fn read(folder: &Path) -> Source {
        let mut source = Source {
            modules: Vec::new(),
        };
        let folder = folder.join("src");
        source.add(parse(&folder.join("lib.rs")), None, &folder);
        source
    }

    /// Adds a module and its children, whose files are in `folder`. Returns its number.
    fn add(&mut self, items: Vec<Item>, parent: Option<usize>, folder: &Path) -> usize {
        let number = self.modules.len();
        self.modules.push(Module {
            parent,
            ..Module::default()
        });
        let mut module = Module::default();
        for item in items {
            if !is_there(attributes(&item)) {
                continue;
            }
            match &item {
                Item::Use(import) => {
                    let is_public = is_public(&import.vis);
                    for (name, path) in leaves(&import.tree, &[]) {
                        module.imports.push(Import {
                            is_public,
                            name,
                            path,
                            attributes: import.attrs.clone(),
                        });
                    }
                }
                Item::Mod(child) => {
                    let name = child.ident.to_string();
                    let below = folder.join(&name);
                    let items = match &child.content {
                        Some((_, items)) => items.clone(),
                        None if below.join("mod.rs").exists() => parse(&below.join("mod.rs")),
                        None => parse(&below.with_extension("rs")),
                    };
                    let child = self.add(items, Some(number), &below);
                    module.children.insert(name, child);
                }
                Item::Macro(definition) => module.items.extend(made_by(definition)),
                _ => {}
            }
            module.items.push(item);
        }
        self.modules[number] = Module { parent, ..module };
        number
    }

    /// Resolves a path in a module; returns nothing if it leads out of the crate.
    pub(crate) fn resolve(&self, module: usize, path: &[String]) -> Vec<Found> {
        self.resolve_within(module, path, 8)
    }

    fn resolve_within(&self, module: usize, path: &[String], steps: u32) -> Vec<Found> {
        let (mut at, mut rest) = (module, path);
        while let Some((first, others)) = rest.split_first() {
            at = match (first.as_str(), self.modules[at].parent) {
                ("crate", _) => 0,
                ("self", _) => at,
                ("super", Some(parent)) => parent,
                _ => break,
            };
            rest = others;
        }
        let Some((last, between)) = rest.split_last() else {
            return vec![Found::Module(at)];
        };
        for name in between {
            let found = self.named(at, name, steps);
            let modules = found.into_iter().find_map(|found| match found {
                Found::Module(number) => Some(number),
                Found::Item(..) => None,
            });
            match modules {
                Some(number) => at = number,
                None => return Vec::new(),
            }
        }
        self.named(at, last, steps)
    }

    /// Resolves a name in a module: its own items first, then its imports.
    fn named(&self, number: usize, name: &str, steps: u32) -> Vec<Found> {
        let module = &self.modules[number];
        let own = module.items.iter().enumerate();
        let own = own.filter(|(_, item)| ident(item).is_some_and(|ident| ident == name));
        let own: Vec<_> = own
            .map(|(place, item)| match item {
                Item::Mod(_) => Found::Module(module.children[name]),
                _ => Found::Item(number, place),
            })
            .collect();
        if !own.is_empty() || steps == 0 {
            return own;
        }
        let imports = module.imports.iter().filter(|import| import.name == name);
        imports
            .flat_map(|import| self.resolve_within(number, &import.path, steps - 1))
            .collect()
    }
}

fn parse(path: &Path) -> Vec<Item> {
    let text = fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let file = syn::parse_file(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    file.items
}

/// Names that a `use` brings in, each with its path.
fn leaves(tree: &UseTree, before: &[String]) -> Vec<(String, Vec<String>)> {
    let with = |ident: &Ident| [before, &[ident.to_string()]].concat();
    match tree {
        UseTree::Path(path) => leaves(&path.tree, &with(&path.ident)),
        UseTree::Group(group) => {
            let parts = group.items.iter();
            parts.flat_map(|tree| leaves(tree, before)).collect()
        }
        UseTree::Glob(_) => vec![("*".to_owned(), before.to_vec())],
        UseTree::Name(name) if name.ident == "self" => {
            let last = before.last().cloned().unwrap_or_default();
            vec![(last, before.to_vec())]
        }
        UseTree::Name(name) => vec![(name.ident.to_string(), with(&name.ident))],
        UseTree::Rename(name) => vec![(name.rename.to_string(), with(&name.ident))],
    }
}

/// Returns the items in the bodies of a `macro_rules!`, without repetitions; `$name` stands for itself.
fn made_by(definition: &ItemMacro) -> Vec<Item> {
    if definition.ident.is_none() {
        return Vec::new();
    }
    let groups = definition.mac.tokens.clone().into_iter();
    let groups = groups.filter_map(|token| match token {
        TokenTree::Group(group) => Some(group.stream()),
        _ => None,
    });
    // A pattern, a body, a pattern, a body.
    let bodies = groups.skip(1).step_by(2);
    let files = bodies.filter_map(|body| syn::parse2::<syn::File>(without_repetitions(body)).ok());
    files.flat_map(|file| file.items).collect()
}

fn without_repetitions(tokens: TokenStream) -> TokenStream {
    let mut tokens = tokens.into_iter();
    let mut kept = Vec::new();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Punct(sign) if sign.as_char() == '$' => match tokens.next() {
                Some(TokenTree::Group(_)) => {
                    // A separator perhaps, and the sign of repetition.
                    let is_end = |token: &TokenTree| matches!(token, TokenTree::Punct(sign) if "*+?".contains(sign.as_char()));
                    tokens.find(is_end);
                }
                name => kept.extend(name),
            },
            TokenTree::Group(group) => {
                let inner = without_repetitions(group.stream());
                kept.push(Group::new(group.delimiter(), inner).into());
            }
            token => kept.push(token),
        }
    }
    kept.into_iter().collect()
}

/// Whether the `cfg` attributes of an item hold.
pub(crate) fn is_there(attributes: &[Attribute]) -> bool {
    let conditions = attributes.iter().filter(|a| a.path().is_ident("cfg"));
    let mut conditions = conditions.map(|a| a.parse_args().expect("a condition"));
    conditions.all(|condition| holds(&condition))
}

fn holds(condition: &Meta) -> bool {
    match condition {
        Meta::Path(name) => {
            let absent = ["doctest", "fuzzing", "loom", "miri", "test"];
            !absent.iter().any(|absent| name.is_ident(absent))
        }
        // A feature, Linux, or a common platform property.
        Meta::NameValue(_) => true,
        Meta::List(list) => {
            let parts = Punctuated::<Meta, Token![,]>::parse_terminated;
            let parts = list.parse_args_with(parts).expect("conditions");
            match list.path.get_ident() {
                Some(name) if name == "not" => !parts.iter().all(holds),
                Some(name) if name == "any" => parts.iter().any(holds),
                _ => parts.iter().all(holds),
            }
        }
    }
}

pub(crate) fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

pub(crate) fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// Returns an item's name, if it has one.
pub(crate) fn ident(item: &Item) -> Option<&Ident> {
    visible(item).map(|(ident, _)| ident)
}

/// Returns an item's name and visibility, if it has a name.
pub(crate) fn visible(item: &Item) -> Option<(&Ident, &Visibility)> {
    Some(match item {
        Item::Const(item) => (&item.ident, &item.vis),
        Item::Enum(item) => (&item.ident, &item.vis),
        Item::Fn(item) => (&item.sig.ident, &item.vis),
        Item::Mod(item) => (&item.ident, &item.vis),
        Item::Static(item) => (&item.ident, &item.vis),
        Item::Struct(item) => (&item.ident, &item.vis),
        Item::Trait(item) => (&item.ident, &item.vis),
        Item::Type(item) => (&item.ident, &item.vis),
        _ => return None,
    })
}
