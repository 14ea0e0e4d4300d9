//! The page for browsers. The program contains all of its files, and it sends requests only to the site.

use std::sync::OnceLock;

use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, ETAG, HeaderName, HeaderValue, REFERRER_POLICY,
};

use crate::routes::{Answer, tag, text};

/// One file of the page.
#[derive(Debug)]
pub(crate) struct Asset {
    /// Below `/`; empty for the page itself.
    path: &'static str,
    media_type: &'static str,
    content: &'static [u8],
    tag: OnceLock<String>,
}

impl Asset {
    const fn new(path: &'static str, media_type: &'static str, content: &'static [u8]) -> Asset {
        Asset {
            path,
            media_type,
            content,
            tag: OnceLock::new(),
        }
    }
}

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const JAVASCRIPT: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";
const TEXT: &str = "text/plain; charset=utf-8";

macro_rules! asset {
    ($path:literal, $media_type:expr) => {
        Asset::new(
            $path,
            $media_type,
            include_bytes!(concat!("../page/", $path)),
        )
    };
}

static ASSETS: [Asset; 16] = [
    Asset::new("", HTML, include_bytes!("../page/index.html")),
    asset!("page.css", CSS),
    asset!("icon.svg", SVG),
    asset!("page.js", JAVASCRIPT),
    asset!("site.js", JAVASCRIPT),
    asset!("figures.js", JAVASCRIPT),
    asset!("tree.js", JAVASCRIPT),
    asset!("panel.js", JAVASCRIPT),
    asset!("plot.js", JAVASCRIPT),
    asset!("change.js", JAVASCRIPT),
    asset!("deed.js", JAVASCRIPT),
    asset!("more.js", JAVASCRIPT),
    asset!("overview.js", JAVASCRIPT),
    asset!("uplot/uPlot.iife.min.js", JAVASCRIPT),
    asset!("uplot/uPlot.min.css", CSS),
    asset!("uplot/LICENSE", TEXT),
];

/// Headers of every asset: only our own content is loaded, run or contacted, and no other site can frame the page.
const HEADERS: [(HeaderName, HeaderValue); 3] = [
    (
        CONTENT_SECURITY_POLICY,
        HeaderValue::from_static(
            "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
             object-src 'none'",
        ),
    ),
    (REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    (CACHE_CONTROL, HeaderValue::from_static("no-cache")),
];

/// Returns the asset at a path.
pub(crate) fn asset(path: &[impl AsRef<str>]) -> Option<&'static Asset> {
    ASSETS.iter().find(|asset| {
        let parts = asset.path.split('/').filter(|part| !part.is_empty());
        parts.eq(path.iter().map(AsRef::as_ref))
    })
}

impl Asset {
    /// Returns the content, or `304 Not Modified` if the client has it already.
    pub(crate) fn answer(&'static self, has: Option<&HeaderValue>) -> Answer {
        let tag = self.tag.get_or_init(|| tag(self.content));
        let same = has.and_then(|has| has.to_str().ok()).is_some_and(|has| {
            let mut tags = has.split(',').map(str::trim);
            tags.any(|other| other == tag || other == "*")
        });
        let mut answer = match same {
            true => text(StatusCode::NOT_MODIFIED, self.media_type, Bytes::new()),
            false => text(
                StatusCode::OK,
                self.media_type,
                Bytes::from_static(self.content),
            ),
        };
        let headers = answer.headers_mut();
        for (name, value) in HEADERS {
            headers.insert(name, value);
        }
        if let Ok(tag) = HeaderValue::from_str(tag) {
            headers.insert(ETAG, tag);
        }
        answer
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use hyper::header::{CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};

    use super::*;
    use crate::reading::Content;

    fn content(asset: &Asset) -> &'static str {
        std::str::from_utf8(asset.content).unwrap()
    }

