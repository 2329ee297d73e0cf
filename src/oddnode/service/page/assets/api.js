// The service, asked as any other client does. The token is kept in this variable and nowhere else.

let token = "";
export const setToken = (value) => { token = value; };
export const hasToken = () => token !== "";

export class Problem extends Error {
  constructor(status, title, detail) {
    super(detail || title);
    this.status = status;
  }
}

async function send(path, { body, ...options } = {}) {
  const headers = { accept: "application/json", ...options.headers };
  if (token) headers.authorization = `Bearer ${token}`;
  if (body !== undefined) headers["content-type"] = "application/json";
  let answer;
  try {
    answer = await fetch(path, { cache: "no-store", ...options, headers, body: body === undefined ? undefined : JSON.stringify(body) });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem(0, "", "The service does not answer.");
  }
  if (answer.ok) return answer;
  let told = {};
  try { told = await answer.json(); } catch { /* a proxy may answer with something else */ }
  const fields = Array.isArray(told.errors) ? told.errors.map((each) => each.detail ?? each.message ?? "").filter(Boolean).join("; ") : "";
  throw new Problem(answer.status, told.title ?? `status ${answer.status}`, [told.detail, fields].filter(Boolean).join(" "));
}

export const get = async (path) => (await send(path)).json();
export const post = async (path, body) => (await send(path, { method: "POST", body })).json();
// A node by its id: the service is told whether it is a number or a text, unless someone typed it.
export const nodePath = (id, isTyped = false, query = "") => `${encodeURIComponent(String(id))}?${isTyped ? "" : `kind=${typeof id === "number" ? "integer" : "string"}&`}${query}`;

// Server-sent events by fetch, since an EventSource cannot send a token. Tries again for ever, ever less often.
export function listen({ onopen, onevent, onlost }) {
  let failures = 0, timer = null, busy = false, stop = null;
  async function connect() {
    if (busy) return;
    busy = true;
    stop = new AbortController();
    let silence = null;
    const heard = () => { clearTimeout(silence); silence = setTimeout(() => stop.abort(), 45_000); };
    try {
      const answer = await send("v1/events", { headers: { accept: "text/event-stream" }, signal: stop.signal });
      heard();
      failures = 0;
      onopen();
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (;;) {
        const { value, done } = await reader.read();
        if (done) break;
        heard();
        const blocks = (rest + value).replaceAll("\r\n", "\n").split("\n\n");
        rest = blocks.pop();
        for (const block of blocks) read(block);
      }
      lost(new Problem(0, "", "The service closed the connection."));
    } catch (error) {
      lost(error);
    } finally {
      clearTimeout(silence);
      busy = false;
    }
  }
  function read(block) {
    const fields = { event: "message", data: [] };
    for (const line of block.split("\n")) {
      const [, name, value] = /^([a-z]+): ?(.*)$/.exec(line) ?? [];
      if (name === "data") fields.data.push(value);
      else if (name === "event") fields.event = value;
    }
    if (fields.data.length) onevent(fields.event, JSON.parse(fields.data.join("\n")));
  }
  function lost(error) {
    failures += 1;
    const wait = Math.min(15_000, 500 * 2 ** Math.min(failures, 5));
    onlost(error, wait);
    // Without a token there is nothing to try again.
    if (error.status !== 401 && error.status !== 403) timer = setTimeout(connect, wait);
  }
  // A page that was left may be kept to come back to; its connection would count against those of the next page.
  addEventListener("pagehide", () => stop.abort());
  addEventListener("pageshow", (event) => { if (event.persisted) connect(); });
  connect();
  return { retry() { clearTimeout(timer); failures = 0; connect(); } };
}
