//! The public names of a crate, as text.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use proc_macro2::TokenStream;
use quote::ToTokens;
use syn::{
    Attribute, Fields, FnArg, Generics, ImplItem, Item, ItemImpl, Meta, Pat, Signature, TraitItem,
    Type, TypeParamBound, Visibility,
};

use crate::source::{Found, Source, attributes, is_public, is_there, visible};
use crate::text::text;

/// The public items of a crate.
pub(crate) struct Listing {
    /// A text for each item, sorted.
    pub(crate) items: Vec<String>,
    /// Types, traits, functions and macros, each by its shortest path.
    pub(crate) names: BTreeSet<String>,
}

/// The public items of a crate, and their paths.
#[derive(Default)]
struct Public {
    modules: BTreeSet<String>,
    items: BTreeMap<(usize, usize), BTreeSet<String>>,
    /// Items from other crates.
    others: BTreeSet<String>,
}

impl Listing {
    /// Of the crate in `folder`, as other crates call it.
    pub(crate) fn of(folder: &Path, name: &str) -> Listing {
        let source = Source::read(folder);
        let mut public = Public::default();
        public.walk(&source, 0, name);
        public.take_macros(&source, name);
        let mut implementations = implementations(&source, &public);
        let mut items: Vec<(String, String)> = Vec::new();
        let mut names = BTreeSet::new();
        for (&place, paths) in &public.items {
            let of = |path: &&String| (path.matches("::").count(), (*path).clone());
            let path = paths.iter().min_by_key(of).expect("a path");
            let item = &source.modules[place.0].items[place.1];
            let lines = implementations.remove(&place).unwrap_or_default();
            let lines = shown(item, path).into_iter().chain(lines);
            items.push((path.clone(), lines.collect::<Vec<_>>().join("\n")));
            if !matches!(item, Item::Const(_) | Item::Static(_)) {
                names.insert(path.clone());
            }
            let aliases = paths.iter().filter(|&alias| alias != path);
            items.extend(aliases.map(|alias| (alias.clone(), format!("pub use {alias} = {path}"))));
        }
        let modules = public.modules.into_iter();
        items.extend(modules.map(|path| (path.clone(), format!("pub mod {path}"))));
        items.extend(public.others.into_iter().map(|line| (line.clone(), line)));
        items.sort();
        let items = items.into_iter().map(|(_, text)| text).collect();
        Listing { items, names }
    }
}

impl Public {
    /// Adds the public items below `path`, which leads to a module.
    fn walk(&mut self, source: &Source, number: usize, path: &str) {
        if !self.modules.insert(path.to_owned()) {
            return;
        }
        let module = &source.modules[number];
        for (place, item) in module.items.iter().enumerate() {
            let Some((ident, visibility)) = visible(item) else {
                continue;
            };
            let path = format!("{path}::{ident}");
            match item {
                _ if !is_shown(visibility, attributes(item)) => {}
                Item::Mod(_) => self.walk(source, module.children[&ident.to_string()], &path),
                _ => self.add((number, place), path),
            }
        }
        let imports = module.imports.iter();
        for import in imports.filter(|import| import.is_public && !is_hidden(&import.attributes)) {
            let path = format!("{path}::{}", import.name);
            let found = source.resolve(number, &import.path);
            if found.is_empty() {
                let (of, condition) = (import.path.join("::"), condition(&import.attributes));
                let of = match import.name == "*" {
                    true => format!("{of}::*"),
                    false => of,
                };
                self.others
                    .insert(format!("pub use {path} = {of}{condition}"));
            }
            for found in found {
                match found {
                    Found::Module(number) => self.walk(source, number, &path),
                    Found::Item(module, place) => {
                        if !is_hidden(attributes(&source.modules[module].items[place])) {
                            self.add((module, place), path.clone());
                        }
                    }
                }
            }
        }
    }

    fn add(&mut self, item: (usize, usize), path: String) {
        self.items.entry(item).or_default().insert(path);
    }

    /// Macros that are exported stand at the root, wherever they are.
    fn take_macros(&mut self, source: &Source, name: &str) {
        for (number, module) in source.modules.iter().enumerate() {
            for (place, item) in module.items.iter().enumerate() {
                let Item::Macro(item) = item else {
                    continue;
                };
                if has(&item.attrs, "macro_export") && !is_hidden(&item.attrs) {
                    let ident = item.ident.as_ref().expect("a name");
                    self.add((number, place), format!("{name}::{ident}"));
                }
            }
        }
    }
}

fn has(attributes: &[Attribute], word: &str) -> bool {
    attributes.iter().any(|a| text(&a.meta) == word)
}

/// Whether it is for this workspace's crates only.
fn is_hidden(attributes: &[Attribute]) -> bool {
    has(attributes, "doc(hidden)")
}

