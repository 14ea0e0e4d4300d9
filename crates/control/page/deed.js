// Operations on a running site other than changes of its configuration. Those with a cost need a confirmation.

import { find, make, say } from "./figures.js";
import { ask } from "./site.js";

/** Asks for a confirmation and returns true if it is given. Escape cancels. */
function sure(title, words, yes) {
  const dialog = find("sure");
  say(find("sure-title"), title);
  say(find("sure-words"), words);
  say(find("sure-yes"), yes);
  dialog.returnValue = "";
  dialog.showModal();
  // The default button cancels, so that pressing Enter at once changes nothing.
  find("sure-no").focus();
  return new Promise((done) => {
    dialog.addEventListener("close", () => done(dialog.returnValue === "yes"), { once: true });
  });
}

/** The result of an operation, announced to screen readers too. */
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
 * A button for an operation. `deed` is called when it is pressed and returns `method`, `where`, `body`, and `told`,
 * which formats the answer as a sentence; also `sure` if it needs a confirmation: title, text and label of the button.
 */
export function doing(words, outcome, deed, attributes = {}) {
  // The button stays enabled while it is busy, to keep the focus, and is marked as busy.
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
