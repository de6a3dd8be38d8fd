// Sends requests to the server's API, the same that the command line uses, and follows its streams.
// The token stays in this tab, and goes along as a header: no cookie, so no other site can use it.

const ROOT = "/api/v1";
const TOKEN = "fleetctl-token";
const RETRY_MS = [500, 1000, 2000, 5000];

export class ApiError extends Error {
  constructor(status, body) {
    super((body.errors ?? [`the server answered ${status}`]).join("\n"));
    this.status = status;
    this.code = body.code;
    this.hint = body.hint ?? "";
    this.body = body;
  }
}

// True where the same request may succeed later: no server answered, or one that was busy or failed.
export function mayPass(error) {
  return !(error instanceof ApiError) || error.status === 0 || error.status === 429 || error.status >= 500;
}

export function setToken(text) {
  if (text) {
    sessionStorage.setItem(TOKEN, text);
  } else {
    sessionStorage.removeItem(TOKEN);
  }
}

export function hasToken() {
  return sessionStorage.getItem(TOKEN) !== null;
}

function headers(more = {}) {
  const token = sessionStorage.getItem(TOKEN);
  return token ? { ...more, authorization: `Bearer ${token}` } : more;
}

export function address(path, query = {}) {
  const found = Object.entries(query).filter(([, value]) => value !== "" && value !== undefined);
  const text = new URLSearchParams(found).toString();
  return `${ROOT}/${path}${text ? `?${text}` : ""}`;
}

async function reach(path, options) {
  try {
    return await fetch(path, options);
  } catch (error) {
    if (options.signal?.aborted) {
      throw error;
    }
    throw new ApiError(0, { errors: ["the server cannot be reached"], hint: "`fleetctl serve` starts it" });
  }
}

async function send(path, options) {
  const response = await reach(path, options);
  if (!response.ok) {
    let body = {};
    try {
      body = await response.json();
    } catch {
      body = { errors: [`the server answered ${response.status}`] };
    }
    throw new ApiError(response.status, body);
  }
  return response;
}

export async function get(path, query, signal) {
  const response = await send(address(path, query), { headers: headers(), signal });
  return response.json();
}

export async function getText(path, query, signal) {
  const response = await send(address(path, query), { headers: headers(), signal });
  return { text: await response.text(), headers: response.headers };
}

export async function getBlob(path, query, signal) {
  const response = await send(address(path, query), { headers: headers(), signal });
  return response.blob();
}

export async function post(path, body) {
  const options = {
    method: "POST",
    headers: headers({ "content-type": "application/json" }),
    body: JSON.stringify(body),
  };
  const response = await send(`${ROOT}/${path}`, options);
  return response.json();
}

// Follows a stream of server-sent events until `signal` aborts or `event` returns false; where the
// connection breaks, it goes on after the last event. `fetch` and no EventSource, for the header.
export async function follow(path, query, { event, state = () => {}, signal }) {
  let last = "";
  let failures = 0;
  while (!signal.aborted) {
    try {
      const more = last ? { "last-event-id": last } : {};
      const response = await send(address(path, query), { headers: headers(more), signal });
      state("live");
      failures = 0;
      for await (const one of readEvents(response.body)) {
        last = one.id || last;
        if (event(one) === false) {
          return;
        }
      }
    } catch (error) {
      if (signal.aborted) {
        return;
      }
      if (!mayPass(error)) {
        throw error;
      }
    }
    state("lost");
    await new Promise((resolve) => setTimeout(resolve, RETRY_MS[Math.min(failures, 3)]));
    failures += 1;
  }
}

async function* readEvents(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) {
      return;
    }
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      const found = parseEvent(part);
      if (found) {
        yield found;
      }
    }
  }
}

function parseEvent(text) {
  const found = { id: "", event: "message", data: "" };
  for (const line of text.split("\n")) {
    const at = line.indexOf(": ");
    if (at > 0) {
      found[line.slice(0, at)] = line.slice(at + 2);
    }
  }
  return found.data ? { ...found, data: JSON.parse(found.data) } : null;
}
