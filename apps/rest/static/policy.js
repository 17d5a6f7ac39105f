// The policy: values that differ from the defaults come first. Operators change values here that only later
// decisions depend on; all other values are changed in the configuration file.

import { get, isUnknown, send } from "./api.js";
import { by, count, el, open, row } from "./dom.js";
import { told } from "./times.js";

const UNITS = [["_mbps", "Mb/s"], ["_mb", "MB"], ["_ms", "ms"], ["_s", "s"]];
const SECTIONS = new Map([["", "General"]]);
const NO_VALUE = "none"; // null in the API

const pathOf = (value) => value.key.replace(/^policy\./, "");
const unitOf = (key) => UNITS.find(([ending]) => key.endsWith(ending))?.[1] ?? "";
const sectionOf = (path) => (path.includes(".") ? path.slice(0, path.lastIndexOf(".")) : "");
const titleOf = (section) => SECTIONS.get(section) ?? section[0].toUpperCase() + section.slice(1).replaceAll("_", " ");

// The value of a field, for the API; the controller refuses a text that is no number.
function parsed(text) {
  if (text === NO_VALUE) return null;
  return text.trim() !== "" && Number.isFinite(Number(text)) ? Number(text) : text;
}

// [["drain.reads", "5"]] as {drain: {reads: 5}}.
function nested(changes) {
  const body = {};
  for (const { value, text } of changes) {
    const steps = pathOf(value).split(".");
    const key = steps.pop();
    const place = steps.reduce((section, step) => (section[step] ??= {}), body);
    place[key] = value.choices.length ? text : parsed(text);
  }
  return body;
}

function control(value, changed) {
  const made = value.choices.length
    ? el("select", {}, ...value.choices.map((word) => el("option", { value: word }, word)))
    : el("input", { autocomplete: "off", size: 8 });
  made.value = value.value;
  made.ariaLabel = value.key;
  made.addEventListener("input", changed);
  return made;
}

const changesBy = (value) => (value.by_request ? "here" : value.at_once ? "in the file, by a reload" : "in the file, at the next start");

// The policy is written in the file; the dry run shows the changes by a new reading of the file.
function fileParts(file) {
  if (file === null) return [el("p", {}, "Operators can change the policy, and reload the configuration file.")];
  if (file instanceof Error) return [el("p", { className: "bad" }, `The file can't be taken over: ${told(file.message)}`)];
  if (!file.applied.length && !file.waiting.length) return [el("p", { className: "quiet" }, "The configuration file says the same: there is nothing to take over.")];
  const list = (changes) => el("ul", {}, ...changes.map((change) => el("li", {}, el("code", {}, change.key), `: ${change.before} → ${change.after}`)));
  return [
    ...(file.applied.length ? [el("h3", {}, "The file differs, and can be taken over at once"), list(file.applied)] : []),
    ...(file.waiting.length ? [el("h3", {}, "Waits for the next start"), list(file.waiting)] : []),
  ];
}

// A key with its value; `controls` collects the fields by which it is changed.
function keyRow(value, mayChange, controls, changed) {
  const path = pathOf(value);
  const unit = unitOf(path);
  let shown = el("span", {}, value.value);
  if (mayChange && value.by_request) {
    shown = control(value, changed);
    controls.push({ value, field: shown });
  }
  const name = el("div", {}, el("code", {}, path), el("div", { className: "quiet" }, value.meaning));
  const made = row(name, el("span", { className: "nowrap" }, shown, unit && ` ${unit}`), el("span", {}, value.default, unit && ` ${unit}`), changesBy(value));
  made.dataset.search = `${path} ${value.value} ${value.meaning}`.toLowerCase();
  ["Key", "Value", "Default", "Changes"].forEach((head, k) => { made.cells[k].dataset.label = head; });
  return made;
}

function group(title, keyRows) {
  const head = el("thead", {}, el("tr", {}, ...["Key", "Value", "Default", "Changes"].map((text) => el("th", {}, text))));
  return el("section", { className: "group" }, el("h3", {}, title), el("table", { className: "policy" }, head, el("tbody", {}, ...keyRows)));
}

function groups(values, makeRow) {
  const differing = values.filter((value) => value.value !== value.default);
  const rest = values.filter((value) => value.value === value.default);
  const sections = [...new Set(rest.map((value) => sectionOf(pathOf(value))))];
  return [
    ...(differing.length ? [group("Differs from the default", differing.map(makeRow))] : [el("p", { className: "quiet" }, "Every value is the default.")]),
    ...sections.map((section) => group(titleOf(section), rest.filter((value) => sectionOf(pathOf(value)) === section).map(makeRow))),
  ];
}

function search(places) {
  const words = by("policy-search").value.trim().toLowerCase();
  let found = 0;
  for (const line of places.querySelectorAll("tbody tr")) {
    line.hidden = !line.dataset.search.includes(words);
    found += line.hidden ? 0 : 1;
  }
  for (const section of places.querySelectorAll(".group")) section.hidden = !section.querySelector("tbody tr:not([hidden])");
  by("policy-found").textContent = words ? `${count(found, "key")} found` : "";
}

// Resolves to true if the policy may have changed.
export async function show(mayChange) {
  const { values } = await get("/v1/policy");
  const file = mayChange ? await send("POST", "/v1/reload", { dry_run: true }).catch((error) => error) : null;
  const controls = [];
  const changes = () => controls.map(({ value, field }) => ({ value, text: field.value })).filter(({ value, text }) => text !== value.value);
  const changed = () => {
    by("policy-changes").textContent = changes().map(({ value, text }) => `${pathOf(value)}: ${value.value} → ${text}`).join(" · ");
    by("policy-apply").disabled = !changes().length;
  };
  by("policy-file").replaceChildren(...fileParts(file));
  by("policy-reload").hidden = !file?.applied?.length;
  by("policy-apply").hidden = !mayChange;
  by("policy-groups").replaceChildren(...groups(values, (value) => keyRow(value, mayChange, controls, changed)));
  by("policy-search").value = "";
  by("policy-error").hidden = true;
  by("policy-search").oninput = () => search(by("policy-groups"));
  search(by("policy-groups"));
  changed();
  return carriedOut({
    apply: () => send("PATCH", "/v1/policy", nested(changes())),
    reload: () => send("POST", "/v1/reload", {}),
  });
}

// The dialog shows a refusal, and stays open with the entered value.
function carriedOut({ apply, reload }) {
  const dialog = by("policy-dialog");
  let [isChanged, isBusy] = [false, false];
  const attempt = (request) => async () => {
    if (isBusy) return;
    isBusy = true;
    try {
      await request();
      isChanged = true;
      dialog.close();
    } catch (error) {
      by("policy-error").hidden = false;
      by("policy-error").textContent = isUnknown(error) ? "The controller has not answered. The policy may have changed: open this form again before you try again." : told(error.message);
    }
    isBusy = false;
  };
  by("policy-apply").onclick = attempt(apply);
  by("policy-reload").onclick = attempt(reload);
  by("asking").textContent = "";
  open(dialog);
  return new Promise((resolve) => dialog.addEventListener("close", () => resolve(isChanged), { once: true }));
}