/// Whether the documentation shows it.
fn is_shown(visibility: &Visibility, attributes: &[Attribute]) -> bool {
    is_public(visibility) && is_there(attributes) && !is_hidden(attributes)
}

/// Returns the implementations for and by a public item: lines below it.
fn implementations(source: &Source, public: &Public) -> BTreeMap<(usize, usize), Vec<String>> {
    type Blocks = BTreeMap<String, BTreeSet<String>>;
    let mut blocks: BTreeMap<(usize, usize), Blocks> = BTreeMap::new();
    for (number, module) in source.modules.iter().enumerate() {
        let of_module = module.items.iter().filter_map(|item| match item {
            Item::Impl(block) => Some(block),
            _ => None,
        });
        for block in of_module {
            let found = |path: &syn::Path| {
                let names = path
                    .segments
                    .iter()
                    .map(|segment| segment.ident.to_string());
                let names: Vec<_> = names.collect();
                source
                    .resolve(number, &names)
                    .into_iter()
                    .find_map(|found| match found {
                        Found::Item(module, place) => Some((module, place)),
                        Found::Module(_) => None,
                    })
            };
            let of_trait = block.trait_.as_ref().map(|(_, path, _)| found(path));
            let is_seen = |place: &(usize, usize)| public.items.contains_key(place);
            if of_trait.flatten().is_some_and(|place| !is_seen(&place)) {
                continue;
            }
            let of_type = match &*block.self_ty {
                Type::Path(path) if path.qself.is_none() => found(&path.path),
                _ => None,
            };
            // An implementation for a type of another crate is shown with the trait.
            let place = match of_type {
                Some(place) => Some(place),
                None => of_trait.flatten(),
            };
            let Some(place) = place.filter(is_seen) else {
                continue;
            };
            let lines = inside(block);
            if block.trait_.is_some() || !lines.is_empty() {
                let block = blocks.entry(place).or_default().entry(head(block));
                block.or_default().extend(lines);
            }
        }
    }
    let lines = |blocks: Blocks| {
        let block = |(head, lines): (String, BTreeSet<String>)| {
            let lines = lines.into_iter().map(|line| format!("        {line}"));
            [format!("    {head}")].into_iter().chain(lines)
        };
        blocks.into_iter().flat_map(block).collect()
    };
    blocks
        .into_iter()
        .map(|(place, blocks)| (place, lines(blocks)))
        .collect()
}

fn head(block: &ItemImpl) -> String {
    let (generics, bounds) = block.generics.as_parts();
    let of_trait = match &block.trait_ {
        Some((not, path, _)) => format!("{}{} for ", text(not), text(path)),
        None => String::new(),
    };
    let condition = condition(&block.attrs);
    format!(
        "impl{generics} {of_trait}{}{bounds}{condition}",
        text(&block.self_ty)
    )
}

/// Returns the public items of an `impl`: functions and constants, or a trait's types.
fn inside(block: &ItemImpl) -> Vec<String> {
    let own = |visibility, attributes| block.trait_.is_none() && is_shown(visibility, attributes);
    let lines = block.items.iter().filter_map(|item| match item {
        ImplItem::Fn(item) if own(&item.vis, &item.attrs) => Some(format!(
            "pub {}{}",
            text(signature(&item.sig)),
            condition(&item.attrs)
        )),
        ImplItem::Const(item) if own(&item.vis, &item.attrs) => {
            Some(format!("pub const {}: {}", item.ident, text(&item.ty)))
        }
        ImplItem::Type(item) => Some(format!("type {} = {}", item.ident, text(&item.ty))),
        _ => None,
    });
    lines.collect()
}

/// Returns a signature without names that only its body uses.
fn signature(signature: &Signature) -> Signature {
    let mut signature = signature.clone();
    signature.inputs.pop_punct();
    for argument in &mut signature.inputs {
        match argument {
            FnArg::Receiver(of) if of.reference.is_none() => of.mutability = None,
            FnArg::Receiver(_) => {}
            FnArg::Typed(argument) => {
                if let Pat::Ident(name) = &mut *argument.pat {
                    name.mutability = None;
                }
            }
        }
    }
    signature
}

trait AsParts {
    /// Returns the generics after the name, and the bounds at the end.
    fn as_parts(&self) -> (String, String);
}

impl AsParts for Generics {
    fn as_parts(&self) -> (String, String) {
        let bounds = self
            .where_clause
            .as_ref()
            .map(|bounds| format!(" {}", text(bounds)));
        (text(self), bounds.unwrap_or_default())
    }
}

/// Returns the features that an item requires.
fn condition(of: &[Attribute]) -> String {
    let needs = |a: &&Attribute| a.path().is_ident("cfg") && text(&a.meta).contains("feature");
    let conditions = of.iter().filter(needs);
    conditions
        .map(|a| format!(" #[{}]", text(&a.meta)))
        .collect()
}

