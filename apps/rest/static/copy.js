// Copying by a click: the short form of an id, and buttons beside commands.

import { by, el } from "./dom.js";

const SHORT = 6;
const LONG = 9; // shorter ids are shown in full
const SHOWN_MS = 2000;
let timer = null;

function toast(text) {
  const place = by("toast");
  place.textContent = text;
  place.showPopover?.(); // above open dialogs
  clearTimeout(timer);
  timer = setTimeout(() => place.hidePopover?.(), SHOWN_MS);
}

// Browsers offer the clipboard to pages that come over TLS or from the same machine only.
async function copy(text, button) {
  if (navigator.clipboard !== undefined) {
    await navigator.clipboard.writeText(text);
    return true;
  }
  const field = el("textarea", { value: text, readOnly: true, className: "unseen" });
  button.after(field); // in the open dialog: outside of the dialog the field can't be selected
  field.select();
  const copied = document.execCommand("copy");
  field.remove();
  button.focus();
  return copied;
}

function button(text, properties, shown) {
  const made = el("button", { type: "button", ...properties }, shown);
  made.dataset.key = `copy ${text}`;
  made.addEventListener("click", async () => {
    const copied = await copy(text, made).catch(() => false);
    toast(copied ? `Copied ${text}` : `The browser does not permit copying: ${text}`);
  });
  return made;
}

export const copyButton = (text) => button(text, { className: "copy", ariaLabel: `Copy ${text}` }, "Copy");

export const short = (id) => (id.length < LONG ? id : id.slice(0, SHORT));
export const idButton = (id) => button(id, { className: "id", title: `Copy ${id}`, ariaLabel: `Copy ${id}` }, short(id));