    fn at(path: &str) -> Option<&'static Asset> {
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        asset(&parts)
    }

    /// Yields the text between each occurrence of `before` and the next quotation mark.
    fn quoted(text: &'static str, before: &'static str) -> impl Iterator<Item = &'static str> {
        let found = text.match_indices(before);
        found.filter_map(move |(place, _)| text[place + before.len()..].split('"').next())
    }

    /// A proxy may serve the page below a path of its own, which works only with relative addresses.
    #[test]
    fn no_address_in_the_page_begins_at_the_root() {
        for asset in ASSETS
            .iter()
            .filter(|asset| !asset.path.starts_with("uplot/"))
        {
            for start in ["\"/", "'/", "`/", "(/"] {
                let found = content(asset).lines().find(|line| {
                    line.match_indices(start).any(|(at, _)| {
                        // Skips comments, and a single slash, which is a key.
                        let next = line[at + start.len()..].chars().next();
                        next.is_some_and(char::is_alphanumeric)
                    })
                });
                assert_eq!(found, None, "{}", asset.path);
            }
        }
    }

    #[test]
    fn whatever_the_page_names_is_served_and_nothing_else_is() {
        let page = content(at("/").unwrap());
        let mut named: Vec<String> = ["src=\"", "href=\""]
            .iter()
            .flat_map(|attribute| quoted(page, attribute))
            .filter(|path| !path.starts_with('#'))
            .map(str::to_owned)
            .collect();
        let modules = ASSETS.iter().filter(|asset| asset.path.ends_with(".js"));
        for module in modules.filter(|asset| !asset.path.starts_with("uplot/")) {
            let imported = quoted(content(module), " from \"./");
            named.extend(imported.map(str::to_owned));
        }
        for path in &named {
            assert!(at(path).is_some(), "{path} is not served");
        }
        for asset in &ASSETS[1..] {
            let is_named = named.iter().any(|path| path == asset.path);
            assert!(is_named, "nothing names {}", asset.path);
        }
        // Every file of the folder is embedded in the program.
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("page");
        let entries = [&folder, &folder.join("uplot")];
        let entries = entries.map(|folder| fs::read_dir(folder).unwrap());
        let files = entries
            .into_iter()
            .flatten()
            .filter(|entry| entry.as_ref().unwrap().file_type().unwrap().is_file());
        assert_eq!(files.count(), ASSETS.len());
    }

    #[test]
    fn page_loads_only_its_own_assets_without_inline_code() {
        for asset in &ASSETS {
            let text = content(asset);
            let text = match asset.path.starts_with("uplot/") {
                // The address of its origin, in a comment.
                true => text.replace("https://github.com/leeoniya/uPlot", ""),
                // A namespace name, which is never fetched.
                false => text.replace("http://www.w3.org/2000/svg", ""),
            };
            for elsewhere in ["http:", "https:", "\"//", "url(", "@import"] {
                assert!(!text.contains(elsewhere), "{}: {elsewhere}", asset.path);
            }
            // Neither constructs that the page's own policy forbids nor those that interpret text as markup.
            for inline in [
                "<style",
                " style=\"",
                " onclick=",
                " onload=",
                "javascript:",
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "eval(",
                "new Function",
            ] {
                assert!(!text.contains(inline), "{}: {inline}", asset.path);
            }
        }
        let page = content(at("/").unwrap());
        for script in page.split("<script").skip(1) {
            assert!(script.contains("></script>"), "{script}");
        }
    }

    fn body(answer: Answer) -> Bytes {
        match answer.into_body() {
            Content::Text(text) => text,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn each_asset_has_its_type_its_tag_and_the_policy() {
        for asset in &ASSETS {
            let answer = asset.answer(None);
            let header = |name: HeaderName| answer.headers()[name].to_str().unwrap().to_owned();
            assert_eq!(answer.status(), StatusCode::OK);
            assert_eq!(header(CONTENT_TYPE), asset.media_type);
            assert_eq!(header(CACHE_CONTROL), "no-cache");
            assert_eq!(header(X_CONTENT_TYPE_OPTIONS), "nosniff");
            let policy = header(CONTENT_SECURITY_POLICY);
            assert!(policy.starts_with("default-src 'self';") && !policy.contains("unsafe"));
            let tag = header(ETAG);
            assert!(tag.starts_with('"'), "{tag} is a strong one");
            assert_eq!(body(answer), asset.content);

            let has = HeaderValue::from_str(&format!("\"other\", {tag}")).unwrap();
            let again = asset.answer(Some(&has));
            assert_eq!(again.status(), StatusCode::NOT_MODIFIED);
            assert_eq!(again.headers()[ETAG].to_str().unwrap(), tag);
            assert!(body(again).is_empty());
            let other = HeaderValue::from_static("\"other\"");
            assert_eq!(asset.answer(Some(&other)).status(), StatusCode::OK);
        }
    }
}
