// The REST API: reads, writes and the stream of events. EventSource can't send a token, fetch can.

const KEY = "hydra-token";
const MOST_MS = 20_000; // for a read: a controller that hangs sends no refusal either
const MOST_TO_DO_MS = 60_000; // for a request that needs a plan, or waits for its turn
const SILENCE_MS = 45_000; // of a stream of events, which has a sign of life every 15 s
const NOBODY_LEADS = new Set(["/problems/standing-by", "/problems/store-unavailable"]);

export class Refused extends Error {
  constructor(status, document, token) {
    super(document.detail ?? `HTTP ${status}`);
    this.status = status;
    this.document = document;
    this.token = token;
  }

  // None of several controllers leads; this controller is a standby.
  get nobodyLeads() {
    return NOBODY_LEADS.has(this.document.type);
  }
}

// True if the request may have been carried out although it failed: the reply was lost, or came from a proxy.
export const isUnknown = (error) => !(error instanceof Refused) || error.document.type === "/problems/leader-unanswered" || (error.status >= 500 && error.document.type === undefined);

// The token of all requests; null: none.
export const token = () => sessionStorage.getItem(KEY);
export const signIn = (text) => sessionStorage.setItem(KEY, text);
// True if a header can carry the token. Other tokens belong to no caller, and browsers don't send them.
export const mayBeToken = (text) => /^[\x21-\x7e]+$/.test(text);
export const signOut = () => sessionStorage.removeItem(KEY);

const headers = (sent) => (sent === null ? {} : { Authorization: `Bearer ${sent}` });

async function answer(response, sent) {
  if (response.ok) return response.json(); // a torn body is no answer
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

// As `stream`, for a stream shared by the tabs with this token, since a browser has six connections to a
// server. The tab that holds the lock has the stream, and forwards events to the other tabs; when that tab
// closes, the next tab gets the lock. Browsers offer locks to pages that come over TLS or from the same
// machine: on other pages, each tab has a stream of its own.
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
      if (data === "ended") leads || resolve(); // a late message belongs to the former stream
      else if (data === "open") opened();
      else if (data !== "anybody?") happened(data.kind, data.event);
      else if (isOpen) others.postMessage("open");
    };
  });
  others.postMessage("anybody?");
  const leading = navigator.locks.request(name, { signal: waiting.signal }, lead);
  leading.catch(() => {}); // no listener is left: not an error
  try {
    await Promise.race([leading, ended]);
  } finally {
    waiting.abort();
    others.close();
  }
}
