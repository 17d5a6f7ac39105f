// The REST API: reads, writes and the stream of events. EventSource can't send a token, fetch can.

const KEY = "hydra-token";

export class Refused extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

export const signIn = (token) => sessionStorage.setItem(KEY, token);

function headers(more = {}) {
  const token = sessionStorage.getItem(KEY);
  return token === null ? more : { ...more, Authorization: `Bearer ${token}` };
}

async function answer(response) {
  const document = await response.json().catch(() => ({}));
  if (!response.ok && response.status !== 503) {
    throw new Refused(response.status, document.detail ?? `HTTP ${response.status}`);
  }
  return document;
}

export const get = async (path) => answer(await fetch(path, { headers: headers() }));

export async function send(method, path, body) {
  const request = { method, headers: headers() };
  if (body !== undefined) {
    request.headers["Content-Type"] = "application/json";
    request.body = JSON.stringify(body);
  }
  const response = await fetch(path, request);
  const document = await answer(response);
  if (!response.ok) throw new Refused(response.status, document.detail);
  return document;
}

const line = (block, name) => block.match(new RegExp(`^${name}: ?(.*)$`, "m"))?.[1];

// Calls `happened` with the kind and the data of every event until the stream ends.
export async function follow(happened, opened) {
  const response = await fetch("/v1/events", { headers: headers() });
  if (!response.ok) await answer(response);
  opened();
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const blocks = (rest + value).replaceAll("\r\n", "\n").split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const data = line(block, "data");
      if (data !== undefined) happened(line(block, "event"), JSON.parse(data));
    }
  }
}
