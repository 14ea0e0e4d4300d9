// The page: receives states and shows them.

import { find, say, span } from "./figures.js";
import { Flows, Grants, Interfaces } from "./more.js";
import { Links, Problems } from "./overview.js";
import { Panel } from "./panel.js";
import { about, keepToken, states, token } from "./site.js";
import { Tree } from "./tree.js";

/** Delay before reconnecting to the daemon, in milliseconds: at first, and at most. */
const SOON = 500;
const LATE = 4_000;
/** Seconds without a state after which the page says so. */
const SILENT = 15;

const panel = new Panel(() => {
  tree.chosen = null;
  tree.draw();
  tree.grid.focus({ preventScroll: true });
});
const tree = new Tree((node) => {
  tree.chosen = node.key;
  panel.open(node, tree.nodes);
});
const links = new Links();
const problems = new Problems();
const views = { flows: new Flows(), grants: new Grants(), interfaces: new Interfaces() };

let last = null;
let came = 0;
let gone = null;
let retry = null;
/** True if the user closed the dialog without a token. */
let declined = false;
/** True if a token was given before the dialog was closed. */
let given = false;

/** Shows the state of the connection and the age of the figures. */
function tell() {
  const age = last ? (performance.now() - came) / 1000 : 0;
  const silent = !gone && last && age > Math.max(SILENT, 3 * last.recent_seconds);
  const fine = !gone && last && !silent;
  const site = find("site");
  site.className = fine ? "fine" : gone || silent ? "gone" : "";
  say(find("site-mark"), fine ? "✓" : gone || silent ? "✗" : "…");
  say(find("site-words"), gone ?? (silent ? "connected, but no state arrives" : last ? "connected" : "connecting"));
  const figures = last && (fine ? `figures of the last ${span(last.recent_seconds)}` : `figures of ${span(age)} ago`);
  const runs = last && (gone ? "" : `, runs for ${span(last.seconds + age)}`);
  say(find("age"), last ? figures + runs : "");
  document.body.classList.toggle("gone-by", Boolean(gone && last));
}

/** Returns the name of the site: that of its file, or its interfaces. */
function siteName({ interfaces }) {
  return about.name || interfaces.map((it) => it.name).filter(Boolean).join(" ↔ ") || "site";
}

function show(state) {
  const seconds = last && state.seconds > last.seconds ? state.seconds - last.seconds : 0;
  if (last && state.seconds < last.seconds) tree.restart();
  last = state;
  came = performance.now();
  gone = null;
  tree.update(state, seconds);
  panel.update(tree.nodes);
  for (const view of Object.values(views)) view.state(state);
  links.update(state);
  problems.update(state, tree.nodes);
  const site = siteName(state);
  document.title = `${site} – Fairlane`;
  say(find("site-name"), site);
  tell();
}

/** Follows the daemon across restarts for as long as the page is open. */
async function follow() {
  let wait = SOON;
  for (;;) {
    retry = new AbortController();
    try {
      for await (const state of states(retry.signal)) {
        show(state);
        wait = SOON;
      }
      gone = "the daemon ended or restarts; reconnecting";
    } catch (error) {
      // A new token was given.
      if (retry.signal.aborted) continue;
      if (error.status === 401) {
        gone = "reading needs a token";
        if (!declined) askForToken(error.message);
      } else gone = `${error.status === undefined ? "connection lost" : error.message}; reconnecting`;
    }
    tell();
    await new Promise((done) => {
      const timer = setTimeout(done, wait);
      retry.signal.addEventListener("abort", () => {
        clearTimeout(timer);
        done();
      });
    });
    wait = Math.min(wait * 2, LATE);
  }
}

const dialog = find("token");

function askForToken(why) {
  if (why) say(find("token-why"), why);
  if (!dialog.open) dialog.showModal();
}

function useToken(text) {
  keepToken(text);
  given = text !== "";
  find("token-text").value = "";
  say(find("token-open"), token() ? "Token: set" : "Token");
  dialog.close();
  retry?.abort();
}

find("token-open").addEventListener("click", () => askForToken(""));
find("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  useToken(find("token-text").value.trim());
});
find("token-forget").addEventListener("click", () => useToken(""));
find("token-cancel").addEventListener("click", () => dialog.close());
dialog.addEventListener("close", () => {
  declined = !given;
  given = false;
});
addEventListener("token", (event) => askForToken(event.detail));
// Not caused by the user, so a dialog that was declined is not opened again.
addEventListener("token-to-read", (event) => {
  if (!declined) askForToken(event.detail);
});
say(find("token-open"), token() ? "Token: set" : "Token");

/** Shows one of the views. */
function choose(name) {
  for (const button of document.querySelectorAll("nav button")) {
    const is = button.dataset.view === name;
    if (is) button.setAttribute("aria-current", "page");
    else button.removeAttribute("aria-current");
    find(button.dataset.view).hidden = !is;
  }
  if (name !== "classes" && panel.node) panel.close();
  for (const [key, view] of Object.entries(views)) view.show(key === name);
  tree.draw();
}

for (const button of document.querySelectorAll("nav button")) {
  button.addEventListener("click", () => choose(button.dataset.view));
}

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.altKey || event.metaKey || document.querySelector("dialog[open]")) return;
  const writes = event.target.closest("input, select, textarea");
  if (event.key === "Escape" && panel.node) panel.close();
  else if (event.key === "/" && !writes) {
    choose("classes");
    find("filter").focus();
    event.preventDefault();
  }
});

setInterval(tell, 1_000);
follow();
