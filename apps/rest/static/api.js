// The REST API: reads, writes and the stream of events. EventSource can't send a token, fetch can.

const KEY = "hydra-token";
const MOST_MS = 20_000; // for a reading: a controller that hangs says nothing, not even that
const MOST_TO_DO_MS = 60_000; // for what takes a plan, or a turn among others
const SILENCE_MS = 45_000; // of a stream of events, in which a sign of life comes every 15 s
const NOBODY_LEADS = new Set(["/problems/standing-by", "/problems/store-unavailable"]);

export class Refused extends Error {
  constructor(status, document, token) {
    super(document.detail ?? `HTTP ${status}`);
    this.status = status;
    this.document = document;
    this.token = token;
  }

  // Of several controllers none leads, and this one stands by.
  get nobodyLeads() {
    return NOBODY_LEADS.has(this.document.type);
  }
}

// Whether what was asked for may have been done all the same: the reply is lost, or is a proxy's.
export const isUnknown = (error) => !(error instanceof Refused) || error.document.type === "/problems/leader-unanswered" || (error.status >= 500 && error.document.type === undefined);

// The token that requests are sent with; null: none.
export const token = () => sessionStorage.getItem(KEY);
export const signIn = (text) => sessionStorage.setItem(KEY, text);
// Whether a header can carry it: others are nobody's token, and browsers don't send them.
export const mayBeToken = (text) => /^[\x21-\x7e]+$/.test(text);
export const signOut = () => sessionStorage.removeItem(KEY);

const headers = (sent) => (sent === null ? {} : { Authorization: `Bearer ${sent}` });

async function answer(response, sent) {
  if (response.ok) return response.json(); // a body that breaks off is no answer
  throw new Refused(response.status, await response.json().catch(() => ({})), sent);
}

export async function get(path) {
  const sent = token();
  return answer(await fetch(path, { headers: headers(sent), signal: AbortSignal.timeout(MOST_MS) }), sent);
}

export async function send(method, path, body) {
  const sent = token();
  const request = { method, headers: headers(sent), signal: AbortSignal.timeout(MOST_TO_DO_MS) };
  if (body !== undefined) {
    request.headers["Content-Type"] = "application/json";
    request.body = JSON.stringify(body);
  }
  return answer(await fetch(path, request), sent);
}

const line = (block, name) => block.match(new RegExp(`^${name}: ?(.*)$`, "m"))?.[1];

// Calls `happened` with the kind and the data of every event until the stream ends, or is silent.
async function stream(sent, happened, opened) {
  const ending = new AbortController();
  let alarm;
  const isAlive = () => {
    clearTimeout(alarm);
    alarm = setTimeout(() => ending.abort(), SILENCE_MS);
  };
  isAlive();
  const response = await fetch("/v1/events", { headers: headers(sent), signal: ending.signal });
  if (!response.ok) await answer(response, sent);
  opened();
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    isAlive();
    if (done) return clearTimeout(alarm);
    const blocks = (rest + value).replaceAll("\r\n", "\n").split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const data = line(block, "data");
      if (data !== undefined) happened(line(block, "event"), JSON.parse(data));
    }
  }
}

async function digest(text) {
  const bytes = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text));
  return [...new Uint8Array(bytes)].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

// The same of the stream that the tabs with this token have in common, since a browser has six connections
// to a server. The tab that holds their lock has it, and tells the others; when that tab is gone, the next
// one has the lock. Browsers offer locks to pages that come over TLS or from the same machine: elsewhere
// each tab has a stream of its own.
export async function follow(happened, opened) {
  const sent = token();
  if (navigator.locks === undefined) return stream(sent, happened, opened);
  const name = `hydra-events ${await digest(sent ?? "")}`;
  const others = new BroadcastChannel(name);
  const waiting = new AbortController();
  let [leads, isOpen] = [false, false];
  const lead = async () => {
    if (waiting.signal.aborted) return;
    leads = true;
    try {
      await stream(sent, (kind, event) => {
        others.postMessage({ kind, event });
        happened(kind, event);
      }, () => {
        isOpen = true;
        others.postMessage("open");
        opened();
      });
    } finally {
      isOpen = false;
      others.postMessage("ended");
    }
  };
  const ended = new Promise((resolve) => {
    others.onmessage = ({ data }) => {
      if (data === "ended") leads || resolve(); // what is told late is of the one before
      else if (data === "open") opened();
      else if (data !== "anybody?") happened(data.kind, data.event);
      else if (isOpen) others.postMessage("open");
    };
  });
  others.postMessage("anybody?");
  const leading = navigator.locks.request(name, { signal: waiting.signal }, lead);
  leading.catch(() => {}); // that nobody waits for it any more is no error
  try {
    await Promise.race([leading, ended]);
  } finally {
    waiting.abort();
    others.close();
  }
}