/// Returns the guarantees in an item's attributes: traits, and non-exhaustiveness.
fn promises(of: &[Attribute]) -> Vec<String> {
    let mut lines = Vec::new();
    for attribute in of {
        let meta = text(&attribute.meta);
        match &attribute.meta {
            Meta::List(list) if list.path.is_ident("derive") => {
                let mut names: Vec<_> = text(&list.tokens).split(", ").map(str::to_owned).collect();
                names.sort();
                lines.push(format!("    derives {}", names.join(", ")));
            }
            _ if meta == "non_exhaustive" || meta.starts_with("repr(") => {
                lines.push(format!("    {meta}"));
            }
            _ if meta.starts_with("cfg_attr(feature") && meta.contains("derive(") => {
                lines.push(format!("    {meta}"));
            }
            _ => {}
        }
    }
    lines
}

/// Returns the item's own lines.
fn shown(item: &Item, path: &str) -> Vec<String> {
    let (generics, bounds) = match item {
        Item::Enum(item) => item.generics.as_parts(),
        Item::Struct(item) => item.generics.as_parts(),
        Item::Trait(item) => item.generics.as_parts(),
        Item::Type(item) => item.generics.as_parts(),
        _ => Default::default(),
    };
    let condition = condition(attributes(item));
    let first = match item {
        Item::Const(item) => format!("pub const {path}: {}{condition}", text(&item.ty)),
        Item::Enum(_) => format!("pub enum {path}{generics}{bounds}{condition}"),
        Item::Fn(item) => {
            let (as_is, name) = (text(signature(&item.sig)), format!("fn {}", item.sig.ident));
            format!(
                "pub {}{condition}",
                as_is.replacen(&name, &format!("fn {path}"), 1)
            )
        }
        Item::Macro(_) => format!("pub macro {path}!"),
        Item::Static(item) => format!("pub static {path}: {}{condition}", text(&item.ty)),
        Item::Struct(_) => format!("pub struct {path}{generics}{bounds}{condition}"),
        Item::Trait(item) => {
            let above: Vec<_> = item
                .supertraits
                .iter()
                .map(|bound: &TypeParamBound| text(bound))
                .collect();
            let above = match above.is_empty() {
                true => String::new(),
                false => format!(": {}", above.join(" + ")),
            };
            format!("pub trait {path}{generics}{above}{bounds}{condition}")
        }
        Item::Type(item) => format!("pub type {path}{generics}{bounds} = {}", text(&item.ty)),
        _ => format!("pub use {path}"),
    };
    let mut lines = vec![first];
    lines.extend(promises(attributes(item)));
    match item {
        Item::Enum(item) => lines.extend(item.variants.iter().map(|variant| {
            let mut variant = variant.clone();
            variant.attrs.clear();
            for field in &mut variant.fields {
                // A conversion is generated from these.
                field
                    .attrs
                    .retain(|attribute| attribute.path().is_ident("from"));
            }
            format!("    {}", text(variant))
        })),
        Item::Struct(item) => lines.extend(fields(&item.fields)),
        Item::Trait(item) => lines.extend(item.items.iter().map(of_trait)),
        _ => {}
    }
    lines
}

/// Returns the public fields, and whether there are others.
fn fields(fields: &Fields) -> Vec<String> {
    let mut lines = Vec::new();
    for (number, field) in fields.iter().enumerate() {
        let name = match &field.ident {
            Some(name) => name.to_string(),
            None => number.to_string(),
        };
        if is_shown(&field.vis, &field.attrs) {
            lines.push(format!("    pub {name}: {}", text(&field.ty)));
        }
    }
    if fields
        .iter()
        .any(|field| !is_public(&field.vis) || is_hidden(&field.attrs))
    {
        lines.push("    ..".to_owned());
    }
    lines
}

/// Returns a trait's required and provided items.
fn of_trait(item: &TraitItem) -> String {
    let with = |tokens: TokenStream, is_there: bool| match is_there {
        true => format!("    {} {{ .. }}", text(tokens)),
        false => format!("    {}", text(tokens)),
    };
    match item {
        TraitItem::Fn(item) => with(
            signature(&item.sig).into_token_stream(),
            item.default.is_some(),
        ),
        TraitItem::Const(item) => {
            let line = format!("const {}: {}", item.ident, text(&item.ty));
            match item.default {
                Some(_) => format!("    {line} = .."),
                None => format!("    {line}"),
            }
        }
        TraitItem::Type(item) => {
            let mut item = item.clone();
            item.attrs.clear();
            with(item.into_token_stream(), false)
        }
        other => with(other.to_token_stream(), false),
    }
}
