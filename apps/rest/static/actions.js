// What an operator does from the page: each asks first, and shows what would come of it.

import { get, send } from "./api.js";
import { by, clock, el, mbps } from "./dom.js";
import { describe } from "./why.js";

const MOST_LINES = 12;

// Resolves to whether the answer is yes; without `yes` there is nothing to agree to.
function ask(title, text, yes) {
  const dialog = by("ask");
  by("ask-title").textContent = title;
  by("ask-text").replaceChildren(...text);
  by("ask-yes").textContent = yes;
  by("ask-yes").hidden = yes === "";
  dialog.returnValue = "";
  if (!dialog.open) dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true });
  });
}

// Whether it may go on; a refusal is told in the dialog.
async function tried(title, request) {
  try {
    return await request();
  } catch (error) {
    await ask(title, [el("p", {}, error.message)], "");
    return null;
  }
}

const list = (lines) => el("ul", {},
  ...lines.slice(0, MOST_LINES).map((line) => el("li", {}, line)),
  ...(lines.length > MOST_LINES ? [el("li", {}, `and ${lines.length - MOST_LINES} more`)] : []));

// What is carried out is planned for the demand that was shown, and from where the dry run began.
export async function plan() {
  const { entries } = await get("/v1/demand");
  const demand = entries.map((one) => ({ src: one.src, dst: one.dst, mbps: one.estimated_mbps }));
  const body = demand.length ? { demand } : {};
  for (;;) {
    const dry = await tried("No plan", () => send("POST", "/v1/plan", body));
    if (dry === null) return false;
    const lines = [...dry.connect.map((one) => `up: ${describe(one)}`), ...dry.disconnect.map((one) => `down: ${describe(one)}`)];
    const text = [
      el("p", {}, `For the demand as measured: ${mbps(dry.served_mbps)} of ${mbps(dry.demand_mbps)} Mb/s would be served. ${dry.verdict.pays ? "It pays" : "It does not pay"}: ${dry.verdict.reason}.`),
      el("p", {}, `${dry.connect.length} circuits up, ${dry.disconnect.length} down, ${dry.retagged_ports} ports, ${dry.rules} rules; ${dry.affected_pairs.length} rack pairs go electrically meanwhile.`),
      list(lines),
    ];
    if (!(await ask("Dry run", text, lines.length ? "Carry it out" : ""))) return false;
    if ((await get("/v1/topology")).epoch === dry.current_epoch) break; // else: ask again
  }
  return (await tried("Not carried out", () => send("POST", "/v1/reconfigurations", body))) !== null;
}

const place = (rack, port) => `/v1/quarantine/${encodeURIComponent(rack)}/${encodeURIComponent(port)}`;

export async function clearQuarantine({ rack, port, since_unix_s: since, reason }) {
  const text = `In quarantine since ${clock(since)}: ${reason}. Planning may use it again at once; no circuit changes now.`;
  if (!(await ask(`Clear ${rack} ${port}?`, [el("p", {}, text)], "Clear it"))) return false;
  return (await tried("Not cleared", () => send("DELETE", place(rack, port)))) !== null;
}
