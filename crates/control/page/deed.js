// What is done to a running site beside changes of its configuration: asked twice where it costs something.

import { find, make, say } from "./figures.js";
import { ask } from "./site.js";

/** Asks whether somebody means it, in words; true where he does. Nothing is where he leaves it by Escape. */
function sure(title, words, yes) {
  const dialog = find("sure");
  say(find("sure-title"), title);
  say(find("sure-words"), words);
  say(find("sure-yes"), yes);
  dialog.returnValue = "";
  dialog.showModal();
  // Whoever presses Enter at once has done nothing.
  find("sure-no").focus();
  return new Promise((done) => {
    dialog.addEventListener("close", () => done(dialog.returnValue === "yes"), { once: true });
  });
}

/** What came of a deed: said to whoever listens, whatever colours show. */
export class Outcome {
  constructor() {
    this.element = make("div", { class: "answer", "aria-live": "polite" });
  }

  tell(...inside) {
    this.show("answer", "status", inside);
  }

  refuse(error) {
    this.show("answer refused", "alert", [`${error.status === 0 ? "No answer" : "Refused"}: ${error.message}`]);
    if (error.status === 401) dispatchEvent(new CustomEvent("token", { detail: error.message }));
  }

  show(look, role, inside) {
    this.element.className = look;
    this.element.setAttribute("role", role);
    this.element.replaceChildren(...inside);
  }
}

/**
 * A button that has something done. `deed` says, when it is pressed, `method`, `where` and `body`, `told`,
 * which says the answer in a sentence, and where it is asked again, `sure`: a title, words and what yes is.
 */
export function doing(words, outcome, deed, attributes = {}) {
  // It stays where the focus is while it is busy, and says that it is.
  return make("button", { type: "button", ...attributes, onclick: async ({ currentTarget: button }) => {
    if (button.hasAttribute("aria-busy")) return;
    button.setAttribute("aria-busy", "true");
    try {
      const { method, where, body, told, sure: asked } = deed();
      if (!asked || await sure(...asked)) outcome.tell(told(await ask(where, { method, body })));
    } catch (error) {
      outcome.refuse(error);
    } finally {
      button.removeAttribute("aria-busy");
    }
  } }, words);
}
