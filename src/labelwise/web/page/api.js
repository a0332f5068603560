// Calls to the server. They fail with Away (try again later) or Refused (do not try again).

export class Away extends Error {}

export class Refused extends Error {}

const PATIENCE = 20000; // request timeout in milliseconds
const UPLOAD_PATIENCE = 300000;
const OUTLIVES = 30000; // characters; browsers limit all keepalive requests together to 64 KiB

let csrf = "";
let annotator = "";
let page = randomWord(); // identifies this page, so that the server knows its leases

/** Start a session for an annotator; the response holds the campaign, its kind and its classes. */
export async function begin(name) {
  annotator = name;
  const session = await once(`/api/session?name=${encodeURIComponent(name)}`);
  csrf = session.csrf;
  return session;
}

export const get = (path) => once(path);

/** Fetch a binary answer. */
export const getBytes = (path) => once(path, undefined, (answer) => answer.arrayBuffer());

// Statuses for which a retry is useless; all other failures are retried.
const FINAL = [400, 404, 413, 422];

/** Send a change. The CSRF code may change with a server restart: fetch it and retry once. */
export async function post(path, body = {}) {
  try {
    return await once(path, body);
  } catch (error) {
    if (error.status !== 403) throw error;
    await begin(annotator);
    return once(path, body);
  }
}

/** Take a new page id: the server grants no leases to a page that was closed. */
export function renamePage() {
  page = randomWord();
}

/** Send a file with new items; the answer tells how many items it has. */
export const upload = (file) => post(`/api/upload?name=${encodeURIComponent(file.name)}`, file);

function randomWord() {
  return Array.from(crypto.getRandomValues(new Uint32Array(3)), (part) => part.toString(36)).join("-");
}

async function once(path, body, read = (answer) => answer.json()) {
  const headers = { "X-Annotator": encodeURIComponent(annotator) };
  const options = { headers, credentials: "same-origin", signal: AbortSignal.timeout(PATIENCE) };
  if (body !== undefined) {
    const isFile = body instanceof Blob;
    const content = isFile ? body : JSON.stringify(body);
    const type = isFile ? "application/octet-stream" : "application/json";
    Object.assign(headers, { "Content-Type": type, "X-Labelwise-Csrf": csrf, "X-Labelwise-Page": page });
    // keepalive completes the request even if the page is closed.
    Object.assign(options, { method: "POST", body: content, keepalive: content.length < OUTLIVES });
    if (isFile) options.signal = AbortSignal.timeout(UPLOAD_PATIENCE);
  }
  let answer, content;
  try {
    answer = await fetch(path, options);
    content = await (answer.ok ? read(answer) : answer.json()).catch(() => null);
  } catch {
    throw new Away("the server does not answer");
  }
  if (answer.ok && content !== null) return content;
  if (answer.ok) throw new Away("the server's answer broke off");
  const message = content?.error ?? `the server answered ${answer.status}`;
  throw Object.assign(FINAL.includes(answer.status) ? new Refused(message) : new Away(message), {
    status: answer.status,
  });
}
