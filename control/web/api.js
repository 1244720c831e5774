// Requests to the server, with the token of this tab.

const KEY = "lattice.token";

// The demo passes the token in the URL fragment, which browsers never send to a server. The page removes the fragment
// from the address bar at once.
export function takeToken() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given) {
    sessionStorage.setItem(KEY, given);
    history.replaceState(null, "", location.pathname);
  }
  return sessionStorage.getItem(KEY);
}

export function setToken(token) {
  if (token) sessionStorage.setItem(KEY, token);
  else sessionStorage.removeItem(KEY);
}

export class Refused extends Error {
  constructor(status, problem) {
    super(problem?.detail ?? `the server returned HTTP status ${status}`);
    this.status = status;
    this.code = problem?.code ?? "";
  }
}

// Age in seconds of the view from which the server last answered; null before the first answer, and while the server has
// no view.
export const view = { age: null };

export async function open(path, options = {}) {
  const headers = { authorization: `Bearer ${sessionStorage.getItem(KEY) ?? ""}` };
  const response = await fetch(path, { ...options, headers, cache: "no-store" });
  const age = response.headers.get("lattice-view-age-ms");
  view.age = age === null ? null : Number(age) / 1000;
  if (response.ok) return response;
  throw new Refused(response.status, await response.json().catch(() => null));
}

export async function get(path) {
  return (await open(`/api/v1/${path}`)).json();
}

// Returns the items of all pages of a list.
export async function all(path) {
  const items = [];
  let cursor = null;
  do {
    const at = cursor === null ? "" : `&cursor=${encodeURIComponent(cursor)}`;
    const page = await get(`${path}${path.includes("?") ? "&" : "?"}limit=1000${at}`);
    items.push(...page.items);
    cursor = page.next_cursor ?? null;
  } while (cursor !== null);
  return items;
}

// Reads server-sent events. The browser's EventSource cannot send a token, so this function parses the stream itself.
export async function events(since, signal, onEvent) {
  const response = await open(`/api/v1/events?since=${since}`, { signal });
  onEvent("open", null);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const frames = (rest + value).split("\n\n");
    rest = frames.pop();
    for (const frame of frames) {
      let name = "";
      const data = [];
      for (const line of frame.split("\n")) {
        if (line.startsWith("event:")) name = line.slice(6).trim();
        else if (line.startsWith("data:")) data.push(line.slice(5).trimStart());
      }
      // A frame without data is the keep-alive of a quiet stream.
      onEvent(name, data.length ? JSON.parse(data.join("\n")) : null);
    }
  }
}
