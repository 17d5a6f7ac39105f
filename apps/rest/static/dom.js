// Builds elements. Text is always text: no function here turns a string into markup.

export const by = (id) => document.getElementById(id);

export function el(name, properties = {}, ...children) {
  const element = Object.assign(document.createElement(name), properties);
  element.append(...children);
  return element;
}

export function svg(name, attributes, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

export const row = (...cells) => el("tr", {}, ...cells.map((cell) => el("td", {}, cell)));

// An element with unchanged text stays: screen readers read out new elements only, and marked text can be
// copied.
export function say(place, ...parts) {
  const now = place.cloneNode();
  now.append(...parts);
  if (now.innerHTML !== place.innerHTML) place.replaceChildren(...now.childNodes);
}

// Each cell has the heading of its column: on a telephone a row is a card, and the table has no heading.
export function rows(table, many, empty) {
  const body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells].map((head) => head.textContent);
  for (const line of many) [...line.cells].forEach((cell, k) => { cell.dataset.label = heads[k]; });
  if (many.length) return many.some((one) => one.querySelector("button")) ? body.replaceChildren(...many) : say(body, ...many);
  const cell = el("td", { className: "quiet", colSpan: table.tHead.rows[0].cells.length }, empty);
  say(body, el("tr", {}, cell));
}

const focus = (table, key) => [...table.querySelectorAll("button")].find((one) => one.dataset.key === key)?.focus();

// Tables are built anew at each look; the focus stays on the same button.
export function keepFocus(table, make) {
  const key = table.contains(document.activeElement) ? document.activeElement.dataset.key : undefined;
  make();
  if (key !== undefined) focus(table, key);
}

// Closing the dialog moves the focus back to the button that opened it, which may have been built anew.
export function open(dialog) {
  const from = document.activeElement;
  const [table, key] = [from.closest("table"), from.dataset.key];
  dialog.showModal();
  if (table === null || key === undefined) return;
  dialog.addEventListener("close", () => { if (!from.isConnected) focus(table, key); }, { once: true });
}

// Keeps the choice if the option still exists.
export function options(select, many) {
  const shown = [...select.options].map((one) => one.value + one.text).join("\n");
  const wanted = many.map(([value, text]) => value + text).join("\n");
  if (shown === wanted) return;
  const chosen = select.value;
  select.replaceChildren(...many.map(([value, text]) => el("option", { value }, text)));
  if (many.some(([value]) => value === chosen)) select.value = chosen;
}

export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// A canvas as sharp as the screen; the size in CSS pixels.
export function surface(canvas) {
  const { width, height } = canvas.getBoundingClientRect();
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const pen = canvas.getContext("2d");
  pen.scale(ratio, ratio);
  return { pen, width, height };
}

export const LEAST_MBPS = 0.05; // smaller rates are written as 0: averages keep a rest of traffic that has ended
export const mbps = (rate) => rate.toLocaleString("en", { maximumFractionDigits: 1 });
export const whole = (many) => many.toLocaleString("en");
export const count = (many, what) => `${whole(many)} ${what}${many === 1 ? "" : "s"}`;
